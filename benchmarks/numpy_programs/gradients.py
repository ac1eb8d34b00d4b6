"""Gradients of the programs: their cost, and whether they are those of central differences.

What is differentiated is a weighted sum of the finite elements of all real results, and of all arrays that the program
changes, with respect to the arguments that are floats.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

import hloom as hl
from hloom import numpy as hnp
from hloom.benchmarks.numpy_programs.engines import Engine
from hloom.benchmarks.numpy_programs.table import Program

TOLERANCE = 1e-6
STEPS = (1e-4, 1e-5, 1e-6, 1e-7)  # of central differences; the best of them counts


def floats_of(arguments: tuple) -> list[int]:
    return [k for k, a in enumerate(arguments) if isinstance(a, float) or getattr(a, "dtype", None) == np.float64]


def _weights(count: int, number: int) -> np.ndarray:
    return np.cos(0.7 * np.arange(count) + number) + 0.5


def _real(leaf: Any) -> Any:
    return leaf.real if leaf.dtype.kind == "c" else leaf


def _results(result: Any, arguments: Any) -> list:
    """Real leaves: of the results, and of the arguments that were changed, given as (number, value)."""
    found = [leaf for leaf in hl.tree.leaves(result) if getattr(leaf, "dtype", np.dtype(type(leaf))).kind in "fc"]
    return found + [a for _, a in sorted(arguments) if a.dtype.kind in "fc"]


def loss_of(program: Program, given: tuple, finite: bool) -> Any:
    """The function of (floats, weights) that is differentiated; the other arguments are those given. finite: whether
    all elements of the results are."""
    function, places = hl.njit(program.function), floats_of(given)

    def loss(floats, weights):
        arguments = list(given)
        for place, value in zip(places, floats, strict=True):
            arguments[place] = value
        result, written = function.pure(*arguments)
        leaves = _results(result, [(int(k), v) for k, v in written.items()])
        leaves = [_real(hnp.asarray(v)).reshape(-1) for v in leaves]
        if not finite:
            leaves = [hnp.where(hnp.isfinite(v), v, 0) for v in leaves]
        return sum(hnp.vdot(w, v) for w, v in zip(weights, leaves, strict=True))

    return loss


def _expected(program: Program, given: tuple) -> tuple[list[np.ndarray], list[int]]:
    """(NumPy's real results, which arguments it changes)."""
    own = copy.deepcopy(given)
    result = program.function(*own)
    changed = [k for k, a in enumerate(given) if isinstance(a, np.ndarray) and not np.array_equal(a, own[k])]
    return [np.asarray(v) for v in _results(result, [(k, own[k]) for k in changed])], changed


def engine(program: Program, given: tuple) -> Engine | None:
    """The gradient as a timed function. None: there is none, as the program says or as its dtypes do."""
    if program.kink or not floats_of(given):
        return None
    expected, _ = _expected(program, program.arguments("tiny"))
    if not expected:
        return None
    loss = loss_of(program, given, all(np.isfinite(v).all() for v in expected))
    jitted = hl.jit(hl.grad(loss))

    def prepare(arguments: tuple) -> tuple:
        floats = [
            np.float64(arguments[k]) if isinstance(arguments[k], float) else arguments[k] for k in floats_of(given)
        ]
        with hl.enable_x64():
            sizes = hl.jit(lambda f: _results(*_pure(program, given, f))).lower(floats).out_info
            return floats, [_weights(int(np.prod(s.shape)), k) for k, s in enumerate(sizes)]

    def run(floats, weights):
        with hl.enable_x64():
            return hl.block_until_ready(jitted(floats, weights))

    return Engine(run, prepare, in_place=False)


def _pure(program: Program, given: tuple, floats: list) -> tuple[Any, list]:
    arguments = list(given)
    for place, value in zip(floats_of(given), floats, strict=True):
        arguments[place] = value
    result, written = hl.njit(program.function).pure(*arguments)
    return result, [(int(k), v) for k, v in written.items()]


def error(program: Program) -> float:
    """How far the gradient of a small problem is from central differences along a direction, over its norm."""
    given = program.arguments("tiny")
    made = engine(program, given)
    assert made is not None
    floats, weights = made.prepare(given)
    gradient = made.function(floats, weights)
    generator = np.random.default_rng(7)
    direction = [generator.normal(size=np.shape(f)) * np.abs(f) for f in floats]  # relative changes
    slope = sum(float(np.vdot(np.asarray(g), d)) for g, d in zip(gradient, direction, strict=True))
    norm = np.sqrt(sum(float(np.sum(np.square(np.asarray(g)))) for g in gradient))

    with hl.enable_x64():  # a loop writes arguments that it may change, and leaves as they are
        function = hl.njit(program.function)
        numbers = sorted(int(k) for k in hl.jit(lambda _: function.pure(*given)[1]).lower(np.float64(0)).out_info)

    def value(step: float) -> float:
        moved = list(given)
        for place, f, d in zip(floats_of(given), floats, direction, strict=True):
            moved[place] = float(f + step * d) if np.ndim(f) == 0 else f + step * d
        own = copy.deepcopy(tuple(moved))
        result = program.function(*own)
        leaves = [_real(np.asarray(v)).reshape(-1) for v in _results(result, [(k, own[k]) for k in numbers])]
        return sum(float(np.vdot(w, np.where(np.isfinite(v), v, 0))) for w, v in zip(weights, leaves, strict=True))

    differences = [(value(h) - value(-h)) / (2 * h) for h in STEPS]
    return min(abs(d - slope) for d in differences) / max(abs(slope), norm, 1e-12)
