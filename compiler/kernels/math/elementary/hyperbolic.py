"""tanh, sinh, cosh and their inverses.

float64 goes through expm1 and log1p in two parts, because the usual formulas lose one to two bits. float32 tanh has its
own polynomial; the other float32 functions are float64's, rounded.
"""

from __future__ import annotations

from hloom.compiler.kernels.math.bits import (
    abs_f32,
    abs_f64,
    bitcast_f32_u32,
    bitcast_u32_f32,
    copysign_f32,
    copysign_f64,
    f32,
    fma_f32,
    fma_f64,
    polynomial,
    select,
    sqrt_f64,
    u32,
)
from hloom.compiler.kernels.math.elementary.exponential import (
    EXP_F32,
    EXPONENT_F64,
    EXPONENT_FIELD_F32,
    LOG2_E,
    exp_parts_f64,
    expm1_parts_f64,
    scale_f64,
)
from hloom.compiler.kernels.math.elementary.logarithm import INFINITY, LN2, NAN, log_parts_f64, sum_error_f64
from hloom.compiler.kernels.math.registry import function, rounded_from

# (tanh(x) - x) / x^3 in x^2, |x| <= 0.42; relative error of tanh 2^-26.5
TANH_F32 = (-0.333332807, 0.133305088, -0.0534787104, 0.0184519142)
# (exp(2 r) - 1) / 2 = r + HALF_2 r^2 + ... + HALF_6 r^6
HALF_2, HALF_3, HALF_4, HALF_5, HALF_6 = (coefficient * 2.0 ** (k + 1) for k, coefficient in enumerate(EXP_F32))


@function("f32", "f32")
def tanh_f32(x):
    """odd polynomial below 0.42, E / (E + 2) with E = exp(2 |x|) - 1 above, 1 from 10 on.

    Recurrences wait for it, so the chain of dependent operations is short: limits are chosen beside it.
    """
    magnitude, square = abs_f32(x), x * x
    small = fma_f32(magnitude * square, polynomial(square, TANH_F32), magnitude)
    # 2 |x| = n ln2 + 2 r; E / 2 = 2^n (exp(2 r) - 1) / 2 + (2^n - 1) / 2. The float32 next to ln2 is 2^-29 from it, for
    # which E is large enough where n is.
    shifted = fma_f32(magnitude, f32(2.0 * LOG2_E), f32(EXPONENT_FIELD_F32))
    n = shifted - f32(EXPONENT_FIELD_F32)
    r = fma_f32(n, f32(-0.5 * LN2), magnitude)
    power = bitcast_u32_f32(u32(bitcast_f32_u32(shifted) << u32(23)))
    r2 = r * r
    grown = fma_f32(r2, fma_f32(r, f32(HALF_3), f32(HALF_2)), r)
    rest = fma_f32(r2, f32(HALF_6), fma_f32(r, f32(HALF_5), f32(HALF_4)))
    half = fma_f32(power, fma_f32(r2 * r2, rest, grown), fma_f32(power, f32(0.5), f32(-0.5)))
    large = select(magnitude > f32(10.0), f32(1.0), half / (half + f32(1.0)))
    return copysign_f32(select(magnitude < f32(0.42), small, large), x)


@function("f64", "f64")
def tanh_f64(x):
    """E / (E + 2) with E = expm1(2 |x|), all in two parts."""
    magnitude = abs_f64(x)
    y = 2.0 * select(magnitude > 22.0, 22.0, magnitude)
    parts = expm1_parts_f64(y)
    top = parts.real
    bottom = 2.0 + top
    bottom_low = sum_error_f64(2.0, top, bottom) + parts.imag
    inverse = 1.0 / bottom
    quotient = top * inverse
    remainder = fma_f64(-quotient, bottom_low, fma_f64(-quotient, bottom, top) + parts.imag)
    result = fma_f64(remainder, inverse, quotient)
    return copysign_f64(select(magnitude < 1e-150, magnitude, result), x)


@function("f64", "c128", 0.01)
def double_sinh_parts_f64(x):
    """2 sinh(x) = E + E / (E + 1) with E = expm1(x), as high + low (real and imag of the result), for 0 <= x <= 40."""
    parts = expm1_parts_f64(x)
    top = parts.real
    bottom = 1.0 + top
    bottom_low = sum_error_f64(1.0, top, bottom) + parts.imag
    inverse = 1.0 / bottom
    quotient = top * inverse
    remainder = fma_f64(-quotient, bottom_low, fma_f64(-quotient, bottom, top) + parts.imag)
    total = top + quotient
    return complex(total, (quotient - (total - top)) + fma_f64(remainder, inverse, parts.imag))


@function("f64", "f64")
def sinh_f64(x):
    """Half of 2 sinh(|x|) in two parts; exp(|x| - ln2) for large |x|."""
    magnitude = abs_f64(x)
    parts = double_sinh_parts_f64(select(magnitude > 40.0, 40.0, magnitude))
    result = 0.5 * (parts.real + parts.imag)
    result = select(magnitude < 1e-150, magnitude, result)
    return copysign_f64(select(magnitude > 40.0, half_exp_f64(magnitude), result), x)


