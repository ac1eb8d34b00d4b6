"""pow, cbrt, hypot, rsqrt."""

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
    floor_f64,
    fma_f32,
    fma_f64,
    polynomial,
    s32,
    select,
    sqrt_f32,
    sqrt_f64,
    trunc_f32,
    trunc_f64,
    u32,
    u64,
)
from hloom.compiler.kernels.math.elementary.exponential import (
    EXP_F64,
    EXPONENT_F32,
    EXPONENT_F64,
    LN2_HIGH_F32,
    LN2_HIGH_F64,
    LN2_LOW_F64,
    LOG2_E,
    scale_f64,
    scale_grown_f32,
)
from hloom.compiler.kernels.math.elementary.logarithm import (
    INFINITY,
    LN2_FIRST_F64,
    LN2_REST_F64,
    LOG_REST_F64,
    MINIMUM_NORMAL_F32,
    MINIMUM_NORMAL_F64,
    NAN,
    TWO_THIRDS_HIGH,
    TWO_THIRDS_LOW,
    log_exponent_f64,
    log_mantissa_f64,
)
from hloom.compiler.kernels.math.registry import function, rounded_from

# 1 / cbrt(m) on [1, 8]; relative error 2^-8.4
INVERSE_CBRT = (
    1.4247240450763343,
    -0.5963339504123724,
    0.2036087043787387,
    -0.038550745315491644,
    0.0036885643382048184,
    -0.00013906483540226144,
)


# (log2((1 + s) / (1 - s)) - 2 s / ln2) / s^3 in s^2, |s| <= 0.1716; relative error of the logarithm 2^-36
LOG2_F32 = (0.9617967, 0.5770788, 0.41192722, 0.336492)
# (2^r - 1 - r ln2) / r^2 on |r| <= 1/2; error of 2^r 2^-28.2
EXP2_F32 = (0.24022648, 0.055503625, 0.0096185105, 0.0013390033, 0.00015324382)
TWO_OVER_LN2_F32, TWO_OVER_LN2_REST_F32 = 2.885390043258667, 3.851926067000022e-08


@function("f64 f64 f64", "f64")
def power_edges_f64(x, y, magnitude):
    """C's pow from `magnitude` = |x|^y: the sign, and NaN or 1 where the magnitude does not say."""
    whole = trunc_f64(y) == y
    half = 0.5 * y
    odd = whole & (trunc_f64(half) != half)
    result = select(odd, copysign_f64(magnitude, x), magnitude)
    result = select((x < 0.0) & (x > -INFINITY) & (not whole), NAN, result)
    result = select((x != x) | (y != y), NAN, result)
    return select((y == 0.0) | (x == 1.0), 1.0, result)


@function("f64", "c128", 0.01)
def power_log_parts_f64(x):
    """log(x) as high + low (real and imag of the result) for 0 < x < inf; about 2^-64 of it."""
    tiny = x < MINIMUM_NORMAL_F64
    x = select(tiny, x * 18014398509481984.0, x)  # 2^54
    e = log_exponent_f64(x) - select(tiny, 54.0, 0.0)
    m = log_mantissa_f64(x)
    # s = f / (2 + f) in two parts; log(1 + f) = 2 s + s (2/3 s^2 + s^4 P(s^2))
    f = m - 1.0
    bottom = 2.0 + f
    inverse = 1.0 / bottom
    s = f * inverse
    s_low = fma_f64(-s, f - (bottom - 2.0), fma_f64(-s, bottom, f)) * inverse
    square = s * s
    square_low = fma_f64(s, s, -square)
    slope = square * TWO_THIRDS_HIGH
    slope_low = fma_f64(square, TWO_THIRDS_HIGH, -slope)
    slope_low = fma_f64(square, TWO_THIRDS_LOW, fma_f64(square_low, TWO_THIRDS_HIGH, slope_low))
    tail = fma_f64(square * square, polynomial(square, LOG_REST_F64), slope_low)
    cube = s * slope
    cube_low = fma_f64(s, slope, -cube)
    twice = 2.0 * s
    near = twice + cube
    # d log / d s = 2 / (1 - s^2)
    low = fma_f64(s, tail, cube_low) + s_low * fma_f64(2.0, square + square * square, 2.0)
    low = (cube - (near - twice)) + low
    first = e * LN2_FIRST_F64
    high = first + near
    low = (near - (high - first)) + fma_f64(e, LN2_REST_F64, low)
    result = high + low
    return complex(result, low - (result - high))


