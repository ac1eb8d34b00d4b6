"""Reductions over axes: sums, extrema, logic, means and variances, and their NaN-ignoring variants."""

from __future__ import annotations

import math

import numpy as np

from hloom import lax
from hloom.errors import ShapeError
from hloom.ir.ops.rules import combined_precisely
from hloom.ir.sizes.counted import require_elements
from hloom.ir.sizes.expressions import Size, SizeExpression, greatest
from hloom.ir.types import COMPLEX, DTYPES, FLOATS, INEXACT, NARROW_FLOATS, PRED, SIGNED, as_dtype, wide_dtype
from hloom.lax.operands import (
    F32,
    NUMBERS,
    as_operand,
    broadcast_dims_to,
    broadcast_shapes,
    canonical_axes,
    conform,
    convert,
    default_int,
    full,
    inexact_dtype,
    product,
    promote_operands,
    reshape_to,
)
from hloom.lax.reduction import highest, keep_axes, lowest, reduce_with
from hloom.numpy.elementwise.logic import isnan, truth, where
from hloom.numpy.elementwise.ufuncs import maximum, minimum
from hloom.tracing.concrete import at_once, lacks_nan
from hloom.tracing.exact import strongly_typed
from hloom.tracing.trace import bind


def sum_dtype(dtype, promote_integers: bool = True):
    """Sums of narrow integers use the default integer width, as in JAX; all others keep their dtype."""
    if not (promote_integers or dtype == PRED) or dtype in INEXACT or dtype.itemsize >= default_int().itemsize:
        return dtype
    return default_int() if dtype in SIGNED or dtype == PRED else DTYPES[f"u{8 * default_int().itemsize}"]


def _masked(x, where_mask, neutral, name: str):
    """x with the neutral element where the mask is false."""
    if where_mask is None:
        return x
    mask = truth(as_operand(where_mask, name))
    dims = broadcast_shapes(name, [x.shape, mask.shape])
    x, mask = broadcast_dims_to(x, dims), broadcast_dims_to(mask, dims)
    return lax.select(mask, x, full(neutral, x.dtype, dims))


def _finish(x, opcode, axes, neutral, keepdims, initial, name):
    """The reduction, in f32 for narrow floats; `initial` is combined with it."""
    dims, dtype = x.shape, x.dtype
    work = F32 if dtype in NARROW_FLOATS and opcode in ("add", "multiply") else dtype
    result = reduce_with(opcode, convert(x, work, x.weak), axes, neutral)
    if initial is not None and not (type(initial) in NUMBERS and initial == neutral):
        result = bind(opcode, result, conform(initial, work, result.shape))
    result = strongly_typed(convert(result, dtype), name, x)
    return keep_axes(result, axes, dims) if keepdims else result


def _accumulation(name, a, axis, dtype, keepdims, initial, where_mask, opcode, neutral, promote_integers=True):
    x = as_operand(a, name)
    target = sum_dtype(x.dtype, promote_integers) if dtype is None else as_dtype(dtype)
    x = convert(x, target, x.weak and dtype is None)
    x = _masked(x, where_mask, neutral, name)
    if target == PRED:
        opcode = "or" if opcode == "add" else "and"
    return _finish(x, opcode, canonical_axes(axis, x.ndim, name), neutral, keepdims, initial, name)


def sum(
    a, axis=None, dtype=None, out=None, keepdims: bool = False, initial=None, where=None, promote_integers: bool = True
):
    """The sum over axes (all by default) of the elements selected by `where`. The result for narrow integers and pred
    is s32 or u32.

    f16 and bf16 are summed in f32. Raises ShapeError, DTypeError.

    >>> hnp.sum(hnp.array([[1, 2], [3, 4]]), axis=0)
    Array([4, 6], dtype=int32)
    >>> hnp.sum(hnp.array([1.0, 2.0, 4.0]), where=hnp.array([True, False, True]))
    Array(5., dtype=float32)
    """
    return _accumulation("sum", a, axis, dtype, keepdims, initial, where, "add", 0, promote_integers)


def prod(
    a, axis=None, dtype=None, out=None, keepdims: bool = False, initial=None, where=None, promote_integers: bool = True
):
    """The product over axes (all by default) of the elements selected by `where`; dtypes as for `sum`. Raises
    ShapeError.

    >>> hnp.prod(hnp.array([[1, 2], [3, 4]]), axis=1)
    Array([ 2, 12], dtype=int32)
    """
    return _accumulation("prod", a, axis, dtype, keepdims, initial, where, "multiply", 1, promote_integers)


