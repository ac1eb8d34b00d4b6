"""x[index] against NumPy: every basic index at random, traced scalars, errors."""

from __future__ import annotations

import numpy as np
import pytest
from frontend import one, sample, staged
from hypothesis import given, settings
from hypothesis import strategies as st

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import (
    ArgumentError,
    HloomError,
    IndexOutOfBoundsError,
    NonConcreteBooleanIndexError,
    ShapeError,
    TracerConversionError,
    UndecidedSizeError,
)
from hloom.ir.interpret import evaluate


def bounds(extent):
    return st.none() | st.integers(-extent - 2, extent + 2)


@st.composite
def indexed(draw):
    """(shape, an index that NumPy accepts)."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    entries = []
    for extent in shape[: draw(st.integers(0, len(shape)))]:
        if extent and draw(st.booleans()):
            entries.append(draw(st.integers(-extent, extent - 1)))
        else:
            step = draw(st.none() | st.integers(-3, 3).filter(bool))
            entries.append(slice(draw(bounds(extent)), draw(bounds(extent)), step))
    for _ in range(draw(st.integers(0, 2))):
        entries.insert(draw(st.integers(0, len(entries))), None)
    if draw(st.booleans()):
        place = draw(st.integers(0, len(entries)))
        # What stands behind the dots counts from the end: keep only what fits any axis there.
        behind = [e if e is None else slice(None, None, -1) for e in entries[place:]]
        entries = [*entries[:place], Ellipsis, *behind]
    return shape, tuple(entries)


@settings(max_examples=400)
@given(indexed())
def test_basic_indexing_is_that_of_numpy(case):
    shape, index = case
    x = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    np.testing.assert_array_equal(one(lambda x: x[index], x), x[index])


@settings(max_examples=100)
@given(st.integers(-4, 3), st.integers(-3, 2), st.sampled_from(["int32", "int64", "int8"]))
def test_traced_scalars_index_like_numbers(i, j, dtype):
    x = sample((4, 3, 2), "float32")
    i, j = np.asarray(i, dtype), np.asarray(j, dtype)
    np.testing.assert_array_equal(one(lambda x, i, j: x[i, j], x, i, j), x[i, j])
    np.testing.assert_array_equal(one(lambda x, i, j: x[i, ::-1, None, 1], x, i, j), x[i, ::-1, None, 1])
    np.testing.assert_array_equal(one(lambda x, i, j: x[1, j, ...], x, i, j), x[1, j, ...])


def test_a_long_axis_is_reached_by_a_narrow_index():
    x = np.arange(300, dtype=np.int32)
    assert one(lambda x, i: x[i], x, np.int8(-1)) == 299
    assert one(lambda x, i: x[i], x, np.uint8(255)) == 255


def test_computed_indexes_outside_are_moved_to_the_nearest_element():
    x = np.arange(4, dtype=np.int32)
    assert one(lambda x, i: x[i], x, np.int32(9)) == 3
    assert one(lambda x, i: x[i], x, np.int32(-9)) == 0


def test_static_indexes_outside_are_errors():
    x = hnp.ones((2, 3))
    for index in (2, -3, (0, 3), (slice(None), -4), (0, 0, 0), (Ellipsis, Ellipsis)):
        with pytest.raises(IndexOutOfBoundsError) as caught:
            x[index]
        assert isinstance(caught.value, IndexError) and caught.value.source.file == __file__
    with pytest.raises(IndexOutOfBoundsError, match="element 0 of axis 0"):
        hnp.zeros((0, 3))[0]


@st.composite
def advanced(draw):
    """(shape, an index with arrays and perhaps a mask that NumPy accepts)."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    broadcast = draw(st.sampled_from([(), (1,), (3,), (2, 1), (2, 3), (0,)]))
    entries, axis = [], 0
    while axis < len(shape):
        extent, kind = shape[axis], draw(st.integers(0, 6))
        if kind == 0:
            entries.append(draw(st.integers(-extent, extent - 1)))
        elif kind == 1:
            entries.append(
                slice(draw(bounds(extent)), draw(bounds(extent)), draw(st.none() | st.sampled_from([-2, -1, 2])))
            )
        elif kind == 2:
            entries.append(slice(None))
        elif kind == 3 and axis + 1 < len(shape) and broadcast in ((), (1,)):
            mask = np.zeros(shape[axis : axis + 2], bool)
            mask[draw(st.integers(0, extent - 1)), draw(st.integers(0, shape[axis + 1] - 1))] = True
            entries.append(mask)
            axis += 1
        elif kind == 6 and axis == len(shape) - 1:
            break
        else:
            dims = broadcast[draw(st.integers(0, len(broadcast))) :]
            seed = draw(st.integers(0, 99))
            dtype = draw(st.sampled_from([np.int32, np.int64, np.int8, np.uint8]))
            low = 0 if dtype == np.uint8 else -extent
            entries.append(np.random.default_rng(seed).integers(low, extent, dims).astype(dtype))
        axis += 1
    for _ in range(draw(st.integers(0, 1))):
        entries.insert(draw(st.integers(0, len(entries))), None)
    if draw(st.integers(0, 3)) == 0 and axis == len(shape) - 1:
        entries.append(Ellipsis)
    return shape, tuple(entries)


