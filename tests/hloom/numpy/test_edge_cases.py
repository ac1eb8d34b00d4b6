"""Arguments that NumPy and JAX accept: numbers with an axis, complex activations, windows without places."""

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.jax.experimental import checkify


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_repeat_of_a_number(axis):
    np.testing.assert_array_equal(hnp.repeat(3.0, 2, axis=axis), np.repeat(3.0, 2, axis=axis))
    np.testing.assert_array_equal(hl.jit(lambda x: hnp.repeat(x, 2, axis=axis))(3.0), [3, 3])


C = np.array([1 + 2j, -1 - 1j, 0j, -3 + 0j, 8 - 1j])
NEGATIVE = np.array([False, True, False, True, False])
ACTIVATIONS = {
    "relu": np.where(NEGATIVE, 0, C),
    "relu6": np.array([1 + 2j, 0, 0, 0, 6]),
    "elu": np.where(NEGATIVE, np.expm1(np.where(NEGATIVE, C, 0)), C),
    "celu": np.where(NEGATIVE, np.expm1(np.where(NEGATIVE, C, 0)), C),
    "leaky_relu": np.where(NEGATIVE, 0.01 * C, C),
    "hard_tanh": np.array([1, -1, 0, -1, 1]),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_complex_numbers(name):
    """By real parts, then imaginary ones; the expected values are JAX's."""
    function = getattr(hl.nn, name)
    for result in (function(hnp.asarray(C)), hl.jit(function)(C)):
        np.testing.assert_allclose(result, ACTIVATIONS[name], rtol=1e-14)


@pytest.mark.parametrize("combine, start", [(lax.add, 0.0), (lax.max, -np.inf), (lax.mul, 1.0)])
@pytest.mark.parametrize(
    "dims, window, strides", [((2,), (3,), (1,)), ((2, 5), (3, 3), (2, 2)), ((0, 4), (1, 2), (1, 3))]
)
def test_gradients_of_windows_without_places(combine, start, dims, window, strides):
    def total(x):
        return lax.reduce_window(x, start, combine, window, strides, "VALID").sum()

    for gradient in (hl.grad(total), hl.jit(hl.grad(total))):
        np.testing.assert_array_equal(gradient(hnp.ones(dims)), np.zeros(dims))


def test_debug_check_without_checkify_does_nothing():
    checkify.debug_check(hnp.asarray(False), "never said")
    assert hl.jit(lambda x: (checkify.debug_check(x > 0, "never said"), x)[1])(-1.0) == -1
    error, _ = checkify.checkify(lambda x: checkify.debug_check(x > 0, "negative"))(-1.0)
    assert "negative" in error.get()
