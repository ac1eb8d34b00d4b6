"""The window functions of signal processing."""

from __future__ import annotations

import math

from hloom import lax
from hloom.lax.operands import as_operand, broadcast_dims_to, convert, default_float, whole_number
from hloom.lax.operands import full as full_constant
from hloom.numpy.elementwise.ufuncs import i0


def _window(name: str, text: str, cosines):
    """A sum of cosines over M points, 1 for M = 1."""

    def function(M: int):
        size = whole_number(M, name, "number of points")
        if size < 1:
            return full_constant(0, default_float(), (0,))
        if size == 1:
            return full_constant(1, default_float(), (1,))
        angle = lax.mul(lax.iota(default_float(), size), 2 * math.pi / (size - 1))
        result = full_constant(cosines[0], default_float(), (size,))
        for k, weight in enumerate(cosines[1:], 1):
            result = lax.add(result, lax.mul(lax.cos(lax.mul(angle, float(k))), weight))
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{text} over M points, f32. Raises ArgumentError."
    return function


hanning = _window("hanning", "The Hann window: a cosine raised to zero at the edges,", (0.5, -0.5))
hamming = _window("hamming", "The Hamming window: 0.54 - 0.46 cos", (0.54, -0.46))
blackman = _window("blackman", "The Blackman window: 0.42 - 0.5 cos + 0.08 cos", (0.42, -0.5, 0.08))


def bartlett(M: int):
    """The triangular window over M points, 0 at the edges, f32. Raises ArgumentError.

    >>> hnp.bartlett(5)
    Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)
    """
    size = whole_number(M, "bartlett", "number of points")
    if size < 2:
        return full_constant(1, default_float(), (max(size, 0),))
    place = lax.mul(lax.iota(default_float(), size), 2 / (size - 1))
    return lax.sub(1.0, lax.abs(lax.sub(place, 1.0)))


def kaiser(M: int, beta):
    """The Kaiser window over M points: I0(beta sqrt(1 - r^2)) / I0(beta), r from -1 to 1. Raises ArgumentError.

    >>> hnp.kaiser(3, 0.0)
    Array([1., 1., 1.], dtype=float32)
    """
    size = whole_number(M, "kaiser", "number of points")
    if size < 2:
        return full_constant(1, default_float(), (max(size, 0),))
    place = lax.sub(lax.mul(lax.iota(default_float(), size), 2 / (size - 1)), 1.0)
    beta = convert(as_operand(beta, "kaiser"), default_float())
    root = lax.sqrt(lax.max(lax.sub(1.0, lax.mul(place, place)), full_constant(0, place.dtype, place.shape)))
    return lax.div(i0(lax.mul(broadcast_dims_to(beta, place.shape), root)), broadcast_dims_to(i0(beta), place.shape))
