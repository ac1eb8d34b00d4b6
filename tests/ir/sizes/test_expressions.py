"""Sizes against integers: values, decisions and texts of random expressions, and what is said of the undecided."""

from __future__ import annotations

import operator
import pickle
import random

import pytest

from hloom.errors import HloomError, UndecidedSizeError
from hloom.ir.sizes.expressions import (
    Comparison,
    Dim,
    Scope,
    SizeExpression,
    assume,
    assuming,
    greatest,
    least,
    lowest,
    parsed_size,
    size_at,
    size_with,
)
from hloom.ir.types import Shape

N, M = Dim("n"), Dim("m", 2, 100)
EIGHTS = Dim("k", 8, multiple_of=8)
DIMS = {"n": N, "m": M, "k": EIGHTS}
COMPARE = [operator.eq, operator.ne, operator.ge, operator.gt, operator.le, operator.lt]


def drawn(rng: random.Random, depth: int):
    """(a size, the function of sizes that it is)."""
    if depth == 0 or rng.random() < 0.15:
        if rng.random() < 0.3:
            number = rng.randint(-6, 9)
            return number, lambda at: number
        name = rng.choice(sorted(DIMS))
        return DIMS[name], lambda at: at[name]
    left, of_left = drawn(rng, depth - 1)
    right, of_right = drawn(rng, depth - 1)
    how = rng.choice([operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, min, max])
    if how in (operator.floordiv, operator.mod):
        if rng.random() < 0.8 or lowest(right) < 1:
            divisor = rng.choice([1, 2, 3, 4, 6, 8, 16, -2])
            right, of_right = divisor, lambda at: divisor
        return how(left, right), lambda at: how(of_left(at), of_right(at))
    if how in (min, max):
        made = (least if how is min else greatest)(left, right)
        return made, lambda at: how(of_left(at), of_right(at))
    return how(left, right), lambda at: how(of_left(at), of_right(at))


def points(rng: random.Random):
    for _ in range(12):
        yield {"n": rng.choice([1, 2, 3, 7, 64, 1009]), "m": rng.randint(2, 100), "k": 8 * rng.randint(1, 40)}


@pytest.mark.parametrize("seed", range(20))
def test_values_and_decisions_of_random_sizes(seed):
    rng = random.Random(seed)
    for _ in range(40):
        (left, of_left), (right, of_right) = drawn(rng, 3), drawn(rng, 2)
        decisions = [compare(left, right) for compare in COMPARE]
        read = parsed_size(str(left), DIMS)
        assert str(read) == str(left) and pickle.loads(pickle.dumps(left)) is not None
        for at in points(rng):
            assert size_at(left, at) == of_left(at), (left, at)
            assert size_at(read, at) == of_left(at), (left, at)
            assert lowest(left) <= of_left(at)
            for compare, decided in zip(COMPARE, decisions, strict=True):
                truth = compare(of_left(at), of_right(at))
                assert (decided.holds(at) if isinstance(decided, Comparison) else decided) == truth, (left, right, at)


@pytest.mark.parametrize("seed", range(8))
def test_other_sizes_in_place_of_dimensions(seed):
    rng = random.Random(seed)
    for _ in range(30):
        (size, of), (given, of_given) = drawn(rng, 3), drawn(rng, 2)
        found = size_with(size, {"n": greatest(given, 1)})
        for at in points(rng):
            assert size_at(found, at) == of({**at, "n": max(of_given(at), 1)})


@pytest.mark.parametrize("seed", range(8))
def test_decisions_under_random_assumptions(seed):
    """Whatever is decided holds for all sizes for which the assumptions do."""
    rng = random.Random(seed)
    for _ in range(25):
        known = [comparison for _ in range(3) if isinstance(comparison := random_comparison(rng), Comparison)]
        asked, of_asked = drawn(rng, 2)
        with assuming(*known):
            decided = asked >= 0, asked == 0
        for at in [at for _ in range(8) for at in points(rng) if all(one.holds(at) for one in known)]:
            for found, truth in zip(decided, (of_asked(at) >= 0, of_asked(at) == 0), strict=True):
                assert isinstance(found, Comparison) or found == truth, (asked, known, at)


