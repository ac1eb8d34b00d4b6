"""x[index] against NumPy: every basic index at random, traced scalars, errors."""

from __future__ import annotations

import numpy as np
import pytest
from frontend import one, sample, staged
from hypothesis import given, settings
from hypothesis import strategies as st

import hloom.numpy as hnp
from hloom.errors import IndexOutOfBoundsError, TracerConversionError, UnsupportedIndexError


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


@settings(max_examples=400, deadline=None)
@given(indexed())
def test_basic_indexing_is_that_of_numpy(case):
    shape, index = case
    x = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    np.testing.assert_array_equal(one(lambda x: x[index], x), x[index])


@settings(max_examples=100, deadline=None)
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


@pytest.mark.parametrize("index", [[0, 1], np.array([0, 1]), True, "a", 1.5, np.array([True, False]), (0, [1])])
def test_other_indexes_are_not_supported_yet(index):
    with pytest.raises(UnsupportedIndexError, match="come[s]? with gather"):
        hnp.ones((2, 3))[index]
    with pytest.raises(UnsupportedIndexError):
        hnp.ones((2, 3))[hnp.ones((2, 3)) > 0]


def test_a_slice_with_a_traced_bound_says_what_to_use():
    with pytest.raises(TracerConversionError, match="lax.dynamic_slice"):
        staged(lambda x, n: x[:n], hnp.ones(4), hnp.asarray(2))


def test_iteration_and_unpacking():
    x = sample((3, 2), "float32")
    for row, expected in zip(hnp.asarray(x), x, strict=True):
        np.testing.assert_array_equal(np.asarray(row), expected)
    a, b, c = staged(lambda x: tuple(x), hnp.asarray(x))
    np.testing.assert_array_equal(c, x[2])
