"""sin, cos, tan and their inverses.

x = n pi/2 + r with |r| <= pi/4. One fused multiply-add with the first 53 bits of pi/2 is exact up to |x| = 2^45, and
float64's next parts of pi/2 bring r to some hundred bits; float32 does the same in float64, where one part more is
enough. Larger |x| go to `reduction`. Polynomials: own minimax fits, the error of each stated beside it.
"""

from __future__ import annotations

from hloom.compiler.kernels.math.bits import (
    abs_f32,
    abs_f64,
    bitcast_f32_u32,
    bitcast_f64_u64,
    bitcast_u32_f32,
    bitcast_u64_f64,
    copysign_f32,
    copysign_f64,
    f32,
    f64,
    fma_f32,
    fma_f64,
    polynomial,
    select,
    sqrt_f32,
    sqrt_f64,
    u32,
    u64,
)
from hloom.compiler.kernels.math.elementary.logarithm import INFINITY, NAN
from hloom.compiler.kernels.math.elementary.range_reduction import HUGE
from hloom.compiler.kernels.math.registry import FUNCTIONS, function, rounded_from

huge_sin_f32, huge_sin_f64 = FUNCTIONS["huge_sin_f32"].python, FUNCTIONS["huge_sin_f64"].python
huge_cos_f32, huge_cos_f64 = FUNCTIONS["huge_cos_f32"].python, FUNCTIONS["huge_cos_f64"].python
huge_tan_f32, huge_tan_f64 = FUNCTIONS["huge_tan_f32"].python, FUNCTIONS["huge_tan_f64"].python

TWO_OVER_PI = 0.6366197723675814
PI, PI_F64_REST = 3.141592653589793, 1.2246467991473532e-16
HALF_PI, HALF_PI_SECOND, HALF_PI_THIRD = 1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33
QUARTER_PI, QUARTER_PI_REST = 0.7853981633974483, 3.061616997868383e-17
HALF_PI_F32, HALF_PI_REST_F32 = 1.5707963705062866, -4.371138828673793e-08
ROUND_F64 = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer, which the low bits then hold
TAN_EIGHTH_PI = 0.41421356237309503

# (sin(r) - r) / r^3 and (cos(r) - 1 + r^2 / 2) / r^4 in r^2, |r| <= pi/4; error 2^-28, 2^-33; 2^-57.9, 2^-64.1
SIN_F32 = (-0.166666552, 0.0083321901, -0.00019518417)
COS_F32 = (0.0416666456, -0.00138873095, 2.44323492e-05)
SIN_F64 = (
    -0.16666666666666632,
    0.008333333333322462,
    -0.00019841269829821108,
    2.7557313690630687e-06,
    -2.505075723365212e-08,
    1.5896714494243598e-10,
)
COS_F64 = (
    0.0416666666666666,
    -0.0013888888888874448,
    2.4801587289642504e-05,
    -2.7557314389613104e-07,
    2.087572738209985e-09,
    -1.1359820457004588e-11,
)
# (asin(x) - x) / x^3 in x^2, |x| <= 1/2; relative error 2^-27.6, 2^-55.8
ASIN_F32 = (
    0.166667536,
    0.0749525428,
    0.0454757251,
    0.0241534039,
    0.042210225,
)
ASIN_F64 = (
    0.16666666666665378,
    0.07500000000344317,
    0.04464285682236009,
    0.03038195937967682,
    0.022371752323396412,
    0.017359789684898565,
    0.013884410669891701,
    0.01217453949297688,
    0.006505286186018052,
    0.019589466309301716,
    -0.01631901063216616,
    0.031976421945892196,
)
# (atan(x) - x) / x^3 in x^2, |x| <= tan(pi/8); relative error 2^-30.4, 2^-59.4
ATAN_F32 = (
    -0.333333164,
    0.199985296,
    -0.142444089,
    0.105991647,
    -0.0608967617,
)
ATAN_F64 = (
    -0.333333333333332,
    0.19999999999953616,
    -0.14285714280188175,
    0.11111110782644554,
    -0.09090897725264563,
    0.07692059501283928,
    -0.06663094565371587,
    0.05847811228892283,
    -0.050389153774635015,
    0.03805378981222041,
    -0.017894523912410004,
)


