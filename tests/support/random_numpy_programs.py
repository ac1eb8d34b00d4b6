"""Random NumPy programs as users write them (`hl.njit`), with arguments, and a comparison with NumPy.

A program's text comes from a seed. Every name has one dtype on all ways through the program, w0 excepted, which holds
integers and floats: NumPy's dtypes belong to values, those of a compiled program to names. Floats are multiples of a
quarter and are rounded rarely, so that the order of a sum decides nothing.
"""

from __future__ import annotations

import copy
import faulthandler
import importlib.util
import random
import re
import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
from random_numpy_phrases import GRAMMAR, LOOPS, STATEMENTS

import hloom as hl
from hloom.errors import HloomError

SECONDS = 300  # of one program; the process ends then, and says where
FIXED = """import math

import numpy as np

OUTSIDE = np.array([0.5, -1.5, 2.0, 0.25, 1.0, -3.0])


def shifted(a, k):
    a[1:] += a[:-1] * 0.5
    a[k % len(a)] = k
    return a


def first_above(a, limit):
    for i, e in enumerate(a):
        if e > limit:
            return i
    return -1


def clipped(v, low=-4.0, high=4.0):
    if v < low:
        return low
    if v > high:
        return high
    return v


def swapped(a, i, j):
    a[i], a[j] = a[j], a[i]


def halves(a):
    middle = len(a) // 2
    return a[:middle], a[middle:]


"""


class Text:
    """Writes a program. Every name is assigned at the start; integers are brought back into a small range."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.indent = 1
        self.loops: list[str] = []  # integers that loops bind
        self.floats: list[str] = []  # elements of float64 that loops bind
        self.depth = self.fresh = 0
        self.form = ""

    def one(self, *options):
        return self.rng.choice(options)

    def add(self, line: str) -> None:
        self.lines += ["    " * self.indent + part for part in line.split("; ")]

    # --- expressions

    def filled(self, template: str, depth: int) -> str:
        template = re.sub("LOOP", lambda _: self.one(*self.loops) if self.loops else "1", template)
        return re.sub(r"~([a-zA-Z0-9])(?=([.[])?)", lambda found: self.operand(found, depth), template)

    def operand(self, found: re.Match, depth: int) -> str:
        """A part of a template; in brackets where a method or an index of it follows."""
        text = self.part(found[1], depth)
        return f"({text})" if found[2] and not text.isidentifier() else text

    def part(self, kind: str, depth: int) -> str:
        if kind == "c":
            return str(self.rng.randrange(-3, 6))
        if kind.isdigit():
            return self.index(int(kind), depth)
        leaves, inner = GRAMMAR[kind]
        if kind == "d" and self.floats and self.rng.random() < 0.3:
            return self.one(*self.floats)
        if depth <= 0 or self.rng.random() < 0.3:
            return self.filled(self.one(*leaves.split(";")), depth - 1)
        return self.filled(self.one(*inner.strip().splitlines()), depth - 1)

    def index(self, size: int, depth: int) -> str:
        pick = self.rng.random()
        if pick < 0.02:
            return self.part("p", 0)  # perhaps out of range
        if pick < 0.4 or depth < 0:
            return str(self.rng.randrange(-size, size))
        if pick < 0.6 and self.loops:
            return f"{self.one(*self.loops)} % {size}"
        return f"({self.part(self.one('p', 'p', 'i'), depth - 1)}) % {size}{self.one('', '', f' - {size}')}"

    # --- statements

    def block(self, depth: int, count: int) -> None:
        for _ in range(count):
            self.statement(depth)

    def nested(self, depth: int) -> None:
        self.indent += 1
        self.block(depth - 1, self.rng.randrange(1, 4))
        self.indent -= 1

    def statement(self, depth: int) -> None:
        pick = self.rng.random()
        if depth > 0 and pick < 0.45:
            self.one(self.branch, self.loop, self.loop, self.loop, self.repeat)(depth)
        elif self.depth and pick < 0.52:
            self.add(f"if {self.part('t', 1)}:")
            self.add(f"    {self.one('break', 'continue')}")
        elif pick < 0.55:
            self.add(f"if {self.part('t', 1)}:")
            self.add(f"    return {self.result(1)}")
        else:
            line = self.one(*STATEMENTS.strip().splitlines())
            for hint, names in (("K", ("k0", "k1")), ("Q", ("q0", "q1")), ("D", ("d0", "d1"))):
                line = re.sub(rf"\b{hint}\b", self.one(*names), line)
            self.add(self.filled(line, self.one(1, 1, 2)))

    def branch(self, depth: int) -> None:
        self.add(f"if {self.part('t', 2)}:")
        self.nested(depth)
        if self.rng.random() < 0.3:
            self.add(f"elif {self.part('t', 1)}:")
            self.nested(depth)
        if self.rng.random() < 0.5:
            self.add("else:")
            self.nested(depth)

    def loop(self, depth: int) -> None:
        self.fresh += 1
        head = self.filled(self.one(*LOOPS.strip().splitlines()), 1)
        kept = len(self.loops), len(self.floats)
        for hint, name, into in (("J", f"j{self.fresh}", self.loops), ("V", f"v{self.fresh}", self.floats),
                                 ("F2", f"c{self.fresh}", self.floats)):  # fmt: skip
            if re.search(rf"\b{hint}\b", head):
                head = re.sub(rf"\b{hint}\b", name, head)
                into.append(f"int({name})" if hint == "J" and re.search(r" in [nh]:|zip\(n", head) else name)
        self.add(head)
        self.inside(depth)
        del self.loops[kept[0] :], self.floats[kept[1] :]

    def repeat(self, depth: int) -> None:
        self.fresh += 1
        var = f"r{self.fresh}"
        self.add(f"{var} = {self.rng.randrange(0, 5)}")
        self.add(f"while {self.filled(self.one(f'{var} > 0', f'{var} > 0 and ~t', f'not {var} <= 0'), 1)}:")
        self.add(f"    {var} -= 1")
        self.inside(depth)

    def inside(self, depth: int) -> None:
        self.depth += 1
        self.nested(depth)
        self.depth -= 1

    def result(self, depth: int) -> str:
        return self.filled(self.form, depth)

    def program(self) -> str:
        self.form = self.one("~d", "~p", "~d, ~p", "(~d, ~e)", "~p, ~t, ~d")
        start = self.rng.sample(["k0, k1, k2 = 1, 2, 3", "q0, q1 = 0.5, s", "d0, d1 = x[0], m[1, 2]", "e0 = g[1]",
                                 "b0 = x[1] > 0", "w0 = 0"], 6)  # fmt: skip
        for line in start:
            self.add(line)
        self.add(self.one("a = x", "a = y.copy()", "a = np.zeros(6)", "a = x * 2"))
        self.add(self.one("row = m[1]", "row = np.zeros(5)", "row = m[2].copy()"))
        self.add(self.one("part = x[1:4]", "part = y[::2]", "part = np.ones(3)"))
        self.add(self.one("grid = m", "grid = m * 2", "grid = np.zeros((4, 5))"))
        self.block(3, self.rng.randrange(1, 5))
        result = self.result(1)
        if "return" not in "\n".join(self.lines):
            rest = self.rng.sample(["a", "row", "part", "grid", "k0 + k1 * 10 + k2 * 100", "q0 + q1", "d0 + d1", "e0",
                                    "b0", "float(w0)", "part.copy()", "a[::-1]", "grid.T"], 4)  # fmt: skip
            result += ", " + ", ".join(rest)
        self.add(f"return {result}")
        return FIXED + "def program(x, y, m, n, h, u, g, b, z, k, s):\n" + "\n".join(self.lines) + "\n"


def arguments(seed: int) -> list:
    generator = np.random.default_rng(seed)
    quarters = lambda *shape: generator.integers(-12, 13, shape) / 4  # noqa: E731
    x, y, m = quarters(6), quarters(6), quarters(4, 5)
    if seed % 7 == 0:
        y = x
    if seed % 11 == 0:
        m = np.asfortranarray(m)
    if seed % 13 == 0:
        m = quarters(8, 5)[::2]
    return [
        x, y, m, generator.integers(-5, 8, 6), generator.integers(-5, 8, 4).astype(np.int32),
        generator.integers(0, 256, 5).astype(np.uint8), quarters(5).astype(np.float32), quarters(6) > 0,
        quarters(4) + 1j * quarters(4), int(generator.integers(0, 6)), float(generator.integers(-8, 9)) / 4,
    ]  # fmt: skip


def loaded(text: str, folder: Path) -> ModuleType:
    """The module of a text, which a file has, so that its source is found."""
    path = folder / "random_numpy_program.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("random_numpy_program", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["random_numpy_program"] = module
    spec.loader.exec_module(module)
    return module


def run(function, given: list):
    """(what a program returns, what it raises)."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(*given), None
        except Exception as error:
            return None, error


