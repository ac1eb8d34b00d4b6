"""Functions of whole matrices: solve, det, adjugate, pinv, sylvester, sqrtm, geqrf. In HLO text: "hloom.<name>".

Each is one LAPACK call, and its derivative consists of ops of this table, so that it is itself differentiable.
Sources: G. Golub and V. Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems whose
variables separate" (1973) (pinv); N. Higham, "Functions of matrices" (2008) (sqrtm, Sylvester's equation); Jacobi's
formula (det).
"""

from __future__ import annotations

import numpy as np

from hloom.ir.errors import ShapeError
from hloom.ir.op_table import No
from hloom.ir.ops.linalg.decompositions import checked, lapack
from hloom.ir.ops.linalg.matrices import (
    adjoint,
    all_or_each,
    diagonal_part,
    dot,
    each,
    exponents,
    identity,
    library_op,
    matrix_factors,
    one_matrix,
    raising,
    real_shape,
    require_lapack,
    require_matrix,
    require_square,
    times_power,
    transposed,
)
from hloom.ir.ops.rules import require_count, require_same
from hloom.ir.process.lazy import LazyModule
from hloom.ir.sizes.expressions import least
from hloom.ir.types import TupleShape

scipy_linalg = LazyModule("scipy.linalg")

# --- linear systems -----------------------------------------------------------------------------------------------


def _solve_infer(operands, attributes, shape):
    require_count("solve", operands, 2)
    a, b = operands
    for operand in operands:
        require_lapack("solve", operand)
    if a.dtype != b.dtype:
        require_same("solve", operands)
    require_square("solve", a, "first operand")
    require_matrix("solve", b, "second operand")
    if a.dims[:-1] != b.dims[:-1]:
        raise ShapeError(
            "solve takes a matrix and a right side with as many rows, and one batch",
            f"{a!r} and {b!r}",
            "broadcast or transpose the second operand",
        )
    return b


def _solve_reference(a, b, shape):
    if not shape.size:
        return np.zeros(shape.dims, shape.dtype)
    power = raising(a)
    return all_or_each(np.linalg.solve, shape, times_power(a, power), times_power(b, power))


def _solve_jvp(build, instruction, primals, tangents):
    """A X = B: dX = A^-1 (dB - dA X)."""
    change, right = tangents
    if change is not None:
        moved = dot(change, build.primal)
        right = -moved if right is None else right - moved
    return primals[0].op("solve", right)


library_op(
    "solve",
    _solve_infer,
    _solve_reference,
    _solve_jvp,
    transpose=lambda build, instruction, g, operands: [None, transposed(operands[0]).op("solve", g)],
    factors=matrix_factors(columns=1),
    flops=12,
)


def _sylvester_infer(operands, attributes, shape):
    name = "sylvester"
    require_count(name, operands, 3)
    a, b, c = operands
    for operand in operands:
        require_lapack(name, operand)
        if operand.dtype != a.dtype:
            require_same(name, operands)
    require_square(name, a, "first operand")
    require_square(name, b, "second operand")
    require_matrix(name, c, "third operand")
    if c.dims[-2:] != (a.dims[-1], b.dims[-1]) or a.dims[:-2] != c.dims[:-2] or b.dims[:-2] != c.dims[:-2]:
        raise ShapeError(
            "A X + X B = C takes A (..., m, m), B (..., n, n) and C (..., m, n)",
            f"{a!r}, {b!r}, {c!r}",
            "check the sizes",
        )
    return c


def _sylvester_reference(a, b, c, shape):
    if not shape.size:
        return np.zeros(shape.dims, shape.dtype)
    power = np.maximum(exponents(a), exponents(b))
    a, b, c = (times_power(x, -power) for x in (a, b, c))  # LAPACK treats sums of tiny eigenvalues as zero
    return each(_solve_sylvester, shape, a, b, c)


def _solve_sylvester(a, b, c):
    """By Schur forms. NaN if A and -B have a common eigenvalue, up to rounding: there is no unique solution."""
    if not all(np.isfinite(x).all() for x in (a, b, c)):
        raise np.linalg.LinAlgError
    output = "complex" if a.dtype.kind == "c" else "real"
    r, u = scipy_linalg.schur(a, output)
    s, v = scipy_linalg.schur(b.conj().T, output)
    y, scale, info = lapack("trsyl", a.dtype)(r, s, u.conj().T @ c @ v, tranb="C")
    checked(info)
    return (u @ y @ v.conj().T) / scale


def _sylvester_jvp(build, instruction, primals, tangents):
    a, b, _ = primals
    x = build.primal
    total = tangents[2]
    for term in (
        None if tangents[0] is None else dot(tangents[0], x),
        None if tangents[1] is None else dot(x, tangents[1]),
    ):
        if term is not None:
            total = -term if total is None else total - term
    return a.op("sylvester", b, total)


def _sylvester_transpose(build, instruction, g, operands):
    a, b, _ = operands
    return [None, None, transposed(a).op("sylvester", transposed(b), g)]


library_op(
    "sylvester",
    _sylvester_infer,
    _sylvester_reference,
    _sylvester_jvp,
    transpose=_sylvester_transpose,
    flops=60,
)

# --- determinants -------------------------------------------------------------------------------------------------


def _det_infer(operands, attributes, shape):
    a = one_matrix("det", operands, square=True)
    return a.with_dims(a.dims[:-2])


