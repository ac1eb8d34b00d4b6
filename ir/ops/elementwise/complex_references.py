"""References for functions of complex numbers where NumPy's lose digits, overflow in intermediate results, or miss a
limit.

Each takes and returns complex64 or complex128 and computes in double precision, by the formulas of the compiled
functions (`hloom.compiler.kernels.math.complex`). Limits are those of C's Annex G.
"""

from __future__ import annotations

import numpy as np

_FAR = 40.0  # beyond it, 1 is lost in 1 + exp(x)


def _made(real, imaginary, dtype) -> np.ndarray:
    result = np.empty(np.broadcast(real, imaginary).shape, dtype)
    result.real, result.imag = real, imaginary
    return result


def _parts(z) -> tuple[np.ndarray, np.ndarray]:
    return z.real.astype(np.float64), z.imag.astype(np.float64)


def _power_of_two(x, y):
    """A power of two near the magnitude, by which both parts can be divided without loss."""
    large = np.fmax(np.abs(x), np.abs(y))
    usual = np.isfinite(large) & (large > 0)
    return np.where(usual, np.frexp(np.where(usual, large, 1.0))[1], 0)


def divide(x, y):
    """x / y; complex64 through complex128, whose intermediate results do not overflow. complex128 divisors are scaled
    if their inverse, which NumPy computes, overflows."""
    if x.dtype == np.complex128:
        small = np.maximum(np.abs(y.real), np.abs(y.imag)) < 2.0**-960
        if not small.any():
            return np.divide(x, y)
        factor = np.where(small, 2.0**128, 1.0)
        quotient = np.divide(x, _made(y.real * factor, y.imag * factor, y.dtype))
        return _made(quotient.real * factor, quotient.imag * factor, y.dtype)
    return np.divide(x.astype(np.complex128), y.astype(np.complex128)).astype(x.dtype)


def sign(z):
    """z / |z|, z for 0."""
    x, y = _parts(z)
    exponent = _power_of_two(x, y)
    x, y = np.ldexp(x, -exponent), np.ldexp(y, -exponent)
    length = np.hypot(x, y)
    zero = length == 0
    length = np.where(zero, 1.0, length)
    return np.where(zero, z, _made(x / length, y / length, z.dtype))


def expm1(z):
    """(expm1(x) cos y - 2 sin(y/2)^2, exp(x) sin y)."""
    x, y = _parts(z)
    whole = np.exp(z.astype(np.complex128))
    usual = (np.abs(x) < _FAR) & np.isfinite(y)
    a, b = np.where(usual, x, 0.0), np.where(usual, y, 0.0)
    near = np.expm1(a) * np.cos(b) - 2 * np.sin(0.5 * b) ** 2
    return _made(np.where(usual, near, whole.real - 1), whole.imag, z.dtype)


def log1p(z):
    """log((1 + x)^2 + y^2) / 2 and the angle. For small z, the sum minus 1 is formed in two parts, 2 x + x^2 + y^2.

    Elsewhere 1 + x loses nothing significant, near -1 nothing at all, and NumPy's logarithm has the right limits.
    """
    x, y = _parts(z)
    far = np.log(_made(1 + x, y, np.complex128))
    near = (np.abs(x) < 4) & (np.abs(y) < 4)
    x, y = np.where(near, x, 0.0), np.where(near, y, 0.0)
    high, low = 2 * x, 0.0
    for term, error in (_exact_square(x), _exact_square(y)):
        total = high + term
        moved = total - high
        low = low + ((high - (total - moved)) + (term - moved) + error)
        high = total
    near &= high + low > -0.75  # not near the pole
    return _made(np.where(near, np.log1p(np.where(near, high + low, 0.0)) / 2, far.real), far.imag, z.dtype)


def _exact_square(x):
    """The square of a float64 below 2^500 as a float64 and its rounding error (Dekker 1971)."""
    parts = x * 134217729.0  # 2^27 + 1
    high = parts - (parts - x)
    low = x - high
    square = x * x
    return square, ((high * high - square) + 2 * high * low) + low * low


def rsqrt(z):
    """1 / sqrt(z)."""
    return (1 / np.sqrt(z.astype(np.complex128))).astype(z.dtype)


def logistic(z):
    """(exp(x) + cos y + i sin y) / (4 (sinh(x/2)^2 + cos(y/2)^2)); for large |x| exp(z), or 1 and the rest."""
    x, y = _parts(z)
    far = np.abs(x) > _FAR
    tail = np.exp(_made(np.where(far, -np.abs(x), 0.0), np.where(far, y, 0.0), np.complex128))
    a, b = np.where(far, 0.0, x), np.where(far, 0.0, y)
    half_sine, half_cosine = np.sinh(0.5 * a), np.cos(0.5 * b)
    bottom = 4 * (half_sine * half_sine + half_cosine * half_cosine)
    real = (2 * half_cosine * half_cosine + np.expm1(a)) / bottom
    imaginary = np.where(b == 0, b, np.sin(b) / bottom)
    real = np.where(far, np.where(x > 0, 1.0, tail.real), real)
    return _made(real, np.where(far, tail.imag, imaginary), z.dtype)


def cbrt(z):
    """The cube root of the magnitude and a third of the angle."""
    x, y = _parts(z)
    steps = _power_of_two(x, y) // 3
    root = np.ldexp(np.cbrt(np.hypot(np.ldexp(x, -3 * steps), np.ldexp(y, -3 * steps))), steps)
    angle = np.arctan2(y, x) / 3
    real, imaginary = root * np.cos(angle), root * np.sin(angle)
    zero = root == 0
    imaginary = np.where((y == 0) & (x >= 0), y, imaginary)
    return _made(np.where(zero, 0.0, real), np.where(zero, 0.0, imaginary), z.dtype)
