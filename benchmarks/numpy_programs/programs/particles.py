"""Particles."""

from __future__ import annotations

import numpy as np

from hloom.benchmarks.numpy_programs.table import R, programs_of

program = programs_of("particles")


@program(lambda n: (R(0).random((n, 3)), R(1).random((n, 3)), R(2).random(n), 0.01, 5), 10, 20, 100, 700)
def nbody(pos, vel, mass, dt, steps):
    n = pos.shape[0]
    for s in range(steps):
        acc = np.zeros_like(pos)
        for i in range(n):
            for j in range(n):
                if i != j:
                    d = pos[j] - pos[i]
                    r2 = d[0] ** 2 + d[1] ** 2 + d[2] ** 2 + 0.01
                    acc[i] += mass[j] * d / r2**1.5
        vel += dt * acc
        pos += dt * vel
    return 0.5 * np.sum(mass * np.sum(vel**2, axis=1))


@program(
    lambda n: (R(0).random((n, 3)) * n ** (1 / 3) * 1.2, 0.001, 4),
    15,
    30,
    150,
    800,
    rtol=1e-10,
    conditioning="forces grow as r^-13",
)
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


@program(lambda n: (R(0).random((n + 3, 3)), R(1).random((n, 3))), 9, 32, 320, 3000)
def hausdorff(a, b):
    worst = 0.0
    for p in a:
        best = np.inf
        for q in b:
            best = min(best, np.sqrt(((p - q) ** 2).sum()))
        worst = max(worst, best)
    return worst


@program(lambda n: (R(0).random((n, 2)), R(1).random((n, 2)) - 0.5, 0.01, 20), 20, 300, 10_000, 200_000)
def bouncing(pos, vel, dt, steps):
    for _ in range(steps):
        pos += vel * dt
        outside = (pos < 0) | (pos > 1)
        vel[outside] *= -1
        np.clip(pos, 0, 1, out=pos)


@program(lambda n: (R(0).random((n, 3)), R(1).random(n)), 12, 30, 200, 1000)
def gravity_broadcast(pos, mass):
    d = pos[None, :, :] - pos[:, None, :]
    r2 = (d * d).sum(axis=2) + 0.01
    return (mass[None, :, None] * d / (r2 * np.sqrt(r2))[:, :, None]).sum(axis=1)


@program(lambda n: (np.arange(n) * 1.0 + 0.1 * R(0).random(n), np.zeros(n), 0.01, 20), 20, 1000, 50_000, 500_000)
def spring_chain(x, v, dt, steps):
    n = len(x)
    a = np.zeros(n)
    for _ in range(steps):
        for i in range(1, n - 1):
            a[i] = (x[i + 1] - x[i] - 1.0) - (x[i] - x[i - 1] - 1.0)
        v += dt * a
        x += dt * v


@program(lambda n: (R(0).random(n) * 63, R(1).random(n)), 50, 1000, 100_000, 1_000_000)
def cloud_in_cell(x, charge):
    grid = np.zeros(65)
    for i in range(len(x)):
        c = int(x[i])
        f = x[i] - c
        grid[c] += charge[i] * (1 - f)
        grid[c + 1] += charge[i] * f
    return grid


@program(lambda n: (R(0).random((n, 3)), 20), 16, 40, 300, 2000)
def radial_distribution(pos, bins):
    hist = np.zeros(bins, np.int64)
    n = len(pos)
    for i in range(n):
        for j in range(i + 1, n):
            dx = pos[i, 0] - pos[j, 0]
            dy = pos[i, 1] - pos[j, 1]
            dz = pos[i, 2] - pos[j, 2]
            r = np.sqrt(dx * dx + dy * dy + dz * dz)
            k = int(r * bins / 2)
            if k < bins:
                hist[k] += 1
    return hist


@program(lambda n: (R(0).random((n, 2)), R(1).random((n, 2)) - 0.5, 0.3), 10, 30, 150, 700)
def flock(pos, vel, radius):
    out = np.empty_like(vel)
    for i in range(len(pos)):
        d = pos - pos[i]
        near = (d * d).sum(axis=1) < radius * radius
        out[i] = 0.9 * vel[i] + 0.1 * vel[near].mean(axis=0)
    return out
