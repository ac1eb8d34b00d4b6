"""Every function of linear algebra, with what its results have to fulfil."""

from __future__ import annotations

import math

import numpy as np
from matrix_cases import (
    Case,
    Errors,
    adjoint,
    function,
    hermitian_of,
    largest,
    orthonormal,
    right_sides,
    scaled,
    square_side,
)

# --- singular values --------------------------------------------------------------------------------------------------


def _values(case: Case, s: np.ndarray) -> Errors:
    yield "the values of LAPACK", largest(case.back(s) - case.s), case.unit
    yield "in descending order", float((np.diff(s) > 0).any() or (s < 0).any()), 1e-3


@function("svd values", lambda x, a: x.np.linalg.svd(a, compute_uv=False))
@function("svdvals", lambda x, a: x.np.linalg.svdvals(a))
def _svd_values(case, s):
    return _values(case, s)


@function("svd", lambda x, a: tuple(x.np.linalg.svd(a, full_matrices=False)))
@function("svd full", lambda x, a: tuple(x.np.linalg.svd(a)))
@function("scipy svd", lambda x, a: tuple(x.sp.linalg.svd(a)))
@function("lax svd", lambda x, a: tuple(x.lax.linalg.svd(a, full_matrices=False)))
def _svd(case, u, s, vh):
    yield from _values(case, s)
    yield from orthonormal(case, u, "U")
    yield from orthonormal(case, adjoint(vh), "V")
    k = len(s)
    product = (scaled(u, 0)[:, :k] * case.back(s)) @ scaled(vh, 0)[:k]
    yield "U S V^H = A", largest(product - case.w), case.unit


@function("polar", lambda x, a: tuple(x.sp.linalg.polar(a)), "tall")
def _polar(case, u, p):
    yield from orthonormal(case, u, "U")
    yield "U P = A", largest(scaled(u, 0) @ case.back(p) - case.w), case.unit
    yield "P = P^H", largest(case.back(p) - adjoint(case.back(p))), case.unit


def _clear_rank(case: Case, bound: float) -> int | None:
    """The rank, where no singular value is near the bound."""
    limit = bound * case.norm
    noise = case.eps * case.norm * 3 + case.floor
    if any(limit - noise <= s <= limit + noise for s in case.s) and case.norm:
        return None
    return int((case.s > limit).sum())


@function("matrix_rank", lambda x, a: x.np.linalg.matrix_rank(a, rtol=1e-3), nan="free")
def _matrix_rank(case, rank):
    wanted = _clear_rank(case, 1e-3)
    if wanted is not None:
        yield "the rank of LAPACK", abs(int(rank) - wanted), 1e-3


@function("matrix_rank by default", lambda x, a: x.np.linalg.matrix_rank(a), nan="free")
def _default_rank(case, rank):
    most = int((case.s > 0.1 * case.eps * case.norm).sum())
    least = int((case.s > 10 * case.eps * case.norm).sum())
    yield "between the ranks of near bounds", float(not least <= int(rank) <= most), 1e-3


def _inverse_of(case: Case, x: np.ndarray, rank: int) -> Errors:
    """x: a pseudo-inverse with this rank. Overflow of numbers beyond the range is right."""
    if not case.norm or not rank:
        yield "0", largest(x), 1e-300
        return
    u, s, vh = np.linalg.svd(case.w, full_matrices=False)
    wanted = adjoint(vh[:rank] / s[:rank, None]) @ adjoint(u[:, :rank])
    if not math.isfinite(largest(x)):
        beyond = math.log2(1 / s[rank - 1]) + case.power >= math.log2(float(case.info.max)) - 1
        yield "finite", 0.0 if beyond else math.inf, 1.0
        return
    x = scaled(x, -case.power)
    condition = s[0] / s[rank - 1]
    small = math.ldexp(float(case.info.smallest_subnormal), max(-case.power, -1074))
    yield "the pseudo-inverse", largest(x - wanted), case.eps * condition / s[rank - 1] + small


