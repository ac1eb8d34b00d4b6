"""nn.scaled_matmul and scaled_dot_general: numbers of 4 and 8 bits with a scale for each block."""

from __future__ import annotations

import numpy as np
import pytest
from frontend import close, sample

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, ShapeError

LEFT, RIGHT = sample((2, 4, 70), "float32"), sample((2, 5, 70), "float32", 1)
ROWS = (((2,), (2,)), ((0,), (0,)))


def test_scales_multiply_their_blocks():
    a, b = np.arange(12).reshape(1, 2, 6), np.arange(6, 24).reshape(1, 3, 6)
    left, right = sample((1, 2, 2), "float32", 2), sample((1, 3, 3), "float32", 3)
    expected = (a * np.repeat(left, 3, 2)) @ (b * np.repeat(right, 2, 2)).swapaxes(1, 2)
    found = hl.nn.scaled_matmul(hnp.asarray(a), hnp.asarray(b), left, right)
    assert found.dtype == np.float32
    close(found, expected, scale=100)  # sums of numbers in the hundreds
    with pytest.raises(ShapeError, match=r"\(B, M, K\) and \(B, N, K\)"):
        hl.nn.scaled_matmul(a[0], b, left, right)


# The formats' spacing is 2^-4 and 2^-2 of a number; errors of 70 products add up to about as much.
@pytest.mark.parametrize("mode,error", [("mxfp8", 0.1), ("nvfp4", 0.3)])
def test_products_of_rounded_numbers(mode, error):
    configs = [hl.nn.get_scaled_dot_general_config(mode)] * 3
    exact = np.einsum("bmk,bnk->bmn", LEFT, RIGHT)

    def product(a, b):
        return hl.nn.scaled_dot_general(a, b, ROWS, configs=configs)

    found = np.asarray(product(LEFT, RIGHT))
    assert 0 < np.abs(found - exact).max() < error * np.abs(exact).max()
    np.testing.assert_array_equal(hl.jit(product)(LEFT, RIGHT), found)
    # Numbers that the format has are multiplied exactly.
    whole = np.where(LEFT > 0, 6, -3).astype(np.float32)
    np.testing.assert_array_equal(product(whole, whole), np.einsum("bmk,bnk->bmn", whole, whole))
    gradient = hl.grad(lambda a: hnp.sum(product(a, RIGHT)))(LEFT)
    slope = np.broadcast_to(RIGHT.sum(1, keepdims=True), LEFT.shape)
    assert np.abs(np.asarray(gradient) - slope).max() < 2 * error * np.abs(slope).max()


def test_dimensions_are_those_of_dot_general():
    a, b = sample((3, 2, 32, 4), "float32"), sample((4, 32, 5), "float32", 1)
    numbers = (((2,), (1,)), ((3,), (0,)))
    configs = [hl.nn.get_scaled_dot_general_config("mxfp8")] * 3
    expected = hl.lax.dot_general(a, b, numbers)
    found = hl.nn.scaled_dot_general(a, b, numbers, configs=configs)
    assert found.shape == expected.shape == (4, 3, 2, 5)
    assert np.abs(np.asarray(found) - np.asarray(expected)).max() < 0.06 * np.abs(np.asarray(expected)).max()
    close(hl.nn.scaled_dot_general(a, b, numbers), expected)


def test_wrong_formats():
    with pytest.raises(ArgumentError, match="mxfp8, nvfp4"):
        hl.nn.get_scaled_dot_general_config("fp3")
    with pytest.raises(ArgumentError, match="a scale for each block only"):
        hl.nn.get_scaled_dot_general_config("mxfp8", hnp.ones(1))
    with pytest.raises(ArgumentError, match="three configurations"):
        hl.nn.scaled_dot_general(LEFT, RIGHT, ROWS, configs=[hl.nn.get_scaled_dot_general_config("nvfp4")])


def test_random_numbers_of_8_bits():
    """Those of JAX for the same key."""
    key = hl.random.PRNGKey(1)
    uniform = hl.random.uniform(key, (5,), dtype=hnp.float8_e4m3fn)
    assert uniform.astype("f32").tolist() == [0.625, 0.125, 0.375, 0.875, 0.625]
    normal = hl.random.normal(key, (5,), dtype=hnp.float8_e4m3fn)
    assert normal.astype("f32").tolist() == [0.375, -0.9375, -0.234375, 1.25, 0.375]
