"""`debug_nans` and `debug_infs` name the first operation that made the value, its line, its operands, and a repair."""

from __future__ import annotations

import linecache

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import NonFiniteError


def found_of(function, *args, settings=None):
    with hl.config(**(settings or {"debug_nans": True})), pytest.raises(NonFiniteError) as caught:
        function(*args)
    error = caught.value
    assert isinstance(error, FloatingPointError) and error.repair
    return error, linecache.getline(error.source.file, error.source.line)


def loss(w, x):
    h = x * 2
    p = hnp.log(h - 3.0)  # makes it
    return (p * w).sum()


@pytest.mark.parametrize("wrap", [hl.jit, lambda f: f])
def test_forward(wrap):
    error, line = found_of(wrap(loss), hnp.ones(2), hnp.asarray([4.0, 1.0]))
    assert "# makes it" in line and "log" in error.asked
    assert "1 of 2 elements of f32[2], the first at [1]" in error.found
    assert "log(-1.0)" in error.found


@pytest.mark.parametrize("wrap", [lambda f: hl.jit(hl.grad(f)), hl.grad, lambda f: hl.grad(hl.jit(f))])
def test_backward(wrap):
    def norm(x):
        return hnp.where(x > 0, hnp.sqrt(x), 0.0).sum()  # its derivative at 0

    error, line = found_of(wrap(norm), hnp.asarray([1.0, 0.0]))
    assert "# its derivative at 0" in line and "hnp.where" in error.repair
    assert np.asarray(norm(hnp.asarray([1.0, 0.0])))[()] == 1


def test_a_masked_nan_is_none():
    with hl.debug_nans():
        assert hl.jit(lambda x: hnp.where(x > 0, hnp.log(x), 0.0))(hnp.asarray([-1.0])) == 0
    both = hl.jit(lambda x: hnp.where(x > 0, hnp.log(x), 0.0) + hnp.sqrt(x))
    error, _ = found_of(both, hnp.asarray([-1.0]))
    assert error.asked.startswith("sqrt")


def test_inside_of_loops_and_branches():
    def step(c, x):
        return lax.cond(x > 0, lambda c: c + 1, lambda c: hnp.sqrt(c - 10), c), c  # in a branch

    error, line = found_of(hl.jit(lambda x: lax.scan(step, x, hnp.asarray([1.0, -1.0, 1.0]))), 2.0)
    assert "# in a branch" in line and "sqrt" in error.asked and "sqrt(-7.0)" in error.found
    error, _ = found_of(hl.jit(lambda x: lax.fori_loop(0, 200, lambda i, c: c * c - c * c, x)), 1e38)
    assert error.asked.startswith("subtract")


def test_an_argument_and_donated_arguments():
    error, _ = found_of(hl.jit(lambda batch: batch["image"] * 2), {"image": hnp.asarray([hnp.nan])})
    assert error.asked.startswith("the argument batch_image")
    error, _ = found_of(hl.jit(lambda x: hnp.log(x), donate_argnums=0), hnp.asarray([-1.0, 2.0]))
    assert "log(-1.0)" in error.found


def test_infinities():
    error, _ = found_of(hl.jit(lambda x: 1 / (x - 1)), hnp.asarray([1.0, 2.0]), settings={"debug_infs": True})
    assert error.asked == "divide made an invalid value (inf)" and "divide(1.0, 0.0)" in error.found
