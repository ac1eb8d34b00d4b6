"""Ordinary differential equations: Dormand and Prince's method of order 5 with steps of adapted size.

Source: Dormand, Prince, A family of embedded Runge-Kutta formulae, J. Comp. Appl. Math. 6 (1980); Hairer, Norsett,
Wanner, Solving Ordinary Differential Equations I (1993), section II.4, for the choice of steps.
"""

from __future__ import annotations

import math

from hloom import lax, tree
from hloom import numpy as hnp
from hloom.errors import ShapeError
from hloom.jax.flatten_util import ravel_pytree

# Rows of the tableau: the weights of the slopes that each stage starts from.
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def odeint(func, y0, t, *args, rtol=1.4e-8, atol=1.4e-8, mxstep=1000, hmax=math.inf):
    """y(t) of dy/dt = func(y, t, *args), y(t[0]) = y0, at increasing times t: a tree like y0 with a new first axis.

    rtol, atol: the error allowed in a step. mxstep: the most steps between two times, a static integer, by which the
    loop is bounded and thereby differentiable in reverse; beyond it the result is NaN. hmax: the largest step.
    Raises ShapeError where func returns another shape than y0.
    """
    flat, unravel = ravel_pytree(y0)
    flat = hnp.asarray(flat, hnp.result_type(flat, float))
    t = hnp.asarray(t, flat.dtype)

    def slope(y, time):
        found, _ = ravel_pytree(func(unravel(y), time, *args))
        if found.shape != flat.shape:
            raise ShapeError("odeint takes a function that returns what it is given", f"{found._shape!r}", "check func")
        return hnp.asarray(found, flat.dtype)

    steps = int(min(mxstep, 2**31 - 1))
    first = slope(flat, t[0])
    state = flat, first, t[0], _initial_step(slope, flat, first, t[0], rtol, atol)

    def to_next(state, target):
        def unfinished(carry):
            return carry[2] < target

        def step(carry):
            y, dy, time, size = carry
            used = hnp.minimum(hnp.minimum(size, hmax), target - time)
            slopes = [dy]
            for node, weights in zip(_NODES, _STAGES, strict=True):
                inner = y + used * sum(w * k for w, k in zip(weights, slopes, strict=True) if w)
                slopes.append(slope(inner, time + node * used))
            last = inner
            error = used * sum(w * k for w, k in zip(_ERROR, slopes, strict=True) if w)
            scale = atol + rtol * hnp.maximum(hnp.abs(y), hnp.abs(last))
            ratio = hnp.mean(hnp.square(error / scale))
            accepted = ratio <= 1.0
            # The next size is that for which the error would be as large as allowed, with a margin.
            factor = hnp.where(ratio == 0, 10.0, 0.9 * hnp.power(hnp.maximum(ratio, 1e-10), -0.1))
            factor = hnp.clip(factor, 0.2, 10.0)
            # A step that ends at the target says nothing about larger ones, unless it failed.
            wanted = hnp.where(accepted & (used < size), hnp.maximum(size, used * factor), used * factor)
            reached = hnp.where(used >= target - time, target, time + used)
            chosen = [hnp.where(accepted, a, b) for a, b in ((last, y), (slopes[-1], dy), (reached, time))]
            return (*chosen, lax.stop_gradient(wanted))

        end = lax.while_loop(unfinished, step, state, max_steps=steps)
        y = hnp.where(end[2] < target, hnp.nan, end[0])
        return (y, *end[1:]), y

    _, rest = lax.scan(to_next, state, t[1:])
    solution = hnp.concatenate([hnp.expand_dims(flat, 0), rest])
    return tree.map(lambda *leaves: hnp.stack(leaves), *[unravel(solution[k]) for k in range(t.shape[0])])


def _initial_step(slope, y, dy, time, rtol, atol):
    """Hairer's guess: the step in which an explicit Euler step of this slope errs by a hundredth of what is allowed."""
    scale = atol + hnp.abs(y) * rtol
    size, speed = hnp.linalg.norm(y / scale), hnp.linalg.norm(dy / scale)
    guess = hnp.where((size < 1e-5) | (speed < 1e-5), 1e-6, 0.01 * size / hnp.where(speed == 0, 1.0, speed))
    change = hnp.linalg.norm((slope(y + guess * dy, time + guess) - dy) / scale) / guess
    fastest = hnp.maximum(speed, change)
    other = hnp.where(fastest <= 1e-15, hnp.maximum(1e-6, guess * 1e-3), (0.01 / fastest) ** 0.2)
    return lax.stop_gradient(hnp.minimum(100.0 * guess, other))


__all__ = ["odeint"]
__dir__ = __all__.copy
