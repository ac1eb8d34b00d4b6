"""Polynomials as vectors of coefficients, the highest power first."""

from __future__ import annotations

import numpy as np

from hloom import lax
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import DTYPES, PRED
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    broadcast_shapes,
    canonical_axes,
    convert,
    full,
    inexact_dtype,
    promote_operands,
    reshape_to,
    to_inexact,
    whole_number,
)
from hloom.numpy import linalg
from hloom.numpy.creation import arange, asarray
from hloom.numpy.dtypes import finfo
from hloom.numpy.elementwise.logic import less, not_equal, where
from hloom.numpy.elementwise.table import sqrt
from hloom.numpy.linear.matrices import eye, vander
from hloom.numpy.reducing import reductions
from hloom.numpy.reducing.reductions import argmax
from hloom.numpy.shaping.manipulation import expand_dims
from hloom.numpy.shaping.rearrangement import roll
from hloom.numpy.shaping.sorting import argsort


def poly(seq_of_zeros):
    """The coefficients of the polynomial with these zeros, or the characteristic polynomial of a square matrix.

    Raises ShapeError.

    >>> hnp.poly(hnp.array([1.0, 2.0]))
    Array([ 1., -3.,  2.], dtype=float32)
    """
    x = as_operand(seq_of_zeros, "poly")
    if x.ndim == 2 and x.shape[0] == x.shape[1] and x.shape[0]:
        x = lax.linalg.eig(to_inexact(x, "poly"), compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]
    if x.ndim > 1:
        raise ShapeError("poly takes a vector of zeros or a square matrix", f"{x._shape!r}", "check the operand")
    x = to_inexact(reshape_to(x, (x.size,)), "poly")
    result = full(1, x.dtype, (1,))
    for k in range(x.shape[0]):
        factor = lax.concatenate([full(1, x.dtype, (1,)), lax.neg(lax.slice_in_dim(x, k, k + 1))], 0)
        result = polymul(result, factor)
    return result


def polydiv(u, v, *, trim_leading_zeros: bool = False):
    """(quotient, remainder) of two polynomials. The remainder has the length of u unless trimmed.

    trim_leading_zeros depends on values, so it is not supported inside of jit. Raises ShapeError.

    >>> quotient, remainder = hnp.polydiv(hnp.array([1.0, 0.0, -1.0]), hnp.array([1.0, 1.0]))
    >>> quotient
    Array([ 1., -1.], dtype=float32)
    """
    (u, v), _ = promote_operands("polydiv", (u, v), inexact_dtype, broadcast=False)
    if u.ndim != 1 or v.ndim != 1 or not v.shape[0]:
        raise ShapeError("polydiv takes vectors of coefficients", f"{u._shape!r} and {v._shape!r}", "flatten them")
    size, degree = u.shape[0], v.shape[0] - 1
    count = size - degree
    if count <= 0:
        return full(0, u.dtype, (1,)), u
    leading, quotient, rest = lax.slice_in_dim(v, 0, 1), [], u
    for k in range(count):
        factor = lax.div(lax.slice_in_dim(rest, k, k + 1), leading)
        quotient.append(factor)
        taken = lax.mul(broadcast_dims_to(factor, v.shape), v)
        rest = lax.sub(rest, lax.pad(taken, 0, ((k, size - k - v.shape[0], 0),)))
    # The eliminated coefficients are 0 except for rounding.
    kept = lax.slice_in_dim(rest, count, None)
    rest = lax.concatenate([full(0, u.dtype, (count,)), kept], 0)
    if trim_leading_zeros:
        values = np.trim_zeros(np.asarray(rest), "f")
        rest = lax.slice_in_dim(rest, size - max(len(values), 1), None)
    return lax.concatenate(quotient, 0), rest


def roots(p, *, strip_zeros: bool = True):
    """The zeros of a polynomial, complex: the eigenvalues of its companion matrix.

    strip_zeros: removes leading zeros, which depends on values; pass False inside of jit, where each leading zero
    yields a NaN at the end. Raises ShapeError.

    >>> hnp.sort(hnp.roots(hnp.array([1.0, 0.0, -4.0])).real).round(3)
    Array([-2.,  2.], dtype=float32)
    """
    x = to_inexact(p, "roots")
    if x.ndim > 1:
        raise ShapeError("roots takes a vector of coefficients", f"{x._shape!r}", "flatten it with hnp.ravel")
    x = reshape_to(x, (x.size,))
    target = DTYPES["c128" if x.dtype in (DTYPES["f64"], DTYPES["c128"]) else "c64"]
    zeros = 0
    if not strip_zeros and x.shape[0] > 1:
        return _roots_of_known_number(x, target)
    if strip_zeros:
        places = np.flatnonzero(np.asarray(x))
        if not len(places):
            return full(0, target, (0,))
        zeros = x.shape[0] - 1 - int(places[-1])
        x = lax.slice_in_dim(x, int(places[0]), int(places[-1]) + 1)
    size = x.shape[0] - 1
    if size < 1:
        return full(0, target, (max(zeros, 0),))
    companion = _companion(x)
    found = lax.linalg.eig(companion, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]
    return lax.concatenate([convert(found, target), full(0, target, (zeros,))], 0)


