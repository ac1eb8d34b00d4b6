"""`raise` and `assert` under `hl.njit`, where the arrays decide: the user's errors, as Python raises them."""

from __future__ import annotations

import numpy as np
import pytest
from test_njit_semantics import check

import hloom as hl
from hloom.errors import HloomError

X = np.arange(1.0, 7.0)


def checks_first(x):
    """Checks, and then loops that would not end."""
    if np.any(x <= 0):
        raise ValueError("x has to be positive")
    if len(x) == 1:
        raise TypeError("one element")
    count = 0
    while x.sum() > 1:
        x = x / 2
        count += 1
    return count


def in_a_loop(x):
    total = 0.0
    for i in range(len(x)):
        if x[i] == 4.5:
            raise ArithmeticError(f"four and a half of {len(x)}")
        total += np.log(x[i])
    return total


def in_a_loop_of_the_program(x):
    total = np.zeros(3)
    for i in range(70):
        total = total + np.linalg.solve(np.eye(3) * (i + 1), x[:3])
        if total[0] > 4.6:
            raise OverflowError
        if total[1] < -1:
            total[1] = 0
    return total


def in_the_other_branch(x):
    if x[0] > 0:
        y = x * 2
    else:
        raise ValueError("not positive")
    return y


def before_a_return(x):
    if x[0] < 0:
        return x.sum()
    if x[0] > 10:
        raise KeyError("large", 10)
    return x.mean()


def by_a_function(x):
    return positive(x[0]) + positive(x[1])


def positive(v):
    if v < 0:
        raise ValueError("negative")
    return np.sqrt(v)


def asserted(x):
    assert len(x) > 2, "at least three"
    assert x.sum() > 0
    for i in range(len(x)):
        assert x[i] != 4.5, ("i", "is", 4.5)
    return x * 2


def changed_before(x):
    x[0] = 7
    if x[1] == 0:
        raise ZeroDivisionError("x[1]")
    x[2] = 8
    return x


CASES = [
    (checks_first, X - 3), (checks_first, X), (checks_first, X[:1]),
    (in_a_loop, X), (in_a_loop, X + 0.5), (in_a_loop_of_the_program, X), (in_a_loop_of_the_program, X * 0 - 5),
    (in_the_other_branch, X), (in_the_other_branch, -X), (before_a_return, X), (before_a_return, -X),
    (before_a_return, X + 10), (by_a_function, X), (by_a_function, X * np.array([1, -1, 1, 1, 1, 1])),
    (asserted, X), (asserted, -X), (asserted, X + 0.5), (asserted, X[:2]), (changed_before, X),
]  # fmt: skip


@pytest.mark.parametrize(("function", "x"), CASES, ids=lambda v: v.__name__ if callable(v) else "")
def test_errors_are_those_of_python(function, x):
    try:
        function(x.copy())
    except Exception as error:
        compiled = hl.njit(function)
        for _ in range(2):
            with pytest.raises(type(error)) as caught:
                compiled(x.copy())
            if not isinstance(error, AssertionError):  # pytest writes its own texts into those of Python
                assert caught.value.args == error.args
            assert type(caught.value) is type(error)
    else:
        check(function, x)


def test_one_program_for_right_and_wrong_values():
    compiled = hl.njit(checks_first)
    assert compiled(X) == checks_first(X)
    with pytest.raises(ValueError, match="positive") as caught:
        compiled(X - 3)
    (note,) = caught.value.__notes__
    assert f"{__file__}:{checks_first.__code__.co_firstlineno + 2}" in note
    assert compiled(X) == checks_first(X)


def test_messages_of_assertions():
    with pytest.raises(AssertionError) as caught:
        hl.njit(asserted)(X + 0.5)
    assert caught.value.args == (("i", "is", 4.5),)
    with pytest.raises(AssertionError) as caught:
        hl.njit(asserted)(-X)
    assert caught.value.args == ()


def test_changes_before_an_error_stay():
    x = X.copy()
    x[1] = 0
    with pytest.raises(ZeroDivisionError):
        hl.njit(changed_before)(x)
    assert x[0] in (1, 7)  # as after an index out of range: the arrays may be changed in part


def with_computed_text(x):
    if x[0] > 3:
        raise ValueError(f"x[0] is {x[0]}")
    return x


def test_texts_of_computed_numbers_are_refused():
    with pytest.raises(HloomError, match="text") as caught:
        hl.njit(with_computed_text)(X)
    assert caught.value.source.line == with_computed_text.__code__.co_firstlineno + 2