@function("pinv", lambda x, a: x.np.linalg.pinv(a, rtol=1e-3))
def _pinv(case, x):
    rank = _clear_rank(case, 1e-3)
    if rank is not None:
        yield from _inverse_of(case, x, rank)


@function("pinv by default", lambda x, a: x.np.linalg.pinv(a))
def _default_pinv(case, x):
    bound = 10 * case.eps
    rank = _clear_rank(case, bound)
    if rank is not None and not any(case.s[rank:] > bound / 30 * case.norm):
        yield from _inverse_of(case, x, rank)


def _norms(x, a):
    norm = x.np.linalg.norm
    return norm(a, 2), norm(a, -2), norm(a, "nuc"), norm(a, 1), norm(a, -np.inf)


@function("norms", _norms, nan="free")
def _norm(case, *found):
    size = np.abs(case.w)
    wanted = [case.norm, case.least, case.s.sum(), size.sum(0).max(), size.sum(1).min()]
    for what, one, right in zip(("2", "-2", "nuc", "1", "-inf"), found, wanted, strict=True):
        if math.isinf(one) and math.log2(right) - case.power >= math.log2(float(case.info.max)) - 0.01:
            continue
        scale = case.unit * (len(case.s) if what == "nuc" else 1)
        yield f"the norm {what}", abs(float(case.back(one)) - right), scale


@function("cond", lambda x, a: x.np.linalg.cond(a), nan="all")
def _cond(case, found):
    if case.well and case.norm:
        wanted = case.norm / case.least
        yield "the condition", abs(found - wanted), case.eps * wanted * wanted + case.floor * wanted * wanted
    else:
        yield "a large condition", 0.0 if found >= 1 / (3000 * case.eps) or found == math.inf else math.inf, 1.0


@function("cond 1", lambda x, a: x.np.linalg.cond(a, 1), "square", nan="free")
def _cond_1(case, found):
    if case.well and case.norm:
        with np.errstate(all="ignore"):
            inverse = np.linalg.inv(case.w)
            wanted = np.abs(case.w).sum(0).max() * np.abs(inverse).sum(0).max()
        beyond = math.log2(1 / case.least) + abs(case.power) >= math.log2(float(case.info.max)) - 3
        if not (beyond and not math.isfinite(found)):
            yield (
                "the condition",
                abs(found - wanted),
                case.eps * wanted * (case.norm / case.least) + case.floor * wanted**2,
            )
    else:
        yield (
            "a large condition",
            0.0 if found >= 1 / (3000 * case.eps * case.side) or not math.isfinite(found) else math.inf,
            1.0,
        )


@function("lstsq", lambda x, a, b: tuple(x.np.linalg.lstsq(a, b, rcond=1e-3)), operands=("a", "b"), nan="free")
def _lstsq(case, x, residuals, rank, s):
    yield from _values(case, s)
    wanted = _clear_rank(case, 1e-3)
    if wanted is None:
        return
    yield "the rank of LAPACK", abs(int(rank) - wanted), 1e-3
    u, s, vh = np.linalg.svd(case.w, full_matrices=False)
    b = case.back(right_sides(case.a))  # as large as the matrix: x is about 1
    x_wanted = adjoint(vh[:wanted]) @ ((adjoint(u[:, :wanted]) @ b) / s[:wanted, None])
    condition = s[0] / s[wanted - 1] if wanted else 1.0
    size = largest(b) * case.side
    error = size * (case.eps * condition + case.floor * condition) / (s[wanted - 1] if wanted else 1.0)
    yield "the least squares solution", largest(scaled(x, 0) - x_wanted), error + 1e-300


# --- eigenvalues ------------------------------------------------------------------------------------------------------


def _eigenvalues(case, w):
    wanted = np.linalg.eigvalsh(case.w)
    yield "the values of LAPACK", largest(case.back(w) - wanted), case.unit
    yield "in ascending order", float((np.diff(w) < 0).any()), 1e-3