def arrays_of(index):
    """The integer arrays of an index, and a function that puts others in their places."""
    places = [k for k, e in enumerate(index) if isinstance(e, np.ndarray) and e.dtype != bool]

    def with_arrays(arrays):
        entries = list(index)
        for k, a in zip(places, arrays, strict=True):
            entries[k] = a
        return tuple(entries)

    return [index[k] for k in places], with_arrays


@settings(max_examples=300)
@given(advanced())
def test_advanced_indexing_is_that_of_numpy(case):
    shape, index = case
    x = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    expected = x[index]
    np.testing.assert_array_equal(np.asarray(hnp.asarray(x)[index]), expected)
    arrays, with_arrays = arrays_of(index)
    traced = hl.make_module(lambda x, *a: x[with_arrays(a)])(hnp.asarray(x), *map(hnp.asarray, arrays))
    found = evaluate(traced.entry, [x, *arrays])
    np.testing.assert_array_equal(found, expected)
    filled = hnp.asarray(x).at[index].get(mode="fill", fill_value=-7)
    np.testing.assert_array_equal(np.asarray(filled), expected)


@settings(max_examples=200)
@given(advanced(), st.sampled_from(["set", "add", "multiply", "min", "max"]), st.booleans())
def test_updates_are_those_of_numpy(case, kind, scalar):
    shape, index = case
    x = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape) - 5
    part = x[index]
    v = np.int32(3) if scalar else (np.arange(part.size, dtype=np.int32) % 7 - 2).reshape(part.shape)
    expected = x.copy()
    ufuncs = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}
    if kind == "set":
        expected[index] = v
    else:
        ufuncs[kind].at(expected, index, v)
    found = getattr(hnp.asarray(x).at[index], kind)(v)
    np.testing.assert_array_equal(np.asarray(found), expected)
    arrays, with_arrays = arrays_of(index)
    traced = hl.make_module(lambda x, v, *a: getattr(x.at[with_arrays(a)], kind)(v))(*map(hnp.asarray, (x, v, *arrays)))
    np.testing.assert_array_equal(evaluate(traced.entry, [x, np.asarray(v), *arrays]), expected)


@settings(max_examples=150)
@given(indexed())
def test_updates_at_basic_indexes(case):
    shape, index = case
    x = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    v = np.arange(x[index].size, dtype=np.int32).reshape(x[index].shape) + 100
    expected = x.copy()
    expected[index] = v
    np.testing.assert_array_equal(one(lambda x, v: x.at[index].set(v), x, v), expected)
    expected = x.copy()
    expected[index] += 3
    np.testing.assert_array_equal(np.asarray(hnp.asarray(x).at[index].add(3)), expected)


def test_compiled_advanced_indexing():
    x = sample((5, 4, 3), "float32")
    i, j = np.array([[0], [-1], [4]], np.int32), np.array([2, 0], np.int32)
    np.testing.assert_array_equal(one(lambda x, i, j: x[i, :, j] * 2, x, i, j), x[i, :, j] * 2)
    expected = x.copy()
    np.add.at(expected, (slice(1, 4), j), 1.5)
    np.testing.assert_array_equal(one(lambda x, j: x.at[1:4, j].add(1.5), x, j), expected)


