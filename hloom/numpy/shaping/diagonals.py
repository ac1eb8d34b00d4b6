"""Diagonals of arrays: read, built and written."""

from __future__ import annotations

from hloom import lax
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import PRED
from hloom.lax.operands import as_operand, canonical_axes, convert, full, reshape_to
from hloom.numpy.elementwise.logic import where
from hloom.numpy.reducing.reductions import sum
from hloom.numpy.shaping.manipulation import moveaxis, ravel, reshape, resize
from hloom.tracing.trace import bind


def diagonal(a, offset: int = 0, axis1: int = 0, axis2: int = 1):
    """The elements a[i, i + offset] of two axes, along a new last axis. Raises ShapeError.

    >>> hnp.diagonal(hnp.arange(9).reshape(3, 3), offset=1)
    Array([1, 5], dtype=int32)
    """
    x = as_operand(a, "diagonal")
    first, second = canonical_axes((axis1, axis2), x.ndim, "diagonal")
    x = moveaxis(x, (first, second), (-2, -1))
    rows, columns = x.shape[-2:]
    size = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    row, column = max(-offset, 0), max(offset, 0)
    lead = x.shape[:-2]
    if not size:
        return full(0, x.dtype, (*lead, 0))
    whole = tuple((0, d, 1) for d in lead)
    square = lax.slice(
        x,
        (*(0 for _ in lead), row, column),
        (*lead, row + size, column + size),
    )
    flat = reshape_to(square, (*lead, size * size))
    if size == 1:
        return flat
    return bind("slice", flat, weak=flat.weak, slice=(*whole, (0, size * size, size + 1)))


def diag(v, k: int = 0):
    """The k-th diagonal of a matrix, or a matrix with this k-th diagonal and zeros elsewhere. Raises ShapeError.

    >>> hnp.diag(hnp.array([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    >>> hnp.diag(hnp.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    x = as_operand(v, "diag")
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError("diag takes a vector or a matrix", f"{x._shape!r}", "use hnp.diagonal, or flatten it")
    size = x.shape[0]
    if not size:
        return full(0, x.dtype, (abs(k), abs(k)))
    # With `size` zeros between its elements the vector is the flat matrix.
    flat = lax.pad(x, False if x.dtype == PRED else 0, ((0, 0, size),))
    low, high = max(-k, 0), max(k, 0)
    square = reshape_to(flat, (size, size))
    return lax.pad(square, False if x.dtype == PRED else 0, ((low, high, 0), (high, low, 0))) if k else square


def diagflat(v, k: int = 0):
    """A matrix with the elements of v on its k-th diagonal.

    >>> hnp.diagflat(hnp.array([[1, 2]]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    return diag(ravel(v), k)


def trace(a, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype=None, out=None):
    """The sum along a diagonal; dtypes as `hnp.sum`. Raises ShapeError.

    >>> hnp.trace(hnp.array([[1, 2], [3, 4]]))
    Array(5, dtype=int32)
    """
    return sum(diagonal(a, offset, axis1, axis2), -1, dtype)


def fill_diagonal(a, val, wrap: bool = False, *, inplace: bool = False):
    """a with val, which broadcasts, on its main diagonal. inplace=True is rejected. Raises ShapeError, ArgumentError.

    >>> hnp.fill_diagonal(hnp.ones((2, 2)), 5, inplace=False)
    Array([[5., 1.],
           [1., 5.]], dtype=float32)
    """
    if inplace or wrap:
        raise ArgumentError(
            "fill_diagonal returns a new array and does not support wrap", f"{inplace=}, {wrap=}", "pass inplace=False"
        )
    x = as_operand(a, "fill_diagonal")
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) > 1):
        raise ShapeError("fill_diagonal takes a matrix, or equal sizes", f"{x._shape!r}", "check the shape")
    index = [lax.broadcasted_iota("s32", x.shape, k) for k in range(x.ndim)]
    mask = lax.eq(index[0], index[1])
    for other in index[2:]:
        mask = lax.bitwise_and(mask, lax.eq(index[0], other))
    value = convert(as_operand(val, "fill_diagonal"), x.dtype)
    if value.ndim:
        size = min(x.shape)
        value = reshape(resize(value, (size,)), (size,) + (1,) * (x.ndim - 1))
        value = lax.pad(value, 0, ((0, x.shape[0] - size, 0),) + ((0, 0, 0),) * (x.ndim - 1))
    return where(mask, value, x)
