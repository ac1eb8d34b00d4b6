"""Ops that only hloom has are written out in the text of programs: XLA runs them and gets the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import xla

import hloom as hl
from hloom.ir.portable import portable

RNG = np.random.default_rng(0)
NEIGHBOURS = (
    np.array([0, 0, 1, -1, np.inf, -np.inf, 5, np.nan, 1, -0.0, 2.5]),
    np.array([1, -1, 2, 0, 0, np.inf, 5, 1, np.nan, 0.0, -np.inf]),
)
INSIDE = np.linspace(-0.999, 0.999, 41).astype(np.float32)


def _key(seed, impl: str):
    return hl.random.key(seed, impl=impl)


PROGRAMS = {
    "bits of threefry": (lambda s: hl.random.bits(_key(s, "threefry2x32"), (5, 3)), np.int32(3)),
    "bits of philox": (lambda s: hl.random.bits(_key(s, "rbg"), (5, 3), "uint16"), np.int32(3)),
    "normal": (lambda s: hl.random.normal(hl.random.key(s), (7,)), np.int32(3)),
    "permutation": (lambda s: hl.random.permutation(hl.random.key(s), 9), np.int32(3)),
    "in a loop": (
        lambda s: hl.lax.scan(lambda k, _: (hl.random.split(k)[0], hl.random.normal(k)), hl.random.key(s), length=4)[1],
        np.int32(5),
    ),
    "erf_inv": (hl.lax.erf_inv, INSIDE),
    "erf_inv of bf16": (lambda x: hl.lax.erf_inv(x.astype("bfloat16")).astype("float32"), INSIDE),
    "atan": (hl.lax.atan, 10 * INSIDE),
    "neighbours in f16": (hl.lax.nextafter, *(x.astype(np.float16) for x in NEIGHBOURS)),
    "neighbours in f32": (hl.lax.nextafter, *(x.astype(np.float32) for x in NEIGHBOURS)),
}


@pytest.mark.parametrize("dialect", ["hlo", "optimized", "stablehlo"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_xla_gets_the_numbers(name, dialect):
    function, *arguments = PROGRAMS[name]
    lowered = hl.jit(function).lower(*arguments)
    text = lowered.compile().as_text(export=True) if dialect == "optimized" else lowered.as_text(dialect)
    if dialect != "stablehlo":
        assert "custom-call" not in text
    (found,) = (xla.run_stablehlo if dialect == "stablehlo" else xla.run)(text, arguments)
    wanted = np.asarray(hl.jit(function)(*arguments))
    assert found.dtype == wanted.dtype
    if wanted.dtype.kind == "f" and "neighbours" not in name:
        np.testing.assert_allclose(found, wanted, rtol=0.01 if "bf16" in name else 3e-6)
    else:
        np.testing.assert_array_equal(found, wanted)


def test_the_text_is_read_back():
    function, *arguments = PROGRAMS["normal"]
    lowered = hl.jit(function).lower(*arguments)
    found = hl.from_hlo(lowered.as_text())(*arguments)
    np.testing.assert_allclose(np.asarray(found), np.asarray(hl.jit(function)(*arguments)), rtol=3e-6)


def test_other_programs_stay_the_same_object():
    module = hl.make_module(lambda x: x + 1)(INSIDE)
    assert portable(module) is module
