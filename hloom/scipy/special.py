"""Special functions with the names of `scipy.special` and `jax.scipy.special`.

Arguments are promoted and broadcast as `hloom.numpy` does it; integers become floats. Formulas: NIST Digital Library of
Mathematical Functions (dlmf.nist.gov), cited where one is used.
"""

from __future__ import annotations

import math

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ArgumentError, DTypeError
from hloom.ir.process.lazy import LazyModule
from hloom.ir.types import COMPLEX, DTYPES
from hloom.lax.operands import inexact_dtype, promote_operands
from hloom.lax.table import docstring, documented
from hloom.scipy.faddeeva import wofz
from hloom.scipy.special_series import (
    bessel_jn,
    dawsn,
    erfcx,
    exp1,
    expi,
    expn,
    fresnel,
    hyp1f1,
    hyp2f1,
    owens_t,
    sici,
    spence,
)
from hloom.tracing.trace import Tracer
from hloom.transforms.custom_derivatives import custom_jvp

scipy_special = LazyModule("scipy.special")

NARROW = (DTYPES["f16"], DTYPES["bf16"])


def floats(name: str, *values, allow_complex: bool = False):
    """The arguments as floats of one dtype and shape. Raises DTypeError for complex ones."""
    operands, _ = promote_operands(name, values, inexact_dtype)
    if operands[0].dtype in COMPLEX and not allow_complex:
        raise DTypeError(f"{name} takes real numbers", f"{operands[0]._shape!r}", "take the real part")
    return operands


def _document(function, name: str, text: str, call: str, printed: str):
    text = f"{text}\n\nElement-wise, floats. Raises DTypeError, ShapeError."
    example = f"{{f}}({call}).round(3)", f"Array({printed}, dtype=float32)"
    return documented(function, name, docstring(text, example, f"hl.scipy.special.{name}"))


def _one(name: str, core, text: str, printed: str):
    def function(x):
        return core(*floats(name, x))

    return _document(function, name, text, "hnp.array([0.25, 0.75])", printed)


def _two(name: str, core, text: str, printed: str, first="x", second="y"):
    scope: dict = {"core": core, "floats": floats, "name": name}
    code = f"def function({first}, {second}):\n    return core(*floats(name, {first}, {second}))"
    exec(compile(code, __file__, "exec"), scope)  # a frame of this file: errors name the caller's line
    return _document(scope["function"], name, text, "0.5, hnp.array([2.0, 3.0])", printed)


# --- gamma and beta -----------------------------------------------------------------------------------------------

gammaln = _one("gammaln", lax.lgamma, "log |gamma(x)|.", "[1.288, 0.203]")


def _with_limit_at_zero(x, is_order_zero, value):
    """digamma has at 0 the limit from the side that the zero's sign says, as SciPy's; the ops of lax are NaN there, as
    CHLO's."""
    at_zero = lax.stop_gradient(hnp.where(x == 0, hnp.copysign(math.inf, -x), 0).astype(x.dtype))
    return hnp.where((x == 0) & is_order_zero, at_zero, value)


def _digamma(x):
    return _with_limit_at_zero(x, True, lax.digamma(x))


digamma = psi = _one(
    "digamma", _digamma, "The derivative of log gamma(x); NaN at -1, -2, ..., -inf at 0, inf at -0.", "[-4.227, -1.086]"
)
gammainc = _two(
    "gammainc", lax.igamma, "The regularized lower incomplete gamma function P(a, x).", "[0.954, 0.986]", "a", "x"
)
gammaincc = _two(
    "gammaincc", lax.igammac, "The regularized upper incomplete gamma function Q(a, x).", "[0.046, 0.014]", "a", "x"
)


def loggamma(x):
    """log gamma(x) of floats: `gammaln` for positive x, NaN for negative ones. Raises DTypeError."""
    (x,) = floats("loggamma", x)
    return hnp.where(x < 0, math.nan, lax.lgamma(x))


