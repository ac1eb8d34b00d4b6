"""Decompositions of matrices: qr, lu, eigh, eig, svd, schur, hessenberg, tridiagonal, householder-product.

HLO has no opcodes for them: in HLO text they are custom calls with the target "hloom.<name>". References call LAPACK
through NumPy, which loops over a batch in C, or through SciPy. The derivatives are in `decomposition_rules`.
"""

from __future__ import annotations

import numpy as np

from hloom.ir.errors import DTypeError, ShapeError
from hloom.ir.op_table import No
from hloom.ir.ops.linalg.decomposition_rules import eig_jvp, eigh_jvp, householder_jvp, lu_jvp, qr_jvp, svd_jvp
from hloom.ir.ops.linalg.matrices import (
    S32,
    all_or_each,
    each,
    exponents,
    library_op,
    matrix_factors,
    one_matrix,
    raising,
    real_shape,
    require_lapack,
    require_matrix,
    times_power,
)
from hloom.ir.ops.rules import require_count, require_kind, zero_jvp
from hloom.ir.process.lazy import LazyModule
from hloom.ir.sizes.expressions import greatest, least
from hloom.ir.types import COMPLEX, DTYPES, Shape, TupleShape

scipy_lapack = LazyModule("scipy.linalg.lapack")
scipy_linalg = LazyModule("scipy.linalg")


def lapack(name: str, dtype):
    (function,) = scipy_lapack.get_lapack_funcs((name,), dtype=dtype)
    return function


def checked(info: int) -> None:
    if info:
        raise np.linalg.LinAlgError


# --- qr -----------------------------------------------------------------------------------------------------------


def _qr_infer(operands, attributes, shape):
    a = one_matrix("qr", operands)
    *batch, m, n = a.dims
    k = m if attributes.get("full_matrices") else least(m, n)
    results = [a.with_dims((*batch, m, k)), a.with_dims((*batch, k, n))]
    if attributes.get("pivoting"):
        results.append(Shape(S32, (*batch, n)))
    return TupleShape(results)


def _qr_reference(a, shape, full_matrices=False, pivoting=False):
    if not pivoting and a.shape[-1] and a.shape[-2]:
        return all_or_each(lambda x: np.linalg.qr(x, "complete" if full_matrices else "reduced"), shape, a)
    m, n = a.shape[-2:]
    k = shape.elements[0].dims[-1]
    if not m or not n:
        q = np.broadcast_to(np.eye(m, k, dtype=a.dtype), shape.elements[0].dims)
        rest = (np.broadcast_to(np.arange(n, dtype=S32), shape.elements[2].dims),) if pivoting else ()
        return (np.array(q), np.zeros(shape.elements[1].dims, a.dtype), *(np.array(r) for r in rest))
    mode = "full" if full_matrices else "economic"
    return each(lambda x: scipy_linalg.qr(x, mode=mode, pivoting=True), shape, a)


library_op(
    "qr", _qr_infer, _qr_reference, qr_jvp, attributes={"full_matrices": "frontend", "pivoting": "frontend"}, flops=20
)

# --- lu -----------------------------------------------------------------------------------------------------------


def _lu_infer(operands, attributes, shape):
    a = one_matrix("lu", operands)
    *batch, m, n = a.dims
    return TupleShape([a, Shape(S32, (*batch, least(m, n))), Shape(S32, (*batch, m))])


def pivots_to_permutation(pivots: np.ndarray, size: int) -> np.ndarray:
    """The order of rows after exchanging row k with row pivots[k], for k = 0, 1, ...."""
    permutation = np.arange(size, dtype=S32)
    for k, pivot in enumerate(pivots):
        permutation[[k, pivot]] = permutation[[pivot, k]]
    return permutation


