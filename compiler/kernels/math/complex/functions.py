"""Functions of complex numbers, in complex128; complex64 is complex128's result, rounded.

Each comes from formulas whose parts do not cancel, written with the real functions of this package. Special values are
those of C's Annex G, as NumPy has them.
"""

from __future__ import annotations

from hloom.compiler.kernels.math.bits import (
    abs_f64,
    copysign_f64,
    fma_f64,
    is_finite_f64,
    max_f64,
    min_f64,
    select,
    sqrt_f64,
)
from hloom.compiler.kernels.math.complex.pairs import (
    cos_parts_f64,
    cosh_times_pair_f64,
    exp_times_pair_f64,
    inverse_angle_f64,
    inverse_size_f64,
    sin_parts_f64,
    sinh_times_pair_f64,
)
from hloom.compiler.kernels.math.elementary.exponential import (
    EXPONENT_F64,
    LOG2_E,
    exp_parts_f64,
    exp_sum_f64,
    expm1_f64,
    scale_f64,
)
from hloom.compiler.kernels.math.elementary.hyperbolic import cosh_f64, sinh_f64
from hloom.compiler.kernels.math.elementary.logarithm import INFINITY, NAN, log1p_f64, log_parts_f64, sum_error_f64
from hloom.compiler.kernels.math.elementary.power import cbrt_f64, hypot_f64
from hloom.compiler.kernels.math.elementary.trigonometry import HALF_PI, atan2_f64, cos_f64, sin_f64
from hloom.compiler.kernels.math.registry import function

LN2, LN2_LOW = 0.6931471805599453, 2.3190468138462996e-17


# ---- pieces


@function("f64 f64", "f64")
def exp_times_f64(x, factor):
    """factor * exp(x) where exp(x) alone may overflow; factor finite."""
    x = select(x > 1400.0, 1400.0, x)
    x = select(x < -1400.0, -1400.0, x)
    parts = exp_parts_f64(x, 0.0)
    return scale_f64(fma_f64(parts.imag, factor, parts.real * factor), fma_f64(x, LOG2_E, EXPONENT_F64))


@function("f64 f64", "c128")
def log_magnitude_parts_f64(x, y):
    """log(hypot(x, y)) as high + low (real and imag of the result), for finite arguments, not both zero."""
    a = abs_f64(x)
    b = abs_f64(y)
    large = max_f64(a, b)
    factor = select(large > 2.0**500, 2.0**-600, select(large < 2.0**-400, 2.0**600, 1.0))
    exponent = select(large > 2.0**500, 600.0, select(large < 2.0**-400, -600.0, 0.0))
    p = large * factor
    q = min_f64(a, b) * factor
    square = p * p
    other = q * q
    total = square + other
    low = (other - (total - square)) + (fma_f64(p, p, -square) + fma_f64(q, q, -other))
    parts = log_parts_f64(total, low)
    first = exponent * LN2
    half = 0.5 * parts.real
    high = first + half
    error = sum_error_f64(first, half, high)
    low = fma_f64(exponent, LN2, -first) + fma_f64(exponent, LN2_LOW, 0.5 * parts.imag)
    return complex(high, error + low)


# ---- exponentials


@function("c128", "c128")
def exp_c128(z):
    """exp(x) (cos y + i sin y), scaled last."""
    x = z.real
    y = z.imag
    finite = is_finite_f64(y)
    angle = select(finite, y, 0.0)
    wild = select(x == -INFINITY, 0.0, NAN)
    real = select(finite, exp_times_pair_f64(x, cos_parts_f64(angle)), select(x == INFINITY, INFINITY, wild))
    imaginary = select(finite, exp_times_pair_f64(x, sin_parts_f64(angle)), wild)
    return complex(real, select(y == 0.0, y, imaginary))


@function("c128", "c128")
def expm1_c128(z):
    """(expm1(x) cos y - 2 sin(y/2)^2, exp(x) sin y)."""
    whole = exp_c128(z)
    half = sin_f64(0.5 * z.imag)
    real = fma_f64(expm1_f64(z.real), cos_f64(z.imag), -2.0 * half * half)
    usual = (abs_f64(z.real) < 40.0) & is_finite_f64(z.imag)
    return complex(select(usual, real, whole.real - 1.0), whole.imag)


