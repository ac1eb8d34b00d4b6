"""Functions of `hloom.lax` that join and split arrays, and related small functions."""

from __future__ import annotations

import numpy as np

from hloom.dispatch.sharded import takes_out_sharding
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.types import DTYPES, INTEGERS, PRED, SIGNED, as_dtype
from hloom.lax.elementwise import ge, like_arrays, lt, select
from hloom.lax.movement import broadcast_in_dim, broadcast_to_rank, concatenate, expand_dims, full, index_in_dim
from hloom.lax.operands import (
    as_operand,
    canonical_axis,
    canonical_shape,
    convert,
    dtype_of,
    promoted,
    read,
    reshape_to,
)
from hloom.lax.table import add, bitwise_and, mul, shift_right_arithmetic, shift_right_logical, sub


def stack(operands, axis: int = 0):
    """Arrays of equal shape and dtype joined along a new axis at this position of the result. Raises ShapeError.

    >>> hl.lax.stack([hnp.array([1, 2]), hnp.array([3, 4])])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    arrays = [as_operand(x, "stack") for x in operands]
    if not arrays:
        raise ArgumentError("stack takes at least one array", "an empty list", "pass arrays")
    if any(x.shape != arrays[0].shape for x in arrays):
        raise ShapeError(
            "stack takes arrays of one shape", ", ".join(f"{x._shape!r}" for x in arrays), "broadcast them first"
        )
    axis = canonical_axis(axis, arrays[0].ndim + 1, "stack")
    return concatenate([expand_dims(x, (axis,)) for x in arrays], axis)


def unstack(x, axis: int = 0) -> tuple:
    """The slices of x along an axis, which disappears. Raises ShapeError for an array without axes.

    >>> hl.lax.unstack(hnp.array([[1, 2], [3, 4]]))
    (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    x = as_operand(x, "unstack")
    if not x.ndim:
        raise ShapeError("unstack takes an array apart along an axis", f"{x._shape!r}, which has none", "pass a vector")
    axis = canonical_axis(axis, x.ndim, "unstack")
    return tuple(index_in_dim(x, k, axis, keepdims=False) for k in range(x.shape[axis]))


def tile(operand, reps):
    """operand repeated reps[k] times along each dimension k. Raises ShapeError if the number of reps is not the rank.

    >>> hl.lax.tile(hnp.array([1, 2]), (3,))
    Array([1, 2, 1, 2, 1, 2], dtype=int32)
    """
    x = as_operand(operand, "tile")
    counts = canonical_shape(reps, "tile")
    if len(counts) != x.ndim:
        raise ShapeError(
            "lax.tile takes a count for each dimension",
            f"reps={counts} for {x._shape!r}",
            "use hnp.tile, which adds leading dimensions",
        )
    between = tuple(n for pair in zip(counts, x.shape, strict=True) for n in pair)
    spread = broadcast_in_dim(x, between, tuple(range(1, 2 * x.ndim, 2)))
    return reshape_to(spread, tuple(n * d for n, d in zip(counts, x.shape, strict=True)))


def broadcast_like(arr, like_arr):
    """arr broadcast to the shape of like_arr, by NumPy's rules. Raises ShapeError.

    >>> hl.lax.broadcast_like(hnp.array([1, 2]), hnp.zeros((2, 2)))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    like = as_operand(like_arr, "broadcast_like")
    x = broadcast_to_rank(arr, like.ndim)
    return broadcast_in_dim(x, like.shape, tuple(range(like.ndim)))


@takes_out_sharding
def empty(shape, dtype, *, out_sharding=None):
    """An array for values to be written; its elements are 0. Raises ShapeError, DTypeError.

    >>> hl.lax.empty((2, 3), "f32").shape
    (2, 3)
    """
    return full(shape, 0, as_dtype(dtype))


def dtype(x):
    """The dtype that an array, a Python scalar, or a dtype has as an hloom array.

    >>> hl.lax.dtype(1.0), hl.lax.dtype(hnp.array([1]))
    (dtype('float32'), dtype('int32'))
    """
    if isinstance(x, (type, str, np.dtype)):
        return promoted((as_dtype(x), x is int or x is float or x is complex))[0]
    return dtype_of(*read((x,), "dtype"))[0]


def stage(x, /):
    """x as an array, as functions of `hloom.lax` convert their arguments."""
    return as_operand(x, "stage")


def shape_as_value(shape):
    """The shape as a vector of integers.

    >>> hl.lax.shape_as_value((2, 3))
    Array([2, 3], dtype=int32)
    """
    return as_operand(np.asarray(tuple(shape), np.int32), "shape_as_value")


def select_n(which, *cases):
    """Element-wise cases[which]: arrays of equal shape and dtype, selected by a pred (two cases) or an s32.

    which: of their shape, or a scalar; values out of range are clamped. Raises ArgumentError,
    ShapeError, DTypeError.

    >>> hl.lax.select_n(hnp.array([0, 2]), hnp.array([1, 2]), hnp.array([10, 20]), hnp.array([100, 200]))
    Array([  1, 200], dtype=int32)
    """
    which = as_operand(which, "select_n")
    if not cases:
        raise ArgumentError("select_n takes at least one case", "none", "pass arrays after `which`")
    if which.dtype == PRED:
        if len(cases) > 2:
            raise ArgumentError("a pred chooses between two cases", f"{len(cases)} cases", "pass an s32 `which`")
        return select(which, cases[-1], cases[0])
    if which.dtype != DTYPES["s32"]:
        raise DTypeError("select_n chooses by pred or s32", f"{which._shape!r}", "convert it with astype('s32')")
    (first, *others), _ = like_arrays("select_n", cases)
    for place, case in enumerate(others, 1):
        first = select(ge(which, place), case, first)
    return first


def mulhi(x, y, /):
    """The high half of the product of integers, in their dtype. Raises ShapeError, DTypeError.

    >>> hl.lax.mulhi(hnp.array([2**30]), hnp.array([8]))
    Array([2], dtype=int32)
    """
    (x, y), _ = like_arrays("mulhi", (x, y))
    if x.dtype not in INTEGERS or x.dtype.itemsize * 8 < 8:
        raise DTypeError("mulhi takes integers", f"{x._shape!r}", "convert them to an integer dtype")
    bits, signed = x.dtype.itemsize * 8, x.dtype in SIGNED
    if bits < 64:
        wide = DTYPES[("s" if signed else "u") + str(2 * bits)]
        product = mul(convert(x, wide), convert(y, wide))
        return convert((shift_right_arithmetic if signed else shift_right_logical)(product, bits), x.dtype)
    # Schoolbook multiplication of unsigned halves; for signed x = u - 2^64 [x < 0] the correction is subtracted.
    a, b = convert(x, DTYPES["u64"]), convert(y, DTYPES["u64"])
    mask = 2**32 - 1
    low = lambda v: bitwise_and(v, mask)  # noqa: E731
    high = lambda v: shift_right_logical(v, 32)  # noqa: E731
    first = add(mul(high(a), low(b)), high(mul(low(a), low(b))))
    second = add(mul(low(a), high(b)), low(first))
    result = convert(add(add(mul(high(a), high(b)), high(first)), high(second)), x.dtype)
    if signed:
        result = sub(result, select(lt(x, 0), y, full(y.shape, 0, y.dtype)))
        result = sub(result, select(lt(y, 0), x, full(x.shape, 0, x.dtype)))
    return result
