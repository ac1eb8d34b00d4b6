"""Graphs, sorting and search."""

from __future__ import annotations

import numpy as np

from hloom.benchmarks.numpy_programs.table import R, programs_of

program = programs_of("graphs")


def _edges(n):
    return R(0).integers(0, n, (8 * n, 2))


def _sparse(n):
    """A matrix of n rows with 0 to 9 elements each, by rows, and a vector."""
    start = np.concatenate([[0], np.cumsum(R(0).integers(0, 10, n))])
    return start, R(1).integers(0, n, start[-1]), R(2).random(start[-1]), R(3).random(n)


@program(lambda n: (R(0).integers(1, 100, (n, n)).astype(np.int32),), 16, 32, 100, 400)
def floyd_warshall(path):
    for k in range(path.shape[0]):
        path[:] = np.minimum(path[:], np.add.outer(path[:, k], path[k, :]))


@program(
    lambda n: (np.where(R(0).random((n, n)) < 0.3, R(1).random((n, n)), np.inf), 0),
    15,
    32,
    320,
    2000,
    kink="edges that are not there are infinite, which differences do not take",
)
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


@program(lambda n: ((R(0).random((n, n)) < 0.2).astype(np.float64), 0.85, 30), 20, 32, 320, 1000)
def pagerank(adj, d, iters):
    n = len(adj)
    out = adj.sum(1)
    out[out == 0] = 1
    M = (adj / out[:, None]).T
    r = np.ones(n) / n
    for _ in range(iters):
        r = (1 - d) / n + d * (M @ r)
    return r / r.sum()


@program(lambda n: (R(0).random((n, n)) < 3 / n, 0), 12, 32, 320, 2000)
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


@program(lambda n: _sparse(n), 10, 200, 20_000, 200_000)
def spmv(A_row, A_col, A_val, x):
    y = np.empty(A_row.size - 1, A_val.dtype)
    for i in range(A_row.size - 1):
        cols = A_col[A_row[i] : A_row[i + 1]]
        vals = A_val[A_row[i] : A_row[i + 1]]
        y[i] = vals @ x[cols]
    return y


@program(lambda n: (R(0).integers(0, 100 * n, n),), 60, 300, 3000, 12_000)
def insertion_sort(a):
    for i in range(1, len(a)):
        k = a[i]
        j = i - 1
        while j >= 0 and a[j] > k:
            a[j + 1] = a[j]
            j -= 1
        a[j + 1] = k


@program(lambda n: (R(0).random(n),), 50, 200, 1000, 4000)
def bubble(a):
    n = len(a)
    for i in range(n):
        for j in range(n - 1 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]


@program(lambda n: (R(0).random(n),), 64, 1000, 50_000, 500_000)
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


@program(lambda n: (n,), 30, 1000, 100_000, 5_000_000)
def sieve(n):
    is_p = np.ones(n + 1, dtype=np.bool_)
    is_p[:2] = False
    i = 2
    while i * i <= n:
        if is_p[i]:
            is_p[i * i :: i] = False
        i += 1
    return np.nonzero(is_p)[0]


@program(lambda n: (n,), 6, 6, 8, 10)
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


@program(lambda n: (_edges(n), R(2).random(8 * n), n, 10), 12, 100, 5000, 100_000)
def bellman_ford(edges, weights, n, rounds):
    dist = np.full(n, np.inf)
    dist[0] = 0.0
    for _ in range(rounds):
        for e in range(len(edges)):
            u = edges[e, 0]
            v = edges[e, 1]
            if dist[u] + weights[e] < dist[v]:
                dist[v] = dist[u] + weights[e]
    return dist


@program(lambda n: (R(0).random((n, n)),), 12, 32, 320, 2000)
def prim(w):
    n = len(w)
    near = np.full(n, np.inf)
    inside = np.zeros(n, np.bool_)
    near[0] = 0.0
    total = 0.0
    for _ in range(n):
        u = np.argmin(np.where(inside, np.inf, near))
        inside[u] = True
        total += near[u]
        near = np.where(inside, near, np.minimum(near, w[u]))
    return total


@program(lambda n: (_edges(n), n), 12, 100, 10_000, 200_000)
def union_find(edges, n):
    parent = np.arange(n)
    count = n
    for e in range(len(edges)):
        a = edges[e, 0]
        b = edges[e, 1]
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        if a != b:
            parent[a] = b
            count -= 1
    return count


@program(lambda n: (R(0).random((n, n)) < 0.3,), 12, 32, 150, 500)
def triangles(adj):
    n = len(adj)
    count = 0
    for i in range(n):
        for j in range(i + 1, n):
            if adj[i, j]:
                for k in range(j + 1, n):
                    if adj[i, k] and adj[j, k]:
                        count += 1
    return count


@program(lambda n: (_edges(n), n), 12, 100, 10_000, 200_000)
def degrees(edges, n):
    out = np.zeros(n, np.int64)
    np.add.at(out, edges[:, 0], 1)
    np.add.at(out, edges[:, 1], 1)
    return out, out.max(), out.mean()


@program(lambda n: (*_sparse(n)[:3], 20), 12, 200, 20_000, 100_000)
def sparse_jacobi(start, column, value, steps):
    n = len(start) - 1
    x = np.zeros(n)
    for _ in range(steps):
        new = np.empty(n)
        for i in range(n):
            s = 1.0
            for k in range(start[i], start[i + 1]):
                s -= value[k] * x[column[k]]
            new[i] = s / 10.0
        x = new
    return x
