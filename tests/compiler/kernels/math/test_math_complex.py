"""Complex functions: against mpmath for values, against NumPy for special ones."""

import mpmath
import numpy as np
import pytest
from vmath_kernels import NUMPY, elementwise

PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, np.inf, -np.inf, np.nan, 3.0, -100.0]
SPECIAL = np.array([complex(x, y) for x in PARTS for y in PARTS])


def _beside(z, w):
    """w on the side of the branch cut that z is on, which mpmath does not always see in subnormal imaginary parts."""
    return mpmath.mpc(w.real, w.imag if (w.imag < 0) == (z.imag < 0) else -w.imag)


# name: (mpmath's function, NumPy's function or None where it has none or is known to lose the special values)
FUNCTIONS = {
    "exp": (mpmath.exp, np.exp), "expm1": (mpmath.expm1, None), "log": (mpmath.log, np.log),
    "log1p": (lambda z: mpmath.log(1 + z), np.log1p), "tanh": (mpmath.tanh, np.tanh),
    "logistic": (lambda z: 1 / (1 + mpmath.exp(-z)), None), "sin": (mpmath.sin, np.sin), "cos": (mpmath.cos, np.cos),
    "tan": (mpmath.tan, np.tan), "sqrt": (mpmath.sqrt, np.sqrt), "rsqrt": (lambda z: 1 / mpmath.sqrt(z), None),
    "cbrt": (lambda z: mpmath.power(z, mpmath.mpf(1) / 3), None), "sign": (lambda z: z / abs(z), None),
    "sinh": (mpmath.sinh, np.sinh), "cosh": (mpmath.cosh, np.cosh), "asin": (mpmath.asin, np.arcsin),
    "acos": (mpmath.acos, np.arccos), "atan": (mpmath.atan, np.arctan), "asinh": (mpmath.asinh, np.arcsinh),
    "acosh": (lambda z: _beside(z, mpmath.acosh(z)), np.arccosh), "atanh": (mpmath.atanh, np.arctanh),
}  # fmt: skip


def _exact(function, *arguments):
    with mpmath.workprec(140):
        return [function(*(mpmath.mpc(complex(value)) for value in values)) for values in zip(*arguments, strict=True)]


def _relative_error(result, exact):
    """|result - exact| / |exact| in units of the dtype's epsilon."""
    with mpmath.workprec(140):
        errors = [float(abs(mpmath.mpc(complex(value)) - right) / abs(right))
                  for value, right in zip(result, exact, strict=True)]  # fmt: skip
    return np.array(errors) / np.finfo(result.dtype).eps


def _numbers(count=120):
    generator = np.random.default_rng(2)
    box = [generator.uniform(-r, r, count) + 1j * generator.uniform(-r, r, count) for r in (1, 5, 0.01, 30)]
    return np.concatenate(box)


def _same(result, expected):
    part_pairs = ((result.real, expected.real), (result.imag, expected.imag))
    with np.errstate(all="ignore"):
        return [
            (np.isnan(a) & np.isnan(b))
            | ((a == b) & (np.signbit(a) == np.signbit(b)))
            | (np.abs(a - b) <= 1e-12 * np.abs(b))
            for a, b in part_pairs
        ]


@pytest.mark.parametrize("dtype", ["c64", "c128"])
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_values(name, dtype):
    z = _numbers().astype(NUMPY[dtype])
    (result,) = elementwise([f"{name}_{dtype}"])(z)
    with np.errstate(all="ignore"):
        error = _relative_error(result, _exact(FUNCTIONS[name][0], z))
    assert error.max() <= (0.75 if dtype == "c64" else 3.0), z[error.argmax()]


# Whose parts are computed in two parts each, so that both are right to one unit in the last place.
BY_PARTS = "exp sin cos sinh cosh asin acos asinh acosh".split()


def _numbers_near_edges(count=60):
    """Small and large numbers, next to the branch points and on both sides of them."""
    generator = np.random.default_rng(3)
    edges = np.array([1e-300, 1e-160, 1e-20, 1e-8, 0.25, 1 - 1e-10, 1 - 2**-53, 1, 1 + 2**-52, 1 + 1e-9, 2, 10, 1e5])
    edges = np.concatenate([edges, -edges])
    near = 10.0 ** generator.uniform(-18, -1, (2, count)) * generator.normal(size=(2, count))
    grid = (edges[:, None] + 1j * edges[None, :]).ravel()
    boxes = [generator.uniform(-r, r, count) + 1j * generator.uniform(-r, r, count) for r in (1, 5, 300, 1e-5)]
    return np.concatenate([grid, 1 + near[0] + 1j * near[1], *boxes])


