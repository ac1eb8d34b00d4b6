"""Covariance and correlation."""

from __future__ import annotations

from hloom import lax
from hloom.errors import ShapeError
from hloom.ir.types import COMPLEX, FLOATS
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    convert,
    inexact_dtype,
    promote_operands,
    reshape_to,
    to_inexact,
)
from hloom.numpy.elementwise.signs import conjugate
from hloom.numpy.elementwise.table import multiply, subtract
from hloom.numpy.linear.products import dot
from hloom.numpy.reducing.reductions import average, mean, sum
from hloom.numpy.shaping.diagonals import diagonal
from hloom.numpy.shaping.manipulation import concatenate


def cov(m, y=None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights=None, aweights=None):
    """The covariance matrix of variables, one per row (per column unless rowvar), with observations along the other
    axis.

    Divided by the count less ddof (1, or 0 with bias); weights as in NumPy. Raises ShapeError, DTypeError.

    >>> hnp.cov(hnp.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]))
    Array([[1., 2.],
           [2., 4.]], dtype=float32)
    """
    if y is not None:
        (m, y), _ = promote_operands("cov", (m, y), inexact_dtype, broadcast=False)
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
    scale = lax.max(as_operand(divisor, "cov"), 0)  # fewer observations than ddof: NaN or infinite
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
    """The correlation matrix of variables, laid out as for `cov`. Raises ShapeError, DTypeError.

    >>> hnp.corrcoef(hnp.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])).round(3)
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    c = cov(x, y, rowvar)
    if not c.ndim:
        return lax.div(c, c)
    root = lax.sqrt(lax.real(diagonal(c)) if c.dtype in COMPLEX else diagonal(c))
    root = convert(root, c.dtype)
    rows, columns = (lax.broadcast_in_dim(root, c.shape, (k,)) for k in (0, 1))
    c = lax.div(lax.div(c, rows), columns)
    return lax.clamp(-1.0, c, 1.0) if c.dtype in FLOATS else c
