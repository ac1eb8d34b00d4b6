"""The warning for Python loops that were unrolled into a program that compiles slowly."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from silence import no_warnings

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.backends import unrolled
from hloom.errors import CompileTimeWarning
from hloom.ir import source

X = np.ones(3, np.float32)


@pytest.fixture(autouse=True)
def slow(monkeypatch):
    """Every compilation counts as slow, and no line has warned before."""
    monkeypatch.setattr(unrolled, "SLOW", 0.0)
    monkeypatch.setattr(source, "_SHOWN", {})


def line_of(text: str) -> int:
    with open(__file__) as file:
        return next(k for k, line in enumerate(file, 1) if text in line and "line_of" not in line)


def test_names_the_loop_and_what_it_became():
    def steps(x):
        for k in range(600):  # the loop
            x = hnp.sin(x)
            x = x * 1.5 + k
        return x

    with pytest.warns(CompileTimeWarning, match="a Python loop was traced into [0-9],[0-9]{3} instructions") as found:
        hl.jit(steps)(X)
    (warning,) = found
    assert (warning.filename, warning.lineno) == (__file__, line_of("# the loop"))
    assert "to compile" in str(warning.message) and "lax.scan" in str(warning.message)


def test_a_loop_around_the_function_is_not_meant():
    for count in (900,):

        def layer(x):
            return hnp.sin(x) * 1.5  # the line

        def steps(x, count=count):
            return [x := layer(x) for _ in range(count)][-1]

    with pytest.warns(CompileTimeWarning, match="one line was traced into") as found:
        hl.jit(steps)(X)
    assert found[0].lineno == line_of("# the line")


def test_compiled_loops_and_fast_compilations_warn_of_nothing(monkeypatch):
    with no_warnings():
        hl.jit(lambda x: lax.fori_loop(0, 5000, lambda k, x: hnp.sin(x) + k, x))(X)
        monkeypatch.setattr(unrolled, "SLOW", 1000.0)

        def steps(x):
            for k in range(600):
                x = hnp.sin(x) * 1.5 + k
            return x

        hl.jit(steps)(X)


def test_warnings_as_errors_do_not_end_a_compilation(capfd):
    def steps(x):
        for k in range(600):
            x = hnp.sin(x) * 1.5 + k
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(hl.jit(steps)(X), hl.jit(steps)(X))
    assert "CompileTimeWarning: 'steps' took" in capfd.readouterr().err
