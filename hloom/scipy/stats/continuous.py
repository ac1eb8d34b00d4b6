"""Continuous distributions: log densities, densities, cumulative distributions, their complements and quantiles.

Names, argument orders and the meaning of loc and scale are SciPy's; x, loc and scale broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import hloom.numpy as hnp
from hloom import lax
from hloom.scipy import special
from hloom.scipy.special import floats

LOG_TWO_PI = math.log(2 * math.pi)


def _inside(condition, value, outside=-math.inf):
    return hnp.where(condition, value, outside).astype(value.dtype)


def _by_logarithm(name: str):
    """A function as exp of the distribution's function of logarithms."""

    def function(cls, *args, **kwargs):
        return hnp.exp(getattr(cls, name)(*args, **kwargs))

    function.__doc__ = f"exp of `{name}`."
    return classmethod(function)


class Distribution:
    """A namespace of functions; pdf is exp(logpdf), logcdf and logsf are logarithms of cdf and sf unless given."""

    cdf: ClassVar[Callable]

    def __new__(cls, *args, **kwargs):
        raise TypeError(f"{cls.__name__} is a namespace: call {cls.__name__}.pdf(x, ...)")

    pdf = _by_logarithm("logpdf")

    @classmethod
    def logcdf(cls, *args, **kwargs):
        """log(cdf)."""
        return hnp.log(cls.cdf(*args, **kwargs))

    @classmethod
    def sf(cls, *args, **kwargs):
        """1 - cdf."""
        return 1 - cls.cdf(*args, **kwargs)

    @classmethod
    def logsf(cls, *args, **kwargs):
        """log(sf)."""
        return hnp.log(cls.sf(*args, **kwargs))


class norm(Distribution):
    """The normal distribution.

    >>> hl.scipy.stats.norm.cdf(hnp.array([0.0, 1.96])).round(3)
    Array([0.5  , 0.975], dtype=float32)
    >>> hl.scipy.stats.norm.ppf(0.975).round(2)
    Array(1.96, dtype=float32)
    """

    @staticmethod
    def logpdf(x, loc=0, scale=1):
        """log of the density exp(-x^2 / 2) / sqrt(2 pi)."""
        x, loc, scale = floats("norm.logpdf", x, loc, scale)
        y = (x - loc) / scale
        return -0.5 * (y * y + LOG_TWO_PI) - hnp.log(scale)

    @staticmethod
    def cdf(x, loc=0, scale=1):
        """The probability of numbers up to x."""
        x, loc, scale = floats("norm.cdf", x, loc, scale)
        return special.ndtr((x - loc) / scale)

    @staticmethod
    def logcdf(x, loc=0, scale=1):
        """log(cdf), exact in the tails."""
        x, loc, scale = floats("norm.logcdf", x, loc, scale)
        return special.log_ndtr((x - loc) / scale)

    @classmethod
    def sf(cls, x, loc=0, scale=1):
        """1 - cdf without cancellation."""
        x, loc, scale = floats("norm.sf", x, loc, scale)
        return cls.cdf(-x, -loc, scale)

    @classmethod
    def logsf(cls, x, loc=0, scale=1):
        """log(sf), exact in the tails."""
        x, loc, scale = floats("norm.logsf", x, loc, scale)
        return cls.logcdf(-x, -loc, scale)

    @staticmethod
    def ppf(q, loc=0, scale=1):
        """The quantile: the value below which a fraction q of the distribution lies."""
        q, loc, scale = floats("norm.ppf", q, loc, scale)
        return special.ndtri(q) * scale + loc

    @classmethod
    def isf(cls, q, loc=0, scale=1):
        """The value above which a fraction q of the distribution lies."""
        q, loc, scale = floats("norm.isf", q, loc, scale)
        return -special.ndtri(q) * scale + loc


class uniform(Distribution):
    """The uniform distribution on [loc, loc + scale].

    >>> hl.scipy.stats.uniform.pdf(hnp.array([-1.0, 0.5]))
    Array([0., 1.], dtype=float32)
    """

    @staticmethod
    def logpdf(x, loc=0, scale=1):
        """-log(scale) inside."""
        x, loc, scale = floats("uniform.logpdf", x, loc, scale)
        return _inside((x >= loc) & (x <= loc + scale), -hnp.log(scale))

    @staticmethod
    def cdf(x, loc=0, scale=1):
        """Rises from 0 to 1."""
        x, loc, scale = floats("uniform.cdf", x, loc, scale)
        return hnp.clip((x - loc) / scale, 0, 1)

    @staticmethod
    def ppf(q, loc=0, scale=1):
        """The inverse of cdf; NaN outside of [0, 1]."""
        q, loc, scale = floats("uniform.ppf", q, loc, scale)
        return _inside((q >= 0) & (q <= 1), loc + scale * q, math.nan)


