"""lgamma, digamma and the inverse of erf. float32 is float64, rounded, but for the inverse of erf.

Near the zeros of lgamma and digamma on the negative axis, and of digamma at 1.46, the absolute error stays that of the
terms. Polynomials: own minimax fits, the error of each stated beside it.
"""

from __future__ import annotations

from hloom.compiler.kernels.math.bits import (
    abs_f64,
    bitcast_f32_u32,
    bitcast_u32_f32,
    copysign_f32,
    copysign_f64,
    f32,
    fma_f32,
    fma_f64,
    polynomial,
    round_even_f64,
    s32,
    select,
    sqrt_f32,
    sqrt_f64,
    trunc_f64,
    u32,
)
from hloom.compiler.kernels.math.elementary.logarithm import (
    INFINITY,
    LN2,
    LOG_F32,
    NAN,
    log1p_f64,
    log_f64,
    log_parts_f64,
)
from hloom.compiler.kernels.math.elementary.trigonometry import PI, cosine_parts_f64, sine_parts_f64
from hloom.compiler.kernels.math.registry import function, rounded_from

HALF_LOG_TWO_PI, LOG_PI = 0.9189385332046728, 1.1447298858494002

# lgamma(2 + t) / t on |t| <= 1/2, lgamma(1 + t) / t on -0.35 <= t <= 1/2; relative error 2^-56.2, 2^-56.7
LGAMMA_AT_2 = (
    0.42278433509846713,
    0.3224670334241132,
    -0.06735230105319664,
    0.02058080842778817,
    -0.007385551028799471,
    0.00289051033045986,
    -0.0011927539067229736,
    0.0005096695352139063,
    -0.00022315486711642593,
    9.945729433278526e-05,
    -4.4924811360714e-05,
    2.0509985092278372e-05,
    -9.451210561440726e-06,
    4.352650091958448e-06,
    -1.9783111282515102e-06,
    1.0681109753371982e-06,
    -6.434746197433394e-07,
    -1.412601469635884e-07,
    2.472023484126207e-07,
    6.673138375882474e-07,
    -2.9222390600406934e-07,
    -4.543576853723916e-07,
)
LGAMMA_AT_1 = (
    -0.5772156649015329,
    0.8224670334241132,
    -0.4006856343865283,
    0.27058080842781734,
    -0.2073855510292916,
    0.16955717699022294,
    -0.1440498967036622,
    0.1255096701136927,
    -0.11133426995959936,
    0.1000994337917357,
    -0.0909538590044455,
    0.0833543478098269,
    -0.07693635287321819,
    0.07142770341334839,
    -0.06661020126131417,
    0.06250482584920171,
    -0.059369437187490104,
    0.05606025296321961,
    -0.04980761099854639,
    0.044696092855580474,
    -0.05311654959611041,
    0.06709666061795899,
    -0.0544328893755239,
    0.018888363991963496,
)
# Stirling's series: B(2 n) / (2 n (2 n - 1)) and, for the derivative, -B(2 n) / (2 n), in 1 / x^2
STIRLING = (
    1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400, 43867 / 244188,
)  # fmt: skip
STIRLING_SLOPE = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12, 3617 / 8160)
# erf_inv(x) / x in w - 3.125, sqrt(w) - 3.25 and sqrt(w) - 5 with w = -log(1 - x^2) up to 6.25, 16 and 38;
# relative error 2^-52.1, 2^-52.5, 2^-51.2
ERF_INV_CENTRE = (
    1.6536545626831027,
    0.24015818242559023,
    -0.006033670871428606,
    -0.0007407025341717999,
    0.00018673420802745987,
    -1.3882523349158564e-05,
    -1.3654691883121847e-06,
    4.234787633442341e-07,
    -2.907038073981284e-08,
    -4.112625125687701e-09,
    1.0512179725854437e-09,
    -5.415724370468082e-11,
    -1.2976988929577192e-11,
    2.6341946199789922e-12,
    -8.113551596196126e-14,
    -4.0640068902991684e-14,
    6.58711437593114e-15,
    2.89097697598773e-17,
    -1.292202534313979e-16,
    1.0785823379621698e-17,
    1.0993688329145171e-18,
    -1.6105503851563112e-19,
)
ERF_INV_MIDDLE = (
    3.0838856104922203,
    1.0052589676941575,
    0.00537091455363608,
    -0.003751208507335121,
    0.0024914420941977715,
    -0.001688275563070273,
    0.0009532894119882638,
    -0.0003550374310997385,
    2.4030833325111683e-05,
    6.828426968502045e-05,
    -4.731688412734893e-05,
    1.2477417190683395e-05,
    2.9195998755156195e-06,
    -4.0181841203382795e-06,
    1.5091559905610671e-06,
    2.2877330278380663e-08,
    -2.809507415290685e-07,
    8.871926069247334e-08,
    4.381705198956742e-09,
)
ERF_INV_TAIL = (
    4.849906401408585,
    1.0103004648645246,
    -0.00013871931850903608,
    -0.00021503011898296997,
    7.599528063585759e-05,
    -1.9681781035724048e-05,
    4.526034421878582e-06,
    -9.929709180206765e-07,
    2.2911211159255264e-07,
    -6.773629736057842e-08,
    2.892680876605753e-08,
    -1.493334744221083e-08,
    7.868049250887331e-09,
    -3.804356070743309e-09,
    1.3575883311272498e-09,
    -2.522413327050857e-10,
    9.209239933396684e-12,
)
# erf_inv(x) / x in z = w - 1.01875 with w = -log(1 - x^2) up to 5, and in z = sqrt(w) - 2.15625 above, both as
# FIRST + z (...); relative error 2^-27.2, 2^-26.6. Where z = 0 the values are float32 numbers but for 2^-31.
ERF_INV_FIRST_F32, ERF_INV_TAIL_FIRST_F32 = 1.132022738456726, 2.0039944648742676
ERF_INV_CENTRE_F32 = (
    0.24798977375030518,
    0.004117210395634174,
    -0.0023687698412686586,
    0.0001038031987263821,
    3.7733654608018696e-05,
    -4.453977453522384e-06,
    -5.118835133544053e-07,
    1.4216782062703714e-07,
    -8.921145600027103e-09,
)
ERF_INV_TAIL_F32 = (
    0.9437126517295837,
    0.0820779800415039,
    -0.06035503000020981,
    0.02067067101597786,
    0.0058713797479867935,
    -0.01021340861916542,
    0.005009281914681196,
    -0.0011909244349226356,
    0.00011598819401115179,
)


