"""Linear algebra with `scipy.linalg`'s and `jax.scipy.linalg`'s names.

Matrices are the last two axes; those before are a batch, unless a function says otherwise. Integers are computed in
float. The arguments overwrite_*, check_finite, lwork, turbo and debug are SciPy's and change nothing here.
"""

from __future__ import annotations

from hloom import lax
from hloom import numpy as hnp
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import COMPLEX, DTYPES
from hloom.lax.linalg import adjoint, square, triangle
from hloom.lax.linalg import conjugate as _conjugate
from hloom.lax.operands import broadcast_dims_to, broadcast_shapes, convert, promote_operands
from hloom.numpy.linalg import _inexact
from hloom.numpy.linear.factorizations import float_matrices as _matrices
from hloom.numpy.linear.factorizations import float_square as _square
from hloom.scipy.matrix_functions import expm, expm_frechet, funm, polar, solve_sylvester, sqrtm
from hloom.scipy.special_matrices import (
    block_diag,
    circulant,
    companion,
    convolution_matrix,
    dft,
    fiedler,
    fiedler_companion,
    hadamard,
    hankel,
    helmert,
    hilbert,
    invhilbert,
    invpascal,
    leslie,
    pascal,
    toeplitz,
)

__all__ = [
    "block_diag",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "circulant",
    "companion",
    "convolution_matrix",
    "det",
    "dft",
    "eigh",
    "eigh_tridiagonal",
    "expm",
    "expm_frechet",
    "fiedler",
    "fiedler_companion",
    "funm",
    "hadamard",
    "hankel",
    "helmert",
    "hessenberg",
    "hilbert",
    "inv",
    "invhilbert",
    "invpascal",
    "leslie",
    "lu",
    "lu_factor",
    "lu_solve",
    "pascal",
    "polar",
    "qr",
    "qr_multiply",
    "rsf2csf",
    "schur",
    "solve",
    "solve_sylvester",
    "solve_triangular",
    "sqrtm",
    "svd",
    "toeplitz",
]
__dir__ = __all__.copy


def _right_side(name: str, a, b):
    """(a, b as (..., n, k), whether b was a vector), of one dtype and one batch."""
    (a, b), _ = promote_operands(name, (a, b), _inexact, broadcast=False)
    if b.ndim < 1 or b.shape[-1 if b.ndim == 1 else -2] != a.shape[-1]:
        raise ShapeError(
            f"{name} takes a right side with as many rows as the matrix",
            f"{a._shape!r} and {b._shape!r}",
            "give it the shape (n,) or (..., n, k)",
        )
    vector = b.ndim == 1
    if vector:
        b = lax.expand_dims(b, (1,))
    batch = broadcast_shapes(name, [a.shape[:-2], b.shape[:-2]])
    a, b = (broadcast_dims_to(x, batch + x.shape[-2:]) for x in (a, b))
    return a, b, vector


# --- factorizations -----------------------------------------------------------------------------------------------


