"""Statistics and learning."""

from __future__ import annotations

import math

import numpy as np

from hloom.benchmarks.numpy_programs.table import R, programs_of

program = programs_of("statistics")


def _simplex(p):
    return p / p.sum(axis=1, keepdims=True)


@program(lambda n: (R(0).random((n, 2)), R(1).random((5, 2)), 5), 60, 300, 20_000, 300_000)
def kmeans(x, c, iters):
    lab = np.zeros(len(x), np.int64)
    for _ in range(iters):
        for i in range(len(x)):
            best = np.inf
            for k in range(len(c)):
                d = ((x[i] - c[k]) ** 2).sum()
                if d < best:
                    best = d
                    lab[i] = k
        for k in range(len(c)):
            n = 0
            s = np.zeros(x.shape[1])
            for i in range(len(x)):
                if lab[i] == k:
                    n += 1
                    s += x[i]
            if n > 0:
                c[k] = s / n
    return lab


@program(
    lambda n: (R(0).normal(size=(n, 4)), np.where(R(1).random(n) > 0.5, 1.0, 0.0), 0.1, 50), 50, 250, 20_000, 200_000
)
def logistic_regression(X, y, lr, iters):
    w = np.zeros(X.shape[1])
    for _ in range(iters):
        p = 1 / (1 + np.exp(-X @ w))
        w -= lr * X.T @ (p - y) / len(y)
    return w


@program(lambda n: (R(0).random((n, 5)), R(1).random((n + 10, 5))), 20, 30, 300, 2000)
def pairwise(a, b):
    out = np.empty((len(a), len(b)))
    for i in range(len(a)):
        for j in range(len(b)):
            d = 0.0
            for k in range(a.shape[1]):
                t = a[i, k] - b[j, k]
                d += t * t
            out[i, j] = np.sqrt(d)
    return out


@program(lambda n: (R(0).random((n, 3)), R(1).random((n + 10, 3))), 20, 30, 300, 2000)
def pairwise_broadcast(a, b):
    return np.sqrt(((a[:, None, :] - b[None, :, :]) ** 2).sum(-1))


@program(lambda n: (R(0).normal(size=n), R(1).random(n), 0.5), 500, 1000, 100_000, 1_000_000)
def metropolis(step, u, x):
    out = np.empty(len(step))
    acc = 0
    for i in range(len(step)):
        y = x + step[i]
        if u[i] < math.exp(min(0.0, 0.5 * (x * x - y * y))):
            x = y
            acc += 1
        out[i] = x
    return out, acc / len(step)


@program(lambda n: (R(0).random(n), R(1).random(n)), 100, 1000, 30_000, 300_000)
def rank_correlation(x, y):
    rx = np.argsort(np.argsort(x))
    ry = np.argsort(np.argsort(y))
    d = (rx - ry).astype(float)
    n = len(x)
    return 1 - 6 * (d**2).sum() / (n * (n * n - 1))


@program(lambda n: (R(0).random(n), np.linspace(0, 1, 50), 0.1), 50, 200, 4000, 100_000)
def kde(data, grid, h):
    out = np.zeros(len(grid))
    for i, g in enumerate(grid):
        for d in data:
            z = (g - d) / h
            out[i] += math.exp(-0.5 * z * z)
    return out / (len(data) * h * math.sqrt(2 * math.pi))


@program(lambda n: (R(0).random((n, 3)),), 40, 300, 10_000, 300_000)
def pca_power(X):
    X = X - X.mean(0)
    C = X.T @ X / len(X)
    v = np.ones(3)
    for _ in range(100):
        v = C @ v
        v = v / np.linalg.norm(v)
    return v, v @ C @ v


@program(lambda n: (R(0).random((n + 7, n)),), 16, 32, 200, 600)
def covariance(data):
    mean = np.mean(data, axis=0)
    data -= mean
    M = data.shape[1]
    cov = np.zeros((M, M), dtype=data.dtype)
    for i in range(M):
        cov[i:M, i] = data[:, i] @ data[:, i:M] / (data.shape[0] - 1.0)
        cov[i, i:M] = cov[i:M, i]
    return cov


@program(lambda n: (R(0).integers(0, 50, n),), 100, 1000, 100_000, 2_000_000)
def histogram(a):
    h = np.zeros(50, dtype=np.int64)
    for v in a:
        h[v] += 1
    return h


@program(lambda n: (R(0).random(n) * 9, R(1).random(n), 20), 100, 1000, 100_000, 1_000_000)
def azimint_naive(radius, data, npt):
    rmax = radius.max()
    res = np.zeros(npt, dtype=np.float64)
    for i in range(npt):
        r1 = rmax * i / npt
        r2 = rmax * (i + 1) / npt
        mask_r12 = np.logical_and((r1 <= radius), (radius < r2))
        values_r12 = data[mask_r12]
        res[i] = values_r12.mean()
    return res


@program(lambda n: (R(0).random(n),), 40, 1000, 100_000, 1_000_000)
def welford(x):
    mean = 0.0
    m2 = 0.0
    for i in range(len(x)):
        d = x[i] - mean
        mean += d / (i + 1)
        m2 += d * (x[i] - mean)
    return mean, m2 / (len(x) - 1)


@program(lambda n: (R(0).normal(size=(n, 20)),), 10, 50, 5000, 50_000)
def standardize(x):
    return (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-8)


@program(lambda n: (R(0).normal(size=(n, 50)),), 10, 20, 2000, 20_000)
def softmax_rows(x):
    for i in range(len(x)):
        e = np.exp(x[i] - x[i].max())
        x[i] = e / e.sum()


@program(lambda n: (R(0).normal(size=(n, 8)), R(1).normal(size=n), 0.1), 20, 120, 12_000, 200_000)
def ridge(X, y, penalty):
    A = X.T @ X + penalty * np.eye(X.shape[1])
    w = np.linalg.solve(A, X.T @ y)
    r = y - X @ w
    return w, (r**2).mean()


@program(lambda n: (R(0).normal(size=n), R(1).integers(0, n, (20, n))), 30, 100, 5000, 100_000)
def bootstrap_means(x, places):
    out = np.empty(len(places))
    for b in range(len(places)):
        out[b] = x[places[b]].mean()
    return out.mean(), out.std()


@program(lambda n: (R(0).normal(size=n), 20), 50, 1000, 100_000, 1_000_000)
def autocorrelation(x, lags):
    x = x - x.mean()
    out = np.zeros(lags)
    for k in range(lags):
        out[k] = (x[: len(x) - k] * x[k:]).sum() / (x * x).sum()
    return out


@program(lambda n: (R(0).normal(size=n), 0.1, 1.0), 50, 1000, 100_000, 1_000_000)
def kalman_level(y, q, r):
    level = 0.0
    var = 1.0
    out = np.empty_like(y)
    loss = 0.0
    for t in range(len(y)):
        var += q
        s = var + r
        gain = var / s
        e = y[t] - level
        level += gain * e
        var *= 1 - gain
        out[t] = level
        loss += 0.5 * (np.log(2 * np.pi * s) + e * e / s)
    return out, loss


@program(
    lambda n: (_simplex(R(0).random((4, 4))), _simplex(R(1).random((4, 6))), R(2).integers(0, 6, n)),
    30,
    200,
    10_000,
    200_000,
)
def hmm_likelihood(A, B, obs):
    p = np.full(A.shape[0], 1 / A.shape[0])
    total = 0.0
    for t in range(len(obs)):
        p = (p @ A) * B[:, obs[t]]
        s = p.sum()
        total += np.log(s)
        p = p / s
    return total