def test_modes_outside_of_the_array():
    x = hnp.arange(4.0)
    i = hnp.asarray([1, 9, -9])
    np.testing.assert_array_equal(x[i], [1, 3, 0])
    np.testing.assert_array_equal(x.at[i].get(mode="clip"), [1, 3, 0])
    np.testing.assert_array_equal(x.at[i].get(mode="fill"), [1, np.nan, np.nan])
    np.testing.assert_array_equal(x.at[i].get(fill_value=5), [1, 5, 5])
    np.testing.assert_array_equal(x.at[i].set(7.0), [0, 7, 2, 3])
    np.testing.assert_array_equal(x.at[i].set(7.0, mode="clip"), [7, 7, 2, 7])
    np.testing.assert_array_equal(x.at[11].set(7.0), x)
    np.testing.assert_array_equal(x.at[11].get(mode="fill"), np.nan)
    np.testing.assert_array_equal(hnp.arange(4).at[i].get(mode="fill"), [1, -(2**31), -(2**31)])
    np.testing.assert_array_equal(hnp.zeros((0, 2)).at[i].get(mode="fill", fill_value=1), np.ones((3, 2)))
    with pytest.raises(ArgumentError, match="mode"):
        x.at[i].set(7.0, mode="wrong")


def test_other_updates():
    x = hnp.asarray([1.0, 2.0, 4.0])
    i = hnp.asarray([0, 2, 0])
    np.testing.assert_array_equal(x.at[i].divide(2.0), [0.25, 2, 2])
    np.testing.assert_array_equal(x.at[1].power(3.0), [1, 8, 4])
    np.testing.assert_array_equal(x.at[i].subtract(1.0), [-1, 2, 3])
    np.testing.assert_array_equal(x.at[i].apply(lambda v: v + 10), [21, 2, 14])
    np.testing.assert_array_equal(x.at[1:].apply(hnp.square), [1, 4, 16])
    np.testing.assert_array_equal(x.at[hnp.asarray([2, 0])].apply(hnp.sqrt, unique_indices=True), [1, 2, 2])
    np.testing.assert_array_equal(hnp.arange(3).at[1].set(2.9), [0, 2, 2])


@pytest.mark.parametrize("shape,empty", [((3,), (0,)), ((2, 3), (0,)), ((2, 3), (2, 0)), ((2, 3), (0, 0))])
def test_an_empty_mask_names_nothing(shape, empty):
    """The Array API standard: an extent of a mask is that of the array, or 0."""
    found = hnp.ones(shape)[hnp.zeros(empty, bool)]
    assert found.shape == (0, *shape[len(empty) :])
    with pytest.raises(IndexOutOfBoundsError, match="boolean index with the sizes"):
        hnp.ones(shape)[hnp.zeros((shape[0] + 1,) * len(empty), bool)]


def test_one_false_boolean_names_nothing():
    x = hnp.arange(3.0)
    for false in (False, np.bool_(False), hnp.asarray(False)):
        assert x[false].shape == (0, 3)
        np.testing.assert_array_equal(x.at[false].set(9), x)
    np.testing.assert_array_equal(x.at[True].add(1), x + 1)
    np.testing.assert_array_equal(hl.jit(lambda m: x.at[m].set(9))(False), x)


def test_masks():
    x = sample((3, 4), "float32")
    mask = x > 0.2
    np.testing.assert_array_equal(hnp.asarray(x)[hnp.asarray(mask)], x[mask])
    np.testing.assert_array_equal(hnp.asarray(x)[mask[:, 0]], x[mask[:, 0]])
    np.testing.assert_array_equal(hnp.asarray(x)[..., mask[0]], x[..., mask[0]])
    np.testing.assert_array_equal(hnp.asarray(x)[1, mask[0]], x[1, mask[0]])
    np.testing.assert_array_equal(hnp.asarray(x)[True], x[True])
    expected = np.where(mask, 9, x)
    np.testing.assert_array_equal(hnp.asarray(x).at[mask].set(9.0), expected)
    np.testing.assert_array_equal(hl.jit(lambda x: x.at[x > 0.2].set(9.0))(x), expected)
    np.testing.assert_array_equal(hl.grad(lambda x: x[x > 0.2].sum())(hnp.asarray(x)), mask)
    with pytest.raises(NonConcreteBooleanIndexError, match="the number of selected elements") as caught:
        hl.vmap(lambda x: x[x > 0])(x)
    assert "size=" in caught.value.repair and caught.value.source.file == __file__
    with pytest.raises(UndecidedSizeError):
        hl.jit(lambda x: x.at[x > 0].set(hnp.arange(3.0)))(x)


