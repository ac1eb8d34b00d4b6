"""Edge values, where results were not NumPy's: infinite parts, the smallest integers, too few observations."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp

INF, NAN = np.inf, np.nan
PARTS = [complex(a, b) for a in (INF, -INF, NAN, -2.5, 0.0, 3.0) for b in (INF, -INF, NAN, -2.5, 0.0, 3.0)]


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_sign_of_complex_numbers_with_infinite_parts(wrap, dtype):
    x = np.array(PARTS, dtype)
    with np.errstate(invalid="ignore"):
        want = np.sign(x)
    np.testing.assert_allclose(wrap(hnp.sign)(x), want, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_exp2_of_complex_numbers(wrap, dtype):
    """Real numbers stay real, also where they are infinite or NaN."""
    real = np.array([INF, -INF, NAN, -2.5, 0.0, 3.0, 10.0])
    got = np.asarray(wrap(hnp.exp2)(real.astype(dtype)))
    np.testing.assert_allclose(got.real, np.exp2(real), rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(got.imag, 0)
    x = np.array([complex(a, b) for a in (-2.5, 0.0, 3.0) for b in (-2.5, 0.5, 3.0)], dtype)
    np.testing.assert_allclose(wrap(hnp.exp2)(x), np.exp(x * np.log(2)), rtol=8 * np.finfo(dtype).eps)
    assert np.isposinf(np.asarray(wrap(hnp.exp2)(np.array([complex(INF, INF), complex(INF, NAN)], dtype))).real).all()


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("distance", [(), (2.0,)])
def test_gradient_beside_an_infinite_element(wrap, distance):
    x = np.array([0.5, INF, 2.5, -1.0, 3.0, INF, INF])
    with np.errstate(invalid="ignore"):
        want = np.gradient(x, *distance)
    np.testing.assert_array_equal(wrap(lambda x: hnp.gradient(x, *distance))(x), want)


def test_trapezoid_with_points_of_more_dimensions():
    """The axis counts in both."""
    y, x = np.array([5.0, 5, 1]), np.array([[[0.0, 1, 3]], [[2, 3, 7]]])
    np.testing.assert_allclose(hnp.trapezoid(y, x), np.trapezoid(y, x))


@pytest.mark.parametrize("options", [{}, {"ddof": 3}, {"ddof": 3, "fweights": [1]}, {"ddof": 3, "aweights": [0.5]}])
def test_cov_of_too_few_observations(options):
    """NaN or infinite, as in NumPy, and not divided by a negative number."""
    for x in [np.zeros(0, int), np.ones((2, 1)), np.zeros((2, 0))]:
        if x.shape[-1] or not {"fweights", "aweights"} & set(options):
            with np.errstate(all="ignore"), pytest.warns(RuntimeWarning):
                want = np.cov(x, **options)
            np.testing.assert_array_equal(hnp.cov(x, **options), want)


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("name", ["gcd", "lcm"])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint64"])
def test_divisors_of_the_smallest_integers(wrap, name, dtype):
    info = np.iinfo(dtype)
    values = np.array([info.min, info.min + 1, 0, 1, 2, 5, 6, 96, info.max], dtype)
    x, y = np.meshgrid(values, values)
    np.testing.assert_array_equal(wrap(getattr(hnp, name))(x, y), getattr(np, name)(x, y))


@pytest.mark.parametrize("decimals", [np.int8(-128), np.int64(-1), -400])
def test_decimals_of_a_narrow_integer(decimals):
    x = np.array([3, 45, -55])
    np.testing.assert_array_equal(hnp.round(x, decimals), np.round(x, int(decimals)) if decimals > -30 else 0)


def test_cov_of_operands_of_two_dtypes():
    """Both have their common dtype before anything is computed: integers beside float64 lose no digits."""
    x, y = np.array([0.5, 2.5, -1.0]), np.array([[4294967294, 4294967294, 0], [4294967294, 1, 0]], np.uint32)
    np.testing.assert_allclose(hnp.cov(x, y), np.cov(x, y), rtol=1e-14)
    np.testing.assert_allclose(hnp.corrcoef(x, y), np.corrcoef(x, y), rtol=1e-14)


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
def test_equal_numbers_are_close_whatever_the_tolerance(wrap):
    x = np.array([1.0, INF, NAN, -3.0])
    np.testing.assert_array_equal(wrap(lambda x: hnp.isclose(x, x, rtol=-1.0))(x), np.isclose(x, x, rtol=-1.0))


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_setxor1d_of_nan(dtype):
    """NaN equal nothing: one of each operand, with a known and with a given size."""
    x, y = np.array([-INF, NAN, 0.5, NAN, 2], dtype), np.array([1, 2, NAN, NAN, 1], dtype)
    want = np.setxor1d(x, y)
    np.testing.assert_array_equal(hnp.setxor1d(x, y), want)
    np.testing.assert_array_equal(hl.jit(lambda x, y: hnp.setxor1d(x, y, size=5))(x, y), want)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_spacing_beside_zero(dtype):
    """Positive for both zeros."""
    x = np.array([0.0, -0.0, 1.0, -1.0, -3.5], dtype)
    got = np.asarray(hnp.spacing(x))
    np.testing.assert_array_equal(got, np.spacing(x))
    assert not np.signbit(got[:2]).any()


def test_interp_of_operands_of_several_dtypes():
    """All have their common dtype before anything is computed."""
    x, xp, fp = np.array([5], np.uint32), np.array([1], np.int64), np.array([2147483646], np.int32)
    np.testing.assert_array_equal(hnp.interp(x, xp, fp), np.interp(x, xp, fp))
    x, xp, fp = np.array([1.5]), np.array([1.0, 2.0]), np.array([2147483646, 2147483644], np.int32)
    np.testing.assert_array_equal(hnp.interp(x, xp, fp), [2147483645.0])


def _log1p_at_high_precision(z: complex) -> complex:
    """log(1 + z), its real part from exact rationals and 60 digits."""
    x, y = Fraction(z.real), Fraction(z.imag)
    square = (1 + x) ** 2 + y**2
    with localcontext(prec=60):
        real = (Decimal(square.numerator) / Decimal(square.denominator)).ln() / 2
    return complex(float(real), math.atan2(z.imag, 1 + z.real))


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_log1p_of_small_complex_numbers(wrap, dtype):
    """NumPy's rounds 1 + z first: 0 for the real part of what is small, noise beside the circle |1 + z| = 1."""
    circle = [complex(math.cos(t) - 1, math.sin(t)) for t in (0.1, -1.0, 2.0, 3.1)]
    small = [1e-30, -1e-20 + 1e-12j, 1e-9j, 3e-5 - 1e-9j, -0.5 + 0.1j, 0.3 + 2j, 1e9 - 3j, -1e16 + 1j, *circle]
    pole = [-1 + 1e-9j, -1 + 1e-30j, -1 + 1e-7 - 1e-15j, -0.7 + 0.1j, -1.2 - 0.6j, -1.9 + 0.1j]
    x = np.array(small + pole, dtype)
    want = np.array([_log1p_at_high_precision(complex(z)) for z in x])
    got = np.asarray(wrap(hnp.log1p)(x))
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(got.real, want.real, rtol=4 * eps, atol=np.finfo(dtype).tiny)
    np.testing.assert_allclose(got.imag, want.imag, rtol=4 * eps)


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_log1p_of_complex_numbers_with_infinite_parts(wrap, dtype):
    x = np.array([*PARTS, -1, complex(-1, -0.0), complex(0, -0.0)], dtype)
    with np.errstate(all="ignore"):
        want = np.log1p(x)
    np.testing.assert_allclose(wrap(hnp.log1p)(x), want, rtol=4 * np.finfo(dtype).eps)


