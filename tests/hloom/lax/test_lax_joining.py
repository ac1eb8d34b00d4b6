"""lax: joining, tiling, choosing among several, high halves of products, products in groups, and stretched operands."""

from __future__ import annotations

import numpy as np
import pytest
from frontend import close, sample

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ArgumentError, DTypeError, ShapeError

X = sample((2, 3), "float32")


def test_arrays_are_joined_and_taken_apart():
    np.testing.assert_array_equal(lax.stack([X, X + 1], 1), np.stack([X, X + 1], 1))
    for found, expected in zip(lax.unstack(X, 1), X.T, strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(lax.tile(X, (2, 3)), np.tile(X, (2, 3)))
    np.testing.assert_array_equal(lax.broadcast_like(X[0], X), np.broadcast_to(X[0], (2, 3)))
    with pytest.raises(ShapeError, match="a count for each dimension"):
        lax.tile(X, (2,))
    with pytest.raises(ShapeError, match="arrays of one shape"):
        lax.stack([X, X[0]])
    with pytest.raises(ArgumentError, match="at least one array"):
        lax.stack([])


def test_scalars_and_extents_of_one_are_stretched():
    np.testing.assert_array_equal(lax.add(X, hnp.float32(2)), X + 2)
    np.testing.assert_array_equal(lax.mul(X, X[:1]), X * X[:1])
    np.testing.assert_array_equal(hl.jit(lax.lt)(X[:, :1], X), X[:, :1] < X)
    with pytest.raises(ShapeError, match="arrays of one rank, or scalars"):
        lax.add(X, X[0])


def test_one_of_several_cases():
    which = np.array([[0, 1, 2], [2, 1, 0]], np.int32)
    np.testing.assert_array_equal(lax.select_n(which, X, 2 * X, 3 * X), np.choose(which, [X, 2 * X, 3 * X]))
    np.testing.assert_array_equal(lax.select_n(hnp.int32(2), X, 2 * X, 3 * X), 3 * X)
    np.testing.assert_array_equal(lax.select_n(X > 0, X, 2 * X), np.where(X > 0, 2 * X, X))
    with pytest.raises(ArgumentError, match="a pred chooses between two"):
        lax.select_n(X > 0, X, X, X)
    with pytest.raises(DTypeError, match="by pred or s32"):
        lax.select_n(X, X, X)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_high_halves_of_products(dtype):
    info, random = np.iinfo(dtype), np.random.default_rng(0)
    a, b = (random.integers(info.min, info.max, 200, dtype, endpoint=True) for _ in range(2))
    a[:2], b[:2] = info.min, (info.min, info.max)
    expected = [(int(x) * int(y)) >> info.bits for x, y in zip(a, b, strict=True)]
    assert lax.mulhi(a, b).tolist() == expected == hl.jit(lax.mulhi)(a, b).tolist()


def test_products_in_groups_of_rows():
    lhs, rhs = sample((7, 4), "float32"), sample((3, 4, 5), "float32", 1)
    expected = np.concatenate([lhs[:2] @ rhs[0], lhs[2:6] @ rhs[2], np.zeros((1, 5), np.float32)])
    close(lax.ragged_dot(lhs, rhs, np.array([2, 0, 4], np.int32)), expected)
    numbers = lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())
    found = lax.ragged_dot_general(lhs, sample((7, 5), "float32", 2), np.array([3, 4], np.int32), numbers)
    right = sample((7, 5), "float32", 2)
    close(found, np.stack([lhs[:3].T @ right[:3], lhs[3:].T @ right[3:]]))
    with pytest.raises(ShapeError, match="a matrix for each group"):
        lax.ragged_dot(lhs, rhs, np.array([2, 5], np.int32))
    with pytest.raises(DTypeError, match="counts rows"):
        lax.ragged_dot(lhs, rhs, np.ones(3, np.float32))


def test_products_with_a_scale_for_each_block():
    lhs, rhs = sample((2, 3, 8), "float32"), sample((2, 8, 5), "float32", 1)
    a, b = sample((2, 3, 2), "float32", 2), sample((2, 2, 5), "float32", 3)
    found = lax.scaled_dot(lhs, rhs, lhs_scale=a, rhs_scale=b, preferred_element_type="f32")
    close(found, (lhs * np.repeat(a, 4, 2)) @ (rhs * np.repeat(b, 4, 1)))
    assert lax.scaled_dot(lhs, rhs).dtype == hnp.bfloat16
    with pytest.raises(ShapeError, match="sizes divide"):
        lax.scaled_dot(lhs, rhs, lhs_scale=a[:, :2])


def test_what_a_function_may_cost_is_accepted():
    tolerance = lax.Tolerance(rtol=1e-3)
    np.testing.assert_array_equal(lax.exp(X, accuracy=tolerance), lax.exp(X, accuracy=lax.AccuracyMode.HIGHEST))
    close(lax.dot(X, X.T, precision=lax.DotAlgorithmPreset.BF16_BF16_F32), X @ X.T)
    assert lax.dtype(X) == np.float32 and lax.dtype(3) == np.int32 and lax.dtype(float) == np.float32
