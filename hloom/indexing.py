"""x[index]: integers, slices, None, Ellipsis and scalar integer arrays."""

from __future__ import annotations

import builtins

import numpy as np

from hloom import lax
from hloom.errors import IndexOutOfBoundsError, UnsupportedIndexError
from hloom.ir.types import INTEGERS
from hloom.lax.movement import slice_by
from hloom.operands import as_operand, reshape_to
from hloom.operators import ArrayMethods


def index_array(x, index):
    """The part of x that `index` names, by NumPy's basic indexing.

    index: an integer, a slice (any step), None (a new axis), Ellipsis, a scalar integer array, or a tuple of these.
    A negative integer counts from the end. A static integer outside raises; a computed one is moved to the nearest,
    since a compiled function cannot raise. Raises IndexOutOfBoundsError, ShapeError (too many indexes),
    UnsupportedIndexError (arrays, lists and masks).
    """
    x = as_operand(x, "indexing")
    entries = _entries(x, index if isinstance(index, tuple) else (index,))
    bounds, reverse, starts, dims = [], [], {}, []
    axis = 0
    for entry in entries:
        if entry is None:
            dims.append(1)
            continue
        extent = x.shape[axis]
        if isinstance(entry, builtins.slice):
            start, stop, step = _slice_bounds(x, entry, extent)
            count = len(range(start, stop, step))
            if step > 0:
                bounds.append((start, start + (count - 1) * step + 1 if count else start, step))
            else:
                # The same elements in increasing order, then reversed.
                last = start + (count - 1) * step
                bounds.append((last, start + 1, -step) if count else (0, 0, 1))
                reverse += [axis] if count > 1 else []
            dims.append(count)
        elif isinstance(entry, int):
            position = _position(x, entry, axis, extent)
            bounds.append((position, position + 1, 1))
        else:
            starts[axis] = entry
            bounds.append((0, extent, 1))
        axis += 1
    bounds = [(min(a, d), min(b, d), s) for (a, b, s), d in zip(bounds, x.shape, strict=True)]
    x = lax.rev(slice_by(x, tuple(bounds)), reverse)
    if starts:
        for axis in starts:
            _not_empty(x, axis)
        sizes = tuple(1 if k in starts else d for k, d in enumerate(x.shape))
        x = lax.dynamic_slice(x, [starts.get(k, 0) for k in range(x.ndim)], sizes)
    return reshape_to(x, tuple(dims))


def _entries(x, index) -> list:
    """The entries, one for each axis and new axis, the Ellipsis and the end filled with whole slices."""
    entries = [_entry(e) for e in index]
    named = sum(e is not None and e is not Ellipsis for e in entries)
    dots = sum(e is Ellipsis for e in entries)
    if dots > 1 or named > x.ndim:
        raise _too_many(x, index, named, dots)
    if not dots:
        entries.append(Ellipsis)
    place = next(k for k, e in enumerate(entries) if e is Ellipsis)
    return entries[:place] + [builtins.slice(None)] * (x.ndim - named) + entries[place + 1 :]


def _too_many(x, index, named, dots):
    if dots > 1:
        return IndexOutOfBoundsError("an index with one Ellipsis at most", f"{dots} of them", "write the slices out")
    return IndexOutOfBoundsError(
        f"an index of {named} axes", f"{x._shape!r}, which has {x.ndim}", "remove indexes, or add axes with None"
    )


def _entry(entry):
    """None, Ellipsis, a slice, a Python integer or a scalar integer array. Raises UnsupportedIndexError."""
    if entry is None or entry is Ellipsis or isinstance(entry, builtins.slice):
        return entry
    if isinstance(entry, ArrayMethods):
        if entry.ndim == 0 and entry.dtype in INTEGERS:
            return entry
        found = f"an array {entry._shape!r}"
    elif isinstance(entry, (np.ndarray, np.generic)) and entry.ndim == 0 and entry.dtype.kind in "iu":
        return int(entry)
    elif isinstance(entry, (bool, list, np.ndarray, np.generic)):
        found = f"{type(entry).__name__}: {entry!r:.80}"
    elif hasattr(entry, "__index__"):
        return entry.__index__()
    else:
        found = f"{type(entry).__name__}: {entry!r:.80}"
    raise UnsupportedIndexError(
        "an array takes integers, slices, None and Ellipsis as indexes",
        found,
        "for masks use hnp.where(mask, x, y); indexing with arrays comes with gather",
    )


def _slice_bounds(x, entry, extent) -> tuple[int, int, int]:
    try:
        return entry.indices(extent)
    except (TypeError, ValueError) as error:
        if any(isinstance(b, ArrayMethods) for b in (entry.start, entry.stop, entry.step)):
            raise
        raise UnsupportedIndexError(
            "a slice takes integers, and a step other than 0", f"{entry!r} of {x._shape!r}: {error}", "check its bounds"
        ) from None


def _position(x, entry: int, axis: int, extent: int) -> int:
    if not -extent <= entry < extent:
        raise IndexOutOfBoundsError(
            f"element {entry} of axis {axis}",
            f"{x._shape!r}, whose axis {axis} has extent {extent}",
            f"index between {-extent} and {extent - 1}" if extent else "the axis is empty",
        )
    return entry % extent


def _not_empty(x, axis: int) -> None:
    if not x.shape[axis]:
        raise IndexOutOfBoundsError(
            f"an element of axis {axis}", f"{x._shape!r}, whose axis {axis} is empty", "pass a non-empty array"
        )
