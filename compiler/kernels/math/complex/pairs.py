"""Real numbers in two parts, high + low (real and imag of a c128): what complex functions compute on the way.

A part of a complex function is often a product of two functions. Each of them rounded, and the product rounded, is off
by up to 2.5 units in the last place; in two parts by little more than half a unit.
"""

from __future__ import annotations

from hloom.compiler.kernels.math.bits import abs_f64, bitcast_f64_u64, copysign_f64, fma_f64, select, sqrt_f64, u64
from hloom.compiler.kernels.math.elementary.exponential import (
    EXPONENT_F64,
    LOG2_E,
    exp_parts_f64,
    scale_f64,
)
from hloom.compiler.kernels.math.elementary.hyperbolic import double_sinh_parts_f64
from hloom.compiler.kernels.math.elementary.logarithm import log_parts_f64, sum_error_f64
from hloom.compiler.kernels.math.elementary.trigonometry import (
    HUGE,
    ROUND_F64,
    TWO_OVER_PI,
    atan_pairs_f64,
    cosine_parts_f64,
    huge_cos_f64,
    huge_sin_f64,
    quarter_turn_rest_f64,
    sine_parts_f64,
)
from hloom.compiler.kernels.math.registry import function


@function("c128 c128", "f64")
def pair_product_f64(a, b):
    """The product of two numbers in two parts, rounded once."""
    high = a.real * b.real
    low = fma_f64(a.real, b.real, -high) + fma_f64(a.real, b.imag, a.imag * b.real)
    return high + low


@function("f64 u64", "c128", 0.01)
def angle_parts_f64(x, shift):
    """sin(x + shift * pi/2) in two parts, |x| < 2^45."""
    rest = quarter_turn_rest_f64(x)
    quadrant = bitcast_f64_u64(fma_f64(x, TWO_OVER_PI, ROUND_F64)) + shift
    sine = sine_parts_f64(rest.real, rest.imag)
    cosine = cosine_parts_f64(rest.real, rest.imag)
    odd = (quadrant & u64(1)) != u64(0)
    sign = select((quadrant & u64(2)) != u64(0), -1.0, 1.0)
    return complex(sign * select(odd, cosine.real, sine.real), sign * select(odd, cosine.imag, sine.imag))


@function("f64", "c128", 0.01)
def sin_parts_f64(x):
    """sin(x) in two parts; rounded from 2^45 on."""
    parts = angle_parts_f64(x, u64(0))
    far = abs_f64(x) >= HUGE
    high = select(x == 0.0, x, parts.real)
    return complex(select(far, huge_sin_f64(x), high), select(far | (x == 0.0), 0.0, parts.imag))


@function("f64", "c128", 0.01)
def cos_parts_f64(x):
    """cos(x) in two parts; rounded from 2^45 on."""
    parts = angle_parts_f64(x, u64(1))
    far = abs_f64(x) >= HUGE
    return complex(select(far, huge_cos_f64(x), parts.real), select(far, 0.0, parts.imag))


@function("f64 c128", "f64")
def exp_times_pair_f64(x, factor):
    """exp(x) times a finite number in two parts, where exp(x) alone may overflow; rounded once."""
    x = select(x > 1500.0, 1500.0, x)  # overflows by the smallest factor
    x = select(x < -1400.0, -1400.0, x)
    large = x > 700.0
    product = pair_product_f64(exp_parts_f64(x, 0.0), factor) * select(large, 2.0**900, 1.0)
    return scale_f64(product, fma_f64(x, LOG2_E, EXPONENT_F64) - select(large, 900.0, 0.0))


@function("f64 c128", "f64")
def half_exp_times_pair_f64(x, factor):
    """exp(x) / 2 times a finite number in two parts. The smallest numbers have no half."""
    tiny = abs_f64(factor.real) < 2.0**-1000
    half = select(tiny, 1.0, 0.5)
    return exp_times_pair_f64(x, complex(half * factor.real, half * factor.imag)) * select(tiny, 0.5, 1.0)


