"""Open issues of XLA (github.com/openxla/xla) as tests that hloom does right."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom import lax


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64, np.int8])
def test_a_shift_by_an_update_and_a_reshape(dtype):
    """openxla/xla#49176: an update of an array by a slice of it, then a reshape, is computed in place although it
    reads what it has already written: every row becomes the first. Seen in jaxlib 0.10.2: 96 of 128 elements."""
    x = np.arange(128).reshape(8, 16).astype(dtype)

    def down(x):
        base = x + x.dtype.type(1)
        return base.at[1:].set(base[:-1]).reshape((1, *base.shape))

    def up(x):
        base = x + x.dtype.type(1)
        return lax.dynamic_update_slice(base, base[3:], (0, 0)).reshape(-1)

    base = x + dtype(1)
    want = base.copy()
    want[1:] = base[:-1]
    with hl.config(enable_x64=True):
        np.testing.assert_array_equal(hl.jit(down)(x)[0], want)
        np.testing.assert_array_equal(hl.jit(up)(x), np.concatenate([base[3:], base[5:]]).ravel())


@pytest.mark.parametrize("n", [1, 40])
def test_products_that_cancel(n):
    """openxla/xla#41579: a·x + b·x with b = -a is 5e21 under jit, for one product is contracted with the sum and the
    other is rounded. In hloom both are rounded, and the sum is 0. Seen in jaxlib 0.10.2."""
    a, x = np.full(n, 1e20, np.float32), np.full(n, 1e10, np.float32)
    assert (np.asarray(hl.jit(lambda a, b, x: a * x + b * x)(a, -a, x)) == 0).all()
