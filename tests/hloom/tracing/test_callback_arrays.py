"""Callbacks get arrays of hloom's where the setting says so, as under `as_jax`."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
def test_callbacks_get_arrays(wrap):
    seen = []

    def double(x, scale=1.0):
        seen.append(type(x))
        return x * 2

    shape = hl.ShapeDtypeStruct((3,), "f32")
    x = np.arange(3, dtype=np.float32)
    calls = [
        wrap(lambda x: hl.pure_callback(double, shape, x, scale=2.0)),
        wrap(lambda x: hl.io_callback(double, shape, x)),
        wrap(lambda x: (hl.debug.callback(double, x), x * 2)[1]),
    ]
    with hl.config(callback_arrays=True):
        for call in calls:
            np.testing.assert_array_equal(call(x), 2 * x)
    assert len(seen) == 3 and all(issubclass(kind, hl.Array) for kind in seen)
    seen.clear()
    for call in calls:
        np.testing.assert_array_equal(call(x), 2 * x)
    assert len(seen) == 3 and all(issubclass(kind, np.ndarray) for kind in seen)


def test_callbacks_keep_arrays_and_compute_with_hloom():
    """What a callback keeps doesn't change when the program runs again."""
    kept = []

    def function(x):
        kept.append(x)
        return hl.jit(hl.numpy.sin)(x)

    f = hl.jit(lambda x: hl.pure_callback(function, hl.ShapeDtypeStruct((3,), "f32"), x + 1.0))
    with hl.config(callback_arrays=True):
        for start in (0.0, 5.0):
            x = np.arange(3, dtype=np.float32) + np.float32(start)
            np.testing.assert_allclose(f(x), np.sin(x + 1), rtol=1e-6)
    assert [float(k[0]) for k in kept] == [1.0, 6.0]


def test_as_jax_hands_over_arrays():
    with hl.as_jax():
        assert hl.config.callback_arrays
    assert not hl.config.callback_arrays
