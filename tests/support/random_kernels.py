"""Random kernels that users could have written (`hl.kernel`), with arguments, and a comparison with Python.

A kernel's text comes from a seed. Its integers stay small and its floats are rounded rarely, so that Python's integers
and NumPy's dtypes give what the kernel's do. Where Python computes something else in float64, nothing is compared.
"""

from __future__ import annotations

import importlib.util
import random
import re
import sys
import tempfile
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
from loop_nests import check_compiled

import hloom as hl
from hloom.errors import HloomError

ROWS, COLUMNS = 5, 7
REFUSED = ("UnsupportedError", "DTypeError", "ArgumentError", "ShapeError")
FIXED = """import numpy as np

import hloom as hl


def scaled(v, k):
    total = 0.0
    for q in range(3):
        total = total * 0.5 + v
        if q > k:
            break
    return total


def bumped(a, k):
    a[k % len(a)] += 1
    return a[(k + 1) % len(a)]


def larger(a, b=1.5):
    c = a if a > b else b
    return c


def middle(row):
    part = row[1:-1]
    return part


"""


INTEGERS = """
(~i + ~i)
(~i - ~i)
(~i * ~i)
(~i) // ((~i) % 5 + 1)
(~i) % ((~i) % 4 + 2)
(~i) // -3
(~i) % -5
((~i) & (~i))
((~i) | (~i))
((~i) ^ (~i))
((~i) << ((~i) & 3))
((~i) >> ((~i) & 3))
min(~i, ~i)
max(~i, ~i)
abs(~i)
(~i if ~t else ~i)
((~i) // (~i) if (k1) > 0 else ~i)
((~i) % k0 if k0 > 0 else ~i)
int(n32[~5, ~7])
int(n8[~7])
int(u8[~7])
len(row)
(~i) ** 2
int(np.argmax(a0))
int(row.argmin())
int(np.clip(~f, -50, 50))
-(~i)
~(~i)
"""
FLOAT_LEAVES = """
f0
f1
f2
0.5
-1.25
2.0
s
x[~5, ~7]
row[~7]
a0[~4]
a1[~6]
m[~5, ~3]
np.float32(h[~7])
np.float32(g[~7])
d[~7]
"""
FLOATS = """
(~f + ~f)
(~f - ~f)
(~f * 0.5)
(~f * ~f) * 0.125
(~f) / 4
-(~f)
abs(~f)
min(~f, ~f)
max(~f, ~f)
np.maximum(~f, ~f)
np.minimum(~f, ~f)
(~f if ~t else ~f)
np.where(~t, ~f, ~f)
np.clip(~f, -2.0, 3.0)
scaled(~f, ~i)
(scaled(~f, 1) if ~t else scaled(~f, 2))
larger(~f)
larger(~f, ~f)
bumped(a0, ~i)
bumped(a1, ~i)
~v.sum()
np.max(~v)
~w.min()
x.sum(axis=0)[~7]
x.sum(axis=-1)[~5]
x.max(axis=0)[~7]
np.floor(~f)
(~f) % 2.0
(~f) // 0.5
(~f) ** 2 * 0.25
np.sign(~f)
float(~i)
np.float32(~i)
np.float64(~f)
x[:, ~7].sum()
(x[~5] * x[~5]).sum() * 0.125
x.T[~7].max()
x[~5].mean()
(a1[~s] * 2.0).sum()
~v @ ~v * 0.125
m.sum()
(m - m.max(axis=1, keepdims=True)).min()
"""
TRUTH_LEAVES = """
t0
t1
~i > 2
p[~7]
f0 > f1
"""
TRUTHS = """
(~i < ~i)
(~i <= ~i)
(~i == ~i)
(~i != ~i)
(~f < ~f)
(~f >= ~f)
(~i < ~i <= ~i)
(~t and ~t)
(~t or ~t)
(not ~t)
(~t and (~i) % 3 == 1 or ~t)
((~t) == (~t))
(n8[~7] > (~i) % 100)
(n8[~7] > ~i * 50)
(u8[~7] >= ~i)
(k2 - 1 >= 0 and 0 <= k2 < 7 and row[k2 - 1] > ~f)
(row > ~f).any()
np.all(a1 < ~f)
bool(~i)
np.isnan(~f)
"""
SLICES = """
:
2:
:~c
::2
1::3
::-1
::-2
(~i) % 6:
:(~i) % 8 - 1
1:5
3:2
"""
SOURCES = {
    "v": """
a0
a1[1:5]
a1[:4][::-1]
x[~5, 2:6]
x[~5, ::2]
row[3:]
row[:4]
""",
    "w": """
a1
a1[::-1]
x[~5, 1:]
row[:6]
""",
    "r": """
row
x[~5]
row[::-1]
x[::-1][~5]
x.T[:, ~5]
""",
}
VECTORS = """
($ + @)
($ * 0.5)
($ - ~f)
(~f * $)
np.maximum($, @)
np.where($ > ~f, $, @)
np.abs($)
np.clip($, -1, 2)
((@ * $[0]) * 0.125)
$.copy()
np.arange(#).astype(np.float32)
"""
RANGES = """
3
~c
0
-1, 3
2, ~c
5, ~c, -1
0, 6, 2
5, -1, -2
i + 1
i, 4
k0 % 4
k1 % 3, k0 % 5 + 1
len(row) - 4
4, 1
3, k0 % 4 - 1, -1
"""
STATEMENTS = """
F = ~f
F = ~f
F += ~f
F = f1
F -= f0 * 0.5
F = np.clip(~f, -50.0, 50.0)
F *= 0.25
K = (~i) % 17 - 2
K = (~i) % 5
K = (K + 1) % 11
K = k1
K = ((~i) & 15) - 4
t0 = ~t
t1 = ~t
f0, f1 = f1, f0
k0, k1 = k1, (k0 + 1) % 9
a0[0], a0[3] = a0[3], a0[0]
f2 = f1 = f0 * 0.5
f0, k2 = ~f, (~i) % 7
a0[1] = f2 = a0[2] + 1.0
a1[~6], a1[~6] = f0, a1[~6]
before = f0
f1 = before; f0 = f0 * 0.5 + 1.0; f2 = before
held = row[k0 % 3:]; k0 = (k0 + 1) % 5; f2 = held[0]
held = (k1, f1); k1 = (k1 + 3) % 7; f1 = 0.5; f2 = held[1] + held[0]
a0[~4] = ~f
a1[~6] += ~f
a0[:] = ~v
a1[:] = ~w
a1[1:] = a1[:-1]
a1[:-1] = a1[1:] * 0.5
a1[:] = a1[::-1]
a0[:] = a0 - a0[0]
a1[::2] = ~f
a1[2:] = ~v
out[i, ~7] = ~f
out[i, ~7] += ~f
whole[i] = (~i) % 1000
whole[i] += (~i) % 50
narrow[i] = (~i) & 63
out[i] = ~r
small[i] = np.int8((~i) & 31) * n8[~7]
small[i] += n8[~7]
narrow[i] += u8[~7]
half[i, ~3] = ~f
flags[i] = ~t
out[i, 1:] = out[i, :-1]
out[i, ::-1] = out[i] * 0.5
square[:] = square.T + ~f
square[0] = square[:, 1]
square[:, 0] = square[1]
a0 += 1.0
a1 *= 0.5
a0 -= ~v
a1 += ~f
square += 1
made = ~v * 2.0; a0[:] = made
"""


