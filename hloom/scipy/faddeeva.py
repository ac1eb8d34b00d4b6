"""The Faddeeva function w(z) = exp(-z^2) erfc(-iz) of complex numbers.

J. A. C. Weideman, Computation of the Complex Error Function, SIAM Journal on Numerical Analysis 31 (1994) 1497: in the
upper half plane a polynomial in (L + iz) / (L - iz), whose coefficients are a Fourier transform.
"""

from __future__ import annotations

import functools
import math

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.ir.types import COMPLEX, DTYPES
from hloom.lax.operands import to_inexact


@functools.lru_cache(maxsize=2)
def _coefficients(count: int) -> tuple[float, tuple[float, ...]]:
    """(L, the coefficients from the highest power on)."""
    half = 2 * count
    scale = math.sqrt(count / math.sqrt(2))
    t = scale * np.tan(np.arange(1 - half, half) * (math.pi / (2 * half)))
    values = np.concatenate([[0.0], np.exp(-t * t) * (scale * scale + t * t)])
    found = np.fft.fft(np.fft.fftshift(values)).real / (2 * half)
    return scale, tuple(found[count:0:-1].tolist())


def wofz(z):
    """exp(-z^2) erfc(-i z), element-wise, complex; real z become complex. Raises DTypeError.

    The error is some units of the last place of the largest part; the smaller part may have fewer digits.
    """
    z = to_inexact(z, "wofz")
    if z.dtype not in COMPLEX:
        z = z.astype(DTYPES["c128"] if z.dtype == DTYPES["f64"] else DTYPES["c64"])
    count = 32 if z.dtype == DTYPES["c64"] else 64
    scale, coefficients = _coefficients(count)
    below = hnp.imag(z) < 0
    upper = hnp.where(below, -z, z)  # w(-z) = 2 exp(-z^2) - w(z)
    iz = lax.complex(-hnp.imag(upper), hnp.real(upper))
    denominator = scale - iz
    ratio = (scale + iz) / denominator
    polynomial = hnp.zeros_like(ratio) + coefficients[0]
    for coefficient in coefficients[1:]:
        polynomial = polynomial * ratio + coefficient
    found = 2 * polynomial / (denominator * denominator) + (1 / math.sqrt(math.pi)) / denominator
    # The exponential is evaluated only where it matters: above, it would overflow far from the imaginary axis.
    square = hnp.where(below, z * z, hnp.zeros_like(z))
    return hnp.where(below, 2 * hnp.exp(-square) - found, found)
