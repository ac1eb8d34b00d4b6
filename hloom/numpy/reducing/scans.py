"""Running sums and products, differences and integrals."""

from __future__ import annotations

import math

from hloom import lax
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import COMPLEX, FLOATS, NARROW_FLOATS, PRED, as_dtype
from hloom.lax.elementwise import is_nan
from hloom.lax.operands import (
    F32,
    as_operand,
    broadcast_dims_to,
    canonical_axes,
    canonical_axis,
    convert,
    full,
    inexact_dtype,
    promote_operands,
    reshape_to,
    to_inexact,
    whole_number,
)
from hloom.lax.scans import running
from hloom.numpy.elementwise.logic import equal, greater, less, logical_and, where
from hloom.numpy.elementwise.table import add, multiply, subtract
from hloom.numpy.elementwise.ufuncs import absolute, divide, remainder
from hloom.numpy.reducing.reductions import sum, sum_dtype
from hloom.numpy.shaping.manipulation import concatenate, moveaxis
from hloom.tracing.concrete import lacks_nan

# --- running sums and products ------------------------------------------------------------------------------------


def _cumulative(name, a, axis, dtype, opcode):
    x = as_operand(a, name)
    if axis is None:
        x, axis = reshape_to(x, (x.size,)), 0
    axis = canonical_axis(axis, x.ndim, name)
    if dtype is not None:
        target = as_dtype(dtype)
    else:
        target = sum_dtype(x.dtype) if x.dtype == PRED else x.dtype
    work = F32 if target in NARROW_FLOATS else target
    if work == PRED:  # sums and products of booleans: any, all
        opcode = {"add": "or", "multiply": "and"}[opcode]
    return convert(running(convert(x, work), axis, opcode), target)


def cumsum(a, axis: int | None = None, dtype=None, out=None):
    """The running sum along an axis (of the flat array), in the dtype of a; the default integer for booleans.

    `cumulative_sum` accumulates narrow integers in wider ones. Raises ShapeError.

    >>> hnp.cumsum(hnp.array([[1, 2], [3, 4]]), axis=0)
    Array([[1, 2],
           [4, 6]], dtype=int32)
    """
    return _cumulative("cumsum", a, axis, dtype, "add")


def cumprod(a, axis: int | None = None, dtype=None, out=None):
    """The running product along an axis (of the flat array); dtypes as `cumsum`. Raises ShapeError.

    >>> hnp.cumprod(hnp.array([1, 2, 3, 4]))
    Array([ 1,  2,  6, 24], dtype=int32)
    """
    return _cumulative("cumprod", a, axis, dtype, "multiply")


def nancumsum(a, axis: int | None = None, dtype=None, out=None):
    """`cumsum` with NaN as 0.

    >>> hnp.nancumsum(hnp.array([2.0, hnp.nan, 3.0]))
    Array([2., 2., 5.], dtype=float32)
    """
    return cumsum(_replaced(a, 0.0, "nancumsum"), axis, dtype)


def nancumprod(a, axis: int | None = None, dtype=None, out=None):
    """`cumprod` with NaN as 1.

    >>> hnp.nancumprod(hnp.array([2.0, hnp.nan, 3.0]))
    Array([2., 2., 6.], dtype=float32)
    """
    return cumprod(_replaced(a, 1.0, "nancumprod"), axis, dtype)


def _replaced(a, value, name):
    x = as_operand(a, name)
    if x.dtype not in FLOATS and x.dtype not in COMPLEX:
        return x
    if lacks_nan(x):
        return x
    return lax.select(is_nan(x), full(value, x.dtype, x.shape), x)


def _array_api(name, function, x, axis, dtype, include_initial, neutral):
    x = as_operand(x, name)
    if axis is None:
        if x.ndim != 1:
            raise ShapeError(f"{name} takes an axis", f"{x._shape!r}", "pass axis=, or flatten the array")
        axis = 0
    result = function(x, axis, sum_dtype(x.dtype) if dtype is None else dtype)
    if not include_initial:
        return result
    padding = [(1, 0, 0) if k == axis % x.ndim else (0, 0, 0) for k in range(x.ndim)]
    return lax.pad(result, bool(neutral) if result.dtype == PRED else neutral, padding)


