"""Images."""

from __future__ import annotations

import math

import numpy as np

from hloom.benchmarks.numpy_programs.table import R, programs_of

program = programs_of("images")


@program(lambda n: (R(0).random((n, n + 5)),), 20, 32, 320, 1500)
def sobel(img):
    out = np.zeros_like(img)
    for i in range(1, img.shape[0] - 1):
        for j in range(1, img.shape[1] - 1):
            gx = (
                img[i - 1, j + 1]
                + 2 * img[i, j + 1]
                + img[i + 1, j + 1]
                - img[i - 1, j - 1]
                - 2 * img[i, j - 1]
                - img[i + 1, j - 1]
            )
            gy = (
                img[i + 1, j - 1]
                + 2 * img[i + 1, j]
                + img[i + 1, j + 1]
                - img[i - 1, j - 1]
                - 2 * img[i - 1, j]
                - img[i - 1, j + 1]
            )
            out[i, j] = math.sqrt(gx * gx + gy * gy)
    return out


@program(lambda n: (R(0).random((n, n)), 3), 20, 32, 200, 800)
def median_filter(img, k):
    h, w = img.shape
    r = k // 2
    out = img.copy()
    for i in range(r, h - r):
        for j in range(r, w - r):
            win = img[i - r : i + r + 1, j - r : j + r + 1].flatten()
            win.sort()
            out[i, j] = win[len(win) // 2]
    return out


@program(lambda n: (R(0).random((n, n)), 7), 30, 32, 320, 1500)
def integral_blur(img, k):
    s = np.zeros((img.shape[0] + 1, img.shape[1] + 1))
    s[1:, 1:] = img.cumsum(0).cumsum(1)
    h = img.shape[0] - k + 1
    w = img.shape[1] - k + 1
    return (s[k:, k:] - s[:h, k:] - s[k:, :w] + s[:h, :w]) / (k * k)


@program(lambda n: (R(0).integers(0, 256, (n, n)).astype(np.uint8),), 20, 32, 320, 2000)
def equalize(img):
    hist = np.zeros(256, np.int64)
    for v in img.ravel():
        hist[v] += 1
    cdf = hist.cumsum()
    lo = cdf[cdf > 0].min()
    lut = ((cdf - lo) * 255 / (img.size - lo)).round().clip(0, 255).astype(np.uint8)
    return lut[img]


@program(lambda n: (R(0).random((n, n)) > 0.6,), 15, 32, 320, 1500)
def components(mask):
    lab = np.zeros(mask.shape, np.int64)
    stack = np.zeros((mask.size * 4, 2), np.int64)
    cur = 0
    for i in range(mask.shape[0]):
        for j in range(mask.shape[1]):
            if mask[i, j] and lab[i, j] == 0:
                cur += 1
                sp = 0
                stack[0, 0] = i
                stack[0, 1] = j
                sp = 1
                lab[i, j] = cur
                while sp > 0:
                    sp -= 1
                    y = stack[sp, 0]
                    x = stack[sp, 1]
                    for d in range(4):
                        ny = y + (d == 0) - (d == 1)
                        nx = x + (d == 2) - (d == 3)
                        if 0 <= ny < mask.shape[0] and 0 <= nx < mask.shape[1] and mask[ny, nx] and lab[ny, nx] == 0:
                            lab[ny, nx] = cur
                            stack[sp, 0] = ny
                            stack[sp, 1] = nx
                            sp += 1
    return lab, cur


@program(lambda n: (R(1).random((n, n)), R(2).random((3, 3))), 20, 32, 320, 1500)
def conv2d_loops(img, ker):
    H, W = img.shape
    K = ker.shape[0]
    out = np.zeros((H - K + 1, W - K + 1))
    for i in range(H - K + 1):
        for j in range(W - K + 1):
            out[i, j] = np.sum(img[i : i + K, j : j + K] * ker)
    return out


@program(lambda n: (0.25, R(0).random((n, n + 2))), 20, 32, 320, 1500)
def deriche(alpha, imgIn):
    k = (1.0 - np.exp(-alpha)) * (1.0 - np.exp(-alpha)) / (1.0 + alpha * np.exp(-alpha) - np.exp(2.0 * alpha))
    a1 = a5 = k
    a2 = a6 = k * np.exp(-alpha) * (alpha - 1.0)
    b1 = 2.0 ** (-alpha)
    b2 = -np.exp(-2.0 * alpha)
    y1 = np.empty_like(imgIn)
    y1[:, 0] = a1 * imgIn[:, 0]
    y1[:, 1] = a1 * imgIn[:, 1] + a2 * imgIn[:, 0] + b1 * y1[:, 0]
    for j in range(2, imgIn.shape[1]):
        y1[:, j] = a1 * imgIn[:, j] + a2 * imgIn[:, j - 1] + b1 * y1[:, j - 1] + b2 * y1[:, j - 2]
    return y1


@program(lambda n: (R(0).random((n, n)), 2, 0.1), 14, 32, 120, 400)
def bilateral(img, r, sigma):
    h, w = img.shape
    out = img.copy()
    for i in range(r, h - r):
        for j in range(r, w - r):
            total = 0.0
            norm = 0.0
            for a in range(-r, r + 1):
                for b in range(-r, r + 1):
                    d = img[i + a, j + b] - img[i, j]
                    g = np.exp(-(a * a + b * b) / 4.0 - d * d / (2 * sigma * sigma))
                    total += g * img[i + a, j + b]
                    norm += g
            out[i, j] = total / norm
    return out


@program(lambda n: (R(0).random((n, n)), n + n // 2, n + n // 2), 10, 32, 320, 1000)
def bilinear_resize(img, H, W):
    h, w = img.shape
    out = np.empty((H, W))
    for i in range(H):
        y = i * (h - 1) / (H - 1)
        y0 = min(int(y), h - 2)
        for j in range(W):
            x = j * (w - 1) / (W - 1)
            x0 = min(int(x), w - 2)
            fy = y - y0
            fx = x - x0
            top = (1 - fx) * img[y0, x0] + fx * img[y0, x0 + 1]
            low = (1 - fx) * img[y0 + 1, x0] + fx * img[y0 + 1, x0 + 1]
            out[i, j] = (1 - fy) * top + fy * low
    return out


@program(lambda n: (R(0).random((n, n, 3)),), 12, 20, 200, 1000)
def grayscale_gamma(rgb):
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    y = 0.2126 * linear[:, :, 0] + 0.7152 * linear[:, :, 1] + 0.0722 * linear[:, :, 2]
    return np.where(y <= 0.0031308, 12.92 * y, 1.055 * y ** (1 / 2.4) - 0.055)


@program(lambda n: (R(0).random((n, n)),), 12, 32, 320, 1500)
def floyd_steinberg(img):
    h, w = img.shape
    for i in range(h - 1):
        for j in range(1, w - 1):
            old = img[i, j]
            new = 1.0 if old > 0.5 else 0.0
            img[i, j] = new
            e = old - new
            img[i, j + 1] += e * 7 / 16
            img[i + 1, j - 1] += e * 3 / 16
            img[i + 1, j] += e * 5 / 16
            img[i + 1, j + 1] += e * 1 / 16


@program(lambda n: (R(0).random((n, n)), 2), 12, 32, 200, 800)
def erosion(img, r):
    h, w = img.shape
    out = np.empty_like(img)
    for i in range(h):
        for j in range(w):
            out[i, j] = np.min(img[max(i - r, 0) : i + r + 1, max(j - r, 0) : j + r + 1])
    return out


@program(lambda n: (R(0).integers(0, 256, (n, n)),), 12, 32, 320, 1500)
def otsu(img):
    hist = np.zeros(256, np.int64)
    for v in img.ravel():
        hist[v] += 1
    total = img.size
    mean_all = (np.arange(256) * hist).sum()
    below = 0
    mean_below = 0
    best = -1.0
    level = 0
    for t in range(256):
        below += hist[t]
        if below == 0 or below == total:
            continue
        mean_below += t * hist[t]
        m0 = mean_below / below
        m1 = (mean_all - mean_below) / (total - below)
        between = below * (total - below) * (m0 - m1) ** 2
        if between > best:
            best = between
            level = t
    return level, best


@program(lambda n: (R(0).random((n, n)), np.array([0.05, 0.25, 0.4, 0.25, 0.05])), 12, 32, 320, 1500)
def separable_blur(img, k):
    r = len(k) // 2
    rows = np.zeros_like(img)
    for a in range(len(k)):
        rows[:, r:-r] += k[a] * img[:, a : img.shape[1] - 2 * r + a]
    out = np.zeros_like(img)
    for a in range(len(k)):
        out[r:-r] += k[a] * rows[a : img.shape[0] - 2 * r + a]
    return out
