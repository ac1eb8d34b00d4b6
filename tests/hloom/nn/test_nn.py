"""hloom.nn: values and gradients against jax.nn, and the properties that must hold without it."""

from __future__ import annotations

import numpy as np
import pytest
from frontend import both, close, one, sample

import hloom as hl
import hloom.numpy as hnp
from hloom import nn
from hloom.errors import ShapeError

ACTIVATIONS = (
    "relu relu6 sigmoid silu swish softplus log_sigmoid soft_sign sparse_plus sparse_sigmoid elu selu celu leaky_relu "
    "hard_tanh hard_sigmoid hard_silu hard_swish mish squareplus gelu softmax log_softmax standardize"
).split()
POINTS = np.array([-100, -30, -6, -3, -1, -0.5, -1e-4, 0.0, 1e-4, 0.25, 1, 2.5, 3, 6, 30, 100], np.float32)


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values_are_those_of_jax(jax, name):
    for x in (POINTS, sample((3, 5), "float32"), np.zeros((0, 2), np.float32)):
        if x.size == 0 and name in ("softmax", "log_softmax", "standardize"):
            x = x.reshape(0, 2)
        close(one(getattr(nn, name), x), getattr(jax.nn, name)(x), None, 20.0)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_are_those_of_jax(jax, name):
    x = POINTS if name != "standardize" else sample((6,), "float32")
    weights = np.linspace(1, 2, x.size, dtype=np.float32)
    ours = hl.grad(lambda x: hnp.sum(getattr(nn, name)(x) * weights))(hnp.asarray(x))
    theirs = jax.grad(lambda x: (getattr(jax.nn, name)(x) * weights).sum())(x)
    if name == "log_softmax":
        weights = weights / 10
    close(np.asarray(ours), theirs, None, 60.0)


def test_gelu_without_approximation(jax):
    for dtype in ("float32", "float16"):
        x = POINTS.astype(dtype)
        close(one(lambda x: nn.gelu(x, approximate=False), x), jax.nn.gelu(x, approximate=False), None, 20.0)
    ours = hl.grad(lambda x: hnp.sum(nn.gelu(x, False)))(hnp.asarray(POINTS))
    close(np.asarray(ours), jax.grad(lambda x: jax.nn.gelu(x, approximate=False).sum())(POINTS), None, 20.0)


def test_corners_of_the_derivatives():
    gradient = lambda f, x: float(hl.grad(f)(hnp.asarray(np.float32(x))))  # noqa: E731
    assert gradient(nn.relu, 0) == 0 and gradient(nn.relu, 1) == 1 and gradient(nn.relu, -1) == 0
    assert gradient(nn.relu6, 0) == 0 and gradient(nn.relu6, 6) == 0
    assert gradient(nn.hard_tanh, 1) == 1 and gradient(nn.hard_tanh, -1) == 1 and gradient(nn.hard_tanh, 2) == 0
    assert gradient(nn.leaky_relu, 0) == 1 and gradient(nn.elu, 200) == 1 and gradient(nn.elu, -200) == 0
    assert np.isnan(float(nn.relu(np.float32(np.nan))))


def test_softmax_of_large_numbers_and_masks(jax):
    x = np.array([[1e4, 1e4 - 1, -1e4], [-1e30, 0, 1e30]], np.float32)
    close(one(nn.softmax, x), jax.nn.softmax(x))
    close(one(nn.log_softmax, x), jax.nn.log_softmax(x))
    mask = np.array([[True, False, True], [True, True, False]])
    close(one(lambda x, m: nn.softmax(x, where=m), x, mask), jax.nn.softmax(x, where=mask))
    close(one(lambda x: nn.softmax(x, axis=(0, 1)), x), jax.nn.softmax(x, axis=(0, 1)))
    rows = one(nn.softmax, sample((4, 7), "float64"))
    np.testing.assert_allclose(rows.sum(-1), 1, rtol=1e-14)


