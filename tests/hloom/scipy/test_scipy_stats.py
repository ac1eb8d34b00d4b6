"""scipy.stats against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, ShapeError
from hloom.scipy import integrate, stats

X, Q, K = np.linspace(-4, 4, 61), np.linspace(0.01, 0.99, 30), np.arange(-1, 12.0)
WHERE = {"loc": 0.3, "scale": 1.7}
CONTINUOUS = {
    **dict.fromkeys("norm expon laplace logistic cauchy gumbel_r gumbel_l".split(), ((), WHERE)),
    "uniform": ((), {"loc": -1, "scale": 3.0}),
    "gamma": ((2.3,), {"loc": -0.3, "scale": 1.7}),
    "chi2": ((3.0,), {}),
    "beta": ((2.0, 0.7), {"loc": -1, "scale": 4.0}),
    "t": ((3.0,), {"loc": 0.1, "scale": 2.0}),
    "pareto": ((2.5,), {"loc": -1, "scale": 1.2}),
    "gennorm": ((1.3,), {"loc": 0.1}),
    "truncnorm": ((-1.0, 2.0), {"loc": 0.2, "scale": 1.1}),
    "vonmises": ((2.0,), {}),
    "wrapcauchy": ((0.4,), {}),
}
DISCRETE = {"bernoulli": (0.3,), "binom": (9, 0.3), "nbinom": (5, 0.4), "betabinom": (9, 2.0, 3.0), "geom": (0.3,)}
DISCRETE["poisson"] = (2.5,)


def agree(found, want, tolerance=1e-9):
    found, want = np.asarray(found), np.asarray(want)
    assert found.shape == want.shape
    close = np.abs(found - want) <= tolerance * np.maximum(np.abs(want), 1e-6)
    same = close | (found == want) | (np.isnan(found) & np.isnan(want))
    assert same.all(), (np.flatnonzero(~same)[:3], found[~same][:3], want[~same][:3])


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name):
    args, kwargs = CONTINUOUS[name]
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    names = "pdf logpdf" if name in ("t", "vonmises", "wrapcauchy") else "pdf logpdf cdf logcdf sf logsf ppf isf"
    for function in names.split():
        if hasattr(ours, function):
            # numbers next to a bound are inside or outside by a rounding
            at = Q if function in ("ppf", "isf") else X + 1e-3
            with np.errstate(all="ignore"):
                agree(
                    getattr(ours, function)(hnp.asarray(at), *args, **kwargs),
                    getattr(theirs, function)(at, *args, **kwargs),
                )


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name):
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    for function in ("pmf", "logpmf", "cdf"):
        if hasattr(ours, function):
            agree(
                getattr(ours, function)(hnp.asarray(K), *DISCRETE[name]), getattr(theirs, function)(K, *DISCRETE[name])
            )
    agree(stats.bernoulli.ppf(hnp.asarray(Q), 0.3), scipy.stats.bernoulli.ppf(Q, 0.3))
    means = np.array([0.5, 3.0, 40.0, 80.0, 1000.0])
    agree(stats.poisson.entropy(hnp.asarray(means)), scipy.stats.poisson.entropy(means), 1e-6)


def test_vectors():
    p = np.array([0.2, 0.5, 0.3])
    agree(
        stats.multinomial.pmf(hnp.asarray(np.array([2.0, 3.0, 1.0])), 6, hnp.asarray(p)),
        scipy.stats.multinomial.pmf([2, 3, 1], 6, p),
    )
    cov, mean = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([1.0, 2.0])
    points = np.random.default_rng(0).normal(size=(5, 2))
    want = scipy.stats.multivariate_normal.logpdf(points, mean, cov)
    agree(stats.multivariate_normal.logpdf(*map(hnp.asarray, (points, mean, cov))), want)
    agree(stats.multivariate_normal.logpdf(*map(hnp.asarray, (points, mean, np.stack([cov] * 5)))), want)
    alpha = np.array([1.0, 2.0, 3.0])
    agree(stats.dirichlet.logpdf(hnp.asarray(p), hnp.asarray(alpha)), scipy.stats.dirichlet.logpdf(p, alpha))
    with pytest.raises(ShapeError, match="covariance"):
        stats.multivariate_normal.logpdf(points, mean, np.eye(3))


def test_kernel_density():
    data = np.random.default_rng(1).normal(size=(2, 40))
    points = np.random.default_rng(2).normal(size=(2, 7))
    ours, theirs = stats.gaussian_kde(hnp.asarray(data)), scipy.stats.gaussian_kde(data)
    agree(ours(hnp.asarray(points)), theirs(points))
    agree(ours.logpdf(hnp.asarray(points)), theirs.logpdf(points))
    agree(
        ours.integrate_gaussian(hnp.asarray(points[:, 0]), hnp.asarray(np.eye(2))),
        theirs.integrate_gaussian(points[:, 0], np.eye(2)),
    )
    line, other = stats.gaussian_kde(hnp.asarray(data[0]), "silverman"), scipy.stats.gaussian_kde(data[0], "silverman")
    agree(line.integrate_box_1d(-1, 1), other.integrate_box_1d(-1, 1))
    assert ours.resample(hl.random.key(0), (3,)).shape == (2, 3)
    with pytest.raises(ArgumentError, match="no such bandwidth"):
        stats.gaussian_kde(data, "wide")


@pytest.mark.parametrize("axis", [0, 1, None])
def test_summaries(axis):
    a = np.random.default_rng(2).integers(0, 5, (4, 9))
    found, want = stats.mode(hnp.asarray(a), axis=axis), scipy.stats.mode(a, axis=axis)
    agree(found.mode, want.mode)
    agree(found.count, want.count)
    for method in ("average", "min", "max", "dense", "ordinal"):
        agree(stats.rankdata(hnp.asarray(a), method, axis=axis), scipy.stats.rankdata(a, method, axis=axis))
    agree(stats.sem(hnp.asarray(a.astype(float)), axis), scipy.stats.sem(a, axis))
    with pytest.raises(ArgumentError, match="no such method"):
        stats.rankdata(a, "median")


def test_derivatives_and_integrals():
    np.testing.assert_allclose(hl.grad(lambda m: stats.norm.logpdf(1.0, m, 2.0))(0.5), 0.125, rtol=1e-6)
    x = np.linspace(0, 1, 11)
    agree(integrate.trapezoid(hnp.asarray(x**2), hnp.asarray(x)), np.trapezoid(x**2, x))
    agree(integrate.trapezoid(hnp.asarray(x**2), dx=0.1), np.trapezoid(x**2, dx=0.1))
