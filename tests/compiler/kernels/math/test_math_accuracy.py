"""Accuracy and special values of the real functions, against long double and mpmath."""

import mpmath
import numpy as np
import pytest
from vmath_kernels import NUMPY, call_kernel, compile_kernel, elementwise, random_bits, ulp_error

from hloom.compiler.kernels import math

wide = np.longdouble
needs_long_double = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="the reference needs long double with 64 bits or more"
)

SPECIAL = [
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.5, 1e-40, -1e-40, 5e-324, -5e-324, 1e-310,
    1e-20, 1e30, -1e30, 1e300, -1e300, 1.7e308, 88.72, 88.73, -103.9, -104.1, 709.78, 709.79, -745.1, -745.2,
]  # fmt: skip

REFERENCE = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "log2": np.log2,
    "log10": np.log10, "tanh": np.tanh, "logistic": lambda x: 1 / (1 + np.exp(-x)), "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "cbrt": np.cbrt, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round_even": np.rint, "round_afz": lambda x: np.copysign(np.floor(np.abs(x) + wide(0.5)), x), "abs": np.abs,
}  # fmt: skip
BINARY = {
    "pow": np.power, "atan2": np.arctan2, "hypot": np.hypot, "rem": np.fmod, "copysign": np.copysign,
}  # fmt: skip
EXACT = {"sqrt", "floor", "ceil", "trunc", "round_even", "round_afz", "abs", "rem", "copysign"}


def bound(name, dtype):
    """What the table states, and a little for arguments that its measurement did not meet."""
    return 0.5 if name in EXACT else math.FUNCTIONS[f"{name}_{dtype}"].ulp + 0.05


def arguments(dtype, count=6000):
    generator = np.random.default_rng(7)
    parts = [np.array(SPECIAL), random_bits(generator, dtype, 2 * count)]
    parts += [generator.uniform(a, b, count) for a, b in ((-1, 1), (-10, 10), (0.5, 1.5), (-100, 100), (-750, 750))]
    parts.append(np.exp2(generator.uniform(-40, 6, count)) * generator.choice([-1, 1], count))
    with np.errstate(all="ignore"):
        return np.concatenate([part.astype(dtype) for part in parts])


@needs_long_double
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("names", np.array_split(list(REFERENCE), 6), ids=lambda names: f"{names[0]}..{names[-1]}")
def test_unary(names, dtype):
    x = arguments(NUMPY[dtype])
    with np.errstate(all="ignore"):
        for name, result in zip(names, elementwise([f"{name}_{dtype}" for name in names])(x), strict=True):
            reference = REFERENCE[name](x.astype(wide))
            error = ulp_error(result, reference)
            worst = error.argmax()
            assert error[worst] <= bound(name, dtype), (name, x[worst], result[worst], reference[worst])
            zeros = (result == 0) & (reference.astype(result.dtype) == 0)
            assert np.array_equal(np.signbit(result[zeros]), np.signbit(reference[zeros])), name


@needs_long_double
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_binary(dtype):
    generator = np.random.default_rng(8)
    count = 5000
    kind = NUMPY[dtype]
    a, b = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))
    left = [a, random_bits(generator, kind, count), generator.uniform(0.5, 2, count), generator.uniform(0, 100, count)]
    right = [b, random_bits(generator, kind, count)]
    right += [generator.uniform(-700, 700, count), generator.uniform(-99, 99, count)]
    left += [np.exp2(generator.uniform(-30, 30, count)), generator.integers(-20, 20, count)]
    right += [generator.uniform(-30, 30, count), generator.integers(-20, 20, count)]
    with np.errstate(all="ignore"):
        x = np.concatenate([part.astype(kind) for part in left])
        y = np.concatenate([part.astype(kind) for part in right])
        for name, result in zip(BINARY, elementwise([f"{name}_{dtype}" for name in BINARY])(x, y), strict=True):
            reference = BINARY[name](x.astype(wide), y.astype(wide))
            error = ulp_error(result, reference)
            worst = error.argmax()
            assert error[worst] <= bound(name, dtype), (name, x[worst], y[worst], result[worst], reference[worst])
            zeros = (result == 0) & (reference.astype(kind) == 0)
            assert np.array_equal(np.signbit(result[zeros]), np.signbit(reference[zeros])), name


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_comparisons_and_neighbours(dtype):
    kind = NUMPY[dtype]
    with np.errstate(all="ignore"):
        special = np.array(SPECIAL).astype(kind)
    x, y = (grid.ravel() for grid in np.meshgrid(special, special))
    larger, smaller, following = elementwise([f"max_{dtype}", f"min_{dtype}", f"nextafter_{dtype}"])(x, y)
    np.testing.assert_array_equal(larger, np.maximum(x, y))
    np.testing.assert_array_equal(smaller, np.minimum(x, y))
    np.testing.assert_array_equal(following, np.nextafter(x, y))
    zeros = (x == 0) & (y == 0)
    assert np.array_equal(np.signbit(larger[zeros]), np.signbit(x[zeros]) & np.signbit(y[zeros]))
    assert np.array_equal(np.signbit(smaller[zeros]), np.signbit(x[zeros]) | np.signbit(y[zeros]))
    finite, sign = elementwise([f"is_finite_{dtype}", f"sign_{dtype}"])(x)
    np.testing.assert_array_equal(finite, np.isfinite(x))
    np.testing.assert_array_equal(sign, np.sign(x))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_fma_rounds_once(dtype):
    kind = NUMPY[dtype]
    epsilon = np.finfo(kind).eps
    (result,) = elementwise([f"fma_{dtype}"])(
        np.full(4, 1 + epsilon), np.full(4, 1 - epsilon), np.full(4, -1.0)
    )  # fmt: skip
    assert (result == -(epsilon * epsilon)).all()