@function("f64", "f64")
def half_exp_f64(x):
    """exp(x) / 2 for x >= 0, without overflow before the result overflows."""
    x = select(x > 712.0, 712.0, x)
    parts = exp_parts_f64(x, 0.0)
    return scale_f64(parts.real + parts.imag, fma_f64(x, LOG2_E, EXPONENT_F64) - 1.0)


@function("f64", "f64")
def cosh_f64(x):
    """(exp(|x|) + exp(-|x|)) / 2, exp in two parts."""
    magnitude = abs_f64(x)
    y = select(magnitude > 40.0, 40.0, magnitude)
    parts = exp_parts_f64(y, 0.0)
    power = scale_f64(0.5, fma_f64(y, LOG2_E, EXPONENT_F64))
    high = power * parts.real
    small = 0.25 / high
    total = high + small
    error = small - (total - high)
    result = total + fma_f64(power, parts.imag, error)
    return select(magnitude > 40.0, half_exp_f64(magnitude), result)


# ---- inverses: all log(1 + something), the something in two parts


@function("f64", "f64")
def asinh_f64(x):
    """log1p(|x| + x^2 / (1 + sqrt(1 + x^2))), argument in two parts; log(2 |x|) from 2^28."""
    magnitude = abs_f64(x)
    large = magnitude > 268435456.0
    y = select(large, 1.0, magnitude)
    square = y * y
    square_low = fma_f64(y, y, -square)
    one = 1.0 + square
    one_low = sum_error_f64(1.0, square, one) + square_low
    root = sqrt_f64(one)
    root_low = 0.5 * (fma_f64(-root, root, one) + one_low) / root
    bottom = 1.0 + root
    bottom_low = (1.0 - (bottom - root)) + root_low  # root >= 1
    quotient = square / bottom
    quotient_low = (fma_f64(-quotient, bottom, square) + square_low - quotient * bottom_low) / bottom
    total = y + quotient
    error = sum_error_f64(y, quotient, total) + quotient_low
    u = 1.0 + total
    rest = sum_error_f64(1.0, total, u) + error
    parts = log_parts_f64(select(large, magnitude, u), select(large, 0.0, rest))
    result = parts.real + (parts.imag + select(large, LN2, 0.0))
    result = select(magnitude < 1e-100, magnitude, result)
    return copysign_f64(select(magnitude < INFINITY, result, magnitude), x)


@function("f64", "f64")
def acosh_f64(x):
    """log1p(t + sqrt(t (t + 2))) with t = x - 1, argument in two parts; log(2 x) from 2^28."""
    large = x > 268435456.0
    y = select(large, 2.0, x)
    t = y - 1.0
    square = y * y
    square_low = fma_f64(y, y, -square)
    below = square - 1.0
    step = below + 1.0
    below_low = (square - step) + square_low
    # near 1 the difference of squares cancels: t (t + 2) does not
    product = t * (t + 2.0)
    near = y < 1.5
    inner = select(near, product, below)
    inner_low = select(near, fma_f64(t, t + 2.0, -product) + t * (t - ((t + 2.0) - 2.0)), below_low)
    root = sqrt_f64(inner)
    root_low = select(root == 0.0, 0.0, 0.5 * (fma_f64(-root, root, inner) + inner_low) / root)
    total = y + root
    rest = (root - (total - y)) + root_low
    # close to 1 keep t apart from the one, it carries the digits
    total_near = t + root
    step = total_near - root
    near_low = (t - step) + (root - (total_near - step)) + root_low
    u = 1.0 + total_near
    near_low = near_low + (total_near - (u - 1.0))
    parts = log_parts_f64(select(large, x, select(near, u, total)), select(large, 0.0, select(near, near_low, rest)))
    result = parts.real + (parts.imag + select(large, LN2, 0.0))
    result = select(x < INFINITY, result, x)
    result = select(x == 1.0, 0.0, result)
    return select(x < 1.0, NAN, result)


@function("f64", "f64")
def atanh_f64(x):
    """log1p(2 |x| / (1 - |x|)) / 2, argument in two parts."""
    magnitude = abs_f64(x)
    y = select(magnitude < 1.0, magnitude, 0.5)
    bottom = 1.0 - y
    bottom_low = (1.0 - bottom) - y
    quotient = y / bottom
    quotient_low = fma_f64(-quotient, bottom_low, fma_f64(-quotient, bottom, y)) / bottom
    total = 2.0 * quotient
    u = 1.0 + total
    rest = sum_error_f64(1.0, total, u) + 2.0 * quotient_low
    result = 0.5 * log_parts_f64(u, rest).real
    result = select(magnitude < 1e-100, magnitude, result)
    result = select(magnitude == 1.0, INFINITY, result)
    return copysign_f64(select(magnitude <= 1.0, result, NAN), x)


rounded_from("f64", "f32", "sinh cosh asinh acosh atanh")
