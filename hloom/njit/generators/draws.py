"""Draws of NumPy's generators, as functions of a generator's state that kernels inline.

state: six integers of uint64: the state and the increment of PCG64, each as its upper and its lower half, whether half
of an earlier number is left, and that half. The bits are NumPy's: numpy/random/src/pcg64 and src/distributions.
"""

from __future__ import annotations

import math

import numpy as np

from hloom.ir.process.lazy import LazyModule
from hloom.kernels.frontend.functions import inline

__all__ = [
    "exponential", "filled", "integers", "integers_below", "normal", "random", "random32", "required", "shuffled",
    "single", "standard_exponential", "standard_normal", "uniform",
]  # fmt: skip

_HALF = 0xFFFFFFFF
_layers = LazyModule("hloom.njit.generators.ziggurat")  # whose tables are computed at first use
_NORMAL_SCALE = 0.27366123732975828  # of the tail: one over its edge
# PCG64's multiplier.
_UPPER, _LOWER = 0x2360ED051FC65DA4, 0x4385DF649FCCF645


def required(holds, what, value):
    """Kernels end where it does not hold: the lowering of NumPy programs knows this function."""


def library_exp(x):
    """The C library's: kernels know this function."""
    return math.exp(x)


def library_log1p(x):
    return math.log1p(x)


@inline
def single(state, draw, a, b, dtype):
    return draw(state, a, b, dtype)


@inline
def filled(state, draw, a, b, dtype, size):
    out = np.empty(size, dtype)
    for k in range(size):
        out[k] = draw(state, a, b, dtype)
    return out


@inline
def upper_product(a, b):
    """The upper 64 bits of a product of 128."""
    a0 = a & _HALF
    a1 = a >> 32
    b0 = b & _HALF
    b1 = b >> 32
    first = a1 * b0
    second = a0 * b1
    middle = (a0 * b0 >> 32) + (first & _HALF) + (second & _HALF)
    return a1 * b1 + (first >> 32) + (second >> 32) + (middle >> 32)


@inline
def next64(state):
    """A step of the linear congruential generator, whose halves are combined and rotated."""
    upper = state[0]
    lower = state[1]
    factor = np.uint64(_LOWER)
    product = lower * factor
    carried = product + state[3]
    upper = upper_product(lower, factor) + lower * np.uint64(_UPPER) + upper * factor + state[2]
    upper = upper + np.uint64(carried < product)
    state[0] = upper
    state[1] = carried
    value = upper ^ carried
    turn = upper >> 58
    return (value >> turn) | (value << ((64 - turn) & 63))


@inline
def next32(state):
    """The lower half of a number; the upper half is the next one."""
    value = state[5]
    if state[4] != 0:
        state[4] = 0
    else:
        whole = next64(state)
        state[4] = 1
        state[5] = whole >> 32
        value = whole & _HALF
    return value


@inline
def next_double(state):
    return np.float64(next64(state) >> 11) * (1.0 / 9007199254740992.0)


@inline
def random(state, a, b, dtype):
    return next_double(state)


@inline
def random32(state, a, b, dtype):
    return dtype(np.float32(next32(state) >> 8) * np.float32(1.0 / 16777216.0))


@inline
def uniform(state, low, high, dtype):
    start = np.float64(low)
    width = np.float64(high) - start
    required((width >= 0.0) & (width < np.inf), "high - low of uniform", np.int64(0))
    return start + width * next_double(state)


@inline
def of_32_bits(state, width):
    """Lemire's method: 0 to width, with as few divisions as there can be."""
    count = width + 1
    product = next32(state) * count
    rest = product & _HALF
    if rest < count:
        least = (_HALF - width) % count
        while rest < least:
            product = next32(state) * count
            rest = product & _HALF
    return product >> 32


@inline
def of_64_bits(state, width):
    count = width + 1
    number = next64(state)
    rest = number * count
    if rest < count:
        least = ~width % count
        while rest < least:
            number = next64(state)
            rest = number * count
    return upper_product(number, count)


