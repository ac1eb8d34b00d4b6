"""Reverse derivatives of loops whose length is not known: `while`, ranges of computed length, loops in each other."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.errors import DifferentiationError


def roots(x):
    """Newton's method for each element, until it is exact enough."""
    y = x.copy()
    for i in range(len(y)):
        v = 1.0
        while abs(v * v - x[i]) > 1e-9:
            v = 0.5 * (v + x[i] / v)
        y[i] = v * x[i]
    return y


def relaxed(x):
    """Sweeps in place until the array hardly changes."""
    u = x.copy()
    change = 1.0
    while change > 1e-3:
        change = 0.0
        for i in range(1, len(u) - 1):
            new = 0.5 * (u[i - 1] + u[i + 1] * u[i])
            change += abs(new - u[i])
            u[i] = new
    return u


def sorted_by_insertion(x):
    a = x.copy()
    for i in range(1, len(a)):
        key, j = a[i], i - 1
        while j >= 0 and a[j] > key:
            a[j + 1] = a[j] * a[j]
            j -= 1
        a[j + 1] = np.sin(key)
    return a


def left_by_break(x):
    total, k, v = 0.0, 0, x[0]
    while True:
        k += 1
        if k % 3 == 0:
            continue
        v = np.sin(v) + x[k % len(x)] * v
        total += v * v
        if total > 20.0 or k > 50:
            break
    return total * x


def nested(x):
    """Both loops are left when a value says so."""
    out, v, k = x.copy(), 1.0, 0
    while v < 40.0:
        w = v
        while w > 1.5:
            w = w * 0.7 + 0.01 * x[k % len(x)]
            out[k % len(x)] = out[k % len(x)] * w
        v = v * 1.6 + w * x[(k + 1) % len(x)]
        k += 1
    return out * v


def computed_lengths(x):
    """Inner ranges whose length a number says that the outer loop changes."""
    a, n = x.copy(), 1
    for i in range(6):
        for k in range(n):
            a[k % len(a)] = np.sin(a[(k + i) % len(a)]) * a[k % len(a)]
        n = (n * 3 + i) % 7
    return a


def loops_of_known_length_within(x):
    """A gathered element in a loop of known length, in one of unknown length."""
    a, s = x.copy(), 0.1
    while s < 3.0:
        for i in range(len(a)):
            for j in range(2):
                s += 0.02 + 0.05 * a[i] * a[(i + j) % len(a)]
                a[i] = np.cos(s) * a[i]
    return a * s


def left_early(x):
    return first_over(x) * x


def first_over(x):
    s, k = 1.0, 0
    while k < 100:
        s = s * 1.1 + x[k % len(x)] ** 2 * s
        if s > 50.0:
            return s
        k += 1
    return 2.0


def never_entered(x):
    s = x[0]
    while s > 10.0:
        s = s * 0.5
    return s * x


def steps_of_a_number(x):
    """Counters that fall by two, and one that a value moves."""
    a, k, m = x.copy(), 2 * len(x) - 2, 0
    while k >= 0:
        m = (m + 1 + k) % len(a)
        a[m] = a[m] * a[k // 2]
        k -= 2
    return a


PROGRAMS = (
    roots, relaxed, sorted_by_insertion, left_by_break, nested, computed_lengths, loops_of_known_length_within,
    left_early, never_entered, steps_of_a_number,
)  # fmt: skip
named = pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)


@pytest.fixture(autouse=True)
def _64_bits():
    with hl.enable_x64():
        yield


def _argument() -> np.ndarray:
    return np.random.default_rng(0).uniform(0.4, 1.2, 7)


def _total(function):
    compiled = hl.njit(function)

    def total(x):
        result = compiled.pure(x)[0]
        return (result * np.cos(np.arange(result.size))).sum()

    return total


