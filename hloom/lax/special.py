"""Special functions of `hloom.lax`: gamma, zeta, Bessel and incomplete functions, erf's complement and inverse.

As in `jax.lax` nothing is promoted: array operands have one dtype, a float, and one shape. Accuracy: correctly rounded
or next to it in f32; some units in the last place in f64.
"""

from __future__ import annotations

from hloom.lax.elementwise import _binary, _unary, exp, like_arrays, log, mul, neg, sub
from hloom.tracing.trace import bind

erf_inv = _unary("erf_inv", "erf-inv", "The inverse of erf; infinite at -1 and 1, NaN beyond.")
erfc = _unary("erfc", "erfc", "1 - erf(x) of a float, without its cancellation.")
lgamma = _unary("lgamma", "lgamma", "log |gamma(x)| of a float; infinite at 0, -1, -2, ...")
digamma = _unary("digamma", "digamma", "The derivative of lgamma; NaN at 0, -1, -2, ...")
bessel_i0e = _unary("bessel_i0e", "bessel-i0e", "exp(-|x|) I0(x), I0 the modified Bessel function of the first kind.")
bessel_i1e = _unary("bessel_i1e", "bessel-i1e", "exp(-|x|) I1(x), I1 the modified Bessel function of the first kind.")
atan = _unary("atan", "atan", "The arc tangent, radians, of a float or a complex number.")

nextafter = _binary("nextafter", "next-after", "The float next to x1 in the direction of x2.")
zeta = _binary("zeta", "zeta", "Hurwitz's zeta function: the sum of (k + q)^-x, k = 0, 1, ...; NaN where x < 1.")
polygamma = _binary("polygamma", "polygamma", "The derivative of order m of digamma at x; m holds whole numbers.")
igamma = _binary("igamma", "igamma", "The regularized lower incomplete gamma function P(a, x).")
igammac = _binary("igammac", "igammac", "The regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x).")
igamma_grad_a = _binary("igamma_grad_a", "igamma-grad-a", "The derivative of igamma(a, x) by a.")


def random_gamma_grad(a, x):
    """The derivative of a sample x of the gamma distribution by its shape a: -igamma_grad_a(a, x) over the density.

    Source: Figurnov et al., Implicit reparameterization gradients, 2018. Raises ShapeError, DTypeError.
    """
    (a, x), _ = like_arrays("random_gamma_grad", (a, x))
    log_density = sub(sub(mul(sub(a, 1.0), log(x)), x), lgamma(a))
    return neg(mul(igamma_grad_a(a, x), exp(neg(log_density))))


def betainc(a, b, x):
    """The regularized incomplete beta function I(x; a, b), floats of one dtype and shape.

    Its derivatives by a and b raise DifferentiationError. Raises ShapeError, DTypeError.
    """
    operands, weak = like_arrays("betainc", (a, b, x))
    return bind("regularized-incomplete-beta", *operands, weak=weak)


regularized_incomplete_beta = betainc
