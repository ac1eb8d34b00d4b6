"""Modified Bessel functions of the first kind, times exp(-|x|), and polygamma through the Hurwitz zeta function.

Bessel functions up to 8: the power series in x^2 / 4, all terms positive, times exp(-x). Above: a polynomial in 8 / x
over sqrt(x). Polynomials: own fits, the error of each stated beside it.
"""

from __future__ import annotations

import math

from hloom.compiler.kernels.math.bits import (
    abs_f64,
    copysign_f64,
    f64,
    floor_f64,
    fma_f64,
    polynomial,
    polynomial_parts,
    select,
    sqrt_f64,
)
from hloom.compiler.kernels.math.elementary.exponential import EXPONENT_F64, LOG2_E, exp_parts_f64, scale_f64
from hloom.compiler.kernels.math.elementary.power import pow_f64
from hloom.compiler.kernels.math.registry import function, rounded_from
from hloom.compiler.kernels.math.special.gamma import digamma_f64

INFINITY, NAN = float("inf"), float("nan")
I0_SERIES = tuple(1 / math.factorial(k) ** 2 for k in range(27))
I1_SERIES = tuple(1 / (math.factorial(k) * math.factorial(k + 1)) for k in range(27))
# sqrt(x) exp(-x) I(x) in 16 / x - 1, x >= 8; relative error 2^-53.7 and 2^-55.5
I0E_FAR = (
    0.4021765094450081,
    0.003360551983667854,
    0.00013621607439232746,
    1.1143033791556743e-05,
    1.4838475473607391e-06,
    2.973598432479169e-07,
    8.87225351128584e-08,
    3.932602459703109e-08,
    2.1545177650836005e-08,
    7.553516470355896e-09,
    -6.729724111923548e-09,
    -1.3404241991980871e-08,
    -5.4685974495866e-09,
    7.540601378890834e-09,
    7.58022133915272e-09,
    -3.4857887470034955e-09,
    -6.188265090497361e-09,
    1.497880830187091e-09,
    3.881151253996067e-09,
    -5.562201990080394e-10,
    -1.7789375042917173e-09,
    1.4672236659214398e-10,
    5.181936971288284e-10,
    -1.9216763724933513e-11,
    -7.06893851181878e-11,
)
I1E_FAR = (
    0.38939845902587233,
    -0.009749577193235728,
    -0.00021923576383430274,
    -1.5038547201176271e-05,
    -1.8349101134666435e-06,
    -3.483855609009937e-07,
    -1.0001323461066435e-07,
    -4.312935369971356e-08,
    -2.337059627111857e-08,
    -8.426622829598154e-09,
    6.715795128085017e-09,
    1.4029693589852716e-08,
    6.040877342160988e-09,
    -7.630751970065577e-09,
    -8.044231276166508e-09,
    3.406636130196794e-09,
    6.4870195719816896e-09,
    -1.4171698018664596e-09,
    -4.047785403711858e-09,
    5.146498826087142e-10,
    1.8513716745511988e-09,
    -1.342266320082222e-10,
    -5.388285995923524e-10,
    1.7502497778701306e-11,
    7.347992441734663e-11,
)


@function("f64 f64 f64", "f64")
def bessel_near_f64(x, series, series_low):
    """exp(-x) times a sum of two numbers, for 0 <= x <= 8."""
    power = exp_parts_f64(-x, 0.0)
    result = series * power.real
    low = fma_f64(series, power.real, -result) + fma_f64(series_low, power.real, series * power.imag)
    return scale_f64(result + low, fma_f64(-x, LOG2_E, EXPONENT_F64))


@function("f64 f64", "f64")
def over_root_f64(value, x):
    """value / sqrt(x), rounded nearly once."""
    root = sqrt_f64(x)
    inverse = 1.0 / root
    root_low = 0.5 * fma_f64(-root, root, x) * inverse
    quotient = value * inverse
    rest = fma_f64(-quotient, root, value) - quotient * root_low
    return fma_f64(rest, inverse, quotient)


@function("f64", "f64")
def bessel_i0e_f64(x):
    """power series in two parts up to 8, polynomial in 1 / x above."""
    magnitude = abs_f64(x)
    near = select(magnitude < 8.0, magnitude, 8.0)
    parts = polynomial_parts(0.25 * near * near, I0_SERIES)
    small = bessel_near_f64(near, parts.real, parts.imag)
    far = select(magnitude < 8.0, 8.0, magnitude)
    large = over_root_f64(polynomial(16.0 / far - 1.0, I0E_FAR), far)
    result = select(magnitude < 8.0, small, select(magnitude == INFINITY, 0.0, large))
    return select(x != x, x, result)