# ---- sin and cos


@function("f32 f32 u32", "f32")
def sine_quadrant_f32(r, low, quadrant):
    """sin(r + low + quadrant * pi/2) for |r| <= pi/4."""
    square = r * r
    sine = r + fma_f32(r * square, polynomial(square, SIN_F32), low)
    half = f32(0.5) * square
    cosine = f32(1.0) - half
    rest = fma_f32(-r, low, (f32(1.0) - cosine) - half)
    cosine = cosine + fma_f32(square * square, polynomial(square, COS_F32), rest)
    value = select((quadrant & u32(1)) != u32(0), cosine, sine)
    return bitcast_u32_f32(bitcast_f32_u32(value) ^ u32(u32(quadrant & u32(2)) << u32(30)))


@function("f32 u32", "f32")
def sine_shifted_f32(x, shift):
    """sin(x + shift * pi/2)."""
    wide = f64(x)
    shifted = fma_f64(wide, TWO_OVER_PI, ROUND_F64)
    n = shifted - ROUND_F64
    r = fma_f64(n, -HALF_PI_SECOND, fma_f64(n, -HALF_PI, wide))
    high = f32(r)
    return sine_quadrant_f32(high, f32(r - f64(high)), u32(u32(bitcast_f64_u64(shifted)) + shift))


@function("f32", "f32")
def sin_f32(x):
    """Cody-Waite reduction in float64, float32 polynomials of degree 7 and 8."""
    result = select(x == f32(0.0), x, sine_shifted_f32(x, u32(0)))
    return select(abs_f32(x) >= f32(HUGE), huge_sin_f32(x), result)


@function("f32", "f32")
def cos_f32(x):
    """Cody-Waite reduction in float64, float32 polynomials of degree 7 and 8."""
    return select(abs_f32(x) >= f32(HUGE), huge_cos_f32(x), sine_shifted_f32(x, u32(1)))


@function("f64", "c128", 0.01)
def quarter_turn_rest_f64(x):
    """r of x = n pi/2 + r, |r| <= pi/4, as high + low (real and imag of the result), |x| < 2^45."""
    n = fma_f64(x, TWO_OVER_PI, ROUND_F64) - ROUND_F64
    first = fma_f64(n, -HALF_PI, x)
    second = n * HALF_PI_SECOND
    second_low = fma_f64(n, HALF_PI_SECOND, -second)
    high = first - second
    step = high - first
    low = (first - (high - step)) - (second + step)
    return complex(high, fma_f64(n, -HALF_PI_THIRD, low - second_low))


@function("f64 f64", "c128", 0.01)
def sine_parts_f64(r, low):
    """sin(r + low) as high + low (real and imag of the result), |r| <= pi/4."""
    square = r * r
    tail = fma_f64(r * square, polynomial(square, SIN_F64), fma_f64(-0.5 * square, low, low))
    high = r + tail
    return complex(high, tail - (high - r))


@function("f64 f64", "c128", 0.01)
def cosine_parts_f64(r, low):
    """cos(r + low) as high + low (real and imag of the result), |r| <= pi/4."""
    square = r * r
    half = 0.5 * square
    high = 1.0 - half
    rest = ((1.0 - high) - half) - fma_f64(r, low, 0.5 * fma_f64(r, r, -square))
    rest = fma_f64(square * square, polynomial(square, COS_F64), rest)
    total = high + rest
    return complex(total, rest - (total - high))