class expon(Distribution):
    """The exponential distribution.

    >>> hl.scipy.stats.expon.cdf(1.0).round(3)
    Array(0.632, dtype=float32)
    """

    @staticmethod
    def logpdf(x, loc=0, scale=1):
        """log of exp(-x) from 0 on."""
        x, loc, scale = floats("expon.logpdf", x, loc, scale)
        return _inside(x >= loc, -(x - loc) / scale - hnp.log(scale))

    @staticmethod
    def cdf(x, loc=0, scale=1):
        """1 - exp(-x) from 0 on."""
        x, loc, scale = floats("expon.cdf", x, loc, scale)
        return _inside(x >= loc, -hnp.expm1(-(x - loc) / scale), 0.0)

    @staticmethod
    def sf(x, loc=0, scale=1):
        """exp(-x) from 0 on, 1 below."""
        x, loc, scale = floats("expon.sf", x, loc, scale)
        return _inside(x >= loc, hnp.exp(-(x - loc) / scale), 1.0)

    @staticmethod
    def logsf(x, loc=0, scale=1):
        """-x from 0 on, 0 below."""
        x, loc, scale = floats("expon.logsf", x, loc, scale)
        return _inside(x >= loc, -(x - loc) / scale, 0.0)

    @staticmethod
    def ppf(q, loc=0, scale=1):
        """-log(1 - q); NaN outside of [0, 1]."""
        q, loc, scale = floats("expon.ppf", q, loc, scale)
        return _inside((q >= 0) & (q <= 1), loc - scale * hnp.log1p(-q), math.nan)


class laplace(Distribution):
    """The Laplace distribution."""

    @staticmethod
    def logpdf(x, loc=0, scale=1):
        """log of exp(-|x|) / 2."""
        x, loc, scale = floats("laplace.logpdf", x, loc, scale)
        return -hnp.abs(x - loc) / scale - hnp.log(2 * scale)

    @staticmethod
    def cdf(x, loc=0, scale=1):
        """exp(x) / 2 below 0, 1 - exp(-x) / 2 above."""
        x, loc, scale = floats("laplace.cdf", x, loc, scale)
        y = (x - loc) / scale
        half = 0.5 * hnp.exp(-hnp.abs(y))
        return hnp.where(y <= 0, half, 1 - half)


class logistic(Distribution):
    """The logistic distribution."""

    @staticmethod
    def logpdf(x, loc=0, scale=1):
        """log of exp(-x) / (1 + exp(-x))^2."""
        x, loc, scale = floats("logistic.logpdf", x, loc, scale)
        y = hnp.abs((x - loc) / scale)
        return -y - 2 * hnp.log1p(hnp.exp(-y)) - hnp.log(scale)

    @staticmethod
    def cdf(x, loc=0, scale=1):
        """1 / (1 + exp(-x))."""
        x, loc, scale = floats("logistic.cdf", x, loc, scale)
        return lax.logistic((x - loc) / scale)

    @staticmethod
    def sf(x, loc=0, scale=1):
        """1 / (1 + exp(x))."""
        x, loc, scale = floats("logistic.sf", x, loc, scale)
        return lax.logistic(-(x - loc) / scale)

    @staticmethod
    def ppf(q, loc=0, scale=1):
        """log(q / (1 - q))."""
        q, loc, scale = floats("logistic.ppf", q, loc, scale)
        return special.logit(q) * scale + loc

    @staticmethod
    def isf(q, loc=0, scale=1):
        """-log(q / (1 - q))."""
        q, loc, scale = floats("logistic.isf", q, loc, scale)
        return -special.logit(q) * scale + loc


