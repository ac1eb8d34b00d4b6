"""Gradients of loops cost a multiple of the loops: memory and time grow as theirs do, and only values that cannot be
computed again are kept."""

from __future__ import annotations

import numpy as np
import pytest
from processor_time import least_seconds

import hloom as hl
import hloom.numpy as hnp
from hloom import lax


def recurrence(x):
    return lax.fori_loop(1, len(x), lambda i, a: a.at[i].set(a[i - 1] * a[i] + 0.5), x).sum()


def sweep(x):
    """Gauss-Seidel sweeps: three nested loops."""
    u = x.reshape(-1, 8)

    def row(i, u):
        def relaxed(j, u):
            return u.at[i, j].set(0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]))

        return lax.fori_loop(1, 7, relaxed, u)

    return (lax.fori_loop(0, 3, lambda _, u: lax.fori_loop(1, len(u) - 1, row, u), u) ** 2).sum()


def tridiagonal(x):
    """Two loops, the second from the end; coefficients are read at places that the counters decide."""
    below, middle, above, right = x.reshape(4, -1)
    n = len(below)
    middle = middle + 4

    def eliminate(i, state):
        upper, values = state
        pivot = middle[i] - below[i] * upper[i - 1]
        return upper.at[i].set(above[i] / pivot), values.at[i].set((right[i] - below[i] * values[i - 1]) / pivot)

    start = hnp.zeros(n).at[0].set(above[0] / middle[0]), hnp.zeros(n).at[0].set(right[0] / middle[0])
    upper, values = lax.fori_loop(1, n, eliminate, start)

    def substitute(k, found):
        i = n - 2 - k
        return found.at[i].set(values[i] - upper[i] * found[i + 1])

    return (lax.fori_loop(0, n - 1, substitute, hnp.zeros(n).at[-1].set(values[-1])) ** 2).sum()


def table(x):
    """A table of dynamic programming, whose costs are constant in both loops."""
    costs = x.reshape(-1, 8)

    def row(i, best):
        def cell(j, best):
            before = hnp.minimum(best[i - 1, j], hnp.minimum(best[i, j - 1], best[i - 1, j - 1]))
            return best.at[i, j].set(costs[i, j] * 1.25 + before)

        return lax.fori_loop(1, 8, cell, best)

    return lax.fori_loop(1, len(costs), row, costs)[-1].sum()


def windows(x):
    def step(i, a):
        return a.at[i].set(hnp.sin(lax.dynamic_slice(a, (i - 1,), (3,))).sum())

    return lax.fori_loop(1, len(x) - 1, step, x).sum()


