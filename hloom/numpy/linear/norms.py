"""Norms of vectors and matrices, and condition numbers."""

from __future__ import annotations

import math

from hloom import lax
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import COMPLEX
from hloom.lax.linalg import matrices
from hloom.lax.operands import canonical_axes, to_inexact
from hloom.numpy.reducing import reductions
from hloom.numpy.shaping.manipulation import expand_dims, moveaxis, squeeze


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


def _squares(x):
    return lax.real(x * lax.conj(x)) if x.dtype in COMPLEX else lax.square(x)


def _length(x, axes, keepdims):
    return lax.sqrt(reductions.sum(_squares(x), axis=axes, keepdims=keepdims))


def _vector(x, order, axes, keepdims):
    if order is None or order == 2:
        return _length(x, axes, keepdims)
    if isinstance(order, str):
        raise ArgumentError("the norm of a vector takes a number as ord", f"{order!r}", "'fro' and 'nuc' take two axes")
    size = lax.abs(x)
    if order == math.inf:
        return reductions.max(size, axis=axes, keepdims=keepdims, initial=0 if not x.size else None)
    if order == -math.inf:
        return reductions.min(size, axis=axes, keepdims=keepdims, initial=math.inf if not x.size else None)
    if order == 0:
        return reductions.sum(size != 0, axis=axes, keepdims=keepdims, dtype=size.dtype)
    if order == 1:
        return reductions.sum(size, axis=axes, keepdims=keepdims)
    power = reductions.sum(size**order, axis=axes, keepdims=keepdims)
    return power ** (1.0 / order)


_SUMS = {1: (0, True), -1: (0, False), math.inf: (1, True), -math.inf: (1, False)}


def _matrix(x, order, axes, keepdims):
    if order is None or order == "fro":
        return _length(x, axes, keepdims)
    row, column = axes
    if row == column:
        raise ShapeError("a matrix norm takes two different axes", f"axes {axes}", "name two axes")
    if order in _SUMS:
        which, largest = _SUMS[order]
        summed, kept = axes if which == 0 else axes[::-1]
        sums = reductions.sum(lax.abs(x), axis=summed, keepdims=True)
        extreme = reductions.max if largest else reductions.min
        result = extreme(sums, axis=kept, keepdims=True)
        return result if keepdims else squeeze(result, axis=axes)
    if order in (2, -2, "nuc"):
        s = lax.linalg.svd(moveaxis(x, axes, (-2, -1)), compute_uv=False)
        if order == "nuc":
            result = reductions.sum(s, axis=-1)
        else:
            result = (reductions.max if order == 2 else reductions.min)(s, axis=-1)
        return expand_dims(result, axes) if keepdims else result
    raise ArgumentError(
        "the norm of a matrix takes ord 'fro', 'nuc', 1, -1, 2, -2, inf or -inf", f"{order!r}", "choose one of them"
    )
