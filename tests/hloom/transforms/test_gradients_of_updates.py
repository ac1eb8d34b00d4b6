"""Gradients of loops that read and update a little of an array: right, and in time that does not grow with its size."""

from __future__ import annotations

import numpy as np
import pytest
from processor_time import least_seconds

import hloom as hl
import hloom.numpy as hnp
from hloom import lax

INDEXES = np.array([3, 0, 5, 5, 2, 1, 4, 3], np.int32)


def shifted_rows(x):
    """Removes an element of a row in each step, as a list does."""

    def step(rows, i):
        tail = lax.dynamic_slice(rows, (i % 3, i + 1), (1, 3))
        return lax.dynamic_update_slice(rows, tail * rows[0, i], (i % 3, i)), rows[i % 3, i]

    rows, removed = lax.scan(step, x.reshape(4, 10), INDEXES)
    return (rows**2).sum() + (removed**3).sum()


def from_the_previous(x):
    return lax.scan(lambda rows, i: (rows.at[i].set(rows[i - 1] * x[i]), None), x, np.arange(1, 40))[0].sum()


def captured(x):
    return lax.fori_loop(0, 40, lambda i, total: total + x[i] * x[39 - i] ** 2, 0.0)


def read_twice_and_added(x):
    def step(a, i):
        return a.at[i].add(a[i + 1] * a[i + 2]).at[i + 3].multiply(a[i]), a[i]

    a, read = lax.scan(step, x, np.arange(30))
    return a.sum() + (read**2).sum()


def several_places(x):
    """A place that is written twice keeps the last, and one that is read twice has two cotangents."""

    def step(a, i):
        places = (INDEXES + i) % 40
        return a.at[places].set(a[places] * a[places[::-1]] + x[i]), None

    return (lax.scan(step, x, np.arange(5))[0] ** 2).sum()


def outside(x):
    """An update that is dropped has no cotangent."""
    return lax.scan(lambda a, i: (a.at[i].set(x[i % 40] * a[0], mode="drop"), None), x, np.arange(35, 45))[0].sum()


def nested(x):
    def relaxed(k, a):
        i, j = k // 6 + 1, k % 6 + 1
        return a.at[i, j].set(0.5 * a[i - 1, j] + 0.25 * a[i, j - 1] * a[i, j + 1])

    return lax.fori_loop(0, 3, lambda _, a: lax.fori_loop(0, 12, relaxed, a), x.reshape(5, 8)).sum()


PROGRAMS = (shifted_rows, from_the_previous, captured, read_twice_and_added, several_places, outside, nested)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_the_gradient_is_that_of_differences(function):
    with hl.config(enable_x64=True):
        x = np.random.default_rng(0).uniform(0.5, 1.5, 40)
        value = hl.jit(function)
        got = np.asarray(hl.jit(hl.grad(function))(x))
        ways = np.eye(40) * 1e-6
        want = np.array([(float(value(x + d)) - float(value(x - d))) / 2e-6 for d in ways])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7 * abs(want).max())


def test_gradients_of_a_batch_are_those_of_its_elements():
    with hl.config(enable_x64=True):
        x = np.random.default_rng(0).uniform(0.5, 1.5, (2, 40))
        gradient = hl.jit(hl.grad(from_the_previous))
        np.testing.assert_allclose(hl.jit(hl.vmap(gradient))(x), [gradient(x[0]), gradient(x[1])], rtol=1e-12)


def _random_loop(seed: int):
    """(a function of an array, the array): 3 steps that read and update it at computed places, some of them outside."""
    rng = np.random.default_rng(seed)
    dims = tuple(int(d) for d in rng.integers(2, 5, rng.integers(1, 4)))
    dtype = [np.float64, np.float32, np.complex128][rng.integers(3)]
    actions = rng.integers(0, 7, rng.integers(2, 6))
    static = [int(rng.integers(d)) for d in dims]
    sizes = [int(rng.integers(1, d + 1)) for d in dims]
    places = rng.integers(-1, 6, (3, 4))

    def step(a, at):
        total = a.sum() * 0
        for kind in actions:
            i, row = at[kind % 4], at % dims[0]
            starts = [i, *static[1:]]
            if kind == 0:
                total += hnp.tanh(a[i]).sum() * a[tuple(starts)]
            elif kind == 1:
                total += (lax.dynamic_slice(a, starts, sizes) ** 2).sum()
            elif kind == 2:
                total += hnp.sin(a[row]).sum()
            elif kind == 3:
                a = a.at[i].set(hnp.tanh(a[at[0]] * 0.7 + total), mode="drop")
            elif kind == 4:
                a = lax.dynamic_update_slice(a, hnp.sin(lax.dynamic_slice(a, [at[0], *static[1:]], sizes)), starts)
            elif kind == 5:
                a = a.at[row].add(0.3 * a[row[::-1]])
            else:
                a = a.at[tuple(starts)].multiply(hnp.tanh(a[tuple(static)]))
        return a, total

    def function(x):
        a, totals = lax.scan(step, x, places)
        value = (a * a).sum() + hnp.tanh(totals).sum()
        return value.real

    x = rng.uniform(0.2, 0.9, dims)
    return function, (x + 1j * rng.uniform(0.2, 0.9, dims) if dtype == np.complex128 else x).astype(dtype)


@pytest.mark.parametrize("seed", range(6))
def test_backward_is_forward_in_random_loops(seed):
    """Forward mode adds no cotangents."""
    with hl.config(enable_x64=True):
        function, x = _random_loop(seed)
        got = np.asarray(hl.jit(hl.grad(function))(x))
        units = np.eye(x.size).reshape(x.size, *x.shape).astype(x.dtype)
        along = hl.jit(lambda x, t: hl.jvp(function, (x,), (t,))[1])
        want = np.array([along(x, t) for t in units]).reshape(x.shape)
        if x.dtype.kind == "c":
            want = want - 1j * np.array([along(x, 1j * t) for t in units]).reshape(x.shape)
        tolerance = {"rtol": 2e-4, "atol": 1e-5} if x.dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-12}
        np.testing.assert_allclose(got, want, **tolerance)


def _steps_on(rows: int):
    def loss(x):
        def step(a, i):
            return a.at[i].set(a[i - 1] * a[i, 0]), a[i, 1]

        a, read = lax.scan(step, x, np.arange(1, 200))
        return a[-1].sum() + read.sum()

    return hl.jit(hl.grad(loss)), np.ones((rows, 8), np.float32)


def _reads_of(rows: int):
    def loss(x):
        return lax.fori_loop(0, 200, lambda i, total: total + hnp.sin(x[i]).sum(), np.float32(0))

    return hl.jit(hl.grad(loss)), np.ones((rows, 8), np.float32)


@pytest.mark.parametrize("program", [_steps_on, _reads_of])
def test_a_step_costs_what_it_changes(program):
    """200 steps on 64 times as many rows: copying them in each step would take 40 times as long and more."""
    small, large = (least_seconds(*program(rows)) for rows in (400, 25_600))
    assert large < 12 * small + 2e-3, (small, large)