@function("eigvalsh", lambda x, h: x.np.linalg.eigvalsh(h), "square", ("h",))
def _eigvalsh(case, w):
    return _eigenvalues(case, w)


def _eigh(case, w, v):
    yield from _eigenvalues(case, w)
    yield from orthonormal(case, v, "V")
    v = scaled(v, 0)
    yield "A V = V W", largest(case.w @ v - v * case.back(w)), case.unit


@function("eigh", lambda x, h: tuple(x.np.linalg.eigh(h)), "square", ("h",))
@function("scipy eigh", lambda x, h: tuple(x.sp.linalg.eigh(h)), "square", ("h",))
def _eigh_all(case, w, v):
    return _eigh(case, w, v)


def _upper_only(x, h):
    v, w = x.lax.linalg.eigh(x.np.triu(h), lower=False, symmetrize_input=False)
    return w, v


@function("lax eigh of the upper triangle", _upper_only, "square", ("h",), nan="free")
def _eigh_upper(case, w, v):
    return _eigh(case, w, v)


def _near_eigenvalues(case: Case, w: np.ndarray) -> Errors:
    """Each value is an eigenvalue of a near matrix, and their sum is the trace."""
    w = case.back(w)
    if not np.isfinite(w).all():
        yield "finite", math.inf, 1.0
        return
    shifted = case.w - w[:, None, None] * np.eye(case.n)
    least = np.linalg.svd(shifted, compute_uv=False)[:, -1]
    yield "eigenvalues of a near matrix", largest(least), case.unit
    yield "the sum of the values", abs(w.sum() - np.trace(case.w)), case.unit * case.n


@function("eigvals", lambda x, a: x.np.linalg.eigvals(a), "square", on_host=True)
def _eigvals(case, w):
    return _near_eigenvalues(case, w)


@function("eig", lambda x, a: tuple(x.np.linalg.eig(a)), "square", on_host=True)
def _eig(case, w, v):
    yield from _near_eigenvalues(case, w)
    v = scaled(v, 0)
    yield "vectors of length 1", largest(np.linalg.norm(v, axis=0) - 1), case.eps
    yield "A V = V W", largest(case.w @ v - v * case.back(w)), case.unit


@function("left eigenvectors", lambda x, a: tuple(x.lax.linalg.eig(a)), "square", on_host=True)
def _left(case, w, left, right):
    yield from _eig(case, w, right)
    left = scaled(left, 0)
    yield "V^H A = W V^H", largest(adjoint(left) @ case.w - case.back(w)[:, None] * adjoint(left)), case.unit


@function("schur", lambda x, a: tuple(x.sp.linalg.schur(a, output="complex")), "square", on_host=True)
def _schur(case, t, z):
    yield from orthonormal(case, z, "Z")
    z, t = scaled(z, 0), case.back(t)
    yield "Z T Z^H = A", largest(z @ t @ adjoint(z) - case.w), case.unit
    yield "triangular", largest(np.tril(t, -1)), case.unit


@function("hessenberg", lambda x, a: tuple(x.sp.linalg.hessenberg(a, calc_q=True)), "square", on_host=True, nan="some")
def _hessenberg(case, h, q):
    yield from orthonormal(case, q)
    q, h = scaled(q, 0), case.back(h)
    yield "Q H Q^H = A", largest(q @ h @ adjoint(q) - case.w), case.unit


# --- factorizations ---------------------------------------------------------------------------------------------------


def _qr(case, q, r):
    yield from orthonormal(case, q)
    yield "Q R = A", largest(scaled(q, 0) @ case.back(r) - case.w), case.unit
    yield "R is triangular", largest(np.tril(r, -1)), 1e-300


@function("qr", lambda x, a: tuple(x.np.linalg.qr(a)), nan="some")
@function("qr complete", lambda x, a: tuple(x.np.linalg.qr(a, mode="complete")), nan="some")
@function("scipy qr", lambda x, a: tuple(x.sp.linalg.qr(a, mode="economic")), nan="some")
def _qr_all(case, q, r):
    return _qr(case, q, r)


