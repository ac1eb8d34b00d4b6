"""Comprehensions and what Python's own iterators go over, under `hl.njit`: loops where they are long."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from test_njit_semantics import check

import hloom as hl
from hloom.errors import IndexOutOfBoundsError, ShapeError, UnsupportedError

X = np.random.default_rng(0).random(150)


def arrays(x):
    squares = np.array([v * v for v in x])
    table = np.array([[x[i] * x[j] for j in range(len(x))] for i in range(len(x))])
    flat = np.array([x[i] + j for i in range(20) for j in range(30)])
    pairs = np.array([(v, i) for i, v in enumerate(x)])
    return squares, table.sum(axis=0), flat, pairs, np.array([math.exp(v) for v in x], dtype=np.float32)


def rows(x):
    distances = np.array([np.sum((x - v) ** 2) for v in x])
    return distances, np.stack([x * t for t in range(70)]), np.vstack([x[i : i + 2] for i in range(90)])


def reductions(x):
    return np.mean([x[:i].sum() for i in range(1, len(x))]), np.max([v + 1 for v in x]), np.argmax([-v for v in x])


def sums(x):
    return sum(v * v for v in x), sum([x[i] * i for i in range(3, 120)]), sum(1 for v in x if v > 0.5)


def sums_of_pairs(x):
    return sum(x[i] * x[j] for i in range(len(x)) for j in range(i)), sum(x[i] * x for i in range(70))


def truths(x):
    if any(v > 0.999 for v in x):
        return 1.0
    if all(x[i] >= 0 for i in range(len(x))) and len(x) > 3:
        return 2.0
    return 3.0


def extremes(x):
    middle = max(abs(v - 0.5) for v in x)
    return middle, min(x[i] for i in range(1, len(x))) + max(i % 7 for i in range(100))


def within_loops(x):
    sums, greater = np.zeros(len(x)), 0
    for i in range(len(x)):
        sums[i] = sum(x[j] for j in range(i))
        if any(x[j] > x[i] for j in range(i)):
            greater += 1
    return sums, greater


def names_that_are_used_again(x):
    v, i = 5.0, 3
    total = np.array([v * i for i, v in enumerate(x)])
    return total, v, i


def of_a_function(x):
    def bent(v):
        return v * 2 if v > 0.5 else v

    return np.array([bent(v) for v in x])


def few_elements(x):
    return [v * 2 for v in x[:3]], np.array([v + 1 for v in x[:4]]), {k: x[k] for k in range(3)}[1]


def in_a_branch(x):
    if x.sum() > 0:
        y = np.array([v + 1 for v in x])
    else:
        y = np.array([v - 1 for v in x])
    return y


def of_several_dtypes(x):
    whole = np.array([i + 1 for i in range(100)])
    return whole, np.array([i > 50 for i in range(100)]), np.array([np.float32(i) for i in range(100)])


def backwards_and_together(x):
    total = 0.0
    for i in reversed(range(len(x))):
        total = total * 0.5 + x[i]
    for i, j in zip(range(100), range(1, 101), strict=True):
        total += x[i] * x[j]
    for i, j in enumerate(range(5, len(x))):
        total -= i * x[j]
    for i, j in enumerate(reversed(range(100))):
        total += i * x[j]
    return total


def with_imports(x):
    """Modules are Python's."""
    import math as m

    import numpy as other

    total = 0.0
    for v in x:
        total += m.sqrt(v) * other.sin(v)
    return total, m.pi


@pytest.mark.parametrize(
    "function",
    [arrays, rows, reductions, sums, sums_of_pairs, truths, extremes, within_loops, names_that_are_used_again,
     of_a_function, few_elements, in_a_branch, of_several_dtypes, backwards_and_together, with_imports],
)  # fmt: skip
def test_results_are_those_of_numpy(function):
    check(function, X)


def test_a_number_of_elements_that_the_program_is_given():
    def function(x, n):
        return sum(x[i] for i in range(n)), np.array([x[i] * 2 for i in range(n)]), any(x[i] > 2 for i in range(n))

    for n in (0, 1, 100):
        check(function, X, n)


def test_long_comprehensions_are_loops():
    """Compiling takes as long for many elements as for few."""

    @hl.njit
    def function(x):
        return np.array([[v * w for v in x] for w in x]).sum(), sum(v for v in x), max(v for v in x)

    small, large = (function.lower(X[:n]).as_text().count("\n") for n in (70, 150))
    assert small == large < 200


def test_what_an_element_changes_happens_once():
    def function(x, y):
        def add(i):
            y[0] += x[i]
            return y[0]

        return np.array([add(i) for i in range(80)])

    check(function, X, np.zeros(2))


def test_an_index_out_of_range_at_its_line():
    def function(x):
        return np.array([x[i] for i in range(len(x) + 1)])

    with pytest.raises((IndexOutOfBoundsError, ShapeError)) as caught:
        hl.njit(function)(X)
    assert caught.value.source.line == function.__code__.co_firstlineno + 1


def test_a_long_list():
    def function(x):
        total = 0.0
        for _ in itertools.repeat(None, 10_000):
            total += x[0]
        return total

    with pytest.raises(UnsupportedError, match="more than 4,096 elements of a repeat") as caught:
        hl.njit(function)(X)
    assert caught.value.source.line == function.__code__.co_firstlineno + 2


def test_gradients_of_comprehensions():
    @hl.njit
    def function(x):
        return sum(v**3 for v in x) + np.array([v * v for v in x]).sum()

    found = hl.grad(lambda x: function.pure(x)[0])(hl.numpy.asarray(X))
    np.testing.assert_allclose(found, 3 * X**2 + 2 * X, rtol=1e-14)
