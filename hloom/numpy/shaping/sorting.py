"""Sorting and searching: sort, argsort, lexsort, partition, searchsorted, digitize."""

from __future__ import annotations

import operator

import numpy as np

from hloom import lax
from hloom.arrays.array import Array
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.types import DTYPES, FLOATS, INEXACT, Shape, as_dtype
from hloom.lax.operands import as_operand, canonical_axis, convert, default_int, promote_operands
from hloom.lax.sorting import sort_by
from hloom.numpy.elementwise.logic import where
from hloom.numpy.shaping.manipulation import ravel
from hloom.tracing.trace import bind, current_trace


def _options(name: str, kind, order) -> None:
    if order is not None:
        raise ArgumentError(
            f"{name} does not support order=, as arrays have no fields", f"{order!r}", "leave order out"
        )
    if kind not in (None, "quicksort", "mergesort", "heapsort", "stable"):
        raise ArgumentError(f"the kind of {name}", f"{kind!r}", "leave kind out; every sort is stable by default")


def _axis_of(x, axis, name: str):
    """(array, axis): flat for None. Raises ShapeError."""
    if axis is None:
        return ravel(x), 0
    return x, canonical_axis(axis, x.ndim, name)


def sort(a, axis: int | None = -1, *, kind=None, order=None, stable: bool = True, descending: bool = False):
    """a sorted along an axis (None: flat). NaN comes last, or first when descending; complex by real, then imaginary.

    Raises ShapeError, ArgumentError.

    >>> hnp.sort(hnp.array([[3, 1, 2], [9, 7, 8]]), axis=1)
    Array([[1, 2, 3],
           [7, 8, 9]], dtype=int32)
    >>> hnp.sort(hnp.array([3, 1, 2]), descending=True)
    Array([3, 2, 1], dtype=int32)
    """
    _options("sort", kind, order)
    x, axis = _axis_of(as_operand(a, "sort"), axis, "sort")
    return sort_by(x, axis, True, 1, bool(descending))


def places_along(dims, axis: int, dtype=None):
    """An array whose elements are their index along an axis."""
    return bind("iota", shape=Shape(dtype or default_int(), tuple(dims)), iota_dimension=axis)


def argsort(
    a, axis: int | None = -1, *, kind=None, order=None, stable: bool = True, descending: bool = False, dtype=None
):
    """The indices that sort a along an axis (None: of the flat array), stably.

    dtype: of the indices, by default the default integer. Raises ShapeError, ArgumentError.

    >>> hnp.argsort(hnp.array([30, 10, 20]))
    Array([1, 2, 0], dtype=int32)
    >>> hnp.argsort(hnp.array([30, 10, 20]), descending=True)
    Array([0, 2, 1], dtype=int32)
    """
    _options("argsort", kind, order)
    x, axis = _axis_of(as_operand(a, "argsort"), axis, "argsort")
    places = places_along(x.shape, axis, None if dtype is None else as_dtype(dtype))
    return sort_by((x, places), axis, True, 1, bool(descending))[1]


def lexsort(keys, axis: int = -1):
    """The indices that sort by several keys: the last one is the primary key, the others break ties.

    keys: a list of arrays, or the rows of an array. Raises ShapeError, ArgumentError.

    >>> first, second = hnp.array([2, 1, 1]), hnp.array([5, 9, 3])
    >>> hnp.lexsort((second, first))
    Array([2, 1, 0], dtype=int32)
    """
    arrays = [as_operand(k, "lexsort") for k in keys]
    if not arrays:
        raise ArgumentError("lexsort takes at least one key", "none", "pass a list of arrays")
    if any(k.shape != arrays[0].shape for k in arrays):
        raise ShapeError("lexsort takes keys of one shape", ", ".join(repr(k._shape) for k in arrays), "broadcast them")
    if not arrays[0].ndim:
        return lax.full((), 0, default_int())
    axis = canonical_axis(axis, arrays[0].ndim, "lexsort")
    places = places_along(arrays[0].shape, axis)
    return sort_by((*arrays[::-1], places), axis, True, len(arrays), False)[-1]


