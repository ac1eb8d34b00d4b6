"""Special functions: CHLO's functions, and those needed by distributions and their gradients.

HLO has no opcodes for most of them: in HLO text they are custom calls with the target "chlo.<name>", or "hloom.<name>"
if CHLO lacks the function too. References: SciPy, imported on first use. Source: CHLO dialect of StableHLO,
github.com/openxla/stablehlo; NIST Digital Library of Mathematical Functions.
"""

from __future__ import annotations

import math

import numpy as np

from hloom.ir.errors import DifferentiationError
from hloom.ir.op_table import No, op
from hloom.ir.ops.elementwise.declare import ANALYTIC, FLOAT, NOT_LINEAR, binary, host_function, unary
from hloom.ir.ops.rules import elementwise, partials
from hloom.ir.process.lazy import LazyModule
from hloom.ir.types import HLO_NAME

scipy_special = LazyModule("scipy.special")


def scipy_function(name: str):
    """The function of `scipy.special`, computed in float64."""

    def reference(*arrays):
        return getattr(scipy_special, name)(*(a.astype(np.float64) for a in arrays))

    return reference


def odd(function):
    """The function, with the sign of zero preserved, which SciPy drops."""
    return lambda x: np.where(x == 0, x, function(x))


def no_partial(name: str, operand: str):
    """An unknown derivative: raises when it is requested."""

    def derivative(*values):
        raise DifferentiationError(
            f"the derivative of {name} with respect to its operand {operand}",
            "it has no closed form, and hloom does not have it",
            f"stop the gradient: hl.lax.stop_gradient({operand})",
            source=values[0].builder.source,
        )

    return derivative


# --- error function, gamma function, Bessel functions -------------------------------------------------------------


def _lgamma(x):
    """SciPy returns infinity at the smallest numbers instead of -log|x|."""
    tiny = (x != 0) & (np.abs(x) < 1e-300)
    small = -np.log(np.abs(np.where(tiny, x, 1)))
    return np.where(np.isinf(x), np.inf, np.where(tiny, small, scipy_function("gammaln")(x))).astype(x.dtype)


def _digamma(x):
    # The limits from the two sides of a pole differ: NaN, as in CHLO.
    pole = (x <= 0) & (np.trunc(x) == x)
    return np.where(pole, np.nan, scipy_special.digamma(x.astype(np.float64)))


def _polygamma_one(x):
    return x.like(1).op("polygamma", x)


unary(
    "erf-inv",
    FLOAT,
    odd(scipy_function("erfinv")),
    "erf_inv_{t}({0})",
    partials(lambda g, y, x: g * (math.sqrt(math.pi) / 2) * (y * y).op("exponential")),
    flops=60,
    transcendental=True,
    dialects="chlo",
    doc="The inverse of erf; infinite at -1 and 1, NaN outside of [-1, 1].",
    lax="erf_inv",
    example=("{f}(hnp.array([0.0, 0.5])).round(3)", "Array([0.   , 0.477], dtype=float32)"),
    ulp=(1.76, 5.0),
)
unary(
    "erfc",
    FLOAT,
    scipy_function("erfc"),
    "erfc_{t}({0})",
    partials(lambda g, y, x: g * (-2 / math.sqrt(math.pi)) * (-(x * x)).op("exponential")),
    flops=50,
    transcendental=True,
    dialects="chlo",
    doc="1 - erf({0}), without its cancellation.",
    lax="erfc",
    example=("{f}(hnp.array([0.0, 1.0])).round(3)", "Array([1.   , 0.157], dtype=float32)"),
    ulp=(0.501, 0.9),
)
unary(
    "erfcx",
    FLOAT,
    scipy_function("erfcx"),
    "erfcx_{t}({0})",
    partials(lambda g, y, x: g * (x * y * 2 - 2 / math.sqrt(math.pi))),
    flops=60,
    transcendental=True,
)
unary(
    "lgamma",
    FLOAT,
    _lgamma,
    "lgamma_{t}({0})",
    partials(lambda g, y, x: g * x.op("digamma")),
    flops=150,
    transcendental=True,
    dialects="chlo",
    doc="log |gamma({0})|; infinite at 0, -1, -2, ...",
    lax="lgamma",
    example=("{f}(hnp.array([1.0, 5.0])).round(3)", "Array([0.   , 3.178], dtype=float32)"),
    ulp=(0.501, 2.3),
)
unary(
    "digamma",
    FLOAT,
    _digamma,
    "digamma_{t}({0})",
    partials(lambda g, y, x: g * _polygamma_one(x)),
    flops=120,
    transcendental=True,
    dialects="chlo",
    doc="The derivative of lgamma; NaN at 0, -1, -2, ...",
    lax="digamma",
    example=("{f}(hnp.array([1.0, 2.0])).round(3)", "Array([-0.577,  0.423], dtype=float32)"),
    ulp=(0.501, 5.0),
)


