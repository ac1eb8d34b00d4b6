"""`hl.njit` of NumPy programs as they are: results, dtypes, and what is changed in place, against NumPy."""

from __future__ import annotations

import copy

import idiom_numpy_programs  # noqa: F401  (registers more)
import numpy as np
import pytest
from numpy_programs import PROGRAMS

import hloom as hl
import hloom.benchmarks.numpy_programs.programs  # registers them
from hloom.benchmarks.numpy_programs import table


def assert_same(found, wanted, what: str) -> None:
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key in wanted:
            assert_same(found[key], wanted[key], f"{what}[{key!r}]")
    elif isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted), what
        for k, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_same(one, other, f"{what}[{k}]")
    elif callable(wanted):
        assert found is wanted
    elif wanted is None:
        assert found is None, what
    else:
        one, other = np.asarray(found), np.asarray(wanted)
        assert (one.dtype, one.shape) == (other.dtype, other.shape), what
        rtol = 2e-6 if other.dtype in (np.float32, np.complex64) else 1e-11  # sums are in another order
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-13, err_msg=what)


def check_as_it_is(function, given):
    own = copy.deepcopy(given)
    with np.errstate(all="ignore"):
        wanted = function(*given)
    found = hl.njit(function)(*own)
    assert_same(found, wanted, "result")
    assert_same(list(own), list(given), "argument")


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_as_they_are(name):
    function, make = PROGRAMS[name]
    check_as_it_is(function, make())


@pytest.mark.parametrize("name", table.PROGRAMS)
def test_programs_of_the_benchmark(name):
    program = table.PROGRAMS[name]
    check_as_it_is(program.function, program.arguments("tiny"))


def test_a_second_call_compiles_nothing():
    program = table.PROGRAMS["seidel_2d"]
    function, make = program.function, program.make
    f = hl.njit(function)
    f(*make(30))
    given, own = make(30), make(30)
    function(*given)
    entries = dict(f._entries)
    f(*own)
    assert_same(list(own), list(given), "argument")
    assert f._entries == entries