@function(
    "qr with pivoting", lambda x, a: tuple(x.sp.linalg.qr(a, mode="economic", pivoting=True)), on_host=True, nan="some"
)
def _pivoted(case, q, r, order):
    yield "a permutation", float(sorted(order.tolist()) != list(range(case.n))), 1e-3
    yield from orthonormal(case, q)
    yield "Q R = A P", largest(scaled(q, 0) @ case.back(r) - case.w[:, order]), case.unit
    sizes = np.abs(np.diag(case.back(r)))
    yield "a descending diagonal", largest(np.maximum(np.diff(sizes), 0)), case.unit


def _from_raw(x, a):
    factors, taus = x.lax.linalg.geqrf(a)
    return x.lax.linalg.householder_product(factors, taus), x.np.triu(factors)


@function("geqrf", _from_raw, "tall", nan="some")
def _geqrf(case, q, r):
    return _qr(case, q, r[: case.n])


@function("lu", lambda x, a: tuple(x.sp.linalg.lu(a)), nan="free")
def _lu(case, p, lower, upper):
    yield "a permutation", float((p.sum(0) != 1).any() or (p.sum(1) != 1).any()), 1e-3
    lower, upper = scaled(lower, 0), case.back(upper)
    yield "|L| is at most 1", max(largest(lower) - math.sqrt(2), 0), case.eps
    scale = largest(np.abs(lower) @ np.abs(upper))
    yield "P L U = A", largest(p @ lower @ upper - case.w), case.eps * scale + case.floor


@function("lax lu", lambda x, a: tuple(x.lax.linalg.lu(a)), nan="free")
def _lax_lu(case, factors, pivots, order):
    yield "a permutation", float(sorted(order.tolist()) != list(range(case.m))), 1e-3
    k = min(case.m, case.n)
    lower = np.tril(scaled(factors, 0), -1)[:, :k] + np.eye(case.m, k)
    upper = np.triu(case.back(factors))[:k]
    scale = largest(np.abs(lower) @ np.abs(upper))
    yield "L U = P A", largest(lower @ upper - case.w[order]), case.eps * scale + case.floor


@function("cholesky", lambda x, p: x.np.linalg.cholesky(p), "square", ("p",), nan="some")
@function(
    "cholesky upper",
    lambda x, p: x.np.matrix_transpose(x.np.linalg.cholesky(p, upper=True)).conj(),
    "square",
    ("p",),
    nan="some",
)
@function("scipy cholesky", lambda x, p: x.sp.linalg.cholesky(p, lower=True), "square", ("p",), nan="some")
def _cholesky(case, factor):
    least = np.linalg.eigvalsh(case.w)[0]
    if not math.isfinite(largest(factor)):
        yield "it exists", 0.0 if least < 30 * case.eps * case.norm + case.floor else math.inf, 1.0
        return
    half = (-case.power) // 2  # the factor grows with the root
    wide = scaled(factor, -half)
    yield "L L^H = A", largest(wide @ adjoint(wide) - scaled(case.w, -case.power - 2 * half)), case.unit * 4
    yield "it is triangular", largest(np.triu(factor, 1)), 1e-300


# --- systems ----------------------------------------------------------------------------------------------------------


def _system(case: Case, x: np.ndarray, b: np.ndarray, a: np.ndarray | None = None) -> Errors:
    """a x = b, both for w. The residual is small against |a| |x| whatever the condition."""
    if not math.isfinite(largest(x)):
        yield "finite", 0.0 if not case.well else math.inf, 1.0
        return
    a = case.w if a is None else a
    size = largest(np.abs(a) @ np.abs(x)) * case.side + largest(b)
    yield "A X = B", largest(a @ x - b), case.eps * size + case.floor * (1 + largest(x))