def _extreme(name, a, axis, keepdims, initial, where_mask, opcode, neutral):
    x = as_operand(a, name)
    axes = canonical_axes(axis, x.ndim, name)
    if initial is None:
        require_elements([x.shape[k] for k in axes], f"{name} over axes {axes}", repr(x._shape), "pass initial=")
    if where_mask is not None and initial is None:
        raise ShapeError(f"{name} with where=", "no initial value for positions where nothing is true", "pass initial=")
    if x.dtype in COMPLEX:
        return _complex_extreme(name, x, axes, keepdims, initial, where_mask, opcode, neutral)
    x = _masked(x, where_mask, neutral(x.dtype), name)
    return _finish(x, opcode, axes, neutral(x.dtype), keepdims, initial, name)


def _complex_extreme(name, x, axes, keepdims, initial, where_mask, opcode, neutral):
    """In the order of `less`: the extremum of the imaginary parts among elements with the extremal real part."""
    re, im, nan = lax.real(x), lax.imag(x), lax.ne(x, x)
    far = neutral(re.dtype)
    re, im = _masked(re, where_mask, far, name), _masked(im, where_mask, far, name)
    nan = _masked(nan, where_mask, False, name)
    dims, kept = re.shape, tuple(1 if k in axes else d for k, d in enumerate(re.shape))
    first = reduce_with(opcode, re, axes, far)
    tied = lax.eq(re, broadcast_dims_to(reshape_to(first, kept), dims))
    second = reduce_with(opcode, lax.select(tied, im, full(far, im.dtype, dims)), axes, far)
    none = full(complex(math.nan, math.nan), x.dtype, first.shape)
    result = lax.select(reduce_with("or", nan, axes, False), none, lax.complex(first, second))
    if initial is not None:
        result = convert((maximum if opcode == "maximum" else minimum)(result, initial), x.dtype)
    return reshape_to(result, kept) if keepdims else result


def max(a, axis=None, out=None, keepdims: bool = False, initial=None, where=None):
    """The largest element over axes (all by default); NaN where there is one. Raises ShapeError.

    >>> hnp.max(hnp.array([[1, 5], [7, 3]]), axis=0)
    Array([7, 5], dtype=int32)
    >>> hnp.max(hnp.array([1, 2]), initial=9)
    Array(9, dtype=int32)
    """
    return _extreme("max", a, axis, keepdims, initial, where, "maximum", lowest)


def min(a, axis=None, out=None, keepdims: bool = False, initial=None, where=None):
    """The smallest element over axes (all by default); NaN where there is one. Raises ShapeError.

    >>> hnp.min(hnp.array([[1, 5], [7, 3]]), axis=1, keepdims=True)
    Array([[1],
           [3]], dtype=int32)
    """
    return _extreme("min", a, axis, keepdims, initial, where, "minimum", highest)


amax, amin = max, min


