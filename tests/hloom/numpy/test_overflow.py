"""Sums and products that overflow or vanish on the way end where NumPy and compiled code end, eagerly too."""

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax

ROWS = {
    "overflow": [1e30, 1e30, 0, 5],
    "underflow": [1e-30, 1e-30, 1e30, 1e30],
    "sum_overflow": [3e38, 3e38, -3e38, 1],
    "infinities": [3e38, 3e38, -3e38, -3e38],
    "plain": [1.5, 2.0, -3.0, 0.1],
    "nan": [1.0, np.nan, 2.0, 3.0],
}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "sum", "prod", "mean"])
def test_as_numpy(name, row):
    x = np.array(ROWS[row], np.float32)
    with np.errstate(all="ignore"):
        # The sum of a mean of f32 is f64: it does not overflow.
        expected = np.mean(x, dtype=np.float64).astype(np.float32) if name == "mean" else getattr(np, name)(x)
    function = getattr(hnp, name)
    np.testing.assert_allclose(function(hnp.asarray(x)), expected, rtol=1e-6)
    if row in ("plain", "nan") or name.startswith("cum"):  # a compiled sum or product has an order of its own
        np.testing.assert_allclose(hl.jit(function)(x), expected, rtol=1e-6)


def test_running_from_the_end_along_an_axis_and_complex():
    x = np.array(ROWS["overflow"], np.float32)
    both = hnp.asarray(np.stack([x[::-1], x]))
    np.testing.assert_array_equal(lax.cumprod(both, 1, reverse=True)[0], np.array([np.nan, np.nan, np.inf, 1e30], "f"))
    with np.errstate(all="ignore"):
        expected = np.cumsum(np.array(ROWS["sum_overflow"], np.complex64))
    np.testing.assert_array_equal(hnp.cumsum(hnp.asarray(ROWS["sum_overflow"], "complex64")), expected)