@function("solve", lambda x, a, b: x.np.linalg.solve(a, b), "square", ("a", "b"), nan="some")
@function("scipy solve", lambda x, a, b: x.sp.linalg.solve(a, b), "square", ("a", "b"), nan="some")
@function(
    "lu_solve", lambda x, a, b: x.sp.linalg.lu_solve(x.sp.linalg.lu_factor(a), b), "square", ("a", "b"), nan="free"
)
def _solve(case, x):
    return _system(case, scaled(x, 0), case.back(right_sides(case.a)))


@function("inv", lambda x, a: x.np.linalg.inv(a), "square", nan="some")
@function("scipy inv", lambda x, a: x.sp.linalg.inv(a), "square", nan="some")
def _inv(case, x):
    if not math.isfinite(largest(x)) and case.well:
        beyond = math.log2(1 / case.least) + case.power >= math.log2(float(case.info.max)) - 1
        yield "finite", 0.0 if beyond else math.inf, 1.0
        return
    tiny = math.ldexp(float(case.info.smallest_subnormal) * case.side, max(-case.power, -1000))
    found = scaled(x, -case.power)
    if math.isfinite(largest(found)):
        size = largest(np.abs(case.w) @ np.abs(found)) * case.side + 1
        yield "A X = 1", largest(case.w @ found - np.eye(case.n)), case.eps * size + case.norm * tiny


@function(
    "triangular solve", lambda x, a, b: x.sp.linalg.solve_triangular(a, b, lower=True), "square", ("a", "b"), nan="free"
)
def _triangular(case, x):
    lower = np.tril(case.w)
    x = scaled(x, 0)
    if not math.isfinite(largest(x)):
        s = np.linalg.svd(lower, compute_uv=False)
        beyond = -case.power - math.log2(s[-1] / s[0]) >= math.log2(float(case.info.max)) - 3 if s[-1] else True
        yield "finite", 0.0 if s[-1] <= 100 * case.eps * s[0] or beyond else math.inf, 1.0
        return
    yield from _system(case, x, case.back(right_sides(case.a)), lower)


@function("cho_solve", lambda x, p, b: x.sp.linalg.cho_solve(x.sp.linalg.cho_factor(p), b), "square", ("p", "b of p"))
def _cho_solve(case, x):
    return _system(case, scaled(x, 0), case.back(right_sides(case.a)))


@function(
    "sylvester",
    lambda x, a, b, c: x.sp.linalg.solve_sylvester(a, b, c),
    "square",
    ("a", "h", "c"),
    on_host=True,
    nan="free",
)
def _sylvester(case, x):
    x = scaled(x, 0)
    h, c = case.back(hermitian_of(case.a)), case.back(square_side(case.a))
    apart = largest(1 / np.abs(np.linalg.eigvals(case.w)[:, None] + np.linalg.eigvalsh(h)))
    unique = apart * (case.norm * 1000 * case.eps) < 1
    if not math.isfinite(largest(x)):
        yield "finite", 0.0 if not unique else math.inf, 1.0
        return
    if not unique:
        return
    size = (largest(np.abs(case.w) @ np.abs(x)) + largest(np.abs(x) @ np.abs(h))) * case.side + largest(c)
    yield "A X + X B = C", largest(case.w @ x + x @ h - c), case.eps * size + case.floor * (1 + largest(x))


# --- determinants and functions of matrices ---------------------------------------------------------------------------


def _grown(case: Case) -> int:
    """The binary logarithm of det A / det W."""
    return -case.power * case.n


