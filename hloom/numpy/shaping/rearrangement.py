"""Repeating, reordering and removing elements; diagonals."""

from __future__ import annotations

import numpy as np

from hloom import lax
from hloom.arrays.operators import ArrayMethods
from hloom.errors import ShapeError, UnsupportedIndexError
from hloom.ir.types import Shape, as_dtype
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    canonical_axes,
    canonical_axis,
    convert,
    full,
    holds_arrays,
    reshape_to,
    whole_number,
)
from hloom.numpy.elementwise.ufuncs import remainder
from hloom.numpy.indexing.take import take
from hloom.numpy.reducing.scans import cumsum
from hloom.numpy.shaping.manipulation import broadcast_to, concatenate, moveaxis, swapaxes
from hloom.numpy.shaping.sorting import searchsorted
from hloom.tracing.trace import bind

# --- repeating ----------------------------------------------------------------------------------------------------


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
    extent = x.shape[axis]
    counts = as_operand(repeats, "repeat")
    counts = broadcast_dims_to(reshape_to(counts, (1,)) if counts.ndim == 0 else counts, (extent,))
    if not extent or not length:
        return lax.slice_in_dim(x, 0, 0, axis=axis)
    ends = cumsum(convert(counts, as_dtype("s32")))
    source = searchsorted(ends, lax.iota("s32", length), side="right")
    return take(x, lax.min(source, full(extent - 1, source.dtype, source.shape)), axis=axis)


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
