"""`hl.njit` for users of Numba: its options, `prange`, and functions that it compiles."""

from __future__ import annotations

import numba
import numpy as np
import pytest

import hloom as hl
from hloom.errors import ArgumentError

X = np.random.default_rng(0).random((20, 30))


def row_sums(x):
    out = np.zeros(x.shape[0])
    for i in numba.prange(x.shape[0]):
        out[i] = x[i].sum()
    return out


def total(x):
    found = 0.0
    for i in numba.prange(x.shape[0]):
        for j in numba.prange(x.shape[1]):
            found += x[i, j]
    return found


def outside_of_kernels(x):
    found = np.zeros(4)
    for i in numba.prange(4):
        found[i] = np.linalg.det(x[i : i + 3, :3])
    return found


@pytest.mark.parametrize("function", [row_sums, total, outside_of_kernels], ids=lambda f: f.__name__)
def test_prange(function):
    wanted = function(X)
    for compiled in (hl.njit(parallel=True, cache=True, fastmath=True)(function), hl.njit(numba.njit(function))):
        np.testing.assert_allclose(compiled(X), wanted, rtol=1e-12)


def test_a_prange_that_races_in_numba_is_in_order():
    @hl.njit(parallel=True)
    def histogram(x):
        out = np.zeros(4, np.int64)
        for i in numba.prange(x.shape[0]):
            out[x[i] % 4] += 1
        return out

    np.testing.assert_array_equal(histogram(np.arange(4000)), [1000] * 4)


@numba.njit
def helper(v):
    return v * 2 if v > 0 else -v


def test_functions_of_numba_are_inlined():
    @hl.njit
    def apply(x):
        out = np.empty_like(x)
        for i in range(x.shape[0]):
            out[i] = helper(x[i, 0])
        return out[:, 0] + helper(1.5)

    np.testing.assert_allclose(apply(X - 0.5), [helper(v) + 3 for v in X[:, 0] - 0.5])


@pytest.mark.parametrize("options", [{"nopython": False}, {"error_model": "python"}], ids=str)
def test_options_that_are_refused(options):
    with pytest.raises(ArgumentError, match="not supported"):
        hl.njit(**options)(row_sums)
