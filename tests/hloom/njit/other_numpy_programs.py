"""NumPy programs as people write them: statistics, graphs, dynamic programming, numerics."""

from __future__ import annotations

import math

import numpy as np
from numpy_programs import R, prog


# --- statistics, learning
@prog(lambda: (R(0).random((60, 2)), R(1).random((3, 2)), 5))
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


@prog(lambda: (R(0).normal(size=(50, 4)), (R(1).random(50) > 0.5).astype(np.float64), 0.1, 50))
def logistic_regression(X, y, lr, iters):
    w = np.zeros(X.shape[1])
    for _ in range(iters):
        p = 1 / (1 + np.exp(-X @ w))
        w -= lr * X.T @ (p - y) / len(y)
    return w


@prog(lambda: (R(0).random((20, 5)), R(1).random((30, 5))))
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


@prog(lambda: (R(0).random((20, 3)), R(1).random((30, 3))))
def pairwise_broadcast(a, b):
    return np.sqrt(((a[:, None, :] - b[None, :, :]) ** 2).sum(-1))


@prog(lambda: (R(0).normal(size=500), R(1).random(500), 0.5))
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


@prog(lambda: (R(0).random(100), R(1).random(100)))
def rank_correlation(x, y):
    rx = np.argsort(np.argsort(x))
    ry = np.argsort(np.argsort(y))
    d = (rx - ry).astype(float)
    n = len(x)
    return 1 - 6 * (d**2).sum() / (n * (n * n - 1))


@prog(lambda: (R(0).random(50), np.linspace(0, 1, 20), 0.1))
def kde(data, grid, h):
    out = np.zeros(len(grid))
    for i, g in enumerate(grid):
        for d in data:
            z = (g - d) / h
            out[i] += math.exp(-0.5 * z * z)
    return out / (len(data) * h * math.sqrt(2 * math.pi))


@prog(
    lambda: (
        np.array([[0.7, 0.3], [0.4, 0.6]]),
        np.array([[0.5, 0.4, 0.1], [0.1, 0.3, 0.6]]),
        np.array([0.6, 0.4]),
        R(0).integers(0, 3, 40),
    )
)
def viterbi(A, B, pi, obs):
    n = len(obs)
    m = len(pi)
    lp = np.zeros((n, m))
    back = np.zeros((n, m), np.int64)
    lp[0] = np.log(pi) + np.log(B[:, obs[0]])
    for t in range(1, n):
        for j in range(m):
            best = -np.inf
            arg = 0
            for i in range(m):
                v = lp[t - 1, i] + np.log(A[i, j])
                if v > best:
                    best = v
                    arg = i
            lp[t, j] = best + np.log(B[j, obs[t]])
            back[t, j] = arg
    path = np.zeros(n, np.int64)
    path[n - 1] = np.argmax(lp[n - 1])
    for t in range(n - 2, -1, -1):
        path[t] = back[t + 1, path[t + 1]]
    return path


@prog(lambda: (R(0).random((40, 3)),))
def pca_power(X):
    X = X - X.mean(0)
    C = X.T @ X / len(X)
    v = np.ones(3)
    for _ in range(100):
        v = C @ v
        v = v / np.linalg.norm(v)
    return v, v @ C @ v


# --- graphs, combinatorics, sorting
@prog(lambda: (np.where(R(0).random((15, 15)) < 0.3, R(1).random((15, 15)), np.inf), 0))
def dijkstra(w, src):
    n = len(w)
    dist = np.full(n, np.inf)
    done = np.zeros(n, np.bool_)
    dist[src] = 0
    for _ in range(n):
        u = -1
        best = np.inf
        for i in range(n):
            if not done[i] and dist[i] < best:
                best = dist[i]
                u = i
        if u < 0:
            break
        done[u] = True
        for v in range(n):
            if dist[u] + w[u, v] < dist[v]:
                dist[v] = dist[u] + w[u, v]
    return dist


@prog(lambda: ((R(0).random((20, 20)) < 0.2).astype(np.float64), 0.85, 30))
def pagerank(adj, d, iters):
    n = len(adj)
    out = adj.sum(1)
    out[out == 0] = 1
    M = (adj / out[:, None]).T
    r = np.ones(n) / n
    for _ in range(iters):
        r = (1 - d) / n + d * (M @ r)
    return r / r.sum()


