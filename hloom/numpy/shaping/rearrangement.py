"""Elements repeated, reordered, inserted and deleted: repeat, flip, rot90, roll, insert, delete."""

from __future__ import annotations

import numpy as np

from hloom import lax
from hloom.arrays.base import ArrayMethods
from hloom.dispatch.sharded import takes_out_sharding
from hloom.errors import IndexOutOfBoundsError, ShapeError
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.types import DTYPES, PRED, Shape, as_dtype
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    broadcast_shapes,
    canonical_axes,
    canonical_axis,
    convert,
    default_int,
    full,
    holds_arrays,
    index_dtype,
    index_of_axis,
    reshape_to,
    whole_number,
)
from hloom.numpy.elementwise.logic import where
from hloom.numpy.elementwise.ufuncs import remainder
from hloom.numpy.indexing.nonzero import true_places
from hloom.numpy.indexing.take import index_operand, take
from hloom.numpy.reducing.scans import cumsum
from hloom.numpy.shaping.manipulation import concatenate, moveaxis, ravel, swapaxes
from hloom.numpy.shaping.sorting import argsort, searchsorted
from hloom.tracing.concrete import known, require_known
from hloom.tracing.trace import bind

# --- repeating ----------------------------------------------------------------------------------------------------


@takes_out_sharding
def repeat(a, repeats, axis: int | None = None, *, total_repeat_length: int | None = None, out_sharding=None):
    """Every element repeated along an axis (of the flat array); repeats is a scalar or one static number per element.

    total_repeat_length: the static size of the result, which allows traced repeats; the result is padded with the last
    element, or truncated. Raises ShapeError.

    >>> hnp.repeat(hnp.array([1, 2]), hnp.array([2, 3]), total_repeat_length=5)
    Array([1, 1, 2, 2, 2], dtype=int32)
    """
    x = as_operand(a, "repeat")
    if axis is None:
        x, axis = reshape_to(x, (x.size,)), 0
    elif not x.ndim:  # as in NumPy, a scalar is a vector of one element
        x = reshape_to(x, (1,))
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
    """Each position of the result belongs to the last element whose repeats begin at or before it."""
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
    """m with the order of its elements reversed along axes (all by default). Raises ShapeError.

    >>> hnp.flip(hnp.array([[1, 2], [3, 4]]), axis=1)
    Array([[2, 1],
           [4, 3]], dtype=int32)
    """
    x = as_operand(m, "flip")
    return lax.rev(x, canonical_axes(axis, x.ndim, "flip"))


def fliplr(m):
    """m reversed along axis 1. Raises ShapeError.

    >>> hnp.fliplr(hnp.array([[1, 2], [3, 4]]))
    Array([[2, 1],
           [4, 3]], dtype=int32)
    """
    return flip(m, 1)


def flipud(m):
    """m reversed along axis 0. Raises ShapeError.

    >>> hnp.flipud(hnp.array([[1, 2], [3, 4]]))
    Array([[3, 4],
           [1, 2]], dtype=int32)
    """
    return flip(m, 0)


def rot90(m, k: int = 1, axes=(0, 1)):
    """m rotated k times by 90 degrees in a plane, from the first axis to the second. Raises ShapeError.

    >>> hnp.rot90(hnp.array([[1, 2], [3, 4]]))
    Array([[2, 4],
           [1, 3]], dtype=int32)
    """
    x = as_operand(m, "rot90")
    first, second = canonical_axes(axes, x.ndim, "rot90")
    k %= 4
    if k == 0:
        return x
    if k == 2:
        return flip(x, (first, second))
    return flip(swapaxes(x, first, second), first) if k == 1 else swapaxes(flip(x, first), first, second)


