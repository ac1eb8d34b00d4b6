"""How results of linear algebra are judged: as by LAPACK's own tests, by residuals and orthogonality relative to the
norm of the matrix, its size and the precision of its dtype, not element by element. `matrix_checks` has the functions.

A check is given a `Case` and the results and yields (what, error, scale): error / scale is at most `BOUND`. Numbers are
compared after an exact scaling of the matrix to about 1, so that the checks themselves neither overflow nor underflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hloom.ir.records import field, record

BOUND = 30.0  # LAPACK's tests have the same
Errors = Iterator[tuple[str, float, float]]


def adjoint(a: np.ndarray) -> np.ndarray:
    return a.conj().T


def largest(a: np.ndarray) -> float:
    """The largest absolute value, infinite where there is a NaN."""
    size = float(np.abs(a).max(initial=0.0))
    return math.inf if math.isnan(size) else size


def scaled(a: np.ndarray, power: int) -> np.ndarray:
    """a * 2**power, in double precision."""
    wide = np.asarray(a).astype(np.complex128 if np.asarray(a).dtype.kind == "c" else np.float64)
    half, rest = power // 2, power - power // 2
    return wide * np.exp2(half) * np.exp2(rest)


class Case:
    """A matrix, and what its results are compared with.

    power: w = a * 2**power has a largest element of about 1. s: the singular values of w. eps: of the dtype times the
    larger side. floor: half of the smallest number of the dtype, times the larger side and 2**power.
    """

    def __init__(self, a: np.ndarray):
        self.a, (self.m, self.n) = a, a.shape
        self.info = np.finfo(a.dtype)
        self.side = max(self.m, self.n, 1)
        self.eps = float(self.info.eps) * self.side
        self.finite = bool(np.isfinite(a).all())
        top = largest(np.concatenate([a.real.ravel(), a.imag.ravel()])) if self.finite else 0.0
        self.power = -math.frexp(top)[1] if top else 0
        self.floor = math.ldexp(float(self.info.smallest_subnormal) * self.side, self.power)
        if self.finite:
            self.w = scaled(a, self.power)
            self.s = np.linalg.svd(self.w, compute_uv=False) if a.size else np.zeros(0)
            self.norm = float(self.s[0]) if self.s.size else 0.0
            self.least = float(self.s[-1]) if self.s.size else 0.0
            self.well = self.least > 100 * self.eps * self.norm  # its inverse has a digit or more

    def back(self, x) -> np.ndarray:
        """A result that grows with the matrix, for w."""
        return scaled(x, self.power)

    @property
    def unit(self) -> float:
        """The error of numbers that grow with the matrix."""
        return self.eps * self.norm + self.floor


def orthonormal(case: Case, q: np.ndarray, what: str = "Q") -> Errors:
    q = scaled(q, 0)
    yield f"{what}^H {what} = 1", largest(adjoint(q) @ q - np.eye(q.shape[1])), case.eps


@record
class Function:
    """call: of a namespace of modules (np, sp, lax) and the operands. Shapes: any, square or tall."""

    call: Callable[..., Any]
    check: Callable[..., Errors]
    shapes: str = "any"
    operands: tuple[str, ...] = field(default_factory=tuple)
    on_host: bool = False  # LAPACK computes it in every case: not in an exported program
    nan: str = "all"  # what of the results is NaN for a matrix that is not finite: all, some, free


FUNCTIONS: dict[str, Function] = {}


def function(name: str, call: Callable, shapes: str = "any", operands: tuple[str, ...] = ("a",), **more):
    def kept(check: Callable[..., Errors]) -> Callable[..., Errors]:
        FUNCTIONS[name] = Function(call, check, shapes, operands, **more)
        return check

    return kept


# --- operands ---------------------------------------------------------------------------------------------------------


def hermitian_of(a: np.ndarray) -> np.ndarray:
    """A Hermitian matrix with the lower triangle of a."""
    lower = np.tril(a, -1)
    return lower + adjoint(lower) + np.diag(np.diag(a).real).astype(a.dtype)


def right_sides(a: np.ndarray) -> np.ndarray:
    """Two right sides as large as the matrix."""
    rng = np.random.default_rng(a.shape)
    top = largest(a)
    scale = top if math.isfinite(top) and top else 1.0
    return (rng.uniform(-1, 1, (a.shape[0], 2)) * scale).astype(a.dtype)


def square_side(a: np.ndarray) -> np.ndarray:
    return np.repeat(right_sides(a), -(-a.shape[0] // 2), axis=1)[:, : a.shape[0]]


def operands_of(a: np.ndarray, names: tuple[str, ...]) -> list[np.ndarray]:
    """What a function is given for a matrix: itself (a), a Hermitian (h) or a positive matrix (p), right sides."""
    made = {"a": lambda: a, "b": lambda: right_sides(a), "h": lambda: hermitian_of(a), "c": lambda: square_side(a),
            "p": lambda: positive_of(a), "b of p": lambda: right_sides(positive_of(a))}  # fmt: skip
    with np.errstate(all="ignore"):
        return [made[name]() for name in names]


def positive_of(a: np.ndarray) -> np.ndarray:
    """A Hermitian matrix that is positive (semi-)definite where a's numbers allow it."""
    power = Case(a).power
    w = scaled(a, power)
    square = scaled(w @ adjoint(w), -power).astype(a.dtype)
    return hermitian_of(square)


def faults(name: str, a: np.ndarray, results: list[np.ndarray]) -> list[str]:
    """What is wrong in the results of a function for a matrix."""
    this = FUNCTIONS[name]
    inputs = operands_of(a, this.operands)
    case = Case(inputs[0])
    floats = [r for r in results if r.dtype.kind in "fc"]
    if not all(np.isfinite(x).all() for x in inputs):
        bad = [~np.isfinite(r) for r in floats]
        if this.nan == "all" and not all(b.all() for b in bad):
            return ["finite numbers from a matrix that is not finite"]
        if this.nan == "some" and not any(b.any() for b in bad) and any(np.isnan(x).any() for x in inputs):
            return ["finite numbers from a matrix with a NaN"]
        return []
    found = []
    with np.errstate(all="ignore"):
        for what, error, scale in this.check(case, *results):
            ratio = error / scale if error else 0.0
            if not ratio <= BOUND:
                found.append(f"{what}: {ratio:.3g}")
    return found
