"""Random loops that update arrays, their gradients against complex steps in NumPy, and how their cost grows.

A program is a nest of loops over rows, columns and repetitions, whose statements are trees of reads at places near an
element, of constants, sums over windows, gathers and inner loops. NumPy runs the same tree on complex numbers: the
imaginary part of f(x + i h v) / h is the derivative along v to the last digits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.ir.loops import counted_trips
from hloom.ir.module import Computation, Instruction
from hloom.ir.types import TupleShape

LIMIT = 2.2  # how much more twice the rows may cost
STEP = 1e-30
COLUMNS = 5


class LoopProgram:
    """A function of x (f64[rows, COLUMNS]) and of constants of this shape, as hloom and as NumPy see it."""

    def __init__(self, seed: int):
        rng = self.rng = random.Random(seed)
        self.nested = rng.random() < 0.5
        self.repeated = rng.random() < 0.3
        self.falls = rng.random() < 0.3
        self.counted = rng.random() < 0.25 and not self.falls  # a while loop in the place of fori_loop
        self.statements = [self._statement() for _ in range(rng.randrange(1, 4))]

    def _place(self) -> tuple[int, int]:
        return self.rng.randrange(-1, 2), self.rng.randrange(-1, 2)

    def _statement(self) -> tuple:
        kind = self.rng.choice(["set", "set", "set", "add", "branch", "row"])
        target = self._place() if self.rng.random() < 0.3 else (0, 0)
        return kind, target, self._tree(self.rng.randrange(1, 4), row=kind == "row")

    def _tree(self, depth: int, row: bool = False) -> tuple:
        rng = self.rng
        if depth == 0 or rng.random() < 0.2:
            leaves = ["read", "read", "read", "constant", "first"]
            return (rng.choice(leaves if row else [*leaves, "window", "gather", "loop", "number"]), self._place())
        kind = rng.choice(["+", "-", "*", "sin", "/"])
        return kind, *[self._tree(depth - 1, row) for _ in range(1 if kind == "sin" else 2)]

    # --- NumPy, one element after the other

    def of_numpy(self, x: np.ndarray, c: np.ndarray, places: np.ndarray) -> complex:
        a, rows = x.copy(), len(x)
        order = range(1, rows - 1)
        for _ in range(3 if self.repeated else 1):
            for i in reversed(order) if self.falls else order:
                for j in range(1, COLUMNS - 1) if self.nested else (2,):
                    for kind, (di, dj), tree in self.statements:
                        if kind == "branch" and i % 3 == 0:
                            continue
                        value = np.sin(self._value(tree, a, c, places, i, slice(None) if kind == "row" else j, np))
                        at = (i + di,) if kind == "row" else (i + di, j + dj)
                        a[at] = a[at] * 0.5 + value if kind == "add" else value
        return (a * np.cos(np.arange(a.size).reshape(a.shape))).sum()

    def _value(self, tree, a, c, places, i, j, xp):
        kind, *parts = tree
        if kind in ("+", "-", "*", "sin", "/"):
            given = [self._value(part, a, c, places, i, j, xp) for part in parts]
            if kind == "sin":
                return xp.sin(given[0])
            left, right = given
            if kind == "/":
                return left / (2 + right * right)
            return left + right if kind == "+" else left - right if kind == "-" else left * right
        di, dj = parts[0]
        column = j if isinstance(j, slice) else j + dj
        match kind:
            case "read":
                return a[i + di, column]
            case "constant":
                return c[i + di, column]
            case "first":  # a place that is known when the function is traced
                return a[1 + di, (slice(None) if isinstance(j, slice) else 1 + dj)]
            case "number":
                return 0.75
            case "gather":
                return a[places[i], column]
        if xp is np:
            if kind == "window":
                return (a[i - 1 : i + 2, 1] ** 2).sum()
            return sum(a[(i + k) % len(a), column] * c[k, 0] for k in range(3))
        if kind == "window":
            return (lax.dynamic_slice(a, (i - 1, 1), (3, 1)) ** 2).sum()
        return lax.fori_loop(0, 3, lambda k, total: total + a[(i + k) % len(a), column] * c[k, 0], 0.0)

    # --- hloom

    def function(self, c: np.ndarray, places: np.ndarray) -> Callable:
        constants, indices = hnp.asarray(c), hnp.asarray(places)

        def element(i, j, a):
            for kind, (di, dj), tree in self.statements:

                def changed(a, kind=kind, di=di, dj=dj, tree=tree):
                    column = slice(None) if kind == "row" else j
                    value = hnp.sin(self._value(tree, a, constants, indices, i, column, hnp))  # bounded
                    at = (i + di,) if kind == "row" else (i + di, j + dj)
                    return a.at[at].set(a[at] * 0.5 + value if kind == "add" else value)

                a = lax.cond(i % 3 == 0, lambda a: a, changed, a) if kind == "branch" else changed(a)
            return a

        def row(i, a):
            if not self.nested:
                return element(i, 2, a)
            return lax.fori_loop(1, COLUMNS - 1, lambda j, a: element(i, j, a), a)

        def sweep(_, a):
            rows = len(a)
            if self.counted:
                state = lax.while_loop(lambda s: s[0] < rows - 1, lambda s: (s[0] + 1, row(s[0], s[1])), (1, a))
                return state[1]
            if self.falls:
                return lax.fori_loop(0, rows - 2, lambda k, a: row(rows - 2 - k, a), a)
            return lax.fori_loop(1, rows - 1, row, a)

        def function(x):
            a = lax.fori_loop(0, 3, sweep, x) if self.repeated else sweep(0, x)
            return (a * hnp.cos(hnp.arange(a.size).reshape(a.shape))).sum()

        return function


def arguments(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (rows, COLUMNS)
    return rng.uniform(0.2, 0.9, shape), rng.uniform(0.2, 0.9, shape), rng.integers(0, rows, rows)


def check(seed: int) -> dict[str, int]:
    """Raises an AssertionError where a gradient is wrong, or a program costs more than linearly. Counts programs."""
    with hl.enable_x64():
        program = LoopProgram(seed)
        _check_gradient(program, seed)
        if seed % 4 == 0:
            _check_growth(program, seed)
            return {"programs": 1, "compared with twice the rows": 1}
    return {"programs": 1}


def _check_gradient(program: LoopProgram, seed: int) -> None:
    x, c, places = arguments(9, seed)
    way = np.random.default_rng(seed).normal(size=x.shape)
    found = program.of_numpy(x + 1j * STEP * way, c, places)
    assert np.isfinite(found), "the program itself overflows"
    function = program.function(c, places)
    value, gradient = hl.jit(hl.value_and_grad(function))(x)
    np.testing.assert_allclose(value, found.real, rtol=1e-11, atol=1e-12, err_msg="the value")
    want, terms = found.imag / STEP, np.asarray(gradient) * way
    np.testing.assert_allclose(terms.sum(), want, rtol=1e-10, atol=1e-12 * (1 + abs(terms).sum()), err_msg="gradient")
    if seed % 3 == 0:
        batch = np.stack([x, x[::-1]])
        many = hl.jit(hl.vmap(hl.grad(function)))(batch)
        np.testing.assert_allclose(many[0], gradient, rtol=1e-10, atol=1e-12, err_msg="of a batch")


def _check_growth(program: LoopProgram, seed: int) -> None:
    rows = 20_000  # arrays of fewer are parts of kernels, and not counted
    for transform in (lambda f: f, hl.grad):
        small, large = (_cost(transform, program, n, seed) for n in (rows, 2 * rows))
        for name, slack in (("bytes", 2048), ("elements written", 200)):
            assert large[name] <= LIMIT * small[name] + slack, f"{name}: {small[name]} for {rows} rows, {large[name]}"


def _cost(transform, program: LoopProgram, rows: int, seed: int) -> dict[str, int]:
    x, c, places = arguments(rows, seed)
    compiled = hl.jit(transform(program.function(c, places))).lower(x).compile()
    return {
        "bytes": compiled.memory_analysis()["temporary bytes"],
        "elements written": written(compiled.module.entry),
    }


# --- executed work ------------------------------------------------------------------------------------------------


def written(computation: Computation) -> int:
    """How many elements a program writes in all steps of its loops; of updates in place only what they change."""
    return sum(map(_written, computation.instructions))


def _written(instruction: Instruction) -> int:
    opcode = instruction.opcode
    if opcode in ("parameter", "tuple", "get-tuple-element", "constant"):
        return 0
    if opcode == "while":
        trips = counted_trips(instruction)
        assert trips is not None, "a loop without a known number of steps"
        return trips * (written(instruction["body"]) + 1)
    if opcode == "conditional":
        return max(map(written, instruction["branch_computations"]))
    if opcode == "fusion":
        root = instruction["calls"].root
        return sum(map(_changed, root.operands if root.opcode == "tuple" else (root,)))
    return _changed(instruction)


def _changed(instruction: Instruction) -> int:
    match instruction.opcode:
        case "dynamic-update-slice":
            return math.prod(instruction.operands[1].dims)
        case "scatter":
            return math.prod(instruction.operands[2].dims)
        case "reshape" | "bitcast":
            return _changed(instruction.operands[0])
        case "parameter":
            return 0
    if isinstance(instruction.shape, TupleShape):
        return sum(math.prod(element.dims) for element in instruction.shape.elements)
    return math.prod(instruction.dims)
