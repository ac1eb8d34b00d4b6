"""Discrete distributions: log masses, masses, cumulative distributions. Names and argument orders are SciPy's."""

from __future__ import annotations

import math

import hloom.numpy as hnp
from hloom import lax
from hloom.scipy import special
from hloom.scipy.special import floats
from hloom.scipy.stats.continuous import _by_logarithm, _inside


class Distribution:
    """A namespace of functions; pmf is exp(logpmf)."""

    def __new__(cls, *args, **kwargs):
        raise TypeError(f"{cls.__name__} is a namespace: call {cls.__name__}.pmf(k, ...)")

    pmf = _by_logarithm("logpmf")


def _log_choose(n, k):
    return lax.lgamma(n + 1) - lax.lgamma(k + 1) - lax.lgamma(n - k + 1)


def _whole(k):
    return k == hnp.floor(k)


class bernoulli(Distribution):
    """One trial of probability p."""

    @staticmethod
    def logpmf(k, p, loc=0):
        """log(p) for 1, log(1 - p) for 0."""
        k, p, loc = floats("bernoulli.logpmf", k, p, loc)
        x = k - loc
        return _inside((x == 0) | (x == 1), special.xlogy(x, p) + special.xlog1py(1 - x, -p))

    @staticmethod
    def cdf(k, p):
        """0 below 0, 1 - p from 0 on, 1 from 1 on; NaN for an impossible p."""
        k, p = floats("bernoulli.cdf", k, p)
        value = hnp.where(k < 0, 0.0, hnp.where(k < 1, 1 - p, 1.0)).astype(p.dtype)
        return _inside((p >= 0) & (p <= 1) & ~hnp.isnan(k), value, math.nan)

    @staticmethod
    def ppf(q, p):
        """The smallest k with cdf(k) >= q; -1 for q = 0."""
        q, p = floats("bernoulli.ppf", q, p)
        value = hnp.where(q == 0, -1.0, hnp.where(q <= 1 - p, 0.0, 1.0)).astype(p.dtype)
        return _inside((p >= 0) & (p <= 1) & (q >= 0) & (q <= 1), value, math.nan)


class binom(Distribution):
    """Successes among n trials of probability p.

    >>> hl.scipy.stats.binom.pmf(hnp.array([0, 1, 2]), 2, 0.5).round(3)
    Array([0.25, 0.5 , 0.25], dtype=float32)
    """

    @staticmethod
    def logpmf(k, n, p, loc=0):
        """log of n! / (k! (n-k)!) p^k (1-p)^(n-k)."""
        k, n, p, loc = floats("binom.logpmf", k, n, p, loc)
        y = k - loc
        inside = (y >= 0) & (y <= n)
        y = hnp.where(inside, y, 0.0)
        return _inside(inside, _log_choose(n, y) + special.xlogy(y, p) + special.xlog1py(n - y, -p))


class nbinom(Distribution):
    """Failures before n successes of probability p."""

    @staticmethod
    def logpmf(k, n, p, loc=0):
        """log of gamma(k+n) / (k! gamma(n)) p^n (1-p)^k."""
        k, n, p, loc = floats("nbinom.logpmf", k, n, p, loc)
        y = k - loc
        inside = y >= 0
        y = hnp.where(inside, y, 0.0)
        ways = lax.lgamma(y + n) - lax.lgamma(n) - lax.lgamma(y + 1)
        return _inside(inside, ways + special.xlogy(n, p) + special.xlog1py(y, -p))


class betabinom(Distribution):
    """Successes among n trials whose probability is of a beta distribution."""

    @staticmethod
    def logpmf(k, n, a, b, loc=0):
        """log of n! / (k! (n-k)!) beta(k+a, n-k+b) / beta(a, b)."""
        k, n, a, b, loc = floats("betabinom.logpmf", k, n, a, b, loc)
        y = hnp.floor(k - loc)
        inside = (y >= 0) & (y <= n)
        y = hnp.where(inside, y, 0.0)
        value = _log_choose(n, y) + special.betaln(y + a, n - y + b) - special.betaln(a, b)
        return _inside((n >= 0) & (a > 0) & (b > 0), _inside(inside, value), math.nan)


class geom(Distribution):
    """Trials up to the first success of probability p."""

    @staticmethod
    def logpmf(k, p, loc=0):
        """log of (1-p)^(k-1) p."""
        k, p, loc = floats("geom.logpmf", k, p, loc)
        y = k - loc
        inside = y >= 1
        y = hnp.where(inside, y, 1.0)
        return _inside(inside, special.xlog1py(y - 1, -p) + hnp.log(p))


class poisson(Distribution):
    """Counts of mean mu.

    >>> hl.scipy.stats.poisson.pmf(hnp.array([0, 1]), 1.0).round(3)
    Array([0.368, 0.368], dtype=float32)
    """

    @staticmethod
    def logpmf(k, mu, loc=0):
        """log of mu^k exp(-mu) / k!; -inf where k is not an integer."""
        k, mu, loc = floats("poisson.logpmf", k, mu, loc)
        y = k - loc
        inside = (y >= 0) & _whole(y)
        y = hnp.where(inside, y, 0.0)
        return _inside(inside, special.xlogy(y, mu) - lax.lgamma(y + 1) - mu)

    @staticmethod
    def cdf(k, mu, loc=0):
        """The regularized upper incomplete gamma function."""
        k, mu, loc = floats("poisson.cdf", k, mu, loc)
        y = k - loc
        return _inside(y >= 0, lax.igammac(hnp.floor(hnp.maximum(y, 0.0)) + 1, mu), 0.0)

    @staticmethod
    def entropy(mu, loc=0):
        """The entropy in nats: its sum up to where the mass is gone, for mu above 50 the series in 1 / mu."""
        mu, _ = floats("poisson.entropy", mu, loc)
        small = hnp.minimum(mu, 50.0)
        k = hnp.arange(150, dtype=mu.dtype)
        logs = poisson.logpmf(k, small[..., None])
        exact = -hnp.sum(hnp.exp(logs) * hnp.where(hnp.isfinite(logs), logs, 0.0), axis=-1)
        large = hnp.maximum(mu, 50.0)
        inverse = 1 / large
        series = inverse * (1 / 12 + inverse * (1 / 24 + inverse * 19 / 360))
        far = 0.5 * hnp.log(2 * math.pi * math.e * large) - series
        return _inside(mu >= 0, hnp.where(mu == 0, 0.0, hnp.where(mu > 50, far, exact)), math.nan)


class multinomial(Distribution):
    """Counts of n trials in categories of probabilities p."""

    @staticmethod
    def logpmf(x, n, p):
        """log of n! prod(p^x / x!) over the last dimension; -inf where x does not sum to n."""
        x, p = floats("multinomial.logpmf", x, p)
        total = hnp.asarray(n).astype(x.dtype)
        value = lax.lgamma(total + 1) + hnp.sum(special.xlogy(x, p) - lax.lgamma(x + 1), axis=-1)
        return _inside(hnp.sum(x, axis=-1) == total, value)
