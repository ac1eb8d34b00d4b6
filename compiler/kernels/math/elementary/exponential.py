"""exp, exp2, expm1 and logistic.

All reduce x = n ln2 + r with |r| <= ln2 / 2 (Cody and Waite), take a minimax polynomial of exp(r) and multiply by 2^n
in two halves, so that results down to the last subnormal are rounded once. n is found by adding 1.5 * 2^23 (float32) or
1.5 * 2^52 (float64): the sum's low bits are n, and no conversion to integers is needed. The constant carries twice the
exponent bias besides, so the two halves come out as ready exponent fields.

Polynomials: own minimax fits; the error of each is stated beside it.
"""

from __future__ import annotations

from hloom.compiler.kernels.math.bits import (
    abs_f32,
    abs_f64,
    bitcast_f32_u32,
    bitcast_f64_u64,
    bitcast_u32_f32,
    bitcast_u64_f64,
    copysign_f64,
    f32,
    fma_f32,
    fma_f64,
    polynomial,
    select,
    u32,
    u64,
)
from hloom.compiler.kernels.math.registry import function

LOG2_E = 1.4426950408889634
LN2_HIGH_F32, LN2_LOW_F32 = 0.69314718246459961, -1.904654299957768e-09
LN2_HIGH_F64, LN2_LOW_F64 = 0.69314718055994529, 2.3190468138462996e-17
EXPONENT_F32 = 12582912.0 + 254.0
EXPONENT_F64 = 6755399441055744.0 + 2046.0
# n + this has n + 127, the exponent field of 2^n, in its lowest bits
EXPONENT_FIELD_F32 = 12582912.0 + 127.0
INFINITY = float("inf")

# (exp(r) - 1 - r) / r^2 on |r| <= ln2 / 2; error of exp 2^-28.2 and 2^-57.9
EXP_F32 = (0.5, 0.166665182, 0.0416664556, 0.00836896151, 0.00139358512)
EXP_F64 = (
    0.5000000000000013,
    0.16666666666666685,
    0.04166666666651141,
    0.008333333333315448,
    0.0013888888947933243,
    0.00019841269900520802,
    2.480148908106658e-05,
    2.7557230794917104e-06,
    2.763156618040314e-07,
    2.511337855391144e-08,
)
# the same of exp(-r)
EXP_NEGATED_F32 = tuple(-c if k % 2 else c for k, c in enumerate(EXP_F32))
EXP_NEGATED_F64 = tuple(-c if k % 2 else c for k, c in enumerate(EXP_F64))
# (exp(r) - 1 - r - r^2 / 2) / r^3 on |r| <= ln2 / 2; error of expm1 2^-55.2
EXPM1_F64 = (
    0.1666666666666668,
    0.04166666666661948,
    0.008333333333318298,
    0.0013888888920737085,
    0.00019841269895719694,
    2.480151603407308e-05,
    2.755723395543517e-06,
    2.7622361037525893e-07,
    2.511271088290233e-08,
)


# ---- pieces: 2^n, and exp(x) / 2^n as a sum of two numbers


@function("f32 f32", "f32")
def scale_grown_f32(grown, shifted):
    """(1 + grown) * 2^n, rounded once where that is normal; `shifted` = n + EXPONENT_F32, -152 <= n <= 130."""
    bits = bitcast_f32_u32(shifted)
    half = u32(bits >> u32(1))
    first = bitcast_u32_f32(u32(half << u32(23)))
    second = bitcast_u32_f32(u32(u32(bits - half) << u32(23)))
    return fma_f32(first, grown, first) * second


@function("f64 f64", "f64")
def scale_f64(x, shifted):
    """x * 2^n, where `shifted` = n + EXPONENT_F64 and -1080 <= n <= 1030."""
    bits = bitcast_f64_u64(shifted)
    half = bits >> u64(1)
    first = bitcast_u64_f64(half << u64(52))
    second = bitcast_u64_f64((bits - half) << u64(52))
    return x * first * second


@function("f64 f64", "f64")
def scale_grown_f64(grown, shifted):
    """(1 + grown) * 2^n, rounded once where that is normal; `shifted` as for scale_f64."""
    bits = bitcast_f64_u64(shifted)
    half = bits >> u64(1)
    first = bitcast_u64_f64(half << u64(52))
    second = bitcast_u64_f64((bits - half) << u64(52))
    return fma_f64(first, grown, first) * second


