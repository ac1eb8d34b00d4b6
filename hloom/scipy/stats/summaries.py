"""Summaries of samples: mode, ranks, the standard error of the mean."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import hloom.numpy as hnp
from hloom.errors import ArgumentError
from hloom.lax.operands import canonical_axis
from hloom.scipy.special import floats


class ModeResult(NamedTuple):
    """The most frequent values, and how often each is there."""

    mode: object
    count: object  # type: ignore[assignment]  # SciPy's name, which hides tuple.count


def _require_propagation(name: str, nan_policy: str) -> None:
    if nan_policy != "propagate":
        raise ArgumentError(f"{name} with nan_policy", repr(nan_policy), "take 'propagate'")


def mode(a, axis=0, nan_policy="propagate", keepdims: bool = False) -> ModeResult:
    """The most frequent value along an axis (the smallest of several), its count. Raises ArgumentError, ShapeError.

    >>> hl.scipy.stats.mode(hnp.array([3, 1, 3, 2])).mode
    Array(3, dtype=int32)
    """
    _require_propagation("mode", nan_policy)
    a = hnp.asarray(a)
    if axis is None:
        a, axis = a.reshape(-1), 0
    axis = canonical_axis(axis, a.ndim, "mode")
    ordered = hnp.sort(hnp.moveaxis(a, axis, -1), axis=-1)
    # A run's length, counted at each of its elements from its start on: argmax takes the first of the longest.
    equal = (ordered[..., :, None] == ordered[..., None, :]).sum(axis=-1)
    where = hnp.argmax(equal, axis=-1, keepdims=True)
    value, count = (hnp.take_along_axis(v, where, axis=-1) for v in (ordered, equal))
    if keepdims:
        return ModeResult(hnp.moveaxis(value, -1, axis), hnp.moveaxis(count, -1, axis))
    return ModeResult(value[..., 0], count[..., 0])


METHODS = ("average", "min", "max", "dense", "ordinal")


def rankdata(a, method: str = "average", *, axis=None, nan_policy="propagate"):
    """Ranks from 1 on. method: the rank of equal elements, 'average', 'min', 'max', 'dense' or 'ordinal'.

    axis: None ranks all elements, flat. Raises ArgumentError, ShapeError.

    >>> hl.scipy.stats.rankdata(hnp.array([10, 30, 20, 20]))
    Array([1. , 4. , 2.5, 2.5], dtype=float32)
    """
    _require_propagation("rankdata", nan_policy)
    if method not in METHODS:
        raise ArgumentError("rankdata has no such method", repr(method), f"take one of {', '.join(METHODS)}")
    a = hnp.asarray(a)
    if axis is None:
        a, axis = a.reshape(-1), 0
    axis = canonical_axis(axis, a.ndim, "rankdata")
    x = hnp.moveaxis(a, axis, -1)
    order = hnp.argsort(x, axis=-1)
    inverse = hnp.argsort(order, axis=-1)
    if method == "ordinal":
        return hnp.moveaxis(inverse + 1, -1, axis)
    ordered = hnp.take_along_axis(x, order, axis=-1)
    first = hnp.ones((*x.shape[:-1], min(1, x.shape[-1])), bool)
    new = hnp.concatenate([first, ordered[..., 1:] != ordered[..., :-1]], axis=-1)
    dense = hnp.cumsum(new.astype("int32"), axis=-1)
    own = hnp.take_along_axis(dense, inverse, axis=-1)
    if method == "dense":
        return hnp.moveaxis(own, -1, axis)
    less = (own[..., :, None] > own[..., None, :]).sum(axis=-1)
    same = (own[..., :, None] == own[..., None, :]).sum(axis=-1)
    low, high = less + 1, less + same
    result = low if method == "min" else high if method == "max" else (low + high).astype("float32") / 2
    return hnp.moveaxis(result, -1, axis)


def sem(a, axis=0, ddof: int = 1, nan_policy="propagate", *, keepdims: bool = False):
    """The standard error of the mean: the standard deviation over the square root of the count.

    nan_policy: 'propagate' or 'omit'. Raises ArgumentError, ShapeError.

    >>> hl.scipy.stats.sem(hnp.array([1.0, 3.0, 5.0])).round(3)
    Array(1.155, dtype=float32)
    """
    if nan_policy not in ("propagate", "omit"):
        raise ArgumentError("sem with nan_policy", repr(nan_policy), "take 'propagate' or 'omit'")
    (a,) = floats("sem", a)
    if axis is None:
        a, axis = a.reshape(-1), 0
    if nan_policy == "omit":
        count = hnp.sum(~hnp.isnan(a), axis=axis, keepdims=keepdims)
        return hnp.nanstd(a, axis=axis, ddof=ddof, keepdims=keepdims) / hnp.sqrt(count.astype(a.dtype))
    return hnp.std(a, axis=axis, ddof=ddof, keepdims=keepdims) / float(np.sqrt(a.shape[axis]))
