"""log, log1p, log2, log10.

x = 2^e m with sqrt(1/2) <= m < sqrt(2), taken from the bit pattern; then log x = e ln2 + log m. float32 takes
log(1 + f) as f - f^2/2 + f^3 P(f) (Cephes' form), float64 as 2 s + s^3 P(s^2), s = f / (2 + f) (fdlibm's form).
Where a double has too few bits (powers, other bases, inverse hyperbolic functions) `log_parts_f64` gives the logarithm
as a sum of two.
Polynomials: own minimax fits, the error of each stated beside it.
"""

from __future__ import annotations

from hloom.compiler.kernels.math.bits import (
    abs_f64,
    bitcast_f32_u32,
    bitcast_f64_u64,
    bitcast_u32_f32,
    bitcast_u64_f64,
    f32,
    fma_f32,
    fma_f64,
    polynomial,
    s32,
    select,
    u32,
    u64,
)
from hloom.compiler.kernels.math.registry import function, rounded_from

NAN = float("nan")
INFINITY = float("inf")
MINIMUM_NORMAL_F32 = 2.0**-126
MINIMUM_NORMAL_F64 = 2.0**-1022
LN2 = 0.6931471805599453
# ln2 in parts: e times the first is exact for every exponent e
LN2_FIRST_F32, LN2_REST_F32 = 0.693359375, -0.00021219444005469057
LN2_FIRST_F64, LN2_REST_F64 = 0.6931471803691238, 1.9082149292705877e-10
TWO_THIRDS_HIGH, TWO_THIRDS_LOW = 0.6666666666666666, 3.700743415417188e-17
INVERSE_LN2_HIGH, INVERSE_LN2_LOW = 1.4426950408889634, 2.0355273740931033e-17
INVERSE_LN10_HIGH, INVERSE_LN10_LOW = 0.4342944819032518, 1.098319650216765e-17
LOG10_2_FIRST, LOG10_2_REST = 0.30102999566361177, 3.694239077158931e-13

# (log(1 + f) - f + f^2 / 2) / f^3 on sqrt(1/2) <= 1 + f <= sqrt(2); relative error of the logarithm 2^-27.3
LOG_F32 = (
    0.333333164,
    -0.250008136,
    0.200022995,
    -0.166244447,
    0.141810194,
    -0.131298333,
    0.128822684,
    -0.078564249,
)
# (2 atanh(s) - 2 s) / s^3 in s^2; relative error of the logarithm 2^-59.5
LOG_F64 = (
    0.6666666666666735,
    0.3999999999940888,
    0.28571428743865096,
    0.222221984049086,
    0.1818357384871822,
    0.15313788628801991,
    0.14798741625477624,
)
# ((2 atanh(s) - 2 s) / s^3 - 2/3) / s^2 in s^2; relative error of the logarithm 2^-73
LOG_REST_F64 = (
    0.3999999999999998,
    0.2857142857144384,
    0.2222222221778948,
    0.18181818844065403,
    0.15384558420890948,
    0.13336264890022412,
    0.11675770906001783,
    0.11981850381679258,
)


# ---- pieces


@function("f64 f64 f64", "f64")
def sum_error_f64(x, y, total):
    """x + y - total, exactly, where total = x + y was rounded (Knuth)."""
    step = total - x
    return (x - (total - step)) + (y - step)