@named
def test_backward_is_forward_and_differences(function):
    x = _argument()
    total, way = _total(function), np.random.default_rng(1).normal(size=x.shape)
    got = float(np.asarray(hl.jit(hl.grad(total))(x)) @ way)
    assert got == pytest.approx(float(hl.jit(lambda x, t: hl.jvp(total, (x,), (t,))[1])(x, way)), rel=1e-11)
    above, below = ((function(x + h * way) * np.cos(np.arange(7))).sum() for h in (1e-7, -1e-7))
    assert got == pytest.approx((above - below) / 2e-7, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("function", [relaxed, nested, computed_lengths], ids=lambda f: f.__name__)
def test_second_derivatives(function):
    x = _argument()
    total, way = _total(function), np.random.default_rng(1).normal(size=x.shape)
    gradient = hl.grad(total)
    want = hl.jit(lambda x: hl.jvp(lambda x: hl.jvp(total, (x,), (way,))[1], (x,), (way,))[1])(x)
    backward = hl.jit(hl.grad(lambda x: (gradient(x) * way).sum()))(x)
    forward = hl.jit(lambda x: hl.jvp(gradient, (x,), (way,))[1])(x)
    for found in (backward, forward):
        assert float(np.asarray(found) @ way) == pytest.approx(float(want), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("function", [roots, left_by_break, nested], ids=lambda f: f.__name__)
def test_a_batch_is_its_elements(function):
    """Its elements end after different numbers of steps, and share the memory of the tape."""
    x = np.stack([_argument(), _argument()[::-1], _argument() * 1.5])
    total = _total(function)
    single = hl.jit(hl.grad(total))
    want = [single(row) for row in x]
    for many in (hl.vmap(hl.grad(total)), hl.grad(lambda x: hl.vmap(total)(x).sum())):
        np.testing.assert_allclose(hl.jit(many)(x), want, rtol=1e-12)


def test_short_loops_within_take_what_they_have():
    """The slices have three elements, and a bound of as many as the array has."""

    def windows(x):
        a, i = x.copy(), 1
        while i < len(a) - 1:
            a[i] = np.sin(np.sum(a[i - 1 : i + 2])) * np.cos(a[i])
            i += 1
        return a

    total, x = _total(windows), np.random.default_rng(0).uniform(0.4, 1.2, 10_000)
    with hl.config(tape_bytes=1 << 20):
        gradient = np.asarray(hl.jit(hl.grad(total))(x))
    way = np.random.default_rng(1).normal(size=x.shape)
    assert gradient @ way == pytest.approx(float(hl.jvp(total, (x,), (way,))[1]), rel=1e-10)


def growing(x, steps):
    s, k = x[0], 0
    while k < steps:
        s = np.sin(s) * x[k % len(x)] + 1.0
        k += 1
    return s * x


def test_a_tape_without_room_is_an_error():
    compiled = hl.njit(growing)

    def total(x, steps):
        return compiled.pure(x, steps)[0].sum()

    x = _argument()
    with hl.config(tape_bytes=1 << 16):
        gradient = hl.jit(hl.grad(total))
        few = np.asarray(gradient(x, 3000))  # of a step the value of s, and a counter that is computed back
        with pytest.raises(DifferentiationError, match="growing") as caught:
            np.asarray(gradient(x, 30_000))
    assert "65,536 bytes" in caught.value.found
    assert "hl.config.tape_bytes" in caught.value.repair
    np.testing.assert_array_equal(hl.jit(hl.grad(total))(x, 3000), few)
    assert np.isfinite(hl.jit(hl.grad(total))(x, 30_000)).all()


def test_a_tape_of_known_length_that_is_too_large_is_refused():
    def table(x):
        a = x.copy()
        for i in range(1, len(a)):
            a[i] = np.sin(a[i] * a[i - 1])
        return a

    with hl.config(tape_bytes=1 << 16), pytest.raises(DifferentiationError, match="table") as caught:
        hl.grad(_total(table))(np.ones(100_000))
    assert "799,992 bytes" in caught.value.found
    assert "hl.config.tape_bytes" in caught.value.repair


def test_counters_and_their_elements_are_not_kept():
    """Of an insertion only the length of the inner loop, and where it began, are kept: its counter is computed back."""
    compiled = hl.jit(hl.grad(_total(_moved_only))).lower(np.ones(64)).compile()
    assert compiled.source().count("tape_f64") == 0


def _moved_only(x):
    a = x.copy()
    for i in range(1, len(a)):
        key, j = a[i], i - 1
        while j >= 0 and a[j] > key:
            a[j + 1] = a[j] * 1.01
            j -= 1
        a[j + 1] = key
    return a