@function("f64 f64", "c128", 0.01)
def exp_parts_f64(x, low):
    """exp(x + low) / 2^n as high + low (real and imag of the result), n = round(x / ln2); |low| far below |x|."""
    n = fma_f64(x, LOG2_E, EXPONENT_F64) - EXPONENT_F64
    near = fma_f64(n, -LN2_HIGH_F64, x)
    r = fma_f64(n, -LN2_LOW_F64, near)
    rest = fma_f64(n, -LN2_LOW_F64, near - r) + low
    tail = r * r * polynomial(r, EXP_F64)
    tail = tail + fma_f64(rest, r + tail, rest)
    grown = r + tail
    grown_low = tail - (grown - r)
    high = 1.0 + grown
    return complex(high, (grown - (high - 1.0)) + grown_low)


@function("f64", "c128", 0.01)
def expm1_parts_f64(x):
    """expm1(x) as high + low (real and imag of the result), for -700 <= x <= 700."""
    shifted = fma_f64(x, LOG2_E, EXPONENT_F64)
    n = shifted - EXPONENT_F64
    near = fma_f64(n, -LN2_HIGH_F64, x)
    r = fma_f64(n, -LN2_LOW_F64, near)
    rest = fma_f64(n, -LN2_LOW_F64, near - r)
    # the square term in two parts: it is up to a sixth of the result
    square = r * r
    half = 0.5 * square
    half_low = 0.5 * fma_f64(r, r, -square)
    tail = fma_f64(square * r, polynomial(r, EXPM1_F64), half_low + fma_f64(rest, r, rest))
    first = r + half
    first_low = half - (first - r)
    power = scale_f64(1.0, shifted)
    scaled = power * first
    base = power - 1.0
    high = base + scaled
    step = high - base
    error = (base - (high - step)) + (scaled - step)
    base_error = (power - base) - 1.0
    low = error + (base_error + power * (tail + first_low))
    result = high + low
    return complex(result, low - (result - high))


# ---- exp


@function("f32", "f32")
def exp_f32(x):
    """Cody-Waite reduction, degree 6 polynomial."""
    x = select(x > f32(89.0), f32(89.0), x)
    x = select(x < f32(-105.0), f32(-105.0), x)
    shifted = fma_f32(x, f32(LOG2_E), f32(EXPONENT_F32))
    n = shifted - f32(EXPONENT_F32)
    r = fma_f32(n, f32(-LN2_HIGH_F32), x)
    r = fma_f32(n, f32(-LN2_LOW_F32), r)
    return scale_grown_f32(fma_f32(r * r, polynomial(r, EXP_F32), r), shifted)


@function("f64", "f64")
def exp_f64(x):
    """Cody-Waite reduction, degree 11 polynomial."""
    x = select(x > 710.0, 710.0, x)
    x = select(x < -746.0, -746.0, x)
    shifted = fma_f64(x, LOG2_E, EXPONENT_F64)
    n = shifted - EXPONENT_F64
    r = fma_f64(n, -LN2_HIGH_F64, x)
    r = fma_f64(n, -LN2_LOW_F64, r)
    return scale_grown_f64(fma_f64(r * r, polynomial(r, EXP_F64), r), shifted)


@function("f64 f64", "f64")
def exp_sum_f64(x, low):
    """exp(x + low), |low| far below |x|: for powers, where the exponent needs more bits than one number has."""
    low = select(abs_f64(x) < 746.0, low, 0.0)
    x = select(x > 710.0, 710.0, x)
    x = select(x < -746.0, -746.0, x)
    parts = exp_parts_f64(x, low)
    return scale_f64(parts.real + parts.imag, fma_f64(x, LOG2_E, EXPONENT_F64))


# ---- exp2: (2^r - 1) / r on |r| <= 1/2


@function("f32", "f32")
def exp2_f32(x):
    """exact reduction to |r| <= 1/2, then exp(r ln2) with the product in two parts."""
    x = select(x > f32(129.0), f32(129.0), x)
    x = select(x < f32(-151.0), f32(-151.0), x)
    shifted = x + f32(EXPONENT_F32)
    r = x - (shifted - f32(EXPONENT_F32))
    scaled = r * f32(LN2_HIGH_F32)
    low = fma_f32(r, f32(LN2_HIGH_F32), -scaled) + r * f32(LN2_LOW_F32)
    tail = fma_f32(scaled * scaled, polynomial(scaled, EXP_F32), low)
    return scale_grown_f32(scaled + tail, shifted)


