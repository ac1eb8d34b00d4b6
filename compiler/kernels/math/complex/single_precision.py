"""complex64 functions: complex128's, rounded, but for the absolute value."""

from __future__ import annotations

from hloom.compiler.kernels.math.bits import (
    abs_f32,
    bitcast_f32_s32,
    bitcast_s32_f32,
    f32,
    fma_f32,
    s32,
    select,
    sqrt_f32,
)
from hloom.compiler.kernels.math.elementary.logarithm import INFINITY
from hloom.compiler.kernels.math.registry import function, rounded_from

rounded_from(
    "c128",
    "c64",
    "acos acosh asin asinh atan atanh cbrt cos cosh exp expm1 log log1p logistic rsqrt sign sin sinh sqrt tan tanh "
    "div max min pow",
)


@function("c64", "f32")
def abs_c64(z):
    """root of the sum of squares, scaled where these would leave the range; an infinite part outweighs a NaN.

    What the roundings of squares, sum and root have left is put right at first order, r / (2 root), with an estimate of
    1 / root to an eighth: no division, and the error is hardly more than half a unit.
    """
    real, imag = abs_f32(z.real), abs_f32(z.imag)
    infinite = (real == f32(INFINITY)) | (imag == f32(INFINITY))
    large, small = select(real > imag, real, imag), select(real > imag, imag, real)
    huge, tiny = large > f32(2.0**60), large < f32(2.0**-40)
    factor = select(huge, f32(2.0**-70), select(tiny, f32(2.0**100), f32(1.0)))
    back = select(huge, f32(2.0**70), select(tiny, f32(2.0**-100), f32(1.0)))
    large, small = large * factor, small * factor
    top, low = large * large, small * small
    total = top + low
    root = sqrt_f32(total)
    lost = (top - total) + low + fma_f32(large, large, f32(0.0) - top) + fma_f32(small, small, f32(0.0) - low)
    left = fma_f32(f32(0.0) - root, root, total) + lost
    estimate = bitcast_s32_f32(s32(0x7EF311C7) - bitcast_f32_s32(root))
    return select(infinite, f32(INFINITY), fma_f32(left, estimate * f32(0.5), root) * back)
