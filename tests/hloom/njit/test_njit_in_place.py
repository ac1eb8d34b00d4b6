"""Arguments that a program changes are changed in their memory, and only they are."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl


def scaled(a, x, y):
    for i in range(len(x)):
        y[i] = a * x[i] + y[i]


def mixed(a, b):
    a[1:] += b[:-1]
    b[:] = a * 2
    for i in range(1, len(a)):
        a[i] = a[i - 1] * 0.5 + b[i]
    return a, b.sum()


def swapped(a, b):
    for i in range(len(a)):
        a[i], b[i] = b[i], a[i]
    t = a.copy()
    a[:] = b
    return t


def shifted(a):
    b = a.copy()
    for i in range(len(a) - 1):
        a[i] = b[i + 1] + a[i + 1]
    return b


@pytest.mark.parametrize("function", [mixed, swapped, shifted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("length", [1, 2, 7, 1000])
@pytest.mark.parametrize("step", [1, 2])
def test_changes_and_results_are_those_of_numpy(function, length, step):
    rng = np.random.default_rng(0)
    count = 1 if function is shifted else 2
    given = [rng.random(length * step)[::step] for _ in range(count)]
    own = [array.copy() for array in given]
    compiled = hl.njit(function)
    for _ in range(2):  # the second call is the quick one
        found, wanted = compiled(*given), function(*own)
        results, expected = (list(r) if isinstance(r, tuple) else [r] for r in (found, wanted))
        assert all(result is not array for result in results for array in given)
        for one, other in zip([*given, *results], [*own, *expected], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-14)


def test_the_memory_of_the_argument_is_used():
    compiled = hl.njit(scaled)
    x, y = np.arange(1000.0), np.ones(1001)[1:]  # not at the beginning of a vector
    compiled(2.0, x, y)
    np.testing.assert_array_equal(y, 2 * x + 1)
    (entry,) = set(compiled._entries.values())
    assert entry._in_place == {2}
    copies = [kernel for kernel in entry._compiled.source().split("# ") if "made[i] = y[i]" in kernel]
    assert not copies


def test_an_argument_that_is_read_only_keeps_its_values():
    compiled = hl.njit(scaled)
    x, y = np.arange(10.0), np.ones(10)
    compiled(2.0, x, y.copy())
    y.flags.writeable = False
    with pytest.raises(hl.errors.ArgumentError, match="it is read-only"):
        compiled(2.0, x, y)
    np.testing.assert_array_equal(y, np.ones(10))


def test_pure_and_jit_change_nothing():
    compiled = hl.njit(scaled)
    x, y = np.arange(10.0), np.ones(10)
    compiled(2.0, x, y.copy())  # the version that works in place is made first
    _, written = compiled.pure(2.0, x, y)
    np.testing.assert_array_equal(y, np.ones(10))
    np.testing.assert_array_equal(np.asarray(written["2"]), 2 * x + 1)


def test_an_argument_given_twice():
    compiled = hl.njit(scaled)
    y = np.arange(10.0)
    compiled(2.0, y, y)
    np.testing.assert_array_equal(y, 3 * np.arange(10.0))