def _zeta(x, q):
    """sum of 1 / (k + q)^x, k = 0, 1, ...; infinite at poles; NaN where x < 1, and for q < 0 unless x is an integer."""
    x, q = np.broadcast_arrays(x.astype(np.float64), q.astype(np.float64))
    whole = np.floor(q)
    # q < 0: the terms of negative base, -(1 - f), ..., -|q| with f the fraction of q, are those of two positive zetas.
    below = (q < 0) & (whole != q) & (np.floor(x) == x) & (x > 1) & np.isfinite(x)
    fraction = np.where(below, q - whole, 1.0)
    plain = scipy_special.zeta(np.where(below, 2.0, x), np.where(below, 1.0, q))
    safe = np.where(below, x, 2.0)
    mirrored = scipy_special.zeta(safe, 1 - fraction) - scipy_special.zeta(safe, 1 - np.where(below, q, 0.0))
    sign = np.where(np.fmod(safe, 2) == 0, 1.0, -1.0)
    result = np.where(below, scipy_special.zeta(safe, fraction) + sign * mirrored, plain)
    # for very large or infinite x the largest term alone, which SciPy does not handle
    finite = np.where(np.isfinite(x), np.inf, np.nan)
    limit = np.select([q > 1, q == 1, (q > 0) | (whole == q)], [0.0, 1.0, np.inf], finite)
    return np.where(np.isnan(x) | np.isnan(q), np.nan, np.where(x > 1e18, limit, result))


def _polygamma(n, x):
    """The derivative of order n of digamma; NaN if n is not a nonnegative integer."""
    n, x = np.broadcast_arrays(n.astype(np.float64), x.astype(np.float64))
    known = (n >= 0) & (np.floor(n) == n) & np.isfinite(n)
    order = np.where(known, n, 1.0)
    higher = np.where(np.fmod(order, 2) == 0, -1.0, 1.0) * scipy_special.gamma(order + 1) * _zeta(order + 1, x)
    return np.where(known, np.where(order == 0, _digamma(x), higher), np.nan)


binary(
    "zeta",
    FLOAT,
    _zeta,
    "zeta_{t}({0}, {1})",
    partials(
        no_partial("zeta", "x"),
        lambda g, z, x, q: -(g * x) * (x + 1).op("zeta", q),
    ),
    flops=600,
    transcendental=True,
    dialects="chlo",
    doc="Hurwitz's zeta function: the sum of (k + {1})^-{0} for k = 0, 1, ...; NaN where {0} < 1.",
    lax="zeta",
    example=("{f}(hnp.array([2.0]), hnp.array([1.0])).round(3)", "Array([1.645], dtype=float32)"),
)
binary(
    "polygamma",
    FLOAT,
    _polygamma,
    "polygamma_{t}({0}, {1})",
    partials(
        no_partial("polygamma", "n"),
        lambda g, z, n, x: g * (n + 1).op("polygamma", x),
    ),
    flops=800,
    transcendental=True,
    dialects="chlo",
    doc="The derivative of order {0} of digamma at {1}; NaN where {0} is not a nonnegative integer.",
    lax="polygamma",
    example=("{f}(hnp.array([1.0]), hnp.array([1.0])).round(3)", "Array([1.645], dtype=float32)"),
)


def _bessel_i1e_partial(g, y, x):
    """i0e - i1e (sign(x) + 1 / x); 1/2 at 0."""
    safe = x.compare("EQ", 0).where(x.like(1), x)
    slope = x.op("bessel-i0e") - y * (x.op("sign") + 1 / safe)
    return g * x.compare("EQ", 0).where(x.like(0.5), slope)


