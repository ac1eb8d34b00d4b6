"""Gradients of NumPy programs: values are computed again from arrays where later statements leave their elements, and
kept where they may not."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl

PLACES = np.random.default_rng(3).integers(0, 30, 30)


def table(x):
    t = x.copy()
    for i in range(1, x.shape[0]):
        for j in range(1, x.shape[1]):
            before = min(t[i - 1, j], t[i, j - 1], t[i - 1, j - 1])
            t[i, j] = x[i, j] * 1.25 + before
    return t


def overwritten(x):
    """The element that was read is stored to at once, or in the next statement but one."""
    a = x.ravel()
    for i in range(1, a.size - 1):
        here, next_ = a[i], a[i + 1]
        a[i] = here * next_ + a[i - 1]
        a[i + 1] = np.sin(next_ * here)
    return x


def computed_places(x):
    """A place that may be the one that is stored to."""
    a = x.ravel()
    for i in range(30):
        there = a[PLACES[i]]
        a[i] = there * there + 0.1 * a[i]
        a[PLACES[29 - i]] = np.cos(there * a[i])
    return x


def inner_stores(x):
    """An inner loop stores to the element that was read before it."""
    for i in range(1, x.shape[0]):
        pivot = x[i, 0] + 2.0
        for j in range(x.shape[1]):
            x[i, j] = x[i, j] * x[i - 1, j] / pivot
    return x


def distances(x):
    """Reads of one array while another one is changed, and back."""
    n = x.shape[0]
    v = np.zeros((n, 2))
    for _ in range(3):
        for i in range(n):
            for j in range(n):
                if i != j:
                    dx, dy = x[j, 0] - x[i, 0], x[j, 1] - x[i, 1]
                    r = (dx * dx + dy * dy + 0.01) ** 1.5
                    v[i, 0] += 0.01 * dx / r
                    v[i, 1] += 0.01 * dy / r
        for i in range(n):
            x[i, 0] += 0.01 * v[i, 0]
            x[i, 1] += 0.01 * v[i, 1]
    return x


def triangles(x):
    """Cholesky by elements."""
    n = x.shape[0]
    a = x @ x.T + n * np.eye(n)
    for i in range(n):
        for j in range(i):
            for k in range(j):
                a[i, j] -= a[i, k] * a[j, k]
            a[i, j] /= a[j, j]
        for k in range(i):
            a[i, i] -= a[i, k] * a[i, k]
        a[i, i] = np.sqrt(a[i, i])
    return a


PROGRAMS = (table, overwritten, computed_places, inner_stores, distances, triangles)


def _total(function):
    compiled = hl.njit(function)

    def total(x):
        result = compiled.pure(x)[0]
        return (result * np.cos(np.arange(result.size).reshape(result.shape))).sum()

    return total


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_backward_is_forward_and_differences(function):
    with hl.enable_x64():
        x = np.random.default_rng(0).uniform(0.4, 1.2, (6, 5))
        way = np.random.default_rng(1).normal(size=x.shape)
        total = _total(function)
        got = float((np.asarray(hl.jit(hl.grad(total))(x)) * way).sum())
        forward = float(hl.jit(lambda x, t: hl.jvp(total, (x,), (t,))[1])(x, way))
        assert got == pytest.approx(forward, rel=1e-11, abs=1e-13)
        weights = np.cos(np.arange(function(x.copy()).size)).reshape(function(x.copy()).shape)
        above, below = ((function(x + h * way) * weights).sum() for h in (1e-6, -1e-6))
        assert got == pytest.approx((above - below) / 2e-6, rel=1e-6, abs=1e-8)


OF_TRIANGLES = sum(j + 1 for i in range(80) for j in range(i)) + sum(i + 1 for i in range(80))


@pytest.mark.parametrize(
    ("function", "shape", "stored"),
    [(table, (200, 200), 200 * 200), (distances, (200, 2), 0), (triangles, (80, 80), OF_TRIANGLES)],
)
def test_the_tape_has_what_is_overwritten(function, shape, stored):
    """One value per store; none where elements are only read or added to. Cotangents and copies are three arrays."""
    with hl.enable_x64():
        x = np.random.default_rng(0).uniform(0.4, 1.2, shape)
        compiled = hl.jit(hl.grad(_total(function))).lower(x).compile()
        found = compiled.memory_analysis()["temporary bytes"]
        assert found <= (stored + 4 * x.size) * 8 + 20_000


def selected(x):
    """Elements of a mask, whose number is known when the program runs."""
    y = x.ravel()
    y = y[y > 0.7]
    return np.array([np.sum(y * y), np.mean(np.sin(y))])


def changed_where_large(x):
    y = x.ravel().copy()
    y[y > 0.7] = np.sin(y[y > 0.7]) * y[0]
    return y


@pytest.mark.parametrize("function", [selected, changed_where_large], ids=lambda f: f.__name__)
def test_computed_sizes(function):
    """In hl.jit, where arrays may have as many elements as a mask selects."""
    with hl.enable_x64():
        x = np.random.default_rng(0).uniform(0.4, 1.2, (6, 5))
        way = np.random.default_rng(1).normal(size=x.shape)
        got = float((np.asarray(hl.jit(hl.grad(_total(function)))(x)) * way).sum())
        weights = np.cos(np.arange(function(x).size))
        above, below = ((function(x + h * way) * weights).sum() for h in (1e-6, -1e-6))
        assert got == pytest.approx((above - below) / 2e-6, rel=1e-6, abs=1e-8)


def knapsack(weights, values, room):
    """Ranges that fall to a computed end."""
    best = np.zeros(room + 1)
    for i in range(len(weights)):
        for k in range(room, weights[i] - 1, -1):
            best[k] = max(best[k], best[k - weights[i]] + values[i])
    return best[room]


def test_the_gradient_of_a_knapsack_is_what_it_contains():
    weights, values = np.array([2, 3, 4, 1]), np.array([3.0, 4.0, 5.0, 1.5])
    compiled = hl.njit(knapsack)
    with hl.enable_x64():
        found = hl.jit(hl.grad(lambda values: compiled.pure(weights, values, 6)[0]))(values)
    np.testing.assert_array_equal(found, [1, 1, 0, 1])


WEIGHTS = np.array([2, 3, 4, 1])


def with_weights_from_outside(values):
    best = np.zeros(7)
    for i in range(len(values)):
        for k in range(6, WEIGHTS[i] - 1, -1):
            best[k] = max(best[k], best[k - WEIGHTS[i]] + values[i])
    return best[6]


def test_arrays_from_outside_are_read_by_the_kernel_of_a_loop():
    """A loop of the program would have no derivative: the length of its inner range is computed."""
    compiled = hl.njit(with_weights_from_outside)
    with hl.enable_x64():
        values = np.array([3.0, 4.0, 5.0, 1.5])
        assert compiled(values) == 8.5
        found = hl.jit(hl.grad(lambda values: compiled.pure(values)[0]))(values)
        np.testing.assert_array_equal(found, [1, 1, 0, 1])
        WEIGHTS[1] = 4
        assert compiled(values) == 8.0
        WEIGHTS[1] = 3
