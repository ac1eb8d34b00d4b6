"""Programs as one writes them for jax: whole arrays where that is natural, `lax` for recurrences.

A form takes the program's arguments and returns its results, followed by the arrays that the program changes. Integers
are static.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FORMS: dict[str, Callable] = {}


def form(function: Callable) -> Callable:
    """Registers a form. jax is imported where it is used: only a process that times it loads it."""
    FORMS[function.__name__] = lambda *args: function(*_jax(), *args)
    return function


def _jax() -> tuple[Any, Any]:
    import jax

    return jax.numpy, jax.lax


# --- element-wise


@form
def go_fast(jnp, lax, a):
    return a + jnp.tanh(jnp.diagonal(a)).sum()


@form
def gelu(jnp, lax, x):
    return 0.5 * x * (1 + jnp.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


@form
def quadratic_roots(jnp, lax, a, b, c):
    d = b * b - 4 * a * c
    root = jnp.sqrt(jnp.maximum(d, 0))
    q = -0.5 * (b + jnp.where(b >= 0, root, -root))
    return jnp.where(d >= 0, q / a, jnp.nan), jnp.where(d >= 0, c / q, jnp.nan)


@form
def normalize_rows(jnp, lax, v):
    length = jnp.sqrt((v**2).sum(axis=1))
    return v / length[:, None], length


@form
def saxpy_loop(jnp, lax, a, x, y):
    return a * x + y


@form
def softplus_loop(jnp, lax, x):
    return jnp.where(x > 30, x, jnp.where(x < -30, jnp.exp(x), jnp.log1p(jnp.exp(x))))


@form
def sphere_coordinates(jnp, lax, x, y, z):
    r = jnp.sqrt(x * x + y * y + z * z)
    return r, jnp.arccos(z / r), jnp.arctan2(y, x)


# --- stencils


@form
def jacobi_1d(jnp, lax, T, A, B):
    def step(_, s):
        A, B = s
        B = B.at[1:-1].set(0.33333 * (A[:-2] + A[1:-1] + A[2:]))
        return A.at[1:-1].set(0.33333 * (B[:-2] + B[1:-1] + B[2:])), B

    return lax.fori_loop(1, T, step, (A, B))


@form
def heat_periodic(jnp, lax, u, a, n):
    def step(_, u):
        return u + a * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u)

    return lax.fori_loop(0, n, step, u)


@form
def heat_3d(jnp, lax, T, A, B):
    def step(_, s):
        A, B = s
        c = A[1:-1, 1:-1, 1:-1]
        new = (
            0.125 * (A[2:, 1:-1, 1:-1] - 2.0 * c + A[:-2, 1:-1, 1:-1])
            + 0.125 * (A[1:-1, 2:, 1:-1] - 2.0 * c + A[1:-1, :-2, 1:-1])
            + 0.125 * (A[1:-1, 1:-1, 2:] - 2.0 * c + A[1:-1, 1:-1, :-2])
            + c
        )
        return A.at[1:-1, 1:-1, 1:-1].set(new * 0.5), B.at[1:-1, 1:-1, 1:-1].set(new)

    return lax.fori_loop(1, T, step, (A, B))


@form
def fdtd_2d(jnp, lax, TMAX, ex, ey, hz, given):
    def step(t, s):
        ex, ey, hz = s
        ey = ey.at[0, :].set(given[t])
        ey = ey.at[1:, :].add(-0.5 * (hz[1:, :] - hz[:-1, :]))
        ex = ex.at[:, 1:].add(-0.5 * (hz[:, 1:] - hz[:, :-1]))
        curl = ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]
        return ex, ey, hz.at[:-1, :-1].add(-0.7 * curl)

    return lax.fori_loop(0, TMAX, step, (ex, ey, hz))


@form
def seidel_2d(jnp, lax, T, A):
    n = A.shape[0]

    def point(i, j, A):
        return A.at[i, j].set(lax.dynamic_slice(A, (i - 1, j - 1), (3, 3)).sum() / 9.0)

    def row(i, A):
        return lax.fori_loop(1, n - 1, lambda j, A: point(i, j, A), A)

    return lax.fori_loop(0, T, lambda t, A: lax.fori_loop(1, n - 1, row, A), A)


@form
def laplace_until(jnp, lax, u, tol, most):
    def step(s):
        u, _, it = s
        new = u.at[1:-1, 1:-1].set(0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]))
        return new, jnp.max(jnp.abs(new - u)), it + 1

    u, _, it = lax.while_loop(lambda s: (s[1] > tol) & (s[2] < most), step, (u, jnp.array(1.0), jnp.array(0)))
    return u, it


# --- linear algebra


@form
def gemm(jnp, lax, alpha, beta, C, A, B):
    return alpha * A @ B + beta * C


@form
def atax(jnp, lax, A, x):
    return (A @ x) @ A


@form
def power_iteration(jnp, lax, A, v, steps):
    def step(_, s):
        w = A @ s[1]
        lam = jnp.sqrt((w * w).sum())
        return lam, w / lam

    return lax.fori_loop(0, steps, step, (jnp.array(0.0), v))


@form
def matmul_loops(jnp, lax, a, b):
    return a @ b


@form
def trisolv(jnp, lax, L, x, b):
    n = len(b)
    at = jnp.arange(n)

    def step(i, x):
        return x.at[i].set((b[i] - jnp.where(at < i, L[i] * x, 0.0).sum()) / L[i, i])

    return lax.fori_loop(0, n, step, x)


# --- recurrences


@form
def affine_recurrence(jnp, lax, x):
    def step(last, v):
        new = last * v + 0.5
        return new, new

    return jnp.concatenate([x[:1], lax.scan(step, x[0], x[1:])[1]])


@form
def tridiagonal(jnp, lax, a, b, c, d):
    def forward(s, row):
        a, b, c, d = row
        m = b - a * s[0]
        new = (c / m, (d - a * s[1]) / m)
        return new, new

    _, (cp, dp) = lax.scan(forward, (jnp.array(0.0), jnp.array(0.0)), (a, b, c, d))

    def back(last, row):
        new = row[1] - row[0] * last
        return new, new

    return lax.scan(back, jnp.array(0.0), (cp, dp), reverse=True)[1]


@form
def legendre(jnp, lax, x, degree):
    def step(k, s):
        before, now = s
        return now, ((2 * k - 1) * x * now - (k - 1) * before) / k

    return lax.fori_loop(2, degree + 1, step, (jnp.ones_like(x), x))[1]


@form
def running_extremes(jnp, lax, x):
    return lax.cummin(x), lax.cummax(x)


@form
def pendulum(jnp, lax, angle, speed, dt, steps):
    def step(_, s):
        angle, speed = s
        speed = speed - dt * jnp.sin(angle)
        return angle + dt * speed, speed

    angle, speed = lax.fori_loop(0, steps, step, (angle, speed))
    return angle, speed, 0.5 * speed**2 - jnp.cos(angle)


# --- dynamic programming, graphs


@form
def floyd_warshall(jnp, lax, path):
    return lax.fori_loop(0, len(path), lambda k, p: jnp.minimum(p, p[:, k, None] + p[None, k, :]), path)


@form
def edit_distance(jnp, lax, a, b):
    n = len(b)
    at = jnp.arange(n + 1)

    def row(before, letter):
        best = jnp.minimum(before[1:] + 1, before[:-1] + (letter != b))
        best = jnp.concatenate([before[:1] + 1, best])
        best = lax.cummin(best - at) + at
        return best, None

    return lax.scan(row, at, a)[0][n]


@form
def seam_energy(jnp, lax, e):
    def row(above, own):
        left = jnp.concatenate([jnp.full(1, jnp.inf), above[:-1]])
        right = jnp.concatenate([above[1:], jnp.full(1, jnp.inf)])
        new = own + jnp.minimum(jnp.minimum(left, above), right)
        return new, new

    last, rows = lax.scan(row, e[0], e[1:])
    return last.min(), jnp.concatenate([e[:1], rows])


@form
def pagerank(jnp, lax, adj, d, iters):
    n = len(adj)
    out = adj.sum(1)
    M = (adj / jnp.where(out == 0, 1, out)[:, None]).T
    r = lax.fori_loop(0, iters, lambda _, r: (1 - d) / n + d * (M @ r), jnp.ones(n) / n)
    return r / r.sum()


# --- images, signals


@form
def sobel(jnp, lax, img):
    c = [[img[a : img.shape[0] - 2 + a, b : img.shape[1] - 2 + b] for b in range(3)] for a in range(3)]
    gx = c[0][2] + 2 * c[1][2] + c[2][2] - c[0][0] - 2 * c[1][0] - c[2][0]
    gy = c[2][0] + 2 * c[2][1] + c[2][2] - c[0][0] - 2 * c[0][1] - c[0][2]
    return jnp.zeros_like(img).at[1:-1, 1:-1].set(jnp.sqrt(gx * gx + gy * gy))


@form
def conv2d_loops(jnp, lax, img, ker):
    size, (h, w) = ker.shape[0], img.shape
    h, w = h - size + 1, w - size + 1
    return sum(ker[a, b] * img[a : h + a, b : w + b] for a in range(size) for b in range(size))


@form
def integral_blur(jnp, lax, img, k):
    s = jnp.zeros((img.shape[0] + 1, img.shape[1] + 1)).at[1:, 1:].set(img.cumsum(0).cumsum(1))
    h, w = img.shape[0] - k + 1, img.shape[1] - k + 1
    return (s[k:, k:] - s[:h, k:] - s[k:, :w] + s[:h, :w]) / (k * k)


@form
def fir(jnp, lax, x, h):
    return jnp.convolve(x, h, mode="valid")


@form
def fft_filter(jnp, lax, x):
    return jnp.fft.irfft(jnp.fft.rfft(x).at[10:].set(0), len(x))


# --- statistics, particles, finance, physics


@form
def logistic_regression(jnp, lax, X, y, lr, iters):
    def step(_, w):
        p = 1 / (1 + jnp.exp(-X @ w))
        return w - lr * X.T @ (p - y) / len(y)

    return lax.fori_loop(0, iters, step, jnp.zeros(X.shape[1]))


@form
def pairwise_broadcast(jnp, lax, a, b):
    return jnp.sqrt(((a[:, None, :] - b[None, :, :]) ** 2).sum(-1))


@form
def pairwise(jnp, lax, a, b):
    return jnp.sqrt(((a[:, None, :] - b[None, :, :]) ** 2).sum(-1))


@form
def histogram(jnp, lax, a):
    return jnp.bincount(a, length=50)


@form
def softmax_rows(jnp, lax, x):
    e = jnp.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@form
def kalman_level(jnp, lax, y, q, r):
    def step(s, v):
        level, var = s
        var = var + q
        total = var + r
        gain = var / total
        e = v - level
        level = level + gain * e
        return (level, var * (1 - gain)), (level, 0.5 * (jnp.log(2 * jnp.pi * total) + e * e / total))

    _, (out, loss) = lax.scan(step, (jnp.array(0.0), jnp.array(1.0)), y)
    return out, loss.sum()


@form
def gravity_broadcast(jnp, lax, pos, mass):
    d = pos[None, :, :] - pos[:, None, :]
    r2 = (d * d).sum(axis=2) + 0.01
    return (mass[None, :, None] * d / (r2 * jnp.sqrt(r2))[:, :, None]).sum(axis=1)


@form
def nbody(jnp, lax, pos, vel, mass, dt, steps):
    def step(_, s):
        pos, vel = s
        d = pos[None, :, :] - pos[:, None, :]
        r2 = (d * d).sum(axis=2) + 0.01
        vel = vel + dt * (mass[None, :, None] * d / (r2**1.5)[:, :, None]).sum(axis=1)
        return pos + dt * vel, vel

    pos, vel = lax.fori_loop(0, steps, step, (pos, vel))
    return 0.5 * jnp.sum(mass * jnp.sum(vel**2, axis=1)), pos, vel


@form
def black_scholes(jnp, lax, price, strike, t, rate, vol):
    a = jnp.log(price / strike)
    b = t * -rate
    z = 1 / jnp.sqrt(t * vol * vol * 2)
    d1 = 0.5 + 0.5 * jnp.tanh((a - b + 0.25 * t * vol * vol * 2) * z)
    d2 = 0.5 + 0.5 * jnp.tanh((a - b - 0.25 * t * vol * vol * 2) * z)
    se = jnp.exp(b) * strike
    call = price * d1 - se * d2
    return call, call - price + se


@form
def asian_option(jnp, lax, S0, K, r, sigma, T, z):
    dt = T / z.shape[1]
    s = S0 * jnp.exp(jnp.cumsum((r - 0.5 * sigma**2) * dt + sigma * jnp.sqrt(dt) * z, axis=1))
    return jnp.exp(-r * T) * jnp.maximum(s.mean(axis=1) - K, 0.0).mean()


@form
def garch(jnp, lax, r, omega, alpha, beta):
    def step(var, x):
        loss = 0.5 * (jnp.log(2 * jnp.pi) + jnp.log(var) + x * x / var)
        return omega + alpha * x * x + beta * var, loss

    return lax.scan(step, (r * r).mean(), r)[1].sum()


@form
def lorenz_rk4(jnp, lax, y, h, n):
    def f(v):
        return jnp.stack([10 * (v[1] - v[0]), v[0] * (28 - v[2]) - v[1], v[0] * v[1] - 8 / 3 * v[2]])

    def step(y, _):
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y, y

    return lax.scan(step, y, None, length=n)[1]


@form
def gray_scott(jnp, lax, U, V, f, k, steps):
    def step(_, s):
        U, V = s
        u, v = U[1:-1, 1:-1], V[1:-1, 1:-1]
        Lu = U[:-2, 1:-1] + U[1:-1, :-2] - 4 * u + U[1:-1, 2:] + U[2:, 1:-1]
        Lv = V[:-2, 1:-1] + V[1:-1, :-2] - 4 * v + V[1:-1, 2:] + V[2:, 1:-1]
        uvv = u * v * v
        u = u + (0.16 * Lu - uvv + f * (1 - u))
        v = v + (0.08 * Lv + uvv - (f + k) * v)
        return U.at[1:-1, 1:-1].set(u), V.at[1:-1, 1:-1].set(v)

    return lax.fori_loop(0, steps, step, (U, V))


@form
def schrodinger(jnp, lax, psi, potential, dt, steps):
    n = len(psi)
    k = 2 * jnp.pi * jnp.fft.fftfreq(n, 10 / n)
    half = jnp.exp(-0.5j * dt * potential)
    kinetic = jnp.exp(-0.5j * dt * k * k)
    psi = lax.fori_loop(0, steps, lambda _, p: half * jnp.fft.ifft(kinetic * jnp.fft.fft(half * p)), psi)
    return jnp.abs(psi) ** 2