unary(
    "bessel-i0e",
    FLOAT,
    scipy_function("i0e"),
    "bessel_i0e_{t}({0})",
    partials(lambda g, y, x: g * (x.op("bessel-i1e") - x.op("sign") * y)),
    flops=60,
    transcendental=True,
    doc="exp(-|{0}|) I0({0}), I0 the modified Bessel function of the first kind of order 0.",
    lax="bessel_i0e",
    example=("{f}(hnp.array([0.0, 1.0])).round(3)", "Array([1.   , 0.466], dtype=float32)"),
)
unary(
    "bessel-i1e",
    FLOAT,
    odd(scipy_function("i1e")),
    "bessel_i1e_{t}({0})",
    partials(_bessel_i1e_partial),
    flops=60,
    transcendental=True,
    dialects="chlo",
    doc="exp(-|{0}|) I1({0}), I1 the modified Bessel function of the first kind of order 1.",
    lax="bessel_i1e",
    example=("{f}(hnp.array([0.0, 1.0])).round(3)", "Array([0.   , 0.208], dtype=float32)"),
)

# --- the incomplete gamma and beta functions ----------------------------------------------------------------------


def _gamma_density(a, x):
    """x^(a-1) exp(-x) / gamma(a), the derivative of igamma with respect to x."""
    return ((a - 1) * x.op("log") - x - a.op("lgamma")).op("exponential")


host_function(
    "igamma",
    2,
    scipy_function("gammainc"),
    partials(
        lambda g, p, a, x: g * a.op("igamma-grad-a", x),
        lambda g, p, a, x: g * _gamma_density(a, x),
    ),
    200,
    doc="The regularized lower incomplete gamma function P({0}, {1}).",
    lax="igamma",
    example=("{f}(hnp.array([1.0, 2.0]), hnp.array([1.0, 1.0])).round(3)", "Array([0.632, 0.264], dtype=float32)"),
)
host_function(
    "igammac",
    2,
    scipy_function("gammaincc"),
    partials(
        lambda g, p, a, x: -(g * a.op("igamma-grad-a", x)),
        lambda g, p, a, x: -(g * _gamma_density(a, x)),
    ),
    200,
    doc="The regularized upper incomplete gamma function Q({0}, {1}) = 1 - P({0}, {1}).",
    lax="igammac",
    example=("{f}(hnp.array([1.0, 2.0]), hnp.array([1.0, 1.0])).round(3)", "Array([0.368, 0.736], dtype=float32)"),
)


def _igamma_grad_a(a, x):
    """The derivative of igamma(a, x) with respect to a, by its power series or the continued fraction of igammac."""
    a, x = np.broadcast_arrays(a.astype(np.float64), x.astype(np.float64))
    valid = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    a1, x1 = np.where(valid, a, 1.0), np.where(valid, x, 1.0)
    lower = (x1 <= 1) | (x1 <= a1)
    result = np.where(lower, _grad_of_series(a1, np.where(lower, x1, 1.0)), 0.0)
    upper = ~lower
    if np.any(upper):
        result = np.where(upper, _grad_of_fraction(np.where(upper, a1, 1.0), np.where(upper, x1, 2.0)), result)
    at_edge = (a > 0) & ((x == 0) | (x == np.inf))
    return np.where(valid, result, np.where(at_edge, 0.0, np.nan))


def _prefactor(a, x):
    """(x^a exp(-x) / gamma(a), its derivative's factor log x - digamma(a))."""
    logarithm = np.log(x)
    return np.exp(scipy_special.xlogy(a, x) - x - scipy_special.gammaln(a)), logarithm - scipy_special.digamma(a)


def _grad_of_series(a, x):
    """igamma = x^a exp(-x) / gamma(a) sum of x^k / (a (a + 1) ... (a + k))."""
    factor, slope = _prefactor(a, x)
    term, harmonic = 1 / a, 1 / a
    total, derivative = term.copy(), -term * harmonic
    for k in range(1, 20000):
        term = term * x / (a + k)
        harmonic = harmonic + 1 / (a + k)
        total, step = total + term, term * harmonic
        derivative = derivative - step
        if np.all(step <= 1e-17 * np.abs(derivative)):
            break
    return factor * (slope * total + derivative)


