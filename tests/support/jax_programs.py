"""Functions of JAX whose HLO text hloom has to read: a name, the function, and its arguments' shapes and dtypes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

F, I, B, C = "float32", "int32", "bool", "complex64"


def _lstm(x, w, u):
    def step(state, row):
        h, c = state
        i, f, g, o = jnp.split(row @ w + h @ u, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros(u.shape[0])
    return lax.scan(step, (zero, zero), x)[1]


def _attention(q, k, v):
    return jax.nn.softmax(q @ k.T / jnp.sqrt(q.shape[-1]), axis=-1) @ v


def _conv(x, w, **options):
    return lax.conv_general_dilated(x, w, **options)


PROGRAMS = {
    "add": (lambda x, y: x + y, (F, 3, 4), (F, 3, 4)),
    "broadcast": (lambda x, y: x * y[:, None] + 1, (F, 3, 4), (F, 3)),
    "elementwise": (lambda x: jnp.exp(x) - jnp.log1p(jnp.abs(x)) * jnp.tanh(x) / jnp.sqrt(x * x + 1), (F, 5, 6)),
    "trigonometry": (lambda x: jnp.arctan2(jnp.sin(x), jnp.cos(x)) + jnp.tan(x / 4), (F, 20)),
    "integers": (lambda x, y: (x // 3) % 5 + (x << 2) ^ (y & 7) | lax.population_count(y), (I, 20), (I, 20)),
    "comparisons": (lambda x, y: jnp.where((x < y) & ~(x == 0), x, y) + jnp.sign(x), (F, 20), (F, 20)),
    "complex": (lambda x: jnp.abs(x) + jnp.real(x * jnp.conj(x)) + jnp.angle(x), (C, 20)),
    "casts": (lambda x: x.astype(jnp.int8).astype(jnp.float16).astype(jnp.float32), (F, 20)),
    "bits": (lambda x: lax.bitcast_convert_type(x, jnp.int32) + 1, (F, 20)),
    "clip": (lambda x: jnp.clip(x, -0.5, 0.5), (F, 20)),
    "rounding": (lambda x: jnp.round(x) + jnp.floor(x) + jnp.ceil(x), (F, 20)),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 5, 10), (F, 20)),
    "matmul": (lambda x, y: x @ y, (F, 3, 4), (F, 4, 5)),
    "batched_matmul": (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), (F, 2, 3, 4), (F, 2, 4, 5)),
    "einsum": (lambda x, y: jnp.einsum("abc,cbd->da", x, y), (F, 2, 3, 4), (F, 4, 3, 5)),
    "sums": (lambda x: x.sum(0) + x.mean(0) + x.max(0) + x.min(0) + x.prod(0), (F, 4, 5)),
    "variance": (lambda x: jnp.var(x, axis=1) + jnp.std(x, axis=1), (F, 4, 5)),
    "argmax": (lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0)), (F, 4, 5)),
    "any_all": (lambda x: (jnp.any(x, 0), jnp.all(x, 1)), (B, 4, 5)),
    "cumsum": (lambda x: jnp.cumsum(x, axis=1), (F, 4, 5)),
    "cumprod": (lambda x: lax.cumprod(x, axis=1), (F, 4, 5)),
    "softmax": (lambda x: jax.nn.softmax(x), (F, 4, 5)),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, axis=0), (F, 4, 5)),
    "layer_norm": (lambda x: jax.nn.standardize(x, axis=-1), (F, 4, 5)),
    "gelu": (lambda x: jax.nn.gelu(x, approximate=False) + jax.nn.silu(x), (F, 20)),
    "attention": (_attention, (F, 4, 8), (F, 6, 8), (F, 6, 8)),
    "reshape": (lambda x: x.reshape(6, 4).T.reshape(2, 12), (F, 4, 6)),
    "concatenate": (lambda x, y: jnp.concatenate([x, y, x], axis=1), (F, 3, 2), (F, 3, 4)),
    "pad": (lambda x: jnp.pad(x, ((1, 2), (0, 1))) + lax.pad(x, 1.0, ((1, 2, 0), (-1, 2, 0))), (F, 3, 2)),
    "slices": (lambda x: x[1:, ::2] + jnp.flip(x, 1)[:2, ::2], (F, 3, 5)),
    "roll": (lambda x: jnp.roll(x, 2, axis=0), (F, 5, 3)),
    "iota": (lambda x: x + jnp.arange(5.0) + jnp.eye(4, 5), (F, 4, 5)),
    "tril": (lambda x: jnp.tril(x) + jnp.triu(x, 1), (F, 4, 4)),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 3)), (F, 5, 4), (I,)),
    "dynamic_update": (lambda x, y, i: lax.dynamic_update_slice(x, y, (0, i)), (F, 5, 4), (F, 2, 2), (I,)),
    "take": (lambda x, i: x[i], (F, 5, 4), (I, 3)),
    "take_along_axis": (lambda x, i: jnp.take_along_axis(x, i % 4, axis=1), (F, 5, 4), (I, 5, 2)),
    "gather": (lambda x, i: x[i % 5, i % 4], (F, 5, 4), (I, 7)),
    "scatter_add": (lambda x, i, y: x.at[i % 5].add(y), (F, 5, 4), (I, 3), (F, 3, 4)),
    "scatter_set": (lambda x: x.at[1:3, 2].set(7.0), (F, 5, 4)),
    "scatter_max": (lambda x, i, y: x.at[i % 5].max(y), (F, 5, 4), (I, 3), (F, 3, 4)),
    "segment_sum": (lambda x, i: jax.ops.segment_sum(x, i % 4, 4), (F, 9, 2), (I, 9)),
    "one_hot": (lambda i: jax.nn.one_hot(i % 5, 5), (I, 6)),
    "sort": (lambda x: jnp.sort(x, axis=0), (F, 7, 3)),
    "argsort": (lambda x: jnp.argsort(x, axis=1), (F, 3, 7)),
    "sort_pairs": (lambda x, y: lax.sort((x, y), num_keys=1), (F, 9), (I, 9)),
    "median": (lambda x: jnp.median(x, axis=0), (F, 7, 3)),
    "searchsorted": (lambda x, y: jnp.searchsorted(jnp.sort(x), y), (F, 9), (F, 4)),
    "while": (lambda x: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 1.5 + x), (0, x))[1], (F, 3)),
    "fori": (lambda x: lax.fori_loop(0, 4, lambda i, c: c * 0.5 + i, x), (F, 3)),
    "scan": (lambda x: lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(3), x), (F, 5, 3)),
    "lstm": (_lstm, (F, 5, 3), (F, 3, 16), (F, 4, 16)),
    "map": (lambda x: lax.map(lambda r: r @ r, x), (F, 5, 3)),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), (F, 5)),
    "switch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), (I,), (F, 5)),
    "associative_scan": (lambda x: lax.associative_scan(jnp.maximum, x), (F, 9)),
    "gradient": (lambda x: jax.grad(lambda a: jnp.sum(jnp.tanh(a @ a.T)))(x), (F, 4, 3)),
    "gradient_of_scan": (jax.grad(lambda x: lax.scan(lambda c, r: (jnp.sin(c) * r, None), 1.0, x)[0]), (F, 5)),
    "gradient_of_conv": (
        jax.grad(lambda x, w: _conv(x, w, window_strides=(2, 1), padding="SAME").sum(), argnums=(0, 1)),
        (F, 2, 3, 8, 8), (F, 4, 3, 3, 3),
    ),
    "vmap": (jax.vmap(lambda a, b: jnp.dot(a, b) * a), (F, 4, 3), (F, 4, 3)),
    "hessian": (jax.hessian(lambda x: jnp.sum(jnp.exp(x) * x[::-1])), (F, 3)),
    "conv": (lambda x, w: _conv(x, w, window_strides=(1, 1), padding="VALID"), (F, 2, 3, 8, 8), (F, 4, 3, 3, 3)),
    "conv_dilated": (
        lambda x, w: _conv(x, w, window_strides=(1,), padding=[(2, 1)], lhs_dilation=(2,), rhs_dilation=(2,)),
        (F, 2, 3, 8), (F, 4, 3, 3),
    ),
    "conv_grouped": (
        lambda x, w: _conv(x, w, window_strides=(1, 1), padding="SAME", feature_group_count=2,
                           dimension_numbers=("NHWC", "HWIO", "NHWC")),
        (F, 2, 6, 6, 4), (F, 3, 3, 2, 6),
    ),
    "pooling": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME"), (F, 2, 5, 6, 3),
    ),
    "gradient_of_pooling": (
        jax.grad(lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID") ** 2).sum()), (F, 6, 6),
    ),
    "fft": (lambda x: jnp.abs(jnp.fft.fft(x)) + jnp.fft.ifft(x).real, (F, 8)),
    "rfft": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * 2), (F, 4, 8)),
    "random_normal": (lambda x: x + jax.random.normal(jax.random.key(3), (5,)), (F, 5)),
    "random_split": (lambda x: jax.random.uniform(jax.random.split(jax.random.key(0), 3)[1], (4,)) + x, (F, 4)),
    "random_bits": (lambda x: jax.random.bits(jax.random.key(1, impl="rbg"), (6,), "uint32") + x, ("uint32", 6)),
    "erf_inv": (lambda x: lax.erf_inv(x / 10), (F, 20)),
    "lgamma": (lambda x: lax.lgamma(jnp.abs(x) + 0.5) + lax.digamma(jnp.abs(x) + 0.5), (F, 20)),
    "top_k": (lambda x: lax.top_k(x, 3), (F, 4, 9)),
    "optimization_barrier": (lambda x: lax.optimization_barrier((x, x + 1)), (F, 4)),
    "polynomial": (lambda x: jnp.polyval(jnp.array([1.0, -2.0, 0.5]), x), (F, 9)),
    "power": (lambda x: jnp.abs(x) ** 2.5 + x**3 + 2.0**x, (F, 9)),
    "nested_jit": (lambda x: jax.jit(lambda a: jax.jit(jnp.sin)(a) + 1)(x), (F, 9)),
    "int64_index": (lambda x: x[jnp.argmax(x)], (F, 9)),
    "empty": (lambda x: jnp.concatenate([x[:0], x]), (F, 4)),
}  # fmt: skip