@function("f64 u64", "f64")
def sine_shifted_f64(x, shift):
    """sin(x + shift * pi/2)."""
    rest = quarter_turn_rest_f64(x)
    quadrant = bitcast_f64_u64(fma_f64(x, TWO_OVER_PI, ROUND_F64)) + shift
    sine = sine_parts_f64(rest.real, rest.imag)
    cosine = cosine_parts_f64(rest.real, rest.imag)
    value = select((quadrant & u64(1)) != u64(0), cosine.real, sine.real)
    return bitcast_u64_f64(bitcast_f64_u64(value) ^ ((quadrant & u64(2)) << u64(62)))


@function("f64", "f64")
def sin_f64(x):
    """Cody-Waite reduction to two parts, polynomials of degree 13 and 14."""
    result = select(x == 0.0, x, sine_shifted_f64(x, u64(0)))
    return select(abs_f64(x) >= HUGE, huge_sin_f64(x), result)


@function("f64", "f64")
def cos_f64(x):
    """Cody-Waite reduction to two parts, polynomials of degree 13 and 14."""
    return select(abs_f64(x) >= HUGE, huge_cos_f64(x), sine_shifted_f64(x, u64(1)))


@function("f64", "f64")
def tan_f64(x):
    """sine over cosine, or minus its inverse, all in two parts."""
    rest = quarter_turn_rest_f64(x)
    odd = (bitcast_f64_u64(fma_f64(x, TWO_OVER_PI, ROUND_F64)) & u64(1)) != u64(0)
    sine = sine_parts_f64(rest.real, rest.imag)
    cosine = cosine_parts_f64(rest.real, rest.imag)
    top = select(odd, cosine.real, sine.real)
    top_low = select(odd, cosine.imag, sine.imag)
    bottom = select(odd, -sine.real, cosine.real)
    bottom_low = select(odd, -sine.imag, cosine.imag)
    inverse = 1.0 / bottom
    quotient = top * inverse
    remainder = fma_f64(-quotient, bottom_low, fma_f64(-quotient, bottom, top) + top_low)
    result = select(abs_f64(x) < 1e-100, x, fma_f64(remainder, inverse, quotient))
    return select(abs_f64(x) >= HUGE, huge_tan_f64(x), result)


@function("f32", "f32")
def tan_f32(x):
    """Cody-Waite reduction, sine over cosine in float64."""
    wide = f64(x)
    shifted = fma_f64(wide, TWO_OVER_PI, ROUND_F64)
    n = shifted - ROUND_F64
    r = fma_f64(n, -HALF_PI_SECOND, fma_f64(n, -HALF_PI, wide))
    odd = (bitcast_f64_u64(shifted) & u64(1)) != u64(0)
    square = r * r
    sine = fma_f64(r * square, polynomial(square, SIN_F64), r)
    cosine = fma_f64(square * square, polynomial(square, COS_F64), 1.0 - 0.5 * square)
    quotient = select(odd, cosine, sine) / select(odd, -sine, cosine)
    return select(abs_f32(x) >= f32(HUGE), huge_tan_f32(x), select(x == f32(0.0), x, f32(quotient)))


# ---- inverses


@function("f64 f64", "f64")
def asin_core_f64(magnitude, mode):
    """asin (mode 0), acos (mode 1) of a positive and acos of a negative number (mode -1), |x| = magnitude."""
    large = magnitude > 0.5
    half = 0.5 - 0.5 * magnitude
    square = select(large, half, magnitude * magnitude)
    root = sqrt_f64(half)
    root_low = select(root > 0.0, 0.5 * fma_f64(-root, root, half) / root, 0.0)
    base = select(large, root, magnitude)
    base_low = select(large, root_low, 0.0)
    tail = fma_f64(base * square, polynomial(square, ASIN_F64), base_low)
    # small: asin = base + tail; large: asin = pi/2 - 2 (base + tail); acos = pi/2 - asin
    factor = select(large, select(mode == 0.0, -2.0, 2.0 * mode), select(mode == 0.0, 1.0, -mode))
    positive_acos = large & (mode > 0.0)
    offset = select(positive_acos, 0.0, HALF_PI)
    offset = select(large & (mode < 0.0), PI, offset)
    offset = select((not large) & (mode == 0.0), 0.0, offset)
    offset_low = select(offset == 0.0, 0.0, select(offset == PI, PI_F64_REST, HALF_PI_SECOND))
    first = factor * base
    high = offset + first
    error = select(offset == 0.0, 0.0, first - (high - offset))
    return high + (error + fma_f64(factor, tail, offset_low))


