"""The workloads, each once. `function(lib, *arrays)` is written with JAX's names; see `hloom.bench.libraries`.

The reference is the same function in NumPy in double precision, or `plain` where NumPy lacks something (gradients).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Workload:
    """name; what: one line; inputs(random, divide=1) -> NumPy arrays; function(lib, *arrays) -> tree of arrays.

    bound_by: 'memory' (inputs read once, results written once, at the triad's bandwidth), 'compute' or 'overhead'.
    tolerance: largest error against the reference, relative to the largest element of each result.
    plain: the function in plain NumPy, for what `function` asks of `lib` that NumPy has not (`needs`).
    """

    name: str
    what: str
    inputs: Callable
    function: Callable
    bound_by: str = "memory"
    suite: str = "full"
    tolerance: float = 5e-6
    flops: float = 0.0
    needs: tuple[str, ...] = ()
    plain: Callable | None = None

    def bound(self, lib):
        """The function of arrays alone, named after the workload."""
        if self.plain is not None and lib.name == "numpy":
            return self.plain
        function = self.function

        def run(*arrays):
            return function(lib, *arrays)

        run.__name__ = run.__qualname__ = self.name
        return run

    def reference(self, arrays, lib) -> list[np.ndarray]:
        """The results in double precision. `lib`: the NumPy library."""
        wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
        return lib.arrays(self.bound(lib)(*wide))


WORKLOADS: dict[str, Workload] = {}


def workload(name: str, what: str, inputs, **parts):
    def add(function):
        WORKLOADS[name] = Workload(name, what, inputs, function, **parts)
        return function

    return add


def divided(shape, divide: int) -> tuple[int, ...]:
    """A shape for trying a workload out: every extent above 16 divided, so that extents that agree still do."""
    return tuple(max(2, extent // divide) if extent > 16 else extent for extent in shape)


def normal(*shapes, scale: float = 1.0):
    def make(random, divide=1):
        dims = [divided(shape, divide) for shape in shapes]
        return [random.standard_normal(shape, dtype=np.float32) * np.float32(scale) for shape in dims]

    return make


def uniform(*ranges, count: int):
    def make(random, divide=1):
        return [random.uniform(low, high, count // divide).astype(np.float32) for low, high in ranges]

    return make


M = 1 << 20
ROWS = (4096, 1024)

# --- element by element -------------------------------------------------------------------------------------------


@workload("chain_16m", "element-wise chain of 8 operations, 16M", normal((16 * M,), (16 * M,)), suite="core")
def _chain(lib, x, y):
    np = lib.np
    return np.sqrt(np.abs(x * y + 0.5)) * np.maximum(x, y) - np.minimum(x, 0.25)


@workload("gelu_4m", "gelu (tanh), 4M", normal((4 * M,), scale=3.0), suite="core")
def _gelu(lib, x):
    return lib.nn.gelu(x)


@workload("silu_4m", "silu, 4M", normal((4 * M,), scale=3.0))
def _silu(lib, x):
    return lib.nn.silu(x)


@workload("sin_cos_4m", "sin(x) exp(-y) + cos(x), 4M", normal((4 * M,), (4 * M,), scale=2.0))
def _sin_cos(lib, x, y):
    return lib.np.sin(x) * lib.np.exp(-y) + lib.np.cos(x)


MARKET = uniform((20, 180), (20, 180), (0.1, 3.0), (0.1, 0.6), count=4_000_000)


@workload("black_scholes_4m", "Black-Scholes, 4,000,000 options", MARKET, bound_by="compute", suite="core")
def _black_scholes(lib, spot, strike, years, volatility):
    np = lib.np
    deviation = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (0.02 + 0.5 * volatility * volatility) * years) / deviation
    discounted = strike * np.exp(-0.02 * years)
    below1 = 0.5 + 0.5 * lib.erf(d1 * math.sqrt(0.5))
    below2 = 0.5 + 0.5 * lib.erf((d1 - deviation) * math.sqrt(0.5))
    call = spot * below1 - discounted * below2
    return call, call - spot + discounted


@workload("orbit_1m", "20 steps of z^2 + c, 1M points", uniform((-0.3, 0.2), (-0.2, 0.2), count=M), bound_by="compute")
def _orbit(lib, x, y):
    u, v = x, y
    for _ in range(20):
        u, v = u * u - v * v + x, 2.0 * (u * v) + y
    return u * u + v * v


@workload("adam_4m", "one step of Adam, 4M parameters", normal((4 * M,), (4 * M,), (4 * M,), (4 * M,)))
def _adam(lib, p, g, m, v):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * lib.np.abs(v) + 0.001 * g * g
    return p - 0.001 * m / (lib.np.sqrt(v) + 1e-8), m, v


# --- rows and columns ---------------------------------------------------------------------------------------------


@workload("softmax", "softmax of rows, 4096 x 1024", normal(ROWS, scale=3.0), suite="core")
def _softmax(lib, x):
    return lib.nn.softmax(x)


@workload("layer_norm", "layer norm of rows, 4096 x 1024", normal(ROWS, (1024,), (1024,)), suite="core", tolerance=1e-5)
def _layer_norm(lib, x, weight, bias):
    np = lib.np
    centred = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * weight + bias


@workload("rms_norm", "root-mean-square norm of rows and silu, 4096 x 1024", normal(ROWS, (1024,)), tolerance=1e-5)
def _rms_norm(lib, x, weight):
    return lib.nn.silu(x / lib.np.sqrt(lib.np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * weight)


@workload("logsumexp", "log-sum-exp of rows, 4096 x 1024", normal(ROWS, scale=3.0))
def _logsumexp(lib, x):
    return lib.nn.logsumexp(x, axis=-1)


@workload("argmax", "argmax of rows, 4096 x 1024", normal(ROWS))
def _argmax(lib, x):
    return lib.np.argmax(x, axis=-1)


@workload("column_sum", "sum of columns, 4096 x 1024", normal(ROWS), suite="core")
def _column_sum(lib, x):
    return lib.np.sum(x, axis=0)


@workload("row_mean_square", "mean square of rows, 4096 x 1024", normal(ROWS))
def _row_mean_square(lib, x):
    return lib.np.mean(x * x, axis=1)


@workload("full_sum_16m", "sum of squares, 16M", normal((16 * M,)))
def _full_sum(lib, x):
    return lib.np.sum(x * x)


@workload("transpose_add", "x.T + y, 2048 x 2048", normal((2048, 2048), (2048, 2048)), suite="core")
def _transpose_add(lib, x, y):
    return x.T + y


@workload("transpose_heads", "(32, 512, 16, 64) to (32, 16, 512, 64)", normal((32, 512, 16, 64)))
def _transpose_heads(lib, x):
    y = lib.np.transpose(x * 2.0, (0, 2, 1, 3))
    return y


@workload("transpose_swap", "2 x.T, 4096 x 1024", normal(ROWS))
def _transpose_swap(lib, x):
    return lib.np.transpose(x * 2.0, (1, 0))


# --- matrix products ----------------------------------------------------------------------------------------------


@workload("matmul_1024", "matrix product, 1024^3", normal((1024, 1024), (1024, 1024)), bound_by="compute", suite="core",
          flops=2.0 * 1024**3)  # fmt: skip
def _matmul(lib, x, w):
    return x @ w


@workload("dense_gelu", "dense + bias + gelu, 1024 x 1024 x 2048", normal((1024, 1024), (1024, 2048), (2048,)),
          bound_by="compute", suite="core", flops=2.0 * 1024 * 1024 * 2048)  # fmt: skip
def _dense_gelu(lib, x, w, b):
    return lib.nn.gelu(x @ w * (1 / 32) + b)


@workload("matmul_batched", "64 matrix products, 128^3", normal((64, 128, 128), (64, 128, 128)), bound_by="compute",
          flops=64 * 2.0 * 128**3)  # fmt: skip
def _matmul_batched(lib, x, y):
    return lib.np.matmul(x, y)


@workload("matvec_4096", "matrix times vector, 4096 x 4096", normal((4096, 4096), (4096,)))
def _matvec(lib, a, x):
    return a @ x


@workload("distances", "distances of 2048 to 2048 points, 64 dimensions", normal((2048, 64), (2048, 64)),
          bound_by="compute", flops=2.0 * 2048 * 2048 * 64, tolerance=2e-5)  # fmt: skip
def _distances(lib, x, y):
    np = lib.np
    squares = np.sum(x * x, axis=1)[:, None] - 2.0 * (x @ y.T) + np.sum(y * y, axis=1)
    return np.sqrt(np.maximum(squares, 0.0))


# --- training -----------------------------------------------------------------------------------------------------


def _network(batch: int, inputs: int, hidden: int, outputs: int):
    def make(random, divide=1):
        b, i, h, o = divided((batch, inputs, hidden, outputs), divide)

        def draw(*shape, scale):
            return (random.standard_normal(shape) * scale).astype(np.float32)

        return [
            draw(i, h, scale=math.sqrt(2 / i)),
            draw(h, scale=0.01),
            draw(h, o, scale=math.sqrt(2 / h)),
            draw(o, scale=0.01),
            random.random((b, i), dtype=np.float32),
            random.integers(0, o, b).astype(np.int32),
        ]

    return make


def _network_step(lib, w1, b1, w2, b2, images, labels):
    """One step of gradient descent of the cross entropy of a two-layer network."""

    def loss(parameters, images, labels):
        w1, b1, w2, b2 = parameters
        hidden = lib.nn.relu(images @ w1 + b1)
        log_probabilities = lib.nn.log_softmax(hidden @ w2 + b2)
        return -lib.np.mean(lib.np.sum(log_probabilities * lib.nn.one_hot(labels, b2.shape[0]), axis=-1))

    parameters = (w1, b1, w2, b2)
    value, gradient = lib.value_and_grad(loss)(parameters, images, labels)
    return [p - 0.1 * g for p, g in zip(parameters, gradient, strict=True)] + [value]


def _network_step_by_hand(w1, b1, w2, b2, images, labels):
    """The same with the gradient written out, in NumPy."""
    before = images @ w1 + b1
    hidden = np.maximum(before, 0)
    logits = hidden @ w2 + b2
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    wanted = (labels[:, None] == np.arange(len(b2))).astype(w1.dtype)
    value = -np.mean(np.sum(log_probabilities * wanted, axis=1))
    d_logits = (np.exp(log_probabilities) - wanted) / len(labels)
    d_hidden = (d_logits @ w2.T) * (before > 0)
    gradient = images.T @ d_hidden, d_hidden.sum(axis=0), hidden.T @ d_logits, d_logits.sum(axis=0)
    return [p - 0.1 * g for p, g in zip((w1, b1, w2, b2), gradient, strict=True)] + [value]


WORKLOADS["mlp_step"] = Workload(
    "mlp_step", "training step, 784-512-10, batch 256", _network(256, 784, 512, 10), _network_step, "compute", "core",
    flops=2.0 * 256 * (784 * 512 * 2 + 512 * 10 * 3), needs=("value_and_grad",), plain=_network_step_by_hand,
)  # fmt: skip
WORKLOADS["digits_step"] = Workload(
    "digits_step", "training step, 64-128-10, batch 32 (example 1)", _network(32, 64, 128, 10), _network_step,
    "overhead", "core", flops=2.0 * 32 * (64 * 128 * 2 + 128 * 10 * 3), needs=("value_and_grad",),
    plain=_network_step_by_hand,
)  # fmt: skip


@workload("tiny_add", "x + 1, 4 elements: what a call costs", normal((4,)), bound_by="overhead", suite="core")
def _tiny_add(lib, x):
    return x + 1.0
