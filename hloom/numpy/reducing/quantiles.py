"""Quantiles: percentile, quantile, median, and their NaN-ignoring variants.

The methods are the nine of R. J. Hyndman and Y. Fan, Sample Quantiles in Statistical Packages, The American
Statistician 50 (1996) 361, and the four simple ones 'lower', 'higher', 'nearest' and 'midpoint'.
"""

from __future__ import annotations

import numpy as np

from hloom import lax
from hloom.errors import ArgumentError, DTypeError
from hloom.ir.types import FLOATS, INEXACT
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    canonical_axes,
    convert,
    default_int,
    inexact_dtype,
    product,
    promote_operands,
    reshape_to,
)
from hloom.numpy.elementwise.logic import where
from hloom.numpy.indexing.take import take_along_axis
from hloom.numpy.shaping.manipulation import moveaxis
from hloom.numpy.shaping.sorting import sort, sorted_with_places
from hloom.tracing.concrete import at_once, is_eager

# (alpha, beta) of the continuous methods: the position of probability p among n is n p + alpha + p (1 - alpha - beta) -
# 1.
_CONTINUOUS = {
    "linear": (1.0, 1.0),
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
_SIMPLE = ("lower", "higher", "nearest", "midpoint")
_STEPS = ("inverted_cdf", "averaged_inverted_cdf", "closest_observation")
_FEW = 16  # number of positions up to which selection is faster than sorting
METHODS = (*_CONTINUOUS, *_SIMPLE, *_STEPS)


def _quantile(name, a, q, axis, method, keepdims, out, overwrite_input, skip_nan, percent, weights=None):
    if out is not None or overwrite_input:
        raise ArgumentError(f"{name} makes a new array", "out= or overwrite_input=True", "use the result")
    if method not in METHODS:
        raise ArgumentError(f"the method of {name}", f"{method!r}", f"one of {', '.join(METHODS)}")
    x = as_operand(a, name)
    if x.dtype in INEXACT and x.dtype not in FLOATS:
        raise DTypeError(f"{name} takes real numbers", f"{x._shape!r}", "take the real part")
    q = as_operand(q, name)
    own = inexact_dtype(x.dtype)
    (x, q), _ = promote_operands(name, (x, q), inexact_dtype, broadcast=False)
    if percent:
        q = lax.div(q, lax.full_like(q, 100))
    axes = canonical_axes(axis, x.ndim, name)
    if not axes and axis is not None:
        raise ArgumentError(f"{name} along no axis", f"axis={axis!r}", "name an axis")
    kept = tuple(1 if k in axes else d for k, d in enumerate(x.shape))
    rest = tuple(d for k, d in enumerate(x.shape) if k not in axes)
    count = product(x.shape[k] for k in axes)
    x = reshape_to(moveaxis(x, axes, tuple(range(-len(axes), 0))) if axes else x, (*rest, count))
    if not count:
        raise ArgumentError(f"{name} of no elements", f"{rest} with {count} elements each", "pass a non-empty array")
    if weights is None:
        found = _unweighted(x, q, method, skip_nan)
    else:
        found = _weighted(name, x, q, method, skip_nan, weights, a, axes)
    if keepdims:
        found = reshape_to(found, (*q.shape, *kept))
    return convert(found, own)


def _unweighted(x, q, method, skip_nan):
    """The quantiles q along the last axis of x: sizes of q, then the rest."""
    dtype = x.dtype
    rest, size = x.shape[:-1], x.shape[-1]
    eager = is_eager(x, q)
    x = x if eager else sort(x, -1)
    nan = lax.ne(x, x)
    invalid = None
    if skip_nan:
        valid = lax.bitwise_not(nan)
        count = convert(lax.reduce_sum(convert(valid, default_int()), (x.ndim - 1,)), dtype)
        invalid = lax.eq(count, lax.full_like(count, 0))
        count = lax.max(count, lax.full_like(count, 1))
    else:
        count = lax.full(rest, size, dtype)
        invalid = lax.reduce_or(nan, (x.ndim - 1,)) if eager else nan[..., size - 1]
    dims = (*q.shape, *rest)
    p = broadcast_dims_to(reshape_to(q, (*q.shape, *(1,) * len(rest))), dims)
    count = broadcast_dims_to(count, dims)
    low, high, weight = _neighbours(p, count, method)
    x = _sorted_at(x, low, high) if eager else x
    low, high = (_element(x, k, q.ndim, dims) for k in (low, high))
    # Not low + weight (high - low), which is NaN for equal infinities.
    mixed = lax.add(lax.mul(low, lax.sub(lax.full_like(weight, 1), weight)), lax.mul(high, weight))
    result = where(lax.eq(weight, lax.full_like(weight, 0)), low, where(lax.eq(low, high), high, mixed))
    result = where(lax.eq(weight, lax.full_like(weight, 1)), high, result)
    bad = lax.bitwise_or(lax.lt(p, lax.full_like(p, 0)), lax.gt(p, lax.full_like(p, 1)))
    bad = lax.bitwise_or(bad, lax.ne(p, p))
    return where(lax.bitwise_or(bad, broadcast_dims_to(invalid, dims)), float("nan"), result)


def _sorted_at(x, low, high):
    """x, concrete, partitioned so that these positions of the last axis hold their sorted elements."""
    places = np.concatenate([np.ravel(k._value()) for k in (low, high)])
    places = np.unique(places[np.isfinite(places)].astype(np.int64))
    if places.size > _FEW:
        return sort(x, -1)
    found = at_once("quantile", lambda v: np.partition(v, places, -1), x) if places.size else None
    return x if found is None else found


def _neighbours(p, count, method):
    """(position below, position above, weight of the one above) for probabilities p among this many elements."""

    def full(value):
        return lax.full_like(p, value)

    last = lax.sub(count, full(1))
    if method in _STEPS:
        place = lax.mul(count, p)
        if method == "closest_observation":
            place = lax.sub(place, full(0.5))
        floor = lax.floor(place)
        exact = lax.eq(place, floor)
        if method == "inverted_cdf":
            weight = where(exact, 0.0, full(1))
        elif method == "averaged_inverted_cdf":
            weight = where(exact, 0.5, full(1))
        else:
            even = lax.eq(lax.rem(floor, full(2)), full(0))
            weight = where(lax.bitwise_and(exact, even), 0.0, full(1))
        low = lax.sub(floor, full(1))
        high = floor
    else:
        alpha, beta = _CONTINUOUS.get(method, (1.0, 1.0))
        if method in _SIMPLE or method == "linear":
            place = lax.mul(p, last)
        else:
            place = lax.add(lax.mul(count, p), lax.mul(p, full(1 - alpha - beta)))
            place = lax.add(place, full(alpha - 1))
        place = lax.clamp(full(0), place, last)
        low, high = lax.floor(place), lax.ceil(place)
        weight = lax.sub(place, low)
        if method == "lower":
            weight = full(0)
        elif method == "higher":
            weight = where(lax.gt(weight, full(0)), 1.0, full(0))
        elif method == "midpoint":
            weight = where(lax.gt(weight, full(0)), 0.5, full(0))
        elif method == "nearest":
            weight = where(lax.le(weight, full(0.5)), 0.0, full(1))  # ties go to the lower one, as in JAX
    return lax.clamp(full(0), low, last), lax.clamp(full(0), high, last), weight


def _element(x, place, q_rank: int, dims):
    """x[.., place[q, ..]] of shape `dims`."""
    rest, size = x.shape[:-1], x.shape[-1]
    place = convert(place, default_int())
    probabilities = product(dims[:q_rank])
    columns = reshape_to(place, (probabilities, *rest))
    columns = moveaxis(columns, 0, -1)
    found = take_along_axis(x, columns, axis=-1, mode="clip") if size else columns
    return reshape_to(moveaxis(found, -1, 0), dims)


def _weighted(name, x, q, method, skip_nan, weights, a, axes):
    """The first element whose cumulative share of the weights reaches q, as in NumPy."""
    if method != "inverted_cdf":
        raise ArgumentError(f"{name} with weights", f"method={method!r}", "pass method='inverted_cdf'")
    w = convert(as_operand(weights, name), x.dtype)
    original = as_operand(a, name)
    if w.shape != original.shape:
        lengths = tuple(original.shape[k] for k in axes)
        if w.shape != lengths:
            raise ArgumentError(
                f"{name} takes weights of the array's sizes, or of its axes'", f"{w._shape!r}", f"sizes {lengths}"
            )
        w = reshape_to(w, tuple(d if k in axes else 1 for k, d in enumerate(original.shape)))
        w = broadcast_dims_to(w, original.shape)
    w = reshape_to(moveaxis(w, axes, tuple(range(-len(axes), 0))), x.shape)
    last = x.ndim - 1
    ordered, order = sorted_with_places(x, last)
    nan = lax.ne(ordered, ordered)
    w = take_along_axis(w, order, axis=-1, mode="clip")
    w = where(nan, 0.0, w) if skip_nan else w
    sums = lax.cumsum(w, axis=last)
    total = sums[..., -1:]
    sums = lax.div(sums, broadcast_dims_to(total, sums.shape))
    dims = (*q.shape, *x.shape[:-1])
    p = reshape_to(q, (*q.shape, *(1,) * x.ndim))
    wide = (*q.shape, *x.shape)
    before = lax.lt(broadcast_dims_to(sums, wide), broadcast_dims_to(p, wide))
    place = lax.reduce_sum(convert(before, default_int()), (len(wide) - 1,))
    # An element without weight is never a quantile.
    empty = lax.eq(broadcast_dims_to(sums, wide), lax.full(wide, 0, x.dtype))
    place = lax.max(place, lax.reduce_sum(convert(empty, default_int()), (len(wide) - 1,)))
    place = lax.min(place, lax.full_like(place, x.shape[-1] - 1))
    result = _element(ordered, place, q.ndim, dims)
    invalid = nan[..., 0] if skip_nan else nan[..., -1]
    return where(broadcast_dims_to(invalid, dims), float("nan"), result)


def quantile(
    a,
    q,
    axis=None,
    out=None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights=None,
):
    """The q-quantile (q from 0 to 1) of the elements along the axes (None: all); NaN if one is NaN.

    q: a scalar or an array, whose dimensions lead the result's; its dtype is that of a (f32 for integers). method:
    one of `METHODS`; weights only with 'inverted_cdf'. Raises ArgumentError, DTypeError, ShapeError.

    >>> hnp.quantile(hnp.array([1.0, 2.0, 3.0, 4.0, 5.0]), 0.25)
    Array(2., dtype=float32)
    """
    return _quantile("quantile", a, q, axis, method, keepdims, out, overwrite_input, False, False, weights)


def percentile(
    a,
    q,
    axis=None,
    out=None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights=None,
    out_sharding=None,
):
    """`quantile` with q from 0 to 100.

    >>> hnp.percentile(hnp.array([1.0, 2.0, 3.0, 4.0, 5.0]), hnp.array([25, 50]))
    Array([2., 3.], dtype=float32)
    """
    return _quantile("percentile", a, q, axis, method, keepdims, out, overwrite_input, False, True, weights)


def nanquantile(
    a,
    q,
    axis=None,
    out=None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights=None,
):
    """`quantile` of the non-NaN elements; NaN if there are none.

    >>> hnp.nanquantile(hnp.array([1.0, hnp.nan, 3.0]), 0.5)
    Array(2., dtype=float32)
    """
    return _quantile("nanquantile", a, q, axis, method, keepdims, out, overwrite_input, True, False, weights)


def nanpercentile(
    a,
    q,
    axis=None,
    out=None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights=None,
    out_sharding=None,
):
    """`percentile` of the non-NaN elements; NaN if there are none.

    >>> hnp.nanpercentile(hnp.array([1.0, hnp.nan, 3.0]), 50)
    Array(2., dtype=float32)
    """
    return _quantile("nanpercentile", a, q, axis, method, keepdims, out, overwrite_input, True, True, weights)


def median(a, axis=None, out=None, overwrite_input: bool = False, keepdims: bool = False):
    """The middle element along the axes (None: all), or the mean of the two middle ones; NaN if one is NaN.

    >>> hnp.median(hnp.array([[3, 1, 2], [9, 7, 8]]), axis=1)
    Array([2., 8.], dtype=float32)
    """
    return _quantile("median", a, 0.5, axis, "midpoint", keepdims, out, overwrite_input, False, False)


def nanmedian(a, axis=None, out=None, overwrite_input: bool = False, keepdims: bool = False):
    """`median` of the non-NaN elements; NaN if there are none.

    >>> hnp.nanmedian(hnp.array([1.0, hnp.nan, 3.0]))
    Array(2., dtype=float32)
    """
    return _quantile("nanmedian", a, 0.5, axis, "midpoint", keepdims, out, overwrite_input, True, False)