@function("f64 f64", "f64")
def pow_f64(x, y):
    """exp(y log|x|) with logarithm and product in two parts."""
    base = abs_f64(x)
    parts = power_log_parts_f64(base)
    # |x| of 0, 1 and inf: logarithm exactly -inf, 0, inf, and 1^inf = 1
    high = select(base == 0.0, -INFINITY, parts.real)
    high = select(base == INFINITY, INFINITY, high)
    product = select(base == 1.0, 0.0, y * high)
    low = fma_f64(y, parts.imag, fma_f64(y, high, -product))
    low = select((abs_f64(product) < 746.0) & (base != 1.0), low, 0.0)
    product = select(product > 710.0, 710.0, product)
    product = select(product < -746.0, -746.0, product)
    shifted = fma_f64(product, LOG2_E, EXPONENT_F64)
    n = shifted - EXPONENT_F64
    r = fma_f64(n, -LN2_HIGH_F64, product)
    rest = fma_f64(n, -LN2_LOW_F64, low)
    tail = r * r * polynomial(r, EXP_F64)
    grown = tail + fma_f64(rest, r + tail, rest)
    total = r + grown
    one = 1.0 + total
    lost = (total - (one - 1.0)) + (grown - (total - r))
    return power_edges_f64(x, y, scale_f64(one + lost, shifted))


@function("f32 f32 f32", "f32")
def power_edges_f32(x, y, magnitude):
    """C's pow from `magnitude` = |x|^y: the sign, and NaN or 1 where the magnitude does not say."""
    whole = trunc_f32(y) == y
    half = f32(0.5) * y
    odd = whole & (trunc_f32(half) != half)
    result = select(odd, copysign_f32(magnitude, x), magnitude)
    result = select((x < f32(0.0)) & (x > f32(-INFINITY)) & (not whole), f32(NAN), result)
    result = select((x != x) | (y != y), f32(NAN), result)
    return select((y == f32(0.0)) | (x == f32(1.0)), f32(1.0), result)


@function("f32 f32", "f32")
def pow_f32(x, y):
    """2^(y log2|x|) with logarithm and product in two parts."""
    base = abs_f32(x)
    tiny = base < f32(MINIMUM_NORMAL_F32)
    bits = bitcast_f32_u32(select(tiny, base * f32(8388608.0), base))
    moved = u32(bits - u32(0x3F3504F3))
    e = f32(s32(s32(moved) >> s32(23))) - select(tiny, f32(23.0), f32(0.0))
    # log2(1 + f) = 2 s / ln2 + s^3 P, s = f / (2 + f) in two parts
    f = bitcast_u32_f32(u32(bits - u32(moved & u32(0xFF800000)))) - f32(1.0)
    bottom = f32(2.0) + f
    bottom_low = f - (bottom - f32(2.0))
    inverse = f32(1.0) / bottom
    s = f * inverse
    s_low = fma_f32(-s, bottom_low, fma_f32(-s, bottom, f)) * inverse
    square = s * s
    square_low = fma_f32(s, s, -square)
    tail = s * fma_f32(square, polynomial(square, LOG2_F32), f32(TWO_OVER_LN2_F32 / 3.0) * square_low)
    first = s * f32(TWO_OVER_LN2_F32)
    low = fma_f32(s, f32(TWO_OVER_LN2_REST_F32), fma_f32(s, f32(TWO_OVER_LN2_F32), -first))
    slope = fma_f32(square, f32(TWO_OVER_LN2_F32), f32(TWO_OVER_LN2_F32))
    low = fma_f32(s_low, slope, low) + tail
    total = e + first
    low = (first - (total - e)) + low
    high = total + low
    low = low - (high - total)
    high = select(base == f32(0.0), f32(-INFINITY), high)
    high = select(base == f32(INFINITY), f32(INFINITY), high)
    # 1^inf = 1; what the product of infinities leaves of its low part is NaN
    product = select(base == f32(1.0), f32(0.0), y * high)
    rest = fma_f32(y, low, fma_f32(y, high, -product))
    rest = select(abs_f32(rest) < f32(1.0), rest, f32(0.0))
    product = select(product > f32(129.0), f32(129.0), product)
    product = select(product < f32(-151.0), f32(-151.0), product)
    shifted = product + f32(EXPONENT_F32)
    r = (product - (shifted - f32(EXPONENT_F32))) + rest
    grown = fma_f32(r * r, polynomial(r, EXP2_F32), r * f32(LN2_HIGH_F32))
    return power_edges_f32(x, y, scale_grown_f32(grown, shifted))


@function("f32", "f32")
def rsqrt_f32(x):
    """1 / sqrt(x), corrected once by the remainders of root and quotient."""
    tiny = x < f32(2.0**-70)
    scaled = select(tiny, x * f32(2.0**64), x)
    root = sqrt_f32(scaled)
    result = f32(1.0) / root
    rest = fma_f32(-root, root, scaled)
    error = fma_f32(-result, root, f32(1.0)) - f32(0.5) * (result * rest) * result
    corrected = fma_f32(result, error, result)
    result = select((x > f32(0.0)) & (x < f32(INFINITY)), corrected, result)
    return select(tiny, result * f32(2.0**32), result)


