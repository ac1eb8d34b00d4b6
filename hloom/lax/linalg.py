"""Linear algebra with `jax.lax.linalg`'s names. Matrices are the last two axes; leading axes are a batch.

Elements are f32, f64, c64 or c128 and keep their dtype. LAPACK (through NumPy and SciPy) runs on the host, between the
native segments of a compiled function. The result is NaN for a matrix on which LAPACK fails.
"""

from __future__ import annotations

import enum
import math

import numpy as np

from hloom.errors import ArgumentError, ShapeError
from hloom.ir.sizes.expressions import least
from hloom.ir.types import COMPLEX, DTYPES, Shape, real_dtype
from hloom.lax.elementwise import conj, convert_element_type, eq, ge, le, lt, select
from hloom.lax.movement import (
    broadcasted_iota,
    concatenate,
    expand_dims,
    full_like,
    pad,
    slice_in_dim,
    squeeze,
    transpose,
)
from hloom.lax.operands import as_operand, constant, whole_number
from hloom.lax.reduction import batch_matmul, reduce_max, reduce_sum
from hloom.lax.table import abs as magnitude
from hloom.lax.table import add as plus
from hloom.lax.table import bitwise_not, cbrt, mul, sqrt, sub
from hloom.lax.table import max as maximum
from hloom.lax.table import min as minimum
from hloom.tracing.trace import bind


