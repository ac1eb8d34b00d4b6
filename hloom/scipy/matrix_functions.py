"""Functions of matrices: exponential, square root, polar factors, any analytic function.

Source: N. Higham, "Functions of matrices" (2008): scaling and squaring with Pade approximants (10.3), the blocks whose
corner is a derivative (3.2), Parlett's recurrence (4.6).
"""

from __future__ import annotations

import math

from hloom import lax
from hloom import numpy as hnp
from hloom.arrays.array import Array
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import COMPLEX, DTYPES, real_dtype
from hloom.lax.linalg import adjoint
from hloom.lax.operands import convert, promote_operands, whole_number
from hloom.numpy.linalg import _inexact
from hloom.numpy.linear.factorizations import float_matrices, float_square
from hloom.tracing.trace import bind

# The numerators' coefficients of the [m/m] approximants of exp: (2m - k)! m! / ((2m)! k! (m - k)!), times (2m)! / m!.


def _pade(m: int) -> list[float]:
    return [math.factorial(2 * m - k) / (math.factorial(k) * math.factorial(m - k)) * 1.0 for k in range(m + 1)]


# The largest 1-norm for which the approximant is exact to the precision: Higham, table 10.2, and its like for f32.
_APPROXIMANT = {"f32": (7, 3.925724783138660), "f64": (13, 5.371920351148152)}