@pytest.mark.parametrize("wrapped", [hl.jit, lambda f: f], ids=["jit", "eager"])
def test_updates_of_the_elements_of_a_mask_have_derivatives(wrapped):
    x, rows = sample((3, 4), "float32"), np.arange(4, dtype=np.float32)
    mask = x > 0.2

    def slope(update):
        return wrapped(hl.grad(lambda x: (update(x.at[x > 0.2]) * x).sum()))(hnp.asarray(x))

    np.testing.assert_allclose(slope(lambda part: part.set(0.5)), np.where(mask, 0.5, 2 * x), rtol=1e-6)
    np.testing.assert_allclose(slope(lambda part: part.add(0.5)), np.where(mask, 2 * x + 0.5, 2 * x), rtol=1e-6)
    np.testing.assert_allclose(slope(lambda part: part.multiply(3)), np.where(mask, 6 * x, 2 * x), rtol=1e-6)
    np.testing.assert_allclose(slope(lambda part: part.max(0.5)), np.where(mask & (x < 0.5), 0.5, 2 * x), rtol=1e-6)
    np.testing.assert_allclose(
        wrapped(hl.grad(lambda x: (x.at[x > 0.2].set(x[x > 0.2] ** 2) * x).sum()))(hnp.asarray(x)),
        np.where(mask, 3 * x**2, 2 * x), rtol=1e-6,
    )  # fmt: skip
    found = wrapped(hl.grad(lambda x: (x.at[x > 0.2].multiply(x[x > 0.2] ** 2) * x).sum()))(hnp.asarray(x))
    np.testing.assert_allclose(found, np.where(mask, 4 * x**3, 2 * x), rtol=1e-6)
    found = wrapped(hl.grad(lambda x: (x.at[x[:, 0] > 0.2].set(rows) * x).sum()))(hnp.asarray(x))
    np.testing.assert_allclose(found, np.where(mask[:, :1], rows, 2 * x), rtol=1e-6)


@pytest.mark.parametrize(
    "index, found",
    [
        ("a", "str"),
        (1.5, "float"),
        (hnp.asarray([1.0]), "f32[1]"),
        (np.array([1.0]), "float64"),
        ([1.5], "float64"),
        (slice(0.5, None), "slice"),
        (np.array([True, False, True]), "(3,)"),
        (hnp.ones((2, 4)) > 0, "(2, 4)"),
        ((hnp.asarray([0]), hnp.asarray([0]), hnp.asarray([0])), "rank 2|which has 2"),
        ((hnp.asarray([0, 1]), hnp.asarray([0, 1, 2])), "axis -1"),
    ],
)
def test_wrong_indexes(index, found):
    for use in (lambda x: x[index], lambda x: x.at[index].set(0.0)):
        with pytest.raises(HloomError) as caught:
            use(hnp.ones((2, 3)))
        error = caught.value
        assert any(f in error.found for f in found.split("|")) and error.asked and error.repair
        assert error.source.file == __file__


def test_values_that_do_not_fit():
    with pytest.raises(ShapeError, match="at\\[\\].set"):
        hnp.ones((2, 3)).at[0].set(hnp.ones(2))
    with pytest.raises(ShapeError):
        hnp.ones((2, 3)).at[hnp.asarray([0, 1])].add(hnp.ones((3, 3)))


def test_gradients_through_indexes():
    i = hnp.asarray([0, 2, 0])
    np.testing.assert_array_equal(
        hl.grad(lambda x: (x[i] * hnp.asarray([1.0, 2.0, 3.0])).sum())(hnp.ones(3)), [4, 0, 2]
    )
    by_x, by_v = hl.grad(lambda x, v: (x.at[i].set(v) * hnp.arange(1.0, 4.0)).sum(), (0, 1))(hnp.ones(3), hnp.ones(3))
    np.testing.assert_array_equal(by_x, [0, 2, 0])
    np.testing.assert_array_equal(by_v, [0, 3, 1])
    rows = hl.vmap(lambda x, k: x[k])(hnp.arange(6.0).reshape(2, 3), hnp.asarray([2, 0]))
    np.testing.assert_array_equal(rows, [2, 3])
    table = hl.vmap(lambda x, k: x.at[k].add(10.0))(hnp.zeros((2, 3)), hnp.asarray([2, 0]))
    np.testing.assert_array_equal(table, [[0, 0, 10], [10, 0, 0]])


def test_a_slice_with_a_traced_bound_says_what_to_use():
    with pytest.raises(TracerConversionError, match="lax.dynamic_slice"):
        staged(lambda x, n: x[:n], hnp.ones(4), hnp.asarray(2))


def test_iteration_and_unpacking():
    x = sample((3, 2), "float32")
    for row, expected in zip(hnp.asarray(x), x, strict=True):
        np.testing.assert_array_equal(np.asarray(row), expected)
    a, b, c = staged(lambda x: tuple(x), hnp.asarray(x))
    np.testing.assert_array_equal(c, x[2])
