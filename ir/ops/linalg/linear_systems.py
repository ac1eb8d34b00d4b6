"""Linear systems: cholesky, triangular-solve, tridiagonal-solve. References call BLAS and LAPACK through SciPy.

Derivatives: M. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation"
(2008); I. Murray, "Differentiation of the Cholesky decomposition" (2016).
"""

from __future__ import annotations

import numpy as np

from hloom.ir.errors import AttributeValueError, ShapeError
from hloom.ir.op_table import No
from hloom.ir.ops.linalg.matrices import (
    adjoint,
    all_or_each,
    dot,
    each,
    half_lower,
    hermitian,
    library_batch,
    library_op,
    lower_part,
    matrix_factors,
    one_matrix,
    raising,
    require_lapack,
    require_matrix,
    require_square,
    solve,
    stack,
    times_power,
    transposed,
    upper_part,
    zero,
)
from hloom.ir.ops.rules import conjugate, require_count, require_same
from hloom.ir.process.lazy import LazyModule
from hloom.ir.types import NARROW_FLOATS

scipy_lapack = LazyModule("scipy.linalg.lapack")
scipy_blas = LazyModule("scipy.linalg.blas")

# --- cholesky -----------------------------------------------------------------------------------------------------


def _cholesky_reference(a, shape, lower=False):
    if not a.size:
        return np.zeros(shape.dims, shape.dtype)
    if not lower:
        a = a.conj().swapaxes(-1, -2)  # NumPy reads the lower triangle
    factor = all_or_each(np.linalg.cholesky, shape, a)
    # LAPACK propagates an infinite element only partially: set the whole factor to NaN.
    bad = ~np.isfinite(factor).all(axis=(-1, -2))
    if bad.any():
        factor = np.array(factor)
        factor[bad] = np.tril(np.full(factor.shape[-2:], np.nan))
    return factor if lower else np.ascontiguousarray(factor.conj().swapaxes(-1, -2))


def _cholesky_jvp(build, instruction, primals, tangents):
    """dL = L phi(L^-1 dA L^-H), phi the lower part with half of the diagonal."""
    lower = bool(instruction.attributes.get("lower"))
    change = hermitian(tangents[0], lower)
    factor = build.primal
    if lower:
        inner = solve(factor, solve(factor, change), left_side=False, transpose_a="ADJOINT")
        return dot(factor, half_lower(inner))
    inner = solve(factor, change, lower=False, transpose_a="ADJOINT")
    inner = solve(factor, inner, lower=False, left_side=False)
    return dot(adjoint(half_lower(inner)), factor)


library_op(
    "cholesky",
    lambda operands, attributes, shape: one_matrix("cholesky", operands, square=True),
    _cholesky_reference,
    _cholesky_jvp,
    attributes={"lower": "flag"},
    flops=8,
    dialects="hlo",
)

# --- triangular-solve ---------------------------------------------------------------------------------------------

TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


def _triangular_infer(operands, attributes, shape):
    name = "triangular-solve"
    require_count(name, operands, 2)
    a, b = operands
    for operand in operands:
        require_lapack(name, operand, narrow=True)
    if a.dtype != b.dtype:
        require_same(name, operands)
    require_square(name, a, "first operand")
    require_matrix(name, b, "second operand")
    left = attributes.get("left_side", False)
    side = -2 if left else -1
    if a.rank != b.rank or a.dims[:-2] != b.dims[:-2] or a.dims[-1] != b.dims[side]:
        raise ShapeError(
            f"{name} with left_side={bool(left)} takes operands of one batch, the second with as many "
            f"{'rows' if left else 'columns'} as the matrix",
            f"{a!r} and {b!r}",
            "transpose or broadcast the second operand",
        )
    if attributes.get("transpose_a", "NO_TRANSPOSE") not in TRANSPOSES:
        raise AttributeValueError(
            f"{name}: transpose_a is one of {', '.join(TRANSPOSES)}",
            f"{attributes['transpose_a']!r}",
            "choose one of them",
        )
    return b