@function("c128", "c128")
def logistic_c128(z):
    """(exp(x) + cos y + i sin y) / (4 (sinh(x/2)^2 + cos(y/2)^2)); for large |x| exp(z), or 1 and the rest."""
    far = abs_f64(z.real) > 40.0
    tail = exp_c128(complex(-abs_f64(z.real), z.imag))
    x = select(far, 0.0, z.real)
    half_sine = sinh_f64(0.5 * x)
    half_cosine = cos_f64(0.5 * z.imag)
    bottom = 4.0 * fma_f64(half_sine, half_sine, half_cosine * half_cosine)
    # exp(x) + cos y = expm1(x) + 2 cos(y/2)^2
    top = fma_f64(2.0 * half_cosine, half_cosine, expm1_f64(x))
    imaginary = select(z.imag == 0.0, z.imag, sin_f64(z.imag) / bottom)
    real = select(far, select(z.real > 0.0, 1.0, tail.real), top / bottom)
    return complex(real, select(far, tail.imag, imaginary))


# ---- logarithms and powers


@function("c128", "c128")
def log_c128(z):
    """(log|z|, angle), |z|^2 in two parts."""
    x = z.real
    y = z.imag
    infinite = (abs_f64(x) == INFINITY) | (abs_f64(y) == INFINITY)
    parts = log_magnitude_parts_f64(x, y)
    real = select((x == 0.0) & (y == 0.0), -INFINITY, parts.real + parts.imag)
    return complex(select(infinite, INFINITY, real), atan2_f64(y, x))


@function("c128", "c128")
def log1p_c128(z):
    """log(1 + 2 x + x^2 + y^2) / 2 with the sum in two parts; log(1 + z) for large z and near -1."""
    x = z.real
    y = z.imag
    large = max_f64(abs_f64(x), abs_f64(y)) > 1e15
    plain = log_c128(complex(x + 1.0, y))
    a = select(large, 0.0, x)
    b = select(large, 0.0, y)
    # (2 + x) x + y^2
    first = a * a
    second = b * b
    total = first + second
    low = sum_error_f64(first, second, total) + (fma_f64(a, a, -first) + fma_f64(b, b, -second))
    twice = 2.0 * a
    high = twice + total
    low = low + sum_error_f64(twice, total, high)
    u = 1.0 + high
    rest = sum_error_f64(1.0, high, u) + low
    far = u + rest > 0.25  # nearer to -1, 1 + x is exact
    real = 0.5 * log_parts_f64(select(far, u, 1.0), select(far, rest, 0.0)).real
    usual = far & (not large) & (x == x) & (y == y)
    return complex(select(usual, real, plain.real), plain.imag)


@function("c128", "c128")
def sqrt_c128(z):
    """sqrt((|x| + |z|) / 2) and y over twice that, scaled by a power of four."""
    x = z.real
    y = z.imag
    large = max_f64(abs_f64(x), abs_f64(y))
    factor = select(large > 2.0**1000, 2.0**-100, select(large < 2.0**-900, 2.0**100, 1.0))
    back = select(large > 2.0**1000, 2.0**50, select(large < 2.0**-900, 2.0**-50, 1.0))
    a = abs_f64(x) * factor
    b = y * factor
    root = sqrt_f64(0.5 * (a + hypot_f64(a, b)))
    other = abs_f64(b) / (2.0 * root)
    real = select(x >= 0.0, root, other) * back
    imaginary = select(x >= 0.0, other, root) * back
    infinite = (abs_f64(y) == INFINITY) | (x == INFINITY)
    real = select(infinite, INFINITY, real)
    real = select((x == -INFINITY) & is_finite_f64(y), 0.0, real)
    imaginary = select((x == INFINITY) & is_finite_f64(y), 0.0, imaginary)
    imaginary = select((abs_f64(y) == INFINITY) | ((x == -INFINITY) & (y == y)), INFINITY, imaginary)
    imaginary = select((x == INFINITY) & (y != y), NAN, imaginary)
    imaginary = select((x == -INFINITY) & (y != y), INFINITY, imaginary)
    zero = (x == 0.0) & (y == 0.0)
    unclear = (x != x) & (abs_f64(y) != INFINITY)
    imaginary = select(zero, 0.0, select(unclear, NAN, imaginary))
    return complex(select(zero, 0.0, select(unclear, NAN, real)), copysign_f64(imaginary, y))