class Text:
    """Writes a kernel. Every variable is assigned at the start; integers are brought back into a small range."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.indent = 0
        self.loops: list[str] = []  # variables of loops
        self.serial = 0
        self.fresh = 0

    # --- helpers

    def one(self, *options):
        return self.rng.choice(options)

    def add(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def name(self, hint: str) -> str:
        self.fresh += 1
        return f"{hint}{self.fresh}"

    # --- expressions: ~i, ~f and ~t are an integer, a float, a truth value; ~v, ~w and ~r are arrays of 4, 6 and 7
    # floats; ~5, ~7, ~3, ~4, ~6 are indices of so many; ~s is a slice of 6; ~c a small constant

    def filled(self, templates: str, depth: int) -> str:
        """One of several templates, on lines of their own, with expressions in it."""
        template = self.rng.choice([line.strip() for line in templates.strip().splitlines()])
        return re.sub("~([a-z0-9])", lambda found: self.part(found[1], depth), template)

    def part(self, kind: str, depth: int) -> str:
        match kind:
            case "i":
                leaves = ["k0", "k1", "k2", "~c", *self.loops, *self.loops]
                return self.pick(kind, INTEGERS, "\n".join(leaves), depth)
            case "f":
                return self.pick(kind, FLOATS, FLOAT_LEAVES, depth)
            case "t":
                return self.pick(kind, TRUTHS, TRUTH_LEAVES, depth)
            case "c":
                return str(self.rng.randrange(-4, 9))
            case "s":
                return self.filled(SLICES, depth)
            case "v" | "w" | "r":
                found = self.filled(SOURCES[kind], depth)
                if depth <= 0 or self.rng.random() < 0.4:
                    return found
                return self.filled(VECTORS.replace("$", found).replace("#", {"v": "4", "w": "6", "r": "7"}[kind])
                                   .replace("@", f"~{kind}"), depth - 1)  # fmt: skip
        if depth <= 0 or self.rng.random() < 0.4:
            return str(self.rng.randrange(-int(kind), int(kind)))
        return f"({self.part('i', depth - 1)}) % {kind}"

    def pick(self, kind: str, inner: str, leaves: str, depth: int) -> str:
        if depth <= 0 or self.rng.random() < 0.25:
            return self.filled(leaves, depth)
        return self.filled(inner, depth - 1)

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
        if depth > 0 and pick < 0.4:
            self.one(self.branch, self.loop, self.loop, self.repeat)(depth)
        elif self.serial and pick < 0.45:
            self.add(f"if {self.part('t', 1)}:")
            self.add(f"    {self.one('break', 'continue')}")
        else:
            line = self.filled(STATEMENTS, 2)
            for variable in ("K", "F"):
                line = line.replace(
                    variable, self.one("k0", "k1", "k2") if variable == "K" else self.one("f0", "f1", "f2")
                )
            self.add(line)

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
        var = self.one(self.name("j"), "j", "k2")
        self.serial += 1
        if self.rng.random() < 0.15 and var != "k2":
            self.add(f"for e in {self.one('row', 'a1', 'x[:, 2]')}:")
            self.add("    f0 += e * 0.5")
            self.nested(depth)
        else:
            self.add(f"for {var} in range({self.filled(RANGES, 1)}):")
            own = [var] * (var != "k2")
            self.loops += own
            self.nested(depth)
            del self.loops[len(self.loops) - len(own) :]
        self.serial -= 1

    def repeat(self, depth: int) -> None:
        var = self.name("w")
        self.add(f"{var} = {self.rng.randrange(0, 5)}")
        self.add(self.one("while W > 0:", "while W > 0 and T:", "while not W <= 0:").replace("W", var)
                 .replace("T", self.part("t", 1)))  # fmt: skip
        self.add(f"    {var} -= 1")
        self.serial += 1
        self.nested(depth)
        self.serial -= 1

    # --- the whole

    def kernel(self) -> str:
        self.add("@hl.kernel")
        self.add("def random_kernel(x, m, n32, n8, u8, h, g, d, p, s):")
        self.indent += 1
        self.add("out = np.zeros(x.shape, np.float32)")
        for name, shape, dtype in (("whole", "5", "int32"), ("narrow", "5", "uint8"), ("small", "5", "int8"),
                                   ("half", "(5, 3)", "float16"), ("flags", "5", "bool_"), ("counts", "4", "int32"),
                                   ("sums", "3", "float64")):  # fmt: skip
            self.add(f"{name} = np.zeros({shape}, np.{dtype})")
        if self.rng.random() < 0.4:
            self.add("rest = x * 2.0 - 1.0")
            self.add("base = rest.max()")
        else:
            self.add("base = 1.5")
        if self.rng.random() < 0.5:
            self.add("level = 0.0")
            self.add("for k in range(3):")
            self.add(f"    level = level * 0.5 + {self.one('x[k, 0]', 'd[k]', 'm[0, k]')}")
            self.add("base = level + base")
        for _ in range(self.rng.randrange(1, 3)):
            self.phase()
        if self.rng.random() < 0.5:
            self.tiles()
        if self.rng.random() < 0.4:
            self.atomics()
        self.add("return out, whole, narrow, small, half, flags, counts, sums")
        self.indent -= 1
        return FIXED + "\n".join(self.lines) + "\n"

    def phase(self) -> None:
        self.add(f"for i in hl.parallel({self.one('5', 'x.shape[0]', 'len(x)')}):")
        self.indent += 1
        for line in ("row = x[i]", f"f0, f1, f2 = {self.one('0.0', 'base', 's')}, row[1], 1.0", "k0, k1, k2 = 1, 2, i",
                     "t0, t1 = True, row[0] > 0", "a0 = np.zeros(4, np.float32)", "a1 = row[:6] * 0.5", "before = 0.25",
                     "square = m[:3] * 0.5"):  # fmt: skip
            self.add(line)
        self.block(3, self.rng.randrange(3, 9))
        self.add("out[i, 0] += np.clip(f0 + f1 - f2, -99, 99)")
        self.add("out[i, 1] += a0.sum() + a1[2] + square[1, 2]")
        self.add("whole[i] += k0 * 100 + k1 * 10 + k2")
        self.add("flags[i] = t0 != t1")
        self.indent -= 1

    def tiles(self) -> None:
        if self.rng.random() < 0.5:
            self.add(f"for t in hl.tile(x.shape, tile={self.one('(2, 3)', '(5, 2)', '(1, 7)', 'None')}):")
            self.add(f"    out[t] = {self.one('out[t] + x[t]', 'np.where(x[t] > 0, out[t], -x[t])', 'x[t] * base')}")
        else:
            self.add(f"for t in hl.tile(x.shape[0], tile={self.one(1, 2, 3)}):")
            self.add("    part = x[t]")
            self.add(
                f"    out[t] += {self.one('part - part.max(axis=1, keepdims=True)', 'part[:, ::-1] * 0.5', 'x[t]')}"
            )

    def atomics(self) -> None:
        self.add("for i, j in hl.parallel(5, 7):")
        self.indent += 1
        self.add(self.one("if x[i, j] > 0:", "if i != j:"))
        self.add(f"    hl.atomic_{self.one('add', 'max', 'min')}(counts, (i * 3 + j) % 4, int(n32[i, j]))")
        self.add(f"hl.atomic_add(sums, {self.one('i % 3', 'j % 3', '2')}, x[i, j])")
        self.indent -= 1


def arguments(seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    quarters = lambda *shape: generator.integers(-12, 13, shape) / 4  # noqa: E731
    given = {
        "x": quarters(ROWS, COLUMNS).astype(np.float32), "m": quarters(ROWS, 3).astype(np.float32),
        "n32": generator.integers(-40, 40, (ROWS, COLUMNS)).astype(np.int32),
        "n8": generator.integers(-128, 128, COLUMNS).astype(np.int8),
        "u8": generator.integers(0, 256, COLUMNS).astype(np.uint8), "h": quarters(COLUMNS).astype(np.float16),
        "g": quarters(COLUMNS).astype(ml_dtypes.bfloat16), "d": quarters(COLUMNS), "p": quarters(COLUMNS) > 0,
        "s": np.float32(generator.integers(-8, 8) / 4),
    }  # fmt: skip
    if generator.random() < 0.1:
        given["x"][generator.integers(0, ROWS), generator.integers(0, COLUMNS)] = generator.choice([np.nan, np.inf])
    return given


def loaded(text: str, folder: Path):
    """The kernel of a text, which a file has, so that its source is found."""
    path = folder / "random_kernel.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("random_kernel", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["random_kernel"] = module
    spec.loader.exec_module(module)
    return module.random_kernel


def wide(value):
    return value.astype(np.float64) if value.dtype in (np.float32, np.float16) else value


def by_python(kernel, given) -> tuple | None:
    """What Python computes; None where it raises, or rounding decides."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            results = kernel.python(**given)
            exact = kernel.python(**{k: wide(v) for k, v in given.items()})
        except (OverflowError, ValueError, ZeroDivisionError, IndexError, TypeError):
            return None
    return results if all(map(_near, results, exact)) else None


