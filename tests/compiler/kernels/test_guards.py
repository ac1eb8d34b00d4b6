"""Guards of pad, concatenate and dynamic-update-slice: decided by extents, by pieces of loops, or in the text."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloom as hl
import hloom.numpy as hnp
from hloom import lax

pytestmark = pytest.mark.quick


def source(function, *arguments):
    return hl.jit(function).lower(*arguments).compile().source()


def both(function, *arguments):
    """Compiled against eager, which is the reference."""
    got, wanted = hl.jit(function)(*arguments), function(*arguments)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))


def test_a_concatenation_reads_each_operand_in_a_loop_of_its_own():
    a, b, c = (np.full((3, n), n, np.float32) for n in (40, 50, 60))
    text = source(lambda a, b, c: hnp.concatenate([a, b, c], 1) * 2, a, b, c)
    assert "if " not in text and text.count("for i1 in range(") == 3
    both(lambda a, b, c: hnp.concatenate([a, b, c], 1) * 2, a, b, c)


def test_a_padded_row_has_loops_of_known_length_at_its_ends():
    x = np.arange(200, dtype=np.float32).reshape(2, 100)
    text = source(lambda x: hnp.pad(x, ((0, 0), (1, 2))), x)
    assert "for i1 in range(1):" in text and "for i1 in range(n1 - 2, n1):" in text and "if " not in text
    both(lambda x: hnp.pad(x, ((0, 0), (1, 2))), x)


def test_what_the_extents_decide_is_not_asked():
    """A slice of a padded array that holds no padding reads the array alone."""
    x = np.arange(200, dtype=np.float32).reshape(2, 100)
    text = source(lambda x: lax.slice(lax.pad(x, 7.0, ((0, 0, 0), (3, 3, 0))), (0, 3), (2, 103)) + 1, x)
    assert "if " not in text and text.count("for i") == 1


def test_one_dimension_is_cut_inside_the_work_items():
    x = np.arange(300_000, dtype=np.float32)
    text = source(lambda x: hnp.concatenate([x, x + 1]), x)
    assert "max(lo, cut)" in text and "min(hi, cut)" in text
    both(lambda x: hnp.concatenate([x, x + 1]), x)
    both(lambda x: hnp.roll(x, 100_000) - x, x)


def test_many_operands_are_asked_one_by_one():
    parts = [np.full((2, 20), k, np.float32) for k in range(12)]
    assert "if " in source(lambda parts: hnp.concatenate(parts, 1), parts)
    both(lambda parts: hnp.concatenate(parts, 1), parts)


def test_values_of_one_piece_do_not_leak_into_another():
    """In each piece the concatenation is a different row vector, which the outer loop holds."""
    x, y = np.arange(4.0, dtype=np.float32), np.arange(10.0, 14.0, dtype=np.float32)

    def rows(x, y):
        spread = [hnp.broadcast_to(v[:, None], (4, 40)) for v in (x, y)]
        return hnp.sin(hnp.concatenate(spread, 1)) + hnp.concatenate(spread[::-1], 1)

    got = np.asarray(hl.jit(rows)(x, y))
    wide = [np.repeat(v[:, None], 40, 1) for v in (x, y)]
    np.testing.assert_allclose(got, np.sin(np.hstack(wide)) + np.hstack(wide[::-1]), rtol=1e-6)


@settings(max_examples=25)
@given(st.data())
def test_pads_and_updates_of_any_place(data):
    rows, columns = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 70))
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    widths = data.draw(st.tuples(*[st.tuples(st.integers(-3, 20), st.integers(-3, 20), st.integers(0, 2))] * 2))
    if all(n + low + high + max(n - 1, 0) * inner >= 0 for n, (low, high, inner) in zip(x.shape, widths, strict=True)):
        both(lambda x: lax.pad(x, -1.0, widths) * 2, x)
    height, width = data.draw(st.integers(1, rows)), data.draw(st.integers(1, columns))
    start = data.draw(st.tuples(st.integers(-2, 6), st.integers(-9, 80)))
    both(lambda x: lax.dynamic_update_slice(x + 1, -x[:height, :width], start) * 3, x)
    axis = data.draw(st.sampled_from([0, 1, None]))
    both(lambda x: hnp.roll(x, data.draw(st.just(3)), axis) - x, x)


@pytest.mark.parametrize("steps", [1, 7])
def test_a_stencil_in_a_loop(steps):
    x = np.random.default_rng(0).standard_normal((20, 33)).astype(np.float32)

    def step(_, x):
        p = hnp.pad(x, 1)
        return x + 0.25 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * x)

    wanted = x
    for k in range(steps):
        wanted = np.asarray(step(k, wanted))
    np.testing.assert_allclose(np.asarray(hl.jit(lambda x: lax.fori_loop(0, steps, step, x))(x)), wanted, rtol=1e-5)


def test_columns_of_a_reduction_are_cut_too():
    """The gradient of a bias that was cut into four gates: each gate's columns are a loop of their own."""
    gates = [np.random.default_rng(k).standard_normal((50, 32)).astype(np.float32) for k in range(4)]
    text = source(lambda gates: hnp.concatenate(gates, 1).sum(0), gates)
    assert "if " not in text and "min(last, cut)" in text
    got = hl.jit(lambda gates: hnp.concatenate(gates, 1).sum(0))(gates)
    np.testing.assert_allclose(np.asarray(got), np.concatenate(gates, 1).sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_rows_outside_of_an_operand_are_masked(dtype):
    """Whether a row is inside is known before it is walked: no branch in its loop, and nothing of what lies in its
    place comes through, not even a NaN; zeros keep their sign."""
    x = np.random.default_rng(0).standard_normal((3, 5, 6, 40)).astype(dtype)
    x[:, 0], x[:, :, -1], x[1, 2, 3, :7] = np.nan, np.inf, -0.0

    def stencil(x):
        padded = hnp.pad(x, ((0, 0), (1, 2), (2, 1), (0, 0)))
        return padded[:, 2:7, 1:7], padded[:, :5, 3:] + padded[:, 3:, :6]

    text = source(stencil, x)
    loop = text[text.index("for i3") :]
    assert ">> 63" in text and "if " not in loop and "& m" in loop
    padded = np.pad(x, ((0, 0), (1, 2), (2, 1), (0, 0)))
    with np.errstate(invalid="ignore"):
        expected = padded[:, 2:7, 1:7], padded[:, :5, 3:] + padded[:, 3:, :6]
    for got, wanted in zip(hl.jit(stencil)(x), expected, strict=True):
        got = np.asarray(got)
        np.testing.assert_array_equal(got, wanted)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))


