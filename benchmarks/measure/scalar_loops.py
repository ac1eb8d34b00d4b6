"""Loops of scalars: `hl.kernel`, `fori_loop` with `.at[].set` under `hl.jit`, and Numba's njit.

    python -m benchmarks.measure.scalar_loops [--rounds 10] [--only NAME ...] [--skip-jit]

Interleaved minima in ms.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom import lax


def gauss_seidel(a, steps):
    x = a.copy()
    n, m = x.shape
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                x[i, j] = (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1] + x[i, j]) * 0.2
    return x


def gauss_seidel_jit(a, steps):
    n, m = a.shape

    def point(i, j, x):
        total = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1] + x[i, j]
        return x.at[i, j].set(total * 0.2)

    def row(i, x):
        return lax.fori_loop(1, m - 1, lambda j, x: point(i, j, x), x)

    return lax.fori_loop(0, steps, lambda _, x: lax.fori_loop(1, n - 1, row, x), a)


def tridiagonal(a, b, c, d):
    n = b.shape[0]
    cp = np.empty_like(b)
    dp = np.empty_like(b)
    x = np.empty_like(b)
    cp[0] = c[0] / b[0]
    dp[0] = d[0] / b[0]
    for i in range(1, n):
        w = b[i] - a[i] * cp[i - 1]
        cp[i] = c[i] / w
        dp[i] = (d[i] - a[i] * dp[i - 1]) / w
    x[n - 1] = dp[n - 1]
    for i in range(n - 2, -1, -1):
        x[i] = dp[i] - cp[i] * x[i + 1]
    return x


def tridiagonal_jit(a, b, c, d):
    n = b.shape[0]

    def forward(i, s):
        cp, dp = s
        w = b[i] - a[i] * cp[i - 1]
        return cp.at[i].set(c[i] / w), dp.at[i].set((d[i] - a[i] * dp[i - 1]) / w)

    first = (hnp.zeros_like(b).at[0].set(c[0] / b[0]), hnp.zeros_like(b).at[0].set(d[0] / b[0]))
    cp, dp = lax.fori_loop(1, n, forward, first)

    def back(k, x):
        i = n - 2 - k
        return x.at[i].set(dp[i] - cp[i] * x[i + 1])

    return lax.fori_loop(0, n - 1, back, hnp.zeros_like(b).at[n - 1].set(dp[n - 1]))


def floyd_warshall(a):
    x = a.copy()
    n = x.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                x[i, j] = min(x[i, j], x[i, k] + x[k, j])
    return x


def floyd_warshall_jit(a):
    n = a.shape[0]

    def point(k, i, j, x):
        return x.at[i, j].set(hnp.minimum(x[i, j], x[i, k] + x[k, j]))

    def row(k, i, x):
        return lax.fori_loop(0, n, lambda j, x: point(k, i, j, x), x)

    return lax.fori_loop(0, n, lambda k, x: lax.fori_loop(0, n, lambda i, x: row(k, i, x), x), a)


def edit_distance(s, t):
    n, m = s.shape[0], t.shape[0]
    d = np.zeros((n + 1, m + 1), np.int32)
    for i in range(n + 1):
        d[i, 0] = i
    for j in range(m + 1):
        d[0, j] = j
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            cost = 0 if s[i - 1] == t[j - 1] else 1
            d[i, j] = min(min(d[i - 1, j] + 1, d[i, j - 1] + 1), d[i - 1, j - 1] + cost)
    return d


def edit_distance_jit(s, t):
    n, m = s.shape[0], t.shape[0]
    d = hnp.zeros((n + 1, m + 1), np.int32)
    d = d.at[:, 0].set(hnp.arange(n + 1, dtype=np.int32)).at[0].set(hnp.arange(m + 1, dtype=np.int32))

    def point(i, j, d):
        cost = hnp.where(s[i - 1] == t[j - 1], 0, 1).astype(np.int32)
        best = hnp.minimum(hnp.minimum(d[i - 1, j] + 1, d[i, j - 1] + 1), d[i - 1, j - 1] + cost)
        return d.at[i, j].set(best)

    return lax.fori_loop(1, n + 1, lambda i, d: lax.fori_loop(1, m + 1, lambda j, d: point(i, j, d), d), d)


def cholesky(a):
    x = a.copy()
    n = x.shape[0]
    for i in range(n):
        for j in range(i):
            for k in range(j):
                x[i, j] -= x[i, k] * x[j, k]
            x[i, j] /= x[j, j]
        for k in range(i):
            x[i, i] -= x[i, k] * x[i, k]
        x[i, i] = np.sqrt(x[i, i])
    return x


def cholesky_jit(a):
    n = a.shape[0]

    def entry(i, j, x):
        x = lax.fori_loop(0, j, lambda k, x: x.at[i, j].add(-(x[i, k] * x[j, k])), x)
        return x.at[i, j].set(x[i, j] / x[j, j])

    def row(i, x):
        x = lax.fori_loop(0, i, lambda j, x: entry(i, j, x), x)
        x = lax.fori_loop(0, i, lambda k, x: x.at[i, i].add(-(x[i, k] * x[i, k])), x)
        return x.at[i, i].set(hnp.sqrt(x[i, i]))

    return lax.fori_loop(0, n, row, a)


def n_body(p, v, m, steps):
    x = p.copy()
    u = v.copy()
    n = m.shape[0]
    for _ in range(steps):
        for i in range(n):
            for j in range(n):
                dx = x[j, 0] - x[i, 0]
                dy = x[j, 1] - x[i, 1]
                dz = x[j, 2] - x[i, 2]
                r2 = dx * dx + dy * dy + dz * dz + 0.01
                w = 0.001 * m[j] / (r2 * np.sqrt(r2))
                u[i, 0] += w * dx
                u[i, 1] += w * dy
                u[i, 2] += w * dz
        for i in range(n):
            for k in range(3):
                x[i, k] += 0.001 * u[i, k]
    return x


def n_body_jit(p, v, m, steps):
    n = m.shape[0]

    def pair(i, j, s):
        x, u = s
        dx, dy, dz = x[j, 0] - x[i, 0], x[j, 1] - x[i, 1], x[j, 2] - x[i, 2]
        r2 = dx * dx + dy * dy + dz * dz + 0.01
        w = 0.001 * m[j] / (r2 * hnp.sqrt(r2))
        return x, u.at[i, 0].add(w * dx).at[i, 1].add(w * dy).at[i, 2].add(w * dz)

    def step(_, s):
        x, u = lax.fori_loop(0, n, lambda i, s: lax.fori_loop(0, n, lambda j, s: pair(i, j, s), s), s)
        return x + 0.001 * u, u

    return lax.fori_loop(0, steps, step, (p, v))[0]


def deriche(image, a1, a2, b1, b2):
    n, m = image.shape
    y1 = np.empty_like(image)
    y2 = np.empty_like(image)
    for i in range(n):
        y1[i, 0] = a1 * image[i, 0]
        y1[i, 1] = a1 * image[i, 1] + a2 * image[i, 0] + b1 * y1[i, 0]
        for j in range(2, m):
            y1[i, j] = a1 * image[i, j] + a2 * image[i, j - 1] + b1 * y1[i, j - 1] + b2 * y1[i, j - 2]
        y2[i, m - 1] = 0.0
        y2[i, m - 2] = a2 * image[i, m - 1]
        for j in range(m - 3, -1, -1):
            y2[i, j] = a1 * image[i, j + 1] + a2 * image[i, j + 2] + b1 * y2[i, j + 1] + b2 * y2[i, j + 2]
        for j in range(m):
            y1[i, j] += y2[i, j]
    return y1


def deriche_jit(image, a1, a2, b1, b2):
    n, m = image.shape

    def forward(j, y):
        return y.at[:, j].set(a1 * image[:, j] + a2 * image[:, j - 1] + b1 * y[:, j - 1] + b2 * y[:, j - 2])

    y1 = hnp.zeros_like(image).at[:, 0].set(a1 * image[:, 0])
    y1 = y1.at[:, 1].set(a1 * image[:, 1] + a2 * image[:, 0] + b1 * y1[:, 0])
    y1 = lax.fori_loop(2, m, forward, y1)

    def back(k, y):
        j = m - 3 - k
        return y.at[:, j].set(a1 * image[:, j + 1] + a2 * image[:, j + 2] + b1 * y[:, j + 1] + b2 * y[:, j + 2])

    y2 = hnp.zeros_like(image).at[:, m - 2].set(a2 * image[:, m - 1])
    return y1 + lax.fori_loop(0, m - 2, back, y2)


def column_sums(x):
    n, m = x.shape
    out = np.zeros(m, x.dtype)
    for j in range(m):
        for i in range(n):
            out[j] += x[i, j]
    return out


def matmul(a, b):
    n, m, k = a.shape[0], b.shape[1], a.shape[1]
    out = np.zeros((n, m), a.dtype)
    for i in range(n):
        for j in range(m):
            for p in range(k):
                out[i, j] += a[i, p] * b[p, j]
    return out


def recurrence(a):
    x = a.copy()
    for i in range(1, x.shape[0]):
        x[i] = x[i - 1] * x[i] + 0.5
    return x


def recurrence_jit(a):
    return lax.fori_loop(1, a.shape[0], lambda i, x: x.at[i].set(x[i - 1] * x[i] + 0.5), a)


def durbin(r):
    n = r.shape[0]
    y = np.zeros_like(r)
    z = np.zeros_like(r)
    y[0] = -r[0]
    beta = 1.0
    alpha = -r[0]
    for k in range(1, n):
        beta = (1.0 - alpha * alpha) * beta
        total = 0.0
        for i in range(k):
            total += r[k - i - 1] * y[i]
        alpha = -(r[k] + total) / beta
        for i in range(k):
            z[i] = y[i] + alpha * y[k - i - 1]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha
    return y


def durbin_jit(r):
    n = r.shape[0]

    def step(k, s):
        y, beta, alpha = s
        beta = (1.0 - alpha * alpha) * beta
        total = lax.fori_loop(0, k, lambda i, t: t + r[k - i - 1] * y[i], hnp.zeros((), r.dtype))
        alpha = -(r[k] + total) / beta
        z = lax.fori_loop(0, k, lambda i, z: z.at[i].set(y[i] + alpha * y[k - i - 1]), y)
        return z.at[k].set(alpha), beta, alpha

    first = (hnp.zeros_like(r).at[0].set(-r[0]), hnp.ones((), r.dtype), -r[0])
    return lax.fori_loop(1, n, step, first)[0]


def heat(a, steps):
    x = a.copy()
    y = a.copy()
    n, m = x.shape
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                y[i, j] = 0.2 * (x[i, j] + x[i, j - 1] + x[i, j + 1] + x[i - 1, j] + x[i + 1, j])
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                x[i, j] = 0.2 * (y[i, j] + y[i, j - 1] + y[i, j + 1] + y[i - 1, j] + y[i + 1, j])
    return x


def programs(size: float = 1.0) -> dict:
    """{name: (kernel, function for jit or None, arguments, names of static arguments)}."""
    g = np.random.default_rng(0)
    n = lambda k: max(4, int(k * size))  # noqa: E731
    square = g.random((n(200), n(200)))
    spd = (lambda a: a @ a.T + len(a) * np.eye(len(a)))(g.random((n(160), n(160))))
    line = g.random(n(100_000))
    words = [g.integers(0, 4, n(400)).astype(np.int32) for _ in range(2)]
    bodies = (g.random((n(150), 3)), g.random((n(150), 3)), g.random(n(150)), 5)
    image = g.random((n(400), n(400)))
    return {
        "gauss-seidel": (gauss_seidel, gauss_seidel_jit, (square, 10), ("steps",)),
        "heat": (heat, None, (square, 10), ("steps",)),
        "tridiagonal": (tridiagonal, tridiagonal_jit, (line, line + 4, line, line), ()),
        "recurrence": (recurrence, recurrence_jit, (line,), ()),
        "durbin": (durbin, durbin_jit, (g.random(n(1000)) / 1000,), ()),
        "floyd-warshall": (floyd_warshall, floyd_warshall_jit, (square * 100,), ()),
        "edit distance": (edit_distance, edit_distance_jit, (*words,), ()),
        "cholesky": (cholesky, cholesky_jit, (spd,), ()),
        "n-body": (n_body, n_body_jit, bodies, ("steps",)),
        "deriche": (deriche, deriche_jit, (image, 0.5, 0.25, 0.3, -0.2), ()),
        "column sums": (column_sums, None, (g.random((n(1000), n(1000))),), ()),
        "matmul": (matmul, None, (g.random((n(200), n(200))), g.random((n(200), n(200)))), ()),
    }  # fmt: skip


def seconds(call) -> float:
    start = time.perf_counter()
    hl.block_until_ready(call())
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--skip-jit", action="store_true")
    options = parser.parse_args()
    from numba import njit

    hl.config.enable_x64 = True
    print(f"{'':15} {'hl.kernel':>10} {'fori_loop':>10} {'Numba':>10}   ms; Numba's over hl.kernel's, fori_loop's")
    for name, (function, jitted, given, static) in programs().items():
        if options.only and name not in options.only:
            continue
        kernel = hl.kernel(function, static_argnames=static) if static else hl.kernel(function)
        compiled = njit(function)
        ways = [lambda: kernel(*given), lambda: compiled(*given)]  # noqa: B023
        if jitted is not None and not options.skip_jit:
            one = hl.jit(jitted, static_argnames=static)
            ways.append(lambda: one(*given))  # noqa: B023
        results = [np.asarray(hl.block_until_ready(way())) for way in ways]
        for other in results[1:]:
            np.testing.assert_allclose(results[0], other, rtol=1e-9, atol=1e-12)
        least = [min(times) for times in zip(*[[seconds(w) for w in ways] for _ in range(options.rounds)], strict=True)]
        least.append(float("nan"))
        kernel_time, numba_time, jit_time = least[:3]
        print(f"{name:15} {kernel_time * 1e3:10.3f} {jit_time * 1e3:10.3f} {numba_time * 1e3:10.3f}   "
              f"{numba_time / kernel_time:6.2f} {numba_time / jit_time:6.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
