"""erf and erfc.

erfc(x) = exp(-x^2) Q(t) / (1 + 2 x) for x >= 0 with t = (x - 4) / (x + 4) and Q a polynomial of degree 22 (the form of
Shepherd and Laframboise, Math. Comp. 36, 1981); erf is an odd polynomial below 1 and 1 - erfc above. float32 erf takes
the fourth root of erfc as a polynomial instead, which needs no exponential. Polynomials: own minimax fits.
"""

from __future__ import annotations

from hloom.compiler.kernels.math.bits import (
    abs_f32,
    abs_f64,
    copysign_f32,
    copysign_f64,
    f32,
    fma_f32,
    fma_f64,
    polynomial,
    select,
)
from hloom.compiler.kernels.math.elementary.exponential import (
    EXPONENT_F64,
    LOG2_E,
    exp_parts_f64,
    exp_sum_f64,
    scale_f64,
)
from hloom.compiler.kernels.math.registry import function, rounded_from

# erf(x) / x - 1 in x^2, |x| <= 1; relative error 2^-29.4, 2^-56
ERF_F32 = (
    0.12837916612625122,
    -0.3761262595653534,
    0.11283578723669052,
    -0.026853347197175026,
    0.005187162198126316,
    -0.0007997853099368513,
    7.806903158780187e-05,
)
ERF_F64 = (
    0.12837916709551256,
    -0.376126389031834,
    0.11283791670940539,
    -0.026866170642651403,
    0.005223977603000569,
    -0.0008548325802126055,
    0.00012055290268921046,
    -1.4924656113608737e-05,
    1.6446510473339102e-06,
    -1.6202006606725065e-07,
    1.3693959810509936e-08,
    -7.750223425206729e-10,
)
# erfc(1 + z)^(1/4) in z, 0 <= z <= 3; error of erf 2^-26.6
ERFC_ROOT_F32 = (
    0.629769504070282,
    -0.4154854118824005,
    0.0043242271058261395,
    0.05080987140536308,
    -0.00372843025252223,
    -0.005492622498422861,
    0.001328463084064424,
    2.1709431166527793e-05,
    -2.4993569240905344e-05,
)
# (1 + 2 x) exp(x^2) erfc(x) in (x - 4) / (x + 4), 0 <= x <= 28; relative error 2^-54.6
ERFCX_F64 = (
    1.2329951186255526,
    -0.1396211168405625,
    0.015379652102611531,
    0.06809705425469506,
    -0.10103906603599232,
    0.0937328349979993,
    -0.066330365817403,
    0.03716751554659025,
    -0.01619773400874867,
    0.0050319698746713725,
    -0.0007577735935230088,
    -0.00019925606073600062,
    0.00015062301139191425,
    -2.44014908558555e-05,
    -1.1226186396245265e-05,
    5.714549895350338e-06,
    3.0269066342698247e-07,
    -8.309539818494374e-07,
    6.243655219508169e-08,
    1.1229268873346509e-07,
    -8.324466512688137e-09,
    -1.2696229120922771e-08,
    -1.4260670892293302e-09,
)

ERFCX_FIRST_F64, ERFCX_REST_F64 = ERFCX_F64[0], ERFCX_F64[1:]


@function("f64", "c128", 0.01)
def erfcx_parts_f64(x):
    """exp(x^2) erfc(x) as high + low (real and imag of the result), for 0 <= x <= 28."""
    bottom = x + 4.0
    top = x - 4.0
    inverse = 1.0 / bottom
    t = top * inverse
    # top and bottom are rounded: x = 4 (1 + t) / (1 - t) gives back the error of t
    t = fma_f64(fma_f64(-4.0, t + 1.0, fma_f64(-t, x, x)), inverse, t)
    # (c0 + t R) / (1 + 2 x) and exp(-x^2) in two parts each
    rest = polynomial(t, ERFCX_REST_F64)
    product = t * rest
    top = ERFCX_FIRST_F64 + product
    top_low = (product - (top - ERFCX_FIRST_F64)) + fma_f64(t, rest, -product)
    bottom = fma_f64(2.0, x, 1.0)
    inverse = 1.0 / bottom
    quotient = top * inverse
    twice = 2.0 * x
    step = bottom - twice
    bottom_low = (twice - (bottom - step)) + (1.0 - step)
    quotient_low = (fma_f64(-quotient, bottom, top) + fma_f64(-quotient, bottom_low, top_low)) * inverse
    return complex(quotient, quotient_low)


