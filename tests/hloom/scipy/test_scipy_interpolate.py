"""scipy.interpolate, scipy.cluster.vq and scipy.special.wofz against SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from frontend import close, one, sample

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import AttributeValueError, ShapeError

scipy = pytest.importorskip("scipy")
from scipy import cluster, interpolate, special  # noqa: E402

GRID = (np.array([1.0, 2, 4]), np.array([4.0, 5, 6, 9]))
POINTS = np.random.default_rng(0).uniform((0.5, 3.5), (4.5, 9.5), (60, 2))


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 2)])
@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("fill", [math.nan, 7.0, None])
def test_values_between_grid_points(method, fill, shape):
    values = sample(shape, "float64")
    theirs = interpolate.RegularGridInterpolator(GRID, values, method, False, fill)(POINTS)
    ours = hl.scipy.interpolate.RegularGridInterpolator(GRID, values, method, fill_value=fill)
    np.testing.assert_allclose(one(ours, POINTS), theirs, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(ours((POINTS[:, 0], POINTS[:, 1])), ours(POINTS))


def test_slopes_between_grid_points():
    f = hl.scipy.interpolate.RegularGridInterpolator((np.arange(3.0),), np.array([0.0, 2.0, 8.0]))
    assert float(hl.grad(lambda x: f(x))(hnp.asarray([1.5]))[0]) == 6


def test_wrong_grids():
    f = hl.scipy.interpolate.RegularGridInterpolator
    with pytest.raises(ShapeError, match="a vector for each dimension"):
        f(GRID, np.zeros((4, 3)))
    with pytest.raises(AttributeValueError, match="linear, nearest"):
        f(GRID, np.zeros((3, 4)), "cubic")
    with pytest.raises(AttributeValueError, match="outside of the grid"):
        f(GRID, np.zeros((3, 4)), bounds_error=True)
    with pytest.raises(ShapeError, match="coordinates of 2 dimensions"):
        f(GRID, np.zeros((3, 4)))(np.zeros((5, 3)))


def test_the_nearest_of_a_code_book():
    x, codes = sample((9, 3), "float64"), sample((4, 3), "float64", 1)
    for a, b in ((x, codes), (x[:, 0], codes[:, 0])):
        indices, distances = cluster.vq.vq(a, b)
        found = hl.scipy.cluster.vq.vq(a, b)
        np.testing.assert_array_equal(found[0], indices)
        close(found[1], distances)
    with pytest.raises(ShapeError, match="as many numbers"):
        hl.scipy.cluster.vq.vq(x, codes[:, :2])


@pytest.mark.parametrize("dtype,tolerance", [("complex64", 4e-6), ("complex128", 4e-14)])
def test_faddeeva_function(dtype, tolerance):
    random = np.random.default_rng(0)
    z = (4 * random.normal(size=500) + 2j * random.normal(size=500)).astype(dtype)
    expected = special.wofz(z.astype(complex))
    assert np.max(np.abs(one(hl.scipy.special.wofz, z) - expected) / np.abs(expected)) < tolerance
    real = np.linspace(-3, 3, 7)
    np.testing.assert_allclose(hl.scipy.special.wofz(real), special.wofz(real), rtol=1e-12, atol=1e-14)
    # w(iy) = erfcx(y)
    close(hnp.real(hl.scipy.special.wofz(1j * np.array([0.0, 1.0, 30.0]))), special.erfcx([0.0, 1.0, 30.0]))
