"""Loops of NumPy programs that are divided among the cores: those whose iterations are independent for certain."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest

import hloom as hl

N = 64
X = np.random.default_rng(0).random((N, N))


def scaled_rows(x):
    for i in range(x.shape[0]):
        x[i] *= i


def neighbours_into_another(x):
    out = np.zeros(N)
    for i in range(1, N - 1):
        out[i] = x[0, i - 1] + x[0, i + 1]
    return out


def windows(x):
    out = np.zeros((N - 2, N - 2))
    for i in range(N - 2):
        for j in range(N - 2):
            out[i, j] = x[i : i + 3, j : j + 3].sum()
    return out


def columns(x):
    for j in range(N):
        for i in range(1, N):
            x[i, j] += x[i - 1, j]


def left_early(x):
    out = np.zeros(N, np.int64)
    for i in range(N):
        for j in range(N):
            if x[i, j] > 0.95:
                out[i] = j
                break
    return out


def pairs(x):
    v = x.reshape(-1)
    for i in range(N):
        v[2 * i] = i
        v[2 * i + 1] = -i


def recurrence(x):
    for i in range(1, N):
        x[i] = x[i - 1] * 0.5 + x[i]


def backwards_neighbour(x):
    for i in range(N - 1):
        x[i] = x[i + 1]


def histogram(x):
    out = np.zeros(8)
    for i in range(N):
        out[int(x[0, i] * 8)] += 1
    return out


def wraps_around(x):
    out = np.zeros(7)
    for i in range(N):
        out[i % 7] += x[0, i]
    return out


def overlapping_rows(x):
    v = x.reshape(-1)
    for i in range(N):
        v[i : i + 2] += 1


def through_a_view(x):
    v = x[1:]
    for i in range(N - 1):
        v[i] = x[i] + 1


def a_sum(x):
    total = 0.0
    for i in range(N):
        total += x[i].sum()
    return total


def last_value(x):
    k = 0
    for i in range(N):
        k = i
        x[i, 0] = 1
    return k


def from_the_end(x):
    for i in range(N):
        x[i - 5, 0] = i
        x[i, 1] = x[i - 5, 0]


DIVIDED = [scaled_rows, neighbours_into_another, windows, left_early, pairs]
IN_ORDER = [
    recurrence, backwards_neighbour, histogram, wraps_around, overlapping_rows, through_a_view, a_sum, last_value,
    from_the_end, columns,  # independent, and not proved
]  # fmt: skip


def is_divided(function) -> bool:
    """Whether the last kernel of a loop has several iterations."""
    text = hl.njit(function).lower(X.copy()).compile().source()
    found = re.findall(rf"items (\d+),[^\n]*\n(?:#[^\n]*\n)*def kernel_{function.__name__}", text)
    return int(found[-1]) > 1


@pytest.mark.parametrize("function", [*DIVIDED, *IN_ORDER], ids=lambda f: f.__name__)
def test_only_independent_iterations_are_divided(function):
    assert is_divided(function) is (function in DIVIDED)
    own, given = X.copy(), X.copy()
    found, wanted = hl.njit(function)(own), copy.deepcopy(function(given))
    np.testing.assert_allclose(own, given, rtol=1e-12)
    if wanted is not None:
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("function", [scaled_rows, columns, windows], ids=lambda f: f.__name__)
def test_gradients_of_divided_loops(function):
    f = hl.njit(function)

    def loss(x):
        result, written = f.pure(x)
        return ((written["0"] if result is None else result) ** 2).sum()

    with hl.enable_x64():
        slope = np.asarray(hl.grad(loss)(X))
        direction = np.random.default_rng(1).normal(size=X.shape)
        step = 1e-5
        change = (float(loss(X + step * direction)) - float(loss(X - step * direction))) / (2 * step)
    np.testing.assert_allclose((slope * direction).sum(), change, rtol=1e-6)