def cumulative_sum(x, /, *, axis: int | None = None, dtype=None, include_initial: bool = False):
    """`cumsum`; with include_initial one element longer, starting at 0. Raises ShapeError.

    >>> hnp.cumulative_sum(hnp.array([1, 2, 3]), include_initial=True)
    Array([0, 1, 3, 6], dtype=int32)
    """
    return _array_api("cumulative_sum", cumsum, x, axis, dtype, include_initial, 0)


def cumulative_prod(x, /, *, axis: int | None = None, dtype=None, include_initial: bool = False):
    """`cumprod`; with include_initial one element longer, starting at 1. Raises ShapeError.

    >>> hnp.cumulative_prod(hnp.array([1, 2, 3]), include_initial=True)
    Array([1, 1, 2, 6], dtype=int32)
    """
    return _array_api("cumulative_prod", cumprod, x, axis, dtype, include_initial, 1)


# --- differences and integrals ------------------------------------------------------------------------------------


def diff(a, n: int = 1, axis: int = -1, prepend=None, append=None):
    """The n-th difference of neighbours along an axis (`!=` of booleans). Raises ShapeError, ArgumentError.

    >>> hnp.diff(hnp.array([1, 4, 9, 16]))
    Array([3, 5, 7], dtype=int32)
    >>> hnp.diff(hnp.array([1, 4, 9, 16]), n=2)
    Array([2, 2], dtype=int32)
    """
    x = as_operand(a, "diff")
    axis = canonical_axis(axis, x.ndim, "diff")
    n = whole_number(n, "diff", "order")
    if n < 0:
        raise ArgumentError("diff takes an order that is not negative", f"n={n}", "pass n >= 0")
    if n == 0:
        return x
    edge = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    parts = []
    for part in (prepend, x, append):
        if part is not None:
            part = as_operand(part, "diff")
            parts.append(part if part.ndim else broadcast_dims_to(part, edge))
    x = concatenate(parts, axis)
    for _ in range(n):
        if not x.shape[axis]:
            return x
        high, low = lax.slice_in_dim(x, 1, None, axis=axis), lax.slice_in_dim(x, 0, x.shape[axis] - 1, axis=axis)
        x = lax.ne(high, low) if x.dtype == PRED else lax.sub(high, low)
    return x


def ediff1d(ary, to_end=None, to_begin=None):
    """The differences of neighbours of the flat array, with elements before and after. Raises ShapeError.

    >>> hnp.ediff1d(hnp.array([1, 4, 9]), to_end=0)
    Array([3, 5, 0], dtype=int32)
    """
    x = as_operand(ary, "ediff1d")
    result = diff(reshape_to(x, (x.size,)))
    ends = [None if e is None else convert(as_operand(e, "ediff1d"), result.dtype) for e in (to_begin, to_end)]
    ends = [None if e is None else reshape_to(e, (e.size,)) for e in ends]
    return lax.concatenate([p for p in (ends[0], result, ends[1]) if p is not None], 0)


def trapezoid(y, x=None, dx=1.0, axis: int = -1):
    """The integral along an axis by the trapezoidal rule, at points x or dx apart. Raises ShapeError.

    >>> hnp.trapezoid(hnp.array([0.0, 1.0, 2.0]), dx=0.5)
    Array(1., dtype=float32)
    """
    if x is None:
        y = to_inexact(y, "trapezoid")
    else:
        (y, x), _ = promote_operands("trapezoid", (y, x), inexact_dtype, broadcast=False)
    if x is not None:
        dx = diff(moveaxis(x, canonical_axis(axis, x.ndim, "trapezoid"), -1) if x.ndim > 1 else x)
    y = moveaxis(y, canonical_axis(axis, y.ndim, "trapezoid"), -1)
    extent = y.shape[-1]
    low, high = lax.slice_in_dim(y, 0, max(extent - 1, 0), axis=-1), lax.slice_in_dim(y, min(1, extent), None, axis=-1)
    return multiply(sum(multiply(lax.add(low, high), dx), -1), 0.5)