@function("det", lambda x, a: x.np.linalg.det(a), "square", nan="some")
@function("scipy det", lambda x, a: x.sp.linalg.det(a), "square", nan="some")
def _det(case, found):
    """Within what changes of the singular values by the rounding of their norm do."""
    logs = np.log2(case.s + case.unit)
    most = float(logs.sum() + _grown(case))  # of |det|
    top, bottom = math.log2(float(case.info.max)), math.log2(float(case.info.smallest_subnormal))
    if most < bottom - 1:
        yield "underflow", abs(found), 2 * float(case.info.smallest_subnormal)
        return
    if not math.isfinite(abs(found)):
        yield "finite", 0.0 if most >= top - 1 else math.inf, 1.0
        return
    shift = -int(max(min(most, top), bottom))
    spread = np.exp2(most + shift)
    if case.well:
        spread -= np.exp2(np.log2(case.s - case.unit).sum() + _grown(case) + shift)
    floor = math.ldexp(float(case.info.smallest_subnormal), min(shift, 1000))
    sign, log = np.linalg.slogdet(scaled(case.a, 0))
    wanted = sign * np.exp2(log / math.log(2) + shift)
    rounding = case.eps * case.side + float(np.finfo(np.float64).eps) * (abs(log) if sign else 0)
    yield "the determinant", abs(scaled(found, shift) - wanted), spread + floor + abs(wanted) * rounding


@function("slogdet", lambda x, a: tuple(x.np.linalg.slogdet(a)), "square", nan="some")
@function("slogdet by qr", lambda x, a: tuple(x.np.linalg.slogdet(a, method="qr")), "square", nan="some")
def _slogdet(case, sign, log):
    wanted_sign, wanted = np.linalg.slogdet(case.w)
    wanted = wanted - case.power * case.n * math.log(2)
    if case.well:
        condition = float((case.norm / case.s).sum())
        error = case.eps * (condition + abs(wanted)) + case.floor * condition
        yield "the logarithm", abs(log - wanted), error
        yield "the sign", abs(sign - wanted_sign), error
    else:
        yield "a number or minus infinity", 0.0 if log == -math.inf or math.isfinite(log) else math.inf, 1.0


@function("matrix_power", lambda x, a: x.np.linalg.matrix_power(a, 3), "square", nan="some")
def _power(case, found):
    wanted = case.w @ case.w @ case.w
    size = largest(np.abs(case.w) @ np.abs(case.w) @ np.abs(case.w))
    top, bottom = math.log2(float(case.info.max)), math.log2(float(case.info.smallest_subnormal))
    if size and bottom + 40 < math.log2(size) - 3 * case.power < top - 4 and abs(case.power) * 2 < top:
        yield (
            "A A A",
            largest(scaled(found, 3 * case.power) - wanted),
            case.eps * size + math.ldexp(float(case.info.smallest_subnormal) * case.side, 2 * case.power),
        )


@function("sqrtm", lambda x, p: x.sp.linalg.sqrtm(p), "square", ("p",), on_host=True)
def _sqrtm(case, root):
    least = np.linalg.eigvalsh(case.w)[0]
    if not math.isfinite(largest(root)):
        yield "it exists", 0.0 if least < 30 * case.eps * case.norm + case.floor else math.inf, 1.0
        return
    half = (-case.power) // 2
    wide = scaled(root, -half)
    wanted = scaled(case.w, -case.power - 2 * half)
    yield "R R = A", largest(wide @ wide - wanted), (case.eps * largest(wide) ** 2 * case.n + case.floor) * 4


@function("expm", lambda x, a: x.sp.linalg.expm(a), "square", nan="some")
def _expm(case, found):
    norm = math.ldexp(case.norm, -case.power) if case.power > -900 else math.inf
    if norm > 20:
        return
    wanted, moved = (_exponential(x) for x in (scaled(case.a, 0), np.abs(scaled(case.a, 0))))
    yield "the exponential", largest(found - wanted), case.eps * largest(moved) * (1 + norm)


def _exponential(a: np.ndarray) -> np.ndarray:
    """By Taylor's series of a / 2**10, in extended precision."""
    x = a.astype(np.clongdouble) / 1024
    total = term = np.eye(len(a), dtype=x.dtype)
    for k in range(1, 20):
        term = term @ x / k
        total = total + term
    for _ in range(10):
        total = total @ total
    return total.astype(np.complex128)
