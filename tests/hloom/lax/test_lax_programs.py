"""lax: named parts of programs, values kept alive, random numbers without a key."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ArgumentError, DTypeError


def test_a_composite_is_what_its_decomposition_does():
    @lambda f: lax.composite(f, "my.tangent", 1)
    def tangent(x, *, scale):
        return scale * hnp.sin(x) / hnp.cos(x)

    x = np.float32(0.5)
    assert float(hl.jit(lambda x: tangent(x, scale=2.0))(x)) == pytest.approx(2 * np.tan(x), rel=1e-6)
    assert float(hl.grad(lambda x: tangent(x, scale=1.0))(x)) == pytest.approx(1 / np.cos(x) ** 2, rel=1e-6)
    with pytest.raises(ArgumentError, match="a function and a name"):
        lax.composite("tangent", tangent)


def test_a_sink_keeps_what_nothing_uses():
    seen = []

    def program(x, keep):
        y = hl.pure_callback(lambda v: seen.append(1) or v, x, x)
        if keep:
            lax.dce_sink({"y": y})
        return x

    for keep in (False, True):
        hl.jit(program, static_argnums=1)(hnp.ones(3), keep)
        assert len(seen) == keep


def test_random_numbers_without_a_key():
    draw = hl.jit(lambda: lax.rng_uniform(2.0, 3.0, (1000,)))
    first, second = np.asarray(draw()), np.asarray(draw())
    assert first.dtype == np.float32 and (first >= 2).all() and (first <= 3).all() and 2.4 < first.mean() < 2.6
    assert (first != second).any()
    with pytest.raises(DTypeError, match="float scalars"):
        lax.rng_uniform(1, 2, (3,))


def test_marks_of_values_change_nothing():
    x = hnp.arange(3)
    assert lax.pcast(x, "i", to="varying") is x
    with pytest.raises(ArgumentError, match="'varying'"):
        lax.pcast(x, "i", to="sideways")
