"""Counting: bincount and histograms in one and more dimensions."""

from __future__ import annotations

import numpy as np

from hloom import lax
from hloom.arrays.array import Array
from hloom.dispatch.sharded import takes_out_sharding
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.types import DTYPES, FLOATS, INTEGERS, PRED
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    convert,
    default_int,
    promote_operands,
    reshape_to,
    to_inexact,
    whole_number,
)
from hloom.numpy.creation import linspace
from hloom.numpy.elementwise.logic import where
from hloom.numpy.reducing.reductions import max as maximum_of
from hloom.numpy.reducing.reductions import min as minimum_of
from hloom.numpy.shaping.manipulation import ravel, stack
from hloom.numpy.shaping.sorting import searchsorted
from hloom.tracing.concrete import known, require_known


@takes_out_sharding
def bincount(x, weights=None, minlength: int = 0, *, length: int | None = None, out_sharding=None):
    """The number of occurrences of 0, 1, 2, ... in the integers x, of rank 1; with weights their sums.

    length: the size of the result, required inside of jit; larger values are ignored, negative ones count as 0.
    minlength: the minimum size without `length`. Counts are integers, sums have the dtype of the weights. Raises
    ShapeError, DTypeError, TracerConversionError.

    >>> hnp.bincount(hnp.array([0, 1, 1, 3]))
    Array([1, 2, 0, 1], dtype=int32)
    """
    x = as_operand(x, "bincount")
    if x.dtype not in INTEGERS and x.dtype != PRED:
        raise DTypeError("bincount takes integers", f"{x._shape!r}", "convert them with astype('int32')")
    if x.ndim != 1:
        raise ShapeError("bincount takes an array of rank 1", f"{x._shape!r}", "ravel it")
    x = convert(x, default_int()) if x.dtype == PRED else x
    if length is None:
        values = require_known(x, "bincount", "the largest number is a size", "pass length=")
        needed = int(values.max()) + 1 if values.size else 0
        length = max(needed, 0, whole_number(minlength, "bincount", "minlength"))
    if weights is None:
        updates = lax.full(x.shape, 1, default_int())
    else:
        updates = as_operand(weights, "bincount")
        if updates.shape != x.shape:
            raise ShapeError(
                "bincount takes a weight for each number", f"{x._shape!r}, {updates._shape!r}", "match them"
            )
    place = x if x.dtype.kind == "u" else where(lax.lt(x, lax.full_like(x, 0)), 0, x)
    return lax.full((length,), 0, updates.dtype).at[place].add(updates)


# --- edges --------------------------------------------------------------------------------------------------------


def histogram_bin_edges(a, bins=10, range=None, weights=None):
    """The edges of the bins of a histogram: `bins` equal ones between the limits, or `bins` itself if it is an array of
    edges.

    range: (low, high), by default those of the data. bins may be one of NumPy's rules ('auto', 'fd', ...) for concrete
    data. Raises ArgumentError, ShapeError, TracerConversionError.

    >>> hnp.histogram_bin_edges(hnp.array([0.0, 1.0, 4.0]), bins=4)
    Array([0., 1., 2., 3., 4.], dtype=float32)
    """
    x = as_operand(a, "histogram_bin_edges")
    if isinstance(bins, str):
        values = require_known(x, "histogram_bin_edges", f"bins={bins!r} depends on the data", "pass a number of bins")
        chosen = np.histogram_bin_edges(np.asarray(values, np.float64), bins, range)
        return Array(chosen.astype(_float_dtype(x.dtype)))
    if isinstance(bins, (list, tuple)) or getattr(bins, "ndim", 0) > 0:
        edges = to_inexact(as_operand(bins, "histogram_bin_edges"), "histogram_bin_edges")
        if edges.ndim != 1:
            raise ShapeError(
                "histogram takes edges of rank 1", f"{edges._shape!r}", "pass a number, or a list of edges"
            )
        return edges
    count = whole_number(bins, "histogram", "number of bins")
    if count < 1:
        raise ArgumentError("histogram takes at least one bin", f"bins={count}", "pass a positive number")
    dtype = _float_dtype(x.dtype)
    if range is not None:
        low, high = (convert(as_operand(r, "histogram"), dtype) for r in range)
    elif not x.size:
        low, high = (lax.full((), v, dtype) for v in (0, 1))
    else:
        low, high = convert(minimum_of(x), dtype), convert(maximum_of(x), dtype)
    same = lax.eq(low, high)
    half = lax.full((), 0.5, dtype)
    low, high = where(same, lax.sub(low, half), low), where(same, lax.add(high, half), high)

    return convert(linspace(low, high, count + 1, dtype=dtype), dtype)


def _float_dtype(dtype):
    if dtype in FLOATS:
        return dtype
    return DTYPES["f64" if dtype in (DTYPES["s64"], DTYPES["u64"]) else "f32"]


def _places(x, edges):
    """For each element the index of its bin, starting at 1; 0 below the first edge, `edges.size` above the last."""
    count = edges.shape[0]
    place = searchsorted(edges, x, "right")
    last = lax.eq(x, broadcast_dims_to(edges[count - 1], x.shape))
    return where(last, count - 1, place)


