"""Open issues of jax (github.com/jax-ml/jax) as tests that hloom does right."""

from __future__ import annotations

import numpy as np
import pytest
from processor_time import least_seconds

import hloom as hl
import hloom.numpy as hnp
from hloom import lax


@pytest.fixture(autouse=True)
def _wide():
    with hl.config(enable_x64=True):
        yield


def test_a_loop_that_fills_an_array():
    """jax#40101: from 0.11.1 on a step of a loop that writes one element copies the whole array, so n steps take n²
    time. hloom writes in place. Not in jax 0.10.2; the thread is open and bisects it."""

    def path(n):
        def step(t, state):
            values, value = state
            value = 0.9 * value + 1.0
            return values.at[t + 1].set(value), value

        return hl.jit(lambda start: lax.fori_loop(0, n - 1, step, (hnp.zeros(n).at[0].set(start), start))[0])

    want = [3.0]
    for _ in range(99):
        want.append(0.9 * want[-1] + 1.0)
    np.testing.assert_allclose(path(100)(3.0), want, rtol=1e-13)
    small, large = (least_seconds(path(n), 3.0) for n in (16_000, 256_000))
    assert large < 50 * small + 1e-3, (small, large)  # n² would be 256


def test_tridiagonal_systems_by_two_scans():
    """jax#2491: scans are slower than NumPy's loop over the same rows. hloom takes a part of NumPy's time. Seen in jax
    0.10.2 as no fault on this program: 4 times as fast as NumPy; the thread is open."""
    rng = np.random.default_rng(0)
    a, b, c, d = (rng.random((60, 4000)) for _ in range(4))
    b += 2

    def by_numpy(a, b, c, d):
        b, d, out = b.copy(), d.copy(), np.empty_like(a)
        for i in range(1, len(a)):
            w = a[i] / b[i - 1]
            b[i] -= w * c[i - 1]
            d[i] -= w * d[i - 1]
        out[-1] = d[-1] / b[-1]
        for i in range(len(a) - 2, -1, -1):
            out[i] = (d[i] - c[i] * out[i + 1]) / b[i]
        return out

    def by_scans(a, b, c, d):
        def forward(last, row):
            (c_last, d_last), (a, b, c, d) = last, row
            scale = 1 / (b - a * c_last)
            new = (c * scale, (d - a * d_last) * scale)
            return new, new

        def backward(last, row):
            new = row[1] - row[0] * last
            return new, new

        zeros = hnp.zeros(a.shape[1])
        _, rows = lax.scan(forward, (zeros, zeros), (a, b, c, d))
        return lax.scan(backward, zeros, rows, reverse=True)[1]

    solve = hl.jit(by_scans)
    np.testing.assert_allclose(solve(a, b, c, d), by_numpy(a, b, c, d), rtol=1e-10)
    assert least_seconds(solve, a, b, c, d) < least_seconds(by_numpy, a, b, c, d)


def _pops(rows, places, width):
    """Takes an element out of a row in each step and closes the gap."""

    def step(rows, i):
        tail = lax.dynamic_slice(rows, (i % 4, i + 1), (1, width))
        return lax.dynamic_update_slice(rows, tail, (i % 4, i)), rows[i % 4, i]

    return lax.scan(step, rows, places)


PLACES = np.random.default_rng(1).integers(0, 60, 500)


def _by_lists(rows):
    """What `_pops` takes out, and which element of `rows` each of its results was at first."""
    numbers = np.arange(rows.size).reshape(rows.shape)
    taken = []
    for i in PLACES:
        taken.append(numbers[i % 4, i])
        numbers[i % 4, i : i + 64] = numbers[i % 4, i + 1 : i + 65].copy()
    return np.array(taken), numbers