class cauchy(Distribution):
    """The Cauchy distribution."""

    @staticmethod
    def logpdf(x, loc=0, scale=1):
        """log of 1 / (pi (1 + x^2))."""
        x, loc, scale = floats("cauchy.logpdf", x, loc, scale)
        y = (x - loc) / scale
        return -hnp.log(math.pi * scale) - hnp.log1p(y * y)

    @staticmethod
    def cdf(x, loc=0, scale=1):
        """1/2 + atan(x) / pi."""
        x, loc, scale = floats("cauchy.cdf", x, loc, scale)
        return hnp.arctan2(scale, loc - x) / math.pi

    @classmethod
    def sf(cls, x, loc=0, scale=1):
        """1 - cdf without cancellation."""
        x, loc, scale = floats("cauchy.sf", x, loc, scale)
        return hnp.arctan2(scale, x - loc) / math.pi

    @staticmethod
    def ppf(q, loc=0, scale=1):
        """tan(pi (q - 1/2))."""
        q, loc, scale = floats("cauchy.ppf", q, loc, scale)
        return loc + scale * hnp.tan(math.pi * (q - 0.5))

    @staticmethod
    def isf(q, loc=0, scale=1):
        """tan(pi (1/2 - q))."""
        q, loc, scale = floats("cauchy.isf", q, loc, scale)
        return loc + scale * hnp.tan(math.pi * (0.5 - q))


class gamma(Distribution):
    """The gamma distribution of shape a.

    >>> hl.scipy.stats.gamma.pdf(1.0, 2.0).round(3)
    Array(0.368, dtype=float32)
    """

    @staticmethod
    def logpdf(x, a, loc=0, scale=1):
        """log of x^(a-1) exp(-x) / gamma(a)."""
        x, a, loc, scale = floats("gamma.logpdf", x, a, loc, scale)
        inside = x >= loc
        y = hnp.where(inside, (x - loc) / scale, 1.0)
        return _inside(inside, special.xlogy(a - 1, y) - y - lax.lgamma(a) - hnp.log(scale))

    @staticmethod
    def cdf(x, a, loc=0, scale=1):
        """The regularized lower incomplete gamma function."""
        x, a, loc, scale = floats("gamma.cdf", x, a, loc, scale)
        return lax.igamma(a, hnp.maximum((x - loc) / scale, 0.0))

    @staticmethod
    def sf(x, a, loc=0, scale=1):
        """The regularized upper incomplete gamma function."""
        x, a, loc, scale = floats("gamma.sf", x, a, loc, scale)
        return lax.igammac(a, hnp.maximum((x - loc) / scale, 0.0))


class chi2(Distribution):
    """The chi-square distribution with df degrees of freedom."""

    @staticmethod
    def logpdf(x, df, loc=0, scale=1):
        """log of the gamma density of shape df / 2 and twice the scale."""
        x, df, loc, scale = floats("chi2.logpdf", x, df, loc, scale)
        return gamma.logpdf(x, df / 2, loc, 2 * scale)

    @staticmethod
    def cdf(x, df, loc=0, scale=1):
        """That of the gamma distribution."""
        x, df, loc, scale = floats("chi2.cdf", x, df, loc, scale)
        return gamma.cdf(x, df / 2, loc, 2 * scale)

    @staticmethod
    def sf(x, df, loc=0, scale=1):
        """That of the gamma distribution."""
        x, df, loc, scale = floats("chi2.sf", x, df, loc, scale)
        return gamma.sf(x, df / 2, loc, 2 * scale)


class beta(Distribution):
    """The beta distribution."""

    @staticmethod
    def logpdf(x, a, b, loc=0, scale=1):
        """log of x^(a-1) (1-x)^(b-1) / beta(a, b)."""
        x, a, b, loc, scale = floats("beta.logpdf", x, a, b, loc, scale)
        y = (x - loc) / scale
        inside = (y >= 0) & (y <= 1)
        y = hnp.where(inside, y, 0.5)
        value = special.xlogy(a - 1, y) + special.xlog1py(b - 1, -y) - special.betaln(a, b) - hnp.log(scale)
        return _inside(inside, value)

    @staticmethod
    def cdf(x, a, b, loc=0, scale=1):
        """The regularized incomplete beta function."""
        x, a, b, loc, scale = floats("beta.cdf", x, a, b, loc, scale)
        return lax.betainc(a, b, hnp.clip((x - loc) / scale, 0, 1))

    @staticmethod
    def sf(x, a, b, loc=0, scale=1):
        """1 - cdf without cancellation."""
        x, a, b, loc, scale = floats("beta.sf", x, a, b, loc, scale)
        return lax.betainc(b, a, 1 - hnp.clip((x - loc) / scale, 0, 1))