@prog(lambda: (R(0).random((12, 12)) < 0.25, 0))
def bfs(adj, s):
    n = adj.shape[0]
    dist = -np.ones(n, dtype=np.int64)
    q = np.empty(n, np.int64)
    head = 0
    tail = 1
    q[0] = s
    dist[s] = 0
    while head < tail:
        u = q[head]
        head += 1
        for v in range(n):
            if adj[u, v] and dist[v] < 0:
                dist[v] = dist[u] + 1
                q[tail] = v
                tail += 1
    return dist


@prog(lambda: (R(0).integers(0, 100, 60),))
def insertion_sort(a):
    for i in range(1, len(a)):
        k = a[i]
        j = i - 1
        while j >= 0 and a[j] > k:
            a[j + 1] = a[j]
            j -= 1
        a[j + 1] = k


@prog(lambda: (R(0).random(64),))
def heapsort(a):
    n = len(a)
    for start in range(n // 2 - 1, -1, -1):
        root = start
        while True:
            child = 2 * root + 1
            if child >= n:
                break
            if child + 1 < n and a[child] < a[child + 1]:
                child += 1
            if a[root] < a[child]:
                a[root], a[child] = a[child], a[root]
                root = child
            else:
                break
    for end in range(n - 1, 0, -1):
        a[end], a[0] = a[0], a[end]
        root = 0
        while True:
            child = 2 * root + 1
            if child >= end:
                break
            if child + 1 < end and a[child] < a[child + 1]:
                child += 1
            if a[root] < a[child]:
                a[root], a[child] = a[child], a[root]
                root = child
            else:
                break


@prog(lambda: (R(0).integers(0, 4, 40), R(1).integers(0, 4, 35)))
def lcs(a, b):
    m, n = len(a), len(b)
    t = np.zeros((m + 1, n + 1), np.int32)
    for i in range(m):
        for j in range(n):
            t[i + 1, j + 1] = t[i, j] + 1 if a[i] == b[j] else max(t[i, j + 1], t[i + 1, j])
    return t[m, n]


@prog(lambda: (R(0).random(30), R(1).random(25)))
def dtw(x, y):
    n, m = len(x), len(y)
    D = np.full((n + 1, m + 1), np.inf)
    D[0, 0] = 0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            D[i, j] = abs(x[i - 1] - y[j - 1]) + min(D[i - 1, j], D[i, j - 1], D[i - 1, j - 1])
    return D[n, m]


@prog(lambda: (R(0).integers(1, 30, 12),))
def matrix_chain(p):
    n = len(p) - 1
    m = np.zeros((n, n), np.int64)
    for L in range(2, n + 1):
        for i in range(n - L + 1):
            j = i + L - 1
            m[i, j] = 1 << 60
            for k in range(i, j):
                c = m[i, k] + m[k + 1, j] + p[i] * p[k + 1] * p[j + 1]
                if c < m[i, j]:
                    m[i, j] = c
    return m[0, n - 1]


@prog(lambda: (8,))
def queens(n):
    cols = np.zeros(n, np.int64)
    count = 0
    r = 0
    cols[0] = -1
    while r >= 0:
        cols[r] += 1
        while cols[r] < n:
            ok = True
            for k in range(r):
                if cols[k] == cols[r] or abs(cols[k] - cols[r]) == r - k:
                    ok = False
                    break
            if ok:
                break
            cols[r] += 1
        if cols[r] < n:
            if r == n - 1:
                count += 1
            else:
                r += 1
                cols[r] = -1
                continue
        else:
            r -= 1
    return count


@prog(lambda: (27,))
def collatz(n):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


@prog(lambda: (R(0).random((16, 16)) > 0.5, 5))
def life(g, n):
    h, w = g.shape
    for _ in range(n):
        new = np.zeros_like(g)
        for i in range(h):
            for j in range(w):
                c = 0
                for a in range(-1, 2):
                    for b in range(-1, 2):
                        if (a != 0 or b != 0) and g[(i + a) % h, (j + b) % w]:
                            c += 1
                new[i, j] = c == 3 or (g[i, j] and c == 2)
        g = new
    return g


# --- linear algebra, numerics
@prog(lambda: (R(0).random((8, 8)) + 8 * np.eye(8), R(1).random(8)))
def gauss_pivot(A, b):
    n = len(b)
    for k in range(n):
        p = k + np.argmax(np.abs(A[k:, k]))
        if p != k:
            for j in range(n):
                A[k, j], A[p, j] = A[p, j], A[k, j]
            b[k], b[p] = b[p], b[k]
        for i in range(k + 1, n):
            f = A[i, k] / A[k, k]
            A[i, k:] -= f * A[k, k:]
            b[i] -= f * b[k]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
    return x


@prog(lambda: (R(0).random((7, 5)),))
def householder_qr(A):
    m, n = A.shape
    Q = np.eye(m)
    for k in range(n):
        x = A[k:, k]
        a = -np.sign(x[0]) * np.sqrt((x * x).sum())
        v = x.copy()
        v[0] -= a
        v /= np.sqrt((v * v).sum())
        A[k:, k:] -= 2 * np.outer(v, v @ A[k:, k:])
        Q[:, k:] -= 2 * np.outer(Q[:, k:] @ v, v)
    return Q


@prog(lambda: (R(0).random((6, 6)),))
def jacobi_eigen(A):
    A = A + A.T
    n = len(A)
    for sweep in range(12):
        for p in range(n - 1):
            for q in range(p + 1, n):
                if abs(A[p, q]) > 1e-15:
                    th = (A[q, q] - A[p, p]) / (2 * A[p, q])
                    t = np.sign(th) / (abs(th) + np.sqrt(th * th + 1)) if th != 0 else 1.0
                    c = 1 / np.sqrt(t * t + 1)
                    s = t * c
                    for k in range(n):
                        a = A[k, p]
                        b = A[k, q]
                        A[k, p] = c * a - s * b
                        A[k, q] = s * a + c * b
                    for k in range(n):
                        a = A[p, k]
                        b = A[q, k]
                        A[p, k] = c * a - s * b
                        A[q, k] = s * a + c * b
    return np.sort(np.diag(A))


@prog(lambda: (R(0).random(10), np.linspace(0, 9, 31)))
def natural_spline(y, xs):
    n = len(y)
    a = np.zeros(n)
    b = np.ones(n) * 4
    c = np.ones(n)
    d = np.zeros(n)
    for i in range(1, n - 1):
        d[i] = 6 * (y[i + 1] - 2 * y[i] + y[i - 1])
    b[0] = b[n - 1] = 1
    c[0] = 0
    for i in range(1, n):
        ai = 1.0 if i < n - 1 else 0.0
        w = ai / b[i - 1]
        b[i] -= w * c[i - 1]
        d[i] -= w * d[i - 1]
    M = np.zeros(n)
    M[-1] = d[-1] / b[-1]
    for i in range(n - 2, -1, -1):
        M[i] = (d[i] - c[i] * M[i + 1]) / b[i]
    out = np.empty_like(xs)
    for k, x in enumerate(xs):
        i = min(int(x), n - 2)
        t = x - i
        out[k] = (1 - t) * y[i] + t * y[i + 1] - t * (1 - t) / 6 * ((2 - t) * M[i] + (1 + t) * M[i + 1])
    return out


def _integrand(x):
    return x * x * np.exp(-x)


@prog(lambda: (_integrand, 0.0, 3.0, 200))
def simpson(f, a, b, n):
    h = (b - a) / n
    s = f(a) + f(b)
    for i in range(1, n):
        s += (4 if i % 2 else 2) * f(a + i * h)
    return s * h / 3


@prog(lambda: (2.0, 1e-12))
def newton_sqrt(a, tol):
    x = a
    for it in range(100):
        nx = 0.5 * (x + a / x)
        if abs(nx - x) < tol:
            return nx, it
        x = nx
    return x, -1


@prog(lambda: (R(0).random((30, 30)), 1.5, 1e-4))
def sor(u, w, tol):
    n = u.shape[0]
    it = 0
    while True:
        worst = 0.0
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                r = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]) - u[i, j]
                u[i, j] += w * r
                worst = max(worst, abs(r))
        it += 1
        if worst < tol or it > 500:
            break
    return it