@function("c128 c128", "c128")
def div_c128(a, b):
    """Smith's quotient, corrected once by the remainder in fused arithmetic. Divisors whose inverse may overflow are
    scaled."""
    factor = select(max_f64(abs_f64(b.real), abs_f64(b.imag)) < 2.0**-960, 2.0**128, 1.0)
    p = b.real * factor
    q = b.imag * factor
    wide = abs_f64(p) >= abs_f64(q)
    large = select(wide, p, q)
    ratio = select(wide, q, p) / large
    inverse = 1.0 / fma_f64(select(wide, q, p), ratio, large)
    first = select(wide, a.real, a.imag)
    second = select(wide, a.imag, a.real)
    side = select(wide, 1.0, -1.0)
    real = fma_f64(second, ratio, first) * inverse
    imaginary = fma_f64(-side * first, ratio, side * second) * inverse
    # remainder a - quotient * b, products in two parts
    one = real * p
    two = imaginary * q
    three = real * q
    four = imaginary * p
    rest_real = a.real - one
    step = rest_real - a.real
    lost = (a.real - (rest_real - step)) - (one + step)
    rest_real = (rest_real + two) + (lost - (fma_f64(real, p, -one) - fma_f64(imaginary, q, -two)))
    rest_imaginary = a.imag - three
    step = rest_imaginary - a.imag
    lost = (a.imag - (rest_imaginary - step)) - (three + step)
    rest_imaginary = (rest_imaginary - four) + (lost - (fma_f64(real, q, -three) + fma_f64(imaginary, p, -four)))
    first = select(wide, rest_real, rest_imaginary)
    second = select(wide, rest_imaginary, rest_real)
    better_real = fma_f64(fma_f64(second, ratio, first), inverse, real)
    better_imaginary = fma_f64(fma_f64(-first, ratio, second), side * inverse, imaginary)
    # where the correction cancels the estimate to its last bit, the part is zero
    better_real = select(abs_f64(better_real) <= 1e-15 * abs_f64(real), 0.0 * real, better_real)
    lost = abs_f64(better_imaginary) <= 1e-15 * abs_f64(imaginary)
    better_imaginary = select(lost, 0.0 * imaginary, better_imaginary)
    sound = is_finite_f64(better_real) & is_finite_f64(better_imaginary)
    sound = sound & (max_f64(abs_f64(a.real), abs_f64(a.imag)) > 1e-280)  # below, what products lack is not a number
    real = select(sound, better_real, real) * factor
    imaginary = select(sound, better_imaginary, imaginary) * factor
    # over zero: each part by +0, as NumPy has it
    zero = (p == 0.0) & (q == 0.0)
    return complex(select(zero, a.real / abs_f64(p), real), select(zero, a.imag / abs_f64(p), imaginary))


@function("c128", "c128")
def rsqrt_c128(z):
    """1 / sqrt(z)."""
    return div_c128(complex(1.0, 0.0), sqrt_c128(z))


@function("c128", "c128")
def cbrt_c128(z):
    """cube root of the magnitude, a third of the angle."""
    large = max_f64(abs_f64(z.real), abs_f64(z.imag))
    factor = select(large > 2.0**1000, 0.125, select(large < 2.0**-900, 2.0**180, 1.0))
    back = select(large > 2.0**1000, 2.0, select(large < 2.0**-900, 2.0**-60, 1.0))
    root = cbrt_f64(hypot_f64(z.real * factor, z.imag * factor)) * back
    angle = atan2_f64(z.imag, z.real) * 0.3333333333333333
    zero = root == 0.0
    imaginary = select(z.imag == 0.0, select(z.real >= 0.0, z.imag, root * sin_f64(angle)), root * sin_f64(angle))
    return complex(select(zero, 0.0, root * cos_f64(angle)), select(zero, 0.0, imaginary))


