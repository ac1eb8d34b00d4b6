"""Programs laid out over meshes, written once for hloom and for JAX, for comparing what devices send.

Each is a function of the namespace (`jax`, or `hloom` under that name) that returns the function to compile, the shapes
of its arguments, for each argument its layout (for each dimension the axes, as a `PartitionSpec` has them), and those
of the results, or None where they are left to the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Program = tuple[Callable, list[tuple], list[tuple], Any]
PROGRAMS: dict[str, tuple[dict[str, int], Callable[[Any], Program]]] = {}


def program(**mesh: int):
    def add(make):
        PROGRAMS[make.__name__] = mesh, make
        return make

    return add


def _mlp(jax):
    np = jax.numpy

    def loss(w1, w2, x, y):
        h = np.tanh(x @ w1)
        return np.mean((h @ w2 - y) ** 2)

    return loss


@program(data=8)
def data_parallel_gradients(jax):
    shapes = [(256, 512), (512, 64), (128, 256), (128, 64)]
    specs = [(None, None), (None, None), ("data", None), ("data", None)]
    return jax.grad(_mlp(jax), (0, 1)), shapes, specs, [(None, None), (None, None)]


@program(data=8)
def fully_sharded_weights(jax):
    shapes = [(256, 512), (512, 64), (128, 256), (128, 64)]
    specs = [("data", None), ("data", None), ("data", None), ("data", None)]
    return jax.grad(_mlp(jax), (0, 1)), shapes, specs, [("data", None), ("data", None)]


@program(model=8)
def tensor_parallel_mlp(jax):
    np = jax.numpy

    def f(x, w1, w2):
        return np.maximum(x @ w1, 0) @ w2

    return f, [(64, 256), (256, 1024), (1024, 256)], [(None, None), (None, "model"), ("model", None)], [(None, None)]


@program(data=2, model=4)
def tensor_and_data_parallel_gradients(jax):
    shapes = [(256, 512), (512, 64), (128, 256), (128, 64)]
    specs = [(None, "model"), ("model", None), ("data", None), ("data", None)]
    return jax.grad(_mlp(jax), (0, 1)), shapes, specs, [(None, "model"), ("model", None)]


def _attention(jax, heads: int = 8):
    np = jax.numpy

    def block(x, wq, wk, wv, wo, w1, w2):
        def norm(x):
            m = np.mean(x, -1, keepdims=True)
            v = np.mean((x - m) ** 2, -1, keepdims=True)
            return (x - m) / np.sqrt(v + 1e-5)

        h = norm(x)
        q, k, v = (np.einsum("bsd,dhe->bshe", h, w) for w in (wq, wk, wv))
        s = np.einsum("bqhe,bkhe->bhqk", q, k)
        p = np.exp(s - np.max(s, -1, keepdims=True))
        p = p / np.sum(p, -1, keepdims=True)
        o = np.einsum("bhqk,bkhe->bqhe", p, v)
        x = x + np.einsum("bqhe,hed->bqd", o, wo)
        return x + np.maximum(norm(x) @ w1, 0) @ w2

    return block


ATTENTION_SHAPES: list[tuple] = [
    (8, 64, 128), (128, 8, 16), (128, 8, 16), (128, 8, 16), (8, 16, 128), (128, 512), (512, 128),
]  # fmt: skip
ATTENTION_SPECS: list[tuple] = [
    ("data", None, None), (None, "model", None), (None, "model", None), (None, "model", None), ("model", None, None),
    (None, "model"), ("model", None),
]  # fmt: skip


@program(data=2, model=4)
def transformer_block(jax):
    return _attention(jax), ATTENTION_SHAPES, ATTENTION_SPECS, [("data", None, None)]


@program(data=2, model=4)
def transformer_block_gradients(jax):
    np = jax.numpy
    block = _attention(jax)

    def loss(*given):
        return np.sum(block(*given) ** 2)

    return jax.grad(loss, tuple(range(1, 7))), ATTENTION_SHAPES, ATTENTION_SPECS, ATTENTION_SPECS[1:]


@program(batch=8)
def convolution_over_a_split_batch(jax):
    def f(x, k):
        return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    return f, [(16, 16, 16, 8), (3, 3, 8, 16)], [("batch",) + (None,) * 3, (None,) * 4], [("batch",) + (None,) * 3]


@program(rows=8)
def convolution_over_split_rows(jax):
    f = convolution_over_a_split_batch(jax)[0]
    spec = (None, "rows", None, None)
    return f, [(2, 64, 16, 8), (3, 3, 8, 16)], [spec, (None,) * 4], [spec]


@program(x=2, y=4)
def heat_equation(jax):
    np = jax.numpy

    def step(u):
        p = np.pad(u, 1)
        return u + 0.1 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)

    return step, [(128, 128)], [("x", "y")], [("x", "y")]


@program(x=8)
def roll(jax):
    return lambda u: jax.numpy.roll(u, 3, 0) + u, [(128, 64)], [("x", None)], [("x", None)]


@program(vocabulary=8)
def embedding_split_by_vocabulary(jax):
    def f(table, ids):
        return table[ids.astype("int32")]

    return f, [(4096, 128), (32,)], [("vocabulary", None), (None,)], [(None, None)]


@program(data=8)
def k_means_step(jax):
    np = jax.numpy

    def step(points, centers):
        d = np.sum((points[:, None, :] - centers[None]) ** 2, -1)
        nearest = np.argmin(d, 1)
        one = (nearest[:, None] == np.arange(centers.shape[0])[None]).astype(points.dtype)
        return (one.T @ points) / (np.sum(one, 0)[:, None] + 1)

    return step, [(1024, 16), (32, 16)], [("data", None), (None, None)], [(None, None)]


@program(expert=8)
def mixture_of_experts(jax):
    np = jax.numpy

    def f(x, w, r):
        gates = x @ r
        gates = np.exp(gates) / np.sum(np.exp(gates), -1, keepdims=True)
        h = np.einsum("ted,edf->tef", np.einsum("td,te->ted", x, gates), w)
        return np.einsum("tef,te->tf", h, gates)

    return (
        f,
        [(128, 64), (8, 64, 64), (64, 8)],
        [("expert", None), ("expert", None, None), (None, None)],
        [("expert", None)],
    )


@program(x=8)
def running_sum(jax):
    return lambda u: jax.numpy.cumsum(u, 0), [(256, 128)], [("x", None)], [("x", None)]


@program(x=8)
def sort_along_a_split_dimension(jax):
    return lambda u: jax.numpy.sort(u, 0), [(256, 128)], [("x", None)], [("x", None)]


@program(x=8)
def transposition(jax):
    return lambda u: u.T, [(256, 128)], [("x", None)], [("x", None)]


@program(data=8)
def softmax_cross_entropy_of_split_classes(jax):
    np = jax.numpy

    def f(logits, labels):
        m = np.max(logits, -1, keepdims=True)
        e = logits - m
        return -np.mean(np.sum(labels * (e - np.log(np.sum(np.exp(e), -1, keepdims=True))), -1))

    return f, [(64, 1024), (64, 1024)], [(None, "data"), (None, "data")], [()]