def _lu_reference(a, shape):
    if not a.size:
        lead = shape.elements[2].dims
        rows = np.array(np.broadcast_to(np.arange(lead[-1], dtype=S32), lead))
        return a, np.zeros(shape.elements[1].dims, S32), rows
    factorize = lapack("getrf", a.dtype)
    power = raising(a)

    def one(x):
        # A zero pivot is not a failure: the factors exist, and U is singular.
        factors, pivots, _ = factorize(x)
        return factors, pivots, pivots_to_permutation(pivots, len(x))

    factors, *orders = each(one, shape, times_power(a, power))
    if power.any():
        row, column = np.indices(a.shape[-2:])
        factors = times_power(factors, np.where(row <= column, -power, 0))
    return factors, *orders


library_op("lu", _lu_infer, _lu_reference, lu_jvp, flops=10)


def _permutation_infer(operands, attributes, shape):
    require_count("lu-pivots-to-permutation", operands, 1)
    (pivots,) = operands
    require_kind("lu-pivots-to-permutation", pivots, ())
    if pivots.dtype not in (S32, DTYPES["s64"]) or pivots.rank < 1:
        raise DTypeError(
            "lu_pivots_to_permutation takes vectors of s32 pivots", f"{pivots!r}", "pass the pivots of lax.linalg.lu"
        )
    if not isinstance(shape, Shape) or shape.dtype != pivots.dtype or shape.dims[:-1] != pivots.dims[:-1]:
        raise ShapeError(
            "lu-pivots-to-permutation needs the shape of its result: that of the pivots with another last dimension",
            f"{shape!r} for {pivots!r}",
            "pass shape=",
        )
    if shape.dims[-1] < pivots.dims[-1]:
        raise ShapeError(
            "lu_pivots_to_permutation makes a permutation of at least as many rows as there are pivots",
            f"{shape.dims[-1]} rows and {pivots.dims[-1]} pivots",
            "pass the number of rows of the matrix",
        )
    return shape


library_op(
    "lu-pivots-to-permutation",
    _permutation_infer,
    lambda pivots, shape: each(lambda p: pivots_to_permutation(p, shape.dims[-1]), shape, pivots, ranks=[1]),
    zero_jvp,
    transpose=No("it computes integers"),
    factors=matrix_factors(core=1),
    shaped=True,
    flops=1,
)

# --- eigenvalues --------------------------------------------------------------------------------------------------


def _eigh_infer(operands, attributes, shape):
    a = one_matrix("eigh", operands, square=True)
    return TupleShape([real_shape(a).with_dims(a.dims[:-1]), a])


def _eigh_reference(a, shape, lower=False):
    if not a.size:
        return np.zeros(shape.elements[0].dims, shape.elements[0].dtype), np.zeros(a.shape, a.dtype)
    return all_or_each(lambda x: _finite(np.linalg.eigh, x, "L" if lower else "U"), shape, a)


def _finite(function, x, *options):
    """LAPACK may not terminate for non-finite inputs: such a batch is processed one by one, with NaN for non-finite
    elements."""
    if not np.isfinite(x).all():
        raise np.linalg.LinAlgError
    return function(x, *options)


library_op("eigh", _eigh_infer, _eigh_reference, eigh_jvp, attributes={"lower": "frontend"}, flops=30)


def _complex(shape: Shape) -> Shape:
    return shape if shape.dtype in COMPLEX else shape.with_dtype("c64" if shape.dtype == DTYPES["f32"] else "c128")


def _eig_infer(operands, attributes, shape):
    a = _complex(one_matrix("eig", operands, square=True))
    return TupleShape([a.with_dims(a.dims[:-1]), *[a] * (bool(attributes.get("left")) + bool(attributes.get("right")))])


def _eig_reference(a, shape, left=False, right=False):
    if not a.size:
        return tuple(np.zeros(s.dims, s.dtype) for s in shape.elements)
    # SciPy's builds of LAPACK's geev lose the scale of matrices out of their bounds.
    power = exponents(a)
    a = times_power(a, -power)
    if not left and not right:
        found = all_or_each(lambda x: (_finite(np.linalg.eigvals, x),), shape, a)
    elif not left:
        found = all_or_each(lambda x: _finite(np.linalg.eig, x), shape, a)
    else:
        found = each(lambda x: _finite(scipy_linalg.eig, x, None, True, right), shape, a)
    values, *vectors = found
    if left:
        _refine(np.swapaxes(a, -1, -2).conj(), values.conj(), vectors[0])
    if right:
        _refine(a, values, vectors[-1])
    return times_power(values, power[..., 0]), *vectors


