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
    return _temporary_bytes(hl.grad(function), _argument(n))


def _temporary_bytes(function, *arguments) -> int:
    return hl.jit(function).lower(*arguments).compile().memory_analysis()["temporary bytes"]


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

    x = np.random.default_rng(0).uniform(0.5, 1.5, 300 if dtype in (np.int8, np.uint8) else 20)
    got = np.asarray(hl.grad(function)(x))
    want = np.asarray(hl.jacfwd(function)(x))
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


# --- loops in loops that update an array


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