class t(Distribution):
    """Student's t distribution with df degrees of freedom."""

    @staticmethod
    def logpdf(x, df, loc=0, scale=1):
        """log of (1 + x^2 / df)^(-(df + 1) / 2) over its integral."""
        x, df, loc, scale = floats("t.logpdf", x, df, loc, scale)
        y = (x - loc) / scale
        integral = 0.5 * hnp.log(df * math.pi) + lax.lgamma(df / 2) - lax.lgamma((df + 1) / 2)
        return -0.5 * (df + 1) * hnp.log1p(y * y / df) - integral - hnp.log(scale)


class pareto(Distribution):
    """The Pareto distribution of shape b, from scale on."""

    @staticmethod
    def logpdf(x, b, loc=0, scale=1):
        """log of b / x^(b+1)."""
        x, b, loc, scale = floats("pareto.logpdf", x, b, loc, scale)
        y = (x - loc) / scale
        inside = y >= 1
        y = hnp.where(inside, y, 1.0)
        return _inside(inside, hnp.log(b) - (b + 1) * hnp.log(y) - hnp.log(scale))

    @staticmethod
    def cdf(x, b, loc=0, scale=1):
        """1 - x^-b."""
        x, b, loc, scale = floats("pareto.cdf", x, b, loc, scale)
        return -hnp.expm1(-b * hnp.log(hnp.maximum((x - loc) / scale, 1.0)))

    @staticmethod
    def sf(x, b, loc=0, scale=1):
        """x^-b."""
        x, b, loc, scale = floats("pareto.sf", x, b, loc, scale)
        return hnp.maximum((x - loc) / scale, 1.0) ** -b

    @staticmethod
    def logsf(x, b, loc=0, scale=1):
        """-b log(x)."""
        x, b, loc, scale = floats("pareto.logsf", x, b, loc, scale)
        return -b * hnp.log(hnp.maximum((x - loc) / scale, 1.0))

    @staticmethod
    def ppf(q, b, loc=0, scale=1):
        """(1 - q)^(-1/b); NaN outside of [0, 1]."""
        q, b, loc, scale = floats("pareto.ppf", q, b, loc, scale)
        return _inside((q >= 0) & (q <= 1), loc + scale * (1 - q) ** (-1 / b), math.nan)


class gennorm(Distribution):
    """The generalized normal distribution, density proportional to exp(-|x|^beta)."""

    @staticmethod
    def logpdf(x, beta, loc=0, scale=1):
        """log of beta exp(-|x|^beta) / (2 gamma(1 / beta))."""
        x, beta, loc, scale = floats("gennorm.logpdf", x, beta, loc, scale)
        return hnp.log(beta / (2 * scale)) - lax.lgamma(1 / beta) - hnp.abs((x - loc) / scale) ** beta

    @staticmethod
    def cdf(x, beta, loc=0, scale=1):
        """1/2 and half of the incomplete gamma function."""
        x, beta, loc, scale = floats("gennorm.cdf", x, beta, loc, scale)
        y = (x - loc) / scale
        return 0.5 + 0.5 * hnp.sign(y) * lax.igamma(1 / beta, hnp.abs(y) ** beta)


class gumbel_r(Distribution):
    """The Gumbel distribution of maxima."""

    @staticmethod
    def logpdf(x, loc=0, scale=1):
        """log of exp(-x - exp(-x))."""
        x, loc, scale = floats("gumbel_r.logpdf", x, loc, scale)
        y = (x - loc) / scale
        return -(y + hnp.exp(-y)) - hnp.log(scale)

    @staticmethod
    def logcdf(x, loc=0, scale=1):
        """-exp(-x)."""
        x, loc, scale = floats("gumbel_r.logcdf", x, loc, scale)
        return -hnp.exp(-(x - loc) / scale)

    cdf = _by_logarithm("logcdf")

    @classmethod
    def sf(cls, x, loc=0, scale=1):
        """1 - exp(-exp(-x))."""
        return -hnp.expm1(cls.logcdf(x, loc, scale))

    @staticmethod
    def ppf(q, loc=0, scale=1):
        """-log(-log(q))."""
        q, loc, scale = floats("gumbel_r.ppf", q, loc, scale)
        return loc - scale * hnp.log(-hnp.log(q))