def test_logsumexp(jax):
    x = sample((3, 4), "float32")
    reference = jax.nn.logsumexp
    for axis in (None, 0, 1, (0, 1)):
        for keepdims in (False, True):
            result = one(lambda x, a=axis, k=keepdims: nn.logsumexp(x, a, keepdims=k), x)
            close(result, reference(x, axis, keepdims=keepdims))
    b = sample((3, 4), "float32", 1, 0.1, 2)
    close(one(lambda x, b: nn.logsumexp(x, 1, b), x, b), reference(x, 1, b))
    for ours, theirs in zip(
        both(lambda x, b: nn.logsumexp(x, 1, b, return_sign=True), x, -b),
        reference(x, 1, -b, return_sign=True),
        strict=True,
    ):
        close(ours, theirs)
    edge = np.array([[-np.inf, -np.inf], [np.inf, 0], [1e4, 1e4]], np.float32)
    close(one(lambda x: nn.logsumexp(x, 1), edge), reference(edge, 1))
    assert one(nn.logsumexp, np.zeros((0,), np.float32)) == -np.inf
    np.testing.assert_allclose(
        np.asarray(hl.grad(nn.logsumexp)(hnp.asarray(x))), np.exp(x) / np.exp(x).sum(), rtol=1e-5
    )


def test_one_hot(jax):
    x = np.array([[0, 2], [5, -1]], np.int32)
    for axis in (-1, 0, 1):
        result = one(lambda x, a=axis: nn.one_hot(x, 3, axis=a), x)
        np.testing.assert_array_equal(result, jax.nn.one_hot(x, 3, axis=axis))
    assert one(lambda x: nn.one_hot(x, 300), np.uint8([255])).argmax() == 255
    assert nn.one_hot(hnp.asarray(x), 3, dtype="bool").dtype == bool


def test_glu_and_options(jax):
    x = sample((3, 6), "float32")
    close(one(nn.glu, x), jax.nn.glu(x))
    close(one(lambda x: nn.leaky_relu(x, 0.3), x), jax.nn.leaky_relu(x, 0.3))
    close(one(lambda x: nn.elu(x, 0.5), x), jax.nn.elu(x, 0.5))
    close(one(lambda x: nn.celu(x, 2.0), x), jax.nn.celu(x, 2.0))
    close(one(lambda x: nn.log1mexp(abs(x) + 0.01), x), jax.nn.log1mexp(abs(x) + 0.01), None, 5.0)
    with pytest.raises(ShapeError, match="size 3 along axis 1"):
        nn.glu(hnp.ones((2, 3)))


def test_dtypes_are_kept():
    for dtype in ("float16", "bfloat16", "float64"):
        x = hnp.ones((2, 4), dtype)
        for name in ACTIVATIONS:
            assert getattr(nn, name)(x).dtype == dtype, name


def test_attention(jax):
    reference = jax.nn.dot_product_attention
    q = sample((2, 5, 4, 3), "float32", 1)
    for heads in (4, 2, 1):
        k, v = sample((2, 6, heads, 3), "float32", 2), sample((2, 6, heads, 3), "float32", 3)
        close(one(nn.dot_product_attention, q, k, v), reference(q, k, v), None, 5.0)
    bias, mask = sample((2, 4, 5, 6), "float32", 4), sample((1, 1, 5, 6), "bool", 5)
    mask[..., 0] = True
    result = one(lambda q, k, v, b, m: nn.dot_product_attention(q, k, v, b, m, scale=0.3), q, k, v, bias, mask)
    close(result, reference(q, k, v, bias, mask, scale=0.3), None, 5.0)
    k, v = sample((2, 5, 4, 3), "float32", 2), sample((2, 5, 4, 3), "float32", 3)
    causal = one(lambda q, k, v: nn.dot_product_attention(q, k, v, is_causal=True), q, k, v)
    close(causal, reference(q, k, v, is_causal=True), None, 5.0)
    close(one(nn.dot_product_attention, q[0], k[0], v[0]), reference(q[0], k[0], v[0]), None, 5.0)
    with pytest.raises(ShapeError, match="multiple of the key's heads"):
        nn.dot_product_attention(q, k[:, :, :3], v[:, :, :3])


def test_logmeanexp(jax):
    x = sample((3, 4), "float32")
    for axis in (None, 0, 1):
        np.testing.assert_allclose(
            one(lambda x, a=axis: nn.logmeanexp(x, a), x), np.log(np.mean(np.exp(x), axis)), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gelu_has_finite_derivatives_where_its_exponential_overflows(dtype):
    x = hnp.asarray(np.array([-1e4, -60.0, -20.0, -11.0, -10.0, 20.0, 1e4]).astype(dtype))
    value, tangent = hl.jvp(hl.jit(nn.gelu), (x,), (hnp.ones_like(x),))
    slope = hl.grad(lambda x: hnp.sum(nn.gelu(x)))(x)
    for result in (tangent, slope):
        np.testing.assert_allclose(result, [0, 0, 0, 0, 0, 1, 1], atol=1e-6)
    np.testing.assert_allclose(value, np.maximum(x, 0), atol=1e-6)
