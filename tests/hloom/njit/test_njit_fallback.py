"""`hl.njit(fallback=True)`: what cannot be compiled runs in Python, with one warning."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import hloom as hl
from hloom.errors import FallbackWarning, HloomError, IndexOutOfBoundsError, UnsupportedError

X = np.arange(6.0)


def generator(x):
    for value in x:
        yield value + 1


def changes_shape(x, n):
    for _ in range(n):
        x = np.concatenate([x, x[:1]])
    return x


def labelled(x):
    x += 1
    return f"the sum is {x.sum()}"


def of_a_word(x, word):
    return {"add": x + 1}[word + "d"] if x[0] > 0 else x


def raises_its_own(x, n):
    if n < 0:
        raise ValueError("n is negative")
    return x * n


def looked_up(x):
    table = {0: 10.0, 1: 20.0}
    return table[int(x[1])] + x


def out_of_range(x, i):
    x[0] = 9.0
    for k in range(i):
        x[k] = x[k] + 1
    return x


def compiles(x):
    for i in range(1, len(x)):
        x[i] += x[i - 1]
    return x


CASES = [
    (generator, (X,), "a generator", "yield value"), (changes_shape, (X, 100), "in a loop|size|shape", "for _ in"),
    (labelled, (X,), "text", "the sum is"), (looked_up, (X,), "a key", "table\\[int"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_runs_in_python(case):
    function, args, reason, line = case
    with pytest.raises(HloomError):
        hl.njit(function)(*_copied(args))
    compiled = hl.njit(fallback=True)(function)
    ours, theirs = _copied(args), _copied(args)
    with pytest.warns(FallbackWarning, match=rf"'{function.__name__}' runs in Python[\s\S]*({reason})") as caught:
        found = compiled(*ours)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert line.replace("\\", "") in str(caught[0].message)
    wanted = function(*theirs)
    if function is generator:
        found, wanted = list(found), list(wanted)
    np.testing.assert_equal(found, wanted)
    np.testing.assert_equal(ours, theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(*_copied(args))
        compiled(np.ones((3,)), *args[1:])  # one warning per function


def _copied(args):
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)


def test_what_compiles_is_compiled():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = hl.njit(fallback=True)(compiles)
        x, y = X.copy(), X.copy()
        np.testing.assert_array_equal(compiled(x), compiles(y))
        np.testing.assert_array_equal(x, y)
        with hl.enable_x64():
            assert hl.grad(lambda x: compiled.pure(x)[0].sum())(X)[0] == 6.0


def test_errors_of_the_program_are_its_own():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="n is negative"):
            hl.njit(fallback=True)(raises_its_own)(X, -1)
        runs = hl.njit(fallback=True)(out_of_range)
        runs(X.copy(), 6)
        x = X.copy()
        with pytest.raises(IndexOutOfBoundsError):  # of the compiled program: it is not run a second time
            runs(x, 7)
        np.testing.assert_array_equal(x, [10, 2, 3, 4, 5, 6])  # what ran before the error, once


def test_transformations_have_no_fallback():
    with pytest.raises(UnsupportedError, match="a generator"):
        hl.jit(hl.njit(fallback=True)(generator))(X)


def test_arrays_of_hloom_become_numpys():
    compiled = hl.njit(fallback=True)(changes_shape)
    with pytest.warns(FallbackWarning):
        found = compiled(hl.numpy.arange(3), 70)
    assert isinstance(found, np.ndarray) and found.shape == (73,)
    labels = hl.njit(fallback=True)(labelled)
    with pytest.warns(FallbackWarning), pytest.raises(ValueError, match="read-only"):
        labels(hl.numpy.arange(3.0))


def test_signatures():
    compiled = hl.njit("float64[:](float64[:], int64)", fallback=True)(changes_shape)
    with pytest.warns(FallbackWarning):
        assert compiled(X, np.int32(70)).shape == (76,)