def sort_complex(a):
    """a sorted along its last axis by real, then imaginary parts, as complex numbers.

    >>> hnp.sort_complex(hnp.array([2 + 1j, 1 + 5j, 2 + 0j]))
    Array([1.+5.j, 2.+0.j, 2.+1.j], dtype=complex64)
    """
    x = as_operand(a, "sort_complex")
    if x.dtype not in (DTYPES["c64"], DTYPES["c128"]):
        x = convert(x, DTYPES["c128" if x.dtype in (DTYPES["f64"], DTYPES["s64"], DTYPES["u64"]) else "c64"])
    return sort(x, -1) if x.ndim else x


def partition(a, kth: int, axis: int = -1):
    """a rearranged so that element kth of an axis is in its sorted position, with no larger elements before it.

    Raises ShapeError, ArgumentError.

    >>> hnp.partition(hnp.array([5, 1, 4, 2]), 1)[:2].sum()
    Array(3, dtype=int32)
    """
    x, axis = _axis_of(as_operand(a, "partition"), axis, "partition")
    _kth(x, kth, axis, "partition")
    # Sorted up to kth, then descending: JAX's choice for the order that NumPy leaves unspecified.
    place = np.ravel(np.asarray(kth)).max().item() % x.shape[axis] + 1
    ordered = sort(x, axis)
    front = lax.slice_in_dim(ordered, 0, place, axis=axis)
    return lax.concatenate([front, lax.rev(lax.slice_in_dim(ordered, place, None, axis=axis), (axis,))], axis)


def argpartition(a, kth: int, axis: int = -1):
    """The indices of the elements of `partition`, those after kth in ascending order of index.

    >>> x = hnp.array([5, 1, 4, 2])
    >>> smallest = hnp.argpartition(x, 1)[:2]
    >>> hnp.sort(x[smallest])
    Array([1, 2], dtype=int32)
    """
    x, axis = _axis_of(as_operand(a, "argpartition"), axis, "argpartition")
    _kth(x, kth, axis, "argpartition")
    place = np.ravel(np.asarray(kth)).max().item() % x.shape[axis] + 1
    order = argsort(x, axis)
    front = lax.slice_in_dim(order, 0, place, axis=axis)
    return lax.concatenate([front, sort(lax.slice_in_dim(order, place, None, axis=axis), axis)], axis)


def _kth(x, kth, axis: int, name: str) -> None:
    for k in np.ravel(np.asarray(kth)).tolist():
        canonical_axis_of_extent(k, x.shape[axis], name)


def canonical_axis_of_extent(place: int, extent: int, name: str) -> int:
    """A static index along an axis, counted from the front. Raises ArgumentError."""
    if not isinstance(place, int) or not -extent <= place < extent:
        raise ArgumentError(f"{name} at index {place} of an axis", f"its size is {extent}", "name an existing index")
    return place + extent if place < 0 else place


# --- searching ----------------------------------------------------------------------------------------------------


