"""The libraries, behind one interface, which is JAX's. A workload is written once, as `function(lib, *arrays)`.

lib.np, lib.nn           the functions of NumPy and of neural networks, with jax.numpy's and jax.nn's names
lib.erf(x)
lib.parts                the features of the library: those below, and 'fft', 'bfloat16', 'float64'
lib.lax, lib.random      jax.lax and jax.random
lib.value_and_grad(f)    ('grad') of f(parameters, *rest): the value, and a gradient like the parameters (a tuple)
lib.conv, lib.max_pool   ('conv') convolution and pooling of images
lib.prepare(array)       converts a NumPy array to an array of the library
lib.compiled(workload) the timed function of prepared arrays that returns when the result is ready
lib.arrays(result)       the results as NumPy arrays
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable
from typing import Any

import numpy as np

import hloom as hl
from hloom.benchmarks.expressions import NumExpr
from hloom.ir import interpret


class _JaxShaped:
    """The functions that hloom and jax have under the same names."""

    lax: Any  # the module

    parts = frozenset(("np", "nn", "lax", "random", "grad", "conv", "fft", "bfloat16", "float64"))

    def conv(self, x, w, strides=1, dilation=1, groups=1, layout="NHWC", padding="SAME"):
        """x: images in the layout; w: (height, width, in, out) for NHWC, (out, in, height, width) for NCHW."""
        numbers = (layout, "HWIO" if layout == "NHWC" else "OIHW", layout)
        return self.lax.conv_general_dilated(
            x, w, (strides, strides), padding, rhs_dilation=(dilation, dilation), feature_group_count=groups,
            dimension_numbers=numbers,
        )  # fmt: skip

    def max_pool(self, x, size):
        window = (1, size, size, 1)
        return self.lax.reduce_window(x, -np.inf, self.lax.max, window, window, "VALID")


class Hloom(_JaxShaped):
    """hloom, fused or with one kernel per operation."""

    def __init__(self, fusion: bool):
        import hloom.numpy

        self.name = "hloom" if fusion else "unfused"
        self.title = f"hloom {hl.__version__}" if fusion else "hloom unfused"
        self.fusion = fusion
        self.np, self.nn, self.lax, self.random, self.erf = hloom.numpy, hl.nn, hl.lax, hl.random, hl.lax.erf
        self.value_and_grad = hl.value_and_grad
        self.prepare: Callable = hl.device_put

    def jitted(self, workload):
        return hl.jit(workload.bound(self), fusion=self.fusion)

    compiled = jitted

    def arrays(self, result) -> list[np.ndarray]:
        return [np.asarray(x) for x in hl.tree.leaves(result)]


class Jax(_JaxShaped):
    """jax on the CPU, jitted."""

    def __init__(self):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax

        self.jax = jax
        self.name, self.title = "jax", f"jax {jax.__version__}"
        self.np, self.nn, self.lax, self.random, self.erf = jax.numpy, jax.nn, jax.lax, jax.random, jax.lax.erf
        self.value_and_grad = jax.value_and_grad

    def prepare(self, array):
        # By default jax converts float64 to float32, half the work. Enabled globally, it would widen int32 to int64.
        if array.dtype == np.float64:
            with self.jax.enable_x64(True):
                return self.jax.device_put(array)
        return self.jax.device_put(array)

    def compiled(self, workload):
        function = self.jax.jit(workload.bound(self))
        wait = self.jax.block_until_ready
        if "float64" not in workload.needs:
            return lambda *arrays: wait(function(*arrays))

        def in_double(*arrays):
            with self.jax.enable_x64(True):
                return wait(function(*arrays))

        return in_double

    def arrays(self, result) -> list[np.ndarray]:
        return [np.asarray(x) for x in self.jax.tree.leaves(result)]


class Numpy:
    """NumPy, one operation at a time. In double precision it is the reference for the others."""

    parts = frozenset(("np", "nn", "fft", "float64"))

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
        # The others materialize a transposed result; a view would do no work.
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
    """torch on the CPU, eager or compiled, with as many threads as hloom."""

    parts = frozenset(("np", "nn", "grad", "conv", "bfloat16", "float64"))

    def __init__(self, threads: int, compiled: bool = False):
        import torch

        torch.set_num_threads(threads)
        self.torch = torch
        self.compile = compiled
        self.name, self.title = "torch", f"torch {torch.__version__}"
        if compiled:
            self.name, self.title = "torch.compile", f"torch.compile {torch.__version__}"
        self.np, self.nn, self.erf = _TorchNumpy(torch), _TorchNN(torch), torch.erf

    def value_and_grad(self, function):
        if self.compile:  # the functional transformation becomes one graph, with the code around it
            both = self.torch.func.grad_and_value(function)

            def functional(parameters, *rest):
                gradient, value = both(parameters, *rest)
                return value, gradient

            return functional

        def run(parameters, *rest):
            single = not isinstance(parameters, (tuple, list))
            leaves = [p.detach().requires_grad_(True) for p in ([parameters] if single else parameters)]
            value = function(leaves[0] if single else tuple(leaves), *rest)
            gradient = self.torch.autograd.grad(value, leaves)
            return value.detach(), gradient[0] if single else gradient

        return run

    def prepare(self, array):
        if array.dtype.name == "bfloat16":
            return self.torch.from_numpy(array.view(np.uint16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(array)

    def conv(self, x, w, strides=1, dilation=1, groups=1, layout="NHWC", padding="SAME"):
        """torch's own layout is NCHW; NHWC images are its 'channels last' memory format."""
        if layout == "NHWC":
            x, w = x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1)
        if padding == "SAME":
            pads = []
            for size, window in zip(reversed(x.shape[2:]), reversed(w.shape[2:]), strict=True):
                reach = (window - 1) * dilation + 1
                total = max(0, (-(-size // strides) - 1) * strides + reach - size)
                pads += [total // 2, total - total // 2]
            even = pads[0] == pads[1] and pads[2] == pads[3]
            x, inside = (x, (pads[2], pads[0])) if even else (self.torch.nn.functional.pad(x, pads), 0)
        else:
            inside = 0
        y = self.torch.conv2d(x, w, stride=strides, padding=inside, dilation=dilation, groups=groups)
        return y.permute(0, 2, 3, 1) if layout == "NHWC" else y

    def max_pool(self, x, size):
        return self.torch.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), size).permute(0, 2, 3, 1)

    def compiled(self, workload):
        function = workload.bound(self)
        if self.compile:
            # torch sees one code object for all workloads, and stops compiling after eight versions of it.
            self.torch._dynamo.reset()
            function = self.torch.compile(function, dynamic=False)
        if "grad" in workload.needs:
            return function

        def without_gradients(*arrays):
            with self.torch.no_grad():
                return function(*arrays)

        return without_gradients

    def arrays(self, result) -> list[np.ndarray]:
        bfloat16 = self.torch.bfloat16
        return [(x.float() if x.dtype == bfloat16 else x).numpy() for x in hl.tree.leaves(result)]


class _TorchNumpy:
    """NumPy's names over torch's functions."""

    def __init__(self, torch):
        for name in "sqrt exp log sin cos tanh abs where matmul square einsum log1p arange zeros".split():
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

    def cumsum(self, x, axis=0):
        return x.cumsum(dim=axis)

    def take(self, x, places, axis):
        return self._torch.index_select(x, axis, places)

    def concatenate(self, arrays, axis=0):
        return self._torch.cat(arrays, dim=axis)

    def swapaxes(self, x, one, other):
        return x.transpose(one, other)

    def sort(self, x, axis=-1):
        return x.sort(dim=axis).values

    def roll(self, x, shift, axis):
        return self._torch.roll(x, shift, axis)

    def astype(self, x, dtype):
        return x.to(getattr(self._torch, np.dtype(dtype).name))

    def argmax(self, x, axis=None):
        return x.argmax(dim=axis)

    def argmin(self, x, axis=None):
        return x.argmin(dim=axis)

    def transpose(self, x, axes=None):
        # As for NumPy: a view would do no work.
        return x.permute(*(axes or range(x.ndim - 1, -1, -1))).contiguous()


class _TorchNN:
    """jax.nn's names over torch.nn.functional."""

    def __init__(self, torch):
        functional = torch.nn.functional
        self.relu, self.silu, self.sigmoid = functional.relu, functional.silu, torch.sigmoid
        self.gelu = lambda x: functional.gelu(x, approximate="tanh")
        self.softmax = lambda x, axis=-1: functional.softmax(x, dim=axis)
        self.log_softmax = lambda x, axis=-1: functional.log_softmax(x, dim=axis)
        self.logsumexp = lambda x, axis=-1: torch.logsumexp(x, dim=axis)
        self.one_hot = lambda x, count: functional.one_hot(x.long(), count).float()


def interpreted(workload, arrays) -> list[np.ndarray]:
    """The results by the reference interpreter: NumPy, one op of the traced graph at a time."""
    module = hl.jit(workload.bound(Hloom(True))).lower(*arrays).module
    results = interpret.run(module, arrays)
    return [np.asarray(x) for x in (results if isinstance(results, tuple) else (results,))]


PEERS = ("jax", "torch", "torch.compile", "numpy", "numexpr", "unfused")
# The libraries for a name on the command line: a library at its best settings includes each way of using it.
GROUPS = {"torch": ("torch", "torch.compile"), "numpy": ("numpy", "numexpr")}


def installed(name: str) -> bool:
    if name == "unfused":
        return True
    try:
        importlib.metadata.version(name.partition(".")[0])
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def load(peers, threads: int) -> list:
    """hloom, then those of the peers that are installed. peers: names of PEERS."""
    makers = {
        "jax": Jax,
        "torch": lambda: Torch(threads),
        "torch.compile": lambda: Torch(threads, True),
        "numpy": Numpy,
        "numexpr": lambda: NumExpr(threads),
        "unfused": lambda: Hloom(False),
    }
    return [Hloom(True)] + [makers[name]() for name in PEERS if name in peers and installed(name)]
