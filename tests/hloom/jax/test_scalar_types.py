"""Scalars of bfloat16, numbers in files, and copies, as libraries of JAX use them."""

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom.jax import dtypes


def test_bfloat16_is_a_scalar_type():
    one = dtypes.bfloat16(1)
    assert isinstance(one, np.generic)
    assert hnp.zeros(2, dtypes.bfloat16).dtype == hnp.bfloat16 == dtypes.bfloat16
    assert hash(hnp.dtype(dtypes.bfloat16)) == hash(hnp.zeros(2, "bf16").dtype)
    assert hnp.result_type(one) == hnp.dtype("bf16")


def test_python_numbers_are_saved_as_they_are(tmp_path):
    hnp.save(tmp_path / "number.npy", 1e-8)
    assert np.load(tmp_path / "number.npy").item() == 1e-8


def test_a_copy_outlives_the_donation_of_what_was_copied():
    x = hnp.arange(4.0)
    for kept, given in ((x, hnp.copy(x)), (x.copy(), x)):
        hl.jit(lambda a: a + 1, donate_argnums=0)(given)
        np.testing.assert_array_equal(kept, [0, 1, 2, 3])
