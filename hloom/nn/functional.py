"""Activations, softmax and related functions: pure functions of arrays, with `jax.nn`'s names and numerics.

Complex numbers are compared by their real, then their imaginary parts, as in NumPy."""

from __future__ import annotations

import functools
import math

import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ShapeError
from hloom.ir.types import COMPLEX, DTYPES, FLOATS, INTEGERS, as_dtype
from hloom.lax.operands import (
    as_operand,
    canonical_axes,
    canonical_axis,
    default_float,
    full,
    inexact_dtype,
    promote_operands,
    static_size,
    to_inexact,
)
from hloom.numpy.reducing.reductions import center
from hloom.transforms.custom_derivatives import custom_jvp

_SELU_SCALE = 1.0507009873554804934193349852946
_SELU_ALPHA = 1.6732632423543772848170429916717


def relu(x):
    """max(x, 0). Its derivative at 0 is 0, as in `jax.nn.relu`.

    >>> hl.nn.relu(hnp.array([-1.0, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    x = as_operand(x, "relu")
    zero = lax.full_like(x, 0)
    if x.dtype in COMPLEX:
        return hnp.maximum(x, zero)
    # x <= 0 is false for NaN, which is thus preserved; the derivative is that of the selected branch.
    return lax.select(lax.le(x, zero), zero, x)


def relu6(x):
    """min(max(x, 0), 6). Its derivative at 0 and 6 is 0.

    >>> hl.nn.relu6(hnp.array([-1.0, 3.0, 9.0]))
    Array([0., 3., 6.], dtype=float32)
    """
    x = relu(to_inexact(x, "relu6"))
    six = lax.full_like(x, 6)
    if x.dtype in COMPLEX:
        return hnp.minimum(x, six)
    return lax.select(lax.ge(x, six), six, x)


def sigmoid(x):
    """1 / (1 + exp(-x)).

    >>> hl.nn.sigmoid(hnp.array([0.0, 2.0])).round(3)
    Array([0.5  , 0.881], dtype=float32)
    """
    return lax.logistic(to_inexact(x, "sigmoid"))


def silu(x):
    """x sigmoid(x), also called swish.

    >>> hl.nn.silu(hnp.array([-1.0, 2.0])).round(3)
    Array([-0.269,  1.762], dtype=float32)
    """
    x = to_inexact(x, "silu")
    return lax.mul(x, lax.logistic(x))


swish = silu


def softplus(x):
    """log(1 + exp(x)), without overflow.

    >>> hl.nn.softplus(hnp.array([-100.0, 0.0, 100.0])).round(3)
    Array([  0.   ,   0.693, 100.   ], dtype=float32)
    """
    return hnp.logaddexp(x, 0)


def log_sigmoid(x):
    """log(sigmoid(x)) = -softplus(-x).

    >>> hl.nn.log_sigmoid(hnp.array([-100.0, 0.0])).round(3)
    Array([-100.   ,   -0.693], dtype=float32)
    """
    return lax.neg(softplus(lax.neg(to_inexact(x, "log_sigmoid"))))


def soft_sign(x):
    """x / (|x| + 1).

    >>> hl.nn.soft_sign(hnp.array([-1.0, 3.0]))
    Array([-0.5 ,  0.75], dtype=float32)
    """
    x = to_inexact(x, "soft_sign")
    return lax.div(x, lax.add(lax.abs(x), 1.0))


def sparse_plus(x):
    """0 below -1, (x + 1)^2 / 4 between -1 and 1, x above.

    >>> hl.nn.sparse_plus(hnp.array([-2.0, 0.0, 2.0]))
    Array([0.  , 0.25, 2.  ], dtype=float32)
    """
    x = to_inexact(x, "sparse_plus")
    middle = lax.mul(lax.square(lax.add(x, 1.0)), 0.25)
    return hnp.where(lax.le(x, -1.0), 0.0, hnp.where(lax.ge(x, 1.0), x, middle))


def sparse_sigmoid(x):
    """clip((x + 1) / 2, 0, 1).

    >>> hl.nn.sparse_sigmoid(hnp.array([-2.0, 0.0, 2.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    x = to_inexact(x, "sparse_sigmoid")
    return lax.mul(lax.min(lax.max(lax.add(x, 1.0), 0.0), 2.0), 0.5)


def elu(x, alpha=1.0):
    """x where x > 0, alpha (exp(x) - 1) elsewhere.

    >>> hl.nn.elu(hnp.array([-1.0, 2.0])).round(3)
    Array([-0.632,  2.   ], dtype=float32)
    """
    x = to_inexact(x, "elu")
    positive = hnp.greater(x, 0.0)
    # The unselected branch computes exp(0), so that it does not overflow and its derivative is finite.
    negative = lax.expm1(lax.select(positive, lax.full_like(x, 0), x))
    return hnp.where(positive, x, hnp.multiply(alpha, negative))


def selu(x):
    """1.0507 elu(x, 1.67326), which preserves mean 0 and variance 1.

    >>> hl.nn.selu(hnp.array([-1.0, 2.0])).round(3)
    Array([-1.111,  2.101], dtype=float32)
    """
    return lax.mul(elu(x, _SELU_ALPHA), _SELU_SCALE)


def celu(x, alpha=1.0):
    """max(x, 0) + alpha (exp(min(x, 0) / alpha) - 1).

    >>> hl.nn.celu(hnp.array([-1.0, 2.0])).round(3)
    Array([-0.632,  2.   ], dtype=float32)
    """
    x = to_inexact(x, "celu")
    positive = hnp.greater(x, 0.0)
    safe = lax.select(positive, lax.full_like(x, 0), x)
    return hnp.where(positive, x, hnp.multiply(alpha, hnp.expm1(hnp.divide(safe, alpha))))


def leaky_relu(x, negative_slope=1e-2):
    """x where x >= 0, negative_slope x elsewhere.

    >>> hl.nn.leaky_relu(hnp.array([-1.0, 2.0]))
    Array([-0.01,  2.  ], dtype=float32)
    """
    x = to_inexact(x, "leaky_relu")
    return hnp.where(hnp.greater_equal(x, 0.0), x, hnp.multiply(negative_slope, x))


def hard_tanh(x):
    """clip(x, -1, 1); its derivative at the corners is 1.

    >>> hl.nn.hard_tanh(hnp.array([-2.0, 0.5, 2.0]))
    Array([-1. ,  0.5,  1. ], dtype=float32)
    """
    x = to_inexact(x, "hard_tanh")
    one, minus_one = (lax.full_like(x, v) for v in (1, -1))
    return lax.select(hnp.greater(x, one), one, lax.select(hnp.less(x, minus_one), minus_one, x))


def hard_sigmoid(x):
    """relu6(x + 3) / 6.

    >>> hl.nn.hard_sigmoid(hnp.array([-4.0, 0.0, 4.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return lax.div(relu6(lax.add(to_inexact(x, "hard_sigmoid"), 3.0)), 6.0)


def hard_silu(x):
    """x hard_sigmoid(x), also called hard_swish.

    >>> hl.nn.hard_silu(hnp.array([-4.0, 0.0, 4.0]))
    Array([-0.,  0.,  4.], dtype=float32)
    """
    x = to_inexact(x, "hard_silu")
    return lax.mul(x, hard_sigmoid(x))


hard_swish = hard_silu


def mish(x):
    """x tanh(softplus(x)).

    >>> hl.nn.mish(hnp.array([-1.0, 2.0])).round(3)
    Array([-0.303,  1.944], dtype=float32)
    """
    x = to_inexact(x, "mish")
    return lax.mul(x, lax.tanh(softplus(x)))


def squareplus(x, b=4):
    """(x + sqrt(x^2 + b)) / 2.

    >>> hl.nn.squareplus(hnp.array([0.0]))
    Array([1.], dtype=float32)
    """
    x = to_inexact(x, "squareplus")
    return hnp.divide(hnp.add(x, hnp.sqrt(hnp.add(lax.square(x), b))), 2.0)


# The limit of exponents in `gelu`, so that neither exponentials nor their derivatives overflow.
_EXPONENTS = {DTYPES["f32"]: 80.0, DTYPES["f64"]: 700.0}


def gelu(x, approximate: bool = True):
    """x times the normal distribution function of x; approximate: its tanh form, as `jax.nn.gelu`.

    x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), or x / 2 erfc(-x / sqrt(2)).

    >>> hl.nn.gelu(hnp.array([-1.0, 0.0, 2.0])).round(3)
    Array([-0.159,  0.   ,  1.955], dtype=float32)
    """
    x = to_inexact(x, "gelu")
    if approximate:
        # (1 + tanh(a)) / 2 = 1 / (1 + exp(-2 a)), which is cheaper and does not cancel.
        cube = lax.mul(lax.mul(x, x), x)
        twice = lax.mul(lax.add(x, lax.mul(cube, 0.044715)), -2 * math.sqrt(2 / math.pi))
        if x.dtype not in _EXPONENTS:
            return lax.mul(x, lax.logistic(lax.neg(twice)))
        most = full(_EXPONENTS[x.dtype], x.dtype, x.shape)
        return lax.div(x, lax.add(lax.exp(lax.select(lax.gt(twice, most), most, twice)), 1.0))
    return lax.mul(lax.mul(x, 0.5), lax.erfc(lax.mul(x, -math.sqrt(0.5))))


def glu(x, axis: int = -1):
    """The first half along an axis times the sigmoid of the second. Raises ShapeError for an odd size.

    >>> hl.nn.glu(hnp.array([1.0, 2.0, 0.0, 0.0]))
    Array([0.5, 1. ], dtype=float32)
    """
    x = to_inexact(x, "glu")
    axis = canonical_axis(axis, x.ndim, "glu")
    size = x.shape[axis]
    if size % 2:
        raise ShapeError("glu halves an axis", f"{x._shape!r} with size {size} along axis {axis}", "pass an even one")
    first, second = (lax.slice_in_dim(x, a, b, axis=axis) for a, b in ((0, size // 2), (size // 2, size)))
    return lax.mul(first, lax.logistic(second))


# --- along axes ---------------------------------------------------------------------------------------------------


def logsumexp(a, axis=None, b=None, keepdims: bool = False, return_sign: bool = False, where=None):
    """log(sum(b exp(a))) over axes without overflow; -inf for an empty sum. With return_sign (log|sum|, its sign).

    Raises ShapeError, DTypeError.

    >>> hl.nn.logsumexp(hnp.array([1000.0, 1000.0])).round(3)
    Array(1000.693, dtype=float32)
    """
    if b is not None:
        (a, b), _ = promote_operands("logsumexp", (a, b), inexact_dtype)
        a = hnp.where(lax.ne(b, 0), a, -math.inf)
    a = to_inexact(a, "logsumexp")
    axes = canonical_axes(axis, a.ndim, "logsumexp")
    top = lax.stop_gradient(hnp.max(hnp.real(a), axes, keepdims=True, initial=-math.inf, where=where))
    top = lax.select(lax.is_finite(top), top, full(0, top.dtype, top.shape))
    terms = lax.exp(hnp.subtract(a, top))
    if b is not None:
        terms = lax.mul(terms, b)
    total = hnp.sum(terms, axes, keepdims=keepdims, where=where)
    top = top if keepdims else lax.squeeze(top, axes)
    sign = lax.sign(total)
    if return_sign or b is not None:
        value = hnp.add(lax.log(lax.abs(total)), top)
        if return_sign:
            return value, sign
        return hnp.where(lax.lt(sign, 0.0), math.nan, value) if total.dtype in FLOATS else value
    return hnp.add(lax.log(total), top)


def _shifted(x, axis, where, name):
    """(x minus its maximum, the axes). The maximum has no gradient, as it cancels in the result."""
    x = to_inexact(x, name)
    axes = canonical_axes(axis, x.ndim, name)
    top = lax.stop_gradient(hnp.max(x, axes, initial=-math.inf, where=where))
    return lax.sub(x, _spread(top, axes, x.shape)), axes


def _spread(reduced, axes, dims):
    """A reduced array broadcast back along its axes: one broadcast, no reshapes."""
    return lax.broadcast_in_dim(reduced, dims, [k for k in range(len(dims)) if k not in axes])


def softmax(x, axis=-1, where=None):
    """exp(x) / sum(exp(x)) over axes (the last by default); 0 where `where` is false.

    Raises ShapeError, DTypeError.

    >>> hl.nn.softmax(hnp.array([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])).round(3)
    Array([[0.09 , 0.245, 0.665],
           [0.333, 0.333, 0.333]], dtype=float32)
    """
    if where is None:
        x = to_inexact(x, "softmax")
        return _softmax(x, canonical_axes(axis, x.ndim, "softmax"))
    shifted, axes = _shifted(x, axis, where, "softmax")
    terms = hnp.where(where, lax.exp(shifted), 0.0)
    return lax.div(terms, _spread(hnp.sum(terms, axes), axes, terms.shape))


@functools.partial(custom_jvp, nondiff_argnums=(1,))
def _softmax(x, axes):
    terms = lax.exp(_shifted(x, axes, None, "softmax")[0])
    return lax.div(terms, _spread(hnp.sum(terms, axes), axes, terms.shape))


@_softmax.defjvp
def _softmax_derivative(axes, primals, tangents):
    """y (t - sum(y t)): a function of the result alone, so the gradient stores nothing else."""
    (x,), (t,) = primals, tangents
    y = _softmax(x, axes)
    return y, lax.mul(y, lax.sub(t, _spread(hnp.sum(lax.mul(y, t), axes), axes, y.shape)))


def log_softmax(x, axis=-1, where=None):
    """x - logsumexp(x) over axes (the last by default); -inf where `where` is false.

    Raises ShapeError, DTypeError.

    >>> hl.nn.log_softmax(hnp.array([1.0, 1.0])).round(3)
    Array([-0.693, -0.693], dtype=float32)
    """
    shifted, axes = _shifted(x, axis, where, "log_softmax")
    total = lax.log(hnp.sum(lax.exp(shifted), axes, where=where))
    result = lax.sub(shifted, _spread(total, axes, shifted.shape))
    return result if where is None else hnp.where(where, result, -math.inf)


def standardize(x, axis=-1, mean=None, variance=None, epsilon=1e-5, where=None):
    """(x - mean) / sqrt(variance + epsilon) over axes; mean and variance are those of x if not given.

    Raises ShapeError, DTypeError.

    >>> hl.nn.standardize(hnp.array([1.0, 3.0])).round(3)
    Array([-1.,  1.], dtype=float32)
    """
    x = to_inexact(x, "standardize")
    if mean is None:
        mean = center(x, axis, keepdims=True, where=where)
    if variance is None:
        # The mean of squares minus the square of the mean, as in jax.nn, suffers from cancellation; this does not.
        variance = hnp.var(x, axis, keepdims=True, where=where)
    return hnp.multiply(hnp.subtract(x, mean), lax.rsqrt(hnp.add(variance, epsilon)))


def one_hot(x, num_classes: int, *, dtype=None, axis: int = -1):
    """1 at position x[i] of a new axis of size num_classes, 0 elsewhere; all 0 if x[i] is out of range.

    x: integers. dtype: f32 by default, f64 with `hl.config.enable_x64`. Raises ShapeError, DTypeError.

    >>> hl.nn.one_hot(hnp.array([0, 2]), 3)
    Array([[1., 0., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    x = as_operand(x, "one_hot")
    dtype = default_float() if dtype is None else as_dtype(dtype)
    count = static_size(num_classes, "one_hot", "number of classes")
    axis = canonical_axis(axis, x.ndim + 1, "one_hot")
    index = x if x.dtype in INTEGERS else lax.convert_element_type(x, "s32")
    dims = (*x.shape[:axis], count, *x.shape[axis:])
    spread = lax.broadcast_in_dim(index, dims, [k for k in range(len(dims)) if k != axis])
    wide = spread if spread.dtype.itemsize >= 4 else lax.convert_element_type(spread, "s32")
    return lax.convert_element_type(lax.eq(wide, lax.broadcasted_iota(wide.dtype, dims, axis)), dtype)


def log1mexp(x):
    """log(1 - exp(-x)) for x > 0, exact for small and large x.

    >>> hl.nn.log1mexp(hnp.array([1.0])).round(3)
    Array([-0.459], dtype=float32)
    """
    x = to_inexact(x, "log1mexp")
    near = lax.log(lax.neg(lax.expm1(lax.neg(x))))
    return hnp.where(lax.lt(x, math.log(2.0)), near, lax.log1p(lax.neg(lax.exp(lax.neg(x)))))


def logmeanexp(x, axis=None, where=None, keepdims: bool = False):
    """log(mean(exp(x))) over axes without overflow. Raises ShapeError, DTypeError.

    >>> hl.nn.logmeanexp(hnp.array([1000.0, 1000.0])).round(3)
    Array(1000., dtype=float32)
    """
    x = as_operand(x, "logmeanexp")
    axes = canonical_axes(axis, x.ndim, "logmeanexp")
    total = logsumexp(x, axes, keepdims=keepdims, where=where)
    ones = full(1.0, total.dtype, x.shape)
    return hnp.subtract(total, hnp.log(hnp.sum(ones, axes, keepdims=keepdims, where=where)))


def identity(x):
    """x itself.

    >>> hl.nn.identity(hnp.array([1, 2]))
    Array([1, 2], dtype=int32)
    """
    return as_operand(x, "identity")


tanh = hnp.tanh


def dot_product_attention(query, key, value, bias=None, mask=None, *, scale=None, is_causal: bool = False):
    """softmax(query key^T scale + bias) value, for each batch and head.

    query: (batch, targets, heads, features) or without batch; key, value: (batch, sources, key heads, features), where
    heads is a multiple of key heads. bias and mask (true where attended) broadcast to (batch, heads, targets, sources).
    scale: 1 / sqrt(features) by default. The logits have query's dtype; the softmax is computed in f32 for narrow
    floats. Returns an array of the shape of query. Raises ShapeError, DTypeError.

    >>> q = k = v = hl.random.normal(hl.random.key(0), (2, 10, 8, 64))
    >>> hl.nn.dot_product_attention(q, k, v, is_causal=True).shape
    (2, 10, 8, 64)
    """
    query, key, value = (to_inexact(x, "dot_product_attention") for x in (query, key, value))
    single = query.ndim == 3
    if single:
        query, key, value = (lax.expand_dims(x, (0,)) for x in (query, key, value))
    batch, targets, heads, features = query.shape
    sources, key_heads = key.shape[1:3]
    if value.shape != key.shape or key.shape[0] != batch or key.shape[3] != features or heads % key_heads:
        raise ShapeError(
            "dot_product_attention takes (batch, length, heads, features), key and value of one shape",
            f"query {query._shape!r}, key {key._shape!r}, value {value._shape!r}",
            "transpose the operands; heads must be a multiple of the key's heads",
        )
    if key_heads != heads:
        key, value = (hnp.repeat(x, heads // key_heads, axis=2) for x in (key, value))
    logits = hnp.einsum("btnh,bsnh->bnts", query, key)
    logits = hnp.multiply(logits, features**-0.5 if scale is None else scale)
    if bias is not None:
        logits = hnp.add(logits, bias)
    if is_causal:
        causal = hnp.tri(targets, sources, dtype=bool)
        mask = causal if mask is None else hnp.logical_and(mask, causal)
    work = lax.convert_element_type(logits, "f32") if logits.dtype.itemsize < 4 else logits
    if mask is not None:
        work = hnp.where(mask, work, -0.7 * float(hnp.finfo(work.dtype).max))
    weights = lax.convert_element_type(softmax(work), key.dtype)
    result = hnp.einsum("bnts,bsnh->btnh", weights, value)
    return lax.squeeze(result, (0,)) if single else result