def test_a_scan_that_shifts_a_part_of_its_state():
    """jax#17845: a scan that reads and then shifts a slice of its carry copies the carry in each step. hloom reads
    first and then writes in place. Seen in jax 0.10.2: 500 steps on 64 times the array take 100 times as long."""
    rows = np.random.default_rng(0).random((4, 130))
    taken, numbers = _by_lists(rows)
    left, popped = hl.jit(_pops, static_argnums=2)(rows, PLACES, 64)
    np.testing.assert_array_equal(popped, rows.ravel()[taken])
    np.testing.assert_array_equal(left, rows.ravel()[numbers])
    run = hl.jit(lambda rows: _pops(rows, PLACES, 64)[1])
    small, large = (least_seconds(run, np.ones((n, 130))) for n in (50, 3200))
    assert large < 16 * small + 1e-3, (small, large)


def test_the_gradient_of_a_scan_that_shifts_a_part_of_its_state():
    """jax#17640: the gradient of such a scan takes a hundred times as long as the scan, for it adds whole arrays in
    each step. hloom adds in place what a step has read. Seen in jax 0.10.2."""
    rows = np.random.default_rng(0).random((4, 130))
    weights = np.random.default_rng(2).random(500)

    def loss(rows):
        left, popped = _pops(rows, PLACES, 64)
        return (popped * weights).sum() + (left * left).sum()

    taken, numbers = _by_lists(rows)
    want = np.zeros(rows.size)
    np.add.at(want, taken, weights)
    np.add.at(want, numbers.ravel(), 2 * rows.ravel()[numbers.ravel()])
    np.testing.assert_allclose(hl.jit(hl.grad(loss))(rows).ravel(), want, rtol=1e-12)
    gradient = hl.jit(hl.grad(lambda rows: _pops(rows, PLACES, 64)[1].sum()))
    small, large = (least_seconds(gradient, np.ones((n, 130))) for n in (50, 3200))
    assert large < 16 * small + 2e-3, (small, large)


def test_rows_that_are_set_from_the_rows_before():
    """jax#10197: the gradient of a loop over the rows of an array takes time and memory as the square of their number.
    In hloom it is linear. Seen in jax 0.10.2: 4 times the rows take 30 times as long."""

    def last(n):
        def loss(first):
            rows = hnp.concatenate([first[None], hnp.zeros((n - 1, 10, 10))])
            rows, _ = lax.scan(lambda rows, i: (rows.at[i].set(rows[i - 1] * 1.01), None), rows, np.arange(1, n))
            return rows[-1].sum()

        return hl.jit(hl.grad(loss))

    first = np.random.default_rng(0).random((10, 10))
    np.testing.assert_allclose(last(50)(first), np.full((10, 10), 1.01**49), rtol=1e-12)
    small, large = (least_seconds(last(n), first) for n in (500, 4000))
    assert large < 30 * small + 1e-3, (small, large)  # n² would be 64


@pytest.mark.parametrize("n", [1, 7, 64])
def test_the_difference_of_equal_squares(n):
    """jax#26147: jit(x² - y²) of equal float32 numbers is not 0, for the difference is contracted with one of the
    products. In hloom it is 0. Seen in jax 0.10.2: 4e-10 for 0.1."""
    x = np.linspace(0.1, 3.7, n, dtype=np.float32)
    assert (np.asarray(hl.jit(lambda x, y: x**2 - y**2)(x, x)) == 0).all()


def test_the_gradient_of_a_scan_with_many_carried_numbers():
    """jax#40150: with 60 numbers in the carry of a scan the gradient takes 37 times as long as the scan. In hloom
    some 6 times. Seen in jax 0.10.2."""

    def loss(x):
        def step(carry, _):
            return tuple(0.5 * hnp.sin(v) + 0.5 * w for v, w in zip(carry, carry[1:] + carry[:1], strict=True)), None

        return sum(lax.scan(step, tuple(x * k for k in range(60)), None, length=300)[0])

    value, gradient = hl.jit(loss), hl.jit(hl.grad(loss))
    difference = (float(value(0.3 + 1e-6)) - float(value(0.3 - 1e-6))) / 2e-6
    assert float(gradient(0.3)) == pytest.approx(difference, rel=1e-6)
    assert least_seconds(gradient, 0.3) < 20 * least_seconds(value, 0.3)
