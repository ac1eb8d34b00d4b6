"""What tests of passes share: golden files, arguments with special values, and how near two results have to be.

A golden file of HLO text has a line `// RULE: name` or `// RUN: pass,pass`, the module, a line `// AFTER`, and the
module that comes out. `pytest --bless` writes the part after that line.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from hloom.ir.interpret import run
from hloom.ir.ops.programs.structure import register_custom_call
from hloom.ir.text import parse_module, print_module
from hloom.ir.types import COMPLEX, FLOATS, INTEGERS, NARROW_FLOATS, PRED
from hloom.ir.verify import verify

GOLDEN = Path(__file__).parents[1] / "golden"
DIVIDER = "// AFTER\n"

register_custom_call("test.double", lambda x: x + x)


def read_golden(path: Path, key: str) -> tuple[str, str, str]:
    """(the value of the `// KEY:` line, the module's text, the expected text or '')."""
    text = path.read_text()
    head, _, expected = text.partition(DIVIDER)
    found = re.search(rf"^// {key}: (.*)$", head, re.MULTILINE)
    assert found, f"{path} has no line '// {key}: ...'"
    return found.group(1).strip(), head, expected


def check_golden(path: Path, head: str, expected: str, result, bless: bool) -> None:
    text = print_module(result)
    if bless:
        path.write_text(head + DIVIDER + text)
    else:
        assert text == expected, f"{path} differs; run pytest --bless and read the difference"


def parsed(head: str, path: Path):
    """The module of a golden file, verified."""
    module = parse_module(head, str(path))
    verify(module)
    return module


def arguments(module, seed: int, special: bool) -> list[np.ndarray]:
    """Values for a module's parameters; with `special` among them NaN, infinities, -0, extremes and subnormals."""
    random = np.random.default_rng(seed)
    return [draw(random, p.shape, special) for p in module.entry.parameters]


def draw(random, shape, special: bool) -> np.ndarray:
    dtype, dims = shape.dtype, shape.dims
    if dtype == PRED:
        return random.integers(0, 2, dims).astype(bool)
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        if special:
            choices = [0, 1, 2, 3, 7, info.max, info.min, info.max - 1, 100]
            if info.min:
                choices += [-1, -2, -7]
            return random.choice(np.array(choices, dtype), dims)
        return random.integers(1, 10, dims).astype(dtype)
    if dtype in COMPLEX:
        part = np.dtype(f"f{dtype.itemsize // 2}")
        pieces = [draw_floats(random, part, dims, special) for _ in range(2)]
        result = np.empty(dims, dtype)
        result.real, result.imag = pieces
        return result
    assert dtype in FLOATS
    return draw_floats(random, dtype, dims, special)


def draw_floats(random, dtype, dims, special: bool) -> np.ndarray:
    values = np.asarray(random.uniform(0.5, 2.0, dims) * random.choice([-1, 1], dims)).astype(dtype)
    if not special:
        return np.abs(values)
    extremes = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -3.0]
    if dtype not in NARROW_FLOATS:
        info = np.finfo(dtype)
        extremes += [info.max, -info.max, info.tiny, info.smallest_subnormal, -info.smallest_subnormal, 1e20, 1e-20]
    drawn = random.choice(np.array(extremes), dims).astype(dtype)
    return np.where(random.random(dims) < 0.7, drawn, values).astype(dtype)


def results(module, values) -> list[np.ndarray]:
    found = run(module, values)
    return list(found) if isinstance(found, tuple) else [found]


def assert_same(before: np.ndarray, after: np.ndarray, numerics: str = "exact") -> None:
    """exact: equal bits but for what a NaN holds. rounding: near, with the same NaN, infinities and signs of zeros.
    inexact: near."""
    before, after = np.asarray(before), np.asarray(after)
    assert before.dtype == after.dtype and before.shape == after.shape
    if before.dtype in COMPLEX:
        assert_same(before.real, after.real, numerics)
        assert_same(before.imag, after.imag, numerics)
        return
    if before.dtype not in FLOATS:
        np.testing.assert_array_equal(before, after)
        return
    wide_before, wide_after = before.astype(np.float64), after.astype(np.float64)
    if numerics == "exact":
        np.testing.assert_array_equal(wide_before, wide_after)
    else:
        narrow = 2e-2 if before.dtype in NARROW_FLOATS else 2e-6 if before.dtype == np.float32 else 1e-12
        smallest = 0.0 if before.dtype in NARROW_FLOATS else float(np.finfo(before.dtype).smallest_subnormal)
        np.testing.assert_allclose(wide_before, wide_after, rtol=narrow, atol=4 * smallest)
    if numerics != "inexact":
        zero = (wide_before == 0) & (wide_after == 0)
        np.testing.assert_array_equal(np.signbit(wide_before) & zero, np.signbit(wide_after) & zero)
