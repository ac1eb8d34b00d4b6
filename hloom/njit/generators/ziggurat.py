"""Tables of the ziggurat by which NumPy draws normal and exponential numbers: 256 layers of equal area.

G. Marsaglia and W. W. Tsang, The ziggurat method for generating random variables, Journal of Statistical Software 5
(2000). A layer k has the width x[k]: its first column `widths` is that of a unit of the drawn integer, `inside` the
integer below which a draw is within the next layer, `heights` the density at x[k]. Layer 0 is the base with the tail.

NumPy's tables are those of `normal` and `exponential`, entry by entry: what its generators return for chosen bits says
so, and `tests/hloom/njit/test_njit_ziggurat.py` asks again. Functions are rounded correctly, as decimal numbers are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal, localcontext

import numpy as np

from hloom.kernels.programs import Table

__all__ = ["EXPONENTIAL_EDGE", "NORMAL_EDGE", "Layers", "exponential", "normal"]

_LAYERS = 256
NORMAL_EDGE = 3.6541528853610088  # where the tail begins
_NORMAL_AREA = 0.004928673233974652  # of a layer; four units in the last place below the area of this edge
_EXPONENTIAL_EDGE = Decimal("7.697117470131049714044628048114089523343")  # the layers end at the mode
EXPONENTIAL_EDGE = float(_EXPONENTIAL_EDGE)
_DIGITS = Context(prec=40)


class Layers:
    """The tables of one distribution."""

    def __init__(self, widths: list[float], inside: list[int], heights: list[float]):
        self.widths = Table(np.array(widths))
        self.inside = Table(np.array(inside, np.uint64))
        self.heights = Table(np.array(heights))


def _rounded(function: Callable[[Decimal], Decimal]) -> Callable[[float], float]:
    return lambda x: float(function(Decimal(x)))


def normal() -> Layers:
    """In double precision, from the edge down to the mode."""
    exp, log = _rounded(lambda x: x.exp(_DIGITS)), _rounded(lambda x: x.ln(_DIGITS))
    unit = 2.0**52
    x, height = NORMAL_EDGE, exp(-0.5 * NORMAL_EDGE * NORMAL_EDGE)
    widths, inside, heights = ([0.0] * _LAYERS, [0] * _LAYERS, [1.0] * _LAYERS)
    widths[0], inside[0] = _NORMAL_AREA / height / unit, round(x * height / _NORMAL_AREA * unit)
    widths[-1], heights[-1] = x / unit, height
    for k in range(_LAYERS - 2, 0, -1):
        following = math.sqrt(-2.0 * log(_NORMAL_AREA / x + height))
        inside[k + 1] = round(following / x * unit)
        x, height = following, exp(-0.5 * following * following)
        if k == 38:  # 0.498 units from the middle of two numbers: NumPy's table has the farther one
            height = math.nextafter(height, 1.0)
        widths[k], heights[k] = x / unit, height
    return Layers(widths, inside, heights)


def exponential() -> Layers:
    """In high precision, rounded at the end. The integers of `inside` are even: 52 bits of the 53."""
    with localcontext(_DIGITS):
        unit, edge = Decimal(2) ** 53, _EXPONENTIAL_EDGE
        x, height = edge, (-edge).exp()
        area = (edge + 1) * height
        widths, inside, heights = ([0.0] * _LAYERS, [0] * _LAYERS, [1.0] * _LAYERS)
        widths[0], inside[0] = float(area / height / unit), _even(x * height / area * unit)
        widths[-1], heights[-1] = float(x / unit), float(height)
        for k in range(_LAYERS - 2, 0, -1):
            following = -(area / x + height).ln()
            inside[k + 1] = _even(following / x * unit)
            x, height = following, (-following).exp()
            widths[k], heights[k] = float(x / unit), float(height)
    return Layers(widths, inside, heights)


def _even(x: Decimal) -> int:
    return 2 * int((x / 2).to_integral_value(ROUND_FLOOR))


def __getattr__(name: str) -> Layers:
    """NORMAL, EXPONENTIAL: computed at first use, which takes 0.1 s."""
    make = {"NORMAL": normal, "EXPONENTIAL": exponential}.get(name)
    if make is None:
        raise AttributeError(name)
    return globals().setdefault(name, make())
