"""More NumPy programs as people write them: finance, physics, signals, images."""

from __future__ import annotations

import math

import numpy as np
from numpy_programs import R, prog


# --- finance
@prog(lambda: (100.0, 95.0, 0.03, 0.25, 1.0, 200))
def binomial_american_put(S, K, r, sigma, T, N):
    dt = T / N
    u = np.exp(sigma * np.sqrt(dt))
    d = 1 / u
    p = (np.exp(r * dt) - d) / (u - d)
    disc = np.exp(-r * dt)
    v = np.zeros(N + 1)
    for j in range(N + 1):
        v[j] = max(K - S * u**j * d ** (N - j), 0.0)
    for i in range(N - 1, -1, -1):
        for j in range(i + 1):
            v[j] = max(disc * (p * v[j + 1] + (1 - p) * v[j]), K - S * u**j * d ** (i - j))
    return v[0]


@prog(lambda: (R(0).uniform(10, 50, 100), R(1).uniform(10, 50, 100), R(2).uniform(1, 2, 100), 0.1, 0.2))
def black_scholes(price, strike, t, rate, vol):
    z = 1.0 / np.sqrt(2 * t)
    a = np.log(price / strike)
    b = t * -rate
    y = t * vol * vol * 2
    z = 1 / np.sqrt(y)
    w1 = (a - b + 0.25 * y) * z
    w2 = (a - b - 0.25 * y) * z
    d1 = 0.5 + 0.5 * np.tanh(w1)
    d2 = 0.5 + 0.5 * np.tanh(w2)
    se = np.exp(b) * strike
    call = price * d1 - se * d2
    return call, call - price + se


@prog(lambda: (R(0).normal(size=(250, 8)) * 0.01,))
def portfolio(returns):
    mu = returns.mean(axis=0)
    x = returns - mu
    cov = x.T @ x / (len(x) - 1)
    w = np.linalg.solve(cov, np.ones(cov.shape[0]))
    w /= w.sum()
    risk = np.sqrt(w @ cov @ w)
    return w, risk, np.cumprod(1 + returns @ w)[-1]


@prog(lambda: (R(0).random(300) + 10, 12, 26, 9))
def macd(p, fast, slow, sig):
    def ema(x, n):
        out = np.empty_like(x)
        a = 2.0 / (n + 1)
        out[0] = x[0]
        for i in range(1, len(x)):
            out[i] = a * x[i] + (1 - a) * out[i - 1]
        return out

    m = ema(p, fast) - ema(p, slow)
    s = ema(m, sig)
    return m - s


@prog(lambda: (R(0).random(200) * 5 + 100,))
def max_drawdown(p):
    peak = p[0]
    worst = 0.0
    for v in p:
        if v > peak:
            peak = v
        dd = (peak - v) / peak
        if dd > worst:
            worst = dd
    return worst


# --- physics
@prog(lambda: (R(0).random((30, 3)) * 5, 0.01, 4))
def lennard_jones(pos, dt, steps):
    n = len(pos)
    vel = np.zeros_like(pos)
    e = 0.0
    for s in range(steps):
        f = np.zeros_like(pos)
        e = 0.0
        for i in range(n):
            for j in range(i + 1, n):
                d = pos[i] - pos[j]
                r2 = max((d * d).sum(), 0.8)
                inv6 = 1.0 / (r2 * r2 * r2)
                e += 4 * inv6 * (inv6 - 1)
                fij = 24 * inv6 * (2 * inv6 - 1) / r2 * d
                f[i] += fij
                f[j] -= fij
        vel += f * dt * 0.001
        pos += vel * dt
    return e


@prog(lambda: (R(0).choice(np.array([-1, 1]), (16, 16)), R(1).random((200, 3)), 0.4))
def ising(spin, u, beta):
    n, m = spin.shape
    for k in range(len(u)):
        i = int(u[k, 0] * n)
        j = int(u[k, 1] * m)
        s = spin[(i + 1) % n, j] + spin[(i - 1) % n, j] + spin[i, (j + 1) % m] + spin[i, (j - 1) % m]
        de = 2 * spin[i, j] * s
        if de <= 0 or u[k, 2] < np.exp(-beta * de):
            spin[i, j] = -spin[i, j]
    return spin.sum()


@prog(lambda: (np.array([1.0, 0.5, 0.2]), 0.01, 500))
def lorenz_rk4(y, h, n):
    def f(v):
        return np.array([10 * (v[1] - v[0]), v[0] * (28 - v[2]) - v[1], v[0] * v[1] - 8 / 3 * v[2]])

    out = np.empty((n, 3))
    for i in range(n):
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        out[i] = y
    return out


@prog(lambda: (R(0).random((24, 24)), 0.1, 10))
def heat_periodic(u, a, n):
    for _ in range(n):
        u = u + a * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u)
    return u