def _det_reference(a, shape):
    power = raising(a)
    with np.errstate(all="ignore"):
        found = np.asarray(np.linalg.det(times_power(a, power)))
    return times_power(found, -power[..., 0, 0] * a.shape[-1]).astype(shape.dtype, copy=False).reshape(shape.dims)


def _det_jvp(build, instruction, primals, tangents):
    """d det A = trace(adj(A) dA), also for singular A."""
    (a,) = primals
    rank = len(a.dims)
    return (transposed(a.op("adjugate")) * tangents[0]).sum((rank - 2, rank - 1))


library_op("det", _det_infer, _det_reference, _det_jvp, flops=10)


def _adjugate_reference(a, shape):
    """From A = U S V^H: adj(A) = det(U) det(V^H) V diag(products of the other singular values) U^H."""
    n = a.shape[-1]
    if not a.size:
        return np.zeros(shape.dims, shape.dtype)

    def one(x):
        if not np.isfinite(x).all():
            raise np.linalg.LinAlgError
        u, s, vh = np.linalg.svd(x)
        others = np.prod(np.where(np.eye(n, dtype=bool), 1, s[..., None, :]), axis=-1)
        phase = np.linalg.det(u) * np.linalg.det(vh)
        v, uh = vh.swapaxes(-1, -2).conj(), u.swapaxes(-1, -2).conj()
        return phase[..., None, None] * ((v * others[..., None, :]) @ uh)

    return all_or_each(one, shape, a)


def _adjugate_jvp(build, instruction, primals, tangents):
    """From adj(A) = det(A) A^-1, for regular A."""
    (a,), (change,) = primals, tangents
    rank = len(a.dims)
    adj = build.primal
    turned = dot(adj, change)
    growth = diagonal_part(turned).sum((rank - 2, rank - 1))
    det = a.op("det")
    spread = growth.broadcast(a.dims, range(rank - 2))
    return (spread * adj - dot(turned, adj)) / det.broadcast(a.dims, range(rank - 2))


library_op(
    "adjugate",
    lambda operands, attributes, shape: one_matrix("adjugate", operands, square=True),
    _adjugate_reference,
    _adjugate_jvp,
    flops=60,
)

# --- pseudo-inverse -----------------------------------------------------------------------------------------------


def _pinv_infer(operands, attributes, shape):
    require_count("pinv", operands, 2)
    a = one_matrix("pinv", operands[:1])
    bound = real_shape(a).with_dims(a.dims[:-2])
    if operands[1] is not bound:
        raise ShapeError(
            "pinv takes a relative bound for singular values, one for each matrix",
            f"{operands[1]!r} for {a!r}, expected {bound!r}",
            "broadcast the bound",
        )
    return a.with_dims((*a.dims[:-2], a.dims[-1], a.dims[-2]))


def _pinv_reference(a, bound, shape):
    if not a.size:
        return np.zeros(shape.dims, shape.dtype)

    def one(x, tolerance):
        if not np.isfinite(x).all():
            raise np.linalg.LinAlgError
        u, s, vh = np.linalg.svd(x, full_matrices=False)
        kept = s > tolerance[..., None] * s.max(axis=-1, keepdims=True, initial=0)
        inverse = np.where(kept, 1 / np.where(kept, s, 1), 0)
        return (vh.swapaxes(-1, -2).conj() * inverse[..., None, :]) @ u.swapaxes(-1, -2).conj()

    try:
        with np.errstate(all="ignore"):
            return np.asarray(one(a, bound)).astype(shape.dtype, copy=False)
    except np.linalg.LinAlgError:
        return each(one, shape, a, bound, ranks=(2, 0))


def _pinv_jvp(build, instruction, primals, tangents):
    a, change = primals[0], tangents[0]
    if change is None:
        return None
    p = build.primal
    d_adjoint = adjoint(change)
    result = -dot(dot(p, change), p)
    left, right = dot(a, p), dot(p, a)
    result = result + dot(dot(p, adjoint(p)), dot(d_adjoint, identity(left) - left))
    return result + dot(dot(identity(right) - right, d_adjoint), dot(adjoint(p), p))


library_op(
    "pinv",
    _pinv_infer,
    _pinv_reference,
    _pinv_jvp,
    flops=60,
)

# --- square root --------------------------------------------------------------------------------------------------


def _sqrtm_reference(a, shape):
    if not a.size:
        return np.zeros(shape.dims, shape.dtype)

    def one(x):
        if not np.isfinite(x).all():
            raise np.linalg.LinAlgError
        return scipy_linalg.sqrtm(x)

    return each(one, shape, a)


library_op(
    "sqrtm",
    # A root of a real matrix may be complex, so only complex matrices are accepted.
    lambda operands, attributes, shape: one_matrix("sqrtm", operands, square=True),
    _sqrtm_reference,
    lambda build, instruction, primals, tangents: build.primal.op("sylvester", build.primal, tangents[0]),
    flops=100,
)

# --- the compact form of a QR factorization -------------------------------------------------------------------------


def _geqrf_infer(operands, attributes, shape):
    a = one_matrix("geqrf", operands)
    return TupleShape([a, a.with_dims((*a.dims[:-2], least(*a.dims[-2:])))])


def _geqrf_reference(a, shape):
    if not a.size:
        return a, np.zeros(shape.elements[1].dims, a.dtype)
    factorize = lapack("geqrf", a.dtype)

    def one(x):
        form, tau, _, info = factorize(x)
        checked(info)
        return form, tau

    return each(one, shape, a)


library_op("geqrf", _geqrf_infer, _geqrf_reference, No("the reflections are not differentiated: use qr"), flops=10)