@function("f64 c128", "f64")
def cosh_times_pair_f64(x, factor):
    """cosh(x) times a number in two parts."""
    magnitude = abs_f64(x)
    bounded = select(magnitude > 40.0, 40.0, magnitude)
    parts = exp_parts_f64(bounded, 0.0)
    power = scale_f64(0.5, fma_f64(bounded, LOG2_E, EXPONENT_F64))
    high = power * parts.real
    small = 0.25 / high
    total = high + small
    low = fma_f64(power, parts.imag, small - (total - high))
    # the small term in two parts: 1/4 over what high lacks too
    low = low + (fma_f64(-small, high, 0.25) - small * (power * parts.imag)) / high
    near = pair_product_f64(complex(total, low), factor)
    far = half_exp_times_pair_f64(magnitude, factor)
    return select(magnitude > 40.0, far, near)


@function("f64 c128", "f64")
def sinh_times_pair_f64(x, factor):
    """sinh(x) times a number in two parts."""
    magnitude = abs_f64(x)
    parts = double_sinh_parts_f64(select(magnitude > 40.0, 40.0, magnitude))
    tiny = magnitude < 1e-150
    sign = copysign_f64(1.0, x)
    high = select(tiny, magnitude, 0.5 * parts.real)
    near = pair_product_f64(complex(sign * high, select(tiny, 0.0, sign * 0.5 * parts.imag)), factor)
    far = sign * half_exp_times_pair_f64(magnitude, factor)
    return select(x == 0.0, x * factor.real, select(magnitude > 40.0, far, near))  # a zero keeps its sign


# ---- pairs in general, and the roots of the inverse functions


@function("c128 c128", "c128", 0.01)
def pair_sum_f64(a, b):
    """The sum in two parts of numbers in two parts."""
    total = a.real + b.real
    low = sum_error_f64(a.real, b.real, total) + (a.imag + b.imag)
    high = total + low
    return complex(high, low - (high - total))


@function("c128 c128", "c128", 0.01)
def pair_times_f64(a, b):
    """The product in two parts of numbers in two parts."""
    product = a.real * b.real
    low = fma_f64(a.real, b.real, -product) + fma_f64(a.real, b.imag, a.imag * b.real)
    high = product + low
    return complex(high, low - (high - product))


@function("c128 c128", "c128", 0.01)
def pair_quotient_f64(a, b):
    """The quotient in two parts of numbers in two parts; 0 over 0 is 0."""
    bottom = select(b.real == 0.0, 1.0, b.real)
    quotient = a.real / bottom
    low = (fma_f64(-quotient, bottom, a.real) + fma_f64(-quotient, b.imag, a.imag)) / bottom
    return complex(quotient, low)


@function("c128", "c128", 0.01)
def pair_root_f64(a):
    """The square root in two parts of a number in two parts."""
    root = sqrt_f64(a.real)
    low = (fma_f64(-root, root, a.real) + a.imag) / (2.0 * select(root == 0.0, 1.0, root))
    return complex(root, low)


@function("f64 f64", "c128", 0.01)
def distance_parts_f64(x, y):
    """hypot(1 + x, y) in two parts, for y >= 0 and 1 + x of an ordinary size or 0."""
    total = 1.0 + x
    shifted = complex(total, sum_error_f64(1.0, x, total))
    squares = pair_sum_f64(pair_times_f64(shifted, shifted), pair_times_f64(complex(y, 0.0), complex(y, 0.0)))
    root = pair_root_f64(squares)
    return complex(select(total == 0.0, y, root.real), select(total == 0.0, 0.0, root.imag))


@function("f64 f64", "c128", 0.01)
def half_axis_parts_f64(x, y):
    """a = (|z + 1| + |z - 1|) / 2 in two parts, for x, y >= 0."""
    total = pair_sum_f64(distance_parts_f64(x, y), distance_parts_f64(-x, y))
    return complex(0.5 * total.real, 0.5 * total.imag)


