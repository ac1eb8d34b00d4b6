"""Orders along an axis. NaN is the largest element, as in PyTorch; equal elements keep their order."""

from __future__ import annotations

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import S64, convert, operand
from hloom.bridges.torch.table import rule
from hloom.ir.types import DTYPES, FLOATS
from hloom.lax.sorting import sort_by
from hloom.transforms.vmap import vmap


def _ordered(x, dim: int, descending: bool):
    """(elements in order, their positions)."""
    dim %= x.ndim
    positions = lax.broadcasted_iota(S64 if x.shape[dim] > 2**31 else "i4", x.shape, dim)
    values, places = sort_by((x, positions), dim, True, 1, descending)
    return values, convert(places, S64)


@rule("sort.default", "sort.stable")
def sort(x, dim=-1, descending=False, *, stable=None):
    return _ordered(x, dim, descending) if x.ndim else (x, lax.full((), 0, S64))


@rule("topk.default")
def topk(x, k, dim=-1, largest=True, sorted=True):  # noqa: A002 - PyTorch's name
    if not x.ndim:
        return x, lax.full((), 0, S64)
    dim %= x.ndim
    if largest and x.dtype in FLOATS:
        values, places = lax.top_k(x, k, axis=dim)
        return values, convert(places, S64)
    values, places = _ordered(x, dim, largest)
    return lax.slice_in_dim(values, 0, k, 1, dim), lax.slice_in_dim(places, 0, k, 1, dim)


# --- one element of an order ---


def _chosen(values, places, number, dim: int, keepdim: bool):
    """(the element, its position) that has `number` in an order along dim; number: with a size of 1 there."""
    found = [hnp.take_along_axis(v, number, axis=dim) for v in (values, places)]
    return tuple(v if keepdim else lax.squeeze(v, (dim,)) for v in found)


@rule("kthvalue.default")
def kthvalue(x, k, dim=-1, keepdim=False):
    if not x.ndim:
        return x, lax.full((), 0, S64)
    dim %= x.ndim
    values, places = _ordered(x, dim, False)
    found = [lax.index_in_dim(v, k - 1, dim, keepdims=keepdim) for v in (values, places)]
    return tuple(found)


def _median(x, dim: int, keepdim: bool, skips_nan: bool):
    """The lower of the two middle elements, and its position. The median of data with a NaN is NaN, unless skipped."""
    if not x.ndim:
        return x, lax.full((), 0, S64)
    dim %= x.ndim
    values, places = _ordered(x, dim, False)
    count = operand(x.shape[dim], S64) - hnp.sum(convert(lax.ne(values, values), S64), axis=dim, keepdims=True)
    middle = hnp.maximum(hnp.floor_divide(count - operand(1, S64), operand(2, S64)), operand(0, S64))
    if not skips_nan:
        middle = hnp.where(count < operand(x.shape[dim], S64), count, middle)
    return _chosen(values, places, middle, dim, keepdim)


def _medians(name: str, skips_nan: bool):
    @rule(f"{name}.dim")
    def along(x, dim, keepdim=False):
        return _median(x, dim, keepdim, skips_nan)

    @rule(f"{name}.default")
    def whole(x):
        if not x.size:
            return lax.full((), float("nan") if x.dtype in FLOATS else 0, x.dtype)
        return _median(lax.reshape(x, (x.size,)), 0, False, skips_nan)[0]


@rule("mode.default")
def mode(x, dim=-1, keepdim=False):
    """(the least of the most frequent elements, its last position)."""
    if not x.ndim:
        return x, lax.full((), 0, S64)
    dim %= x.ndim
    values, places = _ordered(x, dim, False)
    numbers = lax.broadcasted_iota(S64, x.shape, dim)
    before = hnp.roll(values, 1, dim)
    begins = hnp.logical_or(hnp.not_equal(values, before), hnp.equal(numbers, operand(0, S64)))
    length = numbers - lax.cummax(hnp.where(begins, numbers, operand(0, S64)), axis=dim)
    return _chosen(values, places, hnp.argmax(length, axis=dim, keepdims=True), dim, keepdim)


_medians("median", False)
_medians("nanmedian", True)


def _extremes_so_far(name: str, running, reaches):
    """(the extremes of the elements so far, their last positions); NaN is kept."""

    @rule(f"{name}.default")
    def build(x, dim):
        if not x.ndim:
            return x, lax.full((), 0, S64)
        dim %= x.ndim
        values = running(x, axis=dim)
        numbers = lax.broadcasted_iota(S64, x.shape, dim)
        new = hnp.logical_or(reaches(x, values), lax.ne(x, x))
        return values, lax.cummax(hnp.where(new, numbers, operand(0, S64)), axis=dim)


_extremes_so_far("cummax", lax.cummax, hnp.greater_equal)
_extremes_so_far("cummin", lax.cummin, hnp.less_equal)


# --- positions in an order ---


@rule("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(ordered, x, *, out_int32=False, right=False, side=None, sorter=None):
    """Where x would be put in: in the one row of `ordered`, or in the row with the same leading positions."""
    x = x if hasattr(x, "dtype") else operand(x, ordered.dtype)
    side = side or ("right" if right else "left")
    if sorter is not None:
        ordered = hnp.take_along_axis(ordered, sorter, axis=-1)

    def search(row, values):
        return hnp.searchsorted(row, values, side=side)

    if ordered.ndim == 1:
        found = search(ordered, x)
    else:
        rows = lax.reshape(ordered, (ordered.size // max(ordered.shape[-1], 1), ordered.shape[-1]))
        values = lax.reshape(x, (rows.shape[0], x.shape[-1]))
        found = lax.reshape(vmap(search)(rows, values), x.shape)
    return convert(found, DTYPES["s32"] if out_int32 else S64)


@rule("bucketize.Tensor", "bucketize.Scalar")
def bucketize(x, boundaries, *, out_int32=False, right=False):
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)
