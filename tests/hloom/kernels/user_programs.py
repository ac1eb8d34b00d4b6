"""Kernels as users write them, with arguments to call them with."""

from __future__ import annotations

import math

import numpy as np

import hloom as hl
import hloom.numpy as hnp

GENERATOR = np.random.default_rng(37)


def floats(*shape: int) -> np.ndarray:
    return GENERATOR.normal(size=shape).astype(np.float32)


@hl.kernel
def saxpy(a, x, y):
    out = np.empty_like(x)
    for i in hl.parallel(x.shape[0]):
        out[i] = a * x[i] + y[i]
    return out


@hl.kernel
def softmax(x):
    out = np.empty_like(x)
    for i in hl.parallel(x.shape[0]):
        largest = -math.inf
        for j in range(x.shape[1]):
            largest = max(largest, x[i, j])
        total = 0.0
        for j in range(x.shape[1]):
            e = np.exp(x[i, j] - largest)
            out[i, j] = e
            total += e
        for j in range(x.shape[1]):
            out[i, j] = out[i, j] / total
    return out


@hl.kernel
def softmax_of_rows(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        row = x[i]
        e = np.exp(row - row.max())
        out[i] = e / e.sum()
    return out


@hl.kernel
def softmax_of_tiles(x):
    out = np.empty_like(x)
    for t in hl.tile(x.shape[0]):
        rows = x[t]
        e = np.exp(rows - rows.max(axis=1, keepdims=True))
        out[t] = e / e.sum(axis=1, keepdims=True)
    return out


@hl.kernel
def two_dimensional_tiles(x, y):
    out = np.empty_like(x)
    for t in hl.tile(x.shape, tile=(8, 16)):
        out[t] = x[t] * 2 + hnp.tanh(y[t])
    return out


@hl.kernel(static_argnames="bins")
def histogram(x, bins):
    out = np.zeros(bins, np.int32)
    for i in hl.parallel(x.shape[0]):
        hl.atomic_add(out, int(x[i] * bins), 1)
    return out


@hl.kernel
def stencil(x):
    out = x.copy()
    n, m = x.shape
    for i, j in hl.parallel(n, m):
        if 0 < i < n - 1 and 0 < j < m - 1:
            out[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])
    return out


@hl.kernel
def stencil_of_slices(x):
    out = x.copy()
    for i in hl.parallel(x.shape[0] - 2):
        out[i + 1, 1:-1] = 0.25 * (x[i, 1:-1] + x[i + 2, 1:-1] + x[i + 1, :-2] + x[i + 1, 2:])
    return out


@hl.kernel(static_argnames="k")
def top_k(x, k):
    values = np.empty((x.shape[0], k), x.dtype)
    places = np.empty((x.shape[0], k), np.int32)
    for i in hl.parallel(x.shape[0]):
        best = np.full(k, -np.inf, x.dtype)
        where = np.zeros(k, np.int32)
        for j in range(x.shape[1]):
            v = x[i, j]
            if v > best[k - 1]:
                p = k - 1
                while p > 0 and best[p - 1] < v:
                    best[p] = best[p - 1]
                    where[p] = where[p - 1]
                    p -= 1
                best[p] = v
                where[p] = j
        values[i] = best
        places[i] = where
    return values, places


@hl.kernel
def product(a, b):
    out = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for i in hl.parallel(a.shape[0]):
        for k in range(a.shape[1]):
            out[i] += a[i, k] * b[k]
    return out


@hl.kernel(static_argnames=("h", "w", "n"))
def mandelbrot(h, w, n):
    out = np.zeros((h, w), np.int32)
    for i, j in hl.parallel(h, w):
        x, y = 0.0, 0.0
        cx, cy = -2 + 3 * j / w, -1 + 2 * i / h
        count = 0
        while count < n and x * x + y * y <= 4:
            x, y = x * x - y * y + cx, 2 * x * y + cy
            count += 1
        out[i, j] = count
    return out


def weighted(v, w=2.0):
    a = v * w
    return a + 1


@hl.kernel
def with_a_function(x, w):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        out[i] = weighted(x[i], w) if x[i] > 0 else weighted(-x[i])
    return out


@hl.kernel
def running_sum(x):
    out = np.empty_like(x)
    total = 0.0
    for i in range(len(x)):
        total += x[i]
        out[i] = total
    return out


