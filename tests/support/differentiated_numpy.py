"""Random NumPy programs with loops that change arrays in place: gradients of `hl.njit` against forward derivatives and
differences, and how their cost grows.

A program goes over its array a bounded number of times, in loops of known and unknown length, triangular ones, with
`break` and `continue`. What it computes is bounded, and depends on values in branches and in tests of loops.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import numpy as np
from processor_time import least_seconds
from random_numpy_programs import loaded

import hloom as hl
from hloom.errors import DifferentiationError

LIMIT = 2.2  # how much more twice the elements may cost
NOISE = 5e-4  # seconds
TRIES = 4


class _Writer:
    """The text of a function of an array, another one and indices."""

    def __init__(self, rng: random.Random):
        self.rng, self.lines, self.names = rng, list[str](), 0

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def fresh(self, hint: str) -> str:
        self.names += 1
        return f"{hint}{self.names}"

    def place(self, index: str) -> str:
        return self.rng.choice([index, f"{index} - 1", f"{index} + 1", f"p[{index}]", "1"])

    def number(self, index: str, depth: int = 2) -> str:
        """A smooth, bounded expression of elements near an index."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.2:
            leaves = [f"a[{self.place(index)}]", f"a[{self.place(index)}]", f"c[{index}]", "s", "v", "0.75"]
            return rng.choice([*leaves, f"np.sum(a[{index} - 1 : {index} + 2])"])
        left, right = (self.number(index, depth - 1) for _ in range(2))
        return rng.choice([
            f"({left} + {right})", f"({left} - {right})", f"{left} * {right}", f"np.sin({left})",
            f"{left} / (2.0 + {right} * {right})", f"np.tanh({left})", f"max({left}, {right})",
            f"({left} if {right} > 0.4 else {right})",
        ])  # fmt: skip

    def simple(self, depth: int, index: str) -> None:
        value = f"np.sin({self.number(index)})"
        target = f"a[{self.rng.choice([index, index, f'{index} - 1', f'p[{index}]'])}]"
        form = self.rng.choice(["{t} = {v}", "{t} += 0.3 * {v}", "{t} *= {v}", "v = {v}", "s = 0.5 * s + {v}"])
        self.line(depth, form.format(t=target, v=value))

    def statement(self, depth: int, index: str, nests: int) -> None:
        kind = self.rng.choice(["simple", "simple", "branch", "short", "until", "triangle"])
        if kind == "branch":
            self.line(depth, f"if {self.number(index, 1)} > 0.3:")
            self.simple(depth + 1, index)
            if self.rng.random() < 0.5:
                self.line(depth, "else:")
                self.simple(depth + 1, index)
        elif nests and kind == "short":
            inner = self.fresh("j")
            self.line(depth, f"for {inner} in range(max(1, {index} - 2), {index} + 1):")
            self.body(depth + 1, inner, nests - 1, jumps=True)
        elif nests and kind == "triangle":
            inner = self.fresh("j")
            self.line(depth, f"for {inner} in range(1, 1 + {index} % 4):")
            self.body(depth + 1, inner, nests - 1, jumps=True)
        elif nests and kind == "until":
            count, bound = self.fresh("t"), self.rng.choice(["0.6", "1.2"])
            self.line(depth, f"{count} = 0")
            self.line(depth, f"while {count} < 4 and abs(v) < {bound}:")
            self.line(depth + 1, f"{count} += 1")
            self.line(depth + 1, f"v = v * 1.3 + 0.1 * np.sin({self.number(index, 1)})")
            if self.rng.random() < 0.5:
                self.simple(depth + 1, index)
        else:
            self.simple(depth, index)

    def body(self, depth: int, index: str, nests: int, jumps: bool) -> None:
        if jumps and self.rng.random() < 0.3:
            self.line(depth, f"if {self.number(index, 1)} > 0.9:")
            self.line(depth + 1, self.rng.choice(["continue", "break"]))
        for _ in range(self.rng.randrange(1, 3)):
            self.statement(depth, index, nests)

    def loop(self) -> None:
        index, kind = self.fresh("i"), self.rng.choice(["up", "up", "down", "while", "repeated"])
        if kind == "while":
            self.line(1, f"{index} = 1")
            self.line(1, f"while {index} < len(a) - 1:")
            self.body(2, index, 1, jumps=False)
            self.line(2, f"{index} += {self.rng.choice(['1', '2'])}")
            return
        depth = 1
        if kind == "repeated":
            self.line(1, f"for _ in range({self.rng.randrange(2, 4)}):")
            depth = 2
        bounds = "len(a) - 2, 0, -1" if kind == "down" else "1, len(a) - 1"
        self.line(depth, f"for {index} in range({bounds}):")
        self.body(depth + 1, index, 1, jumps=self.rng.random() < 0.3)