@function("c128 c128", "c128")
def pow_c128(z, w):
    """exp(w log z), the real part of the exponent in two parts; 0^w is 1, 0 or NaN as NumPy has it."""
    zero = (z.real == 0.0) & (z.imag == 0.0)
    angle = atan2_f64(z.imag, z.real)
    parts = log_magnitude_parts_f64(z.real, z.imag)
    high = w.real * parts.real
    low = fma_f64(w.real, parts.imag, fma_f64(w.real, parts.real, -high))
    turn = w.imag * angle
    total = high - turn
    step = total - high
    low = low + ((high - (total - step)) - (turn + step)) - fma_f64(w.imag, angle, -turn)
    magnitude = exp_sum_f64(total, low)
    first = w.imag * parts.real
    second = w.real * angle
    turned = first + second
    rest = sum_error_f64(first, second, turned) + fma_f64(w.imag, parts.real, -first)
    rest = rest + fma_f64(w.imag, parts.imag, fma_f64(w.real, angle, -second))
    rest = select(is_finite_f64(rest), rest, 0.0)
    cosine = cos_f64(turned)
    sine = sin_f64(turned)
    real = magnitude * fma_f64(-rest, sine, cosine)
    imaginary = select(turned == 0.0, turned, magnitude * fma_f64(rest, cosine, sine))
    none = (w.real == 0.0) & (w.imag == 0.0)
    same = (w.real == 1.0) & (w.imag == 0.0)
    at_zero = select(w.real > 0.0, 0.0, NAN)
    real = select(zero, at_zero, real)
    imaginary = select(zero, at_zero, imaginary)
    real = select(same, z.real, select(none, 1.0, real))
    return complex(real, select(same, z.imag, select(none, 0.0, imaginary)))


@function("c128", "f64")
def abs_c128(z):
    """hypot."""
    return hypot_f64(z.real, z.imag)


@function("c128", "c128")
def sign_c128(z):
    """z / |z|; 0 for 0."""
    large = max_f64(abs_f64(z.real), abs_f64(z.imag))
    factor = select(large > 2.0**1000, 2.0**-100, select(large < 2.0**-900, 2.0**160, 1.0))
    a = z.real * factor
    b = z.imag * factor
    length = hypot_f64(a, b)
    zero = length == 0.0
    return complex(select(zero, z.real, a / length), select(zero, z.imag, b / length))


# ---- trigonometric and hyperbolic functions


@function("c128", "c128")
def sinh_c128(z):
    """(sinh x cos y, cosh x sin y)."""
    x = z.real
    y = z.imag
    real = sinh_times_pair_f64(x, cos_parts_f64(y))
    imaginary = select(y == 0.0, y, cosh_times_pair_f64(x, sin_parts_f64(y)))
    wild = not is_finite_f64(y)
    real = select(wild, select((x == 0.0) | (abs_f64(x) == INFINITY), x, NAN), real)
    return complex(real, select(wild, NAN, imaginary))


@function("c128", "c128")
def cosh_c128(z):
    """(cosh x cos y, sinh x sin y)."""
    x = z.real
    y = z.imag
    real = cosh_times_pair_f64(x, cos_parts_f64(y))
    imaginary = sinh_times_pair_f64(x, sin_parts_f64(y))
    imaginary = select(y == 0.0, select(x == x, copysign_f64(1.0, x) * y, y), imaginary)
    wild = not is_finite_f64(y)
    real = select(wild, select(abs_f64(x) == INFINITY, INFINITY, NAN), real)
    return complex(real, select(wild & (x != 0.0), NAN, select(wild, 0.0, imaginary)))


@function("c128", "c128")
def tanh_c128(z):
    """(sinh x cosh x + i sin y cos y) / (sinh(x)^2 + cos(y)^2)."""
    x = z.real
    y = z.imag
    bounded = select(x > 50.0, 50.0, select(x < -50.0, -50.0, x))
    hyperbolic = sinh_f64(bounded)
    wild = (not is_finite_f64(y)) & (abs_f64(x) == INFINITY)
    angle = select(wild, 0.0, y)
    sine = sin_f64(angle)
    cosine = cos_f64(angle)
    bottom = fma_f64(hyperbolic, hyperbolic, cosine * cosine)
    real = hyperbolic * cosh_f64(bounded) / bottom
    tail = exp_times_f64(-2.0 * abs_f64(x), 4.0 * sine * cosine)
    imaginary = select(abs_f64(x) > 50.0, tail, sine * cosine / bottom)
    real = select((x == 0.0) & (not is_finite_f64(y)), x, real)
    return complex(real, select(y == 0.0, y, imaginary))


@function("c128", "c128")
def sin_c128(z):
    """-i sinh(i z)."""
    turned = sinh_c128(complex(-z.imag, z.real))
    return complex(turned.imag, -turned.real)


@function("c128", "c128")
def cos_c128(z):
    """cosh(i z)."""
    return cosh_c128(complex(-z.imag, z.real))


@function("c128", "c128")
def tan_c128(z):
    """-i tanh(i z)."""
    turned = tanh_c128(complex(-z.imag, z.real))
    return complex(turned.imag, -turned.real)


# ---- inverses, with the branch cuts of W. Kahan, Branch cuts for complex elementary functions, 1987


