"""Discrete distributions and shuffles: bernoulli, randint, categorical, choice, permutation, geometric.

With the same key, the same numbers as JAX.
"""

from __future__ import annotations

import math

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.dispatch.sharded import takes_out_sharding
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.types import DTYPES, FLOATS, HLO_NAME, INTEGERS, as_dtype
from hloom.lax.operands import as_operand, broadcast_dims_to, canonical_axis, default_int, full, inexact_dtype
from hloom.random.bits import UINT_OF_BITS, dims_of, parameters, raw_bits, run
from hloom.random.continuous import fraction, keys_of, limits, standard_gumbel, take_mode
from hloom.random.keys import take_key

S32 = DTYPES["s32"]


def _real_operand(value, name: str):
    """A parameter as floats: integers become f32. Raises DTypeError for complex ones."""
    x = as_operand(value, f"random.{name}")
    dtype = inexact_dtype(x.dtype)
    if dtype not in FLOATS:
        raise DTypeError(f"random.{name} takes real numbers", f"{x._shape!r}", "take the real part")
    return lax.convert_element_type(x, dtype)


def _bernoulli(data, p, implementation, dims, mode):
    p, dtype = broadcast_dims_to(p, dims), p.dtype
    if mode == "low":
        return lax.lt(fraction(data, implementation, dims, dtype), p)
    both = fraction(data, implementation, (2, *dims), dtype)
    coarse, fine = (lax.index_in_dim(both, k, keepdims=False) for k in (0, 1))
    step = full(2.0 ** -(1 + limits(dtype).nmant), dtype, dims)
    return lax.lt(lax.mul(fine, step), lax.sub(p, coarse))


@takes_out_sharding
def bernoulli(key, p=0.5, shape=None, mode: str = "low", *, out_sharding=None):
    """True with probability p. mode 'high' takes twice the bits, for probabilities near 0.

    Raises ArgumentError, DTypeError, ShapeError.

    >>> hl.random.bernoulli(hl.random.key(0), 0.3, (10_000,)).mean().round(1)
    Array(0.3, dtype=float32)
    """
    data, implementation = take_key(key, "bernoulli")
    p = _real_operand(p, "bernoulli")
    dims, (p,) = parameters("bernoulli", shape, (p,), p.dtype)
    return run(_bernoulli, (implementation, dims, take_mode(mode, "bernoulli")), data, p)


# --- integers -----------------------------------------------------------------------------------------------------


