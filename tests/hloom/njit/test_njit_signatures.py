"""`hl.njit` with Numba's signatures: arguments are converted, or refused, as Numba does."""

from __future__ import annotations

import numba
import numpy as np
import pytest

import hloom as hl
from hloom.errors import ArgumentError, DTypeError, UnsupportedError


def double(x):
    return x * 2


def total(x):
    return x.sum()


def scaled(x, by):
    for i in range(len(x)):
        x[i] *= by
    return x


NUMBERS = [1, 2.75, True, -3, np.int32(4), np.float32(1.5), np.uint8(200)]


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
@pytest.mark.parametrize("declared", ["int64(int64)", "float64(float64)", ["int64(int64)", "float64(float64)"],
                                      "int64(float64)", "float32(float32)", "(int64,)"], ids=str)  # fmt: skip
def test_numbers_are_converted(declared, value):
    try:
        wanted = numba.njit(declared)(double)(value)
    except TypeError:  # ambiguous in Numba; here the first one is taken
        assert isinstance(declared, list)
        return
    found = hl.njit(declared)(double)(value)
    assert found == wanted
    if isinstance(wanted, int):
        assert np.asarray(found).dtype.kind in "iu"


@pytest.mark.parametrize("declared", ["float64(float64[:])", numba.float64(numba.float64[:]),
                                      "(f8[:],)",
                                      (numba.float64[:],), "float64(float64[::1])",
                                      [numba.float64(numba.float64[::1])]],
                         ids=str)  # fmt: skip
def test_arrays_are_as_declared(declared):
    mine, numbas = hl.njit(declared)(total), numba.njit(declared)(total)
    for given in (np.arange(4.0), np.arange(4.0)[::2], np.arange(4.0, dtype=np.float32), np.ones((2, 2)), 1.0):
        try:
            wanted = numbas(given)
        except TypeError:
            with pytest.raises(DTypeError, match="it is declared as"):
                mine(given)
        else:
            np.testing.assert_allclose(mine(given), wanted)


def test_arguments_are_changed():
    f = hl.njit("float64[:](float64[:], float64)")(scaled)
    x = np.arange(4.0)
    np.testing.assert_array_equal(f(x, 3), np.arange(4) * 3)
    np.testing.assert_array_equal(x, np.arange(4) * 3)
    np.testing.assert_array_equal(f(by=2, x=x), np.arange(4) * 6)


def test_what_is_passed_and_declared_is_named():
    with pytest.raises(DTypeError, match=r"scaled\(float32\[:\], float\)[\s\S]*float64\[:\]\(float64\[:\], float64\)"):
        hl.njit("float64[:](float64[:], float64)")(scaled)(np.ones(3, np.float32), 1.0)
    with pytest.raises(DTypeError, match=r"double\(complex\)"):
        hl.njit("float64(float64)")(double)(1j)
    with pytest.raises(ArgumentError, match="a call of double"):
        hl.njit("float64(float64)")(double)(1.0, 2.0)


def test_results_are_as_declared():
    with pytest.raises(DTypeError, match=r"declared as float64\[:\]"):
        hl.njit("float64[:](float64[:])")(total)(np.ones(3))
    with pytest.raises(DTypeError, match="declared as nothing"):
        hl.njit("void(float64[:])")(total)(np.ones(3))


def yields(x):
    yield x


def prints(x):
    print(x)


def test_mistakes_are_found_at_the_decoration():
    for function in (yields, prints):
        with pytest.raises(UnsupportedError):
            hl.njit("float64(float64)")(function)
    for text in ("float64(", "float65(int64)", "float64(float64[1:2])", 3, "float64(float64[:][:])"):
        with pytest.raises(ArgumentError, match="a signature of arrays and numbers|takes a function"):
            hl.njit(text)(double)
    with pytest.raises(ArgumentError, match="declare each argument"):
        hl.njit("float64(float64, float64)")(double)