@prog(lambda: (np.arange(24.0).reshape(2, 3, 4),))
def transposes(x):
    a = x.transpose(2, 0, 1)
    b = np.swapaxes(x, 0, 1)
    c = np.concatenate([x[0], x[1]], axis=0)
    d = np.stack((x[0, 0], x[1, 2]))
    e = np.vstack([x[0], x[1]])
    f = x[::-1, :, ::2]
    return (
        a.copy(),
        b + 1,
        c,
        d,
        e,
        f,
        np.tile(x[0, 0], 3),
        np.repeat(x[0, 0], 2),
        np.rot90(x[0]),
        np.diff(x, axis=2),
        np.cross(x[0, :, :3], x[1, :, :3]),
    )


@prog(lambda: (R(0).random((4, 5)),))
def reductions(x):
    return (
        x.min(axis=1),
        x.argmax(axis=0),
        np.any(x > 0.9),
        np.all(x > 0, axis=0),
        np.median(x),
        np.percentile(x, 30),
        x.std(axis=0),
        x.var(ddof=1),
        np.cumsum(x, axis=1),
        np.prod(x),
        np.linalg.norm(x, axis=1),
        np.trace(x[:, :4]),
        np.ptp(x, axis=0),
        np.average(x, weights=x),
        np.max(x) - np.min(x),
    )