def text_of(seed: int) -> str:
    writer = _Writer(random.Random(seed))
    writer.line(0, "import numpy as np\n\n")
    writer.line(0, "def program(x, c, p):")
    writer.line(1, "a, s, v = x.copy(), 0.5, 0.25")
    for _ in range(writer.rng.randrange(1, 4)):
        writer.loop()
    writer.line(1, "return a * (1.0 + s) + v")
    return "\n".join(writer.lines) + "\n"


def _arguments(size: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.uniform(0.2, 0.9, size), rng.uniform(0.2, 0.9, size), rng.integers(0, size, size)


def check(seed: int) -> dict[str, int]:
    """Raises an AssertionError where a gradient is wrong, or a program costs more than linearly. Counts programs."""
    with tempfile.TemporaryDirectory() as folder, hl.enable_x64():
        function = loaded(text_of(seed), Path(folder)).program
        compiled = hl.njit(function)

        def total(x, c, p):
            result = compiled.pure(x, c, p)[0]
            return (result * np.cos(np.arange(result.size))).sum()

        counts = {"programs": 1, "compared with differences": int(_check_gradient(function, total, seed))}
        if seed % 3 == 0:
            counts["in segments or refused"] = 1
            _check_segments(total, seed)
        if seed % 4 == 0:
            _check_growth(total, seed)
            counts["compared with twice the elements"] = 1
        return counts


def _check_gradient(function, total, seed: int) -> bool:
    """Whether differences could be compared: the value has no jump near the argument."""
    x, c, p = _arguments(11, seed)
    way = np.random.default_rng(seed).normal(size=x.shape)
    value, gradient = hl.jit(hl.value_and_grad(total))(x, c, p)
    weights = np.cos(np.arange(x.size))
    np.testing.assert_allclose(value, (function(x, c, p) * weights).sum(), rtol=1e-11, atol=1e-12, err_msg="value")
    _, forward = hl.jit(lambda x: hl.jvp(lambda x: total(x, c, p), (x,), (way,)))(x)
    terms = np.asarray(gradient) * way
    scale = 1 + abs(terms).sum()
    np.testing.assert_allclose(terms.sum(), forward, rtol=1e-10, atol=1e-12 * scale, err_msg="backward and forward")
    sides = [(function(x + h * way, c, p) * weights).sum() for h in (1e-6, -1e-6, 1e-7, -1e-7)]
    found = [(sides[0] - sides[1]) / 2e-6, (sides[2] - sides[3]) / 2e-7]
    if abs(found[0] - found[1]) > 1e-5 * (scale + abs(found[0])):
        return False
    np.testing.assert_allclose(terms.sum(), found[0], rtol=1e-4, atol=1e-5 * scale, err_msg="differences")
    return True


def _check_segments(total, seed: int) -> None:
    """With little memory the gradient is the same, or refused."""
    given = _arguments(30, seed)
    gradient = hl.jit(hl.grad(total))
    want = np.asarray(gradient(*given))
    with hl.config(tape_bytes=2500):
        try:
            found = np.asarray(gradient(*given))
        except DifferentiationError:
            return
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-14, err_msg="in segments")


def _check_growth(total, seed: int) -> None:
    for transform in (lambda f: f, hl.grad):
        compiled = hl.jit(transform(total))
        small, large = (
            _bytes(compiled, size, seed) for size in (40_000, 80_000)
        )  # beyond what threads keep themselves
        assert large <= LIMIT * small + 2048, f"bytes: {small} and {large}"
        few, many = _arguments(8_000, seed), _arguments(16_000, seed)
        times = []
        for _ in range(TRIES):  # others use the machine too
            times.append((least_seconds(compiled, *few), least_seconds(compiled, *many)))
            if min(b for _, b in times) <= LIMIT * min(a for a, _ in times) + NOISE:
                break
        else:
            raise AssertionError(f"seconds: {times}")


def _bytes(compiled, size: int, seed: int) -> int:
    return compiled.lower(*_arguments(size, seed)).compile().memory_analysis()["temporary bytes"]