def cholesky(a, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True):
    """The triangular factor of a positive definite matrix: a = U^H U, or L L^H where `lower`. NaN where a is not.

    Raises ShapeError, DTypeError.

    >>> hl.scipy.linalg.cholesky(hnp.array([[4.0, 2.0], [2.0, 5.0]]), lower=True)
    Array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    factor = lax.linalg.cholesky(_square(a, "cholesky"))
    return factor if lower else adjoint(factor)


def cho_factor(a, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True):
    """(the factor of `cholesky`, lower), for `cho_solve`."""
    return cholesky(a, lower), lower


def cho_solve(c_and_lower, b, overwrite_b: bool = False, check_finite: bool = True):
    """x with a x = b, from `cho_factor(a)`. b: (n,) or (..., n, k). Raises ShapeError, DTypeError.

    >>> a, b = hnp.array([[4.0, 2.0], [2.0, 5.0]]), hnp.array([6.0, 7.0])
    >>> hl.scipy.linalg.cho_solve(hl.scipy.linalg.cho_factor(a), b).round(3)
    Array([1., 1.], dtype=float32)
    """
    factor, lower = c_and_lower
    c, b, vector = _right_side("cho_solve", _square(factor, "cho_solve"), b)
    first = {"left_side": True, "lower": lower, "transpose_a": not lower, "conjugate_a": not lower}
    second = {"left_side": True, "lower": lower, "transpose_a": lower, "conjugate_a": lower}
    x = lax.linalg.triangular_solve(c, lax.linalg.triangular_solve(c, b, **first), **second)
    return lax.squeeze(x, (-1,)) if vector else x


def lu_factor(a, overwrite_a: bool = False, check_finite: bool = True):
    """(factors, pivots) of a = P L U, for `lu_solve`: L below the diagonal, U on and above. Raises ShapeError."""
    factors, pivots, _ = lax.linalg.lu(_matrices(a, "lu_factor"))
    return factors, pivots


def lu_solve(lu_and_piv, b, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True):
    """x with a x = b (trans 0), a^T x = b (1) or a^H x = b (2), from `lu_factor(a)`. b: (n,) or (..., n, k).

    Raises ShapeError, ArgumentError, DTypeError.

    >>> factors = hl.scipy.linalg.lu_factor(hnp.array([[2.0, 0.0], [0.0, 4.0]]))
    >>> hl.scipy.linalg.lu_solve(factors, hnp.array([2.0, 8.0]))
    Array([1., 2.], dtype=float32)
    """
    factors, pivots = lu_and_piv
    if trans not in (0, 1, 2):
        raise ArgumentError("lu_solve takes trans 0, 1 or 2", f"{trans!r}", "2 is the conjugate transpose")
    factors, b, vector = _right_side("lu_solve", _square(factors, "lu_solve"), b)
    n = factors.shape[-1]
    order = lax.linalg.lu_pivots_to_permutation(pivots, n)
    order = lax.expand_dims(broadcast_dims_to(order, factors.shape[:-1]), (order.ndim,))

    def step(x, lower: bool):
        return lax.linalg.triangular_solve(
            factors, x, left_side=True, lower=lower, unit_diagonal=lower,
            transpose_a=trans > 0, conjugate_a=trans == 2,
        )  # fmt: skip

    if trans == 0:
        x = step(step(hnp.take_along_axis(b, order, axis=-2), True), False)
    else:
        x = hnp.take_along_axis(step(step(b, False), True), hnp.argsort(order, axis=-2), axis=-2)
    return lax.squeeze(x, (-1,)) if vector else x


def lu(a, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True):
    """(p, l, u) with a = p l u, or (p l, u) where permute_l. Raises ShapeError, DTypeError.

    >>> p, l, u = hl.scipy.linalg.lu(hnp.array([[0.0, 2.0], [4.0, 3.0]]))
    >>> hnp.allclose(p @ l @ u, hnp.array([[0.0, 2.0], [4.0, 3.0]]))
    Array(True, dtype=bool)
    """
    a = _matrices(a, "lu")
    factors, _, order = lax.linalg.lu(a)
    m, n = a.shape[-2:]
    k = min(m, n)
    lower = triangle(factors[..., :k], True, -1) + hnp.eye(m, k, dtype=a.dtype)
    upper = triangle(factors[..., :k, :], False)
    # a[order] = l u: p[order[i], i] = 1.
    rows = lax.broadcasted_iota("s32", (*order.shape[:-1], m, m), order.ndim - 1)
    p = (rows == lax.expand_dims(order, (order.ndim - 1,))).astype(lower.real.dtype)
    return (p @ lower, upper) if permute_l else (p, lower, upper)


def qr(a, overwrite_a: bool = False, lwork=None, mode: str = "full", pivoting: bool = False, check_finite: bool = True):
    """(q, r), with pivoting (q, r, p). mode: 'full', 'economic', or 'r', which returns (r,) or (r, p).

    Raises ShapeError, ArgumentError, DTypeError.

    >>> q, r = hl.scipy.linalg.qr(hnp.ones((5, 2)), mode="economic")
    >>> q.shape, r.shape
    ((5, 2), (2, 2))
    """
    if mode not in ("full", "economic", "r"):
        raise ArgumentError("qr takes mode 'full', 'economic' or 'r'", f"{mode!r}", "choose one of them")
    found = lax.linalg.qr(_matrices(a, "qr"), pivoting=pivoting, full_matrices=mode != "economic")
    return tuple(found[1:]) if mode == "r" else tuple(found)


def qr_multiply(
    a, c, mode: str = "right", pivoting: bool = False, conjugate: bool = False, overwrite_a: bool = False,
    overwrite_c: bool = False,
):  # fmt: skip
    """(q c, r) (mode 'left') or (c q, r) ('right') for the q (..., m, min(m, n)) of a = q r; with pivoting (.., r, p).

    c may be a vector. conjugate: q is conjugated. Raises ShapeError, ArgumentError, DTypeError.
    """
    if mode not in ("left", "right"):
        raise ArgumentError("qr_multiply takes mode 'left' or 'right'", f"{mode!r}", "choose one of them")
    found = lax.linalg.qr(_matrices(a, "qr_multiply"), pivoting=pivoting, full_matrices=False)
    q = _conjugate(found[0]) if conjugate else found[0]
    product = hnp.matmul(q, c) if mode == "left" else hnp.matmul(c, q)
    return (product, *found[1:])


def svd(
    a, full_matrices: bool = True, compute_uv: bool = True, overwrite_a: bool = False, check_finite: bool = True,
    lapack_driver: str = "gesdd",
):  # fmt: skip
    """(u, s, vh) with a = u diag(s) vh, or s alone. Raises ShapeError, DTypeError.

    >>> hl.scipy.linalg.svd(hnp.array([[3.0, 0.0], [0.0, 5.0]]), compute_uv=False).round(3)
    Array([5., 3.], dtype=float32)
    """
    return lax.linalg.svd(_matrices(a, "svd"), full_matrices=full_matrices, compute_uv=compute_uv)


def schur(a, output: str = "real"):
    """(t, z) with a = z t z^H: t quasi triangular (output 'real') or triangular ('complex').

    Raises ShapeError, ArgumentError, DTypeError.

    >>> t, z = hl.scipy.linalg.schur(hnp.array([[1.0, 2.0], [0.0, 3.0]]))
    >>> t.shape
    (2, 2)
    """
    if output not in ("real", "complex"):
        raise ArgumentError("schur takes output 'real' or 'complex'", f"{output!r}", "choose one of them")
    a = _square(a, "schur")
    if output == "complex" and a.dtype not in COMPLEX:
        a = convert(a, DTYPES["c64" if a.dtype == DTYPES["f32"] else "c128"])
    return lax.linalg.schur(a)


def rsf2csf(T, Z, check_finite: bool = True):
    """The complex Schur form (t, z) of a real one: the blocks of 2 are made triangular by rotations.

    T, Z: (n, n), as returned by `schur`. Raises ShapeError, DTypeError.
    """
    t, z = _square(T, "rsf2csf"), _square(Z, "rsf2csf")
    if t.ndim != 2 or t.shape != z.shape:
        raise ShapeError("rsf2csf takes two matrices of one size", f"{t._shape!r}, {z._shape!r}", "check the operands")
    (t, z), _ = promote_operands("rsf2csf", (t, z), broadcast=False)
    wide = t.dtype if t.dtype in COMPLEX else DTYPES["c64" if t.dtype == DTYPES["f32"] else "c128"]
    t, z = convert(t, wide), convert(z, wide)
    n = t.shape[0]
    eps = float(hnp.finfo(t.dtype).eps)
    for m in range(n - 1, 0, -1):
        below = t[m, m - 1]
        needed = hnp.abs(below) > eps * (hnp.abs(t[m - 1, m - 1]) + hnp.abs(t[m, m]))
        a, b, d = t[m - 1, m - 1], t[m - 1, m], t[m, m]
        # The eigenvalue of the block [[a, b], [below, d]], less d, with the root that does not cancel.
        half, root = (a - d) / 2, hnp.sqrt(((a - d) / 2) ** 2 + b * below)
        mu = half + hnp.where(hnp.real(hnp.conj(half) * root) >= 0, root, -root)
        size = hnp.sqrt(hnp.abs(mu) ** 2 + hnp.abs(below) ** 2).astype(wide)
        size = hnp.where(needed, size, 1)
        c, s = hnp.where(needed, mu / size, 1), hnp.where(needed, below / size, 0)
        rotation = hnp.stack([hnp.stack([hnp.conj(c), s]), hnp.stack([-s, c])])
        whole = hnp.eye(n, dtype=wide)
        whole = lax.dynamic_update_slice(whole, rotation.astype(wide), (m - 1, m - 1))
        t, z = whole @ t @ adjoint(whole), z @ adjoint(whole)
        t = hnp.where(hnp.arange(n)[:, None] * n + hnp.arange(n)[None, :] == m * n + m - 1, 0, t)
    return t, z


def hessenberg(a, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True):
    """The Hessenberg form h, zero below the first subdiagonal; with calc_q (h, q) where a = q h q^H.

    Raises ShapeError, DTypeError.
    """
    a = _square(a, "hessenberg")
    form, taus = lax.linalg.hessenberg(a)
    h = triangle(form, False, -1)
    if not calc_q:
        return h
    n = a.shape[-1]
    q = hnp.broadcast_to(hnp.eye(n, dtype=a.dtype), a.shape)
    if n > 1:
        inner = lax.linalg.householder_product(form[..., 1:, : n - 1], taus)
        widths = [(0, 0)] * (a.ndim - 2) + [(1, 0), (1, 0)]
        corner = hnp.zeros((n, n), a.dtype).at[0, 0].set(1)
        q = hnp.pad(inner, widths) + corner
    return h, q


# --- eigenvalues --------------------------------------------------------------------------------------------------


def eigh(
    a, b=None, lower: bool = True, eigvals_only: bool = False, overwrite_a: bool = False, overwrite_b: bool = False,
    turbo: bool = True, eigvals=None, type: int = 1, check_finite: bool = True,
):  # fmt: skip
    """(w, v): ascending eigenvalues and orthonormal eigenvectors of a hermitian matrix, or w alone.

    b: a positive definite matrix, for the general problem a v = w b v (type 1), a b v = w v (2), b a v = w v (3).
    lower: which triangle of a and b is read. Raises ShapeError, ArgumentError, DTypeError.

    >>> values, vectors = hl.scipy.linalg.eigh(hnp.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> values.round(3)
    Array([1., 3.], dtype=float32)
    """
    if eigvals is not None:
        raise ArgumentError("eigh with a range of eigenvalues", f"eigvals={eigvals!r}", "slice the result")
    if type not in (1, 2, 3):
        raise ArgumentError("eigh takes type 1, 2 or 3", f"{type!r}", "1 is a v = w b v")
    a = _square(a, "eigh")
    if b is None:
        if type != 1:
            raise ArgumentError("eigh of type 2 or 3", "no b", "pass b, or leave type out")
        v, w = lax.linalg.eigh(a, lower=lower, symmetrize_input=False)
        return w if eigvals_only else (w, v)
    a, b, _ = _right_side("eigh", a, square(b, "eigh"))
    a, b = (_mirrored(x, lower) for x in (a, b))
    factor = lax.linalg.cholesky(b)

    def solve_with(x, **options):
        return lax.linalg.triangular_solve(factor, x, lower=True, **options)

    if type == 1:
        inner = solve_with(solve_with(a, left_side=True), transpose_a=True, conjugate_a=True)
    else:
        inner = adjoint(factor) @ a @ factor
    v, w = lax.linalg.eigh(inner)
    if eigvals_only:
        return w
    if type == 3:
        return w, factor @ v
    return w, solve_with(v, left_side=True, transpose_a=True, conjugate_a=True)


def _mirrored(x, lower: bool):
    half = triangle(x, lower)
    return half + adjoint(triangle(x, lower, -1 if lower else 1))


def eigh_tridiagonal(d, e, *, eigvals_only: bool = False, select: str = "a", select_range=None, tol=None, key=None):
    """Eigenvalues (and eigenvectors, (w, v)) of a hermitian tridiagonal matrix with diagonal d (n,) and e (n - 1,).

    select: 'a' all, 'i' those with select_range=(first, last) positions, 'v' those with values in (low, high], which
    only works where values are known (not inside jit). Raises ShapeError, ArgumentError, DTypeError.

    >>> d, e = hnp.array([2.0, 2.0]), hnp.array([1.0])
    >>> hl.scipy.linalg.eigh_tridiagonal(d, e, eigvals_only=True).round(3)
    Array([1., 3.], dtype=float32)
    """
    (d, e), _ = promote_operands("eigh_tridiagonal", (d, e), _inexact, broadcast=False)
    if d.ndim != 1 or e.shape != (max(d.shape[0] - 1, 0),):
        raise ShapeError(
            "eigh_tridiagonal takes a diagonal (n,) and an off-diagonal (n - 1,)",
            f"{d._shape!r}, {e._shape!r}",
            "check them",
        )
    if select not in ("a", "i", "v") or (select != "a" and select_range is None):
        raise ArgumentError(
            "eigh_tridiagonal takes select 'a', or 'i' or 'v' with a range", f"{select!r}", "pass select_range"
        )
    matrix = hnp.diag(d) + hnp.diag(e, -1) + hnp.diag(_conjugate(e), 1)
    v, w = lax.linalg.eigh(matrix, symmetrize_input=False)
    if select != "a":
        low, high = select_range
        if select == "i":
            start, stop = int(low), int(high) + 1
        else:
            start, stop = (int(hnp.sum(w <= bound)) for bound in (low, high))
        w, v = w[start:stop], v[:, start:stop]
    return w if eigvals_only else (w, v)


# --- systems, inverses, determinants ------------------------------------------------------------------------------


def solve(
    a, b, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False, debug: bool = False,
    check_finite: bool = True, assume_a: str = "gen",
):  # fmt: skip
    """x with a x = b. assume_a: 'gen', or 'pos' for a hermitian positive definite matrix (its triangle `lower`).

    b: (n,) or (..., n, k). Raises ShapeError, ArgumentError, DTypeError.

    >>> hl.scipy.linalg.solve(hnp.array([[4.0, 2.0], [2.0, 5.0]]), hnp.array([6.0, 7.0]), assume_a="pos").round(3)
    Array([1., 1.], dtype=float32)
    """
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ArgumentError("solve takes assume_a 'gen', 'sym', 'her' or 'pos'", f"{assume_a!r}", "choose one of them")
    if assume_a == "pos":
        a = _mirrored(_square(a, "solve"), lower)
        return cho_solve(cho_factor(a, lower=True), b)
    return hnp.linalg.solve(a, b)


def solve_triangular(
    a, b, trans=0, lower: bool = False, unit_diagonal: bool = False, overwrite_b: bool = False, debug=None,
    check_finite: bool = True,
):  # fmt: skip
    """x with a x = b (trans 0 or 'N'), a^T x = b (1, 'T') or a^H x = b (2, 'C'), a triangular.

    b: (n,) or (..., n, k). Raises ShapeError, ArgumentError, DTypeError.

    >>> a, b = hnp.array([[2.0, 0.0], [1.0, 4.0]]), hnp.array([2.0, 9.0])
    >>> hl.scipy.linalg.solve_triangular(a, b, lower=True)
    Array([1., 2.], dtype=float32)
    """
    which = {0: 0, "N": 0, 1: 1, "T": 1, 2: 2, "C": 2}.get(trans)
    if which is None:
        raise ArgumentError("solve_triangular takes trans 0, 1, 2, 'N', 'T' or 'C'", f"{trans!r}", "choose one of them")
    a, b, vector = _right_side("solve_triangular", square(a, "solve_triangular"), b)
    x = lax.linalg.triangular_solve(
        a, b, left_side=True, lower=lower, unit_diagonal=unit_diagonal, transpose_a=which > 0, conjugate_a=which == 2
    )
    return lax.squeeze(x, (-1,)) if vector else x


def inv(a, overwrite_a: bool = False, check_finite: bool = True):
    """The inverse; inf or NaN of a singular matrix. Raises ShapeError, DTypeError.

    >>> hl.scipy.linalg.inv(hnp.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    return hnp.linalg.inv(a)


def det(a, overwrite_a: bool = False, check_finite: bool = True):
    """The determinant. Raises ShapeError, DTypeError.

    >>> hl.scipy.linalg.det(hnp.array([[2.0, 1.0], [4.0, 3.0]])).round(3)
    Array(2., dtype=float32)
    """
    return hnp.linalg.det(a)
