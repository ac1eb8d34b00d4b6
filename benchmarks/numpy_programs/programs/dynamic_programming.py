"""Dynamic programming."""

from __future__ import annotations

import numpy as np

from hloom.benchmarks.numpy_programs.table import R, programs_of

program = programs_of("dynamic programming")


def _stochastic(rows, columns):
    p = R(rows + columns).random((rows, columns))
    return p / p.sum(axis=1, keepdims=True)


@program(lambda n: (n, R(0).integers(0, 4, n)), 20, 40, 150, 400)
def nussinov(N, seq):
    table = np.zeros((N, N), np.int32)
    for i in range(N - 1, -1, -1):
        for j in range(i + 1, N):
            if j - 1 >= 0:
                table[i, j] = max(table[i, j], table[i, j - 1])
            if i + 1 < N:
                table[i, j] = max(table[i, j], table[i + 1, j])
            if j - 1 >= 0 and i + 1 < N:
                if i < j - 1:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1] + (1 if seq[i] + seq[j] == 3 else 0))
                else:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1])
            for k in range(i + 1, j):
                table[i, j] = max(table[i, j], table[i, k] + table[k + 1, j])
    return table


@program(lambda n: (R(0).integers(0, 4, n), R(1).integers(0, 4, n + 3)), 30, 32, 320, 2000)
def edit_distance(a, b):
    m = len(a)
    n = len(b)
    d = np.zeros((m + 1, n + 1), dtype=np.int64)
    for i in range(m + 1):
        d[i, 0] = i
    for j in range(n + 1):
        d[0, j] = j
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            cost = 0 if a[i - 1] == b[j - 1] else 1
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + cost)
    return d[m, n]


@program(lambda n: (R(0).random(n), R(1).integers(1, 20, n), 5 * n), 40, 32, 320, 3000)
def knapsack(v, w, W):
    best = np.zeros(W + 1)
    for i in range(len(v)):
        for c in range(W, w[i] - 1, -1):
            best[c] = max(best[c], best[c - w[i]] + v[i])
    return best[W]


@program(lambda n: (R(0).integers(0, 4, n + 5), R(1).integers(0, 4, n)), 35, 32, 320, 2000)
def lcs(a, b):
    m, n = len(a), len(b)
    t = np.zeros((m + 1, n + 1), np.int32)
    for i in range(m):
        for j in range(n):
            t[i + 1, j + 1] = t[i, j] + 1 if a[i] == b[j] else max(t[i, j + 1], t[i + 1, j])
    return t[m, n]


@program(lambda n: (R(0).random(n + 5), R(1).random(n)), 25, 32, 320, 2000)
def dtw(x, y):
    n, m = len(x), len(y)
    D = np.full((n + 1, m + 1), np.inf)
    D[0, 0] = 0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            D[i, j] = abs(x[i - 1] - y[j - 1]) + min(D[i - 1, j], D[i, j - 1], D[i - 1, j - 1])
    return D[n, m]


@program(lambda n: (R(0).integers(1, 30, n),), 12, 32, 100, 300)
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


@program(lambda n: (n,), 6, 32, 320, 2000)
def pascal(n):
    c = np.zeros((n, n), dtype=int)
    for i in range(n):
        c[i, 0] = 1
        for j in range(1, i + 1):
            c[i, j] = c[i - 1, j - 1] + c[i - 1, j]
    return c


@program(
    lambda n: (_stochastic(8, 8), _stochastic(8, 5), _stochastic(1, 8)[0], R(3).integers(0, 5, n)),
    40,
    100,
    3000,
    50_000,
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


@program(lambda n: (np.array([1, 5, 10, 25, 50]), n), 60, 1000, 100_000, 1_000_000)
def coin_change(coins, amount):
    ways = np.zeros(amount + 1, np.int64)
    ways[0] = 1
    for c in coins:
        for a in range(c, amount + 1):
            ways[a] = (ways[a] + ways[a - c]) % 1_000_000_007
    return ways[amount]


@program(lambda n: (R(0).integers(0, 100 * n, n),), 40, 200, 2000, 10_000)
def longest_increasing(a):
    n = len(a)
    best = np.ones(n, np.int64)
    for i in range(1, n):
        for j in range(i):
            if a[j] < a[i] and best[j] + 1 > best[i]:
                best[i] = best[j] + 1
    return best.max()


@program(
    # scores of which no two alignments make the same sum: at ties there is no derivative
    lambda n: (R(0).integers(0, 4, n), R(1).integers(0, 4, n + 2), 2.13, -1.07, -3.19, -0.53),
    20,
    32,
    320,
    1500,
)
def gotoh(a, b, match, mismatch, start, extend):
    m, n = len(a), len(b)
    M = np.full((m + 1, n + 1), -1e30)
    X = np.full((m + 1, n + 1), -1e30)
    Y = np.full((m + 1, n + 1), -1e30)
    M[0, 0] = 0.0
    for i in range(1, m + 1):
        X[i, 0] = start + extend * i
    for j in range(1, n + 1):
        Y[0, j] = start + extend * j
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            s = match if a[i - 1] == b[j - 1] else mismatch
            M[i, j] = s + max(M[i - 1, j - 1], X[i - 1, j - 1], Y[i - 1, j - 1])
            X[i, j] = max(M[i - 1, j] + start + extend, X[i - 1, j] + extend)
            Y[i, j] = max(M[i, j - 1] + start + extend, Y[i, j - 1] + extend)
    return max(M[m, n], X[m, n], Y[m, n])


@program(lambda n: (R(0).integers(0, 4, n), R(1).integers(0, 4, n + 2)), 20, 32, 320, 2000)
def smith_waterman(a, b):
    m, n = len(a), len(b)
    H = np.zeros((m + 1, n + 1), np.int64)
    best = 0
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            d = H[i - 1, j - 1] + (3 if a[i - 1] == b[j - 1] else -3)
            H[i, j] = max(0, d, H[i - 1, j] - 2, H[i, j - 1] - 2)
            best = max(best, H[i, j])
    return H, best


@program(
    lambda n: (R(0).normal(size=n),), 50, 1000, 100_000, 2_000_000, rtol=1e-11, conditioning="a difference of sums"
)
def max_subarray(x):
    best = x[0]
    here = x[0]
    for i in range(1, len(x)):
        here = max(x[i], here + x[i])
        best = max(best, here)
    return best


@program(lambda n: (R(0).random((n, n)),), 20, 32, 320, 2000)
def seam_energy(e):
    n, m = e.shape
    for i in range(1, n):
        left = np.append(np.inf, e[i - 1, :-1])
        right = np.append(e[i - 1, 1:], np.inf)
        e[i] += np.minimum(np.minimum(left, e[i - 1]), right)
    return e[-1].min()


@program(lambda n: (R(0).random((n, n)),), 20, 32, 320, 2000)
def min_path(cost):
    n, m = cost.shape
    d = np.zeros_like(cost)
    for i in range(n):
        for j in range(m):
            if i == 0 and j == 0:
                d[i, j] = cost[i, j]
            elif i == 0:
                d[i, j] = d[i, j - 1] + cost[i, j]
            elif j == 0:
                d[i, j] = d[i - 1, j] + cost[i, j]
            else:
                d[i, j] = min(d[i - 1, j], d[i, j - 1]) + cost[i, j]
    return d[-1, -1]