class SvdAlgorithm(enum.Enum):
    """The algorithm for singular values. On the CPU always LAPACK's gesdd."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


class EighImplementation(enum.Enum):
    """The algorithm for eigenvalues of hermitian matrices. On the CPU always LAPACK's syevd and heevd."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class EigImplementation(enum.Enum):
    """The algorithm for eigenvalues. On the CPU always LAPACK's geev."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


# --- helpers ------------------------------------------------------------------------------------------------------


def matrices(x, name: str):
    """The operand, of rank 2 or more. Raises ShapeError, ArgumentError."""
    x = as_operand(x, name)
    if x.ndim < 2:
        raise ShapeError(
            f"{name} takes a matrix, or a batch of them",
            f"{x._shape!r}, of rank {x.ndim}",
            "reshape the operand to (..., rows, columns)",
        )
    return x


def square(x, name: str):
    """The operand, a square matrix or a batch of them. Raises ShapeError, ArgumentError."""
    x = matrices(x, name)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(
            f"{name} takes a square matrix, or a batch of them",
            f"{x._shape!r}: {x.shape[-2]} rows and {x.shape[-1]} columns",
            "pass as many rows as columns",
        )
    return x


def conjugate(x):
    """The complex conjugate; real arrays are returned unchanged."""
    return conj(x) if x.dtype in COMPLEX else x


def swapped(x):
    """x with its last two axes exchanged."""
    rank = x.ndim
    return transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def adjoint(x):
    return conjugate(swapped(x))


def triangle(x, lower: bool, k: int = 0):
    """x with zeros above (below) its k-th diagonal."""
    rank = x.ndim
    row, column = (broadcasted_iota("s32", x.shape, rank - n) for n in (2, 1))
    difference = sub(column, row)

    return select((le if lower else ge)(difference, k), x, full_like(x, 0))


def _hermitian_part(x):
    return mul(plus(x, adjoint(x)), constant(0.5, x.dtype) if not x.shape else full_like(x, 0.5))


def _checked_subset(name: str, subset_by_index, count: int) -> tuple[int, int] | None:
    if subset_by_index is None:
        return None
    try:
        start, stop = (whole_number(k, name, "subset_by_index") for k in subset_by_index)
        fits = 0 <= start <= stop <= count
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ArgumentError(
            f"{name} takes subset_by_index=(start, stop)", f"{subset_by_index!r} of {count} values", "check the bounds"
        )
    return start, stop


# --- factorizations -----------------------------------------------------------------------------------------------


def cholesky(x, *, symmetrize_input: bool = True):
    """The lower triangular L with x = L L^H, NaN if x is not positive definite.

    symmetrize_input: x is replaced by its hermitian part; otherwise only its lower triangle is read.
    Raises ShapeError, DTypeError.

    >>> hl.lax.linalg.cholesky(hnp.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    x = square(x, "cholesky")
    return bind("cholesky", _hermitian_part(x) if symmetrize_input else x, lower=True)


def cholesky_update(r_matrix, w_vector):
    """The upper triangular factor of R^T R + w w^T, for a real upper triangular R (n, n) and a vector w (n,).

    Computed by the QR factorization of R stacked on w^T, with a positive diagonal. Raises ShapeError, DTypeError.
    """
    r, w = square(r_matrix, "cholesky_update"), as_operand(w_vector, "cholesky_update")
    if r.ndim != 2 or w.shape != r.shape[1:]:
        raise ShapeError(
            "cholesky_update takes a matrix (n, n) and a vector (n,)",
            f"{r._shape!r}, {w._shape!r}",
            "check the sizes",
        )
    _, factor = bind("qr", concatenate([r, expand_dims(w, (0,))], 0))

    diagonal = reduce_sum(select(_on_diagonal(factor), factor, full_like(factor, 0)), (1,))
    sign = select(lt(diagonal, 0.0), full_like(diagonal, -1), full_like(diagonal, 1))
    return mul(factor, bind("broadcast", sign, shape=factor._shape, dimensions=(0,)))


def _on_diagonal(x):
    rank = x.ndim
    return eq(broadcasted_iota("s32", x.shape, rank - 2), broadcasted_iota("s32", x.shape, rank - 1))


def lu(x):
    """(factors, pivots, permutation) of x[permutation] = L U, x of any (..., m, n).

    factors holds U in its upper triangle and L, whose diagonal is 1, below; pivots: s32 (..., min(m, n)), row k was
    exchanged with row pivots[k]; permutation: s32 (..., m). Raises ShapeError, DTypeError.

    >>> packed, pivots, permutation = hl.lax.linalg.lu(hnp.array([[1.0, 2.0], [4.0, 3.0]]))
    >>> permutation
    Array([1, 0], dtype=int32)
    """
    return bind("lu", matrices(x, "lu"))


def lu_pivots_to_permutation(pivots, permutation_size: int):
    """The permutation of `permutation_size` rows that results from the row exchanges `pivots` (..., k). Raises
    ShapeError."""
    x = as_operand(pivots, "lu_pivots_to_permutation")
    size = whole_number(permutation_size, "lu_pivots_to_permutation", "permutation_size")
    return bind("lu-pivots-to-permutation", x, shape=Shape(x.dtype, (*x.shape[:-1], size)))


def qr(x, *, pivoting: bool = False, full_matrices: bool = True, use_magma=None):
    """(q, r) with x = q r, q with orthonormal columns and r upper triangular; with pivoting (q, r, p), x[:, p] = q r.

    full_matrices: q is (..., m, m), otherwise (..., m, min(m, n)). Raises ShapeError, DTypeError.

    >>> q, r = hl.lax.linalg.qr(hnp.ones((5, 2)), full_matrices=False)
    >>> q.shape, r.shape
    ((5, 2), (2, 2))
    """
    x = matrices(x, "qr")
    return bind("qr", x, full_matrices=bool(full_matrices), pivoting=bool(pivoting))


def geqrf(x):
    """(a, taus): the QR factorization as LAPACK stores it, r in the upper triangle, reflections below."""
    return bind("geqrf", matrices(x, "geqrf"))


def householder_product(a, taus):
    """The first n columns of the product of the reflections in a (..., m, n) with scales taus (..., k), k <= n."""
    return bind("householder-product", matrices(a, "householder_product"), as_operand(taus, "householder_product"))


def ormqr(a, taus, c, *, left: bool = True, transpose: bool = False):
    """The product of c with the full orthogonal factor of a QR factorization, or its adjoint.

    a, taus: as for `householder_product`, a (..., m, n). left: Q c, otherwise c Q. Raises ShapeError.
    """
    a, taus, c = matrices(a, "ormqr"), as_operand(taus, "ormqr"), matrices(c, "ormqr")
    rows, count = a.shape[-2], a.shape[-1]
    if c.shape[-2 if left else -1] != rows:
        raise ShapeError(
            f"ormqr multiplies c by a matrix ({rows}, {rows}) from the {'left' if left else 'right'}",
            f"c is {c._shape!r}",
            "transpose c, or change left",
        )
    if count > rows:
        a = slice_in_dim(a, 0, rows, axis=-1)
    elif count < rows:
        widths = [(0, 0, 0)] * (a.ndim - 1) + [(0, rows - count, 0)]

        a = pad(a, constant(0, a.dtype), widths)
    q = householder_product(a, taus)
    q = adjoint(q) if transpose else q
    return batch_matmul(q, c) if left else batch_matmul(c, q)


# --- eigenvalues and singular values ------------------------------------------------------------------------------


def eigh(
    x, *, lower: bool = True, symmetrize_input: bool = True, sort_eigenvalues: bool = True,
    subset_by_index=None, implementation=None,
):  # fmt: skip
    """(v, w): orthonormal eigenvectors in the columns of v and the ascending real eigenvalues w of a hermitian x.

    symmetrize_input: x is replaced by its hermitian part; otherwise only the triangle that `lower` names is read.
    subset_by_index: (start, stop), the values to return. Raises ShapeError, DTypeError, ArgumentError.

    >>> vectors, values = hl.lax.linalg.eigh(hnp.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> values.round(3)
    Array([1., 3.], dtype=float32)
    """
    x = square(x, "eigh")
    subset = _checked_subset("eigh", subset_by_index, x.shape[-1])
    values, vectors = bind("eigh", _hermitian_part(x) if symmetrize_input else x, lower=bool(lower))
    if subset is not None:
        values, vectors = (slice_in_dim(v, *subset, axis=-1) for v in (values, vectors))
    return vectors, values


def eig(
    x, *, compute_left_eigenvectors: bool = True, compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False, implementation=None, use_magma=None,
):  # fmt: skip
    """[w, vl, vr]: complex eigenvalues and, if requested, left and right eigenvectors of length 1.

    vl^H x = w vl^H and x vr = vr w. The eigenvalues and right eigenvectors are differentiable.
    Raises ShapeError, DTypeError.

    >>> values, left, right = hl.lax.linalg.eig(hnp.array([[2.0, 0.0], [0.0, 3.0]]))
    >>> values
    Array([2.+0.j, 3.+0.j], dtype=complex64)
    """
    x = square(x, "eig")
    left, right = bool(compute_left_eigenvectors), bool(compute_right_eigenvectors)
    return list(bind("eig", x, left=left, right=right))


def svd(x, *, full_matrices: bool = True, compute_uv: bool = True, subset_by_index=None, algorithm=None):
    """(u, s, vh) with x = u diag(s) vh and s descending, or s alone.

    full_matrices: u is (..., m, m) and vh (..., n, n), otherwise the outer sizes are min(m, n).
    subset_by_index: (start, stop), the values to return. Raises ShapeError, DTypeError, ArgumentError.

    >>> u, s, vh = hl.lax.linalg.svd(hnp.array([[3.0, 0.0], [0.0, 5.0]]))
    >>> s.round(3)
    Array([5., 3.], dtype=float32)
    """
    x = matrices(x, "svd")
    subset = _checked_subset("svd", subset_by_index, least(*x.shape[-2:]))
    if subset is not None and compute_uv and full_matrices and subset != (0, least(*x.shape[-2:])):
        raise ArgumentError(
            "svd with a subset of the values has the singular vectors of that subset",
            "full_matrices=True",
            "pass full_matrices=False",
        )
    result = bind("svd", x, full_matrices=bool(full_matrices), compute_uv=bool(compute_uv))
    if not compute_uv:
        return result[0] if subset is None else slice_in_dim(result[0], *subset, axis=-1)
    if subset is None:
        return result
    u, s, vh = result
    return slice_in_dim(u, *subset, axis=-1), slice_in_dim(s, *subset, axis=-1), slice_in_dim(vh, *subset, axis=-2)


def schur(x, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False, select_callable=None):
    """(t, q) with x = q t q^H: t upper triangular (with blocks of 2 for pairs of complex eigenvalues of a real x).

    Without compute_schur_vectors [t]. Raises ShapeError, DTypeError; ArgumentError for sorting, which is not supported.

    >>> t, vectors = hl.lax.linalg.schur(hnp.array([[1.0, 2.0], [0.0, 3.0]]))
    >>> t.shape
    (2, 2)
    """
    if sort_eig_vals or select_callable is not None:
        raise ArgumentError(
            "schur with sorted eigenvalues", "sort_eig_vals", "leave sort_eig_vals and select_callable out"
        )
    return bind("schur", square(x, "schur"), vectors=bool(compute_schur_vectors))


def hessenberg(a):
    """(a, taus): the Hessenberg form on and above the first subdiagonal, reflections below. Raises ShapeError.

    >>> a, taus = hl.lax.linalg.hessenberg(hnp.ones((3, 3)))
    >>> a.shape, taus.shape
    ((3, 3), (2,))
    """
    return bind("hessenberg", square(a, "hessenberg"))


def tridiagonal(a, *, lower: bool = True):
    """(a, d, e, taus): a hermitian matrix reduced to diagonal d and off-diagonal e, and the reflections.

    lower: which triangle is read. Raises ShapeError, DTypeError.
    """
    return bind("tridiagonal", square(a, "tridiagonal"), lower=bool(lower))


# --- linear systems -----------------------------------------------------------------------------------------------


def triangular_solve(
    a, b, *, left_side: bool = False, lower: bool = False, transpose_a: bool = False, conjugate_a: bool = False,
    unit_diagonal: bool = False,
):  # fmt: skip
    """The solution x of op(a) x = b (left_side) or x op(a) = b, where op may transpose and conjugate the triangular a.

    a: (..., n, n), of which one triangle is read; b: (..., n, k) or (..., k, n), or one vector (..., n).
    unit_diagonal: the diagonal is taken as 1. Raises ShapeError, DTypeError.

    >>> a, b = hnp.array([[2.0, 0.0], [1.0, 4.0]]), hnp.array([[2.0], [9.0]])
    >>> hl.lax.linalg.triangular_solve(a, b, left_side=True, lower=True)
    Array([[1.],
           [2.]], dtype=float32)
    """
    a, b = square(a, "triangular_solve"), as_operand(b, "triangular_solve")
    vector = b.ndim == a.ndim - 1
    if vector:
        b = expand_dims(b, (-1 if left_side else -2,))
    conjugate_a = conjugate_a and a.dtype in COMPLEX
    if conjugate_a and not transpose_a:
        a, conjugate_a = conj(a), False
    how = "ADJOINT" if conjugate_a else "TRANSPOSE" if transpose_a else "NO_TRANSPOSE"
    result = bind(
        "triangular-solve",
        a,
        b,
        left_side=bool(left_side),
        lower=bool(lower),
        unit_diagonal=bool(unit_diagonal),
        transpose_a=how,
    )
    return squeeze(result, (-1 if left_side else -2,)) if vector else result


def tridiagonal_solve(dl, d, du, b, *, perturb_singular: bool = False):
    """The solution x of T x = b, T tridiagonal: dl below (dl[0] is not read), d on and du above the diagonal (du[-1] is
    not read).

    dl, d, du: (..., n); b: (..., n, k). NaN for a singular T; with perturb_singular, tiny pivots of its LU
    decomposition are perturbed so that the result is finite, for inverse iteration. Raises ShapeError, DTypeError.

    >>> lower, middle, upper = hnp.array([0.0, 1.0]), hnp.array([2.0, 2.0]), hnp.array([1.0, 0.0])
    >>> hl.lax.linalg.tridiagonal_solve(lower, middle, upper, hnp.array([[3.0], [3.0]])).round(3)
    Array([[1.],
           [1.]], dtype=float32)
    """
    attributes = {"perturb_singular": True} if perturb_singular else {}
    return bind("tridiagonal-solve", *(as_operand(x, "tridiagonal_solve") for x in (dl, d, du, b)), **attributes)


def symmetric_product(a_matrix, c_matrix, *, alpha=1.0, beta=0.0, symmetrize_output: bool = False):
    """alpha a a^T + beta c. symmetrize_output: its lower triangle is mirrored. Raises ShapeError, DTypeError.

    >>> a, c = hnp.array([[1.0, 2.0], [3.0, 4.0]]), hnp.zeros((2, 2))
    >>> hl.lax.linalg.symmetric_product(a, c, symmetrize_output=True)
    Array([[ 5., 11.],
           [11., 25.]], dtype=float32)
    """
    a, c = matrices(a_matrix, "symmetric_product"), square(c_matrix, "symmetric_product")
    result = plus(mul(batch_matmul(a, swapped(a)), alpha), mul(c, beta))
    if symmetrize_output:
        lower = triangle(result, True, -1)
        result = plus(triangle(result, True), swapped(lower))
    return result


def qdwh(x, *, is_hermitian: bool = False, max_iterations: int | None = None, eps=None, dynamic_shape=None):
    """(u, h, num_iters, is_converged): the polar decomposition x = u h of a matrix (m, n), m >= n, of full rank.

    Halley's iteration with dynamic weights (Y. Nakatsukasa, Z. Bai and F. Gygi, "Optimizing Halley's iteration for
    computing the matrix polar decomposition", 2010), by QR. The iterations are at most max_iterations, by default 10.
    Raises ShapeError, DTypeError, ArgumentError.
    """
    x = matrices(x, "qdwh")
    if dynamic_shape is not None:
        raise ArgumentError("qdwh of a padded matrix", f"dynamic_shape={dynamic_shape}", "slice the matrix first")
    m, n = x.shape[-2:]
    if x.ndim != 2 or m < n:
        raise ShapeError("qdwh takes one matrix (m, n), m at least n", f"{x._shape!r}", "transpose the matrix")
    unit = 2.0**-23 if real_dtype(x.dtype) == DTYPES["f32"] else 2.0**-52
    eps = unit if eps is None else float(eps)
    steps = 10 if max_iterations is None else whole_number(max_iterations, "qdwh", "max_iterations")
    sums = [reduce_max(reduce_sum(magnitude(x), (axis,)), (0,)) for axis in (0, 1)]  # the 1-norm and the inf-norm
    u = x / sqrt(sums[0] * sums[1])
    bottom = svd(bind("qr", u)[1], compute_uv=False)[-1] * 0.9
    done, count = constant(False, DTYPES["pred"]), constant(0, DTYPES["s32"])
    eye = convert_element_type(np.eye(n), x.dtype)
    for _ in range(steps):
        # The lower bound of the singular values gives the weights; it tends to 1.
        squared = maximum(bottom * bottom, unit**2)
        d = cbrt(4 * (1 - squared) / (squared * squared))
        root = sqrt(1 + d)
        a = root + 0.5 * sqrt(maximum(8 - 4 * d + 8 * (2 - squared) / (squared * root), 0))
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        q, _r = bind("qr", concatenate([(sqrt(c) * u).astype(x.dtype), eye], 0))
        step = (b / c) * u + ((a - b / c) / sqrt(c)) * (q[:m] @ adjoint(q[m:]))
        moved = _frobenius(step - u)
        small = moved <= (4 * eps) ** (1 / 3) * _frobenius(step)
        u = select(done, u, step.astype(x.dtype))
        count = count + convert_element_type(bitwise_not(done), "s32")
        done = done | (small & (magnitude(bottom - 1) < 10 * math.sqrt(unit)))
        bottom = minimum(bottom * (a + b * squared) / (1 + c * squared), 1)
    h = adjoint(u) @ x
    return u, (h + adjoint(h)) / 2, count, done


def _frobenius(x):
    magnitudes = magnitude(x)
    return sqrt(reduce_sum(magnitudes * magnitudes, (0, 1)))


__all__ = [
    "EigImplementation", "EighImplementation", "SvdAlgorithm", "cholesky", "cholesky_update", "eig", "eigh", "geqrf",
    "hessenberg", "householder_product", "lu", "lu_pivots_to_permutation", "ormqr", "qdwh", "qr", "schur", "svd",
    "symmetric_product", "triangular_solve", "tridiagonal", "tridiagonal_solve",
]  # fmt: skip
__dir__ = __all__.copy
