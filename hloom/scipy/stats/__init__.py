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
