"""Physics."""

from __future__ import annotations

import numpy as np

from hloom.benchmarks.numpy_programs.table import R, programs_of

program = programs_of("physics")


@program(lambda n: (R(0).choice(np.array([-1, 1]), (16, 16)), R(1).random((n, 3)), 0.4), 200, 300, 30_000, 1_000_000)
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


@program(
    lambda n: (np.array([1.0, 0.5, 0.2]), 5 / n, n),
    50,
    300,
    20_000,
    300_000,
    rtol=1e-9,
    conditioning="chaotic: errors grow by e^5",
)
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


@program(lambda n: (R(0).random((n, n)), R(1).random((n, n)), 0.05, 0.02, 10), 20, 32, 320, 1000)
def gray_scott(U, V, f, k, steps):
    for _ in range(steps):
        u = U[1:-1, 1:-1]
        v = V[1:-1, 1:-1]
        Lu = U[:-2, 1:-1] + U[1:-1, :-2] - 4 * u + U[1:-1, 2:] + U[2:, 1:-1]
        Lv = V[:-2, 1:-1] + V[1:-1, :-2] - 4 * v + V[1:-1, 2:] + V[2:, 1:-1]
        uvv = u * v * v
        u += 0.16 * Lu - uvv + f * (1 - u)
        v += 0.08 * Lv + uvv - (f + k) * v


@program(
    lambda n: (np.exp(-(np.linspace(-5, 5, n) ** 2)) + 0j, 0.5 * np.linspace(-5, 5, n) ** 2, 0.01, 20),
    32,
    1024,
    16_384,
    262_144,
    rtol=1e-11,
    conditioning="20 transforms of n points",
)
def schrodinger(psi, potential, dt, steps):
    n = len(psi)
    k = 2 * np.pi * np.fft.fftfreq(n, 10 / n)
    half = np.exp(-0.5j * dt * potential)
    kinetic = np.exp(-0.5j * dt * k * k)
    for _ in range(steps):
        psi = half * np.fft.ifft(kinetic * np.fft.fft(half * psi))
    return np.abs(psi) ** 2


@program(lambda n: (1 + 0.1 * R(0).random(n), np.zeros(n), 0.1, 20), 30, 1000, 50_000, 500_000)
def shallow_water(h, u, c, steps):
    for _ in range(steps):
        flux = h * u
        h[1:-1] -= c * (flux[2:] - flux[:-2]) / 2
        speed = 0.5 * u * u + 9.81 * h
        u[1:-1] -= c * 0.01 * (speed[2:] - speed[:-2]) / 2
        u[0] = 0.0
        u[-1] = 0.0


@program(lambda n: (1 + 0.01 * R(0).random((9, n, n)), 0.6, 5), 8, 12, 100, 300)
def lattice_boltzmann(f, tau, steps):
    cx = np.array([0, 1, 0, -1, 0, 1, -1, -1, 1])
    cy = np.array([0, 0, 1, 0, -1, 1, 1, -1, -1])
    w = np.array([4 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 36, 1 / 36, 1 / 36, 1 / 36])
    for _ in range(steps):
        rho = f.sum(axis=0)
        ux = (f[1] - f[3] + f[5] - f[6] - f[7] + f[8]) / rho
        uy = (f[2] - f[4] + f[5] + f[6] - f[7] - f[8]) / rho
        square = 1.5 * (ux * ux + uy * uy)
        for k in range(9):
            cu = 3 * (cx[k] * ux + cy[k] * uy)
            f[k] += (w[k] * rho * (1 + cu + 0.5 * cu * cu - square) - f[k]) / tau
        for k in range(9):
            f[k] = np.roll(np.roll(f[k], cx[k], 0), cy[k], 1)
    return rho


@program(lambda n: (n, n, np.array([0.1, -0.2, 3.0]), 1.0, np.array([0.577, 0.577, -0.577])), 12, 32, 320, 1500)
def ray_sphere(w, h, center, radius, light):
    img = np.zeros((h, w))
    for i in range(h):
        for j in range(w):
            x = 2 * j / w - 1
            y = 2 * i / h - 1
            norm = np.sqrt(x * x + y * y + 1)
            dx, dy, dz = x / norm, y / norm, 1 / norm
            b = dx * center[0] + dy * center[1] + dz * center[2]
            c = center[0] ** 2 + center[1] ** 2 + center[2] ** 2 - radius**2
            disc = b * b - c
            if disc > 0:
                t = b - np.sqrt(disc)
                nx = (t * dx - center[0]) / radius
                ny = (t * dy - center[1]) / radius
                nz = (t * dz - center[2]) / radius
                img[i, j] = max(0.0, nx * light[0] + ny * light[1] + nz * light[2])
    return img


@program(
    lambda n: (np.array([1.0, 0.5, 0.0, 0.0]), 2 / n, n),
    50,
    300,
    20_000,
    300_000,
    rtol=1e-10,
    conditioning="a chaotic motion of 2 s",
)
def double_pendulum(s, dt, steps):
    a, b, va, vb = s
    for _ in range(steps):
        d = a - b
        m = 2 - np.cos(d) ** 2
        ga = (-np.sin(d) * (vb**2 + va**2 * np.cos(d)) - 9.81 * (2 * np.sin(a) - np.sin(b) * np.cos(d))) / m
        gb = (np.sin(d) * (2 * va**2 + vb**2 * np.cos(d)) + 2 * 9.81 * (np.sin(a) * np.cos(d) - np.sin(b))) / m
        va += dt * ga
        vb += dt * gb
        a += dt * va
        b += dt * vb
    return np.array([a, b, va, vb])


@program(lambda n: (np.zeros(n), np.zeros(n - 1), 0.5, 20), 40, 1000, 50_000, 500_000)
def maxwell_1d(e, h, c, steps):
    n = len(e)
    for t in range(steps):
        for i in range(n - 1):
            h[i] += c * (e[i + 1] - e[i])
        for i in range(1, n - 1):
            e[i] += c * (h[i] - h[i - 1])
        e[n // 2] += np.exp(-((t - 10) ** 2) / 20.0)


@program(lambda n: (R(0).random((n, n)),), 16, 32, 256, 1024)
def poisson_fft(rho):
    n = rho.shape[0]
    k = 2 * np.pi * np.fft.fftfreq(n)
    k2 = k[:, None] ** 2 + k[None, :] ** 2
    k2[0, 0] = 1.0
    phi = np.fft.fft2(rho) / k2
    phi[0, 0] = 0.0
    return np.fft.ifft2(phi).real