@prog(lambda: (R(0).random(30),))
def selections(x):
    i = np.argsort(x)
    y = np.take(x, i)
    z = np.clip(x, 0.2, 0.8)
    w = np.where(x > 0.5, 1, 0)
    s = np.searchsorted(y, 0.5)
    h, e = np.histogram(x, bins=5, range=(0.0, 1.0))
    return (
        i,
        y,
        z,
        w,
        s,
        h,
        e,
        np.interp(0.3, np.linspace(0, 1, 30), y),
        np.digitize(x, np.array([0.2, 0.5])),
        np.count_nonzero(x > 0.3),
        np.floor(x * 10),
        np.sign(x - 0.5),
        np.mod(x, 0.3),
        np.isnan(x).sum(),
        np.maximum(x, 0.5),
        np.hypot(x, 1),
        np.round(x, 2),
    )


@prog(lambda: (R(0).integers(0, 1000, 50),))
def integers(a):
    return (
        a % 7,
        a // 3,
        a & 15,
        a | 8,
        a ^ 5,
        a << 2,
        a >> 1,
        -a,
        abs(a - 500),
        a**2,
        np.gcd(a, 12),
        a.max() - a.min(),
        (a * a).sum(),
        a / 2,
        ~a,
    )


@prog(lambda: (6,))
def pascal(n):
    c = np.zeros((n, n), dtype=int)
    for i in range(n):
        c[i, 0] = 1
        for j in range(1, i + 1):
            c[i, j] = c[i - 1, j - 1] + c[i - 1, j]
    return c


@prog(lambda: (R(0).random(50) * 100 - 50, R(1).random(50) * 360 - 180))
def haversine(lat, lon):
    lat = np.radians(lat)
    lon = np.radians(lon)
    n = len(lat)
    D = np.zeros((n, n))
    for i in range(n):
        d = np.sin((lat - lat[i]) / 2) ** 2 + np.cos(lat[i]) * np.cos(lat) * np.sin((lon - lon[i]) / 2) ** 2
        D[i] = 2 * 6371 * np.arcsin(np.sqrt(d))
    return D


@prog(lambda: (R(0).random((5, 5)), 3))
def matrix_power(A, n):
    out = np.eye(len(A))
    base = A.copy()
    while n > 0:
        if n % 2 == 1:
            out = out @ base
        base = base @ base
        n //= 2
    return out


@prog(lambda: (R(0).random((8, 2)), np.array([0.5, 0.5])))
def point_in_polygon(poly, p):
    n = len(poly)
    inside = False
    j = n - 1
    for i in range(n):
        if ((poly[i, 1] > p[1]) != (poly[j, 1] > p[1])) and p[0] < (poly[j, 0] - poly[i, 0]) * (p[1] - poly[i, 1]) / (
            poly[j, 1] - poly[i, 1]
        ) + poly[i, 0]:
            inside = not inside
        j = i
    return inside