@function("f64", "f64")
def exp2_f64(x):
    """exact reduction to |r| <= 1/2, then exp(r ln2) with the product in two parts."""
    x = select(x > 1025.0, 1025.0, x)
    x = select(x < -1076.0, -1076.0, x)
    shifted = x + EXPONENT_F64
    r = x - (shifted - EXPONENT_F64)
    scaled = r * LN2_HIGH_F64
    low = fma_f64(r, LN2_HIGH_F64, -scaled) + r * LN2_LOW_F64
    tail = fma_f64(scaled * scaled, polynomial(scaled, EXP_F64), low)
    return scale_grown_f64(scaled + tail, shifted)


# ---- expm1


@function("f32", "f32")
def expm1_f32(x):
    """2^n expm1(r) + (2^n - 1), rounded once."""
    clamped = select(x > f32(89.0), f32(89.0), x)
    clamped = select(clamped < f32(-20.0), f32(-20.0), clamped)
    # half of the result, because 2^n alone overflows; otherwise exact scaling by 2
    shifted = fma_f32(clamped, f32(LOG2_E), f32(EXPONENT_FIELD_F32 - 1.0))
    n = shifted - f32(EXPONENT_FIELD_F32 - 1.0)
    r = fma_f32(n, f32(-LN2_LOW_F32), fma_f32(n, f32(-LN2_HIGH_F32), clamped))
    power = bitcast_u32_f32(u32(bitcast_f32_u32(shifted) << u32(23)))
    grown = fma_f32(r * r, polynomial(r, EXP_F32), r)
    result = f32(2.0) * fma_f32(power, grown, power - f32(0.5))
    # half of a tiny x may be subnormal, where halving is not exact; and this keeps the sign of a zero
    return select(abs_f32(x) < f32(1e-30), x, result)


@function("f64", "f64")
def expm1_f64(x):
    """2^n expm1(r) + (2^n - 1) in two parts."""
    clamped = select(x > 690.0, 690.0, x)
    clamped = select(clamped < -40.0, -40.0, clamped)
    parts = expm1_parts_f64(clamped)
    result = select(abs_f64(x) < 1e-200, x, parts.real)
    return copysign_f64(select(x > 80.0, exp_f64(x), result), x)


# ---- logistic: 1 / (1 + exp(-x))


# 1 / (1 + 2^n (1 + grown)) = 2^-h / (2^-h + 2^(n-h) (1 + grown)) with h near n / 2: no power leaves the range, and
# results down to the last subnormal are rounded by the division alone.


@function("f32", "f32")
def logistic_f32(x):
    """one division by 1 + exp(-x), both scaled; what sum and quotient lost is made good once."""
    x = select(x > f32(105.0), f32(105.0), x)
    x = select(x < f32(-105.0), f32(-105.0), x)
    shifted = fma_f32(x, f32(-LOG2_E), f32(EXPONENT_F32))
    n = shifted - f32(EXPONENT_F32)
    negated = fma_f32(n, f32(LN2_LOW_F32), fma_f32(n, f32(LN2_HIGH_F32), x))
    grown = fma_f32(negated * negated, polynomial(negated, EXP_NEGATED_F32), -negated)
    bits = bitcast_f32_u32(shifted)
    half = u32(bits >> u32(1))
    one = bitcast_u32_f32(u32(u32(u32(254) - half) << u32(23)))
    power = bitcast_u32_f32(u32(u32(bits - half) << u32(23)))
    total = one + power
    rest = fma_f32(power, grown, power - (total - one))
    sum = total + rest
    low = rest - (sum - total)
    quotient = one / sum
    remainder = fma_f32(-quotient, sum, one) - quotient * low
    return fma_f32(remainder, quotient * bitcast_u32_f32(u32(half << u32(23))), quotient)


@function("f64", "f64")
def logistic_f64(x):
    """one division by 1 + exp(-x), both scaled; what sum and quotient lost is made good once."""
    x = select(x > 746.0, 746.0, x)
    x = select(x < -746.0, -746.0, x)
    shifted = fma_f64(x, -LOG2_E, EXPONENT_F64)
    n = shifted - EXPONENT_F64
    negated = fma_f64(n, LN2_LOW_F64, fma_f64(n, LN2_HIGH_F64, x))
    grown = fma_f64(negated * negated, polynomial(negated, EXP_NEGATED_F64), -negated)
    bits = bitcast_f64_u64(shifted)
    half = bits >> u64(1)
    one = bitcast_u64_f64((u64(2046) - half) << u64(52))
    power = bitcast_u64_f64((bits - half) << u64(52))
    total = one + power
    rest = fma_f64(power, grown, power - (total - one))
    sum = total + rest
    low = rest - (sum - total)
    quotient = one / sum
    remainder = fma_f64(-quotient, sum, one) - quotient * low
    return fma_f64(remainder, quotient * bitcast_u64_f64(half << u64(52)), quotient)
