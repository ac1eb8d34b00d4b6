"""Distributions and summaries with the names of `scipy.stats`: norm.pdf(x), poisson.logpmf(k, mu), rankdata(a)."""

from hloom.scipy.stats.continuous import (
    beta,
    cauchy,
    chi2,
    expon,
    gamma,
    gennorm,
    gumbel_l,
    gumbel_r,
    laplace,
    logistic,
    norm,
    pareto,
    t,
    truncnorm,
    uniform,
    vonmises,
    wrapcauchy,
)
from hloom.scipy.stats.discrete import bernoulli, betabinom, binom, geom, multinomial, nbinom, poisson
from hloom.scipy.stats.multivariate import dirichlet, gaussian_kde, multivariate_normal
from hloom.scipy.stats.summaries import mode, rankdata, sem

__all__ = [
    "bernoulli", "beta", "betabinom", "binom", "cauchy", "chi2", "dirichlet", "expon", "gamma", "gaussian_kde",
    "gennorm", "geom", "gumbel_l", "gumbel_r", "laplace", "logistic", "mode", "multinomial", "multivariate_normal",
    "nbinom", "norm", "pareto", "poisson", "rankdata", "sem", "t", "truncnorm", "uniform", "vonmises", "wrapcauchy",
]  # fmt: skip
__dir__ = __all__.copy
