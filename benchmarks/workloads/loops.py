"""Loops and simulations: scans of small bodies, while loops, stencils, clustering, random numbers."""

from __future__ import annotations

import numpy as np

from hloom.benchmarks.workloads.table import Family, M, both, normal, uniform

FAMILY = Family("loops")
workload = FAMILY.workload
LOOP = {"bound_by": "overhead", "needs": ("lax",)}


@workload(
    "scan_10000", "scan of 10,000 steps of a recurrence of 4 numbers", normal((10_000, 4)), tolerance=1e-5, **LOOP
)
def _scan(lib, x):
    def step(state, row):
        state = 0.9 * state + 0.1 * lib.np.tanh(row + state)
        return state, lib.np.sum(state)

    return lib.lax.scan(step, lib.np.zeros(4, x.dtype), x)


@workload(
    "scan_product",
    "scan of 2,000 steps h = tanh(h @ w + x), 32 numbers",
    normal((2000, 32), (32, 32), scale=0.2),
    tolerance=1e-5,
    **LOOP,
)
def _scan_product(lib, x, w):
    def step(h, row):
        return lib.np.tanh(h @ w + row), None

    return lib.lax.scan(step, lib.np.zeros(w.shape[0], x.dtype), x)[0]


@workload(
    "while_newton",
    "Newton's method for 1M cube roots until all are found",
    uniform((0.5, 100.0), count=M),
    bound_by="compute",
    needs=("lax",),
    tolerance=1e-5,
)
def _newton(lib, a):
    np = lib.np

    def wrong(state):
        return np.any(np.abs(state[0] - state[1]) > 1e-4 * state[0])

    def better(state):
        x = state[0]
        return x - (x * x * x - a) / (3.0 * x * x), x

    return lib.lax.while_loop(wrong, better, (np.ones_like(a) * 3.0, np.zeros_like(a)))[0]


@workload("while_scalar", "10,000 steps of a scalar recurrence", normal((1,)), tolerance=1e-4, **LOOP)
def _while_scalar(lib, x):
    return lib.lax.fori_loop(0, 10_000, lambda k, v: v * 0.999 + 0.001 * k, x[0])


def _plane(random, divide=1):
    n = max(8, 512 // divide)
    x, y = np.meshgrid(np.linspace(-2.0, 0.5, n), np.linspace(-1.2, 1.2, n))
    return [x.astype(np.float32), y.astype(np.float32)]


@workload(
    "mandelbrot",
    "z^2 + c until 50 steps or all have left, 512 x 512",
    _plane,
    bound_by="compute",
    needs=("lax",),
    tolerance=1e-2,
)
def _mandelbrot(lib, x, y):
    """Counts of steps; near the border a rounding may change a count."""
    np = lib.np

    def going(state):
        return (state[0] < 50) & np.any(state[1] * state[1] + state[2] * state[2] <= 4.0)

    def step(state):
        k, u, v, count = state
        inside = u * u + v * v <= 4.0
        u, v = np.where(inside, u * u - v * v + x, u), np.where(inside, 2.0 * u * v + y, v)
        return k + 1, u, v, count + inside

    return lib.lax.while_loop(going, step, (0, x, y, np.zeros(x.shape, np.int32)))[3]


@workload(
    "heat",
    "100 steps of the heat equation, 512 x 512",
    normal((512, 512)),
    bound_by="compute",
    needs=("lax",),
    tolerance=1e-5,
)
def _heat(lib, x):
    np = lib.np

    def step(_, u):
        p = np.pad(u, 1)
        return u + 0.2 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4.0 * u)

    return lib.lax.fori_loop(0, 100, step, x)


@workload(
    "n_body",
    "10 steps of 1024 bodies, all pairs",
    normal((1024, 3), (1024, 3)),
    bound_by="compute",
    needs=("lax",),
    tolerance=2e-3,
)
def _bodies(lib, place, speed):
    np = lib.np

    def step(_, state):
        place, speed = state
        apart = place[None] - place[:, None]
        squared = np.sum(apart * apart, axis=-1) + 0.01
        speed = speed + 1e-5 * np.sum(apart / (squared * np.sqrt(squared))[..., None], axis=1)
        return place + 0.01 * speed, speed

    return lib.lax.fori_loop(0, 10, step, (place, speed))


@workload(
    "k_means",
    "a step of k-means, 65,536 points of 16, 64 clusters",
    both(normal((65536, 16)), normal((64, 16))),
    bound_by="compute",
    flops=2.0 * 2 * 65536 * 16 * 64,
    tolerance=1e-2,
)
def _k_means(lib, points, centres):
    """A point near the middle of two centres may go to the other."""
    np = lib.np
    distance = np.sum(centres * centres, axis=1) - 2.0 * (points @ centres.T)
    member = np.astype(np.argmin(distance, axis=1)[:, None] == np.arange(centres.shape[0]), "float32")
    return (member.T @ points) / np.maximum(np.sum(member, axis=0), 1.0)[:, None]


def _seed(random, divide=1):
    return [np.array([7], np.uint32), np.zeros(max(64, 4 * M // divide), np.float32)]


@workload("monte_carlo", "pi from 4M pairs of random numbers", _seed, bound_by="compute", needs=("random",))
def _monte_carlo(lib, seed, like):
    x, y = lib.random.uniform(lib.random.key(seed[0]), (2, like.shape[0]), np.float32)
    return 4.0 * lib.np.mean((x * x + y * y < 1.0).astype(np.float32))


@workload("random_normal", "4M normal random numbers", _seed, bound_by="compute", needs=("random",), tolerance=1e-5)
def _random_normal(lib, seed, like):
    return lib.random.normal(lib.random.key(seed[0]), like.shape, np.float32)


@workload(
    "polynomial_roots",
    "40 steps of bisection of 256K polynomials",
    uniform((0.1, 1.0), (0.1, 1.0), count=M // 4),
    bound_by="compute",
    needs=("lax",),
    tolerance=1e-4,
)
def _bisection(lib, a, b):
    np = lib.np

    def step(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        above = middle**3 + a * middle - b > 0
        return np.where(above, low, middle), np.where(above, middle, high)

    return lib.lax.fori_loop(0, 40, step, (np.zeros_like(a), np.ones_like(a) * 2.0))[0]
