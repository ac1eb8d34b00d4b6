"""Sign, remainder and neighbours of floating-point numbers. Rounding to integers is in `bits`."""

from __future__ import annotations

from hloom.compiler.kernels.math.bits import (
    abs_f32,
    abs_f64,
    bitcast_bf16_s16,
    bitcast_f16_s16,
    bitcast_f32_s32,
    bitcast_f64_s64,
    bitcast_s16_bf16,
    bitcast_s16_f16,
    bitcast_s32_f32,
    bitcast_s64_f64,
    copysign_f32,
    copysign_f64,
    f32,
    f64,
    fma_f64,
    round_even_f64,
    s16,
    s32,
    s64,
    select,
)
from hloom.compiler.kernels.math.elementary.logarithm import INFINITY, NAN
from hloom.compiler.kernels.math.registry import function


@function("f32", "f32")
def sign_f32(x):
    """-1, 1, or x itself where that is a zero or NaN."""
    return select(abs_f32(x) > f32(0.0), copysign_f32(f32(1.0), x), x)


@function("f64", "f64")
def sign_f64(x):
    """-1, 1, or x itself where that is a zero or NaN."""
    return select(abs_f64(x) > 0.0, copysign_f64(1.0, x), x)


@function("f32 f32", "f32")
def nextafter_f32(x, y):
    """next bit pattern towards y."""
    bits = bitcast_f32_s32(x)
    away = (y > x) == (x > f32(0.0))
    moved = bitcast_s32_f32(select(away, s32(bits + s32(1)), s32(bits - s32(1))))
    moved = select(x == f32(0.0), copysign_f32(bitcast_s32_f32(s32(1)), y), moved)
    moved = select(x == y, y, moved)
    return select((x != x) | (y != y), f32(NAN), moved)


@function("f16 f16", "f16")
def nextafter_f16(x, y):
    """next bit pattern towards y."""
    bits = bitcast_f16_s16(x)
    away = (y > x) == (x > f32(0.0))
    moved = bitcast_s16_f16(select(away, s16(bits + s16(1)), s16(bits - s16(1))))
    moved = select(x == f32(0.0), copysign_f32(bitcast_s16_f16(s16(1)), y), moved)
    moved = select(x == y, y, moved)
    return select((x != x) | (y != y), f32(NAN), moved)


@function("bf16 bf16", "bf16")
def nextafter_bf16(x, y):
    """next bit pattern towards y."""
    bits = bitcast_bf16_s16(x)
    away = (y > x) == (x > f32(0.0))
    moved = bitcast_s16_bf16(select(away, s16(bits + s16(1)), s16(bits - s16(1))))
    moved = select(x == f32(0.0), copysign_f32(bitcast_s16_bf16(s16(1)), y), moved)
    moved = select(x == y, y, moved)
    return select((x != x) | (y != y), f32(NAN), moved)


@function("f64 f64", "f64")
def nextafter_f64(x, y):
    """next bit pattern towards y."""
    bits = bitcast_f64_s64(x)
    away = (y > x) == (x > 0.0)
    moved = bitcast_s64_f64(select(away, bits + s64(1), bits - s64(1)))
    moved = select(x == 0.0, copysign_f64(bitcast_s64_f64(s64(1)), y), moved)
    moved = select(x == y, y, moved)
    return select((x != x) | (y != y), NAN, moved)


@function("f64 f64 f64", "f64")
def remainder_step_f64(rest, divisor, inverse):
    """rest modulo divisor, not negative, exact for quotients below 2^51.

    The nearest quotient leaves at most 3/4 of the divisor, whose bits always suffice; the next lower one may not.
    """
    quotient = round_even_f64(rest * inverse)
    result = fma_f64(-quotient, divisor, rest)
    return select(result < 0.0, result + divisor, result)


@function("f32 f32", "f32")
def rem_f32(x, y):
    """long division in float64 by six digits of 50 bits."""
    rest = f64(abs_f32(x))
    divisor = f64(abs_f32(y))
    inverse = 1.0 / divisor
    rest = remainder_step_f64(rest, divisor * 2.0**250, inverse * 2.0**-250)
    rest = remainder_step_f64(rest, divisor * 2.0**200, inverse * 2.0**-200)
    rest = remainder_step_f64(rest, divisor * 2.0**150, inverse * 2.0**-150)
    rest = remainder_step_f64(rest, divisor * 2.0**100, inverse * 2.0**-100)
    rest = remainder_step_f64(rest, divisor * 2.0**50, inverse * 2.0**-50)
    rest = remainder_step_f64(rest, divisor, inverse)
    result = select(divisor == INFINITY, abs_f32(x), f32(rest))
    result = select((abs_f32(x) < f32(INFINITY)) & (divisor > 0.0), result, f32(NAN))
    return copysign_f32(result, x)


@function("f64 f64", "f64")
def rem_f64(x, y):
    """long division by digits of up to 50 bits; a loop over the digits, one turn where |x / y| < 2^50."""
    rest = abs_f64(x)
    divisor = abs_f64(y)
    # everything in reach of the largest numbers is halved, and subnormals are lifted
    scale = select(divisor < 2.0**-900, 2.0**100, 1.0)
    valid = (rest < INFINITY) & (divisor > 0.0) & (divisor < INFINITY)
    result = rest
    if valid & (rest >= divisor):
        while rest >= divisor * 2.0**50:
            # largest power of two with step <= rest < step * 2^50
            step = divisor * 2.0**50
            while step <= rest * 2.0**-50:
                step = step * 2.0**50
            lift = select(step < 2.0**-1000, 2.0**100, 1.0)  # 1 / 2^-1024 would be infinite
            rest = remainder_step_f64(rest * lift, step * lift, 1.0 / (step * lift)) / lift
        small = divisor * scale
        result = remainder_step_f64(rest * scale, small, 1.0 / small) / scale
    result = select((divisor == INFINITY) | valid, result, NAN)
    result = select((x != x) | (y != y) | (abs_f64(x) == INFINITY), NAN, result)
    return copysign_f64(result, x)
