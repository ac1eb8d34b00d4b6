"""Finance."""

from __future__ import annotations

import numpy as np

from hloom.benchmarks.numpy_programs.table import R, programs_of

program = programs_of("finance")


@program(
    lambda n: (100.0, 95.0, 0.03, 0.25, 1.0, n),
    50,
    100,
    500,
    3000,
    rtol=1e-11,
    conditioning="powers with exponents up to n",
)
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


@program(
    lambda n: (R(0).uniform(10, 50, n), R(1).uniform(10, 50, n), R(2).uniform(1, 2, n), 0.1, 0.2),
    100,
    1000,
    100_000,
    1_000_000,
)
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


@program(
    lambda n: (R(0).normal(size=(n, 8)) * 0.01,),
    250,
    250,
    12_500,
    200_000,
    rtol=1e-10,
    conditioning="a product of n factors",
)
def portfolio(returns):
    mu = returns.mean(axis=0)
    x = returns - mu
    cov = x.T @ x / (len(x) - 1)
    w = np.linalg.solve(cov, np.ones(cov.shape[0]))
    w /= w.sum()
    risk = np.sqrt(w @ cov @ w)
    return w, risk, np.cumprod(1 + returns @ w)[-1]


@program(lambda n: (R(0).random(n) + 10, 12, 26, 9), 300, 1000, 100_000, 1_000_000)
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


@program(lambda n: (R(0).random(n) * 5 + 100,), 200, 1000, 100_000, 2_000_000)
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


@program(lambda n: (100.0, 105.0, 0.05, 0.2, 1.0, R(0).normal(size=(n, 50))), 20, 20, 2000, 40_000)
def asian_option(S0, K, r, sigma, T, z):
    paths, steps = z.shape
    dt = T / steps
    payoff = np.zeros(paths)
    for p in range(paths):
        s = S0
        total = 0.0
        for t in range(steps):
            s *= np.exp((r - 0.5 * sigma**2) * dt + sigma * np.sqrt(dt) * z[p, t])
            total += s
        payoff[p] = max(total / steps - K, 0.0)
    return np.exp(-r * T) * payoff.mean()


@program(lambda n: (R(0).normal(size=n) * 0.01, 1e-6, 0.08, 0.9), 60, 1000, 100_000, 1_000_000)
def garch(r, omega, alpha, beta):
    var = (r * r).mean()
    total = 0.0
    for x in r:
        total += 0.5 * (np.log(2 * np.pi) + np.log(var) + x * x / var)
        var = omega + alpha * x * x + beta * var
    return total


@program(lambda n: (R(0).random(n) * 10 + 100, 14), 60, 1000, 100_000, 1_000_000)
def rsi(p, period):
    d = np.diff(p)
    up = np.maximum(d, 0.0)
    down = np.maximum(-d, 0.0)
    out = np.zeros(len(d))
    u = up[:period].mean()
    v = down[:period].mean()
    for i in range(period, len(d)):
        u = (u * (period - 1) + up[i]) / period
        v = (v * (period - 1) + down[i]) / period
        out[i] = 100 - 100 / (1 + u / v)
    return out


@program(
    # variances that stay above 0, where the square root has no derivative
    lambda n: (100.0, 100.0, 0.04, 0.09, 4.0, 0.15, -0.6, 1.0, R(0).normal(size=(2, n, 40))),
    20,
    30,
    2000,
    20_000,
)
def heston(S0, v0, r, theta, kappa, xi, rho, T, z):
    _, paths, steps = z.shape
    dt = T / steps
    s = np.full(paths, S0)
    v = np.full(paths, theta)
    for t in range(steps):
        z1 = z[0, :, t]
        z2 = rho * z1 + np.sqrt(1 - rho**2) * z[1, :, t]
        root = np.sqrt(np.maximum(v, 0) * dt)
        s *= np.exp((r - 0.5 * np.maximum(v, 0)) * dt + root * z1)
        v += kappa * (theta - np.maximum(v, 0)) * dt + xi * root * z2
    return np.exp(-r * T) * np.maximum(s - v0, 0).mean()


@program(lambda n: (100.0, 0.05, 0.2, 1.0, 300.0, n, n // 2), 20, 40, 300, 2000)
def crank_nicolson_put(K, r, sigma, T, top, n, steps):
    dt = T / steps
    v = np.maximum(K - np.arange(n + 1) * top / n, 0.0)
    c = np.zeros(n + 1)
    d = np.zeros(n + 1)
    for t in range(steps):
        for j in range(1, n):
            a = 0.25 * dt * (sigma**2 * j * j - r * j)
            b = -0.5 * dt * (sigma**2 * j * j + r)
            e = 0.25 * dt * (sigma**2 * j * j + r * j)
            right = a * v[j - 1] + (1 + b) * v[j] + e * v[j + 1]
            m = 1 - b + a * c[j - 1]
            c[j] = -e / m
            d[j] = (right + a * d[j - 1]) / m
        for j in range(n - 1, 0, -1):
            v[j] = d[j] - c[j] * v[j + 1]
        v[0] = K * np.exp(-r * (t + 1) * dt)
    return v


@program(lambda n: (R(0).uniform(80, 120, n), R(1).uniform(0.01, 0.08, n), 10), 20, 300, 20_000, 300_000)
def bond_yields(price, coupon, years):
    out = np.empty_like(price)
    for i in range(len(price)):
        y = 0.05
        for _ in range(8):
            value = 0.0
            slope = 0.0
            for t in range(1, years + 1):
                cash = 100 * coupon[i] + (100.0 if t == years else 0.0)
                value += cash / (1 + y) ** t
                slope -= t * cash / (1 + y) ** (t + 1)
            y -= (value - price[i]) / slope
        out[i] = y
    return out


@program(lambda n: (R(0).normal(size=(n, 5)) * 0.01, 0.94), 50, 200, 20_000, 200_000)
def ewma_covariance(r, decay):
    k = r.shape[1]
    c = np.zeros((k, k))
    for t in range(len(r)):
        c = decay * c + (1 - decay) * np.outer(r[t], r[t])
    return c
