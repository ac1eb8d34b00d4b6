"""Exponentials, logarithms and cube roots in double precision: exact at powers, within one unit elsewhere."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp

SPECIAL = np.array([0.0, -0.0, -1.0, np.inf, -np.inf, np.nan])
POSITIVE = (5e-324, 1e-310, 2.0**-1022, np.nextafter(1, 0), 1.0, np.nextafter(1, 2), 1.7e308)


@pytest.fixture(autouse=True)
def _doubles():
    with hl.enable_x64(True):
        yield


def positive(rng):
    near = rng.uniform(0.5, 2, 4000), 1 + rng.uniform(-1e-3, 1e-3, 2000), 1 + rng.uniform(-1e-12, 1e-12, 500)
    return np.concatenate([*near, np.exp(rng.uniform(-740, 709, 4000)), POSITIVE])


def spread(scale):
    return lambda rng: np.concatenate([rng.uniform(-scale, scale, 5000), rng.normal(size=5000) * 1e-3])


CASES = {
    "log2": (positive, lambda x: mpmath.log(x) / mpmath.log(2)),
    "log10": (positive, mpmath.log10),
    "log1p": (lambda rng: positive(rng)[:9000] - 0.999, mpmath.log1p),
    "expm1": (spread(700), mpmath.expm1),
    "exp2": (spread(1000), lambda x: mpmath.power(2, x)),
    "cbrt": (positive, mpmath.cbrt),
}


@pytest.mark.parametrize("name", CASES)
def test_within_one_unit(name):
    arguments, exact = CASES[name]
    x = arguments(np.random.default_rng(11))
    found = np.asarray(hl.jit(getattr(hnp, name))(x))
    with mpmath.workprec(200):
        for a, y in zip(x.tolist(), found.tolist(), strict=True):
            wanted = exact(mpmath.mpf(a))
            assert abs(mpmath.mpf(y) - wanted) <= mpmath.mpf(math.ulp(float(wanted))), (a, y)


def test_powers_are_exact():
    twos = np.arange(-1074, 1024)
    np.testing.assert_array_equal(np.asarray(hl.jit(hnp.log2)(np.ldexp(1.0, twos))), twos)
    np.testing.assert_array_equal(np.asarray(hl.jit(hnp.exp2)(twos.astype(np.float64))), np.ldexp(1.0, twos))
    tens = np.array([float(f"1e{n}") for n in range(-307, 309)])
    np.testing.assert_array_equal(np.asarray(hl.jit(hnp.log10)(tens)), np.arange(-307, 309))
    cubes = np.arange(-2000.0, 2001)
    np.testing.assert_array_equal(np.asarray(hl.jit(hnp.cbrt)(cubes**3)), cubes)
    assert hnp.log10(0.1) == -1 and hl.jit(hnp.log10)(0.1) == -1


@pytest.mark.parametrize("name", ["log2", "log10"])
def test_special_values_and_derivatives(name):
    function = getattr(hnp, name)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.asarray(hl.jit(function)(SPECIAL)), getattr(np, name)(SPECIAL))
    base = int(name[3:])
    np.testing.assert_allclose(hl.grad(function)(3.0), 1 / (3 * math.log(base)), rtol=1e-15)
    np.testing.assert_allclose(hl.grad(hl.grad(function))(3.0), -1 / (9 * math.log(base)), rtol=1e-15)
    rows = np.random.default_rng(1).uniform(0.1, 9, (3, 5))
    np.testing.assert_array_equal(np.asarray(hl.vmap(function)(rows)), np.asarray(function(rows)))
