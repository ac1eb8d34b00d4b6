"""complex64 functions: complex128's, rounded."""

from __future__ import annotations

from hloom.compiler.kernels.math.bits import (
    abs_f32,
    bitcast_f32_s32,
    bitcast_s32_f32,
    c64,
    c128,
    f32,
    fma_f32,
    s32,
    select,
    sqrt_f32,
)
from hloom.compiler.kernels.math.complex.functions import (
    acos_c128,
    acosh_c128,
    asin_c128,
    asinh_c128,
    atan_c128,
    atanh_c128,
    cbrt_c128,
    cos_c128,
    cosh_c128,
    div_c128,
    exp_c128,
    expm1_c128,
    log1p_c128,
    log_c128,
    logistic_c128,
    pow_c128,
    rsqrt_c128,
    sign_c128,
    sin_c128,
    sinh_c128,
    sqrt_c128,
    tan_c128,
    tanh_c128,
)
from hloom.compiler.kernels.math.elementary.logarithm import INFINITY
from hloom.compiler.kernels.math.registry import function


@function("c64", "c64")
def exp_c64(z):
    """through complex128."""
    return c64(exp_c128(c128(z)))


@function("c64", "c64")
def expm1_c64(z):
    """through complex128."""
    return c64(expm1_c128(c128(z)))


@function("c64", "c64")
def log_c64(z):
    """through complex128."""
    return c64(log_c128(c128(z)))


@function("c64", "c64")
def log1p_c64(z):
    """through complex128."""
    return c64(log1p_c128(c128(z)))


@function("c64", "c64")
def tanh_c64(z):
    """through complex128."""
    return c64(tanh_c128(c128(z)))


@function("c64", "c64")
def logistic_c64(z):
    """through complex128."""
    return c64(logistic_c128(c128(z)))


@function("c64", "c64")
def sin_c64(z):
    """through complex128."""
    return c64(sin_c128(c128(z)))


@function("c64", "c64")
def cos_c64(z):
    """through complex128."""
    return c64(cos_c128(c128(z)))


@function("c64", "c64")
def tan_c64(z):
    """through complex128."""
    return c64(tan_c128(c128(z)))


@function("c64", "c64")
def sqrt_c64(z):
    """through complex128."""
    return c64(sqrt_c128(c128(z)))


@function("c64", "c64")
def rsqrt_c64(z):
    """through complex128."""
    return c64(rsqrt_c128(c128(z)))


@function("c64", "c64")
def cbrt_c64(z):
    """through complex128."""
    return c64(cbrt_c128(c128(z)))


@function("c64", "c64")
def sign_c64(z):
    """through complex128."""
    return c64(sign_c128(c128(z)))


@function("c64", "c64")
def sinh_c64(z):
    """through complex128."""
    return c64(sinh_c128(c128(z)))


@function("c64", "c64")
def cosh_c64(z):
    """through complex128."""
    return c64(cosh_c128(c128(z)))


@function("c64", "c64")
def asin_c64(z):
    """through complex128."""
    return c64(asin_c128(c128(z)))


@function("c64", "c64")
def acos_c64(z):
    """through complex128."""
    return c64(acos_c128(c128(z)))


@function("c64", "c64")
def atan_c64(z):
    """through complex128."""
    return c64(atan_c128(c128(z)))


@function("c64", "c64")
def asinh_c64(z):
    """through complex128."""
    return c64(asinh_c128(c128(z)))


@function("c64", "c64")
def acosh_c64(z):
    """through complex128."""
    return c64(acosh_c128(c128(z)))


@function("c64", "c64")
def atanh_c64(z):
    """through complex128."""
    return c64(atanh_c128(c128(z)))


@function("c64 c64", "c64")
def pow_c64(z, w):
    """through complex128."""
    return c64(pow_c128(c128(z), c128(w)))


@function("c64 c64", "c64")
def div_c64(z, w):
    """through complex128."""
    return c64(div_c128(c128(z), c128(w)))


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
