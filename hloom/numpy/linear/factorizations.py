"""The factorizations and eigenvalues of `hloom.numpy.linalg`: LAPACK's results under NumPy's names."""

from __future__ import annotations

from typing import NamedTuple

from hloom import lax
from hloom.errors import ArgumentError
from hloom.lax.linalg import adjoint, matrices, square, swapped
from hloom.lax.operands import to_inexact


class EigResult(NamedTuple):
    """Eigenvalues and, in columns, eigenvectors."""

    eigenvalues: object
    eigenvectors: object


class EighResult(NamedTuple):
    """Ascending real eigenvalues and, in columns, orthonormal eigenvectors."""

    eigenvalues: object
    eigenvectors: object


class QRResult(NamedTuple):
    """An orthogonal and an upper triangular factor."""

    Q: object
    R: object


class SVDResult(NamedTuple):
    """Left singular vectors in columns, descending singular values, right singular vectors in rows (adjoint)."""

    U: object
    S: object
    Vh: object


def float_matrices(a, name: str):
    """Matrices of floats; integers are converted. name: the function, in errors."""
    return to_inexact(matrices(a, name), name)


def float_square(a, name: str):
    """Square matrices of floats; integers are converted. name: the function, in errors."""
    return to_inexact(square(a, name), name)


# --- factorizations -----------------------------------------------------------------------------------------------


def cholesky(a, *, upper: bool = False, symmetrize_input: bool = True):
    """The lower triangular L with a = L L^H, or the upper U with a = U^H U; NaN if a is not positive definite.

    symmetrize_input: first replaces a by its hermitian part. Raises ShapeError, DTypeError.

    >>> hnp.linalg.cholesky(hnp.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    factor = lax.linalg.cholesky(float_square(a, "cholesky"), symmetrize_input=symmetrize_input)
    return adjoint(factor) if upper else factor


def qr(a, mode: str = "reduced"):
    """QRResult(Q, R) of a = Q R. mode: 'reduced', 'complete' (a square Q), 'r' (R alone) or 'raw' (LAPACK's form).

    Raises ShapeError, DTypeError, ArgumentError.

    >>> q, r = hnp.linalg.qr(hnp.array([[3.0, 1.0], [4.0, 2.0], [0.0, 5.0]]))
    >>> q.shape, r.shape
    ((3, 2), (2, 2))
    """
    a = float_matrices(a, "qr")
    if mode == "raw":
        form, taus = lax.linalg.geqrf(a)
        return QRResult(swapped(form), taus)
    if mode not in ("reduced", "r", "full", "complete"):
        raise ArgumentError("qr takes mode 'reduced', 'complete', 'r' or 'raw'", f"{mode!r}", "choose one of them")
    q, r = lax.linalg.qr(a, full_matrices=mode in ("full", "complete"))
    return r if mode == "r" else QRResult(q, r)


def svd(a, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False, subset_by_index=None):
    """SVDResult(U, S, Vh) of a = U diag(S) Vh, S descending; S alone without compute_uv.

    full_matrices: U and Vh are square. hermitian: a is known to be hermitian. subset_by_index: (start, stop), the
    values to return. Raises ShapeError, DTypeError, ArgumentError.

    >>> u, s, vh = hnp.linalg.svd(hnp.array([[3.0, 0.0], [0.0, 5.0], [0.0, 0.0]]), full_matrices=False)
    >>> s.round(3)
    Array([5., 3.], dtype=float32)
    >>> u.shape, vh.shape
    ((3, 2), (2, 2))
    """
    a = float_matrices(a, "svd")
    if hermitian and not compute_uv and subset_by_index is None:
        return lax.rev(_sorted(lax.abs(eigvalsh(a))), (a.ndim - 2,))
    found = lax.linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index)
    return SVDResult(*found) if compute_uv else found


def _sorted(x):
    return lax.sort(x, dimension=x.ndim - 1)


def svdvals(x, /):
    """The singular values, descending. Raises ShapeError, DTypeError.

    >>> hnp.linalg.svdvals(hnp.array([[3.0, 0.0], [0.0, 5.0]])).round(3)
    Array([5., 3.], dtype=float32)
    """
    return svd(x, full_matrices=False, compute_uv=False)


# --- eigenvalues --------------------------------------------------------------------------------------------------


def eig(a):
    """EigResult(eigenvalues, eigenvectors), complex, of a general matrix, unordered. Raises ShapeError, DTypeError.

    >>> values, vectors = hnp.linalg.eig(hnp.array([[2.0, 0.0], [0.0, 3.0]]))
    >>> values
    Array([2.+0.j, 3.+0.j], dtype=complex64)
    """
    values, vectors = lax.linalg.eig(float_square(a, "eig"), compute_left_eigenvectors=False)
    return EigResult(values, vectors)


def eigvals(a):
    """The complex eigenvalues of a general matrix, unordered. Raises ShapeError, DTypeError.

    >>> hnp.sort(hnp.linalg.eigvals(hnp.array([[0.0, 1.0], [-2.0, -3.0]])).real).round(3)
    Array([-2., -1.], dtype=float32)
    """
    a = float_square(a, "eigvals")
    return lax.linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


def eigh(a, UPLO: str | None = None, symmetrize_input: bool = True):
    """EighResult(eigenvalues, eigenvectors) of a hermitian matrix: real and ascending, columns orthonormal.

    UPLO: the triangle that is read, 'L' or 'U', if symmetrize_input is False. Raises ShapeError, ArgumentError.

    >>> values, vectors = hnp.linalg.eigh(hnp.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> values.round(3)
    Array([1., 3.], dtype=float32)
    >>> vectors.shape
    (2, 2)
    """
    which = UPLO if UPLO is not None else "L"
    if which not in ("L", "U"):
        raise ArgumentError("eigh takes UPLO 'L' or 'U'", f"{UPLO!r}", "choose one of them")
    vectors, values = lax.linalg.eigh(float_square(a, "eigh"), lower=which == "L", symmetrize_input=symmetrize_input)
    return EighResult(values, vectors)


def eigvalsh(a, UPLO: str | None = "L", *, symmetrize_input: bool = True):
    """The ascending real eigenvalues of a hermitian matrix. Raises ShapeError, DTypeError, ArgumentError.

    >>> hnp.linalg.eigvalsh(hnp.array([[2.0, 1.0], [1.0, 2.0]])).round(3)
    Array([1., 3.], dtype=float32)
    """
    return eigh(a, UPLO, symmetrize_input).eigenvalues