def _grad_of_fraction(a, x):
    """igammac = x^a exp(-x) / gamma(a) times a continued fraction (Abramowitz and Stegun 6.5.31), for x > a, x > 1.

    The recurrence of numerators and denominators is differentiated with them.
    """
    factor, slope = _prefactor(a, x)
    y, z, c = 1 - a, x - a + 2.0, 0.0
    p1, q1, p0, q0 = x + 1, z * x, np.ones_like(x), x.copy()
    dp1, dq1 = np.zeros_like(x), -x
    dp0, dq0 = np.zeros_like(x), np.zeros_like(x)
    value, change = p1 / q1, (dp1 - p1 / q1 * dq1) / q1
    for _ in range(5000):
        c += 1.0
        y, z = y + 1, z + 2
        yc = y * c
        p, q = p1 * z - p0 * yc, q1 * z - q0 * yc
        dp = dp1 * z - p1 - dp0 * yc + p0 * c
        dq = dq1 * z - q1 - dq0 * yc + q0 * c
        new_value = p / q
        new_change = (dp - new_value * dq) / q
        done = np.abs(new_change - change) <= 1e-15 * np.abs(new_change)
        value, change = new_value, new_change
        p0, q0, p1, q1, dp0, dq0, dp1, dq1 = p1, q1, p, q, dp1, dq1, dp, dq
        if np.all(done):
            break
        scale = np.where(np.abs(p) > 1e200, 1e-200, 1.0)
        p0, q0, p1, q1 = p0 * scale, q0 * scale, p1 * scale, q1 * scale
        dp0, dq0, dp1, dq1 = dp0 * scale, dq0 * scale, dp1 * scale, dq1 * scale
    return -factor * (slope * value + change)


host_function(
    "igamma-grad-a",
    2,
    _igamma_grad_a,
    No("hloom has no second derivative of igamma with respect to a"),
    400,
    doc="The derivative of igamma({0}, {1}) with respect to {0}.",
    lax="igamma_grad_a",
)


def _beta_density(a, b, x):
    """x^(a-1) (1-x)^(b-1) / beta(a, b)."""
    logarithm = (a - 1) * x.op("log") + (b - 1) * (-x).op("log-plus-one")
    return (logarithm + (a + b).op("lgamma") - a.op("lgamma") - b.op("lgamma")).op("exponential")


host_function(
    "regularized-incomplete-beta",
    3,
    scipy_function("betainc"),
    partials(
        no_partial("betainc", "a"),
        no_partial("betainc", "b"),
        lambda g, p, a, b, x: g * _beta_density(a, b, x),
    ),
    300,
    doc="The regularized incomplete beta function I({2}; {0}, {1}), differentiable with respect to {2}.",
    lax="betainc regularized_incomplete_beta",
    example=("{f}(2.0, 3.0, hnp.array([0.25, 0.5])).round(3)", "Array([0.262, 0.688], dtype=float32)"),
)

# --- elementary functions without an HLO opcode -------------------------------------------------------------------

unary(
    "atan",
    ANALYTIC,
    np.arctan,
    "atan_{t}({0})",
    partials(lambda g, y, x: g / (x * x + 1)),
    flops=25,
    transcendental=True,
    dialects="chlo",
    doc="The arc tangent in radians.",
    lax="atan",
    example=("{f}(hnp.array([0.0, 1.0])).round(3)", "Array([0.   , 0.785], dtype=float32)"),
    numpy="arctan atan",
    ulp=(0.79, 0.6),
)


def _next_after_code(operands, shape, attributes, arguments):
    # Neighbours depend on the dtype, also for dtypes that are computed in float32.
    return f"nextafter_{HLO_NAME[operands[0].dtype]}({', '.join(arguments)})"


op(
    "next-after",
    family="elementwise",
    arity=2,
    kinds=FLOAT,
    infer=elementwise("next-after", 2, FLOAT),
    reference=lambda x, y, shape: np.where(x == y, y, np.nextafter(x, y)),
    code=_next_after_code,
    jvp=partials(lambda g, z, x, y: g, None),
    transpose=NOT_LINEAR,
    dialects="chlo",
    doc="The next float after {0} in the direction of {1}.",
    lax="nextafter",
    example=("{f}(hnp.array([1.0]), hnp.array([2.0]))", "Array([1.0000001], dtype=float32)"),
)
