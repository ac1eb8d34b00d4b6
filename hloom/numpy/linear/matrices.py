"""Matrices of ones and zeros, triangles of matrices, and Vandermonde matrices."""

from __future__ import annotations

from hloom import lax
from hloom.errors import ShapeError
from hloom.ir.types import DTYPES, PRED, as_dtype
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    canonical_shape,
    convert,
    default_float,
    reshape_to,
    whole_number,
    with_weakness,
)
from hloom.lax.operands import full as full_constant
from hloom.numpy.creation import on_device
from hloom.tracing.trace import bind


def _offset_mask(rows: int, columns: int, k: int, direction: str):
    """pred (rows, columns): column - row <direction> k."""
    row = lax.broadcasted_iota("s32", (rows, columns), 0)
    column = lax.broadcasted_iota("s32", (rows, columns), 1)
    return bind("compare", column, lax.add(row, k) if k else row, direction=direction)


@on_device
def eye(N, M=None, k: int = 0, dtype=None, *, device=None, out_sharding=None):
    """An N x M matrix (M defaults to N) with ones on diagonal k. Raises ShapeError, DTypeError.

    >>> hnp.eye(2, 3, k=1)
    Array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    rows, columns = canonical_shape((N, N if M is None else M), "eye")
    # A diagonal outside of the matrix is clamped, as its index may not fit into s32.
    offset = max(min(whole_number(k, "eye", "diagonal"), columns + 1), -rows - 1)
    mask = _offset_mask(rows, columns, offset, "EQ")
    return convert(mask, default_float() if dtype is None else as_dtype(dtype))


def identity(n: int, dtype=None):
    """The n x n identity matrix. Raises ShapeError, DTypeError.

    >>> hnp.identity(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype=None):
    """An N x M matrix with ones on and below diagonal k. Raises ShapeError, DTypeError.

    >>> hnp.tri(3, dtype=hnp.int32)
    Array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]], dtype=int32)
    """
    rows, columns = canonical_shape((N, N if M is None else M), "tri")
    return convert(_offset_mask(rows, columns, k, "LE"), default_float() if dtype is None else as_dtype(dtype))


def _triangle(name: str, m, k: int, direction: str):
    x = as_operand(m, name)
    if x.ndim < 2:
        raise ShapeError(f"{name} takes matrices (rank 2 and more)", f"{x._shape!r}", "reshape the operand")
    mask = broadcast_dims_to(_offset_mask(x.shape[-2], x.shape[-1], k, direction), x.shape)
    return with_weakness(lax.select(mask, x, full_constant(0, x.dtype, x.shape)), x.weak)


def tril(m, k: int = 0):
    """m with zeros above diagonal k of its last two axes. Raises ShapeError.

    >>> hnp.tril(hnp.arange(1, 10).reshape(3, 3))
    Array([[1, 0, 0],
           [4, 5, 0],
           [7, 8, 9]], dtype=int32)
    """
    return _triangle("tril", m, k, "LE")


def triu(m, k: int = 0):
    """m with zeros below diagonal k of its last two axes. Raises ShapeError.

    >>> hnp.triu(hnp.arange(1, 10).reshape(3, 3), k=1)
    Array([[0, 2, 3],
           [0, 0, 6],
           [0, 0, 0]], dtype=int32)
    """
    return _triangle("triu", m, k, "GE")


def vander(x, N: int | None = None, increasing: bool = False):
    """Columns of powers of the vector x, N - 1 to 0 (0 to N - 1 if increasing). Raises ShapeError.

    >>> hnp.vander(hnp.array([1, 2, 3]), 3)
    Array([[1, 1, 1],
           [4, 2, 1],
           [9, 3, 1]], dtype=int32)
    """
    x = as_operand(x, "vander")
    if x.ndim != 1:
        raise ShapeError("vander takes a vector", f"{x._shape!r}", "flatten it with hnp.ravel")
    count = x.shape[0] if N is None else whole_number(N, "vander", "number of columns")
    if x.dtype == PRED:
        x = convert(x, DTYPES["s32"])
    if count == 0:
        return full_constant(0, x.dtype, (x.shape[0], 0))
    exponents = range(count) if increasing else range(count - 1, -1, -1)
    return lax.concatenate([reshape_to(lax.integer_pow(x, e), (x.shape[0], 1)) for e in exponents], 1)