def histogram(a, bins=10, range=None, weights=None, density: bool | None = None):
    """(the number of elements, or the sum of their weights, in each bin; the edges, one more than bins).

    a: of any shape, flattened. bins, range: as in `histogram_bin_edges`; the last bin includes its upper edge. density:
    normalizes the integral to 1. The result is floating-point. Raises ShapeError, ArgumentError, DTypeError.

    >>> counts, edges = hnp.histogram(hnp.array([0.1, 0.2, 0.9]), bins=2, range=(0, 1))
    >>> counts
    Array([2., 1.], dtype=float32)
    >>> edges
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    if weights is None:
        x = to_inexact(as_operand(a, "histogram"), "histogram")
        given = lax.full_like(x, 1)
    else:
        x, given = as_operand(a, "histogram"), as_operand(weights, "histogram")
        if x.shape != given.shape:
            raise ShapeError(
                "histogram takes a weight for each element", f"{x._shape!r}, {given._shape!r}", "match them"
            )
        (x, given), _ = promote_operands("histogram", (x, given), _float_dtype)
    x, given = ravel(x), ravel(given)
    edges = convert(histogram_bin_edges(a, bins, range), x.dtype)
    counts = bincount(_places(x, edges), given, length=edges.shape[0] + 1)[1 : edges.shape[0]]
    if density:
        widths = lax.sub(edges[1:], edges[:-1])
        total = lax.reduce_sum(counts, (0,))
        counts = lax.div(lax.div(counts, widths), broadcast_dims_to(total, counts.shape))
    return counts, edges


def histogramdd(sample, bins=10, range=None, weights=None, density: bool | None = None):
    """(the number of points in each cell of a grid, a list of the edges along each axis).

    sample: (points, axes), or a list of the coordinates along each axis. bins: a number, a number per axis, or edges
    for each; range: (low, high) per axis. weights, density: as in `histogram`, but without either the counts are
    integers. Raises ShapeError, ArgumentError, DTypeError.

    >>> counts, edges = hnp.histogramdd(hnp.array([[0.1, 0.1], [0.9, 0.8]]), bins=2)
    >>> counts
    Array([[1, 0],
           [0, 1]], dtype=int32)
    """
    if isinstance(sample, (list, tuple)):
        sample = stack([as_operand(s, "histogramdd") for s in sample], axis=-1)
    x = to_inexact(as_operand(sample, "histogramdd"), "histogramdd")
    if x.ndim == 1:
        x = reshape_to(x, (x.shape[0], 1))
    if x.ndim != 2:
        raise ShapeError("histogramdd takes points of (number, axes)", f"{x._shape!r}", "reshape the sample")
    count, rank = x.shape
    per_axis = _bins_by_axis(bins, rank)
    limits = [None] * rank if range is None else list(range)
    if len(per_axis) != rank or len(limits) != rank:
        raise ArgumentError(
            "histogramdd takes bins and limits for each axis",
            f"{len(per_axis)}, {len(limits)} for {rank}",
            "match them",
        )
    edges, flat, sizes, inside = [], None, [], None
    for k, (one, limit) in enumerate(zip(per_axis, limits, strict=True)):
        column = x[:, k]
        edge = convert(histogram_bin_edges(column, one, limit), x.dtype)
        place, size = _places(column, edge), edge.shape[0] - 1
        fits = lax.bitwise_and(lax.gt(place, lax.full_like(place, 0)), lax.le(place, lax.full_like(place, size)))
        place = lax.sub(place, lax.full_like(place, 1))
        flat = place if flat is None else lax.add(lax.mul(flat, lax.full_like(flat, size)), place)
        inside = fits if inside is None else lax.bitwise_and(inside, fits)
        edges.append(edge)
        sizes.append(size)
    total = int(np.prod(sizes))
    given = lax.full((count,), 1, default_int())
    if weights is not None:
        given = convert(as_operand(weights, "histogramdd"), x.dtype)
    if given.shape != (count,):
        raise ShapeError("histogramdd takes a weight for each point", f"{given._shape!r} for {count}", "match them")
    counts = reshape_to(bincount(where(inside, flat, total), given, length=total), tuple(sizes))
    return _density(convert(counts, x.dtype), edges) if density else counts, edges


def _bins_by_axis(bins, rank: int) -> list:
    """The bins of `histogramdd` for each axis."""
    if isinstance(bins, (list, tuple)):
        return list(bins)
    if getattr(bins, "shape", None) == (rank,) and bins.dtype in INTEGERS and (counts := known(bins)) is not None:
        return counts.tolist()
    return [bins] * rank


def _density(counts, edges: list):
    """The density: the fraction of the counts in each cell, divided by the cell's size."""
    rank = len(edges)
    counts = lax.div(counts, broadcast_dims_to(lax.reduce_sum(counts, tuple(np.arange(rank))), counts.shape))
    for k, edge in enumerate(edges):
        widths = lax.sub(edge[1:], edge[:-1])
        widths = reshape_to(widths, tuple(counts.shape[k] if j == k else 1 for j in np.arange(rank)))
        counts = lax.div(counts, broadcast_dims_to(widths, counts.shape))
    return counts


def histogram2d(x, y, bins=10, range=None, weights=None, density: bool | None = None):
    """(counts, edges along x, edges along y) of points in a plane; arguments as in `histogramdd`.

    >>> counts, x_edges, y_edges = hnp.histogram2d(hnp.array([0.1, 0.9]), hnp.array([0.1, 0.8]), bins=2)
    >>> counts
    Array([[1, 0],
           [0, 1]], dtype=int32)
    """
    if not isinstance(bins, (int, np.integer)) and not (isinstance(bins, (list, tuple)) and len(bins) == 2):
        bins = [bins, bins]  # the same edges for both axes
    counts, edges = histogramdd([x, y], bins, range, weights, density)
    return counts, edges[0], edges[1]
