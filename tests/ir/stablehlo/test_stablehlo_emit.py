"""Modules as StableHLO text: read back they mean the same and print the same; XLA runs them with our numbers."""

from __future__ import annotations

import numpy as np
import pytest
import xla
from op_modules import cases

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import UnsupportedError
from hloom.ir.interpret import run
from hloom.ir.loops import lower_scans
from hloom.ir.ops import OPS
from hloom.ir.stablehlo import parse_program, stablehlo_text, to_module
from hloom.ir.stablehlo.writer.module import EMITTERS

CASES = [case for case in cases() if case.name != "custom_calls"]
# Arguments; loops; what is between the programs of devices; sizes that a program counts.
INSIDE = {"parameter", "scan", "send", "recv", "set-dimension-size"}


def leaves(value) -> list[np.ndarray]:
    return [leaf for v in value for leaf in leaves(v)] if isinstance(value, tuple) else [np.asarray(value)]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return np.array_equal(a.astype(np.complex128), b.astype(np.complex128), equal_nan=True)


def test_every_op_has_a_spelling():
    by_table = {n for n, e in OPS.items() if e.is_custom_call or {"stablehlo", "chlo"} & set(e.dialects.split())}
    assert set(OPS) - set(EMITTERS) - by_table == INSIDE


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_read_back_it_means_the_same(case):
    text = stablehlo_text(lower_scans(case.module))
    module = to_module(parse_program(text))
    again = stablehlo_text(module)
    assert stablehlo_text(to_module(parse_program(again))) == again
    for a, b in zip(leaves(run(case.module, case.arguments)), leaves(run(module, case.arguments)), strict=True):
        assert same(a, b)


@pytest.mark.parametrize("case", [c for c in CASES if c.runs], ids=lambda c: c.name)
def test_xla_runs_it_with_our_numbers(case):
    results = xla.run_stablehlo(stablehlo_text(lower_scans(case.module)), case.arguments)
    expected = leaves(run(case.module, case.arguments))
    assert len(results) == len(expected)
    for a, b in zip(results, expected, strict=True):
        wide = np.complex128 if b.dtype.kind == "c" else np.float64
        tolerance = {1: 0.2, 2: 2e-2, 4: 2e-4, 8: 2e-4 if b.dtype.kind == "c" else 1e-9}.get(b.dtype.itemsize, 1e-9)
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance)


PROGRAMS = {
    "layer": lambda x: hnp.tanh(x @ x.T).sum(axis=0),
    "gradient": hl.grad(lambda x: (hnp.sin(x) ** 2).sum()),
    "scan": lambda x: lax.scan(lambda c, r: (c + r.sum(), c * r), hnp.float32(0), x)[1],
    "while": lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, x))[1],
    "cond": lambda x: lax.cond(x[0, 0] > 0, lambda v: v + 1, lambda v: v - 1, x),
    "captured": lambda x: lax.fori_loop(0, 3, lambda i, c: c + x[0] * i, hnp.zeros(x.shape[1], "f32")),
    "gather": lambda x: x[hnp.array([2, 0])],
    "scatter": lambda x: x.at[1].add(1.0),
    "sort": lambda x: hnp.sort(x, axis=1),
    "argmax": lambda x: hnp.argmax(x, axis=1),
    "vmapped": hl.vmap(lambda r: hnp.cumsum(r) * r.max()),
    "nested": lambda x: hl.jit(lambda a: hl.jit(hnp.exp)(a) + 1)(x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_xla_runs_traced_programs(name):
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    function = hl.jit(PROGRAMS[name])
    expected = np.asarray(function(x))
    lowered = function.lower(x)
    for text in (lowered.as_text(dialect="stablehlo"), lowered.compile().as_text(dialect="stablehlo")):
        (result,) = xla.run_stablehlo(text, [x])
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(np.asarray(hl.from_stablehlo(text)(x)), expected, rtol=1e-5, atol=1e-5)


def test_numbers_are_written_so_that_the_same_bits_are_read():
    values = [0.0, -0.0, 1.0, 1 / 3, 1e-45, 3.4028235e38, np.inf, -np.inf, np.nan, 1e10, 123456.789]
    for dtype in ("f32", "f64", "f16", "bf16"):
        builder = hl.ir.build.Builder("main")
        with np.errstate(over="ignore"):
            array = np.array(values, np.float64).astype(hl.ir.types.DTYPES[dtype])
        module = hl.ir.module.Module("m", builder.finish(builder.constant(array)))
        back = run(to_module(parse_program(stablehlo_text(module))), [])
        assert np.array_equal(back.view(np.uint8), array.view(np.uint8)), dtype


def test_what_cannot_be_written_is_named(monkeypatch):
    monkeypatch.delitem(EMITTERS, "iota")
    with pytest.raises(UnsupportedError) as error:
        hl.jit(lambda: hnp.arange(3)).lower().as_text(dialect="stablehlo")
    assert "iota cannot be written as StableHLO" in str(error.value)
    assert error.value.repair == "print it as HLO text"