def _gammasgn(x):
    whole = hnp.floor(x)
    odd = hnp.mod(whole, 2) != 0
    sign = hnp.where((x > 0) | (x == 0) & ~hnp.signbit(x), 1.0, hnp.where(odd, -1.0, 1.0))
    sign = hnp.where((x == 0) & hnp.signbit(x), -1.0, sign)
    return hnp.where((x < 0) & (x == whole) | hnp.isnan(x), math.nan, sign).astype(x.dtype)


gammasgn = _one("gammasgn", _gammasgn, "The sign of gamma(x); NaN at -1, -2, ...", "[1., 1.]")


def _gamma(x):
    """Through log gamma in f64, which leaves f32 exact; f64 keeps some ten digits for large x."""
    value = _gammasgn(x) * hnp.exp(lax.lgamma(x))
    whole = (x >= 1) & (x == hnp.floor(x)) & (x < 24)
    return hnp.where(whole, hnp.round(value), value)


gamma = _one("gamma", _gamma, "The gamma function; NaN at -1, -2, ..., infinite at 0.", "[3.626, 1.225]")


def factorial(n, exact: bool = False):
    """n! = gamma(n + 1); 0 for negative n. exact is not available for arrays. Raises ArgumentError, DTypeError.

    >>> hl.scipy.special.factorial(hnp.array([0, 3, 5]))
    Array([  1.,   6., 120.], dtype=float32)
    """
    if exact:
        raise ArgumentError("factorial with exact=True", "arrays have no integers of any size", "take exact=False")
    (n,) = floats("factorial", n)
    return hnp.where(n < 0, 0, _gamma(n + 1))


def comb(N, k, *, exact: bool = False, repetition: bool = False):
    """The number of ways to choose k of N; with repetition of N + k - 1. Raises ArgumentError, DTypeError.

    >>> hl.scipy.special.comb(5, hnp.array([0, 2, 5]))
    Array([ 1., 10.,  1.], dtype=float32)
    """
    if exact:
        raise ArgumentError("comb with exact=True", "arrays have no integers of any size", "take exact=False")
    n, k = floats("comb", N, k)
    if repetition:
        n = n + k - 1
    value = hnp.exp(lax.lgamma(n + 1) - lax.lgamma(k + 1) - lax.lgamma(n - k + 1))
    whole = (n == hnp.floor(n)) & (k == hnp.floor(k)) & (value < 2.0 ** (10 if n.dtype in NARROW else 20))
    value = hnp.where(whole, hnp.round(value), value)
    return hnp.where((k < 0) | (k > n) | (n < 0), 0, value)


def _beta(a, b):
    """(sign of beta(a, b), log |beta(a, b)|), with the limits that SciPy has where gamma is infinite.

    At a = 0, -1, -2, ... gamma(a) / gamma(a + b) is finite where a + b is such a number too: for whole b up to -a,
    beta(a, b) = (-1)^b beta(1 - a - b, b). Elsewhere the pole is infinite.
    """
    pole_a, pole_b = (lax.stop_gradient((x <= 0) & (x == hnp.floor(x))) for x in (a, b))
    pole, other = hnp.where(pole_a, a, b), hnp.where(pole_a, b, a)
    rest = 1 - pole - other
    inside = (other == hnp.floor(other)) & (rest > 0) & (abs(pole) < math.inf) & (abs(other) < math.inf)
    finite = (pole_a | pole_b) & inside & (other > 0)
    infinite = (pole_a | pole_b) & ~finite
    a, b = hnp.where(finite, rest, a), hnp.where(finite, other, b)
    vanishes = (a + b <= 0) & (a + b == hnp.floor(a + b))  # as 1 / gamma(a + b), to a zero without a sign
    sign = _gammasgn(a) * _gammasgn(b) * hnp.where(vanishes, 1.0, _gammasgn(a + b))
    log = lax.lgamma(a) + lax.lgamma(b) - lax.lgamma(a + b)
    # gamma(a) / gamma(a + b) is about a^-b for large a.
    large, small = hnp.maximum(a, b) == math.inf, hnp.minimum(a, b)
    log = hnp.where(large, hnp.where(small > 0, -math.inf, math.inf), log)
    sign = hnp.where(large, _gammasgn(small), sign)
    nan = hnp.isnan(a) | hnp.isnan(b)
    sign = hnp.where(infinite, 1.0, sign)
    sign = hnp.where((finite | infinite) & inside & (hnp.mod(other, 2) != 0), -sign, sign).astype(log.dtype)
    log = hnp.where(nan, math.nan, hnp.where(infinite, math.inf, log)).astype(log.dtype)
    return sign, log