def _triangular_reference(a, b, shape, left_side=False, lower=False, unit_diagonal=False, transpose_a="NO_TRANSPOSE"):
    if not shape.size:
        return np.zeros(shape.dims, shape.dtype)
    if shape.dtype in NARROW_FLOATS:
        a, b = a.astype(np.float32), b.astype(np.float32)
    if not unit_diagonal:
        power = raising(np.tril(a) if lower else np.triu(a))
        a, b = times_power(a, power), times_power(b, power)
    (solver,) = scipy_blas.get_blas_funcs(("trsm",), dtype=b.dtype)
    flags = {
        "side": 0 if left_side else 1,
        "lower": int(lower),
        "trans_a": TRANSPOSES.index(transpose_a),
        "diag": int(unit_diagonal),
    }
    stacked, right = stack(a), stack(b)
    result = np.empty(right.shape, b.dtype)
    for k in range(len(right)):
        result[k] = solver(1.0, stacked[k], right[k], **flags)
    return result.reshape(shape.dims).astype(shape.dtype, copy=False)


def _turned(value, how):
    return {"NO_TRANSPOSE": lambda v: v, "TRANSPOSE": transposed, "ADJOINT": adjoint}[how](value)


def _triangular_jvp(build, instruction, primals, tangents):
    """op(A) X = B: dX = op(A)^-1 (dB - op(dA) X), with the same triangle of dA as of A."""
    change, right = tangents
    attributes = instruction.attributes
    if change is not None:
        part = (lower_part if attributes.get("lower") else upper_part)(change, bool(attributes.get("unit_diagonal")))
        part = _turned(part, attributes.get("transpose_a", "NO_TRANSPOSE"))
        x = build.primal
        moved = dot(part, x) if attributes.get("left_side") else dot(x, part)
        right = -moved if right is None else right - moved
    return primals[0].op("triangular-solve", right, **attributes)


def _triangular_transpose(build, instruction, g, operands):
    """The pairing is without conjugation: the transposed solve, or for the adjoint one with the conjugate of A."""
    a = operands[0]
    attributes = dict(instruction.attributes)
    how = attributes.get("transpose_a", "NO_TRANSPOSE")
    if how == "ADJOINT":
        a = conjugate(a)
    attributes["transpose_a"] = "TRANSPOSE" if how == "NO_TRANSPOSE" else "NO_TRANSPOSE"
    return [None, a.op("triangular-solve", g, **attributes)]


def _triangular_batch(build, instruction, operands, mapped):
    """One matrix for many right sides: these become columns (rows). Otherwise a batch of matrices."""
    a, b = operands
    if mapped[0] or instruction.operands[1].shape.rank != 2:
        return library_batch(build, instruction, operands, mapped)
    side = 1 if instruction.attributes.get("left_side") else 0
    return build.split(a.op("triangular-solve", build.merge(b, side), **instruction.attributes), side)


_LEFT, _RIGHT = matrix_factors(columns=1), matrix_factors(columns=1, dimension=-2)

library_op(
    "triangular-solve",
    _triangular_infer,
    _triangular_reference,
    _triangular_jvp,
    code=No("BLAS computes it on the host"),
    transpose=_triangular_transpose,
    batch=_triangular_batch,
    factors=lambda instruction: (_LEFT if instruction.attributes.get("left_side") else _RIGHT)(instruction),
    attributes={"left_side": "flag", "lower": "flag", "unit_diagonal": "flag", "transpose_a": "enum?"},
    flops=8,
    dialects="hlo",
)

# --- tridiagonal-solve --------------------------------------------------------------------------------------------


def _tridiagonal_infer(operands, attributes, shape):
    name = "tridiagonal-solve"
    require_count(name, operands, 4)
    below, middle, above, b = operands
    for operand in operands:
        require_lapack(name, operand)
    require_same(name, (below, middle, above))
    if b.dtype != middle.dtype:
        require_same(name, (middle, b))
    require_matrix(name, b, "right side")
    if middle.dims != b.dims[:-1]:
        raise ShapeError(
            f"{name} takes three diagonals (..., n) and a right side (..., n, k)",
            f"diagonals {middle!r}, right side {b!r}",
            "pad the outer diagonals to n elements, and give the right side a last axis",
        )
    return b


def _tridiagonal_reference(below, middle, above, b, shape, perturb_singular=False):
    if not shape.size:
        return np.zeros(shape.dims, shape.dtype)
    if perturb_singular:
        return each(_perturbed_solution, shape, below, middle, above, b, ranks=(1, 1, 1, 2))
    (solver,) = scipy_lapack.get_lapack_funcs(("gtsv",), dtype=b.dtype)

    def one(dl, d, du, right):
        if len(d) == 1:
            with np.errstate(all="ignore"):
                return right / d
        *_, x, info = solver(dl[1:], d, du[:-1], right)
        return x if info == 0 else np.full_like(right, np.nan)

    return each(one, shape, below, middle, above, b, ranks=(1, 1, 1, 2))


