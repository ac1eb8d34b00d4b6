"""Functions that each call the next one twice: 2**30 copies are never made."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.compiler.pipeline import run_passes
from hloom.errors import UnsupportedError

X = np.linspace(0, 1, 3, dtype=np.float32)
DEPTH = 30


def nest(step, depth=DEPTH):
    function = lambda x: hnp.sin(x) + 1  # noqa: E731
    for _ in range(depth):
        function = hl.jit(lambda x, inner=function: step(inner, x))
    return function


def transformed(function):
    return {
        "jit": (hl.jit(function), X),
        "vmap": (hl.vmap(function), X[None]),
        "grad": (hl.jit(hl.grad(lambda x: hnp.sum(function(x)))), X),
    }


STEPS = {
    "one after the other": lambda f, x: f(f(x)),
    "of other arguments": lambda f, x: f(x) + f(x * 2),
    "in a loop": lambda f, x: lax.fori_loop(0, 2, lambda _, y: f(f(y)), x),
    "in branches": lambda f, x: lax.cond(x[0] > 0, f, lambda y: f(y * 2), x),
    "in a scan": lambda f, x: lax.scan(lambda c, _: (f(f(c)), c), x, None, length=2)[0],
}


@pytest.mark.parametrize("transform", ["jit", "vmap", "grad"])
def test_calls_with_the_same_operands_are_inlined_once(transform):
    function, x = transformed(nest(lambda f, x: 0.5 * (f(x) + f(x))))[transform]
    want = np.cos(x) if transform == "grad" else np.sin(x) + 1
    np.testing.assert_allclose(function(x), want, rtol=1e-6)


def test_the_instructions_of_equal_calls_stand_once():
    module = run_passes(hl.make_module(nest(lambda f, x: f(x) * f(x)))(X), ("inline-calls",))
    assert len(module.entry.instructions) < 3 * DEPTH


@pytest.mark.parametrize("transform", ["jit", "vmap", "grad"])
@pytest.mark.parametrize("step", STEPS)
def test_too_many_copies_are_refused_at_the_call(step, transform):
    function, x = transformed(nest(STEPS[step]))[transform]
    with pytest.raises(UnsupportedError) as error:
        function(x)
    assert "'" in error.value.asked and "times, which makes" in error.value.found
    assert "test_many_calls.py" in str(error.value.source) and "lax.scan" in error.value.repair


@pytest.mark.parametrize("step", STEPS)
def test_a_few_copies_are_made(step):
    step = STEPS[step]
    eager = step(lambda x: step(lambda x: hnp.sin(x) + 1, x), hnp.asarray(X))
    np.testing.assert_allclose(nest(step, 2)(X), eager, rtol=1e-6)