@inline
def integers(state, low, last, dtype):
    """An integer from low to last, which is one of them."""
    required(low <= last, "high - low of integers", np.int64(last) - np.int64(low))
    if dtype is not np.int64:
        fit = (np.int64(dtype(low)) == low) & (np.int64(dtype(last)) == last)
        required(fit, "a bound of integers, which their dtype does not hold,", np.int64(last))
    width = np.uint64(last) - np.uint64(low)
    value = np.uint64(0)
    if width != 0:
        if width < _HALF:
            value = of_32_bits(state, width)
        elif width == _HALF:
            value = next32(state)
        elif ~width == 0:
            value = next64(state)
        else:
            value = of_64_bits(state, width)
    return dtype(np.uint64(low) + value)


@inline
def integers_below(state, low, high, dtype):
    required(low < high, "high - low of integers", np.int64(high) - np.int64(low))
    return integers(state, low, np.int64(high) - 1, dtype)


@inline
def standard_normal(state, a, b, dtype):
    """A layer of the ziggurat, a place in it, and a sign from one number; 1.2 % of draws take more of them."""
    value = 0.0
    open_ = True
    while open_:
        bits = next64(state)
        k = np.int64(bits & 0xFF)
        place = (bits >> 9) & 0x000FFFFFFFFFFFFF
        value = np.float64(place) * _layers.NORMAL.widths[k]
        if (bits >> 8) & 1 != 0:
            value = -value
        if place < _layers.NORMAL.inside[k]:
            open_ = False
        elif k == 0:
            above = 0.0
            while open_:
                above = -_NORMAL_SCALE * library_log1p(-next_double(state))
                other = -library_log1p(-next_double(state))
                open_ = not other + other > above * above
            value = _layers.NORMAL_EDGE + above
            if (place >> 8) & 1 != 0:
                value = -value
        else:
            low = _layers.NORMAL.heights[k]
            height = (_layers.NORMAL.heights[k - 1] - low) * next_double(state) + low
            open_ = not height < library_exp(-0.5 * value * value)
    return value


@inline
def standard_exponential(state, a, b, dtype):
    value = 0.0
    open_ = True
    while open_:
        bits = next64(state) >> 3
        k = np.int64(bits & 0xFF)
        place = bits >> 8
        value = np.float64(place) * _layers.EXPONENTIAL.widths[k]
        if place < _layers.EXPONENTIAL.inside[k]:
            open_ = False
        elif k == 0:
            value = _layers.EXPONENTIAL_EDGE - library_log1p(-next_double(state))
            open_ = False
        else:
            low = _layers.EXPONENTIAL.heights[k]
            height = (_layers.EXPONENTIAL.heights[k - 1] - low) * next_double(state) + low
            open_ = not height < library_exp(-value)
    return value


@inline
def normal(state, loc, scale, dtype):
    width = np.float64(scale)
    required((np.copysign(1.0, width) > 0.0) | (width != width), "the sign of normal's scale", np.int64(-1))
    return np.float64(loc) + width * standard_normal(state, loc, scale, dtype)


@inline
def exponential(state, scale, b, dtype):
    width = np.float64(scale)
    required((np.copysign(1.0, width) > 0.0) | (width != width), "the sign of exponential's scale", np.int64(-1))
    return width * standard_exponential(state, scale, b, dtype)


@inline
def shuffled(state, x):
    """Exchanges elements, from the last one on, with one before or itself."""
    for i in range(len(x) - 1, 0, -1):
        most = np.uint64(i)
        mask = most | (most >> 1)
        mask = mask | (mask >> 2)
        mask = mask | (mask >> 4)
        mask = mask | (mask >> 8)
        mask = mask | (mask >> 16)
        drawn = next32(state) & mask
        while drawn > most:
            drawn = next32(state) & mask
        j = np.int64(drawn)
        held = x[i]
        other = x[j]
        x[i] = other
        x[j] = held
    return 0