@function("f64", "f64")
def bessel_i1e_f64(x):
    """power series in two parts up to 8, polynomial in 1 / x above."""
    magnitude = abs_f64(x)
    near = select(magnitude < 8.0, magnitude, 8.0)
    parts = polynomial_parts(0.25 * near * near, I1_SERIES)
    half = 0.5 * near
    series = half * parts.real
    small = bessel_near_f64(near, series, fma_f64(half, parts.real, -series) + half * parts.imag)
    small = select(magnitude < 1e-150, half, small)
    far = select(magnitude < 8.0, 8.0, magnitude)
    large = over_root_f64(polynomial(16.0 / far - 1.0, I1E_FAR), far)
    result = select(magnitude < 8.0, small, select(magnitude == INFINITY, 0.0, large))
    return select(x != x, x, copysign_f64(result, x))


# B(2 k) / (2 k)!
EULER_MACLAURIN = (
    0.08333333333333333, -0.001388888888888889, 3.306878306878307e-05, -8.267195767195768e-07, 2.08767569878681e-08,
    -5.284190138687493e-10, 1.3382536530684679e-11, -3.3896802963225827e-13, 8.586062056277845e-15,
    -2.174868698558062e-16, 5.5090028283602295e-18, -1.3954464685812522e-19,
)  # fmt: skip


@function("f64 f64", "f64")
def zeta_positive_f64(s, q):
    """sum of (k + q)^-s for s > 1 and q > 0: ten terms, then the Euler-Maclaurin formula."""
    total = 0.0
    for k in range(10):
        total = total + pow_f64(q + f64(k), -s)
    w = q + 10.0
    power = pow_f64(w, -s)
    inverse = 1.0 / w
    square = inverse * inverse
    # s (s + 1) ... (s + 2 k) / w^(2 k + 1), k = 0, 1, ...
    factor = s * inverse
    series = 0.0
    rising = s
    for coefficient in EULER_MACLAURIN:
        series = series + factor * coefficient
        factor = factor * (rising + 1.0) * (rising + 2.0) * square
        rising = rising + 2.0
    # where the last terms vanish beside the first, their series may overflow
    tail = select(power == 0.0, 0.0, power * (0.5 + series))
    return total + (pow_f64(w, 1.0 - s) / (s - 1.0) + tail)


@function("f64 f64", "f64")
def zeta_f64(s, q):
    """Euler-Maclaurin formula; for q < 0 and whole s the terms of negative base as a difference of two zetas."""
    whole = floor_f64(q)
    negative = q < 0.0
    fraction = select(negative, q - whole, q)
    safe = select(s > 1.0, s, 2.0)
    result = zeta_positive_f64(safe, select(fraction > 0.0, fraction, 1.0))
    mirrored = select(negative & (whole != q), 1.0 - fraction, 1.0)
    terms = zeta_positive_f64(safe, mirrored) - zeta_positive_f64(safe, select(negative, 1.0 - q, 1.0))
    half = 0.5 * safe
    even = floor_f64(half) == half
    result = select(negative, result + select(even, terms, -terms), result)
    result = select(negative & ((floor_f64(s) != s) | (s == INFINITY)), NAN, result)
    result = select((q <= 0.0) & (whole == q), INFINITY, result)
    result = select(q == INFINITY, 0.0, result)
    result = select(s == 1.0, INFINITY, select(s < 1.0, NAN, result))
    return select((s != s) | (q != q), NAN, result)


@function("f64 f64", "f64")
def polygamma_f64(n, x):
    """(-1)^(n + 1) n! zeta(n + 1, x); digamma for n = 0."""
    known = (n >= 0.0) & (floor_f64(n) == n) & (n < INFINITY)
    order = select(known & (n >= 1.0), n, 1.0)
    half = 0.5 * order
    factorial = 1.0
    for k in range(2, 171):
        factorial = select(f64(k) <= order, factorial * f64(k), factorial)
    factorial = select(order > 170.0, INFINITY, factorial)
    higher = factorial * zeta_f64(order + 1.0, x)
    higher = select(floor_f64(half) == half, -higher, higher)
    return select(known, select(n == 0.0, digamma_f64(x), higher), NAN)


rounded_from("f64", "f32", "bessel_i0e bessel_i1e zeta polygamma")