def random_comparison(rng: random.Random):
    return rng.choice(COMPARE[2:])(drawn(rng, 1)[0], drawn(rng, 1)[0])


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (2 * N + 1 - N, "n + 1"), ((N + 1) * (N - 1), "n*n - 1"), ((4 * N + 7) // 2, "2*n + 3"), (N // 2 // 3, "n//6"),
        (2 * (N // 2) + N % 2, "n"), ((N * M + N) // N, "m + 1"), (EIGHTS // 2, "4*(k//8)"), (EIGHTS % 8, "0"),
        (EIGHTS // 16, "k//16"), ((EIGHTS + 4) // 8, "k//8"), (-(-N // 2), "n - (n//2)"), (N % 2, "n % 2"),
        ((N + 3) // 4 * 4, "4*((n + 3)//4)"), (least(N, N + 1), "n"), (greatest(N, 1), "n"), ((N - 1) // N, "0"),
        (least(greatest(N, 3), 7), "min(max(n, 3), 7)"), (N * (M - 1) // (M - 1), "n"),
    ],
)  # fmt: skip
def test_forms(size, text):
    assert str(size) == text


def test_what_follows():
    assert N >= 1 and (N > 0) and M != 1 and N % 2 < 2 and N // 2 <= N and least(N, M) <= N and greatest(N, 3) >= 3
    assert (2 * N != 5) and (N + 3) // 4 * 4 >= N and N * M >= N and not (N < N // 2)
    with assuming(N % 2 == 0):
        assert N // 2 * 2 == N and N // 2 * 2 * M == N * M and N % 2 == 0
    with assuming(N <= M):
        assert N <= 100 and M + 1 > N and greatest(N, M) == M
    with assuming(N != 7):
        assert N != 7
    assert isinstance(N <= 100, Comparison)


def test_what_is_assumed_ends_with_its_block():
    with assuming():
        assume(N == M)
        assert N == M
        assert assume(N == M) is None
    assert isinstance(N == M, Comparison)


def test_undecided():
    with pytest.raises(UndecidedSizeError, match=r"n == 1(.|\n)*n >= 1 alone(.|\n)*test_expressions.py") as error:
        bool(N == 1)
    assert "min=2" in error.value.repair
    for use in (range, int, float, lambda n: [0] * n):
        with pytest.raises(UndecidedSizeError, match="the size n"):
            use(N)


@pytest.mark.parametrize(
    "made",
    [
        lambda: Dim("2n"), lambda: Dim("n", 3, 2), lambda: Dim("n", -1), lambda: Dim("n", 1.5), lambda: Dim("n", True),
        lambda: Dim("n", 9, 15, multiple_of=8), lambda: Dim("n", multiple_of=0), lambda: N // 0, lambda: N % 0,
        lambda: Dim("lambda"),
        lambda: parsed_size("q + 1", DIMS), lambda: parsed_size("n +", DIMS), lambda: parsed_size("n(1)", DIMS),
        lambda: assume(3), lambda: assume(N < 0), lambda: (M // (N - 1)).at({"n": 1, "m": 2}),
    ],
)  # fmt: skip
def test_refused(made):
    with pytest.raises(HloomError) as error:
        made()
    assert error.value.asked and error.value.found and error.value.repair


def test_equal_sizes_are_one_key():
    assert {N + M: 1}[M + N] == 1 and hash(N) == hash(Dim("n")) and isinstance(N + 0, SizeExpression)


def test_sizes_that_are_no_keys():
    """Where a function was written for numbers, what it looks up by a size has no answer."""

    class Numbers(Scope):
        refuses_lookups = True

    n = Dim("n", scope=Numbers())
    for look_up in (
        lambda: {8: 1}.get(n, 2),
        lambda: 2 * n in {8, 16},
        lambda: {(8, 3): 1}.get(Shape("f32", (n, 3)).dims),
    ):
        with pytest.raises(UndecidedSizeError, match=r"(?s)a dict or set looked up by the size.*test_expressions.py"):
            look_up()
    assert Shape("f32", (n, 3)) is Shape("f32", (n, 3)) is not Shape("f32", (Dim("n"), 3))
    assert Shape("f32", (2 * n, 3)).dims == (n + n, 3)


def test_what_differs_in_factors_differs_in_hash():
    """hash(-1) == hash(-2): a dict compares keys of one hash, and these are not known to differ."""
    pairs = [(M - N, M - 2 * N), (-N, -2 * N), (3 - N // M, 3 - 2 * (N // M))]
    extrema = [(greatest(a, 0), greatest(b, 0)) for a, b in pairs[::2]]
    for one, other in [*pairs, *extrema, ((5 - M) // N, (5 - 2 * M) // N)]:
        assert hash(one) != hash(other)
        assert {one: 1}.get(other) is None
    assert hash(M - N) == hash(-N + M)
