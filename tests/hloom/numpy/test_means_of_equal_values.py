"""Elements that are all equal have that mean, no variance, and are standardized to zero."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp

VALUES = (7.5e10, 0.1, -3.3e-20, 1 / 3, 16777217.0, 1.9999999)
COUNTS = (3, 7, 10, 49, 1000, 4097)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64"])
@pytest.mark.parametrize("jitted", [False, True])
def test_equal_values(dtype, jitted):
    value = VALUES if dtype in ("float32", "float64", "complex64") else (0.1, 1 / 3, 1.99, -3.3, 7.0, 100.0)
    for count in COUNTS:
        x = hnp.asarray(np.array(value)[:, None] * np.ones(count), dtype)
        if dtype == "complex64":
            x = x * (1 + 0.3j)

        def function(x):
            return hnp.mean(x, 1), hnp.var(x, 1), hnp.std(x.T, 0), hnp.var(x.reshape(2, 3, -1), (2,))

        mean, *spread = (hl.jit(function) if jitted else function)(x)
        if dtype != "float64":  # in f64 the mean may be an ulp away; what is measured from it is not
            np.testing.assert_array_equal(np.asarray(mean), np.asarray(x)[:, 0])
        for found in spread:
            np.testing.assert_array_equal(np.asarray(found, np.float64), 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_layers_standardize_equal_values_to_zero(dtype):
    x = np.array(VALUES, dtype)[:, None] * np.ones(300, dtype)
    layers = [hl.nn.LayerNorm(300, dtype=dtype), lambda x: hl.nn.standardize(x), hl.nn.GroupNorm(300, 3, dtype=dtype)]
    for layer in layers:
        np.testing.assert_array_equal(np.asarray(hl.jit(layer)(x)), 0)


@pytest.mark.parametrize("jitted", [False, True])
def test_infinities_and_nan_stay(jitted):
    x = np.array([[1.0, np.inf, 2.0], [np.nan, 1.0, 2.0], [1.0, -np.inf, np.inf], [np.inf, np.inf, np.inf]])
    for dtype in (np.float32, np.float64):
        for name in ("mean", "var"):
            function = hl.jit(getattr(hnp, name), static_argnums=1) if jitted else getattr(hnp, name)
            with np.errstate(all="ignore"):
                expected = getattr(np, name)(x.astype(dtype), 1)
            np.testing.assert_array_equal(np.asarray(function(x.astype(dtype), 1)), expected)


def test_derivatives_of_means_and_variances():
    x = np.random.default_rng(0).normal(size=(4, 9))
    np.testing.assert_allclose(hl.grad(lambda x: hnp.mean(x))(x), np.full(x.shape, 1 / 36), rtol=1e-12)
    np.testing.assert_allclose(hl.grad(lambda x: hnp.var(x))(x), 2 * (x - x.mean()) / 36, rtol=1e-9, atol=1e-12)
    single = x.astype(np.float32)
    np.testing.assert_allclose(hl.grad(lambda x: hnp.var(x))(single), 2 * (x - x.mean()) / 36, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_centers_of_masked_elements_and_of_integers(dtype):
    x = hnp.asarray(np.array(VALUES[:1] if dtype == "bfloat16" else VALUES)[:, None] * np.ones(7), dtype)
    mask = np.array([True, False, True, True, False, True, True])
    for found in (hl.jit(lambda x: hnp.var(x, 1, where=mask))(x), hnp.var(x, 1, where=mask)):
        np.testing.assert_array_equal(np.asarray(found, np.float64), 0)
    rows = np.array([[1, 2, 6], [4, 4, 4]])
    expected = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(hl.nn.LayerNorm(3)(hnp.asarray(rows)), expected, rtol=1e-5)