@function("f64", "f64")
def erfc_positive_f64(x):
    """erfc(x) for x >= 0."""
    x = select(x > 28.0, 28.0, x)
    parts = erfcx_parts_f64(x)
    quotient = parts.real
    quotient_low = parts.imag
    square = x * x
    power = exp_parts_f64(-square, -fma_f64(x, x, -square))
    result = quotient * power.real
    low = fma_f64(quotient, power.real, -result) + fma_f64(quotient_low, power.real, quotient * power.imag)
    return scale_f64(result + low, fma_f64(-square, LOG2_E, EXPONENT_F64))


@function("f64", "f64")
def erf_f64(x):
    """odd polynomial below 1, 1 - erfc above."""
    magnitude = abs_f64(x)
    square = x * x
    small = fma_f64(magnitude, polynomial(square, ERF_F64), magnitude)
    return copysign_f64(select(magnitude < 1.0, small, 1.0 - erfc_positive_f64(magnitude)), x)


@function("f64", "f64")
def erfc_f64(x):
    """exp(-x^2) times a polynomial; 1 - erf below 1/2."""
    magnitude = abs_f64(x)
    tail = erfc_positive_f64(magnitude)
    result = select(x < 0.0, 2.0 - tail, tail)
    square = x * x
    # 1 - erf = 1/2 + (1/2 - x - x P)
    small = 1.0 - fma_f64(x, polynomial(square, ERF_F64), x)
    return select(magnitude < 0.45, small, result)


# (2 k - 1)!! (-1/2)^k: the asymptotic series of x sqrt(pi) erfcx(x) in 1 / x^2
ERFCX_TAIL = (1.0, -0.5, 0.75, -1.875, 6.5625, -29.53125, 162.421875)


@function("f64", "f64")
def erfcx_f64(x):
    """the factor of erfc's exponential; 2 exp(x^2) minus its mirror image for negative x."""
    magnitude = abs_f64(x)
    parts = erfcx_parts_f64(select(magnitude < 28.0, magnitude, 28.0))
    far = select(magnitude < 28.0, 28.0, magnitude)
    inverse = 1.0 / far
    large = (0.5641895835477563 * inverse) * polynomial(inverse * inverse, ERFCX_TAIL)
    result = select(magnitude < 28.0, parts.real + parts.imag, large)
    bounded = select(magnitude < 30.0, magnitude, 30.0)
    square = bounded * bounded
    mirrored = 2.0 * exp_sum_f64(square, fma_f64(bounded, bounded, -square)) - result
    return select(x != x, x, select(x < 0.0, mirrored, result))


@function("f32", "f32")
def erf_f32(x):
    """odd polynomial of degree 15 below 1, 1 - (polynomial of degree 8)^4 above."""
    magnitude = abs_f32(x)
    square = x * x
    small = fma_f32(magnitude, polynomial(square, ERF_F32), magnitude)
    # erfc(4) is below half a unit in the last place of 1
    root = polynomial(select(magnitude > f32(4.0), f32(4.0), magnitude) - f32(1.0), ERFC_ROOT_F32)
    root = root * root
    return copysign_f32(select(magnitude < f32(1.0), small, fma_f32(-root, root, f32(1.0))), x)


rounded_from("f64", "f32", "erfcx erfc")
