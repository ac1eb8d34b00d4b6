"""Interpolation of samples: interp."""

from __future__ import annotations

import numpy as np

from hloom import lax
from hloom.errors import ShapeError
from hloom.ir.types import COMPLEX, FLOATS
from hloom.lax.elementwise import is_nan
from hloom.lax.operands import as_operand, conform, full, inexact_dtype, promote_operands
from hloom.numpy.elementwise.logic import greater, less, where
from hloom.numpy.elementwise.table import add, multiply, subtract
from hloom.numpy.elementwise.ufuncs import divide, remainder
from hloom.numpy.indexing.take import take
from hloom.numpy.shaping.sorting import argsort, searchsorted


def interp(x, xp, fp, left=None, right=None, period=None):
    """Linear interpolation at x of the values fp at the increasing points xp.

    left, right: the values below and above all points, by default fp's first and last ('extrapolate' continues the
    line). period: xp is periodic and need not be sorted. Raises ShapeError, DTypeError.

    >>> hnp.interp(hnp.array([0.5, 1.5]), hnp.array([0.0, 1.0, 2.0]), hnp.array([0.0, 10.0, 40.0]))
    Array([ 5., 25.], dtype=float32)
    """
    xp, fp = (as_operand(v, "interp") for v in (xp, fp))
    if xp.ndim != 1 or xp.shape != fp.shape or not xp.size:
        raise ShapeError(
            "interp takes points and values of one length", f"{xp._shape!r} and {fp._shape!r}", "flatten them"
        )
    if fp.dtype in COMPLEX:
        (x, xp), _ = promote_operands("interp", (x, xp), inexact_dtype, broadcast=False)
    else:
        (x, xp, fp), _ = promote_operands("interp", (x, xp, fp), inexact_dtype, broadcast=False)
    if period is not None:
        x, xp, fp = _within_period(x, xp, fp, period)
    size = xp.shape[0]
    above = lax.clamp(1, searchsorted(xp, x, side="right"), max(size - 1, 1))
    below = lax.sub(above, 1)
    above = lax.min(above, full(size - 1, above.dtype, above.shape))
    x0, x1, f0, f1 = (take(v, k) for v in (xp, fp) for k in (below, above))
    width = lax.sub(x1, x0)
    flat = lax.eq(width, 0)
    slope = divide(lax.sub(f1, f0), lax.select(flat, full(1, width.dtype, width.shape), width))
    value = where(flat, f1, add(f0, multiply(slope, lax.sub(x, x0))))
    if period is None:
        low, f_low, high, f_high = (lax.index_in_dim(v, k, keepdims=False) for k in (0, size - 1) for v in (xp, fp))
        if not (isinstance(left, str) and left == "extrapolate"):
            value = where(less(x, low), f_low if left is None else left, value)
        if not (isinstance(right, str) and right == "extrapolate"):
            value = where(greater(x, high), f_high if right is None else right, value)
    return where(is_nan(x), conform(np.nan, value.dtype, value.shape), value) if x.dtype in FLOATS else value


def _within_period(x, xp, fp, period):
    """(x reduced to one period, the sorted points of one period with a neighbour on each side, their values)."""
    period = abs(period) if not hasattr(period, "_shape") else lax.abs(period)
    x, xp = remainder(x, period), remainder(xp, period)
    order = argsort(xp)
    xp, fp = take(xp, order), take(fp, order)
    ends = [lax.slice_in_dim(v, a, b) for v in (xp, fp) for a, b in ((v.shape[0] - 1, v.shape[0]), (0, 1))]
    xp = lax.concatenate([subtract(ends[0], period), xp, add(ends[1], period)], 0)
    return x, xp, lax.concatenate([ends[2], fp, ends[3]], 0)
