"""k-means by Lloyd's iterations in one compiled program."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

import hloom.numpy as hnp
from hloom import lax
from hloom.dispatch.jit import jit
from hloom.errors import ArgumentError


def _distances(x, centers):
    """Squared distances (n, k), by the differences: exact for points far from the origin."""
    return hnp.sum((x[:, None, :] - centers[None, :, :]) ** 2, axis=2)


@jit
def _iterate(x, weights, centers, tolerance, most):
    """(centers, inertia, iterations): until the centers move by less than the tolerance, or `most` times."""

    def go_on(state):
        _, moved, count = state
        return (moved > tolerance) & (count < most)

    def once(state):
        centers, _, count = state
        near = hnp.argmin(_distances(x, centers), axis=1)
        members = (near[:, None] == hnp.arange(centers.shape[0])).astype(x.dtype) * weights[:, None]
        sizes = hnp.sum(members, axis=0)
        means = hnp.matmul(members.T, x) / hnp.maximum(sizes, 1)[:, None]
        new = hnp.where(sizes[:, None] > 0, means, centers)
        return new, hnp.sum((new - centers) ** 2), count + 1

    start = (centers, hnp.asarray(hnp.inf, x.dtype), hnp.asarray(0, "s32"))
    centers, _, count = lax.while_loop(go_on, once, start)
    return centers, hnp.sum(hnp.min(_distances(x, centers), axis=1) * weights), count


class KMeans(TransformerMixin, ClusterMixin, BaseEstimator):
    """k-means clusters (Lloyd, 1982), from centers chosen far from each other (k-means++, Arthur and Vassilvitskii,
    2007).

    n_init: starts, of which the tightest is kept. max_iter, tol: iterations at most, and the movement of the centers,
    relative to the variance of the features, that ends them.
    """

    def __init__(self, n_clusters=8, *, n_init=3, max_iter=300, tol=1e-4, random_state=None):
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X, y=None):
        """X: (n, features). Returns self. Raises ValueError for anything but such a table."""
        X = validate_data(self, X, dtype=np.float64)
        if not 0 < self.n_clusters <= len(X) or self.n_init < 1 or self.max_iter < 1:
            raise ArgumentError(
                f"KMeans of {self.n_clusters} clusters, {self.n_init} starts, {self.max_iter} iterations",
                f"n_samples={len(X)}",
                "ask for at most as many clusters as samples, and at least one of each",
            )
        source = check_random_state(self.random_state)
        center = X.mean(axis=0)
        tolerance = self.tol * X.var(axis=0).mean()
        # Padded to a power of two with weights of 0: few programs for many sizes.
        size = 1 << (len(X) - 1).bit_length()
        points = np.zeros((size, X.shape[1]))
        points[: len(X)] = X - center
        weights = np.zeros(size)
        weights[: len(X)] = 1
        best = None
        for _ in range(self.n_init):
            first = _far_apart(points[: len(X)], self.n_clusters, source)
            centers, inertia, count = _iterate(points, weights, first, tolerance, self.max_iter)
            if best is None or float(inertia) < best[1]:
                best = np.asarray(centers), float(inertia), int(count)
        assert best is not None  # n_init is at least one
        self.cluster_centers_ = best[0] + center
        self.inertia_, self.n_iter_ = best[1], best[2]
        self.labels_ = self._squared(X).argmin(axis=1).astype(np.int32)
        return self

    def predict(self, X):
        """(n,): the number of the nearest center."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self._squared(X).argmin(axis=1).astype(np.int32)

    def transform(self, X):
        """(n, clusters): distances to the centers."""
        check_is_fitted(self)
        return np.sqrt(self._squared(validate_data(self, X, dtype=np.float64, reset=False)))

    def score(self, X, y=None):
        """Minus the sum of squared distances to the nearest centers."""
        check_is_fitted(self)
        return -self._squared(validate_data(self, X, dtype=np.float64, reset=False)).min(axis=1).sum()

    def _squared(self, x: np.ndarray) -> np.ndarray:
        return np.stack([((x - center) ** 2).sum(axis=1) for center in self.cluster_centers_], axis=1)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)


def _far_apart(x: np.ndarray, count: int, source: np.random.RandomState) -> np.ndarray:
    """k-means++: each next center is a point drawn by its squared distance to those before; the best of some draws."""
    chosen = [x[source.randint(len(x))]]
    nearest = ((x - chosen[0]) ** 2).sum(axis=1)
    draws = 2 + int(np.log(count))
    for _ in range(count - 1):
        total = nearest.sum()
        share = nearest / total if total > 0 else np.full(len(x), 1 / len(x))
        candidates = source.choice(len(x), draws, p=share)
        reach = [np.minimum(nearest, ((x - x[c]) ** 2).sum(axis=1)) for c in candidates]
        best = int(np.argmin([r.sum() for r in reach]))
        chosen.append(x[candidates[best]])
        nearest = reach[best]
    return np.stack(chosen)


__all__ = ["KMeans"]
