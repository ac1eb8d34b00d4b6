"""Atomic updates in parts: the same results, and which loops are cut."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl

G = np.random.default_rng(11)
COUNT = 60_000
GROUPS = G.integers(0, 7, COUNT).astype(np.int32)


@hl.kernel(static_argnames="n")
def grouped(x, groups, n):
    total = np.ones(n, x.dtype)
    largest = np.full(n, 3, x.dtype)
    least = np.full(n, 3, x.dtype)
    for i in hl.parallel(len(x)):
        if groups[i] != 2:
            k = groups[i]
            hl.atomic_add(total, k, x[i])
            hl.atomic_max(largest, k, x[i])
            hl.atomic_min(least, k, x[i])
    return total, largest, least


@hl.kernel
def ranked(groups):
    count = np.zeros(8, np.int32)
    for i in hl.parallel(len(groups)):
        hl.atomic_add(count, groups[i], count[groups[i] + 1] + 1)
    return count


@hl.kernel
def by_columns(x):
    count = np.zeros(x.shape[1], np.int32)
    for i, j in hl.parallel(x.shape):
        if x[i, j] < 0:
            continue
        hl.atomic_add(count, j, 1)
    return count


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int32", "int64"])
def test_loops_in_parts_compute_the_same(dtype):
    x = G.integers(0 if dtype == "uint8" else -6, 9, COUNT).astype(dtype)
    x = x if dtype != "float16" else x * (np.arange(COUNT) < 1000)  # sums that are exact
    assert "table" in grouped.source(x, GROUPS, 7)
    for found, start, op in zip(grouped(x, GROUPS, 7), (1, 3, 3), (np.add, np.maximum, np.minimum), strict=True):
        wanted = np.full(7, start, dtype)
        op.at(wanted, GROUPS[GROUPS != 2], x[GROUPS != 2])
        np.testing.assert_array_equal(np.asarray(found), wanted)


def test_a_nan_and_empty_groups():
    x = np.where(GROUPS == 3, np.nan, -5).astype(np.float32)
    _, largest, least = grouped(x, GROUPS, 7)
    np.testing.assert_array_equal(largest, [3, 3, 3, np.nan, 3, 3, 3])
    np.testing.assert_array_equal(least, [-5, -5, 3, np.nan, -5, -5, -5])


def test_a_loop_that_reads_what_it_combines_is_not_cut():
    given = GROUPS[:40_000]
    assert "table" not in ranked.source(given)
    np.testing.assert_array_equal(ranked(given[:20]), ranked.python(given[:20]))


def test_iterations_that_end_early():
    x = G.normal(size=(900, 50)).astype(np.float32)
    assert "table" in by_columns.source(x)
    np.testing.assert_array_equal(by_columns(x), (x >= 0).sum(0))


def test_an_index_out_of_range_in_a_part():
    groups = GROUPS.copy()
    groups[50_000] = 9
    with pytest.raises(hl.errors.ShapeError, match="is 9, the size 7"):
        hl.block_until_ready(grouped(np.ones(COUNT, np.float32), groups, 7))


def test_derivatives_of_a_loop_in_parts():
    x = G.normal(size=COUNT)
    found = hl.grad(lambda v: (grouped(v, GROUPS, 7)[0] * np.arange(7.0)).sum())(x)
    np.testing.assert_allclose(found, np.where(GROUPS == 2, 0, GROUPS))