@prog(lambda: (np.sin(np.linspace(0, 6, 100)), 0.5, 20))
def burgers(u, nu, nt):
    nx = len(u)
    dx = 2 * np.pi / (nx - 1)
    dt = dx * 0.01 * nu
    for n in range(nt):
        un = u.copy()
        for i in range(1, nx - 1):
            u[i] = un[i] - un[i] * dt / dx * (un[i] - un[i - 1]) + nu * dt / dx**2 * (un[i + 1] - 2 * un[i] + un[i - 1])
        u[0] = un[0] - un[0] * dt / dx * (un[0] - un[-2]) + nu * dt / dx**2 * (un[1] - 2 * un[0] + un[-2])
        u[-1] = u[0]


@prog(lambda: (R(0).random((20, 20)), R(1).random((20, 20)), 0.05, 0.02, 10))
def gray_scott(U, V, f, k, steps):
    for _ in range(steps):
        u = U[1:-1, 1:-1]
        v = V[1:-1, 1:-1]
        Lu = U[:-2, 1:-1] + U[1:-1, :-2] - 4 * u + U[1:-1, 2:] + U[2:, 1:-1]
        Lv = V[:-2, 1:-1] + V[1:-1, :-2] - 4 * v + V[1:-1, 2:] + V[2:, 1:-1]
        uvv = u * v * v
        u += 0.16 * Lu - uvv + f * (1 - u)
        v += 0.08 * Lv + uvv - (f + k) * v


# --- signal and images
@prog(lambda: (R(0).random(64) + 1j * R(1).random(64),))
def dft(x):
    n = len(x)
    out = np.zeros(n, dtype=np.complex128)
    for k in range(n):
        s = 0j
        for t in range(n):
            s += x[t] * np.exp(-2j * np.pi * k * t / n)
        out[k] = s
    return out


@prog(lambda: (R(0).random(64) + 0j,))
def fft_radix2(x):
    n = len(x)
    j = 0
    for i in range(1, n):
        bit = n >> 1
        while j & bit:
            j ^= bit
            bit >>= 1
        j ^= bit
        if i < j:
            x[i], x[j] = x[j], x[i]
    size = 2
    while size <= n:
        ang = -2 * np.pi / size
        wl = complex(np.cos(ang), np.sin(ang))
        for i in range(0, n, size):
            w = 1 + 0j
            for k in range(size // 2):
                a = x[i + k]
                b = x[i + k + size // 2] * w
                x[i + k] = a + b
                x[i + k + size // 2] = a - b
                w *= wl
        size *= 2


@prog(lambda: (R(0).random((20, 25)),))
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


@prog(lambda: (R(0).random((20, 20)), 3))
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


@prog(lambda: (R(0).random((30, 30)), 7))
def integral_blur(img, k):
    s = np.zeros((img.shape[0] + 1, img.shape[1] + 1))
    s[1:, 1:] = img.cumsum(0).cumsum(1)
    h = img.shape[0] - k + 1
    w = img.shape[1] - k + 1
    return (s[k:, k:] - s[:h, k:] - s[k:, :w] + s[:h, :w]) / (k * k)


@prog(lambda: (R(0).integers(0, 256, (20, 20)).astype(np.uint8),))
def equalize(img):
    hist = np.zeros(256, np.int64)
    for v in img.ravel():
        hist[v] += 1
    cdf = hist.cumsum()
    lo = cdf[cdf > 0].min()
    lut = ((cdf - lo) * 255 / (img.size - lo)).round().clip(0, 255).astype(np.uint8)
    return lut[img]


@prog(lambda: ((R(0).random((15, 15)) > 0.6),))
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


@prog(lambda: (R(0).random(300), R(1).random(9)))
def fir(x, h):
    y = np.zeros(len(x) - len(h) + 1)
    for i in range(len(y)):
        y[i] = np.dot(x[i : i + len(h)], h[::-1])
    return y


@prog(lambda: (R(0).random(100), np.array([1.0, -0.5, 0.2]), np.array([0.3, 0.3])))
def iir(x, a, b):
    y = np.zeros_like(x)
    for n in range(len(x)):
        acc = 0.0
        for k in range(len(b)):
            if n - k >= 0:
                acc += b[k] * x[n - k]
        for k in range(1, len(a)):
            if n - k >= 0:
                acc -= a[k] * y[n - k]
        y[n] = acc / a[0]
    return y


@prog(lambda: (R(0).random(128), 3))
def haar(x, levels):
    n = len(x)
    out = x.copy()
    for l in range(levels):
        half = n // 2
        a = (out[0:n:2] + out[1:n:2]) / np.sqrt(2)
        d = (out[0:n:2] - out[1:n:2]) / np.sqrt(2)
        out[:half] = a
        out[half:n] = d
        n = half
    return out


@prog(lambda: (R(0).random((12, 3)), R(1).random((9, 3))))
def hausdorff(a, b):
    worst = 0.0
    for p in a:
        best = np.inf
        for q in b:
            best = min(best, np.sqrt(((p - q) ** 2).sum()))
        worst = max(worst, best)
    return worst