def searchsorted(a, v, side: str = "left", sorter=None, *, method: str = "scan"):
    """The indices, from 0 to a.size, at which to insert v (any shape) into a (rank 1, ascending) to keep it sorted.

    side: 'left' before equal elements, 'right' after. sorter: indices that sort a. NaN counts as the largest. method:
    'scan', 'scan_unrolled', 'sort' or 'compare_all' as in JAX; results are equal. Raises ShapeError, ArgumentError,
    DTypeError.

    >>> hnp.searchsorted(hnp.array([1, 3, 5]), hnp.array([0, 3, 4]))
    Array([0, 1, 2], dtype=int32)
    >>> hnp.searchsorted(hnp.array([1, 3, 5]), 3, side="right")
    Array(2, dtype=int32)
    """
    if side not in ("left", "right"):
        raise ArgumentError("the side of searchsorted", f"{side!r}", "'left' or 'right'")
    if method not in ("scan", "scan_unrolled", "sort", "compare_all", "default"):
        raise ArgumentError(
            "the method of searchsorted", f"{method!r}", "one of 'scan', 'scan_unrolled', 'sort', 'compare_all'"
        )
    table = as_operand(a, "searchsorted")
    if table.ndim != 1:
        raise ShapeError("searchsorted takes a sorted array of rank 1", f"{table._shape!r}", "ravel it, or use vmap")
    if sorter is not None:
        table = table[as_operand(sorter, "searchsorted")]
    (table, queries), _ = promote_operands("searchsorted", (table, v), broadcast=False)
    dtype = DTYPES["s32"] if table.shape[0] < 2**31 else DTYPES["s64"]
    if current_trace() is None and table.dtype not in (DTYPES["bf16"], DTYPES["c64"], DTYPES["c128"]):
        return Array(
            np.asarray(
                np.searchsorted(np.asarray(table), np.asarray(queries), "left" if side == "left" else "right")
            ).astype(dtype)
        )
    return _by_halves(table, queries, side == "right", dtype)


def _by_halves(table, queries, behind: bool, dtype):
    """Binary search with unrolled steps: one fused loop over the queries."""
    count = table.shape[0]
    position = lax.full(queries.shape, 0, dtype)
    step = 1 << max(operator.index(count).bit_length() - 1, 0)
    while step and count:
        candidate = lax.add(position, lax.full_like(position, step))
        element = table.at[lax.sub(candidate, lax.full_like(candidate, 1))].get(mode="clip")
        before = _before(element, queries, behind)
        fits = lax.le(candidate, lax.full_like(candidate, count))
        position = where(lax.bitwise_and(fits, before), candidate, position)
        step >>= 1
    return position


def _before(x, y, equal_too: bool):
    """x < y, or x <= y; NaN is the largest."""
    if x.dtype not in INEXACT:
        return lax.le(x, y) if equal_too else lax.lt(x, y)
    if x.dtype not in FLOATS:
        re, im = (lax.real(x), lax.real(y)), (lax.imag(x), lax.imag(y))
        return lax.bitwise_or(lax.lt(*re), lax.bitwise_and(lax.eq(*re), _before(*im, equal_too)))
    if equal_too:
        return lax.bitwise_or(lax.le(x, y), lax.ne(y, y))
    return lax.bitwise_or(lax.lt(x, y), lax.bitwise_and(lax.eq(x, x), lax.ne(y, y)))


def digitize(x, bins, right: bool = False, *, method=None):
    """For each x the index of its bin; bins: edges, ascending or descending.

    right: an element equal to an edge belongs to the bin below it. Raises ShapeError, DTypeError.

    >>> hnp.digitize(hnp.array([0.5, 1.5, 9.0]), hnp.array([0.0, 1.0, 2.0]))
    Array([1, 2, 3], dtype=int32)
    """
    edges = as_operand(bins, "digitize")
    if edges.ndim != 1:
        raise ShapeError("digitize takes edges of rank 1", f"{edges._shape!r}", "ravel them")
    x = as_operand(x, "digitize")
    if x.dtype not in FLOATS and x.dtype in INEXACT:
        raise DTypeError("digitize takes real numbers", f"{x._shape!r}", "take the real part")
    count = edges.shape[0]
    if not count:
        return lax.full(x.shape, 0, default_int())
    up = searchsorted(edges, x, "left" if right else "right")
    down = searchsorted(edges[::-1], x, "left" if right else "right")
    down = lax.sub(lax.full_like(down, count), down)
    increasing = lax.ge(edges[count - 1], edges[0])
    return where(increasing, up, down)


def sorted_with_places(x, axis: int):
    """(x sorted along an axis, the original indices of its elements)."""
    return sort_by((x, places_along(x.shape, axis)), axis, True, 1, False)
