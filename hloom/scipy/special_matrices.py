"""Matrices of a known form: Toeplitz, Hilbert, Pascal and others, with `scipy.linalg`'s names."""

from __future__ import annotations

import math

import numpy as np

from hloom import lax
from hloom import numpy as hnp
from hloom.errors import ArgumentError, ShapeError
from hloom.lax.operands import as_operand, promote_operands, to_inexact, whole_number


def _vector(x, name: str):
    x = as_operand(x, name)
    if x.ndim != 1:
        raise ShapeError(f"{name} takes a vector", f"{x._shape!r}", "reshape the operand")
    return x


def _size(n, name: str, least: int = 0) -> int:
    size = whole_number(n, name, "order")
    if size < least:
        raise ArgumentError(f"{name} takes an order of at least {least}", f"{size}", "pass a larger one")
    return size


def block_diag(*arrs):
    """The arrays (matrices, or vectors as rows) along the diagonal, zeros elsewhere. Raises ShapeError.

    >>> hl.scipy.linalg.block_diag(hnp.array([[1, 2]]), hnp.array([[3]]))
    Array([[1, 2, 0],
           [0, 0, 3]], dtype=int32)
    """
    blocks = [as_operand(a, "block_diag") for a in (arrs or (hnp.zeros((1, 0)),))]
    if any(b.ndim > 2 for b in blocks):
        raise ShapeError("block_diag takes matrices", ", ".join(repr(b._shape) for b in blocks), "reshape them")
    blocks = [hnp.atleast_2d(b) for b in promote_operands("block_diag", blocks, broadcast=False)[0]]
    width = sum(b.shape[1] for b in blocks)
    rows, start = [], 0
    for block in blocks:
        rows.append(hnp.pad(block, ((0, 0), (start, width - start - block.shape[1]))))
        start += block.shape[1]
    return hnp.concatenate(rows, axis=0)


def _windows(vector, rows: int, columns: int, start):
    """vector[start(i, j)] for i < rows, j < columns."""
    i, j = np.arange(rows)[:, None], np.arange(columns)[None, :]
    return hnp.take(vector, hnp.asarray(start(i, j).astype(np.int32)), axis=-1)


def toeplitz(c, r=None):
    """The matrix with constant diagonals: first column c (..., m), first row r (..., n), by default conj(c).

    r[..., 0] is not read. Batch axes broadcast. Raises ShapeError.

    >>> hl.scipy.linalg.toeplitz(hnp.array([1, 2, 3]))
    Array([[1, 2, 3],
           [2, 1, 2],
           [3, 2, 1]], dtype=int32)
    """
    c = as_operand(c, "toeplitz")
    r = hnp.conj(c) if r is None else as_operand(r, "toeplitz")
    c, r = hnp.atleast_1d(c), hnp.atleast_1d(r)
    (c, r), _ = promote_operands("toeplitz", (c, r), broadcast=False)
    batch = np.broadcast_shapes(c.shape[:-1], r.shape[:-1])
    m, n = c.shape[-1], r.shape[-1]
    c, r = hnp.broadcast_to(c, (*batch, m)), hnp.broadcast_to(r, (*batch, n))
    if not m or not n:
        return hnp.zeros((*batch, m, n), c.dtype)
    line = hnp.concatenate([hnp.flip(c, -1), r[..., 1:]], axis=-1)
    return _windows(line, m, n, lambda i, j: m - 1 - i + j)


def circulant(c):
    """The square matrix each column of which is the one before moved down by one; c (..., n) is the first.

    >>> hl.scipy.linalg.circulant(hnp.array([1, 2, 3]))
    Array([[1, 3, 2],
           [2, 1, 3],
           [3, 2, 1]], dtype=int32)
    """
    c = hnp.atleast_1d(as_operand(c, "circulant"))
    n = c.shape[-1]
    return _windows(c, n, n, lambda i, j: (i - j) % max(n, 1)) if n else hnp.zeros((*c.shape, 0), c.dtype)


def hankel(c, r=None):
    """The matrix with constant anti-diagonals: first column c (m,), last row r (n,) (zeros), r[0] unread.

    Raises ShapeError.

    >>> hl.scipy.linalg.hankel(hnp.array([1, 2, 3]))
    Array([[1, 2, 3],
           [2, 3, 0],
           [3, 0, 0]], dtype=int32)
    """
    c = hnp.ravel(as_operand(c, "hankel"))
    r = lax.full_like(c, 0) if r is None else hnp.ravel(as_operand(r, "hankel"))
    (c, r), _ = promote_operands("hankel", (c, r), broadcast=False)
    m, n = c.shape[0], r.shape[0]
    if not m or not n:
        return hnp.zeros((m, n), c.dtype)
    return _windows(hnp.concatenate([c, r[1:]]), m, n, lambda i, j: i + j)