def test_a_polynomial_without_coefficients_is_zero():
    """As in NumPy and JAX, so that the product with it is too."""
    for a, b in [([], [1.0, 2.0, NAN]), ([1.0, 2.0], []), ([], [])]:
        a, b = np.array(a), np.array(b)
        np.testing.assert_array_equal(hnp.polymul(a, b), np.polymul(a, b) if a.size + b.size else [0.0])
        np.testing.assert_array_equal(hl.jit(hnp.polymul)(a, b), hnp.polymul(a, b))


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("function", [hnp.isclose, hnp.allclose])
def test_tolerances_are_real(wrap, function):
    """The imaginary part of a complex one was dropped."""
    for tolerances in [(np.array(1j), 0.0), (0.0, 1j)]:
        with pytest.raises(TypeError, match="real tolerances"):
            wrap(function)(np.ones(3), np.ones(3), *tolerances)


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("function", [hnp.mean, hnp.nanmean, hnp.average])
def test_mean_of_integers_that_cancel(wrap, function):
    """They are summed exactly; as f32 they were rounded first: 1 instead of 2/3."""
    for x in [np.array([3, -(2**31), 2**31 - 1], np.int32), np.array([2**32 - 1] * 5 + [3], np.uint32)]:
        for keepdims in (False, True):
            got = wrap(lambda x, keepdims=keepdims: function(x, axis=0, keepdims=keepdims))(x)
            assert got.dtype == np.float32 and got.shape == (1,) * keepdims
            np.testing.assert_allclose(np.asarray(got).ravel(), x.astype(np.float64).mean(), rtol=1e-6)