@pytest.mark.parametrize("name", BY_PARTS)
def test_both_parts_are_right_to_one_unit_in_the_last_place(name):
    z = _numbers_near_edges()
    z = z if name[0] == "a" else z[np.maximum(abs(z.real), abs(z.imag)) < 700]
    (result,) = elementwise([f"{name}_c128"])(z)
    exact = _exact(FUNCTIONS[name][0], z)
    for part in ("real", "imag"):
        found, wanted = getattr(result, part), [getattr(e, part) for e in exact]
        rounded = np.array([float(w) for w in wanted])
        unit = np.spacing(np.abs(rounded))
        with mpmath.workprec(140):
            error = np.array([float(abs(mpmath.mpf(float(f)) - w)) for f, w in zip(found, wanted, strict=True)]) / unit
        error[np.abs(rounded) < 1e-290] = 0  # beside subnormal numbers
        assert error.max() <= 1, (part, error.max(), z[error.argmax()])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [name for name, pair in FUNCTIONS.items() if pair[1]])
def test_special_values_are_those_of_numpy(name):
    z = SPECIAL.copy()
    (result,) = elementwise([f"{name}_c128"])(z)
    real, imaginary = _same(result, FUNCTIONS[name][1](z))
    assert (real & imaginary).all(), (z[~(real & imaginary)], result[~(real & imaginary)])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_division(dtype):
    z = _numbers(400).astype(NUMPY[dtype])
    w = np.roll(z, 13)
    (result,) = elementwise([f"div_{dtype}"])(z, w)
    assert _relative_error(result, _exact(lambda a, b: a / b, z, w)).max() <= 0.75
    if dtype == "c128":
        left, right = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))
        special = ~(np.isfinite(left) & np.isfinite(right)) | (right == 0)
        left, right = left[special], right[special]
        (result,) = elementwise([f"div_{dtype}"])(left, right)
        real, imaginary = _same(result, left / right)
        assert (real & imaginary).all()


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_power_and_magnitude(dtype):
    z = _numbers().astype(NUMPY[dtype])
    w = np.roll(_numbers(), 17)
    w = (np.clip(w.real, -4, 4) + 1j * np.clip(w.imag, -4, 4)).astype(NUMPY[dtype])
    (result,) = elementwise([f"pow_{dtype}"])(z, w)
    assert _relative_error(result, _exact(mpmath.power, z, w)).max() <= (0.75 if dtype == "c64" else 8.0)
    zeros = np.zeros(3, NUMPY[dtype])
    (result,) = elementwise([f"pow_{dtype}"])(zeros, np.array([0, 2, -1], NUMPY[dtype]))
    assert result[0] == 1 and result[1] == 0 and np.isnan(result[2])
    (magnitude,) = elementwise([f"abs_{dtype}"])(z)
    exact = np.array([float(value) for value in _exact(abs, z)])
    np.testing.assert_allclose(magnitude, exact, rtol=np.finfo(NUMPY[dtype]).eps * 0.6)


def test_sign_of_zero_is_zero():
    assert elementwise(["sign_c128"])(np.zeros(1))[0][0] == 0


def test_size_of_single_precision_over_the_whole_range():
    generator = np.random.default_rng(5)
    angle, exponent = generator.uniform(0, 2 * np.pi, 4000), generator.uniform(-149, 127.9, 4000)
    z = (np.exp(1j * angle) * 2.0**exponent).astype(np.complex64)
    z[:7] = [0, np.inf, complex(np.inf, np.nan), complex(np.nan, -np.inf), complex(np.nan, 3e38), 3e38j, 2**60 + 1j]
    with np.errstate(all="ignore"):
        (result,) = elementwise(["abs_c64"])(z)
    exact = np.abs(z.astype(np.complex128))
    special = ~np.isfinite(exact)
    assert np.array_equal(result[special], exact[special].astype(np.float32), equal_nan=True)
    # Hardly more than half a unit in the last place; below the normal numbers the result is rounded twice.
    bound = np.maximum(0.57 * np.finfo(np.float32).eps * exact, 0.77 * 2.0**-149)
    assert (np.abs(result[~special] - exact[~special]) <= bound[~special]).all()