@function("f64", "f64")
def lgamma_positive_f64(x):
    """log(gamma(x)) for x > 0: polynomials around 1 and 2, shifted there up to 8; Stirling's series above."""
    # small x: lgamma(x) = lgamma(x + 1) - log x
    small = x < 0.65
    factor = select(small, x, 1.0)
    t = select(small, select(x < 0.5, x, x - 1.0), select(x < 1.5, x - 1.0, x - 2.0))
    at_one = select(small, x < 0.5, x < 1.5)
    # up to 8: lgamma(x) = lgamma(x - k) + log((x - 1) ... (x - k))
    product = 1.0
    left = select(x < 8.5, x, 2.0)
    for _ in range(6):
        above = left > 2.5
        left = select(above, left - 1.0, left)
        product = select(above, product * left, product)
    t = select(x > 2.5, left - 2.0, t)
    near = t * select(at_one, polynomial(t, LGAMMA_AT_1), polynomial(t, LGAMMA_AT_2))
    logarithm = log_f64(select(small, factor, product))
    near = near + select(small, -logarithm, logarithm)
    # Stirling: (x - 1/2) log x - x + log(2 pi) / 2 + 1 / (12 x) - ...
    bounded = select(x < 2.0, 2.0, select(x > 2.6e305, 2.6e305, x))
    parts = log_parts_f64(bounded, 0.0)
    base = bounded - 0.5
    product = base * parts.real
    low = fma_f64(base, parts.real, -product) + base * parts.imag
    difference = product - bounded
    step = difference - product
    error = (product - (difference - step)) - (bounded + step)
    inverse = 1.0 / bounded
    series = inverse * polynomial(inverse * inverse, STIRLING)
    far = difference + (error + low + HALF_LOG_TWO_PI + series)
    far = select(x > 2.5563481638716906e305, INFINITY, far)
    return select(x < 8.5, near, far)


@function("f64", "f64")
def sine_of_turns_f64(x):
    """|sin(pi x)|."""
    part = abs_f64(x - round_even_f64(x))
    steep = part > 0.25
    angle = PI * select(steep, 0.5 - part, part)
    return select(steep, cosine_parts_f64(angle, 0.0).real, sine_parts_f64(angle, 0.0).real)