betaln = _two("betaln", lambda a, b: _beta(a, b)[1], "log |beta(a, b)|.", "[0.288, 0.065]", "a", "b")


def beta(a, b):
    """The beta function gamma(a) gamma(b) / gamma(a + b). Element-wise, floats. Raises DTypeError, ShapeError."""
    sign, log = _beta(*floats("beta", a, b))
    return sign * hnp.exp(log)


def betainc(a, b, x):
    """The regularized incomplete beta function I(x; a, b). Element-wise, floats. Raises DTypeError, ShapeError."""
    return lax.betainc(*floats("betainc", a, b, x))


def multigammaln(a, d):
    """log of the multivariate gamma function of dimension d (a static integer), for a > (d - 1) / 2."""
    (a,) = floats("multigammaln", a)
    if not isinstance(d, (int, np.integer)) or isinstance(d, bool):
        raise ArgumentError("multigammaln takes a static integer d", f"{d!r:.60}", "pass a Python integer")
    result = hnp.full_like(a, d * (d - 1) / 4 * math.log(math.pi))
    for k in range(int(d)):
        result = result + lax.lgamma(a - k / 2)
    return result


def _poch(z, m):
    value = _gammasgn(z + m) * _gammasgn(z) * hnp.exp(lax.lgamma(z + m) - lax.lgamma(z))
    return hnp.where(m == 0, 1.0, value).astype(z.dtype)


poch = _two("poch", _poch, "The rising factorial gamma(z + m) / gamma(z).", "[0.75 , 1.875]", "z", "m")


def polygamma(n, x):
    """The derivative of order n of digamma at x. Element-wise, floats. Raises DTypeError, ShapeError."""
    n, x = floats("polygamma", n, x)
    return _with_limit_at_zero(x, n == 0, lax.polygamma(n, x))


def zeta(x, q=1):
    """Hurwitz's zeta function, the sum of (k + q)^-x; Riemann's for q = 1. Element-wise, floats. Raises DTypeError."""
    return lax.zeta(*floats("zeta", x, q))


def bernoulli(n):
    """Bernoulli numbers B(0) to B(n), n a static integer, f32: B(1) = -1/2 (DLMF 24.2). Raises ArgumentError."""
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 0:
        raise ArgumentError("bernoulli takes a static integer from 0", f"{n!r:.60}", "pass a Python integer")
    return hnp.asarray(scipy_special.bernoulli(max(int(n), 1))[: int(n) + 1], dtype="float32")


# --- error functions and the normal distribution ------------------------------------------------------------------

erf = _one("erf", lax.erf, "The error function.", "[0.276, 0.711]")
erfc = _one("erfc", lax.erfc, "1 - erf(x), without its cancellation.", "[0.724, 0.289]")
erfinv = _one("erfinv", lax.erf_inv, "The inverse of erf.", "[0.225, 0.813]")


def _ndtr(x):
    return 0.5 * lax.erfc(-x * math.sqrt(0.5))


ndtr = _one("ndtr", _ndtr, "The cumulative distribution of the normal distribution.", "[0.599, 0.773]")