@hl.kernel
def normalized(x):
    out = np.empty_like(x)
    mean = x.mean()
    total = 0.0
    for i in range(len(x)):
        total += (x[i] - mean) ** 2
    deviation = np.sqrt(total / len(x))
    for i in hl.parallel(len(x)):
        out[i] = (x[i] - mean) / deviation
    return out, mean


@hl.kernel
def rows_of(x, indices):
    out = np.empty((len(indices), x.shape[1]), x.dtype)
    for i in hl.parallel(len(indices)):
        out[i] = x[indices[i]]
    return out


@hl.kernel
def ragged(x):
    n = x.shape[0]
    out = np.zeros((n, n), x.dtype)
    for i in hl.parallel(n):
        for j in range(i + 1):
            out[i, j] = x[i, : j + 1].sum()
    return out


@hl.kernel
def integers(x, y):
    out = np.empty(x.shape, np.int32)
    for i in hl.parallel(len(x)):
        q = x[i] // y[i]
        r = x[i] % y[i]
        out[i] = q * 3 + r - (x[i] << 1) ^ (y[i] & 7)
    return out


@hl.kernel
def bubble_sort(x):
    out = x.copy()
    for i in hl.parallel(x.shape[0]):
        row = out[i]
        for a in range(len(row)):
            for b in range(len(row) - 1 - a):
                if row[b] > row[b + 1]:
                    row[b], row[b + 1] = row[b + 1], row[b]
    return out


@hl.kernel
def first_above(x, limit):
    out = np.full(len(x), -1, np.int32)
    for i in hl.parallel(len(x)):
        for j in range(x.shape[1]):
            if x[i, j] < 0:
                continue
            if x[i, j] > limit:
                out[i] = j
                break
    return out


@hl.kernel
def extremes(x):
    places = np.empty((len(x), 2), np.int32)
    tests = np.empty((len(x), 2), np.bool_)
    for i in hl.parallel(len(x)):
        row = x[i, ::-1]
        places[i, 0] = row.argmax()
        places[i, 1] = np.argmin(row)
        tests[i, 0] = (row > 2).any()
        tests[i, 1] = np.all(np.abs(row) < 10)
    return places, tests


@hl.kernel
def transposed(x):
    out = np.empty(x.shape[::-1], x.dtype)
    for i in hl.parallel(x.shape[0]):
        out[:, i] = x[i]
    return out


@hl.kernel
def piecewise(x):
    out = np.empty_like(x)
    for t in hl.tile(len(x)):
        out[t] = np.where(x[t] > 0, np.sqrt(np.abs(x[t])), np.clip(x[t], -1, 0)) - np.maximum(x[t], 0.5)
    return out


@hl.kernel
def by_elements(x):
    out = np.zeros(len(x), x.dtype)
    for i in hl.parallel(len(x)):
        for v in x[i]:
            out[i] += v * v
    return out


X = floats(37, 53)
PROGRAMS = {
    "saxpy": (saxpy, (2.5, X[0], X[1])),
    "softmax": (softmax, (X,)),
    "softmax_of_rows": (softmax_of_rows, (X,)),
    "softmax_of_tiles": (softmax_of_tiles, (X,)),
    "two_dimensional_tiles": (two_dimensional_tiles, (X, 2 * X)),
    "histogram": (histogram, (np.abs(X[0]) / 4, 16)),
    "stencil": (stencil, (X,)),
    "stencil_of_slices": (stencil_of_slices, (X,)),
    "top_k": (top_k, (X, 5)),
    "product": (product, (X, X.T.copy())),
    "mandelbrot": (mandelbrot, (20, 30, 50)),
    "with_a_function": (with_a_function, (X[0], 3.0)),
    "running_sum": (running_sum, (X[0],)),
    "normalized": (normalized, (X[0],)),
    "rows_of": (rows_of, (X, np.array([3, 5, 36, 0], np.int32))),
    "ragged": (ragged, (X[:, :37].copy(),)),
    "integers": (
        integers,
        (GENERATOR.integers(-50, 50, 99).astype(np.int32), np.tile(np.array([1, 3, -7], np.int32), 33)),
    ),
    "bubble_sort": (bubble_sort, (X[:5, :20].copy(),)),
    "first_above": (first_above, (X, 1.5)),
    "extremes": (extremes, (X,)),
    "transposed": (transposed, (X,)),
    "piecewise": (piecewise, (X[0],)),
    "by_elements": (by_elements, (X,)),
}