def _near(found: np.ndarray, wanted: np.ndarray) -> bool:
    if found.dtype.kind != "f":
        return bool(np.array_equal(found, wanted))
    return np.allclose(found, wanted, rtol=2e-3, atol=2e-3, equal_nan=True)


def check(seed: int) -> dict[str, int]:
    """Counts of what happened to the kernel of a seed. Raises AssertionError where a result differs."""
    text, given = Text(seed).kernel(), arguments(seed)
    with tempfile.TemporaryDirectory() as folder:
        kernel = loaded(text, Path(folder))
        wanted = by_python(kernel, given)
        if wanted is None:
            return {"undecided": 1}
        try:
            found = [np.asarray(result) for result in kernel(**given)]
        except HloomError as error:
            return {f"refused: {type(error).__name__}: {error.asked:.90}; {error.found:.60}": 1}
        for k, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert one.dtype == other.dtype and _near(one, other), f"result {k} of {seed}: {one} in place of {other}"
        if seed % 4 == 0:
            many = {k: np.stack([v, v]) if k in "xm" else v for k, v in given.items()}
            axes = tuple([0 if k in "xm" else None for k in given])
            batched = hl.vmap(lambda *a: kernel(*a), in_axes=axes)(*many.values())
            for one, other in zip(batched, wanted, strict=True):
                assert all(_near(part, other) for part in np.asarray(one)), f"vmap of {seed}"
    return {"compared": 1}


def check_guarded(seed: int) -> dict[str, int]:
    """As `check`, where an access behind memory ends the process, for one of the processor's levels; and a transformed
    nest of loops."""
    print(seed, file=sys.stderr, flush=True)
    hl.config.guard_scratch = True
    hl.config.cpu = ("native", "x86-64-v3", "x86-64-v2")[seed % 3]
    return check(seed) | check_compiled(seed)