def _randint(data, low, high, past, implementation, dims, dtype):
    """past: one more than `high` belongs to the range, which `dtype` cannot say."""
    if dtype.itemsize < 4:
        # Few bits make uneven numbers: 32 of them, and the range is that of the narrow dtype.
        low, high = (lax.convert_element_type(v, S32) for v in (low, high))
        high = lax.add(high, lax.convert_element_type(past, S32))
        none = full(False, np.dtype(bool), past.shape)
        return lax.convert_element_type(_randint(data, low, high, none, implementation, dims, S32), dtype)
    width = 8 * dtype.itemsize
    unsigned = UINT_OF_BITS[width]
    low, high, past = (broadcast_dims_to(v, dims) for v in (low, high, past))
    upper, lower = (raw_bits(k, implementation, width, dims) for k in keys_of(data, implementation, 2))
    span = lax.convert_element_type(lax.sub(high, low), unsigned)
    one = full(1, unsigned, dims)
    empty = lax.le(high, low)
    span = lax.select(empty, one, span)
    span = lax.select(lax.bitwise_and(past, lax.gt(high, low)), lax.add(span, one), span)
    # 2^width mod span, so that the two draws make one number of twice the width; a span of 0 is the whole range.
    multiplier = lax.rem(full(2 ** (width // 2), unsigned, dims), span)
    multiplier = lax.rem(lax.mul(multiplier, multiplier), span)
    offset = lax.add(lax.mul(lax.rem(upper, span), multiplier), lax.rem(lower, span))
    return lax.add(low, lax.convert_element_type(lax.rem(offset, span), dtype))


@takes_out_sharding
def randint(key, shape, minval, maxval, dtype=None, *, out_sharding=None):
    """Integers from minval on, below maxval; minval where the range is empty.

    dtype: s32 (s64 with enable_x64) by default.
    minval and maxval broadcast to `shape`; None takes what they broadcast to. Bounds that the dtype does not hold
    are clipped. Raises ArgumentError, DTypeError, ShapeError.

    >>> x = hl.random.randint(hl.random.key(0), (100,), 0, 6)
    >>> hnp.unique(x)
    Array([0, 1, 2, 3, 4, 5], dtype=int32)
    """
    data, implementation = take_key(key, "randint")
    dtype = default_int() if dtype is None else as_dtype(dtype)
    if dtype not in INTEGERS or dtype.itemsize * 8 not in UINT_OF_BITS or HLO_NAME[dtype] in ("s4", "u4"):
        raise DTypeError("random.randint makes integers", HLO_NAME[dtype], "take dtype='s32' and convert")
    info = np.iinfo(dtype)
    low, beyond_low = _bound(minval, info, dtype)
    high, past = _bound(maxval, info, dtype)
    own = np.broadcast_shapes(low.shape, high.shape)
    dims = own if shape is None else dims_of(shape, "randint")
    if not _fits(own, dims):
        raise ShapeError(
            f"random.randint makes an array of shape {dims}", f"its bounds have the shape {own}", "broadcast the bounds"
        )
    return run(_randint, (implementation, dims, dtype), data, low, high, past)


def _fits(own, dims) -> bool:
    try:
        return np.broadcast_shapes(own, dims) == tuple(dims)
    except ValueError:
        return False


def _bound(value, info, dtype):
    """(a bound in the dtype, clipped; whether it was above what the dtype holds)."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        number = int(value)
        clipped = min(max(number, int(info.min)), int(info.max))
        return as_operand(np.array(clipped, dtype), "randint"), as_operand(np.array(number > info.max), "randint")
    x = as_operand(value, "random.randint")
    if x.dtype not in INTEGERS:
        raise DTypeError("random.randint takes integer bounds", f"{x._shape!r}", "convert them with astype('s32')")
    wider = np.iinfo(x.dtype)
    above = int(wider.max) > int(info.max)
    past = lax.gt(x, full(int(info.max), x.dtype, x.shape)) if above else full(False, np.dtype(bool), x.shape)
    low, high = max(int(info.min), int(wider.min)), min(int(info.max), int(wider.max))
    clipped = lax.clamp(full(low, x.dtype, ()), x, full(high, x.dtype, ()))
    return lax.convert_element_type(clipped, dtype), past


# --- categories ---------------------------------------------------------------------------------------------------


def _categorical(data, logits, implementation, dims, axis, mode):
    """dims: the leading dimensions of the result that the logits do not have."""
    shape = (*dims, *logits.shape)
    noise = standard_gumbel(data, implementation, shape, logits.dtype, mode)
    return hnp.argmax(noise + logits, axis=axis)


def _categorical_without(data, logits, implementation, count, axis, mode):
    noisy = standard_gumbel(data, implementation, logits.shape, logits.dtype, mode) + logits
    return lax.top_k(hnp.moveaxis(noisy, axis, -1), count)[1]


@takes_out_sharding
def categorical(
    key, logits, axis: int = -1, shape=None, replace: bool = True, mode: str | None = None, *, out_sharding=None
):
    """Indices along an axis of logits, each with probability softmax(logits).

    shape: of the result; it ends in the shape of the logits without the axis. replace=False draws so many different
    ones for each. Raises ArgumentError, DTypeError, ShapeError.

    >>> logits = hnp.log(hnp.array([0.0, 0.5, 0.5]))
    >>> x = hl.random.categorical(hl.random.key(0), logits, shape=(100,))
    >>> hnp.unique(x)
    Array([1, 2], dtype=int32)
    """
    data, implementation = take_key(key, "categorical")
    logits = _real_operand(logits, "categorical")
    mode = take_mode(mode, "categorical")
    rank = len(logits.shape)
    axis = canonical_axis(axis, rank, "random.categorical")
    batch = tuple(d for k, d in enumerate(logits.shape) if k != axis)
    dims = batch if shape is None else dims_of(shape, "categorical")
    lead = dims[: len(dims) - len(batch)]
    if not _fits(batch, dims):
        raise ShapeError(
            f"random.categorical makes indices of shape {dims}",
            f"the logits without their axis have the shape {batch}",
            "let the shape end in that one",
        )
    if replace:
        spread = (*dims[len(lead) :][:axis], logits.shape[axis], *dims[len(lead) :][axis:])
        logits = broadcast_dims_to(logits, spread)
        return run(_categorical, (implementation, lead, axis - rank, mode), data, logits)
    count = math.prod(lead)
    if count > logits.shape[axis]:
        raise ArgumentError(
            f"random.categorical draws {count} different categories", f"there are {logits.shape[axis]}", "draw fewer"
        )
    drawn = run(_categorical_without, (implementation, count, axis, mode), data, logits)

    return hnp.moveaxis(drawn, -1, 0).reshape(dims)


# --- shuffles -----------------------------------------------------------------------------------------------------


def _rounds(size: int) -> int:
    """How often a sort by random u32 keys is repeated, so that equal keys leave no trace in the order."""
    return math.ceil(3 * math.log(max(1, size)) / math.log(2**32 - 1))


def _shuffled(data, x, implementation, axis: int):
    """x with the elements along the axis in random order, each line by itself."""
    for _ in range(_rounds(math.prod(x.shape))):
        data, own = keys_of(data, implementation, 2)
        order = raw_bits(own, implementation, 32, x.shape)
        _, x = lax.sort_key_val(order, x, axis)
    return x


def _permutation(data, x, implementation, axis, independent):
    if independent or len(x.shape) == 1:
        return _shuffled(data, x, implementation, axis)

    return hnp.take(x, _shuffled(data, hnp.arange(x.shape[axis]), implementation, 0), axis=axis)


def _permuted_range(data, implementation, size, dtype):
    return _shuffled(data, hnp.arange(size, dtype=dtype), implementation, 0)


@takes_out_sharding
def permutation(key, x, axis: int = 0, independent: bool = False, *, out_sharding=None):
    """x with its parts along an axis in random order, or the numbers 0 to x - 1 for an integer x.

    independent: permute each line along the axis independently. Raises ArgumentError, ShapeError.

    >>> hnp.sort(hl.random.permutation(hl.random.key(0), 5))
    Array([0, 1, 2, 3, 4], dtype=int32)
    >>> hl.random.permutation(hl.random.key(0), hnp.zeros((8, 2))).shape
    (8, 2)
    """
    data, implementation = take_key(key, "permutation")
    if isinstance(x, (int, np.integer)) and not isinstance(x, bool):
        return run(_permuted_range, (implementation, int(x), default_int()), data)
    x = as_operand(x, "random.permutation")
    axis = canonical_axis(axis, len(x.shape), "random.permutation")
    if not x.shape:
        raise ShapeError("random.permutation takes an array with a dimension", f"{x._shape!r}", "pass an integer or it")
    return run(_permutation, (implementation, axis, bool(independent)), data, x)


def shuffle(key, x, axis: int = 0):
    """x with the elements along an axis in random order: `permutation` with independent=True.

    >>> hnp.sort(hl.random.shuffle(hl.random.key(0), hnp.array([3, 1, 2])))
    Array([1, 2, 3], dtype=int32)
    """
    return permutation(key, x, axis, independent=True)


def _choice_by_weight(data, p, implementation, dims):
    total = hnp.cumsum(p)
    u = fraction(data, implementation, dims, p.dtype)
    return hnp.searchsorted(total, total[-1] * (1 - u)).astype(default_int())


def _choice_without(data, p, implementation, count, mode):
    noisy = standard_gumbel(data, implementation, p.shape, p.dtype, mode) + hnp.log(p)
    return lax.top_k(noisy, count)[1]


def choice(key, a, shape=(), replace: bool = True, p=None, axis: int = 0, mode: str | None = None):
    """Random parts of an array along an axis, or of the numbers 0 to a - 1 for an integer a.

    replace: whether a part may be drawn again. p: (n,) probabilities; equal ones by default. Raises ArgumentError,
    DTypeError, ShapeError.

    >>> hl.random.choice(hl.random.key(0), hnp.array([10, 20, 30]), (5,)).shape
    (5,)
    >>> hnp.sort(hl.random.choice(hl.random.key(0), 4, (4,), replace=False))
    Array([0, 1, 2, 3], dtype=int32)
    """
    data, implementation = take_key(key, "choice")
    mode, dims = take_mode(mode, "choice"), dims_of(shape, "choice")
    whole = None
    if not isinstance(a, (int, np.integer)):
        whole = as_operand(a, "random.choice")
        if not whole.shape:
            a, whole = int(whole), None
    if whole is not None:
        axis = canonical_axis(axis, len(whole.shape), "random.choice")
    size, count = int(a) if whole is None else whole.shape[axis], math.prod(dims)
    if count and size <= 0:
        raise ArgumentError("random.choice draws from something", f"{a!r:.60}", "pass a number above 0 or an array")
    if not replace and count > size:
        raise ArgumentError(
            f"random.choice draws {count} different parts", f"there are {size}", "draw fewer, or take replace=True"
        )
    if p is not None:
        p = _real_operand(p, "choice")
        if tuple(p.shape) != (size,):
            raise ShapeError(
                "random.choice takes a probability for each part", f"{p._shape!r} for {size}", "match them"
            )
        if replace:
            index = run(_choice_by_weight, (implementation, dims), data, p)
        else:
            index = run(_choice_without, (implementation, count, mode), data, p).reshape(dims)
    elif replace:
        index = randint(key, dims, 0, size)
    elif whole is None:
        index = permutation(key, size)[:count].reshape(dims)
    else:
        drawn = lax.slice_in_dim(permutation(key, whole, axis), 0, count, axis=axis)
        return drawn.reshape((*whole.shape[:axis], *dims, *whole.shape[axis + 1 :]))
    return index if whole is None else hnp.take(whole, index, axis=axis)


# --- numbers of trials --------------------------------------------------------------------------------------------


def _geometric(data, p, implementation, dims, dtype):
    p = broadcast_dims_to(p, dims)
    u = fraction(data, implementation, dims, p.dtype)
    ratio = lax.div(lax.log(u), lax.log1p(lax.neg(p)))
    return lax.convert_element_type(lax.add(lax.floor(ratio), full(1.0, p.dtype, dims)), dtype)


@takes_out_sharding
def geometric(key, p, shape=None, dtype=None, *, out_sharding=None):
    """Numbers of trials up to the first success of probability p, 1 or more.

    dtype: s32 (s64 with enable_x64) by default.
    Raises ArgumentError, DTypeError, ShapeError.

    >>> bool(hl.random.geometric(hl.random.key(0), 0.5, (100,)).min() >= 1)
    True
    """
    data, implementation = take_key(key, "geometric")
    dtype = default_int() if dtype is None else as_dtype(dtype)
    if dtype not in INTEGERS:
        raise DTypeError("random.geometric makes integers", HLO_NAME[dtype], "take dtype='s32'")
    p = _real_operand(p, "geometric")
    dims, (p,) = parameters("geometric", shape, (p,), p.dtype)
    return run(_geometric, (implementation, dims, dtype), data, p)


__all__ = ["bernoulli", "categorical", "choice", "geometric", "permutation", "randint", "shuffle"]