def _log_ndtr_value(x):
    """log1p of the complement above, log of erfc in the middle, the scaled erfc below."""
    high = hnp.log1p(-_ndtr(-hnp.maximum(x, 0.0)))
    low = hnp.minimum(x, 0.0)
    return hnp.where(x > 0, high, hnp.log(0.5 * erfcx(-low * math.sqrt(0.5))) - 0.5 * low * low)


@custom_jvp
def _log_ndtr(x):
    return _log_ndtr_value(x)


@_log_ndtr.defjvp
def _log_ndtr_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    value = _log_ndtr(x)
    return value, t * hnp.exp(-0.5 * x * x - 0.5 * math.log(2 * math.pi) - value)


def log_ndtr(x, series_order: int = 3):
    """log(ndtr(x)), exact in both tails, with its derivative. series_order is accepted for JAX's sake.

    Element-wise, floats. Raises DTypeError.
    """
    return _log_ndtr(*floats("log_ndtr", x))


@custom_jvp
def _ndtri(p):
    # In the lower half by the logarithm of 2 p, in the upper by symmetry: erf's inverse keeps what 1 - 2 p loses not.
    tail = hnp.minimum(p, 1 - p)
    middle = math.sqrt(2) * lax.erf_inv(2 * p - 1)
    safe = hnp.where((tail > 0) & (tail < 0.02), tail, 0.02)
    guess = hnp.sqrt(-2 * hnp.log(safe))
    x = -(guess - hnp.log(guess * math.sqrt(2 * math.pi)) / guess)
    logarithm = hnp.log(safe)
    for _ in range(4):  # Newton's method on log ndtr, which is nearly a parabola there
        value = _log_ndtr_value(x)
        slope = hnp.exp(-0.5 * x * x - 0.5 * math.log(2 * math.pi) - value)
        x = x - (value - logarithm) / slope
    x = hnp.where(p < 0.5, x, -x)
    result = hnp.where(tail < 0.02, x, middle)
    return hnp.where(p == 0, -math.inf, hnp.where(p == 1, math.inf, hnp.where((p < 0) | (p > 1), math.nan, result)))


@_ndtri.defjvp
def _ndtri_jvp(primals, tangents):
    (p,), (t,) = primals, tangents
    x = _ndtri(p)
    return x, t * math.sqrt(2 * math.pi) * hnp.exp(0.5 * x * x)


ndtri = _one("ndtri", _ndtri, "The quantile of the normal distribution: the inverse of ndtr.", "[-0.674,  0.674]")

# --- logistic and entropies ---------------------------------------------------------------------------------------

expit = _one("expit", lax.logistic, "1 / (1 + exp(-x)).", "[0.562, 0.679]")
logit = _one(
    "logit", lambda p: hnp.log(p) - hnp.log1p(-p), "log(p / (1 - p)), the inverse of expit.", "[-1.099,  1.099]"
)


def _zero_times(function):
    """x f(y), and 0 where x is 0 and y no NaN; its derivative by y is 0 there as well."""

    def product(x, y):
        zero = x == 0
        safe = hnp.where(zero, 1.0, y).astype(y.dtype)
        return hnp.where(zero, hnp.where(hnp.isnan(y), math.nan, 0.0), x * function(safe)).astype(x.dtype)

    return product


_xlogy, _xlog1py = _zero_times(hnp.log), _zero_times(hnp.log1p)
xlogy = _two("xlogy", _xlogy, "x log(y), and 0 for x = 0.", "[0.347, 0.549]")
xlog1py = _two("xlog1py", _xlog1py, "x log(1 + y), and 0 for x = 0.", "[0.549, 0.693]")


def _entr(x):
    return hnp.where(x < 0, -math.inf, -_xlogy(x, x)).astype(x.dtype)


entr = _one("entr", _entr, "-x log(x): 0 for 0, -inf for negative x.", "[0.347, 0.216]")