def _refine(a, values, vectors):
    """Improves eigenvectors with a residual far above rounding, in place, by inverse iteration.

    LAPACK balances matrices. If that scales rows and columns by very different powers, the values are accurate, but the
    vectors, scaled back, may not be. Source: G. Peters, J. Wilkinson, "Inverse iteration, ill-conditioned equations and
    Newton's method" (1979).
    """
    n = a.shape[-1]
    eps = float(np.finfo(a.dtype).eps)
    with np.errstate(all="ignore"):
        bound = 4 * n * eps * np.linalg.norm(a, axis=(-2, -1))[..., None]
        bad = np.linalg.norm(a @ vectors - vectors * values[..., None, :], axis=-2) > bound
    for *lead, k in np.argwhere(bad):
        enough, value = bound[(*lead, 0)], complex(values[(*lead, k)])
        shifted = a[tuple(lead)].astype(np.complex128) - value * np.eye(n)
        best = vectors[(*lead, slice(None), k)].astype(np.complex128)
        least = np.linalg.norm(shifted @ best)
        u, s, vh = np.linalg.svd(shifted)
        # The matrix is numerically singular. Treating singular values below rounding as equal preserves the directions
        # of vectors of close eigenvalues. A left vector nearly orthogonal to its right one needs a lower bound.
        for floor in (2.0**-53, 2.0**-80, 2.0**-110):
            x = best
            for _ in range(2):
                x = vh.conj().T @ ((u.conj().T @ x) / np.maximum(s, floor * s[0]))
                x /= np.linalg.norm(x)
                residual = np.linalg.norm(shifted @ x)
                if residual < least:
                    best, least = x, residual
            if least <= enough:
                break
        best = best if least <= enough else vh[-1].conj()
        # As in LAPACK, the largest element of a vector is real.
        first = best[np.abs(best).argmax()]
        vectors[(*lead, slice(None), k)] = best * (abs(first) / first)


library_op("eig", _eig_infer, _eig_reference, eig_jvp, attributes={"left": "frontend", "right": "frontend"}, flops=80)

# --- svd ----------------------------------------------------------------------------------------------------------


def _svd_infer(operands, attributes, shape):
    a = one_matrix("svd", operands)
    *batch, m, n = a.dims
    k = least(m, n)
    values = real_shape(a).with_dims((*batch, k))
    if not attributes.get("compute_uv"):
        return TupleShape([values])
    full = attributes.get("full_matrices")
    return TupleShape([a.with_dims((*batch, m, m if full else k)), values, a.with_dims((*batch, n if full else k, n))])


def _svd_reference(a, shape, full_matrices=False, compute_uv=False):
    if not a.size:
        made = [np.zeros(s.dims, s.dtype) for s in shape.elements]
        for k in (0, 2) if compute_uv else ():
            made[k] = np.array(np.broadcast_to(np.eye(*made[k].shape[-2:], dtype=a.dtype), made[k].shape))
        return tuple(made)
    if a.ndim == 2 and np.isfinite(a).all():
        # A single matrix uses SciPy's LAPACK, as JAX on CPUs; NumPy loops over batches in C.
        found = lapack("gesdd", a.dtype)(a, compute_uv=int(bool(compute_uv)), full_matrices=int(bool(full_matrices)))
        if found[-1] == 0:
            parts = found[:3] if compute_uv else found[1:2]
            return tuple(np.asarray(p).astype(s.dtype, copy=False) for p, s in zip(parts, shape.elements, strict=True))
    if compute_uv:
        return all_or_each(lambda x: _finite(np.linalg.svd, x, bool(full_matrices)), shape, a)
    return all_or_each(lambda x: (_finite(np.linalg.svd, x, False, False),), shape, a)