def expm(A, *, upper_triangular: bool = False, max_squarings: int = 16):
    """The exponential of matrices (..., n, n), by scaling and squaring.

    Scaled so that the 1-norm is at most that for which a Pade approximant is exact (degree 7 in f32, 13 in f64), then
    squared back: at most max_squarings times; NaN where a matrix would need more. upper_triangular: A is (a hint).
    Raises ShapeError, DTypeError.

    >>> hl.scipy.linalg.expm(hnp.zeros((2, 2)))
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    a = float_square(A, "expm")
    limit = whole_number(max_squarings, "expm", "max_squarings")
    n = a.shape[-1]
    if not n or not a.size:
        return a
    real = real_dtype(a.dtype)
    degree, bound = _APPROXIMANT["f32" if real == DTYPES["f32"] else "f64"]
    norms = lax.stop_gradient(hnp.max(hnp.sum(hnp.abs(a), axis=-2), axis=-1))
    squarings = hnp.maximum(hnp.ceil(hnp.log2(hnp.maximum(norms / bound, 1e-30))), 0)
    too_many = ~(squarings <= limit)
    squarings = hnp.where(too_many, 0, squarings)
    a = a * lax.expand_dims((0.5**squarings).astype(real), (a.ndim - 2, a.ndim - 1)).astype(a.dtype)
    coefficients = [c / _pade(degree)[degree] for c in _pade(degree)]
    eye = hnp.broadcast_to(hnp.eye(n, dtype=a.dtype), a.shape)
    square = a @ a
    powers = [eye, square]
    for _ in range(degree // 2 - 1):
        powers.append(powers[-1] @ square)
    even = sum(p * c for p, c in zip(powers, coefficients[0::2], strict=True))
    odd = a @ sum(p * c for p, c in zip(powers, coefficients[1::2], strict=True))
    result = bind("solve", even - odd, even + odd)
    steps = lax.expand_dims(squarings, (a.ndim - 2, a.ndim - 1))
    known = _largest(squarings)
    for k in range(limit if known is None else known):
        result = hnp.where(k < steps, result @ result, result)
    return hnp.where(lax.expand_dims(too_many, (a.ndim - 2, a.ndim - 1)), math.nan, result)


def _largest(squarings):
    """The largest number of squarings where it is known outside of a trace; None inside."""
    return int(hnp.max(squarings)) if isinstance(squarings, Array) else None


def _blocks(a, e):
    """The block matrix [[a, e], [0, a]]."""
    zero = lax.full_like(a, 0)
    return hnp.concatenate([hnp.concatenate([a, e], axis=-1), hnp.concatenate([zero, a], axis=-1)], axis=-2)


def expm_frechet(A, E, *, method: str | None = None, compute_expm: bool = True):
    """(expm(A), its derivative in the direction E), or the derivative alone: from expm of [[A, E], [0, A]].

    Raises ShapeError, DTypeError.
    """
    (a, e), _ = promote_operands(
        "expm_frechet", (float_square(A, "expm_frechet"), float_square(E, "expm_frechet")), broadcast=False
    )
    if a.shape != e.shape:
        raise ShapeError("expm_frechet takes matrices of one size", f"{a._shape!r}, {e._shape!r}", "check them")
    n = a.shape[-1]
    whole = expm(_blocks(a, e))
    direction = whole[..., :n, n:]
    return (whole[..., :n, :n], direction) if compute_expm else direction


def sqrtm(A, blocksize: int = 1):
    """The principal square root of matrices, complex, by the Schur form. Raises ShapeError, DTypeError.

    >>> hl.scipy.linalg.sqrtm(hnp.array([[4.0, 0.0], [0.0, 9.0]])).real.round(3)
    Array([[2., 0.],
           [0., 3.]], dtype=float32)
    """
    a = float_square(A, "sqrtm")
    if a.dtype not in COMPLEX:
        a = convert(a, DTYPES["c64" if a.dtype == DTYPES["f32"] else "c128"])
    return bind("sqrtm", a)


def solve_sylvester(A, B, C, *, method: str = "schur", tol: float = 1e-8):
    """X with A X + X B = C, by Schur forms. A: (..., m, m), B: (..., n, n), C: (..., m, n).

    method and tol are accepted as in JAX; LAPACK's trsyl computes in every case. Raises ShapeError, DTypeError.

    >>> a, b, c = hnp.eye(2), hnp.eye(2), 2 * hnp.ones((2, 2))
    >>> hl.scipy.linalg.solve_sylvester(a, b, c).round(3)
    Array([[1., 1.],
           [1., 1.]], dtype=float32)
    """
    if method not in ("schur", "eigen"):
        raise ArgumentError("solve_sylvester takes method 'schur' or 'eigen'", f"{method!r}", "leave it out")
    operands = [float_square(A, "solve_sylvester"), float_square(B, "solve_sylvester")]
    operands, _ = promote_operands("solve_sylvester", (*operands, C), _inexact, broadcast=False)
    return bind("sylvester", *operands)


def polar(a, side: str = "right", *, method: str = "qdwh", eps=None, max_iterations=None):
    """(u, p) with a = u p (side 'right') or a = p u ('left'): u has orthonormal columns (rows), p is semidefinite.

    From the singular value decomposition, whatever `method` ('qdwh' or 'svd'). Raises ShapeError, ArgumentError.

    >>> u, p = hl.scipy.linalg.polar(hnp.array([[0.0, -2.0], [2.0, 0.0]]))
    >>> hnp.abs(u).round(3)
    Array([[0., 1.],
           [1., 0.]], dtype=float32)
    """
    if side not in ("right", "left") or method not in ("qdwh", "svd"):
        raise ArgumentError(
            "polar takes side 'right' or 'left' and method 'qdwh' or 'svd'", f"{side!r}, {method!r}", "choose of them"
        )
    a = float_matrices(a, "polar")
    u, s, vh = lax.linalg.svd(a, full_matrices=False)
    scale = lax.expand_dims(s, (s.ndim - 1,)).astype(a.dtype)
    factor = (adjoint(vh) * scale) @ vh if side == "right" else (u * scale) @ adjoint(u)
    return u @ vh, factor


def funm(A, func, disp: bool = True):
    """An analytic function of one matrix (n, n): func is applied to eigenvalues, on the diagonal of the Schur form.

    The rest follows from Parlett's recurrence, which is inaccurate for close eigenvalues. disp=False: (result, error
    estimate). Raises ShapeError, DTypeError.
    """
    a = float_square(A, "funm")
    if a.ndim != 2:
        raise ShapeError("funm takes one matrix", f"{a._shape!r}", "use hl.vmap for a batch")
    is_real = a.dtype not in COMPLEX
    wide = a.dtype if not is_real else DTYPES["c64" if a.dtype == DTYPES["f32"] else "c128"]
    n = a.shape[0]
    t, z = lax.linalg.schur(convert(a, wide))
    tiny = float(hnp.finfo(real_dtype(wide)).eps)
    values = convert(hnp.asarray(func(hnp.diag(t))), wide)
    f: list[list] = [[None] * n for _ in range(n)]
    for i in range(n):
        f[i][i] = values[i]
    smallest = hnp.abs(t[0, 0]) if n else None
    for p in range(1, n):
        for i in range(n - p):
            j = i + p
            total = t[i, j] * (f[j][j] - f[i][i])
            for k in range(i + 1, j):
                total = total + t[i, k] * f[k][j] - f[i][k] * t[k, j]
            apart = t[j, j] - t[i, i]
            f[i][j] = hnp.where(apart != 0, total / hnp.where(apart != 0, apart, 1), total)
            smallest = hnp.minimum(smallest, hnp.abs(apart))
    zero = hnp.zeros((), wide)
    upper = hnp.stack([hnp.stack([zero if c is None else c for c in row]) for row in f]) if n else t
    result = z @ upper @ adjoint(z)
    if is_real:
        result = hnp.real(result)
    if disp:
        return result
    smallest = hnp.where(smallest == 0, tiny, smallest)
    strict = hnp.linalg.norm(hnp.triu(t, 1), 1)
    error = hnp.minimum(1, hnp.maximum(tiny, tiny / smallest * strict))
    return result, error
