"""Matrix products of many shapes and dtypes, dense layers and attention with their gradients."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from hloom.benchmarks.workloads.table import Family, both, integers, normal

FAMILY = Family("products")
workload = FAMILY.workload


def _product(lib, x, y):
    return lib.np.matmul(x, y)


def product(name: str, m: int, k: int, n: int, what: str = "", **parts):
    parts = {"bound_by": "compute", "flops": 2.0 * m * k * n} | parts
    workload(name, what or f"product of {m} x {k} and {k} x {n}", normal((m, k), (k, n)), **parts)(_product)


for size in (64, 256, 512):
    product(f"matmul_{size}", size, size, size)
product("matmul_1024", 1024, 1024, 1024, suite="core")
product("matmul_2048", 2048, 2048, 2048)
product("matmul_odd", 1000, 777, 1013)
product("matmul_tall", 65536, 64, 64)
product("matmul_skinny", 16, 4096, 1024)
product("matmul_inner", 64, 65536, 64, tolerance=2e-5)


@workload(
    "matmul_transposed",
    "x.T @ y.T, 1024^3",
    normal((1024, 1024), (1024, 1024)),
    bound_by="compute",
    flops=2.0 * 1024**3,
)
def _transposed(lib, x, y):
    return lib.np.matmul(x.T, y.T)


@workload(
    "matmul_batched",
    "64 products, 128^3",
    normal((64, 128, 128), (64, 128, 128)),
    bound_by="compute",
    flops=64 * 2.0 * 128**3,
)
def _batched(lib, x, y):
    return lib.np.matmul(x, y)


@workload(
    "matmul_f64",
    "product in float64, 768^3",
    normal((768, 768), (768, 768), dtype=np.float64),
    bound_by="compute",
    flops=2.0 * 768**3,
    needs=("float64",),
)
def _f64(lib, x, y):
    return lib.np.matmul(x, y)


@workload(
    "matmul_bf16",
    "product in bfloat16, 768^3",
    normal((768, 768), (768, 768), dtype=ml_dtypes.bfloat16),
    bound_by="compute",
    flops=2.0 * 768**3,
    tolerance=1e-2,
    needs=("bfloat16",),
)
def _bf16(lib, x, y):
    return lib.np.matmul(x, y)


@workload(
    "matmul_s8",
    "product of int8 summed in int32, 768^3",
    integers(100, (768, 768), (768, 768), low=-100, dtype=np.int8),
    bound_by="compute",
    flops=2.0 * 768**3,
    needs=("lax",),
)
def _s8(lib, x, y):
    return lib.lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=np.int32)


@workload("matvec_4096", "matrix times vector, 4096 x 4096", normal((4096, 4096), (4096,)))
def _matvec(lib, a, x):
    return lib.np.matmul(a, x)


@workload("vecmat_4096", "vector times matrix, 4096 x 4096", normal((4096,), (4096, 4096)))
def _vecmat(lib, x, a):
    return lib.np.matmul(x, a)


@workload("few_rows", "8 x 4096 by 4096 x 4096, as in inference", normal((8, 4096), (4096, 4096)))
def _few_rows(lib, x, w):
    return lib.np.matmul(x, w)


@workload("few_rows_transposed", "8 x 4096 by (4096 x 4096).T", normal((8, 4096), (4096, 4096)))
def _few_rows_transposed(lib, x, w):
    return lib.np.matmul(x, w.T)


@workload(
    "dense_gelu",
    "dense + bias + gelu, 1024 x 1024 x 2048",
    normal((1024, 1024), (1024, 2048), (2048,)),
    bound_by="compute",
    suite="core",
    flops=2.0 * 1024 * 1024 * 2048,
)
def _dense_gelu(lib, x, w, b):
    return lib.nn.gelu(x @ w * (1 / 32) + b)


@workload(
    "dense_gelu_grad",
    "gradients of dense + bias + gelu, 512 x 512 x 1024",
    normal((512, 512), (512, 1024), (1024,)),
    bound_by="compute",
    flops=3 * 2.0 * 512 * 512 * 1024,
    needs=("grad",),
    tolerance=2e-5,
)
def _dense_gelu_grad(lib, x, w, b):
    def loss(parameters):
        x, w, b = parameters
        return lib.np.sum(lib.nn.gelu(x @ w * 0.04 + b))

    return lib.value_and_grad(loss)((x, w, b))[1]


@workload(
    "distances",
    "distances of 2048 to 2048 points, 64 dimensions",
    normal((2048, 64), (2048, 64)),
    bound_by="compute",
    flops=2.0 * 2048 * 2048 * 64,
    tolerance=2e-5,
)
def _distances(lib, x, y):
    np = lib.np
    squares = np.sum(x * x, axis=1)[:, None] - 2.0 * (x @ y.T) + np.sum(y * y, axis=1)
    return np.sqrt(np.maximum(squares, 0.0))


HEADS = normal(*[(4, 8, 512, 64)] * 3)
HEADS_FLOPS = 4.0 * 4 * 8 * 512 * 512 * 64


def attention(lib, q, k, v, causal: bool = False):
    """(batch, heads, time, features), the softmax written out."""
    np = lib.np
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * (1 / math.sqrt(q.shape[-1]))
    if causal:
        time = np.arange(q.shape[-2])
        scores = np.where(time[:, None] >= time, scores, -1e9)
    return np.matmul(lib.nn.softmax(scores), v)


@workload(
    "attention",
    "attention, 4 x 8 heads, 512 x 512, 64 features",
    HEADS,
    bound_by="compute",
    flops=HEADS_FLOPS,
    tolerance=1e-5,
)
def _attention(lib, q, k, v):
    return attention(lib, q, k, v)


@workload("attention_causal", "the same, causal", HEADS, bound_by="compute", flops=HEADS_FLOPS, tolerance=1e-5)
def _causal(lib, q, k, v):
    return attention(lib, q, k, v, causal=True)


@workload(
    "attention_grad",
    "gradients of attention, 4 x 8 heads, 512 x 512, 64 features",
    HEADS,
    bound_by="compute",
    flops=3.5 * HEADS_FLOPS,
    needs=("grad",),
    tolerance=2e-5,
)
def _attention_grad(lib, q, k, v):
    return lib.value_and_grad(lambda qkv: lib.np.sum(attention(lib, *qkv) ** 2))((q, k, v))[1]


@workload(
    "embed_one_hot",
    "one-hot times a table, 4096 x 1000 x 128",
    both(integers(1000, (4096,)), normal((1000, 128))),
    bound_by="compute",
    flops=2.0 * 4096 * 1000 * 128,
)
def _one_hot_product(lib, places, table):
    return lib.nn.one_hot(places, table.shape[0]) @ table
