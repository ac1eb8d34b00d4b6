"""XLA as the judge of our text: its parser takes every module, its compiler verifies, runs, and gets our numbers."""

from __future__ import annotations

import numpy as np
import pytest
import xla
from op_modules import cases

from hloom.ir.interpret import run
from hloom.ir.ops import OPS
from hloom.ir.portable import fusions_as_calls
from hloom.ir.source import Source
from hloom.ir.text import parse_module, print_module
from hloom.ir.text.literals import literal_text
from hloom.ir.types import DTYPES
from hloom.ir.verify import verify

CASES = cases()
# The unit in the last place of 1.
_EPSILON = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52}
_EPSILON |= {"complex64": 2**-23, "complex128": 2**-52}
# Compiling takes most of the time, and integers of other widths take the same paths.
_TOO_MANY = tuple(f"elementwise_{d}" for d in ("s8", "s16", "s64", "u8", "u16", "u32", "f16", "c128"))
# Sums cancel, so their error is measured by the largest result; an element-wise op's by each result.
_SUMS = (
    "reductions",
    "dots",
    "fusions",
    "solvers",
    "transforms",
    "convolutions",
    "windows",
    "selections_over_windows",
    "batch_normalizations",
    "scans",
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_xla_parses_every_module(case):
    text = print_module(case.module, metadata=True)
    theirs = xla.parse(text).to_string()
    # XLA orders the instructions by their uses, and prints `...` for large constants.
    assert theirs.splitlines()[0] == text.splitlines()[0]
    if "{...}" not in theirs and "-0" not in theirs:
        verify(parse_module(theirs))


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.runs and c.name.startswith(("mov", "call", "red", "sel", "dot"))]
)
def test_xla_prints_the_same_lines(case):
    text = print_module(case.module)
    assert sorted(xla.parse(text).to_string().split("\n")[1:]) == sorted([*text.split("\n")[1:], ""])


def _leaves(value) -> list[np.ndarray]:
    if isinstance(value, tuple):
        return [leaf for element in value for leaf in _leaves(element)]
    return [np.asarray(value)]


def _close(found: np.ndarray, wanted: np.ndarray, largest: bool) -> None:
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted)
        return
    unit = _EPSILON[wanted.dtype.name]
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    found, wanted = found.astype(wide), wanted.astype(wide)
    scale = unit * 16 * np.max(np.abs(wanted), initial=0) if largest else 0
    np.testing.assert_allclose(found, wanted, rtol=4 * unit, atol=scale)


@pytest.mark.parametrize("case", [c for c in CASES if c.runs and c.name not in _TOO_MANY], ids=lambda c: c.name)
def test_xla_gets_the_same_numbers(case):
    found = xla.run(print_module(fusions_as_calls(case.module)), case.arguments)
    wanted = _leaves(run(case.module, case.arguments))
    for output, a, b in zip(range(len(wanted)), found, wanted, strict=True):
        try:
            _close(a, b, case.name in _SUMS)
        except AssertionError as error:
            outputs = case.module.entry.outputs()
            raise AssertionError(f"output {output}, {outputs[output : output + 1]}: {error}") from None


def test_every_op_runs_in_xla_or_is_known_not_to():
    ran = {i.opcode for c in CASES if c.runs and c.name not in _TOO_MANY for i in c.module.instructions()}
    missing = {"asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh"}  # no code in XLA's compiler for CPUs
    missing |= {"custom-call"} | {
        name for name, entry in OPS.items() if entry.is_custom_call
    }  # printed as custom calls
    missing |= {"collective-broadcast"}  # its parser takes it, its compiler for CPUs does not
    missing |= {"set-dimension-size"}  # its result has a size that the program computes
    missing |= {"send", "recv"}  # their other end is in the program of another device
    assert set(OPS) - ran - missing == set()


def test_xla_takes_our_metadata():
    (case,) = [c for c in CASES if c.name == "scalar"]
    case.module.entry.root.source = source = Source('a "b".py', 3, "f", "y")
    try:
        theirs = xla.parse(print_module(case.module, metadata=True)).to_string()
    finally:
        case.module.entry.root.source = None
    assert parse_module(theirs).entry.root.source == source


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_digits_are_those_of_xla(dtype):
    rng = np.random.default_rng(1)
    values = (rng.standard_normal(300) * 10.0 ** rng.integers(-4, 4, 300)).astype(DTYPES[dtype])
    lines = [f"%v{k} = {dtype}[] constant({literal_text(v)})" for k, v in enumerate(values)]
    theirs = xla.parse("HloModule m\n\nENTRY main {\n" + "\n".join(lines) + "\n}\n").to_string()
    for k, value in enumerate(values):
        assert f"%v{k} = {dtype}[] constant({literal_text(value)})\n" in theirs
