"""Stencils."""

from __future__ import annotations

import numpy as np

from hloom.benchmarks.numpy_programs.table import R, programs_of

program = programs_of("stencils")


@program(lambda n: (10, R(0).random(n), R(1).random(n)), 40, 1000, 100_000, 1_000_000)
def jacobi_1d(T, A, B):
    for t in range(1, T):
        B[1:-1] = 0.33333 * (A[:-2] + A[1:-1] + A[2:])
        A[1:-1] = 0.33333 * (B[:-2] + B[1:-1] + B[2:])


@program(lambda n: (5, R(0).random((n, n))), 30, 32, 320, 1000)
def seidel_2d(T, A):
    N = A.shape[0]
    for t in range(T):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = (
                    A[i - 1, j - 1]
                    + A[i - 1, j]
                    + A[i - 1, j + 1]
                    + A[i, j - 1]
                    + A[i, j]
                    + A[i, j + 1]
                    + A[i + 1, j - 1]
                    + A[i + 1, j]
                    + A[i + 1, j + 1]
                ) / 9.0


@program(lambda n: (5, R(0).random((n, n))), 30, 32, 320, 1000)
def seidel_slices(T, A):
    N = A.shape[0]
    for t in range(T - 1):
        for i in range(1, N - 1):
            A[i, 1:-1] += (
                A[i - 1, :-2] + A[i - 1, 1:-1] + A[i - 1, 2:] + A[i, 2:] + A[i + 1, :-2] + A[i + 1, 1:-1] + A[i + 1, 2:]
            )
            for j in range(1, N - 1):
                A[i, j] += A[i, j - 1]
                A[i, j] /= 9.0


@program(lambda n: (5, R(0).random((n, n, n)), R(1).random((n, n, n))), 12, 10, 46, 100)
def heat_3d(T, A, B):
    for t in range(1, T):
        B[1:-1, 1:-1, 1:-1] = (
            0.125 * (A[2:, 1:-1, 1:-1] - 2.0 * A[1:-1, 1:-1, 1:-1] + A[:-2, 1:-1, 1:-1])
            + 0.125 * (A[1:-1, 2:, 1:-1] - 2.0 * A[1:-1, 1:-1, 1:-1] + A[1:-1, :-2, 1:-1])
            + 0.125 * (A[1:-1, 1:-1, 2:] - 2.0 * A[1:-1, 1:-1, 1:-1] + A[1:-1, 1:-1, 0:-2])
            + A[1:-1, 1:-1, 1:-1]
        )
        A[1:-1, 1:-1, 1:-1] = B[1:-1, 1:-1, 1:-1] * 0.5


@program(
    lambda n: (10, R(0).random((n, n)), R(1).random((n, n)), R(2).random((n, n)), R(3).random(10)), 20, 32, 320, 1000
)
def fdtd_2d(TMAX, ex, ey, hz, _fict_):
    for t in range(TMAX):
        ey[0, :] = _fict_[t]
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])


@program(lambda n: (R(0).random((n, n)), 0.1, 10), 24, 32, 320, 1000)
def heat_periodic(u, a, n):
    for _ in range(n):
        u = u + a * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u)
    return u


@program(lambda n: (np.sin(np.linspace(0, 6, n)), 0.5, 10), 100, 1000, 100_000, 1_000_000)
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


@program(lambda n: (R(0).random((n, n)), 1.5, 1e-4), 16, 32, 100, 320)
def sor(u, w, tol):
    n = u.shape[0]
    it = 0
    while True:
        worst = 0.0
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                r = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]) - u[i, j]
                u[i, j] += w * r
                worst = max(worst, abs(r))
        it += 1
        if worst < tol or it > 500:
            break
    return it


@program(lambda n: (R(0).random((n, n)) > 0.5, 2), 16, 32, 320, 1000)
def life(g, n):
    h, w = g.shape
    for _ in range(n):
        new = np.zeros_like(g)
        for i in range(h):
            for j in range(w):
                c = 0
                for a in range(-1, 2):
                    for b in range(-1, 2):
                        if (a != 0 or b != 0) and g[(i + a) % h, (j + b) % w]:
                            c += 1
                new[i, j] = c == 3 or (g[i, j] and c == 2)
        g = new
    return g


@program(lambda n: (R(0).random((n, n)), 1e-3, 50), 20, 32, 320, 1000)
def laplace_until(u, tol, most):
    change = 1.0
    it = 0
    while change > tol and it < most:
        new = u.copy()
        new[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        change = np.max(np.abs(new - u))
        u = new
        it += 1
    return u, it


@program(lambda n: (R(0).random((n, n)), 10), 20, 32, 320, 1000)
def jacobi_2d_loops(u, steps):
    n, m = u.shape
    v = u.copy()
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                v[i, j] = 0.2 * (u[i, j] + u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
        u, v = v, u
    return u


@program(lambda n: (R(0).random((n, n)), R(1).random((n, n)), 0.3, 10), 20, 32, 320, 1000)
def wave_2d(now, before, c, steps):
    for _ in range(steps):
        after = np.zeros_like(now)
        lap = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:] - 4 * now[1:-1, 1:-1]
        after[1:-1, 1:-1] = 2 * now[1:-1, 1:-1] - before[1:-1, 1:-1] + c * c * lap
        before = now
        now = after
    return now


@program(
    lambda n: (R(0).random((n, n)), R(1).random((n, n)) - 0.5, R(2).random((n, n)) - 0.5, 0.2, 5), 16, 32, 320, 1000
)
def upwind_advection(q, u, v, c, steps):
    n, m = q.shape
    for _ in range(steps):
        old = q.copy()
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                if u[i, j] > 0:
                    dx = old[i, j] - old[i - 1, j]
                else:
                    dx = old[i + 1, j] - old[i, j]
                if v[i, j] > 0:
                    dy = old[i, j] - old[i, j - 1]
                else:
                    dy = old[i, j + 1] - old[i, j]
                q[i, j] = old[i, j] - c * (u[i, j] * dx + v[i, j] * dy)