@function("f64 f64 f64 f64", "c128", 0.01)
def hull_root_f64(x, y, shift, far):
    """sqrt(a^2 - shift^2) in two parts: shift 1 with far = x >= 1, or shift x with far = x < 1 (as 1.0 or 0.0).

    a - shift is half of y^2 / (|z + 1| + x + 1) + y^2 / (|z - 1| + |x - 1|); where far, the second term is
    |z - 1| + |x - 1| (Hull, Fairgrieve, Tang: Implementing the complex arcsine and arccosine functions, 1997).
    """
    beyond = 1.0 + x
    gap = 1.0 - x
    gap_low = sum_error_f64(1.0, -x, gap)
    side = select(gap < 0.0, -1.0, 1.0)
    right = pair_sum_f64(distance_parts_f64(x, y), complex(beyond, sum_error_f64(1.0, x, beyond)))
    left = pair_sum_f64(distance_parts_f64(-x, y), complex(side * gap, side * gap_low))
    # a small y is scaled, so that its square does not vanish
    scale = select(y < 2.0**-300, 2.0**600, 1.0)
    back = select(y < 2.0**-300, 2.0**-600, 1.0)
    scaled = complex(y * scale, 0.0)
    first = pair_quotient_f64(scaled, right)
    second = pair_quotient_f64(scaled, left)
    axis = half_axis_parts_f64(x, y)
    factor = pair_sum_f64(axis, complex(shift, 0.0))
    factor = complex(0.5 * factor.real, 0.5 * factor.imag)
    near_root = pair_root_f64(pair_times_f64(pair_times_f64(scaled, pair_sum_f64(first, second)), factor))
    term = pair_times_f64(complex(y * back, 0.0), first)
    far_root = pair_root_f64(pair_times_f64(pair_sum_f64(term, left), factor))
    distant = far == 1.0
    high = select(distant, far_root.real, near_root.real * back)
    return complex(high, select(distant, far_root.imag, near_root.imag * back))


@function("f64 f64", "f64")
def inverse_size_f64(x, y):
    """acosh of the half axis a, which is the imaginary part of asin: log1p(t), t = root^2 / (a + 1) + root."""
    root = hull_root_f64(x, y, 1.0, select(x >= 1.0, 1.0, 0.0))
    axis = pair_sum_f64(half_axis_parts_f64(x, y), complex(1.0, 0.0))
    t = pair_sum_f64(pair_quotient_f64(pair_times_f64(root, root), axis), root)
    u = 1.0 + t.real
    parts = log_parts_f64(u, sum_error_f64(1.0, t.real, u) + t.imag)
    small = t.real + fma_f64(-0.5 * t.real * t.real, fma_f64(t.real, -2.0 / 3.0, 1.0), t.imag)
    return select(t.real < 1e-6, small, parts.real + parts.imag)


@function("f64 f64 f64", "f64")
def inverse_angle_f64(x, y, turned):
    """atan(x / root) for x, y >= 0, the real part of asin; atan2(root, x) for turned 1.0, atan2(root, -x) for 2.0."""
    root = hull_root_f64(x, y, x, select(x < 1.0, 1.0, 0.0))
    root_steep = root.real > x
    # of the smaller over the larger
    top = select(root_steep, x, root.real)
    bottom = select(root_steep, root.real, x)
    top_low = select(root_steep, 0.0, root.imag)
    bottom_low = select(root_steep, root.imag, 0.0)
    straight = select(root_steep, 0.0, 1.0)
    forward = select(root_steep, 1.0, 0.0)
    backward = select(root_steep, 3.0, 2.0)
    mode = select(turned == 0.0, straight, select(turned == 1.0, forward, backward))
    empty = bottom == 0.0
    return atan_pairs_f64(top, top_low, select(empty, 1.0, bottom), bottom_low, mode)
