"""Minimization with `jax.scipy.optimize`'s names."""

from __future__ import annotations

from typing import Any, NamedTuple

from hloom import lax
from hloom import numpy as hnp
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.types import FLOATS
from hloom.transforms.gradient import value_and_grad

__all__ = ["OptimizeResults", "minimize"]
__dir__ = __all__.copy


class OptimizeResults(NamedTuple):
    """The result of `minimize`.

    x: the point; success: whether it is a minimum; status: 0 converged, 1 too many steps, 3 no better point found on
    the line, -1 the function is not finite; fun, jac: value and gradient there; hess_inv: the approximation of the
    inverse Hessian; nfev, njev: evaluations of the function and of its gradient; nit: steps.
    """

    x: object
    success: object
    status: object
    fun: object
    jac: object
    hess_inv: object
    nfev: object
    njev: object
    nit: object


class _State(NamedTuple):
    x: object
    value: object
    slope: object
    inverse: object
    status: object
    evaluations: object
    steps: object


def minimize(fun, x0, args: tuple = (), *, method: str, tol: float | None = None, options=None) -> OptimizeResults:
    """A local minimum of fun(x, *args), a float scalar of a vector x (n,), from x0.

    method: 'BFGS' (C. Broyden, R. Fletcher, D. Goldfarb, D. Shanno, 1970), with a line search by bisection for the weak
    conditions of Wolfe (A. Lewis and M. Overton, "Nonsmooth optimization via quasi-Newton methods", 2013).
    tol: ends where the norm of the gradient is at most this (options gtol, default 1e-5). options: maxiter (default
    200 n), norm (the order of that norm, default inf), line_search_maxiter (default 30). Works in jit, and forward mode
    goes through it. Raises ArgumentError, ShapeError, DTypeError.

    >>> result = hl.scipy.optimize.minimize(lambda x: hnp.sum((x - 3) ** 2), hnp.zeros(2), method="BFGS")
    >>> result.x.round(2)
    Array([3., 3.], dtype=float32)
    """
    if not isinstance(method, str) or method.lower() != "bfgs":
        raise ArgumentError("minimize takes method='BFGS'", f"{method!r}", "pass method='BFGS'")
    if not isinstance(args, tuple):
        raise ArgumentError("minimize takes args as a tuple", f"{args!r:.80}", "write args=(a,)")
    options = dict(options or {})
    known = ("maxiter", "norm", "gtol", "line_search_maxiter")
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ArgumentError("minimize knows the options " + ", ".join(known), ", ".join(unknown), "leave them out")
    x0 = hnp.asarray(x0)
    if x0.ndim != 1:
        raise ShapeError("minimize takes a vector x0", f"{x0._shape!r}", "ravel it inside of the function")
    if x0.dtype not in FLOATS:
        raise DTypeError("minimize takes a float x0", f"{x0._shape!r}", "convert it first with astype('f32')")
    n, dtype = x0.shape[0], x0.dtype
    limit = options.get("maxiter")
    limit = 200 * n if limit is None else limit
    order = options.get("norm", hnp.inf)
    gtol = options.get("gtol", 1e-5) if tol is None else tol
    trials = int(options.get("line_search_maxiter", 30))
    both = value_and_grad(lambda x: hnp.asarray(fun(x, *args)).astype(dtype))
    eye = hnp.eye(n, dtype=dtype)

    def is_flat(slope):
        return hnp.linalg.norm(slope, order) <= gtol

    def going(state):
        return (state.status == -2) & (state.steps < limit)

    def step(state):
        direction = -(state.inverse @ state.slope)
        # A direction that does not go down is of a matrix that rounding has spoilt: start again.
        down = direction @ state.slope
        bad = ~(down < 0)
        direction, down = hnp.where(bad, -state.slope, direction), hnp.where(bad, -(state.slope @ state.slope), down)
        inverse = hnp.where(bad, eye, state.inverse)
        first = hnp.where(
            (state.steps == 0) | bad, hnp.minimum(1, 1 / hnp.maximum(hnp.sum(hnp.abs(state.slope)), 1e-30)), 1
        ).astype(dtype)
        found = _line_search(both, state.x, state.value, down, direction, first, trials, state.slope)
        move, change = found.x - state.x, found.slope - state.slope
        along = change @ move
        useful = along > 0
        rho = 1 / hnp.where(useful, along, 1)
        # The first matrix is scaled to the curvature that the first step saw.
        scale = hnp.where(useful & (state.steps == 0), along / hnp.maximum(change @ change, 1e-30), 1).astype(dtype)
        inverse = inverse * scale
        left = eye - rho * hnp.outer(move, change)
        updated = left @ inverse @ left.T + rho * hnp.outer(move, move)
        inverse = hnp.where(useful, updated, inverse)
        stuck = ~found.better
        status = hnp.where(
            is_flat(found.slope), 0, hnp.where(~hnp.isfinite(found.value), -1, hnp.where(stuck, 3, -2))
        ).astype("s32")
        return _State(
            found.x, found.value, found.slope, inverse, status, state.evaluations + found.evaluations, state.steps + 1
        )

    value, slope = both(x0)
    status = hnp.where(is_flat(slope), 0, hnp.where(hnp.isfinite(value), -2, -1)).astype("s32")
    one = hnp.asarray(1, "s32")
    state = lax.while_loop(going, step, _State(x0, value, slope, eye, status, one, one * 0))
    status = hnp.where(state.status == -2, 1, state.status)
    return OptimizeResults(
        state.x, status == 0, status, state.value, state.slope, state.inverse, state.evaluations, state.evaluations,
        state.steps,
    )  # fmt: skip


class _Found(NamedTuple):
    x: object
    value: object
    slope: object
    better: Any
    evaluations: object


def _line_search(both, x, value, down, direction, first, trials: int, slope) -> _Found:
    """A point x + t direction where the function is lower by enough (1e-4 of the slope) and flatter (0.9 of it)."""

    def going(state):
        return ~state[-2] & (state[-1] < trials)

    def step(state):
        t, low, high, *_, count = state
        point = x + t * direction
        here, gradient = both(point)
        lower = here <= value + 1e-4 * t * down
        flat = gradient @ direction >= 0.9 * down
        high = hnp.where(lower, high, t)
        low = hnp.where(lower & ~flat, t, low)
        after = hnp.where(hnp.isfinite(high), (low + high) / 2, 2 * low)
        return after, low, high, point, here, gradient, lower & flat, count + 1

    state = (
        first, hnp.zeros_like(first), hnp.full_like(first, hnp.inf), x, value, slope, hnp.asarray(False),
        hnp.asarray(0, "s32"),
    )  # fmt: skip
    *_, point, here, gradient, done, count = lax.while_loop(going, step, state)
    # Without such a point the last one serves where it is lower; otherwise nothing moves.
    better = done | (here < value)
    return _Found(
        hnp.where(better, point, x), hnp.where(better, here, value), hnp.where(better, gradient, slope), better, count
    )