def companion(a):
    """The companion matrix (n - 1, n - 1) of a polynomial with coefficients a (n,), the highest power first.

    >>> hl.scipy.linalg.companion(hnp.array([1.0, -3.0, 2.0]))
    Array([[ 3., -2.],
           [ 1.,  0.]], dtype=float32)
    """
    a = to_inexact(_vector(a, "companion"), "companion")
    n = a.shape[0]
    if n < 2:
        raise ShapeError(
            "companion takes two coefficients or more", f"{a._shape!r}", "pass a polynomial of degree 1 up"
        )
    first = lax.expand_dims(-a[1:] / a[0], (0,))
    return hnp.concatenate([first, hnp.eye(n - 2, n - 1, dtype=a.dtype)], axis=0)


def convolution_matrix(a, n: int, mode: str = "full"):
    """The matrix whose product with v (n,) is convolve(a, v, mode). mode: 'full', 'same' or 'valid'.

    Raises ShapeError, ArgumentError.
    """
    a, n = _vector(a, "convolution_matrix"), _size(n, "convolution_matrix", 1)
    if mode not in ("full", "same", "valid"):
        raise ArgumentError(
            "convolution_matrix takes mode 'full', 'same' or 'valid'", f"{mode!r}", "choose one of them"
        )
    m = a.shape[0]
    if not m:
        raise ShapeError("convolution_matrix takes a vector that is not empty", f"{a._shape!r}", "pass the kernel")
    whole = toeplitz(hnp.pad(a, (0, n - 1)), hnp.pad(a[:1], (0, n - 1)))
    if mode == "full":
        return whole
    count = max(m, n) if mode == "same" else max(m, n) - min(m, n) + 1
    start = (m + n - 1 - count) // 2 if mode == "same" else min(m, n) - 1
    return whole[start : start + count]


def dft(n: int, scale: str | None = None, *, dtype=None):
    """The matrix of the discrete Fourier transform, complex. scale: None, 'sqrtn' (/ sqrt(n)) or 'n' (/ n).

    Raises ArgumentError.

    >>> hl.scipy.linalg.dft(2).real.round(3)
    Array([[ 1.,  1.],
           [ 1., -1.]], dtype=float32)
    """
    n = _size(n, "dft")
    if scale not in (None, "sqrtn", "n"):
        raise ArgumentError("dft takes scale None, 'sqrtn' or 'n'", f"{scale!r}", "choose one of them")
    k = np.arange(n)
    whole = np.exp(-2j * np.pi / max(n, 1) * (np.outer(k, k) % max(n, 1)))
    whole = whole / {None: 1.0, "sqrtn": math.sqrt(n or 1), "n": float(n or 1)}[scale]
    return hnp.asarray(whole, dtype=hnp.complex_ if dtype is None else dtype)


def fiedler(a):
    """|a_i - a_j| of numbers a (..., n). Raises ShapeError."""
    a = hnp.atleast_1d(as_operand(a, "fiedler"))
    return hnp.abs(a[..., :, None] - a[..., None, :])


def fiedler_companion(a):
    """Fiedler's pentadiagonal companion matrix (n - 1, n - 1) of a polynomial a (n,), the highest power first.

    Source: M. Fiedler, "A note on companion matrices" (2003). Raises ShapeError.
    """
    a = to_inexact(_vector(a, "fiedler_companion"), "fiedler_companion")
    n = a.shape[0] - 1
    if n < 1:
        return hnp.zeros((0,), a.dtype)
    a = a / a[0]
    if n == 1:
        return -a[1:].reshape(1, 1)
    c = hnp.zeros((n, n), a.dtype)
    k = np.arange(0, n - 2, 2)
    c = c.at[k, k + 2].set(1)
    k = np.arange(1, n - 1, 2) + 1
    k = k[k < n]
    c = c.at[np.arange(3, n, 2), np.arange(1, n - 2, 2)].set(1) if n > 3 else c
    c = c.at[0, 0].set(-a[1]).at[1, 0].set(1)
    for row in range(0, n - 1, 2):
        c = c.at[row, row + 1].set(-a[row + 2])
    for row in range(2, n, 2):
        c = c.at[row, row - 1].set(-a[row + 1])
    return c