library_op(
    "svd", _svd_infer, _svd_reference, svd_jvp, attributes={"full_matrices": "frontend", "compute_uv": "frontend"},
    flops=40,
)  # fmt: skip

# --- Schur, Hessenberg and tridiagonal forms ----------------------------------------------------------------------


def _schur_infer(operands, attributes, shape):
    a = one_matrix("schur", operands, square=True)
    if attributes.get("complex"):
        a = _complex(a)
    return TupleShape([a, a] if attributes.get("vectors") else [a])


def _schur_reference(a, shape, vectors=False, complex=False):  # noqa: A002  (the attribute's name)
    if not a.size:
        return tuple(np.zeros(s.dims, s.dtype) for s in shape.elements)

    def one(x):
        form, basis = scipy_linalg.schur(x.astype(shape.elements[0].dtype), "complex" if complex else "real")
        return (form, basis) if vectors else (form,)

    return each(lambda x: _finite(one, x), shape, a)


library_op(
    "schur", _schur_infer, _schur_reference,
    No("the derivative of a Schur form is not known to hloom"),
    attributes={"vectors": "frontend", "complex": "frontend"}, flops=80,
)  # fmt: skip


def _hessenberg_infer(operands, attributes, shape):
    a = one_matrix("hessenberg", operands, square=True)
    return TupleShape([a, a.with_dims((*a.dims[:-2], greatest(a.dims[-1] - 1, 0)))])


def _hessenberg_reference(a, shape):
    if a.shape[-1] < 2:
        return a, np.zeros(shape.elements[1].dims, a.dtype)
    reduce = lapack("gehrd", a.dtype)

    def one(x):
        form, tau, info = reduce(x)
        checked(info)
        return form, tau

    return each(one, shape, a)


library_op(
    "hessenberg", _hessenberg_infer, _hessenberg_reference,
    No("the derivative of a Hessenberg form is not known to hloom"), flops=20,
)  # fmt: skip


def _tridiagonal_infer(operands, attributes, shape):
    a = one_matrix("tridiagonal", operands, square=True)
    *batch, n, _ = a.dims
    real = real_shape(a)
    less = max(n - 1, 0)
    return TupleShape([a, real.with_dims((*batch, n)), real.with_dims((*batch, less)), a.with_dims((*batch, less))])


def _tridiagonal_reference(a, shape, lower=False):
    if a.shape[-1] < 1:
        return tuple(np.zeros(s.dims, s.dtype) for s in shape.elements)
    reduce = lapack("hetrd" if a.dtype.kind == "c" else "sytrd", a.dtype)

    def one(x):
        *found, info = reduce(x, lower=int(lower))
        checked(info)
        return found

    return each(one, shape, a)


library_op(
    "tridiagonal", _tridiagonal_infer, _tridiagonal_reference,
    No("the derivative of a tridiagonal form is not known to hloom"), attributes={"lower": "frontend"}, flops=20,
)  # fmt: skip

# --- products of Householder reflections --------------------------------------------------------------------------


def _householder_infer(operands, attributes, shape):
    name = "householder-product"
    require_count(name, operands, 2)
    a, taus = operands
    for operand in operands:
        require_lapack(name, operand)
    require_matrix(name, a)
    *batch, m, n = a.dims
    if a.dtype != taus.dtype or m < n or taus.rank != a.rank - 1 or list(taus.dims[:-1]) != batch or taus.dims[-1] > n:
        raise ShapeError(
            f"{name} takes reflectors (..., m, n), m at least n, and scales (..., k), k at most n, of one dtype",
            f"{a!r} and {taus!r}",
            "pass the two results of a QR or Hessenberg reduction",
        )
    return a


def _householder_reference(a, taus, shape):
    if not a.size:
        return np.zeros(shape.dims, shape.dtype)
    form = lapack("ungqr" if a.dtype.kind == "c" else "orgqr", a.dtype)

    def one(x, tau):
        q, _, info = form(x, tau)
        checked(info)
        return q

    return each(one, shape, a, taus, ranks=(2, 1))


library_op("householder-product", _householder_infer, _householder_reference, householder_jvp, flops=10)