def difference(found, wanted) -> str:
    """What of a result differs, or ''."""
    if isinstance(wanted, tuple) or isinstance(found, tuple):
        if not (isinstance(found, tuple) and isinstance(wanted, tuple) and len(found) == len(wanted)):
            return f"{found!r} in place of {wanted!r}"
        parts = [f"{k}: {difference(f, w)}" for k, (f, w) in enumerate(zip(found, wanted, strict=True))]
        return next((part for part in parts if not part.endswith(": ")), "")
    one, other = np.asarray(found), np.asarray(wanted)
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"{one.dtype}{one.shape} {found!r} in place of {other.dtype}{other.shape} {wanted!r}"
    close = 1e-5 if other.dtype == np.float32 else 1e-10
    scale = np.max(np.abs(other[np.isfinite(other)]), initial=1.0) if other.dtype.kind in "fc" else 0
    same = np.allclose(one, other, close, close * scale, equal_nan=True) if scale else np.array_equal(one, other)
    return "" if same else f"{found!r} in place of {wanted!r}"


def check(seed: int) -> dict[str, int]:
    """Counts of what happened to the program of a seed. Raises AssertionError where it is not what NumPy does, or a
    refusal at a line of the program."""
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            module = loaded(Text(seed).program(), Path(folder))
            return _compared(module, seed)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _compared(module: ModuleType, seed: int) -> dict[str, int]:
    given = arguments(seed)
    wanted_arguments, own = copy.deepcopy(given), copy.deepcopy(given)  # one array given twice stays one
    wanted, raised = run(module.program, wanted_arguments)
    found, error = run(hl.njit(module.program), own)
    if isinstance(error, HloomError):
        if isinstance(raised, IndexError):
            return {"out of range, and an error": 1}
        line = error.source is not None and error.source.file == module.__file__
        assert line, f"no line of the user: {type(error).__name__}: {error.asked}; {error.found}"
        if raised is not None:
            return {"undecided": 1}
        return {f"refused: {type(error).__name__}: {error.asked:.90}; {error.found:.60}": 1}
    if error is not None:
        if type(error) is type(raised):
            return {"the same exception": 1}
        raise error
    if isinstance(raised, IndexError):
        raise AssertionError(f"an index out of range is computed: {raised}")
    if raised is not None:
        return {"undecided": 1}
    names = "x y m n h u g b z k s".split()
    for what, one, other in [*zip(names, own, wanted_arguments, strict=True), ("result", found, wanted)]:
        wrong = difference(one, other)
        assert not wrong, f"{what}: {wrong}"
    return {"compared": 1}