def roll(a, shift, axis=None):
    """a with its elements shifted cyclically along axes; the flat array by default.

    Static shifts are slices; a traced shift is a dynamic slice of a doubled array. Raises ShapeError.

    >>> hnp.roll(hnp.array([1, 2, 3, 4]), 1)
    Array([4, 1, 2, 3], dtype=int32)
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
        wide = index_dtype(2 * extent)
        start = lax.sub(extent, convert(remainder(index_of_axis(shift, extent), extent), wide))
        return lax.dynamic_slice_in_dim(lax.concatenate([x, x], axis), start, extent, axis)
    cut = -whole_number(shift, "roll", "shift") % extent
    if not isinstance(cut, SizeExpression) and not cut:
        return x
    return lax.concatenate([lax.slice_in_dim(x, cut, None, axis=axis), lax.slice_in_dim(x, 0, cut, axis=axis)], axis)


# --- inserting and deleting ---------------------------------------------------------------------------------------


def _flat_unless(x, axis, name: str):
    if axis is None:
        return ravel(x), 0
    return x, canonical_axis(axis, x.ndim, name)


def insert(arr, obj, values, axis: int | None = None):
    """arr with values inserted before indices along an axis (None: of the flat array).

    obj: an integer, a slice, or integers of rank 1 (relative to arr); values broadcast to the inserted part.
    Raises ShapeError, DTypeError, IndexOutOfBoundsError.

    >>> hnp.insert(hnp.array([1, 2, 3]), 1, 9)
    Array([1, 9, 2, 3], dtype=int32)
    """
    x, axis = _flat_unless(as_operand(arr, "insert"), axis, "insert")
    extent = x.shape[axis]
    values = convert(as_operand(values, "insert"), x.dtype)
    if isinstance(obj, slice):
        places = index_operand(np.arange(*obj.indices(extent), dtype=np.int32), "insert")
    else:
        places = index_operand(obj, "insert")
    if places.ndim > 1:
        raise ShapeError("insert takes positions of rank 1", f"{places._shape!r}", "ravel them")
    value = known(places)
    if value is not None and value.size and not (-extent <= value.min() and value.max() <= extent):
        raise IndexOutOfBoundsError(
            f"insert at {value.ravel().tolist()} of axis {axis}", f"{x._shape!r}", f"between {-extent} and {extent}"
        )
    places = places if places.dtype.itemsize >= 4 else convert(places, DTYPES["s32"])
    if places.dtype.kind == "i":
        places = where(lax.lt(places, lax.full_like(places, 0)), lax.add(places, lax.full_like(places, extent)), places)
    scalar = not places.ndim
    if scalar and values.ndim and x.ndim >= 1:
        # One index: values may be a block along the axis.
        if x.ndim == 1:
            block = reshape_to(values, (values.size,))
        else:
            block = moveaxis(reshape_to(values, (1,) * (x.ndim - values.ndim) + values.shape), 0, axis)
        count = block.shape[axis]
        block = broadcast_dims_to(block, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
        places = broadcast_dims_to(places, (count,))
    else:
        places = reshape_to(places, (1,)) if scalar else places
        count = places.shape[0]
        dims = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        if count == 1 and values.ndim == x.ndim and values.shape[axis] != 1:
            count = values.shape[axis]  # several before one index
            dims = (*x.shape[:axis], count, *x.shape[axis + 1 :])
            places = broadcast_dims_to(places, (count,))
        if broadcast_shapes("insert", [dims, values.shape]) != dims:
            raise ShapeError("insert takes values that fit", f"{values._shape!r} for {dims}", "broadcast them")
        block = broadcast_dims_to(values, dims)
    order = argsort(places)
    target = lax.add(places[order], convert(lax.iota(default_int(), count), places.dtype))
    total = extent + count
    kept = lax.full((total,), True, PRED).at[target].set(False)
    old = true_places(kept, extent, total)
    result = lax.full((*x.shape[:axis], total, *x.shape[axis + 1 :]), 0, x.dtype)
    lead = (slice(None),) * axis
    result = result.at[(*lead, old)].set(x)
    return result.at[(*lead, target)].set(take(block, order, axis=axis, mode="clip"))


def delete(arr, obj, axis: int | None = None, *, assume_unique_indices: bool = False):
    """arr without the elements at indices along an axis (None: of the flat array).

    obj: an integer, a slice, integers, or a mask. Inside of jit, traced integers need assume_unique_indices.
    Raises IndexOutOfBoundsError, DTypeError, TracerConversionError.

    >>> hnp.delete(hnp.array([1, 2, 3, 4]), 1)
    Array([1, 3, 4], dtype=int32)
    """
    x, axis = _flat_unless(as_operand(arr, "delete"), axis, "delete")
    extent = x.shape[axis]
    lead = (slice(None),) * axis
    if isinstance(obj, slice):
        gone = np.arange(extent)[obj]
    else:
        given = (
            index_operand(obj, "delete")
            if isinstance(obj, (list, tuple)) and not len(obj)
            else as_operand(obj, "delete")
        )
        if given.dtype == PRED:
            mask = require_known(
                given, "delete", "the mask determines the size of the result", "pass positions instead"
            )
            if mask.shape != (extent,):
                raise IndexOutOfBoundsError(
                    f"delete with a mask of the axis's size {extent}", f"{given._shape!r}", "match them"
                )
            gone = np.flatnonzero(mask)
        else:
            given = index_operand(given, "delete")
            if known(given) is None and (not given.ndim or assume_unique_indices):
                return _delete_traced(x, given, axis)
            gone = require_known(given, "delete", "equal positions count once", "pass assume_unique_indices=True")
    gone = np.ravel(gone)
    if gone.size and not (-extent <= gone.min() and gone.max() < extent):
        raise IndexOutOfBoundsError(
            f"delete element {gone[np.abs(gone).argmax()]} of axis {axis}", f"{x._shape!r}", "name existing elements"
        )
    kept = np.ones(extent, bool)
    kept[gone] = False
    return x[(*lead, np.flatnonzero(kept))]


def _delete_traced(x, places, axis: int):
    extent = x.shape[axis]
    places = ravel(places)
    kept = lax.full((extent,), True, PRED).at[places].set(False)
    return take(x, true_places(kept, max(extent - places.shape[0], 0), 0), axis=axis, mode="clip")
