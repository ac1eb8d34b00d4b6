"""XLA takes every golden dump of the tests, and what it computes from one is what hloom's interpreter does.

A file of a rule or a pass holds two modules, before and after. XLA runs the one after, the interpreter the one before:
so XLA judges what the rule or the pass did.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xla

from hloom.ir.interpret import run
from hloom.ir.portable import fusions_as_calls
from hloom.ir.text import parse_module, print_module
from hloom.ir.types import COMPLEX, FLOATS, PRED, TupleShape
from hloom.ir.verify import verify

GOLDEN = Path(__file__).parents[2] / "golden"
FILES = sorted(path for path in GOLDEN.rglob("*.hlo"))
_UNIT = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52}
_UNIT |= {"complex64": 2**-23, "complex128": 2**-52}
DIVIDER = "// AFTER\n"


def test_the_golden_files_are_here():
    assert len(FILES) > 150


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_xla_gets_the_numbers_of_golden_modules(path):
    texts = path.read_text().split(DIVIDER)
    for text in texts:
        theirs = xla.parse(_plain(text)).to_string()
        assert theirs.splitlines()[0].split(",")[0] == parse_module(text).name.join(["HloModule ", ""])
    before, after = parse_module(texts[0]), parse_module(texts[-1])
    if not _runs(after):
        return
    rng = np.random.default_rng(0)
    arguments = [_numbers(rng, p.shape) for p in before.entry.parameters]
    found = xla.run(print_module(fusions_as_calls(after)), arguments)
    wanted = _leaves(run(fusions_as_calls(before), arguments))
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        _close(a, b)


def _plain(text: str) -> str:
    """The text without comments at its head, which XLA's parser does not have."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("//")) + "\n"


def _runs(module) -> bool:
    """Custom calls are functions of the process; tuples among the arguments are not passed here."""
    verify(module)
    if any(isinstance(p.shape, TupleShape) for p in module.entry.parameters):
        return False
    return not any(i.opcode == "custom-call" or "custom-call" in print_module(module) for i in module.instructions())


def _numbers(rng, shape) -> np.ndarray:
    if shape.dtype == PRED:
        return rng.integers(0, 2, shape.dims).astype(bool)
    values = rng.standard_normal(shape.dims)
    if shape.dtype in COMPLEX:
        values = values + 1j * rng.standard_normal(shape.dims)
    if shape.dtype in FLOATS or shape.dtype in COMPLEX:
        return values.astype(shape.dtype)
    return rng.integers(0, 6, shape.dims).astype(shape.dtype)


def _leaves(value) -> list[np.ndarray]:
    if isinstance(value, tuple):
        return [leaf for element in value for leaf in _leaves(element)]
    return [np.asarray(value)]


def _close(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    if wanted.dtype.name not in _UNIT:
        np.testing.assert_array_equal(found, wanted)
        return
    unit = 64 * _UNIT[wanted.dtype.name]
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    found, wanted = found.astype(wide), wanted.astype(wide)
    scale = np.max(np.abs(wanted[np.isfinite(wanted)]), initial=0)
    np.testing.assert_allclose(found, wanted, rtol=unit, atol=unit * scale)
