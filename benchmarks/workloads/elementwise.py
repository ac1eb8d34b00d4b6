"""Element by element: tiny, as large as a cache, as large as memory; cheap and transcendental; broadcasts."""

from __future__ import annotations

import math

import numpy as np

from hloom.benchmarks.workloads.table import Family, M, both, normal, uniform

FAMILY = Family("elementwise")
workload = FAMILY.workload


@workload("tiny_add", "x + 1, 4 elements: what a call costs", normal((4,)), bound_by="overhead", suite="core")
def _tiny_add(lib, x):
    return x + 1.0


@workload("tree_20", "20 arrays of 8 elements in a tree, each scaled", normal(*[(8,)] * 20), bound_by="overhead")
def _tree(lib, *arrays):
    return [0.5 * x for x in arrays]


def _expression(lib, x, y):
    np = lib.np
    return np.sqrt(np.abs(x * y + 0.5)) * np.maximum(x, y) - np.minimum(x, 0.25)


workload(
    "chain_64k", "chain of 8 operations, 64K elements (cache)", normal((M // 16,), (M // 16,)), bound_by="compute"
)(_expression)
workload("chain_16m", "chain of 8 operations, 16M elements", normal((16 * M,), (16 * M,)), suite="core")(_expression)


@workload("gelu_4m", "gelu (tanh), 4M", normal((4 * M,), scale=3.0), suite="core")
def _gelu(lib, x):
    return lib.nn.gelu(x)


@workload("gelu_16k", "gelu (tanh), 16K (cache)", normal((M // 64,), scale=3.0), bound_by="compute")
def _gelu_small(lib, x):
    return lib.nn.gelu(x)


@workload("silu_4m", "silu, 4M", normal((4 * M,), scale=3.0))
def _silu(lib, x):
    return lib.nn.silu(x)


@workload("sin_cos_4m", "sin(x) exp(-y) + cos(x), 4M", normal((4 * M,), (4 * M,), scale=2.0))
def _sin_cos(lib, x, y):
    return lib.np.sin(x) * lib.np.exp(-y) + lib.np.cos(x)


@workload("logarithms_4m", "log1p(exp(-|x|)) + log(|x| + 1), 4M", normal((4 * M,), scale=3.0))
def _logarithms(lib, x):
    np = lib.np
    return np.log1p(np.exp(-np.abs(x))) + np.log(np.abs(x) + 1.0)


@workload("power_4m", "|x| to the power y, 4M", normal((4 * M,), (4 * M,)), bound_by="compute", tolerance=1e-5)
def _power(lib, x, y):
    return (lib.np.abs(x) + 0.1) ** y


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


TENSORS = [(64,), (256,), (64, 64), (64, 256), (256, 256)] * 20


@workload(
    "adam_100", "one step of Adam, 100 tensors of 64 to 65,536 elements", normal(*TENSORS * 4), bound_by="overhead"
)
def _adam_many(lib, *arrays):
    quarter = len(arrays) // 4
    groups = [arrays[k * quarter : (k + 1) * quarter] for k in range(4)]
    return [_adam(lib, *one) for one in zip(*groups, strict=True)]


@workload("outer_add", "tanh(x[:, None] + y), 4096 x 1024", both(normal((4096,)), normal((1024,))))
def _outer(lib, x, y):
    return lib.np.tanh(x[:, None] + y)


@workload(
    "broadcast_chain",
    "scale, shift, mask: (64, 256, 1024) by (256, 1), (1024), (64, 1, 1)",
    normal((64, 256, 1024), (256, 1), (1024,), (64, 1, 1)),
)
def _broadcasts(lib, x, rows, columns, batch):
    return lib.np.where(x > 0.0, x * rows + columns, batch * x)


@workload(
    "double_8m", "x * y + sqrt(|x|) in float64, 8M", normal((8 * M,), (8 * M,), dtype=np.float64), needs=("float64",)
)
def _double(lib, x, y):
    return x * y + lib.np.sqrt(lib.np.abs(x))