@function("f64", "f64")
def asin_f64(x):
    """polynomial of degree 25 up to 1/2, pi/2 - 2 asin(sqrt((1 - |x|) / 2)) above."""
    return copysign_f64(asin_core_f64(abs_f64(x), 0.0), x)


@function("f64", "f64")
def acos_f64(x):
    """pi/2 - asin(x), in two parts; 2 asin(sqrt((1 - x) / 2)) above 1/2."""
    return asin_core_f64(abs_f64(x), select(x < 0.0, -1.0, 1.0))


@function("f32", "f32")
def asin_f32(x):
    """polynomial of degree 11 up to 1/2, pi/2 - 2 asin(sqrt((1 - |x|) / 2)) above, root and sum in two parts."""
    magnitude = abs_f32(x)
    large = magnitude > f32(0.5)
    half = f32(0.5) - f32(0.5) * magnitude
    square = select(large, half, magnitude * magnitude)
    root = sqrt_f32(half)
    root_low = select(root > f32(0.0), f32(0.5) * fma_f32(-root, root, half) / root, f32(0.0))
    base = select(large, root, magnitude)
    tail = fma_f32(base * square, polynomial(square, ASIN_F32), select(large, root_low, f32(0.0)))
    first = f32(2.0) * base
    high = f32(HALF_PI_F32) - first
    low = (f32(HALF_PI_F32) - high) - first
    above = high + fma_f32(f32(-2.0), tail, low + f32(HALF_PI_REST_F32))
    return copysign_f32(select(large, above, base + tail), x)


@function("f64 f64 f64 f64 f64", "f64")
def atan_pairs_f64(top, low_top, bottom, low_bottom, mirrored):
    """atan of the quotient of two numbers in two parts, 0 <= top <= bottom, and multiples of pi/2 minus or plus it.

    mirrored: 0: atan; 1: pi/2 - atan; 2: pi - atan; 3: pi/2 + atan.
    """
    # above tan(pi/8): atan(t / b) = pi/4 + atan((t - b) / (t + b))
    upper = top > TAN_EIGHTH_PI * bottom
    difference = top - bottom
    total = top + bottom
    new_top = select(upper, difference, top)
    new_bottom = select(upper, total, bottom)
    step = difference - top
    top_low = low_top + select(upper, (top - (difference - step)) - (bottom + step) - low_bottom, 0.0)
    bottom_low = low_bottom + select(upper, (top - (total - bottom)) + low_top, 0.0)
    inverse = 1.0 / new_bottom
    t = new_top * inverse
    remainder = fma_f64(-t, bottom_low, fma_f64(-t, new_bottom, new_top) + top_low)
    t_low = remainder * inverse
    square = t * t
    tail = fma_f64(t * square, polynomial(square, ATAN_F64), fma_f64(-square, t_low, t_low))
    # the multiple of pi/4 in front, and the sign of the rest
    negative = (mirrored == 1.0) | (mirrored == 2.0)
    quarters = select(mirrored == 2.0, 4.0, select(mirrored == 0.0, 0.0, 2.0))
    quarters = quarters + select(upper, select(negative, -1.0, 1.0), 0.0)
    sign = select(negative, -1.0, 1.0)
    offset = quarters * QUARTER_PI
    offset_low = fma_f64(quarters, QUARTER_PI, -offset) + quarters * QUARTER_PI_REST
    first = sign * t
    high = offset + first
    error = select(quarters == 0.0, 0.0, first - (high - offset))
    return high + (error + fma_f64(sign, tail, offset_low))


