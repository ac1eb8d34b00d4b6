"""Random numbers of NumPy's generators in compiled programs: NumPy's bits, and its state afterwards."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import hloom as hl
from hloom.errors import HloomError, UnsupportedError

OUTSIDE = np.random.default_rng(1)


def same(one, other):
    """Whether results are the same bits in the same dtypes."""
    one, other = hl.tree.leaves(one), hl.tree.leaves(other)
    return len(one) == len(other) and all(
        np.asarray(a).dtype == np.asarray(b).dtype and np.shape(a) == np.shape(b) and np.array_equal(a, b)
        for a, b in zip(one, other, strict=True)
    )


def check(compiled, *args, seeds=(0, 1, 2**40), before=0):
    """Compares results, arguments that change and states. before: how many 32-bit numbers are drawn before."""
    for seed in seeds:
        mine, numpys = np.random.default_rng(seed), np.random.default_rng(seed)
        for rng in (mine, numpys):
            rng.integers(5, size=before)
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        wanted = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        for _ in range(2):
            assert same(compiled(mine, *given), compiled.__wrapped__(numpys, *wanted))
            assert same(given, wanted)
            assert mine.bit_generator.state == numpys.bit_generator.state


@hl.njit
def singles(rng):
    return rng.random(), rng.integers(10), rng.uniform(), rng.uniform(2.0, 5.5), rng.random(dtype=np.float32)


@hl.njit
def arrays(rng, n):
    x = rng.random(n)
    y = rng.uniform(-1.0, 1.0, (n, 3))
    k = rng.integers(0, 7, size=n)
    z = rng.random((2, n), dtype=np.float32)
    return x, y, k, z, rng.random(), rng.random(0), rng.random(())


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("n", [1, 2, 1000])
def test_numbers_and_arrays(n, before):
    check(singles, before=before)
    check(arrays, n, before=before)


@hl.njit
def bounded(rng, low, high, n):
    total, drawn = 0, np.zeros(n, np.int64)
    for k in range(n):
        drawn[k] = rng.integers(low, high)
        total ^= rng.integers(low, high, endpoint=True)
    return total, drawn, rng.integers(low, high, size=3), rng.integers(low, high, dtype=np.int64)


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 1), (0, 2), (-3, 4), (5, 5 + 3_000_000_000), (0, 2**32 - 1), (0, 2**32), (-1, 2**32), (0, 2**33 + 5),
     (-(2**62), 2**62 + 3), (-(2**63), 2**63 - 1)],
)  # fmt: skip
def test_integers_between_any_bounds(low, high):
    """Of 32 bits where the bounds allow it, in halves of 64; else of 64."""
    check(bounded, low, high, 50, seeds=range(8))


@hl.njit
def dtypes(rng):
    return (
        rng.integers(0, 9, 5, dtype=np.int32), rng.integers(2**32, size=4, dtype=np.uint32),
        rng.integers(-(2**63), 2**63, size=4), rng.integers(-(2**63), 2**63 - 1, size=4, endpoint=True),
        rng.integers(-(2**31), 2**31, size=4, dtype=np.int32), rng.integers(6, dtype=int), rng.integers(np.int64(6)),
    )  # fmt: skip


def test_dtypes_of_integers():
    check(dtypes, seeds=range(5))


@hl.njit
def walk(rng, steps):
    """Branches, a loop whose length is drawn, `and`, and an order of draws that Python determines."""
    x, y, turns = 0.0, 0.0, 0
    path = np.zeros((steps, 2))
    for k in range(steps):
        if rng.random() < 0.5:
            x += rng.uniform(0.0, 2.0) - rng.random()
        elif x > 0 and rng.random() < 0.25:
            turns += 1
        else:
            y -= rng.random() if x > 0.5 else 1.0
        while rng.random() < 0.3:
            turns += rng.integers(3)
        path[rng.integers(steps)] += rng.random()
        path[k, rng.integers(2)] = x * rng.random() + y
    return x, y, turns, path


def shuffled(rng, x):
    for i in range(len(x) - 1, 0, -1):
        j = rng.integers(i + 1)
        x[i], x[j] = x[j], x[i]


@hl.njit
def calls(rng, x):
    shuffled(rng, x)
    for k in range(3):
        shuffled(rng, x)
        x[k:] *= rng.random(len(x))[k:]
    return rng.random()


def test_loops_branches_and_functions():
    check(walk, 60)
    check(calls, np.arange(20.0))


@hl.njit
def ordered(rng, x, y, n):
    rng.shuffle(x)
    for k in range(3):
        rng.shuffle(y[k])
        rng.shuffle(x[k:])
    rng.shuffle(x[::2])
    return rng.permutation(x), rng.permutation(9), rng.permutation(n), rng.permutation(x[1:]), rng.random()


@pytest.mark.parametrize("n", [4, 5, 300])
def test_shuffles(n):
    for before in (0, 1):
        check(ordered, np.arange(float(n)), np.arange(3 * n).reshape(3, n), 3, before=before)


@hl.njit
def solved(rng, a, n):
    """A loop that no kernel takes, and a branch of the program."""
    for _ in range(n):
        a = a + np.linalg.inv(np.eye(3) * 4 + rng.random((3, 3)))
    if a[0, 0] > 0:
        a = a + rng.random()
    return rng.random()


def test_loops_of_the_program():
    check(solved, np.zeros((3, 3)), 20)
    check(solved, np.full((3, 3), -99.0), 20)


@hl.njit
def of_seed(seed, n):
    rng = np.random.default_rng(seed)
    other = np.random.default_rng((3, 4))
    return rng.random(n), rng.integers(3), other.random(), np.random.default_rng(rng).random()


def test_new_generators():
    for seed in (0, 7, 2**70):
        for _ in range(2):
            assert same(of_seed(seed, 5), of_seed.__wrapped__(seed, 5))


@hl.njit
def around(n):
    total = OUTSIDE.random()
    for _ in range(n):
        total += OUTSIDE.uniform(1.0, 2.0)
    return total


def test_generators_around_the_function(monkeypatch):
    for seed in (1, 1, 2):
        monkeypatch.setitem(globals(), "OUTSIDE", np.random.default_rng(seed))
        found = [around(4), around(4)]
        state = OUTSIDE.bit_generator.state
        monkeypatch.setitem(globals(), "OUTSIDE", np.random.default_rng(seed))
        assert found == [around.__wrapped__(4), around.__wrapped__(4)]
        assert state == OUTSIDE.bit_generator.state


def test_one_generator_under_two_names_and_two_generators():
    @hl.njit
    def both(pair, third):
        first, second = pair
        total = 0.0
        for _ in range(3):
            total = 2 * total + first.random() - second.random() * third.random()
        return total, first.random(), third.random()

    mine, numpys = [[np.random.default_rng(k) for k in range(2)] for _ in range(2)]
    for _ in range(2):
        assert same(both((mine[0], mine[1]), mine[0]), both.__wrapped__((numpys[0], numpys[1]), numpys[0]))
        assert [g.bit_generator.state for g in mine] == [g.bit_generator.state for g in numpys]


@dataclasses.dataclass
class Walker:
    place: np.ndarray
    rng: np.random.Generator


@hl.njit
def stepped(walker, n):
    for _ in range(n):
        walker.place[0] += walker.rng.random()
    return walker.rng.integers(9)


def test_generators_in_instances():
    mine, numpys = [Walker(np.zeros(2), np.random.default_rng(0)) for _ in range(2)]
    for _ in range(2):
        assert same(stepped(mine, 30), stepped.__wrapped__(numpys, 30)) and same(mine.place, numpys.place)
        assert mine.rng.bit_generator.state == numpys.rng.bit_generator.state


def test_an_error_leaves_the_state():
    @hl.njit
    def outside(rng, x, k):
        for i in range(3):
            x[i + k] = rng.random()

    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    with pytest.raises(IndexError):
        outside(rng, np.zeros(3), 5)
    assert rng.bit_generator.state == before


def uses_the_legacy_functions(rng, x):
    return np.random.rand(3) + x


def seeds_the_legacy_functions(rng, x):
    np.random.seed(0)


def gives_no_seed(rng, x):
    return np.random.default_rng().random()


def draws_from_another_distribution(rng, x):
    return rng.logistic(x)


def has_arrays_of_parameters(rng, x):
    return rng.uniform(np.zeros(3), 1.0)


def draws_narrow_integers(rng, x):
    return rng.integers(0, 5, dtype=np.int8)


def draws_in_and(rng, x):
    return x > 0 and rng.random() > 0.5


def draws_in_a_chain(rng, x):
    return 0.2 < rng.random() < x


def draws_in_a_choice(rng, x):
    return rng.random() if x > 0 else 0.0


def draws_in_a_test(rng, x):
    while rng.random() < x:
        x = x - np.linalg.norm(np.linalg.inv(np.eye(2)))
    return x


def has_real_bounds(rng, x):
    return rng.integers(0, 3 * x)


def returns_a_generator(rng, x):
    return rng


@pytest.mark.parametrize(
    ("function", "says"),
    [(uses_the_legacy_functions, "np.random.rand .*default_rng"),
     (seeds_the_legacy_functions, "np.random.seed .*default_rng"), (gives_no_seed, "seed is None"),
     (draws_from_another_distribution, "logistic"), (has_arrays_of_parameters, "uniform with arrays"),
     (draws_narrow_integers, "int8"), (draws_in_and, "a draw of a random"), (draws_in_a_chain, "a draw of a random"),
     (draws_in_a_choice, "a draw of a random"), (draws_in_a_test, "a draw of a random"),
     (has_real_bounds, "float64"), (returns_a_generator, "a generator")],
)  # fmt: skip
def test_refusals_name_the_line(function, says):
    with pytest.raises(UnsupportedError, match=f"(?s){says}") as caught:
        hl.njit(function)(np.random.default_rng(0), 0.7)
    if function is not returns_a_generator:
        assert caught.value.source.line == function.__code__.co_firstlineno + 1


@pytest.mark.parametrize("bits", [np.random.MT19937, np.random.PCG64DXSM, np.random.Philox])
def test_other_bit_generators_are_refused(bits):
    with pytest.raises(UnsupportedError, match=f"(?s){bits.__name__}.*default_rng"):
        singles(np.random.Generator(bits(0)))


def empty(rng):
    return rng.integers(5, 5)


def downwards(rng):
    return rng.uniform(3.0, 1.0)


@hl.njit
def computed(rng, bounds):
    return rng.integers(bounds[0], bounds[1])


@hl.njit
def narrow(rng, bounds):
    return rng.integers(bounds[0], bounds[1], dtype=np.int32)


def test_errors_of_numpy():
    rng = np.random.default_rng(0)
    for function, words in ((empty, "low >= high"), (downwards, "high - low < 0")):
        with pytest.raises(ValueError, match=words):
            hl.njit(function)(rng)
    with pytest.raises(HloomError, match="(?s)high - low of integers is 0") as caught:
        computed(rng, np.array([3, 3]))
    assert caught.value.source.line == computed.__wrapped__.__code__.co_firstlineno + 2
    with pytest.raises(HloomError, match="(?s)which their dtype does not hold, is 4294967295"):
        narrow(rng, np.array([3, 2**32]))
    check(narrow, np.array([3, 2**31]))


def test_draws_of_a_loop_happen_as_often_as_in_python():
    def chained(rng, x):
        for k in range(len(x)):
            x[k] = x[k] < 0.5 < rng.random()

    def either(rng, x):
        for k in range(len(x)):
            x[k] = rng.integers(2) or 7

    check(hl.njit(either), np.zeros(100))
    with pytest.raises(UnsupportedError, match="a draw "):
        hl.njit(chained)(np.random.default_rng(0), np.linspace(0, 1, 100))


def test_fallback_draws_in_python():
    def text(rng, x):
        return f"{rng.random() + x:.3f}"

    rng, numpys = np.random.default_rng(0), np.random.default_rng(0)
    compiled = hl.njit(fallback=True)(text)
    with pytest.warns(hl.errors.FallbackWarning):
        assert compiled(rng, 1.0) == text(numpys, 1.0)
    assert compiled(rng, 1.0) == text(numpys, 1.0)
    assert rng.bit_generator.state == numpys.bit_generator.state


def test_a_generator_in_a_traced_function_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(UnsupportedError, match="traced"):
        hl.jit(lambda x: singles(rng)[0] + x)(1.0)


def test_pure_leaves_the_generator():
    rng = np.random.default_rng(0)
    assert same(singles.pure(rng)[0][0], np.random.default_rng(0).random())
    assert rng.random() == np.random.default_rng(0).random()
