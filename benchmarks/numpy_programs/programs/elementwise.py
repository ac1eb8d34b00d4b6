"""Element-wise programs."""

from __future__ import annotations

import numpy as np

from hloom.benchmarks.numpy_programs.table import R, programs_of

program = programs_of("elementwise")


@program(lambda n: (R(0).random((n, n)),), 40, 32, 320, 2000)
def go_fast(a):
    trace = 0.0
    for i in range(a.shape[0]):
        trace += np.tanh(a[i, i])
    return a + trace


@program(lambda n: (R(0).random((n, n)),), 30, 32, 320, 1500)
def clip_mask(x):
    x[x < 0.2] = 0
    y = np.where(x > 0.5, x, -x)
    x[:, 0] = 7
    return y.sum(axis=1)


@program(lambda n: (-2.0, 0.5, -1.2, 1.2, n, n, 50), 20, 32, 200, 800)
def mandelbrot(xmin, xmax, ymin, ymax, xn, yn, maxiter):
    N = np.zeros((yn, xn), dtype=np.int64)
    for i in range(yn):
        for j in range(xn):
            c = complex(xmin + (xmax - xmin) * j / xn, ymin + (ymax - ymin) * i / yn)
            z = 0j
            for k in range(maxiter):
                z = z * z + c
                if abs(z) > 2.0:
                    N[i, j] = k
                    break
    return N


@program(
    lambda n: (R(0).random(n) * 100 - 50, R(1).random(n) * 360 - 180),
    20,
    32,
    320,
    1500,
    rtol=1e-10,
    conditioning="the arcsine near its ends",
    kink="the distance of a place from itself is the square root of 0, whose derivative is infinite",
)
def haversine(lat, lon):
    lat = np.radians(lat)
    lon = np.radians(lon)
    n = len(lat)
    D = np.zeros((n, n))
    for i in range(n):
        d = np.sin((lat - lat[i]) / 2) ** 2 + np.cos(lat[i]) * np.cos(lat) * np.sin((lon - lon[i]) / 2) ** 2
        D[i] = 2 * 6371 * np.arcsin(np.sqrt(d))
    return D


@program(lambda n: (R(0).normal(size=n),), 40, 1000, 100_000, 1_000_000)
def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


@program(
    lambda n: (R(0).normal(size=n), R(1).normal(size=n), R(2).normal(size=n)),
    40,
    1000,
    100_000,
    1_000_000,
)
def quadratic_roots(a, b, c):
    d = b * b - 4 * a * c
    root = np.sqrt(np.maximum(d, 0))
    q = -0.5 * (b + np.where(b >= 0, root, -root))
    return np.where(d >= 0, q / a, np.nan), np.where(d >= 0, c / q, np.nan)


@program(lambda n: (R(0).normal(size=(n, 3)),), 20, 300, 30_000, 500_000)
def normalize_rows(v):
    length = np.sqrt((v**2).sum(axis=1))
    return v / length[:, None], length


@program(lambda n: (2.5, R(0).random(n), R(1).random(n)), 40, 1000, 100_000, 2_000_000)
def saxpy_loop(a, x, y):
    for i in range(len(x)):
        y[i] = a * x[i] + y[i]


@program(lambda n: (R(0).normal(size=n),), 40, 1000, 100_000, 1_000_000)
def softplus_loop(x):
    out = np.empty_like(x)
    for i in range(len(x)):
        if x[i] > 30:
            out[i] = x[i]
        elif x[i] < -30:
            out[i] = np.exp(x[i])
        else:
            out[i] = np.log1p(np.exp(x[i]))
    return out


@program(lambda n: (R(0).random(n) * 4 - 2, R(1).random(n) * 4 - 2), 20, 300, 20_000, 300_000)
def julia(x, y):
    z = x + 1j * y
    count = np.zeros(len(x), np.int64)
    for _ in range(30):
        inside = np.abs(z) <= 2
        z[inside] = z[inside] ** 2 - 0.4 + 0.6j
        count[inside] += 1
    return count


@program(lambda n: (R(0).random(n) * 10, R(1).random(n) * 10, R(2).random(n) * 10), 40, 1000, 100_000, 1_000_000)
def sphere_coordinates(x, y, z):
    r = np.sqrt(x * x + y * y + z * z)
    return r, np.arccos(z / r), np.arctan2(y, x)
