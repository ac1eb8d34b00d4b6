"""Distributions of vectors, and the estimate of a density by kernels."""

from __future__ import annotations

import math

import numpy as np

import hloom.numpy as hnp
from hloom import lax, random
from hloom.errors import ArgumentError, ShapeError
from hloom.scipy import special
from hloom.scipy.linalg import solve_triangular
from hloom.scipy.special import floats
from hloom.scipy.stats.continuous import Distribution, _inside


class multivariate_normal(Distribution):
    """The normal distribution of vectors.

    >>> hl.scipy.stats.multivariate_normal.logpdf(hnp.zeros(2), hnp.zeros(2), hnp.eye(2)).round(3)
    Array(-1.838, dtype=float32)
    """

    @staticmethod
    def logpdf(x, mean, cov, allow_singular=None):
        """log of the density. x: (..., n), mean: (n,) or a number, cov: (n, n), or a number for independent parts.

        Raises ArgumentError, ShapeError.
        """
        if allow_singular is not None:
            raise ArgumentError("multivariate_normal with allow_singular", repr(allow_singular), "leave it out")
        x, mean, cov = (hnp.asarray(v) for v in (x, mean, cov))
        dtype = hnp.result_type(x, mean, cov, hnp.float32)
        x, mean, cov = (v.astype(dtype) for v in (x, mean, cov))
        if not mean.shape:
            variance = cov if not cov.shape else cov.reshape(())
            return -0.5 * ((x - mean) ** 2 / variance + hnp.log(2 * math.pi * variance))
        n = mean.shape[-1]
        if not cov.shape:
            y = x - mean
            return -0.5 * (hnp.sum(y * y, axis=-1) / cov + n * hnp.log(2 * math.pi * cov))
        if cov.ndim < 2 or tuple(cov.shape[-2:]) != (n, n):
            raise ShapeError(
                "the covariance of vectors of n parts is (n, n)", f"{cov._shape!r} for n = {n}", "match them"
            )
        factor = hnp.linalg.cholesky(cov)
        y = x - mean
        if cov.ndim == 2:
            flat = y.reshape((-1, n)).T
            z = solve_triangular(factor, flat, lower=True)
            distance = hnp.sum(z * z, axis=0).reshape(y.shape[:-1])
        else:
            lead = np.broadcast_shapes(cov.shape[:-2], y.shape[:-1])
            factor, y = hnp.broadcast_to(factor, (*lead, n, n)), hnp.broadcast_to(y, (*lead, n))
            z = lax.linalg.triangular_solve(factor, y[..., None], left_side=True, lower=True)[..., 0]
            distance = hnp.sum(z * z, axis=-1)
        logarithm = hnp.sum(hnp.log(hnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
        return -0.5 * (distance + n * math.log(2 * math.pi)) - logarithm


class dirichlet(Distribution):
    """The Dirichlet distribution. x: (n, ...), alpha: (n,)."""

    @staticmethod
    def logpdf(x, alpha):
        """log prod(x^(alpha-1)) / B(alpha); -inf off the simplex, whose last part x may lack. Raises ShapeError."""
        x, alpha = hnp.asarray(x), hnp.asarray(alpha)
        dtype = hnp.result_type(x, alpha, hnp.float32)
        x, alpha = x.astype(dtype), alpha.astype(dtype)
        if alpha.ndim != 1 or x.shape[0] not in (alpha.shape[0], alpha.shape[0] - 1):
            raise ShapeError(
                "dirichlet.logpdf takes x (n, ...) and alpha (n,)", f"{x._shape!r} and {alpha._shape!r}", "match them"
            )
        if x.shape[0] != alpha.shape[0]:
            x = hnp.concatenate([x, 1 - hnp.sum(x, axis=0, keepdims=True)], axis=0)
        weights = alpha.reshape((-1, *(1,) * (x.ndim - 1)))
        inside = hnp.all(x >= 0, axis=0) & (hnp.abs(hnp.sum(x, axis=0) - 1) < 1e-6)
        norm = hnp.sum(lax.lgamma(alpha)) - lax.lgamma(hnp.sum(alpha))
        return _inside(inside, hnp.sum(special.xlogy(weights - 1, x), axis=0) - norm)


class gaussian_kde:
    """A density estimated from points by a normal kernel around each.

    dataset: (d, n) or (n,); bw_method: 'scott' (the default), 'silverman', a factor, or a function of the estimate;
    weights: (n,). Raises ArgumentError, ShapeError.

    >>> density = hl.scipy.stats.gaussian_kde(hnp.array([0.0, 1.0, 2.0]))
    >>> density(hnp.array([1.0])).shape
    (1,)
    """

    def __init__(self, dataset, bw_method=None, weights=None):
        (self.dataset,) = floats("gaussian_kde", hnp.atleast_2d(dataset))
        self.d, self.n = self.dataset.shape
        if self.n < 2:
            raise ArgumentError("gaussian_kde takes points", f"{self.n}", "pass more than one")
        if weights is None:
            weights = hnp.full((self.n,), 1 / self.n, self.dataset.dtype)
        weights = hnp.asarray(weights).astype(self.dataset.dtype)
        if tuple(weights.shape) != (self.n,):
            raise ShapeError(
                "gaussian_kde takes a weight for each point", f"{weights._shape!r} for {self.n}", "match them"
            )
        self.weights = weights / hnp.sum(weights)
        self.neff = 1 / hnp.sum(self.weights**2)
        if bw_method is None or bw_method == "scott":
            factor = self.neff ** (-1 / (self.d + 4))
        elif bw_method == "silverman":
            factor = (self.neff * (self.d + 2) / 4) ** (-1 / (self.d + 4))
        elif callable(bw_method):
            factor = bw_method(self)
        elif isinstance(bw_method, str):
            raise ArgumentError("gaussian_kde has no such bandwidth", repr(bw_method), "take 'scott' or 'silverman'")
        else:
            factor = bw_method
        self.factor = factor
        centred = self.dataset - hnp.sum(self.dataset * self.weights, axis=1, keepdims=True)
        scatter = (centred * self.weights) @ centred.T / (1 - hnp.sum(self.weights**2))
        self.covariance = scatter * factor**2
        self.inv_cov = hnp.linalg.inv(self.covariance)

    def logpdf(self, x):
        """log of the density at points (d, m) or (m,). Raises ShapeError."""
        (x,) = floats("gaussian_kde.logpdf", hnp.atleast_2d(x))
        if x.shape[0] != self.d:
            if self.d == 1 or x.shape[0] != 1 or x.shape[1] != self.d:
                raise ShapeError("points of another dimension", f"{x._shape!r} for d = {self.d}", "pass (d, m)")
            x = x.T
        factor = hnp.linalg.cholesky(self.covariance)
        scaled, own = (solve_triangular(factor, v.astype(factor.dtype), lower=True) for v in (x, self.dataset))
        gaps = scaled[:, :, None] - own[:, None, :]
        energy = -0.5 * hnp.sum(gaps * gaps, axis=0)
        norm = 0.5 * self.d * math.log(2 * math.pi) + hnp.sum(hnp.log(hnp.diagonal(factor)))
        return special.logsumexp(energy, axis=1, b=hnp.broadcast_to(self.weights, energy.shape)) - norm

    def evaluate(self, points):
        """The density at points (d, m) or (m,)."""
        return hnp.exp(self.logpdf(points))

    def pdf(self, x):
        """The density at points (d, m) or (m,)."""
        return self.evaluate(x)

    __call__ = evaluate

    def integrate_gaussian(self, mean, cov):
        """The integral of the estimate times a normal density."""
        mean, cov = hnp.atleast_1d(mean), hnp.atleast_2d(cov)
        values = multivariate_normal.logpdf(self.dataset.T, mean, self.covariance + cov)
        return hnp.sum(hnp.exp(values) * self.weights)

    def integrate_box_1d(self, low, high):
        """The integral from low to high, in one dimension. Raises ArgumentError."""
        if self.d != 1:
            raise ArgumentError("integrate_box_1d of one dimension", f"{self.d} dimensions", "estimate one part alone")
        width = hnp.sqrt(self.covariance[0, 0])
        points = self.dataset[0]
        mass = special.ndtr((high - points) / width) - special.ndtr((low - points) / width)
        return hnp.sum(self.weights * mass)

    def integrate_kde(self, other):
        """The integral of the product of two estimates."""
        small, large = (self, other) if self.n <= other.n else (other, self)
        total = 0.0
        cov = small.covariance + large.covariance
        for k in range(small.n):
            values = multivariate_normal.logpdf(large.dataset.T, small.dataset[:, k], cov)
            total = total + small.weights[k] * hnp.sum(hnp.exp(values) * large.weights)
        return total

    def resample(self, key, shape=()):
        """Random points of the estimate: (d, *shape)."""
        first, second = random.split(key)
        index = random.choice(first, self.n, shape=shape, p=self.weights)
        noise = random.multivariate_normal(
            second, hnp.zeros(self.d, self.dataset.dtype), self.covariance, shape=shape, dtype=self.dataset.dtype
        )
        return self.dataset[:, index] + hnp.moveaxis(noise, -1, 0)
