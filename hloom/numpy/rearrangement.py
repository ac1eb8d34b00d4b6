"""Repeating, reordering and removing elements; diagonals."""

from __future__ import annotations

import numpy as np

from hloom import lax
from hloom.errors import ArgumentError, ShapeError, UnsupportedIndexError
from hloom.ir.types import PRED, Shape, as_dtype
from hloom.numpy.manipulation import broadcast_to, concatenate, moveaxis, ravel, reshape, swapaxes
from hloom.operands import (
    as_operand,
    broadcast_dims_to,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    convert,
    full,
    holds_arrays,
    product,
    reshape_to,
    whole_number,
)
from hloom.operators import ArrayMethods
from hloom.tracing import bind

# --- repeating ----------------------------------------------------------------------------------------------------


def tile(A, reps):
    """A repeated reps[k] times along axis k, block after block. Raises ShapeError."""
    x, reps = as_operand(A, "tile"), canonical_shape(reps, "tile")
    rank = max(x.ndim, len(reps))
    dims = (1,) * (rank - x.ndim) + x.shape
    reps = (1,) * (rank - len(reps)) + reps
    inner = reshape_to(x, tuple(e for d in dims for e in (1, d)))
    spread = broadcast_dims_to(inner, tuple(e for n, d in zip(reps, dims, strict=True) for e in (n, d)))
    return reshape_to(spread, tuple(n * d for n, d in zip(reps, dims, strict=True)))


def repeat(a, repeats, axis: int | None = None, *, total_repeat_length: int | None = None):
    """Every element repeated along an axis (of the flat array); repeats is a number or one static number an element.

    total_repeat_length: the static extent of the result, with which repeats may be traced; what is missing at the end
    is the last element, what is too much is left out. Raises ShapeError.
    """
    x = as_operand(a, "repeat")
    if axis is None:
        x, axis = reshape_to(x, (x.size,)), 0
    axis = canonical_axis(axis, x.ndim, "repeat")
    if total_repeat_length is not None:
        return _repeat_to_length(x, repeats, axis, whole_number(total_repeat_length, "repeat", "total_repeat_length"))
    if holds_arrays(repeats) or isinstance(repeats, (list, tuple)):
        counts = [whole_number(n, "repeat", "count") for n in np.ravel(np.asarray(repeats)).tolist()]
    else:
        counts = [whole_number(repeats, "repeat", "count")]
    if min(counts, default=0) < 0 or len(counts) not in (1, x.shape[axis]):
        raise ShapeError(
            "repeat takes one count that is not negative, or one for each element",
            f"{len(counts)} counts for {x._shape!r} along axis {axis}",
            "pass a number or a list as long as the axis",
        )
    if len(counts) == 1:
        dims = (*x.shape[: axis + 1], counts[0], *x.shape[axis + 1 :])
        kept = tuple(k for k in range(len(dims)) if k != axis + 1)
        spread = bind("broadcast", x, shape=Shape(x.dtype, dims), weak=x.weak, dimensions=kept)
        return reshape_to(spread, (*x.shape[:axis], x.shape[axis] * counts[0], *x.shape[axis + 1 :]))
    parts = [repeat(lax.index_in_dim(x, k, axis), n, axis) for k, n in enumerate(counts)]
    return concatenate(parts, axis) if parts else x


def _repeat_to_length(x, repeats, axis, length):
    """Each place of the result belongs to the element whose repeats begin last before it."""
    from hloom.numpy.indexing import take
    from hloom.numpy.scans import cumsum
    from hloom.numpy.sorting import searchsorted

    extent = x.shape[axis]
    counts = as_operand(repeats, "repeat")
    counts = broadcast_dims_to(reshape_to(counts, (1,)) if counts.ndim == 0 else counts, (extent,))
    if not extent or not length:
        return lax.slice_in_dim(x, 0, 0, axis=axis)
    ends = cumsum(convert(counts, as_dtype("s32")))
    source = searchsorted(ends, lax.iota("s32", length), side="right")
    return take(x, lax.min(source, full(extent - 1, source.dtype, source.shape)), axis=axis)


