"""Arguments that a program changes are changed in their memory, and only they are."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.errors import ArgumentError


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
        # A result is an argument where it is one in NumPy.
        assert [r is a for r in results for a in given] == [r is a for r in expected for a in own]
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


def test_arguments_that_are_changed_and_returned_are_the_callers():
    def function(x, y, n):
        for i in range(n):
            x[i] += y[i]
        return x, y, (x, n), x[1:], x * 2

    compiled = hl.njit(function)
    for _ in range(3):
        x, y = np.arange(5.0), np.ones(5)
        first, second, (third, _), part, twice = compiled(x, y, 3)
        assert first is x and third is x
        assert second is not y
        np.testing.assert_array_equal(x, [1, 2, 3, 3, 4])
        np.testing.assert_array_equal(part, x[1:])
        np.testing.assert_array_equal(twice, x * 2)
    strided = np.arange(10.0)[::2]
    assert compiled(strided, y, 3)[0] is strided
    np.testing.assert_array_equal(strided, [1, 3, 5, 6, 8])
    (found, *_), written = compiled.pure(np.arange(5.0), y, 3)
    np.testing.assert_array_equal(found, [1, 2, 3, 3, 4])
    np.testing.assert_array_equal(written["0"], found)
    slope = hl.grad(lambda x: compiled.pure(x, y, 3)[0][0].sum())(hl.numpy.arange(5.0))
    np.testing.assert_array_equal(slope, np.ones(5))


def test_quick_calls_see_other_arguments():
    """The program of the last call is not taken for arguments that are not like those."""

    @hl.njit
    def function(a, x, y, n):
        for i in range(len(x)):
            y[i] = a * x[i] + n
        return y.sum()

    x = np.arange(4.0)

    def check(a, x, y, n):
        wanted = (a * x + n).sum()
        for _ in range(3):
            assert function(a, x, y, n) == wanted

    check(2.0, x, np.zeros(4), 1)
    check(2.0, x, np.zeros(4), 2)
    check(2, x, np.zeros(4), 1)
    check(2.0, x, np.zeros(4), True)
    check(2.0, x.astype(np.float32), np.zeros(4), 1)
    check(2.0, np.arange(5.0), np.zeros(5), 1)
    check(2.0, np.arange(8.0)[::2], np.zeros(4), 1)
    check(np.float64(2.0), x, np.zeros(4), np.int64(1))
    shared = np.arange(4.0)
    for _ in range(3):
        before = shared.copy()
        assert function(2.0, shared, shared, 1) == (2 * before + 1).sum()
    fixed = np.zeros(4)
    check(2.0, x, fixed, 1)
    fixed.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        function(2.0, x, fixed, 1)
    with pytest.raises(ArgumentError, match="share memory"):
        function(2.0, shared[:-1], shared[1:], 1)
