"""Recurrences: each element depends on those before it."""

from __future__ import annotations

import numpy as np

from hloom.benchmarks.numpy_programs.table import R, programs_of

program = programs_of("recurrences")


def _integrand(x):
    return x * x * np.exp(-x)


@program(lambda n: (R(0).random(n), R(1).random(n) + 2, R(2).random(n), R(3).random(n)), 40, 1000, 100_000, 1_000_000)
def tridiagonal(a, b, c, d):
    n = len(d)
    cp = np.empty(n)
    dp = np.empty(n)
    cp[0] = c[0] / b[0]
    dp[0] = d[0] / b[0]
    for i in range(1, n):
        m = b[i] - a[i] * cp[i - 1]
        cp[i] = c[i] / m
        dp[i] = (d[i] - a[i] * dp[i - 1]) / m
    x = np.empty(n)
    x[-1] = dp[-1]
    for i in range(n - 2, -1, -1):
        x[i] = dp[i] - cp[i] * x[i + 1]
    return x


@program(lambda n: (R(0).random(n), np.linspace(0, n - 1, 3 * n + 1)), 10, 300, 30_000, 300_000)
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


@program(lambda n: (_integrand, 0.0, 3.0, n), 200, 1000, 100_000, 1_000_000)
def simpson(f, a, b, n):
    h = (b - a) / n
    s = f(a) + f(b)
    for i in range(1, n):
        s += (4 if i % 2 else 2) * f(a + i * h)
    return s * h / 3


@program(lambda n: (R(0).integers(0, 256, n).astype(np.uint8),), 100, 1000, 100_000, 1_000_000)
def crc16(data):
    poly = 0x8408
    crc = 0xFFFF
    for b in data:
        cur = 0xFF & b
        for _ in range(8):
            if (crc & 0x0001) ^ (cur & 0x0001):
                crc = (crc >> 1) ^ poly
            else:
                crc >>= 1
            cur >>= 1
    crc = ~crc & 0xFFFF
    crc = (crc << 8) | ((crc >> 8) & 0xFF)
    return crc & 0xFFFF


@program(lambda n: (R(0).random(n),), 50, 1000, 100_000, 1_000_000)
def affine_recurrence(x):
    for i in range(1, len(x)):
        x[i] = x[i - 1] * x[i] + 0.5


@program(lambda n: (R(0).random(n) + 10, 0.3, 0.1), 50, 1000, 100_000, 1_000_000)
def holt_smoothing(x, alpha, beta):
    level, trend = x[0], x[1] - x[0]
    out = np.empty_like(x)
    out[0] = level
    for t in range(1, len(x)):
        last = level
        level = alpha * x[t] + (1 - alpha) * (level + trend)
        trend = beta * (level - last) + (1 - beta) * trend
        out[t] = level + trend
    return out


@program(lambda n: (R(0).random(n) * 2 - 1, 20), 30, 1000, 100_000, 1_000_000)
def legendre(x, degree):
    before = np.ones_like(x)
    now = x.copy()
    for k in range(2, degree + 1):
        before, now = now, ((2 * k - 1) * x * now - (k - 1) * before) / k
    return now


@program(
    lambda n: (R(0).random(n) * 0.7 + 2.6, 30),
    30,
    1000,
    50_000,
    500_000,
    rtol=1e-10,
    conditioning="cycles near a branch",
)
def logistic_map(r, steps):
    x = np.full_like(r, 0.5)
    for i in range(len(r)):
        for _ in range(steps):
            x[i] = r[i] * x[i] * (1 - x[i])
    return x


@program(lambda n: (np.uint64(88172645463325252), n), 20, 1000, 100_000, 5_000_000)
def xorshift(seed, n):
    out = np.empty(n, np.uint64)
    x = seed
    for i in range(n):
        x = x ^ (x << np.uint64(13))
        x = x ^ (x >> np.uint64(7))
        x = x ^ (x << np.uint64(17))
        out[i] = x
    return out


@program(lambda n: (R(0).random(n) - 0.5,), 40, 1000, 100_000, 2_000_000)
def running_extremes(x):
    low = np.empty_like(x)
    high = np.empty_like(x)
    a = b = x[0]
    for i in range(len(x)):
        a = min(a, x[i])
        b = max(b, x[i])
        low[i] = a
        high[i] = b
    return low, high


@program(lambda n: (1.0, 0.0, 5 / n, n), 50, 1000, 100_000, 1_000_000, rtol=1e-11, conditioning="a sum of n steps")
def pendulum(angle, speed, dt, steps):
    for _ in range(steps):
        speed -= dt * np.sin(angle)
        angle += dt * speed
    return angle, speed, 0.5 * speed**2 - np.cos(angle)


@program(lambda n: (np.array([1.0, 0.5, -0.3, 0.2, 0.1, -0.05]), R(0).random(n)), 20, 1000, 100_000, 1_000_000)
def clenshaw(c, x):
    out = np.empty_like(x)
    for i in range(len(x)):
        b1 = 0.0
        b2 = 0.0
        for k in range(len(c) - 1, 0, -1):
            b1, b2 = c[k] + 2 * x[i] * b1 - b2, b1
        out[i] = c[0] + x[i] * b1 - b2
    return out