def rows(x):
    return lax.fori_loop(1, len(x) // 8, lambda i, a: a.at[i].set(hnp.sin(a[i - 1]) * a[i]), x.reshape(-1, 8)).sum()


def gathered(x):
    places = hnp.asarray(np.random.default_rng(1).integers(0, len(x), (len(x), 4)))
    return lax.fori_loop(0, len(x), lambda i, a: a.at[i].set(hnp.tanh(a[places[i]]).sum()), x).sum()


def while_counted(x):
    def step(state):
        i, a = state
        return i + 2, a.at[i].set(a[i - 1] * a[i])

    return lax.while_loop(lambda state: state[0] < len(x), step, (1, x))[1].sum()


def branches(x):
    """A branch that changes an element, and one that changes nothing."""

    def step(i, a):
        return lax.cond(i % 3 == 0, lambda a: a.at[i].set(a[i - 1] * a[i] * x[i]), lambda a: a, a)

    return (lax.fori_loop(1, len(x), step, x) ** 2).sum()


def fixed_places(x):
    """Elements at places that are known when the function is traced."""
    return (lax.fori_loop(2, len(x), lambda i, a: a.at[i].set(a[0] * a[i - 1] + a[1]), x / 2) ** 2).sum()


def nested_constants(x):
    """An inner loop that only reads what the outer one changes."""

    def step(i, a):
        total = lax.fori_loop(0, 4, lambda k, total: total + a[(i + k) % len(x)] * x[k], 0.0)
        return a.at[i].set(hnp.sin(total))

    return lax.fori_loop(0, len(x), step, x).sum()


def backwards(x):
    """A counter that falls, and starts where an argument says."""
    start = hnp.asarray(len(x) - 1)

    def step(state, _):
        i, a = state
        return (i - 1, a.at[i].set(a[i] * a[i - 1])), None

    return lax.scan(step, (start, x), None, length=len(x) - 1)[0][1].sum()


def parts_of_rows(x):
    """Places along one axis that are known when the function is traced: a column, and a few columns."""
    places = hnp.asarray(np.random.default_rng(1).integers(1, len(x) // 8, (len(x) // 8, 2)))

    def step(i, a):
        a = a.at[i, 2].set(a[i - 1, 3] * a[i, 2]).at[i, 1:4].add(0.1 * a[i - 1, 4:7])
        return a.at[places[i], 5].multiply(0.5)

    return (lax.fori_loop(1, len(x) // 8, step, x.reshape(-1, 8)) ** 2).sum()


PROGRAMS = (
    recurrence, sweep, tridiagonal, table, windows, rows, gathered, while_counted, branches, fixed_places,
    nested_constants, backwards, parts_of_rows,
)  # fmt: skip
named = pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)


@pytest.fixture(autouse=True)
def _64_bits():
    with hl.enable_x64():
        yield


def _argument(n: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.4, 1.2, n)


@named
def test_backward_is_forward_and_differences(function):
    x = _argument(64)
    way = np.random.default_rng(1).normal(size=64)
    got = float(hl.jit(hl.grad(function))(x) @ way)
    forward = float(hl.jit(lambda x, t: hl.jvp(function, (x,), (t,))[1])(x, way))
    assert got == pytest.approx(forward, rel=1e-11, abs=1e-13)
    value = hl.jit(function)
    above, below = (float(value(x + h * way)) for h in (1e-6, -1e-6))
    assert got == pytest.approx((above - below) / 2e-6, rel=2e-6)


@named
def test_second_derivatives(function):
    x = _argument(64)
    way = np.random.default_rng(1).normal(size=64)
    gradient = hl.grad(function)
    got = hl.jit(hl.grad(lambda x: (gradient(x) * way).sum()))(x)
    want = hl.jit(lambda x: hl.jvp(gradient, (x,), (way,))[1])(x)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


@named
def test_a_batch_is_its_elements(function):
    x = np.stack([_argument(64), _argument(64)[::-1]])
    gradient = hl.grad(function)
    single = hl.jit(gradient)
    np.testing.assert_allclose(hl.jit(hl.vmap(gradient))(x), [single(x[0]), single(x[1])], rtol=1e-11, atol=1e-13)


def _bytes(function, n: int) -> int:
    return hl.jit(hl.grad(function)).lower(_argument(n)).compile().memory_analysis()["temporary bytes"]


@named
def test_memory_is_linear(function):
    small, large = _bytes(function, 2048), _bytes(function, 4096)
    assert large <= 2.2 * small + 1024


@pytest.mark.parametrize(
    ("function", "stored"),
    [(recurrence, 2), (sweep, 0), (while_counted, 1.5), (branches, 10), (fixed_places, 2), (backwards, 2)],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_only_what_cannot_be_computed_again_is_kept(function, stored):
    """Counters, indices that depend on them, and linear updates take no memory. stored: in elements per element."""
    assert _bytes(function, 4096) <= (stored + 1) * 4096 * 8 + 1024


@named
def test_time_is_linear(function):
    """A copy of the array in each step would take 16 times as long."""
    gradient = hl.jit(hl.grad(function))
    small, large = (least_seconds(gradient, _argument(n)) for n in (4096, 16384))
    assert large < 8 * small + 1e-3, (small, large)


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint8, np.int64])
@pytest.mark.parametrize("change", [1, -1, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_carried_counters_of_loops_in_both_directions(dtype, change, reverse):
    """The values of a counter are computed again, for each index of what the steps stack."""
    start = 100 if change < 0 else 2

    def function(x):
        def step(carry, row):
            count, total = carry
            weight = hnp.sin(count.astype(x.dtype))
            return (count + np.array(change).astype(dtype), total * 0.9 + weight * row**2), total * weight

        (_, total), stacked = lax.scan(step, (hnp.asarray(start, dtype), x[0]), x, reverse=reverse)
        return total + (stacked * x).sum()

    with hl.config(enable_x64=True):
        x = np.random.default_rng(0).uniform(0.5, 1.5, 300 if dtype in (np.int8, np.uint8) else 20)
        got = np.asarray(hl.grad(function)(x))
        want = np.asarray(hl.jacfwd(function)(x))
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