@function("f64", "f64")
def lgamma_f64(x):
    """log|gamma(x)|: polynomials up to 8, Stirling's series above, reflection for negative x."""
    magnitude = abs_f64(x)
    positive = lgamma_positive_f64(magnitude)
    # log(pi / |x sin(pi x)|) - lgamma(|x|)
    reflected = LOG_PI - log_f64(magnitude * sine_of_turns_f64(magnitude)) - positive
    reflected = select(magnitude < 1e-17, positive, reflected)
    result = select(x < 0.0, reflected, positive)
    pole = (x <= 0.0) & (trunc_f64(x) == x)
    result = select(pole | (magnitude == INFINITY), INFINITY, result)
    return select(x != x, x, result)


@function("f64", "f64")
def digamma_f64(x):
    """recurrence up to 10, Stirling's series above, reflection for negative x; NaN at 0, -1, -2, ..."""
    mirrored = x < 0.5
    y = select(mirrored, 1.0 - x, x)
    # sum of 1 / (y + k) as one fraction
    top = 0.0
    bottom = 1.0
    shifted = y
    for _ in range(10):
        below = shifted < 10.0
        top = select(below, fma_f64(top, shifted, bottom), top)
        bottom = select(below, bottom * shifted, bottom)
        shifted = select(below, shifted + 1.0, shifted)
    inverse = 1.0 / shifted
    square = inverse * inverse
    result = log_f64(shifted) + fma_f64(square, polynomial(square, STIRLING_SLOPE), -0.5 * inverse) - top / bottom
    # pi / tan(pi x)
    part = x - round_even_f64(x)
    steep = abs_f64(part) > 0.25
    angle = PI * select(steep, copysign_f64(0.5 - abs_f64(part), part), part)
    sine = sine_parts_f64(angle, 0.0).real
    cosine = cosine_parts_f64(angle, 0.0).real
    result = select(mirrored, result - PI * select(steep, sine / cosine, cosine / sine), result)
    result = select((x <= 0.0) & (trunc_f64(x) == x), NAN, result)
    return select(x == INFINITY, x, result)


@function("f64", "f64")
def erf_inv_f64(x):
    """x times a polynomial of -log(1 - x^2) or its root (the form of Giles, 2012)."""
    w = -(log1p_f64(x) + log1p_f64(-x))
    w = select(abs_f64(x) < 1.0, w, 1.0)
    root = sqrt_f64(w)
    centre = polynomial(w - 3.125, ERF_INV_CENTRE)
    outer = select(w < 16.0, polynomial(root - 3.25, ERF_INV_MIDDLE), polynomial(root - 5.0, ERF_INV_TAIL))
    result = x * select(w < 6.25, centre, outer)
    result = select(abs_f64(x) == 1.0, copysign_f64(INFINITY, x), result)
    return select(abs_f64(x) > 1.0, NAN, result)


@function("f32", "f32")
def erf_inv_f32(x):
    """x times a polynomial of -log(1 - x^2) or its root (the form of Giles, 2012)."""
    y = fma_f32(-x, x, f32(1.0))
    # -log(y), 0 < y <= 1: neither subnormal nor infinite
    bits = bitcast_f32_u32(y)
    moved = u32(bits - u32(0x3F3504F3))
    e = f32(s32(s32(moved) >> s32(23)))
    f = bitcast_u32_f32(u32(bits - u32(moved & u32(0xFF800000)))) - f32(1.0)
    square = f * f
    mantissa = fma_f32(square, f32(0.5), -(square * f * polynomial(f, LOG_F32))) - f
    w = fma_f32(e, f32(-LN2), mantissa)
    z = w - f32(1.01875)
    root = sqrt_f32(w) - f32(2.15625)
    central = w < f32(5.0)
    first = select(central, f32(ERF_INV_FIRST_F32), f32(ERF_INV_TAIL_FIRST_F32))
    rest = select(central, z * polynomial(z, ERF_INV_CENTRE_F32), root * polynomial(root, ERF_INV_TAIL_F32))
    result = fma_f32(x, first, x * rest)
    result = copysign_f32(select(y == f32(0.0), f32(INFINITY), result), x)
    return select(y >= f32(0.0), result, f32(NAN))


rounded_from("f64", "f32", "lgamma digamma")
