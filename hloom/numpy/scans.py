"""Running sums and products, differences, integrals, covariance and polynomials."""

from __future__ import annotations

import math

from hloom import lax
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import COMPLEX, DTYPES, FLOATS, NARROW_FLOATS, PRED, as_dtype
from hloom.lax.elementwise import is_nan
from hloom.lax.scans import running
from hloom.numpy.linear import dot
from hloom.numpy.logic import equal, greater, less, logical_and, where
from hloom.numpy.manipulation import concatenate, moveaxis
from hloom.numpy.reductions import average, mean, sum, sum_dtype
from hloom.numpy.signs import conjugate
from hloom.numpy.ufuncs import absolute, add, divide, multiply, remainder, subtract
from hloom.operands import (
    F32,
    as_operand,
    broadcast_dims_to,
    broadcast_shapes,
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
    """The running sum along an axis (of the flat array), in the dtype of a; of booleans in the default integer's.

    `cumulative_sum` adds narrow integers in wider ones. Raises ShapeError.
    """
    return _cumulative("cumsum", a, axis, dtype, "add")


def cumprod(a, axis: int | None = None, dtype=None, out=None):
    """The running product along an axis (of the flat array); dtypes as `cumsum`. Raises ShapeError."""
    return _cumulative("cumprod", a, axis, dtype, "multiply")


def nancumsum(a, axis: int | None = None, dtype=None, out=None):
    """`cumsum` with NaN as 0."""
    return cumsum(_replaced(a, 0.0, "nancumsum"), axis, dtype)


def nancumprod(a, axis: int | None = None, dtype=None, out=None):
    """`cumprod` with NaN as 1."""
    return cumprod(_replaced(a, 1.0, "nancumprod"), axis, dtype)


def _replaced(a, value, name):
    x = as_operand(a, name)
    if x.dtype not in FLOATS and x.dtype not in COMPLEX:
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
    """`cumsum`; with include_initial one element longer, from 0 on. Raises ShapeError."""
    return _array_api("cumulative_sum", cumsum, x, axis, dtype, include_initial, 0)


def cumulative_prod(x, /, *, axis: int | None = None, dtype=None, include_initial: bool = False):
    """`cumprod`; with include_initial one element longer, from 1 on. Raises ShapeError."""
    return _array_api("cumulative_prod", cumprod, x, axis, dtype, include_initial, 1)


# --- differences and integrals ------------------------------------------------------------------------------------


def diff(a, n: int = 1, axis: int = -1, prepend=None, append=None):
    """The n-th difference of neighbours along an axis (`!=` of booleans). Raises ShapeError, ArgumentError."""
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
    """The differences of neighbours of the flat array, with elements before and after. Raises ShapeError."""
    x = as_operand(ary, "ediff1d")
    result = diff(reshape_to(x, (x.size,)))
    ends = [None if e is None else convert(as_operand(e, "ediff1d"), result.dtype) for e in (to_begin, to_end)]
    ends = [None if e is None else reshape_to(e, (e.size,)) for e in ends]
    return lax.concatenate([p for p in (ends[0], result, ends[1]) if p is not None], 0)


def trapezoid(y, x=None, dx=1.0, axis: int = -1):
    """The integral along an axis by the trapezoidal rule, at points x or dx apart. Raises ShapeError."""
    if x is None:
        y = to_inexact(y, "trapezoid")
    else:
        (y, x), _ = promote_operands("trapezoid", (y, x), inexact_dtype, broadcast=False)
    axis = canonical_axis(axis, y.ndim, "trapezoid")
    y = moveaxis(y, axis, -1)
    if x is not None:
        dx = diff(moveaxis(x, axis, -1) if x.ndim > 1 else x)
    extent = y.shape[-1]
    low, high = lax.slice_in_dim(y, 0, max(extent - 1, 0), axis=-1), lax.slice_in_dim(y, min(1, extent), None, axis=-1)
    return multiply(sum(multiply(lax.add(low, high), dx), -1), 0.5)


def gradient(f, *varargs, axis=None, edge_order: int = 1):
    """The derivative along axes by central differences of neighbours, one-sided at the edges; a list for several axes.

    varargs: the distance of neighbours, one number for all axes or one (or a vector of coordinates) for each.
    Raises ShapeError, ArgumentError.
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
                f"{distance._shape!r} for extent {extent}",
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
        middle = multiply(add(part(slopes, 0, extent - 2), part(slopes, 1, extent - 1)), 0.5)
    return lax.concatenate([part(slopes, 0, 1), middle, part(slopes, extent - 2, extent - 1)], axis)


def unwrap(p, discont=None, axis: int = -1, period=2 * math.pi):
    """p with whole periods added so that neighbours differ by at most half a period. Raises ShapeError."""
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


# --- covariance ---------------------------------------------------------------------------------------------------


def cov(m, y=None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights=None, aweights=None):
    """The covariance matrix of variables, one a row (one a column unless rowvar), observations along the other axis.

    Divided by the count less ddof (1, or 0 with bias); weights as in NumPy. Raises ShapeError, DTypeError.
    """
    x = _observations(m, rowvar, "cov")
    if y is not None:
        x = concatenate([x, _observations(y, rowvar or as_operand(y, "cov").shape[0] == 1, "cov")], 0)
    ddof = (0 if bias else 1) if ddof is None else ddof
    weights = None
    for given in (fweights, aweights):
        if given is not None:
            given = as_operand(given, "cov")
            weights = given if weights is None else multiply(weights, given)
    if weights is None:
        x = subtract(x, mean(x, 1, keepdims=True))
        divisor = x.shape[1] - ddof
        weighted = x
    else:
        weights = convert(weights, inexact_dtype(x.dtype))
        total = sum(weights)
        x = subtract(x, average(x, 1, weights, keepdims=True))
        if aweights is None:
            divisor = lax.sub(total, float(ddof))
        else:
            again = multiply(weights, convert(as_operand(aweights, "cov"), weights.dtype))
            divisor = lax.sub(total, lax.div(lax.mul(sum(again), float(ddof)), total))
        weighted = multiply(x, weights)
    result = dot(x, conjugate(lax.transpose(weighted, (1, 0))))
    scale = as_operand(divisor, "cov")
    result = lax.div(result, broadcast_dims_to(convert(scale, result.dtype), result.shape))
    return reshape_to(result, ()) if result.shape == (1, 1) else result


def _observations(m, rowvar, name):
    x = to_inexact(m, name)
    if x.ndim > 2:
        raise ShapeError(f"{name} takes vectors or matrices", f"{x._shape!r}", "reshape the operand")
    if x.ndim < 2:
        return reshape_to(x, (1, x.size))
    return x if rowvar else lax.transpose(x, (1, 0))


def corrcoef(x, y=None, rowvar: bool = True):
    """The correlation matrix of variables, laid out as for `cov`. Raises ShapeError, DTypeError."""
    from hloom.numpy.rearrangement import diagonal

    c = cov(x, y, rowvar)
    if not c.ndim:
        return lax.div(c, c)
    root = lax.sqrt(lax.real(diagonal(c)) if c.dtype in COMPLEX else diagonal(c))
    root = convert(root, c.dtype)
    rows, columns = (lax.broadcast_in_dim(root, c.shape, (k,)) for k in (0, 1))
    c = lax.div(lax.div(c, rows), columns)
    return lax.clamp(-1.0, c, 1.0) if c.dtype in FLOATS else c


# --- polynomials, the highest power first -------------------------------------------------------------------------


def polyval(p, x):
    """The polynomial with coefficients p at x, by Horner's rule. Raises ShapeError, DTypeError."""
    p = _coefficients(p, "polyval")
    (p, x), _ = promote_operands("polyval", (p, x), broadcast=False)
    if p.dtype == PRED:
        p, x = convert(p, DTYPES["s32"]), convert(x, DTYPES["s32"])
    result = full(0, x.dtype, x.shape)
    for k in range(p.shape[0]):
        coefficient = broadcast_dims_to(lax.index_in_dim(p, k, 0, keepdims=False), x.shape)
        result = lax.add(lax.mul(result, x), coefficient)
    return result


def _coefficients(p, name):
    p = as_operand(p, name)
    if p.ndim > 1:
        raise ShapeError(f"{name} takes a vector of coefficients", f"{p._shape!r}", "flatten it with hnp.ravel")
    return reshape_to(p, (p.size,))


def polyadd(a1, a2):
    """The coefficients of the sum of two polynomials; columns of a matrix are polynomials. Raises ShapeError."""
    return _aligned("polyadd", a1, a2, lax.add)


def _aligned(name, a1, a2, combine):
    """Coefficients of one power combined: zeros in front of the shorter polynomial."""
    values = [as_operand(p, name) for p in (a1, a2)]
    values = [v if v.ndim else reshape_to(v, (1,)) for v in values]
    (a, b), _ = promote_operands(name, values, broadcast=False)
    size = max(a.shape[0], b.shape[0])
    if a.shape[0] != b.shape[0]:
        longer = (a if a.shape[0] == size else b).shape[1:]

        def lengthened(p):
            if p.shape[0] == size:
                return p
            dims = (p.shape[0], *longer)
            if p.ndim > len(dims) or broadcast_shapes(name, [p.shape, dims]) != dims:
                raise ShapeError(
                    f"{name} takes polynomials of one kind", f"{a._shape!r} and {b._shape!r}", "match their other axes"
                )
            return lax.pad(broadcast_dims_to(p, dims), 0, ((size - p.shape[0], 0, 0), *((0, 0, 0),) * len(longer)))

        a, b = lengthened(a), lengthened(b)
    dims = broadcast_shapes(name, [a.shape, b.shape])
    return combine(broadcast_dims_to(a, dims), broadcast_dims_to(b, dims))


def polysub(a1, a2):
    """The coefficients of the difference of two polynomials; columns of a matrix are polynomials. Raises ShapeError."""
    return _aligned("polysub", a1, a2, lax.sub)


def polyder(p, m: int = 1):
    """The coefficients of the m-th derivative. Raises ShapeError."""
    p = to_inexact(_coefficients(p, "polyder"), "polyder")
    for _ in range(whole_number(m, "polyder", "order")):
        size = p.shape[0]
        if size <= 1:
            return full(0, p.dtype, (0,))
        powers = lax.rev(lax.iota(p.dtype, size - 1), (0,))
        p = lax.mul(lax.slice_in_dim(p, 0, size - 1), lax.add(powers, 1))
    return p


def polyint(p, m: int = 1, k=None):
    """The coefficients of the m-th integral, with the m constants of integration k (one number for all; 0 by default).

    Raises ShapeError.
    """
    p = to_inexact(_coefficients(p, "polyint"), "polyint")
    order = whole_number(m, "polyint", "order")
    constants = reshape_to(x, (x.size,)) if (x := as_operand(0 if k is None else k, "polyint")).ndim < 2 else x
    if constants.shape not in ((1,), (order,)):
        raise ShapeError(
            "polyint takes a constant for each integration", f"{constants._shape!r} for m={order}", "pass m constants"
        )
    (p, constants), _ = promote_operands("polyint", (p, constants), broadcast=False)
    for step in range(order):
        powers = lax.rev(lax.iota(p.dtype, p.shape[0]), (0,))
        constant = lax.index_in_dim(constants, step if constants.shape[0] > 1 else 0, 0)
        p = lax.concatenate([lax.div(p, lax.add(powers, 1)), constant], 0)
    return p


def polymul(a1, a2, *, trim_leading_zeros: bool = False):
    """The coefficients of the product of two polynomials, floats. Raises ShapeError.

    trim_leading_zeros: leading zeros of the operands do not count; this looks at values, so not inside of jit.
    """
    given = [_coefficients(p, "polymul") for p in (a1, a2)]
    (a, b), _ = promote_operands("polymul", given, inexact_dtype, broadcast=False)
    if trim_leading_zeros:
        from hloom.numpy.polynomials import trim_zeros

        a, b = trim_zeros(a, "f"), trim_zeros(b, "f")
    rows, columns = a.shape[0], b.shape[0]
    if not rows or not columns:
        return full(0, a.dtype, (0,))
    # Row k holds a[k] b moved by k places: rows of one element more than the result, read as rows of its extent.
    products = lax.mul(*(lax.broadcast_in_dim(p, (rows, columns), (k,)) for k, p in enumerate((a, b))))
    flat = reshape_to(lax.pad(products, 0, ((0, 0, 0), (0, rows, 0))), (rows * (rows + columns),))
    size = rows + columns - 1
    return lax.reduce_sum(reshape_to(lax.slice_in_dim(flat, 0, rows * size), (rows, size)), (0,))
