"""Rows of one sweep go through the processor four at a time: texts, results, rows that are left over."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp


def compiled(function, *arrays):
    return hl.jit(function).lower(*arrays).compile()


@pytest.mark.parametrize("rows", [256, 257, 258, 259, 1000])
@pytest.mark.parametrize("columns", [1024, 1039, 1100])
def test_matrix_times_vector(rows, columns):
    rng = np.random.default_rng(rows)
    a, x = (rng.standard_normal(s).astype(np.float32) for s in ((rows, columns), (columns,)))
    b = rng.standard_normal(rows).astype(np.float32)
    function = lambda a, x, b: hnp.sum(a * x, axis=1) + b  # noqa: E731
    assert "_3 = sum_f32(" in compiled(function, a, x, b).source()
    np.testing.assert_allclose(hl.jit(function)(a, x, b), a @ x + b, rtol=1e-4, atol=1e-4)


def test_largest_elements_of_rows():
    a = np.random.default_rng(4).standard_normal((259, 1039)).astype(np.float32)
    a[5, 7], a[258, 1038] = np.nan, np.inf
    assert "_3 = accmax_s32(" in compiled(lambda a: hnp.max(a, axis=1), a).source()
    np.testing.assert_array_equal(hl.jit(lambda a: hnp.max(a, axis=1))(a), a.max(1))


def test_equal_rows_have_equal_results_wherever_they_are():
    row = np.random.default_rng(0).standard_normal(1101).astype(np.float32)
    sums = np.asarray(hl.jit(lambda a: hnp.sum(a, axis=1))(np.tile(row, (1003, 1))))
    assert np.all(sums == sums[0])


def test_an_output_may_lie_where_an_input_lies():
    """Rows that are computed twice, at the end of a chunk, read their inputs before anything is written."""
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((301, 1050)).astype(np.float32), rng.standard_normal(301).astype(np.float32)
    function = hl.jit(lambda a, b: b + hnp.sum(a, axis=1), donate_argnums=1)
    np.testing.assert_allclose(function(a, hl.device_put(b)), b + a.sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", [
    lambda a: hnp.sum(hnp.exp(a), axis=1),  # arithmetic takes the time
    lambda a: (hnp.sum(a, axis=1), hnp.max(a, axis=1)),  # two accumulators
    lambda a: a - hnp.max(a, axis=1, keepdims=True),  # two sweeps
])  # fmt: skip
def test_rows_go_one_by_one_where_several_gain_nothing(function):
    a = np.random.default_rng(2).standard_normal((300, 1040)).astype(np.float32)
    assert "_3" not in compiled(function, a).source().replace("_32", "")


def test_few_rows_go_one_by_one():
    a = np.ones((100, 5000), np.float32)
    assert "_3 = sum" not in compiled(lambda a: hnp.sum(a, axis=1), a).source()


def test_short_rows_are_one_stream():
    a = np.ones((1000, 256), np.float32)
    assert "_3" not in compiled(lambda a: hnp.sum(a, axis=1), a).source()


@pytest.mark.parametrize("rows", [2, 3, 4, 37, 1030])
@pytest.mark.parametrize("columns", [16, 300, 1024, 5000])
def test_columns_take_four_rows_at_a_time(rows, columns):
    a = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    function = lambda a: (hnp.sum(a * a, axis=0) + 1, hnp.max(a, axis=0))  # noqa: E731
    found = compiled(function, a).source()
    assert "i0_3 = i0 + 3" in found
    sums, largest = hl.jit(function)(a)
    np.testing.assert_allclose(sums, np.sum(a.astype(np.float64) ** 2, 0) + 1, rtol=1e-5)
    np.testing.assert_array_equal(largest, a.max(0))
    if rows < 30:  # one chunk: four rows are added two by two, then to the sum
        total = np.zeros(columns, np.float32)
        squares = list(a * a)
        for k in range(0, rows // 4 * 4, 4):
            one, two, three, four = squares[k : k + 4]
            total += (one + two) + (three + four)
        for row in squares[rows // 4 * 4 :]:
            total += row
        np.testing.assert_array_equal(sums, total + 1)


@pytest.mark.parametrize("rows", [3, 37, 1030])
def test_vector_times_matrix(rows):
    """What a row is multiplied by is read for four rows before their loop."""
    rng = np.random.default_rng(rows)
    x, a = rng.integers(-9, 9, rows).astype(np.float32), rng.integers(-9, 9, (rows, 1500)).astype(np.float32)
    source = compiled(lambda x, a: x @ a, x, a).source()
    assert "v0_3 = in0[i0_3]" in source
    assert "a3 = sum_f32(a3, sum_f32(sum_f32(v2, v2_1), sum_f32(v2_2, v2_3)))" in source
    np.testing.assert_array_equal(hl.jit(lambda x, a: x @ a)(x, a), x @ a)
