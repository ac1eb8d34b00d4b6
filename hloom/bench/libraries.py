"""The libraries that are compared, behind one shape: JAX's. A workload is written once, as `function(lib, *arrays)`.

lib.np, lib.nn           the functions of NumPy and of neural networks, with jax.numpy's and jax.nn's names
lib.erf(x)
lib.value_and_grad(f)    of f(parameters, *rest): the value, and a gradient like the parameters (a tuple)
lib.prepare(array)       a NumPy array made the library's own
lib.compiled(workload)   what is timed: a function of prepared arrays that returns when the result is there
lib.arrays(result)       the results as NumPy arrays
"""

from __future__ import annotations

import importlib.metadata
import os

import numpy as np

import hloom as hl


class Hloom:
    """hloom; fused, or one kernel an operation."""

    def __init__(self, fusion: bool):
        import hloom.numpy

        self.name = "hloom" if fusion else "unfused"
        self.title = "hloom fused" if fusion else "hloom unfused"
        self.fusion = fusion
        self.np, self.nn, self.erf = hloom.numpy, hl.nn, hl.lax.erf
        self.value_and_grad = hl.value_and_grad
        self.prepare = hl.device_put

    def jitted(self, workload):
        return hl.jit(workload.bound(self), fusion=self.fusion)

    compiled = jitted

    def arrays(self, result) -> list[np.ndarray]:
        return [np.asarray(x) for x in hl.tree.leaves(result)]


class Jax:
    """jax on the CPU, jitted."""

    def __init__(self):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax

        self.jax = jax
        self.name, self.title = "jax", f"jax {jax.__version__}"
        self.np, self.nn, self.erf = jax.numpy, jax.nn, jax.lax.erf
        self.value_and_grad = jax.value_and_grad
        self.prepare = jax.device_put

    def compiled(self, workload):
        function = self.jax.jit(workload.bound(self))
        wait = self.jax.block_until_ready
        return lambda *arrays: wait(function(*arrays))

    def arrays(self, result) -> list[np.ndarray]:
        return [np.asarray(x) for x in self.jax.tree.leaves(result)]


class Numpy:
    """NumPy, one operation after the other. In double precision it is the reference of the others."""

    def __init__(self):
        self.name, self.title = "numpy", f"NumPy {np.__version__}"
        self.np, self.nn = np, _NumpyNN

    def erf(self, x):
        try:
            from scipy.special import erf
        except ImportError:
            import math

            return np.vectorize(math.erf, otypes=[x.dtype])(x)
        return erf(x)

    def prepare(self, array):
        return array

    def compiled(self, workload):
        function = workload.bound(self)
        # The others write a transposed result out; a view would have done nothing yet.
        return lambda *arrays: hl.tree.map(lambda x: np.asarray(x, order="C"), function(*arrays))

    def arrays(self, result) -> list[np.ndarray]:
        return [np.asarray(x) for x in hl.tree.leaves(result)]


class _NumpyNN:
    """jax.nn's functions as a NumPy user writes them."""

    @staticmethod
    def relu(x):
        return np.maximum(x, 0)

    @staticmethod
    def gelu(x):
        return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x))))

    @staticmethod
    def silu(x):
        return x / (1 + np.exp(-x))

    @staticmethod
    def softmax(x, axis=-1):
        e = np.exp(x - x.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)

    @staticmethod
    def log_softmax(x, axis=-1):
        shifted = x - x.max(axis=axis, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))

    @staticmethod
    def logsumexp(x, axis=-1):
        top = x.max(axis=axis, keepdims=True)
        return np.log(np.exp(x - top).sum(axis=axis)) + top.squeeze(axis)

    @staticmethod
    def one_hot(x, count):
        return (x[:, None] == np.arange(count)).astype(np.float32)


class Torch:
    """torch on the CPU, eager, with as many threads as hloom."""

    def __init__(self, threads: int):
        import torch

        torch.set_num_threads(threads)
        self.torch = torch
        self.name, self.title = "torch", f"torch {torch.__version__}"
        self.np, self.nn, self.erf = _TorchNumpy(torch), _TorchNN(torch), torch.erf

    def value_and_grad(self, function):
        def run(parameters, *rest):
            leaves = [p.detach().requires_grad_(True) for p in parameters]
            value = function(tuple(leaves), *rest)
            return value.detach(), self.torch.autograd.grad(value, leaves)

        return run

    def prepare(self, array):
        return self.torch.from_numpy(array)

    def compiled(self, workload):
        function = workload.bound(self)
        if "value_and_grad" in workload.needs:
            return function

        def without_gradients(*arrays):
            with self.torch.no_grad():
                return function(*arrays)

        return without_gradients

    def arrays(self, result) -> list[np.ndarray]:
        return [x.numpy() for x in hl.tree.leaves(result)]


class _TorchNumpy:
    """NumPy's names over torch's functions."""

    def __init__(self, torch):
        for name in "sqrt exp log sin cos tanh abs where matmul square einsum log1p".split():
            setattr(self, name, getattr(torch, name))
        self._torch = torch

    def maximum(self, x, y):
        return self._torch.clamp(x, min=y) if isinstance(y, (int, float)) else self._torch.maximum(x, y)

    def minimum(self, x, y):
        return self._torch.clamp(x, max=y) if isinstance(y, (int, float)) else self._torch.minimum(x, y)

    def sum(self, x, axis=None, keepdims=False):
        return x.sum() if axis is None else x.sum(dim=axis, keepdim=keepdims)

    def mean(self, x, axis=None, keepdims=False):
        return x.mean() if axis is None else x.mean(dim=axis, keepdim=keepdims)

    def max(self, x, axis=None, keepdims=False):
        return x.max() if axis is None else x.amax(dim=axis, keepdim=keepdims)

    def argmax(self, x, axis=None):
        return x.argmax(dim=axis)

    def argmin(self, x, axis=None):
        return x.argmin(dim=axis)

    def transpose(self, x, axes=None):
        # As for NumPy: a view would have done nothing yet.
        return x.permute(*(axes or range(x.ndim - 1, -1, -1))).contiguous()


class _TorchNN:
    """jax.nn's names over torch.nn.functional."""

    def __init__(self, torch):
        functional = torch.nn.functional
        self.relu, self.silu = functional.relu, functional.silu
        self.gelu = lambda x: functional.gelu(x, approximate="tanh")
        self.softmax = lambda x, axis=-1: functional.softmax(x, dim=axis)
        self.log_softmax = lambda x, axis=-1: functional.log_softmax(x, dim=axis)
        self.logsumexp = lambda x, axis=-1: torch.logsumexp(x, dim=axis)
        self.one_hot = lambda x, count: functional.one_hot(x.long(), count).float()


PEERS = ("jax", "torch", "numpy")


def installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def load(peers, threads: int) -> list:
    """hloom fused and unfused, then those of the peers that are installed."""
    made = [Hloom(True), Hloom(False)]
    makers = {"numpy": Numpy, "jax": Jax, "torch": lambda: Torch(threads)}
    return made + [makers[name]() for name in PEERS if name in peers and installed(name)]