def hadamard(n: int, dtype=int):
    """The Hadamard matrix of an order that is a power of 2 (Sylvester's construction). Raises ArgumentError.

    >>> hl.scipy.linalg.hadamard(2)
    Array([[ 1,  1],
           [ 1, -1]], dtype=int32)
    """
    n = _size(n, "hadamard", 1)
    if n & (n - 1):
        raise ArgumentError("hadamard takes a power of 2", f"{n}", "pass 1, 2, 4, 8, ...")
    k = np.arange(n)
    signs = 1 - 2 * (np.bitwise_count(k[:, None] & k[None, :]) % 2).astype(np.int64)
    return hnp.asarray(signs, dtype=dtype)


def helmert(n: int, full: bool = False):
    """Helmert's matrix: rows orthonormal and, but for the first, of sum 0; the first row is left out unless full."""
    n = _size(n, "helmert", 1)
    k = np.arange(n, dtype=np.float64)
    whole = np.tril(np.ones((n, n)), -1) - np.diag(k)
    whole[0] = 1
    scale = k * (k + 1)
    scale[0] = n
    whole = whole / np.sqrt(scale)[:, None]
    return hnp.asarray(whole if full else whole[1:], dtype=hnp.float_)


def hilbert(n: int):
    """The Hilbert matrix 1 / (i + j + 1). Raises ArgumentError.

    >>> hl.scipy.linalg.hilbert(2)
    Array([[1.        , 0.5       ],
           [0.5       , 0.33333334]], dtype=float32)
    """
    k = np.arange(_size(n, "hilbert"))
    return hnp.asarray(1.0 / (k[:, None] + k[None, :] + 1), dtype=hnp.float_)


def invhilbert(n: int):
    """The inverse of the Hilbert matrix, whose elements are whole numbers. Raises ArgumentError."""
    n = _size(n, "invhilbert")
    rows = [
        [
            (-1) ** (i + j) * (i + j + 1) * math.comb(n + i, n - j - 1) * math.comb(n + j, n - i - 1)
            * math.comb(i + j, i) ** 2
            for j in range(n)
        ]
        for i in range(n)
    ]  # fmt: skip
    return hnp.asarray(np.array(rows, np.float64).reshape(n, n), dtype=hnp.float_)


def leslie(f, s):
    """Leslie's matrix of a population: fecundities f (..., n) in the first row, survival s (..., n - 1) below.

    Raises ShapeError.
    """
    (f, s), _ = promote_operands("leslie", (as_operand(f, "leslie"), as_operand(s, "leslie")), broadcast=False)
    n = f.shape[-1] if f.ndim else 0
    if not f.ndim or s.ndim < 1 or s.shape[-1] != n - 1 or n < 2:
        raise ShapeError(
            "leslie takes f (..., n) and s (..., n - 1), n at least 2", f"{f._shape!r}, {s._shape!r}", "check them"
        )
    batch = np.broadcast_shapes(f.shape[:-1], s.shape[:-1])
    f, s = hnp.broadcast_to(f, (*batch, n)), hnp.broadcast_to(s, (*batch, n - 1))
    below = s[..., :, None] * hnp.eye(n - 1, n, dtype=s.dtype)
    return hnp.concatenate([f[..., None, :], below], axis=-2)


def _kind(name: str, kind) -> str:
    if kind not in (None, "symmetric", "upper", "lower"):
        raise ArgumentError(f"{name} takes kind 'symmetric', 'upper' or 'lower'", f"{kind!r}", "choose one of them")
    return kind or "symmetric"


def pascal(n: int, kind: str | None = None):
    """Pascal's triangle as a matrix: 'symmetric' C(i + j, i), 'lower' C(i, j), 'upper' C(j, i).

    >>> hl.scipy.linalg.pascal(3)
    Array([[1., 1., 1.],
           [1., 2., 3.],
           [1., 3., 6.]], dtype=float32)
    """
    n, kind = _size(n, "pascal"), _kind("pascal", kind)
    lower = np.array([[math.comb(i, j) for j in range(n)] for i in range(n)], np.float64).reshape(n, n)
    whole = {"lower": lower, "upper": lower.T}.get(kind)
    return hnp.asarray(lower @ lower.T if whole is None else whole, dtype=hnp.float_)


def invpascal(n: int, kind: str | None = None):
    """The inverse of `pascal(n, kind)`, whose elements are whole numbers. Raises ArgumentError."""
    n, kind = _size(n, "invpascal"), _kind("invpascal", kind)
    k = np.arange(n)
    lower = np.array([[math.comb(i, j) for j in range(n)] for i in range(n)], np.float64).reshape(n, n)
    lower = lower * (-1.0) ** (k[:, None] + k[None, :])
    whole = {"lower": lower, "upper": lower.T}.get(kind)
    return hnp.asarray(lower.T @ lower if whole is None else whole, dtype=hnp.float_)