def gradient(f, *varargs, axis=None, edge_order: int = 1):
    """The derivative along axes by central differences of neighbours, one-sided at the edges; a list for several axes.

    varargs: the spacing of neighbours, one scalar for all axes or one (or a vector of coordinates) for each.
    Raises ShapeError, ArgumentError.

    >>> hnp.gradient(hnp.array([0.0, 1.0, 4.0, 9.0]))
    Array([1., 2., 4., 5.], dtype=float32)
    """
    if varargs:
        (x, *varargs), _ = promote_operands("gradient", (f, *varargs), inexact_dtype, broadcast=False)
    else:
        x = to_inexact(f, "gradient")
    axes = canonical_axes(axis, x.ndim, "gradient")
    if not axes:
        return []
    if len(varargs) not in (0, 1, len(axes)) or edge_order != 1:
        raise ArgumentError(
            "gradient takes a distance for each axis, and edge_order=1",
            f"{len(varargs)} distances for {len(axes)} axes, {edge_order=}",
            "pass one distance for all axes, or one for each",
        )
    distances = list(varargs or (1.0,)) * (1 if len(varargs) == len(axes) else len(axes))
    results = [_gradient(x, k, d) for k, d in zip(axes, distances, strict=True)]
    return results[0] if len(results) == 1 else results


def _gradient(x, axis, distance):
    extent = x.shape[axis]
    if extent < 2:
        raise ShapeError(f"gradient along axis {axis}", f"{x._shape!r}", "pass at least two elements along each axis")

    def part(values, start, stop):
        return lax.slice_in_dim(values, start, stop, axis=axis)

    steps = diff(x, 1, axis)
    if getattr(distance, "ndim", 0):
        if distance.shape != (extent,):
            raise ShapeError(
                "gradient takes one coordinate for each element",
                f"{distance._shape!r} for size {extent}",
                "match them",
            )
        gaps = diff(distance)
        gaps = reshape_to(gaps, tuple(extent - 1 if k == axis else 1 for k in range(x.ndim)))
        slopes = divide(steps, gaps)
        low, high = part(gaps, 0, extent - 2), part(gaps, 1, extent - 1)
        # The derivative of the parabola through three neighbours.
        before, after = part(slopes, 0, extent - 2), part(slopes, 1, extent - 1)
        middle = divide(add(multiply(before, high), multiply(after, low)), add(low, high))
    else:
        slopes = divide(steps, distance)
        # A single difference: an overflowing neighbour enters only once.
        middle = divide(lax.sub(part(x, 2, extent), part(x, 0, extent - 2)), multiply(distance, 2.0))
    return lax.concatenate([part(slopes, 0, 1), middle, part(slopes, extent - 2, extent - 1)], axis)


def unwrap(p, discont=None, axis: int = -1, period=2 * math.pi):
    """p with multiples of the period added so that neighbours differ by at most half a period. Raises ShapeError.

    >>> hnp.unwrap(hnp.array([0.0, 3.0, -3.0])).round(3)
    Array([0.   , 3.   , 3.283], dtype=float32)
    """
    x = to_inexact(p, "unwrap")
    axis = canonical_axis(axis, x.ndim, "unwrap")
    steps = diff(x, 1, axis)
    half = period / 2
    wrapped = subtract(remainder(add(steps, half), period), half)
    wrapped = where(logical_and(equal(wrapped, -half), greater(steps, 0)), half, wrapped)
    correction = subtract(wrapped, steps)
    correction = where(less(absolute(steps), half if discont is None else discont), 0, correction)
    padding = [(1, 0, 0) if k == axis else (0, 0, 0) for k in range(x.ndim)]
    return lax.add(x, lax.pad(cumsum(correction, axis), 0, padding)) if x.shape[axis] else x