def _companion(x):
    """The matrix whose eigenvalues are the zeros of a polynomial with a first coefficient other than 0."""
    size = x.shape[0] - 1
    top = lax.neg(lax.div(lax.slice_in_dim(x, 1, None), broadcast_dims_to(lax.slice_in_dim(x, 0, 1), (size,))))
    return lax.concatenate([reshape_to(top, (1, size)), eye(size - 1, size, dtype=x.dtype)], 0)


def _roots_of_known_number(x, target):
    """As many roots as the degree allows: leading zeros are moved to the end, and the corresponding roots become
    NaN."""
    leading = argmax(not_equal(x, 0))
    companion = _companion(roll(x, lax.neg(leading)))
    found = lax.linalg.eig(companion, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]
    found = found[argsort(lax.neg(lax.abs(found)))]
    kept = less(arange(found.shape[0]), found.shape[0] - leading)
    return convert(where(kept, found, complex(np.nan, np.nan)), target)


def polyfit(x, y, deg: int, rcond=None, full: bool = False, w=None, cov=False):
    """The coefficients of the least-squares polynomial of degree deg through y at x.

    rcond: singular values below this fraction of the largest are treated as 0. w: a weight for each point. full: also
    returns residuals, rank, singular values and rcond. cov: also returns the covariance of the coefficients
    ('unscaled': not scaled by the residuals). y may have several columns, each fitted separately. Raises ShapeError,
    ArgumentError.

    >>> x = hnp.array([0.0, 1.0, 2.0, 3.0])
    >>> hnp.polyfit(x, 2 * x + 1, 1).round(3)
    Array([2., 1.], dtype=float32)
    """
    deg = whole_number(deg, "polyfit", "degree")
    (x, y), _ = promote_operands("polyfit", (x, y), inexact_dtype, broadcast=False)
    if deg < 0 or x.ndim != 1 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0] or not x.shape[0]:
        raise ShapeError(
            "polyfit takes a vector of points, as many values, and a degree from 0",
            f"{x._shape!r}, {y._shape!r}, {deg=}",
            "match them",
        )
    order, count = deg + 1, x.shape[0]
    rcond = count * float(finfo(x.dtype).eps) if rcond is None else rcond
    left, right = vander(x, order), y
    if w is not None:
        weights = convert(as_operand(w, "polyfit"), x.dtype)
        if weights.shape != x.shape:
            raise ShapeError("polyfit takes a weight for each point", f"{weights._shape!r}", "match the points")
        left = left * expand_dims(weights, 1)
        right = right * (expand_dims(weights, 1) if y.ndim == 2 else weights)
    scale = sqrt(reductions.sum(left * left, 0))
    found, residuals, rank, singular = linalg.lstsq(left / scale, right, rcond)
    found = (found.T / scale).T
    if full:
        return found, residuals, rank, singular, asarray(rcond)
    if not cov:
        return found
    base = linalg.inv(left.T @ left)
    if isinstance(cov, str) and cov == "unscaled":
        factor = 1.0
    else:
        if count <= order:
            raise ArgumentError(
                "polyfit estimates a covariance", f"{count} points for {order} coefficients", "pass more points"
            )
        factor = residuals / (count - order)
    return found, base * factor if y.ndim == 1 else base[:, :, None] * factor


def trim_zeros(filt, trim: str = "fb", axis=None):
    """An array without leading ('f') or trailing ('b') zeros, or both, along axes (all by default).

    Depends on values: not supported inside of jit. Raises ShapeError, ArgumentError.

    >>> hnp.trim_zeros(hnp.array([0, 0, 1, 2, 0]))
    Array([1, 2], dtype=int32)
    """
    x = as_operand(filt, "trim_zeros")
    trim = str(trim).lower()
    if not set(trim) <= set("fb"):
        raise ArgumentError("trim_zeros takes 'f', 'b' or 'fb'", f"{trim!r}", "pass one of these")
    places = np.nonzero(np.asarray(x))
    for k in canonical_axes(axis, x.ndim, "trim_zeros"):
        found = places[k]
        if not len(found):
            x = lax.slice_in_dim(x, 0, 0, axis=k)
            continue
        start = int(found.min()) if "f" in trim else 0
        x = lax.slice_in_dim(x, start, int(found.max()) + 1 if "b" in trim else x.shape[k], axis=k)
    return x


