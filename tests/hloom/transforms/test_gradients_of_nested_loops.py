"""Gradients of loops in loops that update an array: right, without a tape of indices, and as long as the loop."""

from __future__ import annotations

import numpy as np
import pytest
from processor_time import least_seconds

import hloom as hl
import hloom.numpy as hnp
from hloom import lax


def _random_nest(seed: int):
    """(a function of two arrays, both): updates of one in nested loops, with reads of the other and a branch."""
    rng = np.random.default_rng(seed)
    n, m = (int(size) for size in rng.integers(4, 7, 2))
    actions = rng.integers(0, 6, rng.integers(1, 4))
    outer = int(rng.integers(1, 3))
    weight = rng.uniform(0.2, 0.9)

    def changed(action, a, x, i, j):
        if action == 0:
            return a.at[i, j].set(hnp.sin(a[i - 1, j]) * weight + a[i, j - 1] * x[i, j])
        if action == 1:
            return a.at[i, j].add(x[j % n, i % m] * a[i - 1, j - 1])
        if action == 2:
            return lax.cond(x[i, j] > 0.5, lambda a: a.at[i, j].set(a[i, j - 1] * x[i, j]), lambda a: a * 0.99, a)
        if action == 3:
            return a.at[i].multiply(hnp.tanh(x[i - 1]))
        if action == 4:
            return a.at[i, j].set(hnp.minimum(a[i - 1, j], a[i, j - 1]) + x[i, 0])
        return a.at[i, 1:3].set(a[i - 1, 0:2] * x[i, j])

    def function(a, x):
        def inner(i, a):
            def body(j, a):
                for action in actions:
                    a = changed(action, a, x, i, j)
                return a

            return lax.fori_loop(1, m, body, a)

        a = lax.fori_loop(0, outer, lambda _, a: lax.fori_loop(1, n, inner, a), a)
        return hnp.sin(a).sum()

    return function, (rng.uniform(0.2, 0.9, (n, m)), rng.uniform(0.2, 0.9, (n, m)))


@pytest.mark.parametrize("seed", range(12))
def test_backward_is_forward_in_nested_loops(seed):
    """Forward mode adds no cotangents and keeps no values."""
    with hl.config(enable_x64=True):
        function, arguments = _random_nest(seed)
        got = hl.jit(hl.grad(function, argnums=(0, 1)))(*arguments)
        tangents = hl.jit(hl.jacfwd(function, argnums=(0, 1)))(*arguments)
        for found, want in zip(got, tangents, strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12)


def relaxed(a, sweeps):
    """Gauss-Seidel sweeps."""
    n = a.shape[0]

    def point(i, j, a):
        return a.at[i, j].set(0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1]))

    def sweep(_, a):
        return lax.fori_loop(1, n - 1, lambda i, a: lax.fori_loop(1, n - 1, lambda j, a: point(i, j, a), a), a)

    return (lax.fori_loop(0, sweeps, sweep, a) ** 2).sum()


def shortest(x):
    """The cost of the cheapest way through a matrix."""
    n = x.shape[0]

    def point(i, j, t):
        return t.at[i, j].set(hnp.minimum(hnp.minimum(t[i - 1, j], t[i, j - 1]), t[i - 1, j - 1]) + x[i - 1, j - 1])

    def row(i, t):
        return lax.fori_loop(1, n + 1, lambda j, t: point(i, j, t), t)

    return lax.fori_loop(1, n + 1, row, hnp.zeros((n + 1, n + 1), x.dtype))[n, n]


def _temporary_bytes(function, *arguments) -> int:
    return hl.jit(function).lower(*arguments).compile().memory_analysis()["temporary bytes"]


def test_linear_updates_and_indices_are_not_kept():
    a = np.ones((40, 40), np.float32)
    few, many = (_temporary_bytes(hl.grad(lambda a, s=s: relaxed(a, s)), a) for s in (2, 64))
    assert many <= few + 4 * 64, (few, many)


def test_a_tape_is_as_long_as_the_stores():
    """Four numbers a point: the halves of two minima's cotangents. Doubling the points at most doubles them."""
    small, large = (_temporary_bytes(hl.grad(shortest), np.ones((n, n), np.float32)) for n in (64, 128))
    assert large <= 4.4 * small, (small, large)
    assert large <= 7 * 4 * 128 * 128 + 50_000


@pytest.mark.parametrize("function", [lambda a: relaxed(a, 3), shortest], ids=["relaxed", "shortest"])
def test_a_gradient_takes_as_long_as_its_loop(function):
    """Adding the cotangents of a whole array in each row takes 8 times as long on an array of twice the rows."""
    gradient = hl.jit(hl.grad(function))
    small, large = (least_seconds(gradient, np.ones((n, n), np.float32)) for n in (128, 384))
    assert large < 9 * 2 * small + 2e-3, (small, large)