def _mpmath(function, x):
    """Long double values of an mpmath function."""
    result = np.empty(len(x), wide)
    with mpmath.workprec(90):
        for index, value in enumerate(x):
            exact = function(mpmath.mpf(float(value)))
            high = float(exact)
            result[index] = wide(high) + (wide(float(exact - mpmath.mpf(high))) if np.isfinite(high) else 0)
    return result


# name: (function, interval, largest error of f32, of f64)
MPMATH = {
    "erf": (mpmath.erf, -6.5, 6.5, 1.75, 1.0),
    "erfc": (mpmath.erfc, -6.0, 28.0, 0.51, 1.0),
    "lgamma": (lambda x: mpmath.log(abs(mpmath.gamma(x))), 0.001, 100.0, 0.51, 2.5),
    "digamma": (mpmath.digamma, 2.0, 100.0, 0.51, 5.0),
    "erf_inv": (mpmath.erfinv, -1.0, 1.0, 1.8, 5.0),
    "bessel_i0e": (lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)), -40.0, 40.0, 0.51, 2.5),
    "bessel_i1e": (lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)), -40.0, 40.0, 0.51, 2.5),
}


@needs_long_double
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", list(MPMATH))
def test_against_mpmath(name, dtype):
    function, low, high, *bounds = MPMATH[name]
    generator = np.random.default_rng(9)
    x = np.concatenate([generator.uniform(low, high, 1000), np.exp2(generator.uniform(-30, 1, 500))])
    x = x[(x > low) & (x < high)].astype(NUMPY[dtype])
    x = x[np.abs(x) < 1] if name == "erf_inv" else x
    (result,) = elementwise([f"{name}_{dtype}"])(x)
    error = ulp_error(result, _mpmath(function, x))
    assert error.max() <= bounds[dtype == "f64"], (x[error.argmax()], error.max())


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_error_function_special_values(dtype):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 40.0, -40.0])
    erf, erfc = elementwise([f"erf_{dtype}", f"erfc_{dtype}"])(x)
    np.testing.assert_array_equal(erf, [0, 0, 1, -1, np.nan, 1, -1])
    assert np.signbit(erf[1])
    np.testing.assert_array_equal(erfc, [1, 1, 0, 2, np.nan, 0, 2])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_huge_angles_among_others(dtype):
    """Angles from 2^45 on leave the vector loop; what else the loop holds in registers must survive that."""
    kind = NUMPY[dtype]
    kernel = compile_kernel(
        f"def loop(x, y, o, n):\n    for i in range(n):\n"
        f"        o[i] = exp_{dtype}(y[i]) * sin_{dtype}(x[i]) + y[i] * cos_{dtype}(x[i]) - tan_{dtype}(y[i])\n",
        [f"{dtype}*"] * 3 + ["s64"],
    )
    generator = np.random.default_rng(10)
    x = generator.uniform(-100, 100, 4003).astype(kind)
    y = generator.uniform(-3, 3, 4003).astype(kind)
    huge = generator.random(4003) < 0.05
    x[huge] *= kind(1e30)
    result = np.empty_like(x)
    call_kernel(kernel, x, y, result, x.size)
    a, b = x.astype(np.float64), y.astype(np.float64)
    parts = [np.exp(b) * np.sin(a), b * np.cos(a), np.tan(b)]
    scale = sum(np.abs(part) for part in parts)
    error = np.abs(result - (parts[0] + parts[1] - parts[2])) / scale
    assert error.max() < 4 * np.finfo(kind).eps


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_special_values_of_special_functions(dtype):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, -2.0, 1.0, 2.0])
    infinite, invalid = np.inf, np.nan
    names = [f"{name}_{dtype}" for name in ("lgamma", "digamma", "erf_inv")]
    lgamma, digamma, erf_inv = elementwise(names)(x)
    np.testing.assert_array_equal(lgamma, [infinite] * 4 + [invalid, infinite, infinite, 0, 0])
    np.testing.assert_array_equal(digamma[:7], [invalid, invalid, infinite] + [invalid] * 4)
    np.testing.assert_array_equal(erf_inv, [0, 0, invalid, invalid, invalid, -infinite, invalid, infinite, invalid])
    assert np.signbit(erf_inv[1])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_reflection(name, dtype):
    """Negative arguments: the error is measured against the larger of 1 and the value, for both have zeros there."""
    x = np.random.default_rng(11).uniform(-20, 0, 800).astype(NUMPY[dtype])
    (result,) = elementwise([f"{name}_{dtype}"])(x)
    exact = _mpmath(MPMATH[name][0], x)
    error = np.abs(result - exact) / np.maximum(1, np.abs(exact))
    assert error.max() <= 8 * np.finfo(NUMPY[dtype]).eps


def test_every_function_states_its_method():
    plain = [entry for entry in math.FUNCTIONS.values() if entry.kind == "function"]
    assert len(plain) > 100
    assert all(entry.reference for entry in plain)