def _rel_entr(p, q):
    both = (p > 0) & (q > 0)
    ratio = hnp.where(both, p, 1.0) / hnp.where(both, q, 1.0)
    value = hnp.where(both, p * hnp.log(ratio), hnp.where((p == 0) & (q >= 0), 0.0, math.inf))
    return hnp.where(hnp.isnan(p) | hnp.isnan(q), math.nan, value).astype(p.dtype)


rel_entr = _two(
    "rel_entr", _rel_entr, "p log(p / q): 0 for p = 0, inf outside of its domain.", "[-0.693, -0.896]", "p", "q"
)


def _kl_div(p, q):
    outside = ~((p > 0) & (q > 0) | (p == 0) & (q >= 0) | hnp.isnan(p) | hnp.isnan(q))
    return hnp.where(outside, math.inf, _rel_entr(p, q) - p + q).astype(p.dtype)


kl_div = _two("kl_div", _kl_div, "p log(p / q) - p + q; inf outside of its domain.", "[0.807, 1.604]", "p", "q")


def _boxcox(x, lmbda):
    safe = hnp.where(lmbda == 0, 1.0, lmbda).astype(x.dtype)
    return hnp.where(lmbda == 0, hnp.log(x), hnp.expm1(safe * hnp.log(x)) / safe).astype(x.dtype)


def _boxcox1p(x, lmbda):
    safe = hnp.where(lmbda == 0, 1.0, lmbda).astype(x.dtype)
    return hnp.where(lmbda == 0, hnp.log1p(x), hnp.expm1(safe * hnp.log1p(x)) / safe).astype(x.dtype)


boxcox = _two("boxcox", _boxcox, "(x^lmbda - 1) / lmbda, and log(x) for lmbda = 0.", "[-0.375, -0.292]", "x", "lmbda")
boxcox1p = _two("boxcox1p", _boxcox1p, "boxcox(1 + x, lmbda).", "[0.625, 0.792]", "x", "lmbda")


def logsumexp(a, axis=None, b=None, keepdims: bool = False, return_sign: bool = False, where=None):
    """log(sum(b exp(a))) over an axis, without overflow. b: factors, of any sign with return_sign.

    return_sign: return (log |sum|, its sign). where: which elements count. Raises DTypeError, ShapeError.
    """
    if b is not None:
        a, b = floats("logsumexp", a, b, allow_complex=True)
        a = hnp.where(b == 0, -math.inf, a)
    else:
        (a,) = floats("logsumexp", a, allow_complex=True)
    if where is not None:
        a = hnp.where(where, a, -math.inf)
    real = hnp.real(a)
    largest = hnp.max(real, axis=axis, keepdims=True, initial=-math.inf)
    largest = lax.stop_gradient(hnp.where(hnp.isfinite(largest), largest, 0.0).astype(real.dtype))
    powers = hnp.exp(a - largest)
    total = hnp.sum(powers if b is None else b * powers, axis=axis, keepdims=True)
    sign = hnp.sign(total)
    complex_ = total.dtype in COMPLEX
    if return_sign:
        result = hnp.log(hnp.abs(total)) + largest
    elif complex_:
        result = hnp.log(total) + largest
    else:
        result = hnp.where(total < 0, math.nan, hnp.log(hnp.abs(total))) + largest
    if not keepdims:
        result, sign = (hnp.squeeze(v, axis=tuple(range(a.ndim)) if axis is None else axis) for v in (result, sign))
    return (result, sign) if return_sign else result


def softmax(x, axis=None):
    """exp(x) / sum(exp(x)) over an axis (all of them by default). Raises DTypeError.

    >>> hl.scipy.special.softmax(hnp.array([0.0, 0.0]))
    Array([0.5, 0.5], dtype=float32)
    """
    (x,) = floats("softmax", x)
    powers = hnp.exp(x - lax.stop_gradient(hnp.max(x, axis=axis, keepdims=True)))
    return powers / hnp.sum(powers, axis=axis, keepdims=True)