def resize(a, new_shape):
    """The elements of a, repeated or cut to fill these extents. Raises ShapeError."""
    x, dims = as_operand(a, "resize"), canonical_shape(new_shape, "resize")
    count = product(dims)
    if not x.size:
        return full(0, x.dtype, dims)
    flat = tile(reshape_to(x, (x.size,)), -(-count // x.size))
    return reshape_to(lax.slice_in_dim(flat, 0, count), dims)


# --- order of elements --------------------------------------------------------------------------------------------


def flip(m, axis=None):
    """m with the order of its elements reversed along axes (all by default). Raises ShapeError."""
    x = as_operand(m, "flip")
    return lax.rev(x, canonical_axes(axis, x.ndim, "flip"))


def fliplr(m):
    """m reversed along axis 1. Raises ShapeError."""
    return flip(m, 1)


def flipud(m):
    """m reversed along axis 0. Raises ShapeError."""
    return flip(m, 0)


def rot90(m, k: int = 1, axes=(0, 1)):
    """m turned k times by 90 degrees in a plane, from the first axis to the second. Raises ShapeError."""
    x = as_operand(m, "rot90")
    first, second = canonical_axes(axes, x.ndim, "rot90")
    k %= 4
    if k == 0:
        return x
    if k == 2:
        return flip(x, (first, second))
    return flip(swapaxes(x, first, second), first) if k == 1 else swapaxes(flip(x, first), first, second)


def roll(a, shift, axis=None):
    """a with its elements moved by shift along axes and around the end; of the flat array by default.

    Static shifts are slices; a traced shift is a dynamic slice of a doubled array. Raises ShapeError.
    """
    x = as_operand(a, "roll")
    if axis is None:
        return reshape_to(roll(reshape_to(x, (x.size,)), shift, 0), x.shape)
    axes = [canonical_axis(k, x.ndim, "roll") for k in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    shifts = list(shift) if isinstance(shift, (tuple, list)) else [shift]
    if len(shifts) not in (1, len(axes)) and len(axes) != 1:
        raise ShapeError("roll pairs shifts with axes", f"{len(shifts)} and {len(axes)}", "pass as many of both")
    count = max(len(shifts), len(axes))
    for k in range(count):
        x = _roll_one(x, shifts[k % len(shifts)], axes[k % len(axes)])
    return x


def _roll_one(x, shift, axis):
    extent = x.shape[axis]
    if not extent:
        return x
    if isinstance(shift, ArrayMethods):
        from hloom.numpy.ufuncs import remainder

        start = lax.sub(extent, convert(remainder(shift, extent), as_dtype("s32")))
        return lax.dynamic_slice_in_dim(lax.concatenate([x, x], axis), start, extent, axis)
    cut = -whole_number(shift, "roll", "shift") % extent
    if not cut:
        return x
    return lax.concatenate([lax.slice_in_dim(x, cut, None, axis=axis), lax.slice_in_dim(x, 0, cut, axis=axis)], axis)


def delete(arr, obj, axis: int | None = None):
    """arr without the elements at a static index, list of indexes or slice. Raises ShapeError."""
    x, axis = _flat_unless(arr, axis, "delete")
    extent = x.shape[axis]
    if isinstance(obj, slice):
        gone = set(range(extent)[obj])
    else:
        gone = {canonical_axis(k, extent, "delete") for k in np.ravel(np.asarray(obj)).tolist()}
    kept = [k for k in range(extent) if k not in gone]
    runs = _runs(kept)
    return lax.concatenate([lax.slice_in_dim(x, a, b, axis=axis) for a, b in runs or [(0, 0)]], axis)


def _runs(indexes) -> list[tuple[int, int]]:
    """Increasing indexes as half-open intervals."""
    runs: list[tuple[int, int]] = []
    for k in indexes:
        if runs and runs[-1][1] == k:
            runs[-1] = (runs[-1][0], k + 1)
        else:
            runs.append((k, k + 1))
    return runs


def insert(arr, obj, values, axis: int | None = None):
    """arr with values inserted before one static index. Raises ShapeError, UnsupportedIndexError for several."""
    x, axis = _flat_unless(arr, axis, "insert")
    if not isinstance(obj, int):
        raise UnsupportedIndexError("insert takes one integer as its position", f"{obj!r:.80}", "insert one by one")
    position = obj + x.shape[axis] if obj < 0 else obj
    if not 0 <= position <= x.shape[axis]:
        raise ShapeError(f"insert at {obj}", f"{x._shape!r} along axis {axis}", "insert inside of the extent")
    values = convert(as_operand(values, "insert"), x.dtype)
    if values.ndim == x.ndim:
        dims = (*x.shape[:axis], values.shape[axis], *x.shape[axis + 1 :])
    else:
        dims = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        if values.ndim and x.ndim > 1:
            values = moveaxis(reshape_to(values, (1,) * (x.ndim - values.ndim) + values.shape), 0, axis)
    values = broadcast_to(values, dims)
    return lax.concatenate(
        [lax.slice_in_dim(x, 0, position, axis=axis), values, lax.slice_in_dim(x, position, None, axis=axis)], axis
    )


def _flat_unless(a, axis, name):
    x = as_operand(a, name)
    if axis is None:
        return reshape_to(x, (x.size,)), 0
    return x, canonical_axis(axis, x.ndim, name)


# --- diagonals ----------------------------------------------------------------------------------------------------


def diagonal(a, offset: int = 0, axis1: int = 0, axis2: int = 1):
    """The elements a[i, i + offset] of two axes, along a new last axis. Raises ShapeError."""
    x = as_operand(a, "diagonal")
    first, second = canonical_axes((axis1, axis2), x.ndim, "diagonal")
    x = moveaxis(x, (first, second), (-2, -1))
    rows, columns = x.shape[-2:]
    size = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    row, column = max(-offset, 0), max(offset, 0)
    lead = x.shape[:-2]
    if not size:
        return full(0, x.dtype, (*lead, 0))
    whole = tuple((0, d, 1) for d in lead)
    square = lax.slice(
        x,
        (*(0 for _ in lead), row, column),
        (*lead, row + size, column + size),
    )
    flat = reshape_to(square, (*lead, size * size))
    if size == 1:
        return flat
    return bind("slice", flat, weak=flat.weak, slice=(*whole, (0, size * size, size + 1)))


def diag(v, k: int = 0):
    """The k-th diagonal of a matrix, or a matrix with this k-th diagonal and zeros elsewhere. Raises ShapeError."""
    x = as_operand(v, "diag")
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError("diag takes a vector or a matrix", f"{x._shape!r}", "use hnp.diagonal, or flatten it")
    size = x.shape[0]
    if not size:
        return full(0, x.dtype, (abs(k), abs(k)))
    # With `size` zeros between its elements the vector is the flat matrix.
    flat = lax.pad(x, False if x.dtype == PRED else 0, ((0, 0, size),))
    low, high = max(-k, 0), max(k, 0)
    square = reshape_to(flat, (size, size))
    return lax.pad(square, False if x.dtype == PRED else 0, ((low, high, 0), (high, low, 0))) if k else square


def diagflat(v, k: int = 0):
    """A matrix with the elements of v on its k-th diagonal."""
    return diag(ravel(v), k)


def trace(a, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype=None, out=None):
    """The sum along a diagonal; dtypes as `hnp.sum`. Raises ShapeError."""
    from hloom.numpy.reductions import sum

    return sum(diagonal(a, offset, axis1, axis2), -1, dtype)


def fill_diagonal(a, val, wrap: bool = False, *, inplace: bool = False):
    """a with val, which broadcasts, on its main diagonal. inplace=True is refused. Raises ShapeError, ArgumentError."""
    from hloom.numpy.logic import where

    if inplace or wrap:
        raise ArgumentError(
            "fill_diagonal makes a new array and knows no wrap", f"{inplace=}, {wrap=}", "pass inplace=False"
        )
    x = as_operand(a, "fill_diagonal")
    if x.ndim < 2 or x.ndim > 2 and len(set(x.shape)) > 1:
        raise ShapeError("fill_diagonal takes a matrix, or equal extents", f"{x._shape!r}", "check the shape")
    index = [lax.broadcasted_iota("s32", x.shape, k) for k in range(x.ndim)]
    mask = lax.eq(index[0], index[1])
    for other in index[2:]:
        mask = lax.bitwise_and(mask, lax.eq(index[0], other))
    value = convert(as_operand(val, "fill_diagonal"), x.dtype)
    if value.ndim:
        size = min(x.shape)
        value = reshape(resize(value, (size,)), (size,) + (1,) * (x.ndim - 1))
        value = lax.pad(value, 0, ((0, x.shape[0] - size, 0),) + ((0, 0, 0),) * (x.ndim - 1))
    return where(mask, value, x)
