"""Lists of numbers as indices, `x[[i, j]]`, in loops under `hl.njit`."""

from __future__ import annotations

import numpy as np
import pytest
from test_njit_semantics import check

import hloom as hl
from hloom.errors import HloomError


def solved(a, b):
    """Elimination with rows that are exchanged."""
    n = len(b)
    a, x = a.copy(), b.copy()
    for k in range(n):
        p = k + np.argmax(np.abs(a[k:, k]))
        if p != k:
            a[[k, p]] = a[[p, k]]
            x[[k, p]] = x[[p, k]]
        for i in range(k + 1, n):
            f = a[i, k] / a[k, k]
            a[i, k:] -= f * a[k, k:]
            x[i] -= f * x[k]
    for k in range(n - 1, -1, -1):
        x[k] = (x[k] - a[k, k + 1 :] @ x[k + 1 :]) / a[k, k]
    return x


def triangles(a):
    n = len(a)
    a, p = a.copy(), np.arange(n)
    for k in range(n):
        m = np.argmax(abs(a[k:, k])) + k
        a[[k, m], :] = a[[m, k], :]
        p[[k, m]] = p[[m, k]]
        for i in range(k + 1, n):
            a[i, k] /= a[k, k]
            a[i, k + 1 :] -= a[i, k] * a[k, k + 1 :]
    return a, p


@pytest.mark.parametrize("n", [1, 5, 70])
def test_elimination_with_pivots(n):
    rng = np.random.default_rng(n)
    a, b = rng.random((n, n)), rng.random(n)
    np.testing.assert_allclose(hl.njit(solved)(a, b), np.linalg.solve(a, b), rtol=1e-9)
    found, wanted = hl.njit(triangles)(a), triangles(a)
    np.testing.assert_array_equal(found[1], wanted[1])
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-9)


def columns(x):
    for k in range(len(x) - 1):
        x[:, [k, k + 1]] = x[:, [k + 1, k]]
    return x[:, [0, -1]].sum()


def three_parts(x):
    total = 0.0
    for k in range(2, len(x)):
        x[[k, 0, -1]] = x[[0, k - 1, k]] * 2
        total += x[[k, k - 1]].sum() + x[[0, 1], 2:4].max()
    return total


def of_one_number_and_twice_the_same(x):
    for k in range(1, len(x)):
        x[[k, k]] = x[[k - 1, 0]]
        x[[0, k], 1:3] = k
        x[[k - 1]] = x[k]
        x[[0, 1]] = x[[k]]
    return x.sum()


def of_views(x):
    for k in range(1, len(x) - 2):
        x[[k, k + 1]] = x[k - 1 : k + 1]
        v = x[1:]
        v[[0, k]] = v[[k, 0]]
        t = x.T
        t[[0, 1]] = t[[1, 0]]
    return x


@pytest.mark.parametrize("function", [columns, three_parts, of_one_number_and_twice_the_same, of_views])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
def test_parts_are_exchanged(function, dtype):
    check(function, (np.random.default_rng(1).random((9, 9)) * 8).astype(dtype))


def out_of_range(x, n):
    for k in range(len(x)):
        x[[k, n]] = x[[n, k]]
    return x


def parts_of_another_number(x):
    for k in range(2, len(x)):
        x[[k, 0]] = x[:3]
    return x


def changed_in_place(x):
    for k in range(1, 100):
        x[[k % 3, 0]] += 1
    return x


def test_errors_at_their_lines():
    x = np.ones((5, 3))
    for function, arguments in ((out_of_range, (x, 5)), (parts_of_another_number, (x,))):
        with pytest.raises(HloomError) as caught:
            hl.njit(function)(*arguments)
        assert caught.value.source.line == function.__code__.co_firstlineno + 2
    check(out_of_range, x, 4)
    check(changed_in_place, x)
