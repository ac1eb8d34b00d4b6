"""What `hl.njit` cannot compile: an error at the user's line, with a repair."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.errors import ArgumentError, DTypeError, HloomError, IndexOutOfBoundsError, ShapeError, UnsupportedError

X = np.arange(6.0)
TABLE = np.zeros(3)


def generator(x):
    yield x


def tries(x):
    try:
        return x + 1
    except ValueError:
        return x


def makes_a_class(x):
    class Local:
        pass

    return x


def changes_a_global(x):
    TABLE[0] = x[0]
    return x


def rebinds_a_global(x):
    global TABLE
    TABLE = x
    return x


def looks_up(x):
    return {0: 1.0}.get(int(x[0]), 2.0)


def spells(x):
    return f"{x[0]:.3f}"


def recursive(x):
    return recursive(x - 1)


def unbound(x):
    if x.sum() > 100:
        found = 1.0
    return found + 1


def random_numbers(x):
    return x + np.random.rand(3)


def prints(x):
    print(x)
    return x


def past_the_end(x):
    return x[6]


def strings(x):
    names = ""
    for k in range(len(x)):
        names += str(x[k])
    return names


def changes_an_alias_of_a_global(x):
    table = TABLE
    table += x[:3]
    return table


def changes_a_global_in_a_loop(x):
    table = TABLE
    for k in range(3):
        table[k] = x[k]
    return table


def changes_an_attribute(x):
    x.shape = (3, 2)
    return x


def looks_in_a_set(x):
    return x[0] in {0.0, 1.0}


def collects_in_a_set(x):
    seen = {0.0}
    while x[0] > 1:
        x = np.sort(x) / 2
        seen.add(x[0])
    return len(seen)


def changes_a_row_of_a_list(x):
    rows = [x[:3], x[3:]]
    rows[np.argmax(x) // 3][0] = 1
    return rows[0]


def raises_in_numpy(x):
    with np.errstate(divide="raise"):
        return 1 / x


def chooses_none(x):
    if x[0] > 0:
        z = None
    else:
        z = x
    return x if z is None else z + 1


def takes_memory(x):
    return np.ndarray(3, buffer=x)


@pytest.mark.parametrize(
    ("function", "error", "says", "line"),
    [
        (chooses_none, UnsupportedError, "'z' is a number or an array on one side", 1),
        (takes_memory, UnsupportedError, "a buffer", 1),
        (raises_in_numpy, UnsupportedError, "with", 1),
        (changes_an_alias_of_a_global, UnsupportedError, "not an argument", 2),
        (changes_a_global_in_a_loop, UnsupportedError, "not an argument", 3),
        (changes_an_attribute, UnsupportedError, "attribute", 1),
        (looks_in_a_set, ArgumentError, "an element of a set", 1),
        (collects_in_a_set, ArgumentError, "a key that is known", 4),
        (changes_a_row_of_a_list, UnsupportedError, "element of a list", 2),
        (generator, UnsupportedError, "generator", 1),
        (tries, UnsupportedError, "try", 1),
        (makes_a_class, UnsupportedError, "class", 1),
        (changes_a_global, UnsupportedError, "not an argument", 1),
        (rebinds_a_global, UnsupportedError, "global", 1),
        (looks_up, ArgumentError, "a key that is known", 1),
        (spells, ArgumentError, "text that is known", 1),
        (recursive, UnsupportedError, "calls itself", 1),
        (unbound, ArgumentError, "'found'", 3),
        (random_numbers, UnsupportedError, "random", 1),
        (prints, UnsupportedError, "hl.debug.print", 1),
        (past_the_end, IndexOutOfBoundsError, "size is 6", 1),
        (strings, HloomError, "", None),
    ],
    ids=lambda value: value.__name__ if callable(value) and not isinstance(value, type) else None,
)
def test_refusals_name_the_line(function, error, says, line):
    with pytest.raises(error, match=says) as caught:
        hl.njit(function)(X)
    assert caught.value.repair
    if line is not None:
        assert caught.value.source.file == __file__
        assert caught.value.source.line == function.__code__.co_firstlineno + line


def test_an_index_of_a_loop_out_of_range_at_its_line():
    @hl.njit
    def sums(x, n):
        total = 0.0
        for k in range(n):
            total += x[k]
        return total

    assert sums(X, 6) == 15
    with pytest.raises(ShapeError, match="the size 6") as caught:
        sums(X, 7)
    assert caught.value.source.line == sums.written.__code__.co_firstlineno + 4


def test_indices_that_are_computed_out_of_range_at_their_line():
    def read(x, n):
        return x[n + 1]

    def written(x, n):
        x[int(x[n])] = 1

    def several(x, n):
        return x[np.arange(3) + n]

    def in_a_branch(x, n):
        if x[0] == 0:
            x[n] += 1

    for function, line in ((read, 1), (written, 1), (several, 1), (in_a_branch, 2)):
        compiled = hl.njit(function)
        compiled(X.copy(), 2)
        with pytest.raises(ShapeError) as caught:
            compiled(X + 0, 6)
        assert caught.value.source.line == function.__code__.co_firstlineno + line


def test_a_reshaped_argument_that_is_not_in_c_order():
    @hl.njit
    def clear(x):
        x.reshape(-1)[0] = 5

    given = np.zeros((2, 3))
    for _ in range(3):
        clear(given)
        with pytest.raises(UnsupportedError, match="C order"):
            clear(given.T)


def test_functions_without_source():
    scope: dict = {}
    exec("def f(x):\n    return x + 1", scope)
    with pytest.raises(UnsupportedError, match="no source"):
        hl.njit(scope["f"])(X)


def test_arrays_of_objects():
    with pytest.raises(DTypeError, match="object"):
        hl.njit(lambda x: x)(np.array([None]))


def test_arguments_that_share_memory():
    @hl.njit
    def shift(x, y):
        x[:] = y

    with pytest.raises(ArgumentError, match="share memory"):
        shift(X[:-1], X[1:])


def test_an_array_that_cannot_be_changed():
    @hl.njit
    def clear(x):
        x[:] = 0

    with pytest.raises(ArgumentError, match="cannot be changed") as caught:
        clear(hl.numpy.ones(3))
    assert "pure" in caught.value.repair
    _, written = clear.pure(hl.numpy.ones(3))
    np.testing.assert_array_equal(written["0"], np.zeros(3))


def reads_what_may_have_changed(x):
    part = x[1:4]
    if x[0] > 0.5:
        part = x[:3]
    x[2] = 7
    return part.sum()


def changes_what_a_loop_decides(x, n):
    y = np.linalg.inv(np.eye(6)) @ x
    for _ in range(n):
        y = np.linalg.inv(np.eye(6)) @ x
    y[0] = 1
    return y


@pytest.mark.parametrize(
    ("function", "arguments"),
    [(reads_what_may_have_changed, ()), (changes_what_a_loop_decides, (20,))],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_arrays_that_the_program_decides_are_refused_where_it_matters(function, arguments):
    with pytest.raises(UnsupportedError) as caught:
        hl.njit(function)(X.copy(), *arguments)
    assert caught.value.source.file == __file__


def chained(x, at):
    total = np.zeros((3, 3))
    for k in range(len(at)):
        total = total * 0.5 + np.outer(x[at[k]], x[k])
    return total


def followed(x, at):
    k, total = 0, np.zeros((3, 3))
    while k < 5:
        total = total + np.outer(x[at[k]], x[0])
        k = at[k]
    return total


@pytest.mark.parametrize("function", [chained, followed])
def test_an_index_of_a_loop_that_no_kernel_takes_is_checked(function):
    """The loop of the program ends, also where its test depends on an element that is not there."""
    x = np.random.default_rng(0).random((8, 3))
    compiled = hl.njit(function)
    inside = np.array([1, 2, 3, -3, 2, 7, 6, 5])
    np.testing.assert_allclose(compiled(x, inside), function(x, inside), rtol=1e-14)
    with pytest.raises(
        hl.errors.IndexOutOfBoundsError, match=rf"index of axis 0 is 9, the size 8.*{function.__name__}"
    ):
        compiled(x, np.array([1, 2, 9, 3, 2, 12, 6, 5]))


def test_indices_that_ranges_prove_are_not_checked():
    @hl.njit
    def rows(x):
        total = np.zeros((3, 3))
        for k in range(1, len(x) - 1):
            total = total * 0.5 + np.outer(x[k - 1], x[(k + 5) % len(x)]) * x[-k, 0]
        return total

    x = np.random.default_rng(0).random((8, 3))
    np.testing.assert_allclose(rows(x), rows.__wrapped__(x), rtol=1e-14)
    assert len(rows.lower(x).compile().executable.output_shapes) == 1  # the result, and no word of faults


def bump(x):
    x[0] += 1
    return x[0] > 2


def norm(x):
    parts = np.zeros(2)
    for i in range(len(x)):
        parts[0] += x[i]
    return parts[0]


def changed_where_it_is_reached(x, y):
    return x.sum() if y[0] > 0 and bump(x) else 0.0


def changed_in_a_chain(x, y):
    for i in range(len(y)):
        if 0 < x[1] < (1.0 if bump(x) else 3.0):
            y[i] = x[0]
    return y


def with_an_array_of_its_own(x, y):
    return 5.0 if y[0] > 0 and norm(x) > 1 else 6.0


def reached_where_it_is_inside(x, i):
    return 1 if i < len(x) and x[i] > 0 else 0


@pytest.mark.parametrize("function", [changed_where_it_is_reached, changed_in_a_chain])
def test_a_change_that_python_may_not_make_is_refused(function):
    with pytest.raises(UnsupportedError, match="change|changes"):
        hl.njit(function)(np.zeros(3), -np.ones(4))


def test_expressions_that_python_may_not_evaluate():
    for sign in (-1, 1):
        given = np.ones(3), sign * np.ones(4)
        assert hl.njit(with_an_array_of_its_own)(*given) == with_an_array_of_its_own(*given)
    compiled = hl.njit(reached_where_it_is_inside)
    for i in (0, 2, 5):
        assert compiled(np.ones(3), np.int64(i)) == reached_where_it_is_inside(np.ones(3), i)
        assert compiled(np.ones(3), i) == reached_where_it_is_inside(np.ones(3), i)
    with pytest.raises(IndexOutOfBoundsError):
        compiled(np.ones(3), np.int64(-7))


def test_arguments_that_programs_are_not_compiled_for():
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

    def function(x, other):
        return x + len(other)

    np.testing.assert_array_equal(hl.njit(function)(X, {1, 2}), X + 2)
    with pytest.raises(ArgumentError, match="Unhashable, which has no hash"):
        hl.njit(function)(X, Unhashable())