@function("f64 f64 f64", "f64")
def atan_quotient_f64(top, bottom, mirrored):
    """`atan_pairs_f64` of rounded numbers."""
    return atan_pairs_f64(top, -0.0, bottom, 0.0, mirrored)


@function("f64", "f64")
def atan_f64(x):
    """polynomial of degree 23 up to tan(pi/8), quotients in two parts above."""
    magnitude = abs_f64(x)
    inverted = magnitude > 1.0
    huge = magnitude > 1e100
    bounded = select(huge, 1e100, magnitude)
    result = atan_quotient_f64(
        select(inverted, 1.0, bounded), select(inverted, bounded, 1.0), select(inverted, 1.0, 0.0)
    )
    result = select(magnitude < 1e-100, magnitude, result)
    return copysign_f64(result, x)


@function("f32", "f32")
def atan_f32(x):
    """polynomial of degree 11 up to tan(pi/8), pi/4 and pi/2 minus the rest above; quotient in two parts."""
    magnitude = abs_f32(x)
    inverted = magnitude > f32(2.414213562373095)
    upper = magnitude > f32(TAN_EIGHTH_PI)
    total = magnitude + f32(1.0)
    # (magnitude - 1) / (magnitude + 1) = 1 - 2 / (magnitude + 1): only the denominator is rounded
    top = select(inverted, f32(-1.0), select(upper, magnitude - f32(1.0), magnitude))
    bottom = select(inverted, magnitude, select(upper, total, f32(1.0)))
    larger = select(magnitude > f32(1.0), magnitude, f32(1.0))
    smaller = select(magnitude > f32(1.0), f32(1.0), magnitude)
    between = upper & (not inverted)
    bottom_low = select(between, smaller - (total - larger), f32(0.0))
    top_low = select(between & (magnitude < f32(1.0)), magnitude - (top + f32(1.0)), f32(0.0))
    inverse = f32(1.0) / bottom
    t = top * inverse
    t_low = fma_f32(-t, bottom_low, fma_f32(-t, bottom, top) + top_low) * inverse
    t_low = select(magnitude < f32(1e30), t_low, f32(0.0))
    square = t * t
    tail = fma_f32(t * square, polynomial(square, ATAN_F32), t_low)
    offset = select(inverted, f32(HALF_PI_F32), select(upper, f32(0.5 * HALF_PI_F32), f32(0.0)))
    rest = select(inverted, f32(HALF_PI_REST_F32), select(upper, f32(0.5 * HALF_PI_REST_F32), f32(0.0)))
    high = offset + t
    low = select(upper, t - (high - offset), f32(0.0))
    return copysign_f32(high + ((low + rest) + tail), x)


@function("f64 f64", "f64")
def atan2_f64(y, x):
    """atan of the smaller over the larger, scaled by a power of two."""
    a = abs_f64(y)
    b = abs_f64(x)
    steep = a > b
    backward = bitcast_f64_u64(x) >> u64(63) != u64(0)
    large = select(steep, a, b)
    small = select(steep, b, a)
    # both infinite: the diagonal; one infinite: the axis; both zero: angle zero
    small = select(large == INFINITY, select(small == INFINITY, 1.0, 0.0), small)
    large = select(large == INFINITY, 1.0, select(large == 0.0, 1.0, large))
    # a quotient this small is its own angle, rounded once
    tiny = (not backward) & (not steep) & (small < large * 1e-140)
    plain = small / large
    # out of the way of overflow and underflow, exactly
    factor = select(large > 1e150, 2.0**-600, select(large < 1e-150, 2.0**600, 1.0))
    small = small * factor
    large = large * factor
    mode = select(steep, select(backward, 3.0, 1.0), select(backward, 2.0, 0.0))
    result = atan_quotient_f64(small, large, mode)
    result = select(tiny, plain, result)
    result = select((x != x) | (y != y), NAN, result)
    return copysign_f64(result, y)


rounded_from("f64", "f32", "acos atan2")