def test_nothing_is_read_of_an_operand_without_elements():
    x = np.zeros((0, 40), np.float32)
    both(lambda x: lax.pad(x, np.float32(0), ((1, 1, 0), (0, 0, 0))), x)


def test_short_rows_and_other_numbers_are_asked():
    for features, number in ((8, 0.0), (40, 1.0)):
        x = np.ones((5, 6, features), np.float32)

        def padded(x, number=number):
            return lax.pad(x, np.float32(number), ((1, 1, 0), (2, 0, 0), (0, 0, 0)))

        assert "if " in source(padded, x)
        both(padded, x)


def test_what_an_inner_loop_does_not_choose_is_chosen_before_it():
    """The vector of a product is two vectors, one behind the other: a condition in the loop over the columns would keep
    it from being vectorized."""
    a, b = (np.random.default_rng(k).standard_normal(n).astype(np.float32) for k, n in enumerate((24, 40)))
    w = np.random.default_rng(2).standard_normal((64, 300)).astype(np.float32)
    text = source(lambda a, b, w: hnp.concatenate([a, b]) @ w, a, b, w)
    kernel = text[text.index("for i0 in range(begin, end)") :]
    assert "if " in kernel[: kernel.index("for i1")] and "if " not in kernel[kernel.index("for i1") :]
    got = np.asarray(hl.jit(lambda a, b, w: hnp.concatenate([a, b]) @ w)(a, b, w))
    np.testing.assert_allclose(got, np.concatenate([a, b]) @ w, rtol=1e-4, atol=1e-5)


def chosen(random: np.random.Generator):
    """A random vector that is chosen element by element, spread over columns, and what reads it."""
    dtype = random.choice(["float32", "float64", "int32", "float16"])
    rows, columns = int(random.integers(2, 70)), int(random.choice([1, 3, 8, 17, 64, 300]))
    first = int(random.integers(1, rows))
    x = np.rint(random.standard_normal(rows) * 4).astype(dtype)
    w = np.rint(random.standard_normal((rows, columns)) * 4).astype(dtype)
    kind, reader, guarded = random.integers(4), random.integers(5), random.integers(2)

    def function(x, w):
        if guarded:  # one choice within another, and one that also depends on the columns
            w = hnp.concatenate([w[first:], hnp.pad(w[:first], ((0, 0), (1, 0)))[:, :-1] + 1])
        if kind == 0:
            v = hnp.concatenate([x[first:] * 2, x[:first]])
        elif kind == 1:
            v = hnp.pad(x[first:] + 1, (first, 0))
        elif kind == 2:
            v = lax.dynamic_update_slice(x * 3, x[:first] - 1, (rows - first,))
        else:
            v = hnp.roll(hnp.concatenate([hnp.pad(x[first:], (0, 2)), x[:first] * x.sum()])[:rows], first)
        if reader == 0:
            return (v[:, None] * w).sum(0)
        if reader == 1:
            return (v[:, None] + w).max(1) + v
        if reader == 2:
            return v[:, None] * w + w.sum(1, keepdims=True)
        return hnp.cumsum(v[:, None] * w, 0) if reader == 3 else (w.sum(0) * v[:, None]).T

    return function, x, w


@pytest.mark.parametrize("seed", range(24))
def test_choices_before_and_in_loops(seed):
    function, x, w = chosen(np.random.default_rng(seed))
    got, wanted = np.asarray(hl.jit(function)(x, w)), np.asarray(function(x, w))
    np.testing.assert_allclose(got, wanted, rtol=2e-2 if x.dtype == np.float16 else 1e-5)
