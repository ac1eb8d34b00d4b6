"""Sets: unique elements, and set operations on two arrays. Inside of jit, `size` sets the size of results."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hloom import lax
from hloom.arrays.array import Array
from hloom.dispatch.counted_sizes import counts, size_of_mask, with_size
from hloom.errors import ArgumentError
from hloom.ir.types import DTYPES, FLOATS, INEXACT, PRED
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    canonical_axis,
    convert,
    default_int,
    promote_operands,
    reshape_to,
)
from hloom.lax.sorting import sort_by
from hloom.numpy.elementwise.logic import where
from hloom.numpy.indexing.nonzero import true_places
from hloom.numpy.indexing.take import compress
from hloom.numpy.shaping.manipulation import concatenate, moveaxis, ravel
from hloom.numpy.shaping.sorting import places_along, searchsorted, sort
from hloom.tracing.concrete import require_known


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: object
    indices: object
    inverse_indices: object
    counts: object


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: object
    counts: object


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: object
    inverse_indices: object


_SIZE = "pass size=, the number of elements that the result is to have"


def unique(
    ar,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value=None,
    sorted: bool = True,
):
    """The sorted distinct elements of ar (axis: the distinct slices along it); a tuple if more is requested.

    return_index: indices of the first occurrences. return_inverse: for each element its index in the result.
    return_counts: the number of occurrences. size: the number of elements; missing ones are fill_value (by default the
    smallest) with count 0. Without size, the result has a dynamic size under jit. equal_nan: all NaN count as one.
    Raises ShapeError, TracerConversionError.

    >>> hnp.unique(hnp.array([3, 1, 3]))
    Array([1, 3], dtype=int32)
    >>> values, counts = hnp.unique(hnp.array([3, 1, 3]), return_counts=True)
    >>> counts
    Array([1, 2], dtype=int32)
    """
    x = as_operand(ar, "unique")
    dims = x.shape
    if axis is None:
        rows = reshape_to(x, (x.size, 1))
    else:
        axis = canonical_axis(axis, x.ndim, "unique")
        x = moveaxis(x, axis, 0)
        rows = reshape_to(x, (x.shape[0], x.size // max(x.shape[0], 1)))
    values, index, inverse, counts = _unique_rows(rows, size, fill_value, equal_nan)
    if axis is None:
        values, inverse = ravel(values), reshape_to(inverse, dims)
    else:
        values = moveaxis(reshape_to(values, (values.shape[0], *x.shape[1:])), 0, axis)
    chosen = [v for v, wanted in ((index, return_index), (inverse, return_inverse), (counts, return_counts)) if wanted]
    return (values, *chosen) if chosen else values


def _unique_rows(rows, size, fill_value, equal_nan):
    """(distinct rows, first indices, inverse, counts) of a matrix."""
    count, width = rows.shape
    dtype = default_int()
    if not count:
        made = size or 0
        fill = lax.full((made, width), 0, rows.dtype) if fill_value is None else _filled(rows, fill_value, made)
        none = lax.full((made,), 0, dtype)
        return fill, none, lax.full((0,), 0, dtype), none
    columns = [rows[:, k] for k in range(width)]
    places = places_along((count,), 0)
    *keys, order = sort_by((*columns, places), 0, True, width, False) if width else [places]
    new = None
    for key in keys:
        differs = _differs(key[1:], key[:-1], equal_nan)
        new = differs if new is None else lax.bitwise_or(new, differs)
    new = lax.full((count - 1,), False, PRED) if new is None else new
    new = concatenate([lax.full((1,), True, PRED), new])
    cut = None
    if size is None and counts(new):
        counted = size_of_mask(new, "hnp.unique")
        number = lax.reduce_sum(convert(new, DTYPES["s32"]), None)
        cut, size = with_size(lax.iota(dtype, count), number, counted), count
    if size is None:
        flags = require_known(new, "unique", "the number of distinct elements is a shape", _SIZE)
        size = int(flags.sum())
        first = Array(np.flatnonzero(flags).astype(dtype))
    else:
        first = true_places(new, size, count)
    rank = lax.sub(lax.cumsum(convert(new, dtype), axis=0), lax.full((count,), 1, dtype))
    inverse = lax.full((count,), 0, dtype).at[order].set(rank, unique_indices=True)
    missing = lax.eq(first, lax.full_like(first, count))
    following = concatenate([first[1:], lax.full((1,), count, dtype)]) if size else first
    total = lax.add(rank[count - 1], lax.full((), 1, dtype))
    last = lax.ge(lax.add(lax.iota(dtype, size), lax.full((size,), 1, dtype)), broadcast_dims_to(total, (size,)))
    following = where(last, count, following)
    if size:
        # If size truncates the result, the last element kept still ends where the next one begins.
        starts = true_places(new, size + 1, count)
        following = starts[1:]
    numbers = where(missing, 0, lax.sub(following, first))
    index = order.at[first].get(mode="clip")
    index = where(missing, broadcast_dims_to(order[0], (size,)), index)
    values = rows.at[index].get(mode="clip")
    if fill_value is not None and size:
        fill = _filled(rows, fill_value, size)
        values = where(broadcast_dims_to(reshape_to(missing, (size, 1)), (size, width)), fill, values)
    if cut is not None:
        values, index, numbers = [x.at[cut].get(mode="promise_in_bounds") for x in (values, index, numbers)]
    return values, index, inverse, numbers


def _filled(rows, fill_value, size: int):
    fill = convert(as_operand(fill_value, "unique"), rows.dtype)
    fill = reshape_to(fill, (1, fill.size))
    return broadcast_dims_to(fill, (size, rows.shape[1]))


def _differs(x, y, equal_nan: bool):
    differs = lax.ne(x, y)
    if x.dtype in INEXACT and equal_nan:
        differs = lax.bitwise_and(differs, lax.bitwise_not(lax.bitwise_and(lax.ne(x, x), lax.ne(y, y))))
    return differs


def unique_all(x, /, *, size: int | None = None, fill_value=None) -> UniqueAll:
    """(values, indices, inverse_indices, counts) of the distinct elements; NaN are all distinct. As `unique`.

    >>> hnp.unique_all(hnp.array([3, 1, 3])).indices
    Array([1, 0], dtype=int32)
    """
    return UniqueAll(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


def unique_counts(x, /, *, size: int | None = None, fill_value=None) -> UniqueCounts:
    """(values, counts) of the distinct elements; NaN are all distinct. As `unique`.

    >>> hnp.unique_counts(hnp.array([3, 1, 3])).counts
    Array([1, 2], dtype=int32)
    """
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x, /, *, size: int | None = None, fill_value=None) -> UniqueInverse:
    """(values, inverse_indices) of the distinct elements; NaN are all distinct. As `unique`.

    >>> values, inverse = hnp.unique_inverse(hnp.array([3, 1, 3]))
    >>> values[inverse]
    Array([3, 1, 3], dtype=int32)
    """
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x, /, *, size: int | None = None, fill_value=None):
    """The sorted distinct elements; NaN are all distinct. As `unique`.

    >>> hnp.unique_values(hnp.array([3, 1, 3]))
    Array([1, 3], dtype=int32)
    """
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


# --- two arrays ---------------------------------------------------------------------------------------------------


def isin(element, test_elements, assume_unique: bool = False, invert: bool = False, *, method="auto"):
    """For each element, whether it is in test_elements. method: 'auto', 'compare_all', 'binary_search' or 'sort'.

    >>> hnp.isin(hnp.array([1, 2, 3]), hnp.array([2, 5]))
    Array([False,  True, False], dtype=bool)
    """
    if method not in ("auto", "compare_all", "binary_search", "sort"):
        raise ArgumentError(
            "the method of isin", f"{method!r}", "one of 'auto', 'compare_all', 'binary_search', 'sort'"
        )
    (x, tests), _ = promote_operands("isin", (element, test_elements), broadcast=False)
    x, tests = as_operand(x, "isin"), ravel(as_operand(tests, "isin"))
    count = tests.shape[0]
    if not count:
        found = lax.full(x.shape, False, PRED)
    elif method == "compare_all" or count <= 16 or (x.dtype in INEXACT and x.dtype not in FLOATS):
        dims = (*x.shape, count)
        each = lax.eq(broadcast_dims_to(reshape_to(x, (*x.shape, 1)), dims), broadcast_dims_to(tests, dims))
        found = lax.reduce_or(each, (x.ndim,))
    else:
        table = sort(tests)
        place = searchsorted(table, x)
        found = lax.eq(table.at[place].get(mode="clip"), x)
    return lax.bitwise_not(found) if invert else found


def in1d(ar1, ar2, assume_unique: bool = False, invert: bool = False):
    """`isin` of the flat ar1."""
    return isin(ravel(as_operand(ar1, "in1d")), ar2, assume_unique, invert)


def _chosen(name: str, x, mask, size, fill_value, sides=None):
    """(sorted distinct elements of x where mask is true, the indices of their first occurrences).

    sides: NaN of different sides are distinct.
    """
    if size is None:
        flags = require_known(mask, name, "the number of elements of the result is a shape", _SIZE)
        places = np.flatnonzero(flags)
        found, first = unique(x[places], return_index=True)
        return found, as_operand(places.astype(default_int()), name)[first] if places.size else first
    outside = lax.bitwise_not(mask)
    count = x.shape[0]
    dtype = default_int()
    if not count:
        fill = lax.full((), 0, x.dtype) if fill_value is None else convert(as_operand(fill_value, name), x.dtype)
        return broadcast_dims_to(fill, (size,)), lax.full((size,), 0, dtype)
    keys = (outside, x) if sides is None else (outside, x, sides)
    flag, key, *rest, order = sort_by((*keys, places_along((count,), 0)), 0, True, len(keys), False)
    differs = _differs(key[1:], key[:-1], True)
    for side in rest:
        differs = lax.bitwise_or(differs, lax.bitwise_and(lax.ne(key[1:], key[1:]), lax.ne(side[1:], side[:-1])))
    new = concatenate([lax.full((1,), True, PRED), differs])
    first = true_places(lax.bitwise_and(new, lax.bitwise_not(flag)), size, count)
    missing = lax.eq(first, lax.full_like(first, count))
    values, index = key.at[first].get(mode="clip"), order.at[first].get(mode="clip")
    fill = key[0] if fill_value is None else convert(as_operand(fill_value, name), x.dtype)
    return where(missing, fill, values), where(missing, count, index)


def _flat_pair(name: str, ar1, ar2):
    (a, b), _ = promote_operands(name, (ar1, ar2), broadcast=False)
    return ravel(as_operand(a, name)), ravel(as_operand(b, name))


def union1d(ar1, ar2, *, size: int | None = None, fill_value=None):
    """The sorted distinct elements of both arrays. size and fill_value as in `unique`.

    >>> hnp.union1d(hnp.array([3, 1]), hnp.array([2, 1]))
    Array([1, 2, 3], dtype=int32)
    """
    return unique(concatenate(list(_flat_pair("union1d", ar1, ar2))), size=size, fill_value=fill_value)


def intersect1d(
    ar1, ar2, assume_unique: bool = False, return_indices: bool = False, *, size: int | None = None, fill_value=None
):
    """The sorted distinct elements common to both arrays; with return_indices also their first indices in both.

    size and fill_value as in `unique`; missing indices are the arrays' sizes. Raises TracerConversionError.

    >>> hnp.intersect1d(hnp.array([3, 1, 2]), hnp.array([2, 3, 5]))
    Array([2, 3], dtype=int32)
    """
    a, b = _flat_pair("intersect1d", ar1, ar2)
    values, first = _chosen("intersect1d", a, isin(a, b), size, fill_value)
    if not return_indices:
        return values
    _, second = _chosen("intersect1d", b, isin(b, a), size, fill_value)
    return values, first, second


def setdiff1d(ar1, ar2, assume_unique: bool = False, *, size: int | None = None, fill_value=None):
    """The sorted distinct elements of ar1 that ar2 lacks (in their original order with assume_unique).

    size and fill_value as in `unique`, but missing elements are 0 by default. Raises TracerConversionError.

    >>> hnp.setdiff1d(hnp.array([3, 1, 2]), hnp.array([2]))
    Array([1, 3], dtype=int32)
    """
    a, b = _flat_pair("setdiff1d", ar1, ar2)
    mask = isin(a, b, invert=True)
    if assume_unique:
        return compress(mask, a, size=size, fill_value=0 if fill_value is None else fill_value)
    fill = 0 if fill_value is None and size is not None else fill_value
    return _chosen("setdiff1d", a, mask, size, fill)[0]


def setxor1d(ar1, ar2, assume_unique: bool = False, *, size: int | None = None, fill_value=None):
    """The sorted distinct elements in exactly one of the arrays; NaN of each, since NaN are not equal to each other.

    size and fill_value as in `unique`. Raises TracerConversionError.

    >>> hnp.setxor1d(hnp.array([1, 2]), hnp.array([2, 3]))
    Array([1, 3], dtype=int32)
    """
    a, b = _flat_pair("setxor1d", ar1, ar2)
    mask = concatenate([isin(a, b, invert=True), isin(b, a, invert=True)])
    if size is None:
        flags = require_known(mask, "setxor1d", "the number of elements of the result is a shape", _SIZE)
        chosen = (a, flags[: a.shape[0]]), (b, flags[a.shape[0] :])
        return sort(concatenate([unique(x[np.flatnonzero(f)]) for x, f in chosen]))
    both = concatenate([a, b])
    sides = lax.ge(places_along(both.shape, 0), lax.full(both.shape, a.shape[0], default_int()))
    return _chosen("setxor1d", both, mask, size, fill_value, sides)[0]