class gumbel_l(Distribution):
    """The Gumbel distribution of minima."""

    @staticmethod
    def logpdf(x, loc=0, scale=1):
        """log of exp(x - exp(x))."""
        x, loc, scale = floats("gumbel_l.logpdf", x, loc, scale)
        y = (x - loc) / scale
        return y - hnp.exp(y) - hnp.log(scale)

    @staticmethod
    def logsf(x, loc=0, scale=1):
        """-exp(x)."""
        x, loc, scale = floats("gumbel_l.logsf", x, loc, scale)
        return -hnp.exp((x - loc) / scale)

    sf = _by_logarithm("logsf")

    @classmethod
    def cdf(cls, x, loc=0, scale=1):
        """1 - exp(-exp(x))."""
        return -hnp.expm1(cls.logsf(x, loc, scale))

    @staticmethod
    def ppf(q, loc=0, scale=1):
        """log(-log(1 - q))."""
        q, loc, scale = floats("gumbel_l.ppf", q, loc, scale)
        return loc + scale * hnp.log(-hnp.log1p(-q))


def _log_difference(high, low):
    """log(exp(high) - exp(low))."""
    return high + hnp.log1p(-hnp.exp(low - high))


def _log_mass(a, b):
    """log of the normal distribution's mass between a and b, taken in the tail where both lie."""
    flip = a > 0
    a, b = hnp.where(flip, -b, a), hnp.where(flip, -a, b)
    tail = _log_difference(special.log_ndtr(b), special.log_ndtr(a))
    middle = hnp.log1p(-special.ndtr(a) - special.ndtr(-b))
    return hnp.where(b > 0, middle, tail)


class truncnorm(Distribution):
    """The normal distribution cut at a and b, in units of scale from loc."""

    @staticmethod
    def logpdf(x, a, b, loc=0, scale=1):
        """log of the normal density over the mass between a and b."""
        x, a, b, loc, scale = floats("truncnorm.logpdf", x, a, b, loc, scale)
        y = (x - loc) / scale
        value = norm.logpdf(y) - _log_mass(a, b) - hnp.log(scale)
        value = _inside((y >= a) & (y <= b), value)
        return _inside(a < b, value, math.nan)

    @staticmethod
    def logcdf(x, a, b, loc=0, scale=1):
        """log of the mass from a on over all."""
        x, a, b, loc, scale = floats("truncnorm.logcdf", x, a, b, loc, scale)
        y = (x - loc) / scale
        inside = (y > a) & (y < b)
        value = _log_mass(a, hnp.where(inside, y, 0.5 * (a + b))) - _log_mass(a, b)
        return hnp.where(inside, value, hnp.where(y <= a, -math.inf, 0.0)).astype(value.dtype)

    cdf = _by_logarithm("logcdf")

    @classmethod
    def logsf(cls, x, a, b, loc=0, scale=1):
        """log of the mass up to b over all."""
        x, a, b, loc, scale = floats("truncnorm.logsf", x, a, b, loc, scale)
        return cls.logcdf(-x, -b, -a, -loc, scale)

    sf = _by_logarithm("logsf")


class vonmises(Distribution):
    """The von Mises distribution of angles, of concentration kappa."""

    @staticmethod
    def logpdf(x, kappa, loc=0, scale=1):
        """log of exp(kappa cos(x)) / (2 pi I0(kappa))."""
        x, kappa, loc, scale = floats("vonmises.logpdf", x, kappa, loc, scale)
        # Relative to the peak, so that neither exp nor I0 overflows.
        value = kappa * (hnp.cos((x - loc) / scale) - 1) - LOG_TWO_PI - hnp.log(lax.bessel_i0e(kappa)) - hnp.log(scale)
        return _inside(kappa > 0, value, math.nan)


class wrapcauchy(Distribution):
    """The wrapped Cauchy distribution of angles in [0, 2 pi], 0 < c < 1."""

    @staticmethod
    def logpdf(x, c, loc=0, scale=1):
        """log of (1 - c^2) / (2 pi (1 + c^2 - 2 c cos(x)))."""
        x, c, loc, scale = floats("wrapcauchy.logpdf", x, c, loc, scale)
        y = (x - loc) / scale
        density = (1 - c * c) / (2 * math.pi * (1 + c * c - 2 * c * hnp.cos(y)))
        value = _inside((y >= 0) & (y <= 2 * math.pi), hnp.log(density) - hnp.log(scale))
        return _inside((c > 0) & (c < 1), value, math.nan)