@function("f64", "f64")
def log_exponent_f64(x):
    """e of x = 2^e m, sqrt(1/2) <= m < sqrt(2), for normal positive x."""
    bits = bitcast_f64_u64(x) + u64(0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
    return bitcast_u64_f64((bits >> u64(52)) | u64(0x4330000000000000)) - 4503599627371519.0  # 2^52 + 1023


@function("f64", "f64")
def log_mantissa_f64(x):
    """m of x = 2^e m, sqrt(1/2) <= m < sqrt(2), for normal positive x."""
    bits = bitcast_f64_u64(x) + u64(0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
    return bitcast_u64_f64((bits & u64(0x000FFFFFFFFFFFFF)) + u64(0x3FE6A09E667F3BCD))


@function("f64 f64", "c128", 0.01)
def log_mantissa_parts_f64(m, low):
    """log(m + low) as high + low (real and imag of the result), sqrt(1/2) <= m < sqrt(2); about 2^-64 of it."""
    f = m - 1.0
    bottom = 2.0 + f
    inverse = 1.0 / bottom
    s = f * inverse
    bottom_low = (f - (bottom - 2.0)) + low
    s_low = (fma_f64(-s, bottom, f) + fma_f64(-s, bottom_low, low)) * inverse
    square = s * s
    square_low = fma_f64(s, s, -square) + 2.0 * s * s_low
    rest = square * polynomial(square, LOG_REST_F64)
    factor = TWO_THIRDS_HIGH + rest
    factor_low = (rest - (factor - TWO_THIRDS_HIGH)) + TWO_THIRDS_LOW
    cube = square * factor
    cube_low = fma_f64(square, factor, -cube) + fma_f64(square, factor_low, square_low * factor)
    term = s * cube
    term_low = fma_f64(s, cube, -term) + fma_f64(s, cube_low, s_low * cube)
    twice = 2.0 * s
    high = twice + term
    return complex(high, (term - (high - twice)) + (term_low + 2.0 * s_low))


@function("f64 f64", "c128", 0.01)
def log_parts_f64(x, low):
    """log(x + low) as high + low (real and imag of the result), for finite x > 0 and |low| <= ulp(x)."""
    tiny = x < MINIMUM_NORMAL_F64
    x = select(tiny, x * 18014398509481984.0, x)  # 2^54
    low = select(tiny, low * 18014398509481984.0, low)
    e = log_exponent_f64(x)
    m = log_mantissa_f64(x)
    mantissa = log_mantissa_parts_f64(m, low * (m / x))
    e = e - select(tiny, 54.0, 0.0)
    first = e * LN2_FIRST_F64
    high = first + mantissa.real
    error = sum_error_f64(first, mantissa.real, high)
    rest = error + fma_f64(e, LN2_REST_F64, mantissa.imag)
    result = high + rest
    return complex(result, rest - (result - high))


@function("f64 f64", "f64")
def log_edges_f64(x, finite):
    """`finite` where 0 < x < inf, and log's value elsewhere."""
    result = select(x < INFINITY, finite, x)
    result = select(x < 0.0, NAN, result)
    return select(x == 0.0, -INFINITY, result)


@function("f32 f32", "f32")
def log_edges_f32(x, finite):
    """`finite` where 0 < x < inf, and log's value elsewhere."""
    result = select(x < f32(INFINITY), finite, x)
    result = select(x < f32(0.0), f32(NAN), result)
    return select(x == f32(0.0), f32(-INFINITY), result)


# ---- log


@function("f32", "f32")
def log_f32(x):
    """degree 10 polynomial (Cephes' form), e ln2 added in one fused operation."""
    tiny = x < f32(MINIMUM_NORMAL_F32)
    bits = bitcast_f32_u32(select(tiny, x * f32(8388608.0), x))
    moved = u32(bits - u32(0x3F3504F3))
    e = f32(s32(s32(moved) >> s32(23))) - select(tiny, f32(23.0), f32(0.0))
    f = bitcast_u32_f32(u32(bits - u32(moved & u32(0xFF800000)))) - f32(1.0)
    square = f * f
    near = f + fma_f32(square, f32(-0.5), square * f * polynomial(f, LOG_F32))
    return log_edges_f32(x, fma_f32(e, f32(LN2), near))


@function("f64", "f64")
def log_f64(x):
    """fdlibm's form, own polynomial; sum with e ln2 in two parts."""
    tiny = x < MINIMUM_NORMAL_F64
    scaled = select(tiny, x * 18014398509481984.0, x)
    e = log_exponent_f64(scaled) - select(tiny, 54.0, 0.0)
    f = log_mantissa_f64(scaled) - 1.0
    s = f / (2.0 + f)
    square = s * s
    half = 0.5 * f * f
    # log(1 + f) = f - (f^2/2 - s (f^2/2 + s^2 P)): the large terms are exact
    tail = fma_f64(s, fma_f64(square, polynomial(square, LOG_F64), half), e * LN2_REST_F64)
    first = e * LN2_FIRST_F64
    high = first + f
    error = f - (high - first)
    return log_edges_f64(x, high + (error + (tail - half)))


# ---- log1p


@function("f32", "f32")
def log1p_f32(x):
    """log of u + low = 1 + x, the part that rounding lost added at first order."""
    u = f32(1.0) + x
    step = u - f32(1.0)
    low = (f32(1.0) - (u - step)) + (x - step)
    bits = bitcast_f32_u32(u)
    moved = u32(bits - u32(0x3F3504F3))
    exponent = u32(moved & u32(0xFF800000))
    e = f32(s32(s32(moved) >> s32(23)))
    f = bitcast_u32_f32(u32(bits - exponent)) - f32(1.0)
    # from 2^127 on the factor has no bit pattern, and the lost part no weight
    low = select(u < f32(1e30), low * bitcast_u32_f32(u32(u32(0x3F800000) - exponent)), f32(0.0))
    square = f * f
    # low / (1 + f) = low (1 - f + f^2)
    tail = fma_f32(square * f, polynomial(f, LOG_F32), fma_f32(low, square - f, low))
    result = fma_f32(e, f32(LN2), f + fma_f32(f32(-0.5), square, tail))
    result = select(x == f32(0.0), x, result)
    result = select(x < f32(INFINITY), result, x)
    result = select(x < f32(-1.0), f32(NAN), result)
    return select(x == f32(-1.0), f32(-INFINITY), result)


@function("f64", "f64")
def log1p_f64(x):
    """log of u + low = 1 + x in two parts."""
    u = 1.0 + x
    low = sum_error_f64(1.0, x, u)
    result = select(abs_f64(x) < 1e-290, x, log_parts_f64(u, low).real)
    result = select(x < INFINITY, result, x)
    result = select(x < -1.0, NAN, result)
    return select(x == -1.0, -INFINITY, result)


# ---- other bases


@function("f64", "f64")
def log_rest_f64(f):
    """log(1 + f) - f, sqrt(1/2) <= 1 + f < sqrt(2)."""
    s = f / (2.0 + f)
    square = s * s
    half = 0.5 * f * f
    return fma_f64(s, fma_f64(square, polynomial(square, LOG_F64), half), -half)


@function("f64", "f64")
def log2_f64(x):
    """e + log(m) / ln2, the quotient and the sum in two parts; exact for powers of two."""
    tiny = x < MINIMUM_NORMAL_F64
    scaled = select(tiny, x * 18014398509481984.0, x)
    e = log_exponent_f64(scaled) - select(tiny, 54.0, 0.0)
    f = log_mantissa_f64(scaled) - 1.0
    part = f * INVERSE_LN2_HIGH
    rest = fma_f64(f, INVERSE_LN2_HIGH, -part)
    rest = fma_f64(log_rest_f64(f), INVERSE_LN2_HIGH, fma_f64(f, INVERSE_LN2_LOW, rest))
    high = e + part
    return log_edges_f64(x, high + ((part - (high - e)) + rest))


@function("f64", "f64")
def log10_f64(x):
    """e log10(2) + log(m) / ln10, the quotient and the sum in two parts; exact for powers of ten."""
    tiny = x < MINIMUM_NORMAL_F64
    scaled = select(tiny, x * 18014398509481984.0, x)
    e = log_exponent_f64(scaled) - select(tiny, 54.0, 0.0)
    f = log_mantissa_f64(scaled) - 1.0
    part = f * INVERSE_LN10_HIGH
    rest = fma_f64(f, INVERSE_LN10_HIGH, fma_f64(e, LOG10_2_REST, -part))
    rest = fma_f64(log_rest_f64(f), INVERSE_LN10_HIGH, fma_f64(f, INVERSE_LN10_LOW, rest))
    first = e * LOG10_2_FIRST
    high = first + part
    return log_edges_f64(x, high + ((part - (high - first)) + rest))


rounded_from("f64", "f32", "log2 log10")
