"""Loops over arrays whose sizes the program computes: what masks select, `np.nonzero`, `np.unique`."""

from __future__ import annotations

import numpy as np
import pytest
from test_njit_semantics import check

import hloom as hl

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=30) * 3, 1)
MATRIX = RNG.random((7, 5))


def places(x):
    total = 0.0
    for i in np.nonzero(x > 0)[0]:
        total = total * 0.5 + x[i] * i
    return total


def selected(x):
    out = np.zeros(3)
    for v in x[x > 0]:
        out[int(v) % 3] += v
    return out


def together(x):
    total = 0
    for i, j in zip(*np.nonzero(x > 0.3), strict=False):
        x[i, j] = 0.1 * i
        total += i * j
    return total


def numbered_and_backwards(x):
    total = 0.0
    for k, v in enumerate(np.unique(x)):
        total += k * v
    for v in reversed(x[x > 2]):
        total = total / 2 + v
    return total


def in_loops_of_the_program(x):
    y = np.zeros(3)
    for v in x[x > 0]:
        y = y + np.linalg.solve(np.eye(3) * v, y + 1)
    for k, i in enumerate(np.flatnonzero(x < 0)):
        y = y + np.linalg.inv(np.eye(3) * (k + 1)) @ y * x[i]
    return y


def rows(x):
    total = np.zeros(x.shape[1])
    for row in x[x[:, 0] > 0.5]:
        total += row * row[0]
    return total, any(v > 0.9 for v in x[0][x[0] > 0.2])


def left_early_and_within_loops(x):
    found = 0
    for i in np.where(x > 2)[0]:
        if i > 20:
            break
        found += i
    for i in range(len(x)):
        for j in np.nonzero(x)[0]:
            found += j - i
    return found


@pytest.mark.parametrize("change", [np.positive, np.zeros_like, lambda x: -np.abs(x), lambda x: np.abs(x) + 1])
@pytest.mark.parametrize(
    "function",
    [places, selected, together, numbered_and_backwards, in_loops_of_the_program, rows, left_early_and_within_loops],
)
def test_results_are_those_of_numpy(function, change):
    check(function, change(MATRIX if function in (together, rows) else X))


def test_one_program_for_all_numbers_of_elements():
    compiled = hl.njit(places)
    for x in (X, np.zeros(30), np.ones(30), X):
        assert compiled(x) == pytest.approx(places(x), rel=1e-14)