def log_softmax(x, axis=None):
    """log(softmax(x)). Raises DTypeError."""
    (x,) = floats("log_softmax", x)
    shifted = x - lax.stop_gradient(hnp.max(x, axis=axis, keepdims=True))
    return shifted - hnp.log(hnp.sum(hnp.exp(shifted), axis=axis, keepdims=True))


# --- Bessel functions ---------------------------------------------------------------------------------------------

i0e = _one("i0e", lax.bessel_i0e, "exp(-|x|) I0(x).", "[0.791, 0.541]")
i1e = _one("i1e", lax.bessel_i1e, "exp(-|x|) I1(x).", "[0.098, 0.19 ]")
i0 = _one("i0", lambda x: hnp.exp(hnp.abs(x)) * lax.bessel_i0e(x), "The modified Bessel function I0.", "[1.016, 1.146]")
i1 = _one("i1", lambda x: hnp.exp(hnp.abs(x)) * lax.bessel_i1e(x), "The modified Bessel function I1.", "[0.126, 0.402]")


def sph_harm_y(n, m, theta, phi, diff_n=None, n_max: int | None = None):
    """Spherical harmonics Y of degree n and order m at polar angle theta and azimuth phi: complex64 (DLMF 14.30).

    n, m: whole numbers, |m| <= n. n_max: a static bound of n; taken from n unless n is traced. Raises
    ArgumentError, ShapeError.
    """
    if n_max is None:
        if isinstance(n, Tracer):
            raise ArgumentError("sph_harm_y of a traced n", "its largest value is not known", "pass n_max=")
        n_max = int(np.max(np.asarray(n)))
    n, m = hnp.asarray(n).astype("int32"), hnp.asarray(m).astype("int32")
    theta, phi = floats("sph_harm_y", theta, phi)
    n, m, theta, phi = hnp.broadcast_arrays(n, m, theta, phi)
    order = hnp.abs(m)
    x, root = hnp.cos(theta), hnp.sin(theta)
    # Normalized associated Legendre functions: upward in the degree from P(m, m) (DLMF 14.10.3).
    result = hnp.zeros_like(theta)
    for own in range(n_max + 1):
        diagonal = math.sqrt(1 / (4 * math.pi))
        for k in range(1, own + 1):
            diagonal *= -math.sqrt((2 * k + 1) / (2 * k))
        before, current = hnp.zeros_like(theta), diagonal * root**own
        for degree in range(own, n_max + 1):
            if degree > own:
                factor = math.sqrt((4 * degree**2 - 1) / (degree**2 - own**2))
                last = (
                    math.sqrt(((degree - 1) ** 2 - own**2) / (4 * (degree - 1) ** 2 - 1)) if degree > own + 1 else 0.0
                )
                before, current = current, factor * (x * current - last * before)
            result = hnp.where((order == own) & (n == degree), current, result)
    angle = m.astype(theta.dtype) * phi
    value = lax.complex(result * hnp.cos(angle), result * hnp.sin(angle))
    sign = hnp.where((m < 0) & (order % 2 == 1), -1.0, 1.0)
    return value * sign


__all__ = [
    "bernoulli", "bessel_jn", "beta", "betainc", "betaln", "boxcox", "boxcox1p", "comb", "dawsn", "digamma", "entr",
    "erf", "erfc", "erfcx", "erfinv", "exp1", "expi", "expit", "expn", "factorial", "fresnel", "gamma", "gammainc",
    "gammaincc", "gammaln", "gammasgn", "hyp1f1", "hyp2f1", "i0", "i0e", "i1", "i1e", "kl_div", "log_ndtr",
    "log_softmax", "loggamma", "logit", "logsumexp", "multigammaln", "ndtr", "ndtri", "owens_t", "poch", "polygamma",
    "psi", "rel_entr", "sici", "softmax", "spence", "sph_harm_y", "wofz", "xlog1py", "xlogy", "zeta",
]  # fmt: skip
__dir__ = __all__.copy