@function("f64", "f64")
def rsqrt_f64(x):
    """1 / sqrt(x), corrected once by the remainders of root and quotient."""
    tiny = x < 2.0**-500
    scaled = select(tiny, x * 2.0**600, x)
    root = sqrt_f64(scaled)
    result = 1.0 / root
    rest = fma_f64(-root, root, scaled)
    error = fma_f64(-result, root, 1.0) - 0.5 * (result * rest) * result
    corrected = fma_f64(result, error, result)
    result = select((x > 0.0) & (x < INFINITY), corrected, result)
    return select(tiny, result * 2.0**300, result)


@function("f64 f64", "f64")
def hypot_f64(x, y):
    """sqrt(x^2 + y^2) in two parts, scaled by a power of two."""
    a = abs_f64(x)
    b = abs_f64(y)
    large = select(a > b, a, b)
    small = select(a > b, b, a)
    # 2^-k for large in [2^k, 2^(k+1)), limited so that it has a bit pattern
    bits = bitcast_f64_u64(large) & u64(0x7FF0000000000000)
    bits = select(bits < u64(0x0020000000000000), u64(0x0020000000000000), bits)
    bits = select(bits > u64(0x7FD0000000000000), u64(0x7FD0000000000000), bits)
    scale = bitcast_u64_f64(u64(0x7FE0000000000000) - bits)
    back = bitcast_u64_f64(bits)
    p = large * scale
    q = small * scale
    square = p * p
    other = q * q
    total = square + other
    low = (other - (total - square)) + (fma_f64(p, p, -square) + fma_f64(q, q, -other))
    root = sqrt_f64(total)
    root = root + select(root > 0.0, 0.5 * (fma_f64(-root, root, total) + low) / root, 0.0)
    result = select(large == 0.0, 0.0, root * back)
    result = select((a == INFINITY) | (b == INFINITY), INFINITY, result)
    return select(((x != x) & (b != INFINITY)) | ((y != y) & (a != INFINITY)), NAN, result)


@function("f32 f32", "f32")
def hypot_f32(x, y):
    """sqrt(x^2 + y^2) in float64."""
    a = f64(x)
    b = f64(y)
    infinite = (abs_f64(a) == INFINITY) | (abs_f64(b) == INFINITY)
    return f32(select(infinite, INFINITY, sqrt_f64(fma_f64(a, a, b * b))))


@function("f64", "f64")
def cbrt_f64(x):
    """polynomial of m^(-1/3) on [1, 8), two Newton steps, one last step with the exact remainder."""
    magnitude = abs_f64(x)
    tiny = magnitude < 2.2250738585072014e-308
    scaled = select(tiny, magnitude * 18014398509481984.0, magnitude)  # 2^54
    bits = bitcast_f64_u64(scaled)
    exponent = bitcast_u64_f64((bits >> u64(52)) | u64(0x4330000000000000)) - 4503599627371519.0  # 2^52 + 1023
    third = floor_f64((exponent + 0.5) * 0.3333333333333333)
    power = exponent - 3.0 * third
    mantissa = bitcast_u64_f64((bits & u64(0x000FFFFFFFFFFFFF)) | u64(0x3FF0000000000000))
    mantissa = mantissa * select(power == 0.0, 1.0, select(power == 1.0, 2.0, 4.0))
    inverse = polynomial(mantissa, INVERSE_CBRT)
    # inverse *= 1 + (1 - m inverse^3) / 3 + 2/9 (...)^2
    error = 1.0 - mantissa * inverse * inverse * inverse
    inverse = fma_f64(inverse * error, fma_f64(error, 0.2222222222222222, 0.3333333333333333), inverse)
    error = 1.0 - mantissa * inverse * inverse * inverse
    inverse = fma_f64(inverse * error, 0.3333333333333333, inverse)
    root = mantissa * inverse * inverse
    square = root * root
    square_low = fma_f64(root, root, -square)
    cube = square * root
    cube_low = fma_f64(square, root, -cube) + square_low * root
    root = root + 0.3333333333333333 * ((mantissa - cube) - cube_low) * inverse * inverse
    third = third - select(tiny, 18.0, 0.0)
    back = bitcast_u64_f64(bitcast_f64_u64(third + 6755399441056767.0) << u64(52))  # 1.5 * 2^52 + 1023
    result = copysign_f64(root * back, x)
    return select((magnitude < INFINITY) & (magnitude > 0.0), result, x)


rounded_from("f64", "f32", "cbrt")
