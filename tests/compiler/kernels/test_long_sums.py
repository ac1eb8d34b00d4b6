"""Long sums: the error does not grow with the length (docs/reference/numerics.md)."""

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp


@pytest.mark.parametrize("dims, axis", [((3 * 10**7,), None), ((2, 10**7), 1), ((2, 10**7), None)])
def test_ones_beyond_the_integers_of_float32(dims, axis):
    result = hl.jit(lambda x: (x * 3).sum(axis))(np.ones(dims, np.float32))
    np.testing.assert_array_equal(result, np.ones(dims, np.float32).sum(axis, dtype=np.float64) * 3)


def test_random_numbers_have_an_error_of_half_an_ulp_or_so():
    x = np.random.default_rng(0).random(10**7).astype(np.float32)
    for y in (x, x - np.float32(0.25)):
        exact = y.sum(dtype=np.float64)
        assert abs(float(hl.jit(lambda v: v.sum())(y)) - exact) <= 2.0**-23 * exact


def test_beside_another_reduction_and_an_initial_value():
    x = np.random.default_rng(1).random((4, 10**6)).astype(np.float32)
    total, largest = hl.jit(lambda v: (v.sum(1, initial=5.0), v.max(1)))(x)
    np.testing.assert_allclose(total, x.sum(1, dtype=np.float64) + 5, rtol=2e-7)
    np.testing.assert_array_equal(largest, x.max(1))
    assert hl.jit(lambda v: v.sum())(np.full(10**7, np.inf, np.float32)) == np.inf


@pytest.mark.parametrize("size", [150, 354])
def test_costly_elements_whose_dimensions_do_not_merge(size):
    """The first attempt to write stage 1 merges the dimensions, the last one does not: that one decides the cut."""

    def costly(x, y):
        for _ in range(6):
            x = hnp.exp(hnp.sin(x) * 0.1) + hnp.log1p(x * x)
        return hnp.sum(x * y[:, None] + hnp.tril(x) * y)

    x, y = np.random.default_rng(0).random((size, size)), np.random.default_rng(1).random(size)
    np.testing.assert_allclose(hl.jit(costly)(x, y), costly(hnp.array(x), hnp.array(y)), rtol=1e-12)