def polyval(p, x):
    """The polynomial with coefficients p at x, by Horner's rule.

    p: (n, ...), the highest power first; its further axes broadcast with x. Raises ShapeError, DTypeError.

    >>> hnp.polyval(hnp.array([1, 0, -2]), hnp.array([2, 3]))
    Array([2, 7], dtype=int32)
    """
    (p, x), _ = promote_operands("polyval", (p, x), broadcast=False)
    if not p.ndim:
        raise ShapeError("polyval takes coefficients along an axis", f"{p._shape!r}", "pass a vector")
    if p.dtype == PRED:
        p, x = convert(p, DTYPES["s32"]), convert(x, DTYPES["s32"])
    dims = broadcast_shapes("polyval", [p.shape[1:], x.shape])
    x = broadcast_dims_to(x, dims)
    result = full(0, x.dtype, dims)
    for k in range(p.shape[0]):
        coefficient = broadcast_dims_to(lax.index_in_dim(p, k, 0, keepdims=False), dims)
        result = lax.add(lax.mul(result, x), coefficient)
    return result


def _coefficients(p, name):
    p = as_operand(p, name)
    if p.ndim > 1:
        raise ShapeError(f"{name} takes a vector of coefficients", f"{p._shape!r}", "flatten it with hnp.ravel")
    return reshape_to(p, (p.size,))


def polyadd(a1, a2):
    """The coefficients of the sum of two polynomials; columns of a matrix are polynomials. Raises ShapeError.

    >>> hnp.polyadd(hnp.array([1, 2]), hnp.array([3, 0, 1]))
    Array([3, 1, 3], dtype=int32)
    """
    return _aligned("polyadd", a1, a2, lax.add)


def _aligned(name, a1, a2, combine):
    """Coefficients combined power by power: the shorter polynomial is padded with leading zeros."""
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
    """The coefficients of the difference of two polynomials; columns of a matrix are polynomials. Raises ShapeError.

    >>> hnp.polysub(hnp.array([1, 2]), hnp.array([3, 0, 1]))
    Array([-3,  1,  1], dtype=int32)
    """
    return _aligned("polysub", a1, a2, lax.sub)


def polyder(p, m: int = 1):
    """The coefficients of the m-th derivative. Raises ShapeError.

    >>> hnp.polyder(hnp.array([1.0, 2.0, 3.0]))
    Array([2., 2.], dtype=float32)
    """
    p = to_inexact(_coefficients(p, "polyder"), "polyder")
    for _ in range(whole_number(m, "polyder", "order")):
        size = p.shape[0]
        if size <= 1:
            return full(0, p.dtype, (0,))
        powers = lax.rev(lax.iota(p.dtype, size - 1), (0,))
        p = lax.mul(lax.slice_in_dim(p, 0, size - 1), lax.add(powers, 1))
    return p


def polyint(p, m: int = 1, k=None):
    """The coefficients of the m-th integral, with the m constants of integration k (or one scalar for all; 0 by
    default).

    Raises ShapeError.

    >>> hnp.polyint(hnp.array([2.0, 2.0]))
    Array([1., 2., 0.], dtype=float32)
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

    trim_leading_zeros: ignores leading zeros of the operands; this depends on values, so it is not supported inside of
    jit.

    >>> hnp.polymul(hnp.array([1, 1]), hnp.array([1, -1]))
    Array([ 1.,  0., -1.], dtype=float32)
    """
    given = [_coefficients(p, "polymul") for p in (a1, a2)]
    (a, b), _ = promote_operands("polymul", given, inexact_dtype, broadcast=False)
    if trim_leading_zeros:
        a, b = trim_zeros(a, "f"), trim_zeros(b, "f")
    a, b = (p if p.shape[0] else full(0, p.dtype, (1,)) for p in (a, b))
    rows, columns = a.shape[0], b.shape[0]
    # Row k holds a[k] b moved by k positions: rows of one element more than the result, read as rows of its size.
    products = lax.mul(*(lax.broadcast_in_dim(p, (rows, columns), (k,)) for k, p in enumerate((a, b))))
    flat = reshape_to(lax.pad(products, 0, ((0, 0, 0), (0, rows, 0))), (rows * (rows + columns),))
    size = rows + columns - 1
    return lax.reduce_sum(reshape_to(lax.slice_in_dim(flat, 0, rows * size), (rows, size)), (0,))