@function("c128", "c128")
def asin_c128(z):
    """(atan(x / root), acosh of half the sum of the distances to -1 and 1), both in two parts."""
    x = abs_f64(z.real)
    y = abs_f64(z.imag)
    large = (x > 1e15) | (y > 1e15)
    a = select(large, 1.0, x)
    b = select(large, 1.0, y)
    real = copysign_f64(select(large, atan2_f64(x, y), inverse_angle_f64(a, b, 0.0)), z.real)
    imaginary = select(large, large_inverse_c128(z).real, inverse_size_f64(a, b))
    return complex(select(x == 0.0, z.real, real), copysign_f64(imaginary, z.imag))


@function("c128", "c128")
def large_inverse_c128(z):
    """log(2 |z|) (real part) for large |z|, infinite where a part is."""
    parts = log_magnitude_parts_f64(z.real, z.imag)
    infinite = (abs_f64(z.real) == INFINITY) | (abs_f64(z.imag) == INFINITY)
    return complex(select(infinite, INFINITY, parts.real + (parts.imag + LN2)), 0.0)


@function("c128", "c128")
def acos_c128(z):
    """(atan2(root, x), acosh of half the sum of the distances to -1 and 1), both in two parts."""
    x = abs_f64(z.real)
    y = abs_f64(z.imag)
    large = (x > 1e15) | (y > 1e15)
    a = select(large, 1.0, x)
    b = select(large, 1.0, y)
    turned = select(z.real < 0.0, 2.0, 1.0)
    real = select(large, atan2_f64(y, z.real), inverse_angle_f64(a, b, turned))
    imaginary = select(large, large_inverse_c128(z).real, inverse_size_f64(a, b))
    return complex(select((x == 0.0) & (y != y), HALF_PI, real), copysign_f64(imaginary, -z.imag))


@function("c128", "c128")
def atanh_c128(z):
    """(log1p(4 x / ((1 - x)^2 + y^2)) / 4, atan2(2 y, (1 - x) (1 + x) - y^2) / 2), by the sign of x."""
    x = abs_f64(z.real)
    y = abs_f64(z.imag)
    large = (x > 1e15) | (y > 1e15)
    a = select(large, 1.0, x)
    b = select(large, 1.0, y)
    distance = fma_f64(1.0 - a, 1.0 - a, b * b)
    # next to 1 the square of the distance may underflow, and 1 + ... no longer matters
    near = distance < 1e-200
    gap = max_f64(abs_f64(1.0 - a), b)
    close = near & (gap < 2.0**-1000)
    scaled = gap * select(close, 2.0**64, 1.0)
    real = log1p_f64(select(near, 2.0 / scaled, 4.0 * a / distance)) * select(near, 0.5, 0.25)
    real = real + select(close, 32.0 * LN2, 0.0)
    imaginary = 0.5 * atan2_f64(2.0 * b, fma_f64(1.0 - a, 1.0 + a, -b * b))
    # far out: x / |z|^2, by parts so that nothing overflows
    length = hypot_f64(0.25 * x, 0.25 * y)
    real = select(large, select(length == INFINITY, 0.0, (0.25 * x / length) / length * 0.25), real)
    imaginary = select(large, select((y == y) & ((x == x) | (y == INFINITY)), HALF_PI, NAN), imaginary)
    real = select(((x != x) | (y != y)) & (length != INFINITY), NAN, real)
    imaginary = select((y != y) | ((x != x) & (y != INFINITY)), NAN, imaginary)
    real = select((x == 0.0) & (y != y), 0.0, real)
    real = select((x == 1.0) & (y == 0.0), INFINITY, real)
    imaginary = select((x == 1.0) & (y == 0.0), 0.0, imaginary)
    return complex(copysign_f64(real, z.real), copysign_f64(imaginary, z.imag))


@function("c128", "c128")
def asinh_c128(z):
    """-i asin(i z)."""
    turned = asin_c128(complex(-z.imag, z.real))
    return complex(turned.imag, -turned.real)


@function("c128", "c128")
def acosh_c128(z):
    """acos(z) turned by a quarter to a positive real part."""
    angle = acos_c128(z)
    return complex(abs_f64(angle.imag), copysign_f64(angle.real, z.imag))


@function("c128", "c128")
def atan_c128(z):
    """-i atanh(i z)."""
    turned = atanh_c128(complex(-z.imag, z.real))
    return complex(turned.imag, -turned.real)
