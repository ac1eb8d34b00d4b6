"""Norms of vectors and matrices, and condition numbers."""

from __future__ import annotations

import math

from hloom import lax
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import COMPLEX
from hloom.lax.linalg import matrices
from hloom.lax.operands import canonical_axes, to_inexact


def norm(x, ord=None, axis=None, keepdims: bool = False):
    """The norm of vectors (one axis) or matrices (two axes).

    ord of vectors: None or 2 (Euclidean), inf, -inf, 0 (elements that are not 0), or any p; of matrices: None or 'fro',
    'nuc' (sum of the singular values), 1, -1 (columns), inf, -inf (rows), 2, -2 (singular values). Without axis and ord
    all elements are one vector. Raises ShapeError, ArgumentError, DTypeError.
    """
    x = to_inexact(x, "norm")
    if axis is None and ord is None:
        return _length(x, tuple(range(x.ndim)), keepdims)
    axes = canonical_axes(axis, x.ndim, "norm")
    if len(axes) == 1:
        return _vector(x, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix(x, ord, axes, keepdims)
    raise ShapeError(
        "norm takes one axis for vectors or two for matrices", f"{len(axes)} axes of {x._shape!r}", "name one or two"
    )


def vector_norm(x, /, *, axis=None, keepdims: bool = False, ord=2):
    """The norm of vectors along an axis, several axes (as one vector) or all of them.

    ord: 2 by default, inf, -inf, 0 (elements that are not 0) or any p. Raises ShapeError, ArgumentError, DTypeError.
    """
    x = to_inexact(x, "vector_norm")
    return _vector(x, ord, canonical_axes(axis, x.ndim, "vector_norm"), keepdims)


def matrix_norm(x, /, *, keepdims: bool = False, ord="fro"):
    """The norm of matrices (the last two axes): ord 'fro', 'nuc', 1, -1, 2, -2, inf or -inf. Raises ShapeError."""
    x = matrices(to_inexact(x, "matrix_norm"), "matrix_norm")
    return _matrix(x, ord, (x.ndim - 2, x.ndim - 1), keepdims)


def cond(x, p=None):
    """The condition number |x| |x^-1| in the norm p (as `norm` takes for matrices; None and 2: singular values).

    inf of a singular matrix; NaN where x has one. Raises ShapeError, DTypeError, ArgumentError.
    """
    from hloom import numpy as hnp

    x = matrices(to_inexact(x, "cond"), "cond")
    if p in (None, 2, -2):
        s = hnp.linalg.svdvals(x)
        if not s.shape[-1]:
            raise ShapeError("cond takes matrices that are not empty", f"{x._shape!r}", "check the shape")
        result = s[..., 0] / s[..., -1] if p != -2 else s[..., -1] / s[..., 0]
    else:
        result = norm(x, p, (-2, -1)) * norm(hnp.linalg.inv(x), p, (-2, -1))
    # NaN from numbers that are none stays, NaN from a singular matrix is an infinite condition.
    own = hnp.any(hnp.isnan(x), axis=(-2, -1))
    return hnp.where(hnp.isnan(result) & ~own, lax.full_like(result, math.inf), result)


def _squares(x):
    return lax.real(x * lax.conj(x)) if x.dtype in COMPLEX else lax.square(x)


def _length(x, axes, keepdims):
    from hloom import numpy as hnp

    return lax.sqrt(hnp.sum(_squares(x), axis=axes, keepdims=keepdims))


def _vector(x, order, axes, keepdims):
    from hloom import numpy as hnp

    if order is None or order == 2:
        return _length(x, axes, keepdims)
    if isinstance(order, str):
        raise ArgumentError("the norm of a vector takes a number as ord", f"{order!r}", "'fro' and 'nuc' take two axes")
    size = lax.abs(x)
    if order == math.inf:
        return hnp.max(size, axis=axes, keepdims=keepdims, initial=0 if not x.size else None)
    if order == -math.inf:
        return hnp.min(size, axis=axes, keepdims=keepdims, initial=math.inf if not x.size else None)
    if order == 0:
        return hnp.sum(size != 0, axis=axes, keepdims=keepdims, dtype=size.dtype)
    if order == 1:
        return hnp.sum(size, axis=axes, keepdims=keepdims)
    power = hnp.sum(size**order, axis=axes, keepdims=keepdims)
    return power ** (1.0 / order)


_SUMS = {1: (0, True), -1: (0, False), math.inf: (1, True), -math.inf: (1, False)}


def _matrix(x, order, axes, keepdims):
    from hloom import numpy as hnp

    if order is None or order == "fro":
        return _length(x, axes, keepdims)
    row, column = axes
    if row == column:
        raise ShapeError("a matrix norm takes two different axes", f"axes {axes}", "name two axes")
    if order in _SUMS:
        which, largest = _SUMS[order]
        summed, kept = axes if which == 0 else axes[::-1]
        sums = hnp.sum(lax.abs(x), axis=summed, keepdims=True)
        extreme = hnp.max if largest else hnp.min
        result = extreme(sums, axis=kept, keepdims=True)
        return result if keepdims else hnp.squeeze(result, axis=axes)
    if order in (2, -2, "nuc"):
        s = hnp.linalg.svdvals(hnp.moveaxis(x, axes, (-2, -1)))
        if order == "nuc":
            result = hnp.sum(s, axis=-1)
        else:
            result = (hnp.max if order == 2 else hnp.min)(s, axis=-1)
        return hnp.expand_dims(result, axes) if keepdims else result
    raise ArgumentError(
        "the norm of a matrix takes ord 'fro', 'nuc', 1, -1, 2, -2, inf or -inf", f"{order!r}", "choose one of them"
    )
