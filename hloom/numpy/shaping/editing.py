"""insert and delete."""

from __future__ import annotations

import numpy as np

from hloom import lax
from hloom.errors import IndexOutOfBoundsError, ShapeError
from hloom.ir.types import DTYPES, PRED
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    broadcast_shapes,
    canonical_axis,
    convert,
    default_int,
    reshape_to,
)
from hloom.numpy.elementwise.logic import where
from hloom.numpy.indexing.nonzero import true_places
from hloom.numpy.indexing.take import index_operand, take
from hloom.numpy.shaping.manipulation import moveaxis, ravel
from hloom.numpy.shaping.sorting import argsort
from hloom.tracing.concrete import known, require_known


def _flat_unless(x, axis, name: str):
    if axis is None:
        return ravel(x), 0
    return x, canonical_axis(axis, x.ndim, name)


def insert(arr, obj, values, axis: int | None = None):
    """arr with values inserted before places along an axis (None: of the flat array).

    obj: an integer, a slice, or integers of rank 1 (before the insertion); values broadcast to what is inserted.
    Raises ShapeError, DTypeError, IndexOutOfBoundsError.
    """
    x, axis = _flat_unless(as_operand(arr, "insert"), axis, "insert")
    extent = x.shape[axis]
    values = convert(as_operand(values, "insert"), x.dtype)
    if isinstance(obj, slice):
        places = index_operand(np.arange(*obj.indices(extent), dtype=np.int32), "insert")
    else:
        places = index_operand(obj, "insert")
    if places.ndim > 1:
        raise ShapeError("insert takes places of rank 1", f"{places._shape!r}", "ravel them")
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
        # One place: values may have a whole block along the axis.
        if x.ndim == 1:
            block = reshape_to(values, (values.size,))
        else:
            full = reshape_to(values, (1,) * (x.ndim - values.ndim) + values.shape)
            block = moveaxis(full, 0, axis)
        count = block.shape[axis]
        block = broadcast_dims_to(block, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
        places = broadcast_dims_to(places, (count,))
    else:
        places = reshape_to(places, (1,)) if scalar else places
        count = places.shape[0]
        dims = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        if count == 1 and values.ndim == x.ndim and values.shape[axis] != 1:
            count = values.shape[axis]  # several before one place
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
    """arr without the elements at places along an axis (None: of the flat array).

    obj: an integer, a slice, integers, or a mask. Inside of jit integers that are traced need assume_unique_indices.
    Raises IndexOutOfBoundsError, DTypeError, TracerConversionError.
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
            mask = require_known(given, "delete", "the mask says how many elements remain", "pass places instead")
            if mask.shape != (extent,):
                raise IndexOutOfBoundsError(
                    f"delete with a mask of the axis's extent {extent}", f"{given._shape!r}", "match them"
                )
            gone = np.flatnonzero(mask)
        else:
            given = index_operand(given, "delete")
            gone = known(given)
            if gone is None and (not given.ndim or assume_unique_indices):
                return _delete_traced(x, given, axis)
            if gone is None:
                require_known(given, "delete", "equal places count once", "pass assume_unique_indices=True")
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