def ptp(a, axis=None, out=None, keepdims: bool = False):
    """The largest minus the smallest element over axes. Raises ShapeError.

    >>> hnp.ptp(hnp.array([[1, 5], [7, 3]]), axis=1)
    Array([4, 4], dtype=int32)
    """
    return lax.sub(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


def all(a, axis=None, out=None, keepdims: bool = False, *, where=None):
    """Whether every element (where `where`) is true, i.e. not 0, over axes. Raises ShapeError.

    >>> hnp.all(hnp.array([[True, False], [True, True]]), axis=1)
    Array([False,  True], dtype=bool)
    """
    x = _masked(truth(as_operand(a, "all")), where, True, "all")
    return _finish(x, "and", canonical_axes(axis, x.ndim, "all"), True, keepdims, None, "all")


def any(a, axis=None, out=None, keepdims: bool = False, *, where=None):
    """Whether one element (where `where`) is true, i.e. not 0, over axes. Raises ShapeError.

    >>> hnp.any(hnp.array([[True, False], [False, False]]), axis=1)
    Array([ True, False], dtype=bool)
    """
    x = _masked(truth(as_operand(a, "any")), where, False, "any")
    return _finish(x, "or", canonical_axes(axis, x.ndim, "any"), False, keepdims, None, "any")


def count_nonzero(a, axis=None, keepdims: bool = False):
    """The number of elements other than 0 over axes, s32. Raises ShapeError.

    >>> hnp.count_nonzero(hnp.array([[0, 1], [2, 3]]), axis=0)
    Array([1, 2], dtype=int32)
    """
    x, dtype = as_operand(a, "count_nonzero"), default_int()
    axes = canonical_axes(axis, x.ndim, "count_nonzero")
    over = None if len(axes) == x.ndim else axes
    found = at_once("count_nonzero", lambda v: dtype.type(np.count_nonzero(v, over, keepdims=keepdims)), x)
    return sum(convert(truth(x), dtype), axes, keepdims=keepdims) if found is None else found


def _arg(name, function, a, axis, keepdims):
    x = as_operand(a, name)
    dims = x.shape
    if axis is None:
        x, axes, axis = reshape_to(x, (x.size,)), tuple(range(x.ndim)), 0
    else:
        axes = canonical_axes(axis, x.ndim, name)
        (axis,) = axes
    result = function(x, axis, default_int())
    return keep_axes(result, axes, dims) if keepdims else result


def argmax(a, axis: int | None = None, out=None, keepdims: bool = False):
    """The index (s32) of the first largest element along an axis (of the flat array); NaN is the largest.

    Raises ShapeError for an empty axis.

    >>> hnp.argmax(hnp.array([[1, 5, 2], [7, 3, 4]]), axis=1)
    Array([1, 0], dtype=int32)
    """
    return _arg("argmax", lax.argmax, a, axis, keepdims)


def argmin(a, axis: int | None = None, out=None, keepdims: bool = False):
    """The index (s32) of the first smallest element along an axis (of the flat array); NaN is the smallest.

    Raises ShapeError for an empty axis.

    >>> hnp.argmin(hnp.array([[1, 5, 2], [7, 3, 4]]), axis=1)
    Array([0, 1], dtype=int32)
    """
    return _arg("argmin", lax.argmin, a, axis, keepdims)


# --- means --------------------------------------------------------------------------------------------------------


def _count(x, axes, where_mask, keepdims, name):
    """The number of elements of a mean: a scalar, or an array if there is a mask."""
    if where_mask is None:
        return product(x.shape[k] for k in axes)
    mask = broadcast_dims_to(truth(as_operand(where_mask, name)), x.shape)
    return sum(convert(mask, x.dtype if x.dtype in FLOATS else F32), axes, keepdims=keepdims)


def _quotient(total, count):
    return lax.div(total, conform(count, total.dtype, total.shape))


_WIDE = {DTYPES["f32"]: DTYPES["f64"], DTYPES["c64"]: DTYPES["c128"]}


def _mean(x, axes, keepdims: bool, where_mask, name: str):
    """The mean of floats in their dtype. Sums of f32 stay in f64 until divided: rounding twice could put the mean of
    equal elements an ulp off."""
    count = _count(x, axes, where_mask, keepdims, name)
    wide = _WIDE.get(x.dtype)
    if wide is None:
        return _quotient(sum(x, axes, keepdims=keepdims, where=where_mask), count)
    if where_mask is None:
        found = at_once(name, lambda v: (np.sum(v, axes, wide, keepdims=keepdims) / count).astype(v.dtype), x)
        if found is not None:
            return found
    total = sum(convert(x, wide), axes, keepdims=keepdims, where=where_mask)
    return convert(_quotient(total, count if where_mask is None else convert(count, wide)), x.dtype)


def center(x, axis=None, keepdims: bool = False, where=None):
    """The mean used for deviations.

    For equal elements it is exactly their value, so that their variance is 0, also in f64. As f64 has no wider dtype,
    the mean of the differences is added: differences of equal elements are exact, and the error of their mean vanishes
    in the addition. Its derivative is zero.
    """
    x = as_operand(x, "mean")
    if x.dtype not in (DTYPES["f64"], DTYPES["c128"]):
        return mean(x, axis, keepdims=keepdims, where=where)
    axes = canonical_axes(axis, x.ndim, "mean")
    found = _mean(x, axes, keepdims, where, "mean")
    kept = found if keepdims else keep_axes(found, axes, x.shape)
    rest = _mean(lax.sub(x, broadcast_dims_to(kept, x.shape)), axes, keepdims, where, "mean")
    rest = lax.select(lax.eq(lax.sub(rest, rest), _zeros(rest)), rest, _zeros(rest))  # NaN next to infinities
    return lax.add(found, lax.stop_gradient(rest))


def mean_square(x, axis=None, keepdims: bool = False):
    """The mean of x^2 in the dtype of x (f32 inside for narrow floats): squared deviations of 0 need no wider sums."""
    x = as_operand(x, "mean")
    target, work = _work_dtype(x, None, "mean")
    axes = canonical_axes(axis, x.ndim, "mean")
    x = convert(x, work)
    total = sum(lax.mul(x, x), axes, keepdims=keepdims)
    return convert(_quotient(total, _count(x, axes, None, keepdims, "mean")), target)


def _zeros(x):
    return full(0, x.dtype, x.shape)


def _work_dtype(x, dtype, name):
    """(the dtype of a mean, the dtype in which it is computed)."""
    target = inexact_dtype(x.dtype) if dtype is None else as_dtype(dtype)
    return target, F32 if target in NARROW_FLOATS else target


def mean(a, axis=None, dtype=None, out=None, keepdims: bool = False, *, where=None):
    """The mean over axes (all by default) of the elements selected by `where`; integers as floats. NaN if there are
    none.

    Integers beyond f32's precision are summed exactly, as s64. Raises ShapeError, DTypeError.

    >>> hnp.mean(hnp.array([[1, 2], [3, 6]]), axis=0)
    Array([2., 4.], dtype=float32)
    """
    x = as_operand(a, "mean")
    target, work = _work_dtype(x, dtype, "mean")
    axes = canonical_axes(axis, x.ndim, "mean")
    if work == F32 and x.dtype in (DTYPES["s32"], DTYPES["u32"]):
        total = convert(sum(convert(x, DTYPES["s64"]), axes, keepdims=keepdims, where=where), work)
        return convert(_quotient(total, _count(x, axes, where, keepdims, "mean")), target)
    return convert(_mean(convert(x, work), axes, keepdims, where, "mean"), target)


def average(a, axis=None, weights=None, returned: bool = False, keepdims: bool = False):
    """The mean weighted by weights, of the shape of a or along the one axis. With returned, also returns the sum of
    weights.

    Raises ShapeError, DTypeError.

    >>> hnp.average(hnp.array([1.0, 2.0, 4.0]), weights=hnp.array([1.0, 1.0, 2.0]))
    Array(2.75, dtype=float32)
    """
    x = as_operand(a, "average")
    axes = canonical_axes(axis, x.ndim, "average")
    if weights is None:
        result = mean(x, axes, keepdims=keepdims)
        total = full(product(x.shape[k] for k in axes), result.dtype, result.shape)
        return (result, total) if returned else result
    weights = as_operand(weights, "average")
    if weights.shape != x.shape:
        if weights.shape != tuple(x.shape[k] for k in axes):
            raise ShapeError(
                "average takes weights of the shape of its operand or of the axes it runs over",
                f"operand {x._shape!r}, axes {axes}, weights {weights._shape!r}",
                "broadcast the weights",
            )
        order = sorted(range(len(axes)), key=lambda k: axes[k])
        weights = lax.transpose(weights, order)
        weights = reshape_to(weights, tuple(d if k in axes else 1 for k, d in enumerate(x.shape)))
    (x, weights), _ = promote_operands("average", (x, weights), inexact_dtype)
    total = sum(weights, axes, keepdims=keepdims)
    result = lax.div(sum(lax.mul(x, weights), axes, keepdims=keepdims), total)
    return (result, total) if returned else result


def _divisor(count: Size, less):
    """As in NumPy: too few elements yield NaN (0 / 0) or infinity, never a negative variance."""
    if isinstance(count, SizeExpression):
        return greatest(count - less, 0) if isinstance(less, int) else lax.max(count - less, 0.0)
    divisor = float(count - less)
    return divisor if divisor > 0 else 0.0


def _variance(x: np.ndarray, axes, keepdims: bool, divisor: float) -> np.ndarray:
    """The ops of `var` on a NumPy array, reusing one temporary of its size."""

    def total(v, keepdims):
        def combine(dtype):
            return np.add.reduce(v, axes, dtype, keepdims=keepdims)

        return combined_precisely(combine, v, "add", wide_dtype(v.dtype)).astype(v.dtype, copy=False)

    count, wide = product(x.shape[k] for k in axes), _WIDE.get(x.dtype, x.dtype)
    middle = (np.add.reduce(x, axes, wide, keepdims=True) / count).astype(x.dtype, copy=False)
    distance = x - middle
    if wide == x.dtype:  # as `center`
        rest = np.add.reduce(distance, axes, keepdims=True) / count
        if np.any(rest):
            distance = x - (middle + np.where(np.isfinite(rest), rest, 0))
    if x.dtype.kind == "c":
        squares = np.square(distance.real)
        squares += np.square(distance.imag)
    else:
        squares = np.multiply(distance, distance, out=np.asarray(distance))
    return total(squares, keepdims) / squares.dtype.type(divisor)


def var(a, axis=None, dtype=None, out=None, ddof=0, keepdims: bool = False, *, where=None, mean=None, correction=None):
    """The variance over axes: the sum of |a - mean|^2 divided by the count less `ddof` (or `correction`).

    Real for complex a, f32 inside for narrow floats. Raises ShapeError, DTypeError.

    >>> hnp.var(hnp.array([[1.0, 3.0], [2.0, 8.0]]), axis=1)
    Array([1., 9.], dtype=float32)
    """
    x = as_operand(a, "var")
    target, work = _work_dtype(x, dtype, "var")
    axes = canonical_axes(axis, x.ndim, "var")
    x = convert(x, work)
    less = ddof if correction is None else correction
    if where is None and mean is None:
        divisor = _divisor(product(x.shape[k] for k in axes), less)
        found = at_once("var", lambda v: _variance(v, axes, keepdims, divisor), x)
        if found is not None:
            return found if target in COMPLEX else convert(found, target)
    if mean is None:
        middle = center(x, axes, True, where)
    else:
        middle = as_operand(mean, "var")
        if middle.ndim != x.ndim:
            middle = keep_axes(middle, axes, x.shape)
        middle = convert(middle, work)
    distance = lax.sub(x, broadcast_dims_to(middle, x.shape))
    if work in COMPLEX:
        re, im = lax.real(distance), lax.imag(distance)
        squares = lax.add(lax.mul(re, re), lax.mul(im, im))
        target = squares.dtype
    else:
        squares = lax.mul(distance, distance)
    total = sum(squares, axes, keepdims=keepdims, where=where)
    count = _count(squares, axes, where, keepdims, "var")
    divisor = _divisor(count, less) if where is None else lax.max(lax.sub(count, float(less)), 0.0)
    return convert(_quotient(total, divisor), target)


def std(a, axis=None, dtype=None, out=None, ddof=0, keepdims: bool = False, *, where=None, mean=None, correction=None):
    """The standard deviation over axes: the root of `var`. Raises ShapeError, DTypeError.

    >>> hnp.std(hnp.array([1.0, 3.0, 5.0, 7.0]), ddof=1).round(3)
    Array(2.582, dtype=float32)
    """
    x = as_operand(a, "std")
    target, work = _work_dtype(x, dtype, "std")
    result = lax.sqrt(var(x, axis, work, None, ddof, keepdims, where=where, mean=mean, correction=correction))
    return result if target in COMPLEX else convert(result, target)


# --- ignoring NaN -------------------------------------------------------------------------------------------------


def _valid(x, where_mask, name):
    valid = lax.bitwise_not(isnan(x))
    if where_mask is not None:
        mask = truth(as_operand(where_mask, name))
        valid = lax.bitwise_and(valid, broadcast_dims_to(mask, x.shape))
    return valid


def nansum(a, axis=None, dtype=None, out=None, keepdims: bool = False, initial=None, where=None):
    """`sum` with NaN as 0.

    >>> hnp.nansum(hnp.array([1.0, hnp.nan, 3.0]))
    Array(4., dtype=float32)
    """
    x = as_operand(a, "nansum")
    if lacks_nan(x):
        return sum(x, axis, dtype, None, keepdims, initial, where)
    return sum(x, axis, dtype, None, keepdims, initial, _valid(x, where, "nansum"))


def nanprod(a, axis=None, dtype=None, out=None, keepdims: bool = False, initial=None, where=None):
    """`prod` with NaN as 1.

    >>> hnp.nanprod(hnp.array([2.0, hnp.nan, 3.0]))
    Array(6., dtype=float32)
    """
    x = as_operand(a, "nanprod")
    if lacks_nan(x):
        return prod(x, axis, dtype, None, keepdims, initial, where)
    return prod(x, axis, dtype, None, keepdims, initial, _valid(x, where, "nanprod"))


def nanmean(a, axis=None, dtype=None, out=None, keepdims: bool = False, *, where=None):
    """`mean` of the non-NaN elements; NaN if there are none.

    >>> hnp.nanmean(hnp.array([1.0, hnp.nan, 3.0]))
    Array(2., dtype=float32)
    """
    x = as_operand(a, "nanmean")
    if lacks_nan(x):
        return mean(x, axis, dtype, None, keepdims, where=where)
    return mean(x, axis, dtype, None, keepdims, where=_valid(x, where, "nanmean"))


def nanvar(a, axis=None, dtype=None, out=None, ddof=0, keepdims: bool = False, *, where=None):
    """`var` of the non-NaN elements; NaN if there are too few.

    >>> hnp.nanvar(hnp.array([1.0, hnp.nan, 3.0]))
    Array(1., dtype=float32)
    """
    x = as_operand(a, "nanvar")
    if where is None and lacks_nan(x):
        axes = canonical_axes(axis, x.ndim, "nanvar")
        if product(x.shape[k] for k in axes) > ddof:
            return var(x, axes, dtype, None, ddof, keepdims)
    valid = _valid(x, where, "nanvar")
    result = var(x, axis, dtype, None, ddof, keepdims, where=valid)
    enough = lax.gt(sum(convert(valid, F32), axis, keepdims=keepdims), float(ddof))
    return lax.select(enough, result, full(math.nan, result.dtype, result.shape))


def nanstd(a, axis=None, dtype=None, out=None, ddof=0, keepdims: bool = False, *, where=None):
    """`std` of the non-NaN elements; NaN if there are too few.

    >>> hnp.nanstd(hnp.array([1.0, hnp.nan, 3.0]))
    Array(1., dtype=float32)
    """
    return lax.sqrt(nanvar(a, axis, dtype, out, ddof, keepdims, where=where))


def _nan_extreme(name, function, neutral, a, axis, keepdims, initial, where_mask):
    x = as_operand(a, name)
    if x.dtype not in INEXACT:
        return function(x, axis, None, keepdims, initial, where_mask)
    if initial is None and where_mask is None and x.dtype in FLOATS and x.size:
        axes, ufunc = canonical_axes(axis, x.ndim, name), np.fmax if function is max else np.fmin
        found = at_once(name, lambda v: ufunc.reduce(v, axes, keepdims=keepdims), x)
        if found is not None:
            return found
    valid = _valid(x, where_mask, name)
    start = neutral(x.dtype) if initial is None else initial
    if initial is None and x.dtype in COMPLEX:
        start = complex(start, start)
    result = function(x, axis, None, keepdims, start, valid)
    if initial is not None:
        return result
    return where(any(valid, axis, keepdims=keepdims), result, math.nan)


def nanmax(a, axis=None, out=None, keepdims: bool = False, initial=None, where=None):
    """`max` of the non-NaN elements; NaN if there are none.

    >>> hnp.nanmax(hnp.array([1.0, hnp.nan, 3.0]))
    Array(3., dtype=float32)
    """
    return _nan_extreme("nanmax", max, lowest, a, axis, keepdims, initial, where)


def nanmin(a, axis=None, out=None, keepdims: bool = False, initial=None, where=None):
    """`min` of the non-NaN elements; NaN if there are none.

    >>> hnp.nanmin(hnp.array([1.0, hnp.nan, 3.0]))
    Array(1., dtype=float32)
    """
    return _nan_extreme("nanmin", min, highest, a, axis, keepdims, initial, where)


def _nan_arg(name, function, neutral, a, axis, keepdims):
    """As in JAX: -1 if all elements are NaN (NumPy raises, which a compiled function cannot)."""
    x = as_operand(a, name)
    if x.dtype not in FLOATS:
        return function(x, axis, keepdims=keepdims)
    if lacks_nan(x):
        return function(x, axis, keepdims=keepdims)
    missing = isnan(x)
    index = function(where(missing, neutral(x.dtype), x), axis, keepdims=keepdims)
    return where(all(missing, axis, keepdims=keepdims), -1, index)


def nanargmax(a, axis: int | None = None, out=None, keepdims: bool = False):
    """`argmax` of the non-NaN elements; -1 if there are none.

    >>> hnp.nanargmax(hnp.array([1.0, hnp.nan, 3.0]))
    Array(2, dtype=int32)
    """
    return _nan_arg("nanargmax", argmax, lowest, a, axis, keepdims)


def nanargmin(a, axis: int | None = None, out=None, keepdims: bool = False):
    """`argmin` of the non-NaN elements; -1 if there are none.

    >>> hnp.nanargmin(hnp.array([hnp.nan, 2.0, 1.0]))
    Array(2, dtype=int32)
    """
    return _nan_arg("nanargmin", argmin, highest, a, axis, keepdims)