def _perturbed_solution(dl, d, du, right):
    """The solution by LU with row exchanges, with pivots perturbed away from zero if it would overflow: by multiples of
    the larger of eps max |U| and the smallest normal number, equal for all right sides.

    Source: LAPACK's xLAGTS with JOB = -1.
    """
    factorize, solver = scipy_lapack.get_lapack_funcs(("gttrf", "gttrs"), dtype=right.dtype)
    n, info = len(d), np.finfo(right.dtype)
    largest = 1 / info.smallest_normal
    if n > 2:
        lower, pivots, upper, second, rows, _ = factorize(dl[1:], d, du[:-1])
        swapped = rows != np.arange(1, n + 1)
        if pivots.all():
            x, _ = solver(lower, pivots, upper, second, rows, right)
            if np.abs(x).max() <= largest:
                return x
    else:
        lower, pivots, upper, second, swapped = _small_factors(dl, d, du)
    x = right.copy()
    for k in range(n - 1):
        if swapped[k]:
            x[k : k + 2] = x[k + 1], x[k] - lower[k] * x[k + 1]
        else:
            x[k + 1] -= lower[k] * x[k]
    least = max(info.eps * max(np.abs(part).max(initial=0) for part in (pivots, upper, second)), info.smallest_normal)
    for k in reversed(range(n)):
        if k + 1 < n:
            x[k] -= upper[k] * x[k + 1]
        if k + 2 < n:
            x[k] -= second[k] * x[k + 2]
        pivot = pivots[k]
        step = least * (pivot / np.abs(pivot) if pivot else np.copysign(1, pivot.real))
        need = np.abs(x[k]).max() / largest
        while np.abs(pivot) < 1 and (not pivot or np.abs(pivot) < need):
            pivot, step = pivot + step, 2 * step
        x[k] /= pivot
    return x


def _small_factors(dl, d, du):
    """LU of a tridiagonal matrix of one or two rows in gttrf's form, as gttrf does not accept them."""
    pivots, upper, swapped = d.copy(), du[:-1].copy(), np.zeros(len(d), bool)
    lower = np.zeros_like(upper)
    if len(d) == 2:
        swapped[0] = np.abs(d[0]) < np.abs(dl[1])
        first, other = ((dl[1], d[1]), (d[0], du[0])) if swapped[0] else ((d[0], du[0]), (dl[1], d[1]))
        lower[0] = other[0] / first[0] if first[0] else 0
        pivots[:], upper[:] = (first[0], other[1] - lower[0] * first[1]), first[1]
    return lower, pivots, upper, d[:0], swapped


def _shift(v, up: bool):
    """Rows shifted by one, up (row i gets row i + 1) or down, zero-filled."""
    pad = ((0, 0, 0),) * (len(v.dims) - 2) + (((-1, 1, 0) if up else (1, -1, 0)), (0, 0, 0))
    return v.op("pad", zero(v), padding=pad)


def _tridiagonal_jvp(build, instruction, primals, tangents):
    """T X = B: dX = T^-1 (dB - dT X)."""
    x = build.primal
    right = tangents[3]
    for change, moved in zip(tangents[:3], (_shift(x, False), x, _shift(x, True)), strict=True):
        if change is None:
            continue
        term = change.broadcast(x.dims, range(len(x.dims) - 1)) * moved
        right = -term if right is None else right - term
    return primals[0].op("tridiagonal-solve", primals[1], primals[2], right, **instruction.attributes)


def _tridiagonal_transpose(build, instruction, g, operands):
    below, middle, above, _ = operands
    lower, upper = (_shift(v.reshape((*v.dims, 1)), up).reshape(v.dims) for v, up in ((above, False), (below, True)))
    return [None, None, None, lower.op("tridiagonal-solve", middle, upper, g, **instruction.attributes)]


library_op(
    "tridiagonal-solve",
    _tridiagonal_infer,
    _tridiagonal_reference,
    _tridiagonal_jvp,
    transpose=_tridiagonal_transpose,
    factors=matrix_factors(core=1, columns=3),
    attributes={"perturb_singular": "frontend"},
    flops=8,
)
