"""NumPy programs as people write them, with arguments."""

from __future__ import annotations

import numpy as np

PROGRAMS = {}  # name: (function, what makes its arguments)


def prog(make):
    def register(function):
        PROGRAMS[function.__name__] = (function, make)
        return function

    return register


R = np.random.default_rng


@prog(lambda n=20: (R(0).random(n),))
def views(x):
    v = x[2:8]
    v[1:] *= 2
    w = x.reshape(4, 5).T
    w[0, :] = -1
    return v.sum(), w


@prog(lambda n=40: (R(0).random(n), R(1).random(n)))
def early(x, y):
    for i, (p, q) in enumerate(zip(x, y)):
        if p > 0.9 and q < 0.9:
            return i, p
    return -1, 0.0


@prog(lambda n=20: (R(1).random(n) - 0.5, 3))
def branches(x, mode):
    if mode == 1:
        y = x * 2
    elif mode == 2:
        y = x + 1
    else:
        y = np.abs(x)
    s = x.sum()
    if s > 0:
        z = y + 1
        t = 1
    else:
        z = y - 1
        t = 2.5
    return z, t


@prog(lambda n=20: (R(1).random(n) - 0.5,))
def ret_branch(x):
    m = x.max()
    if m > 10:
        return x * 0
    if x.min() < -10:
        return x * 2
    w = 0.0
    while w < 5:
        w += m
    return x + w


def _helper(a, b):
    if a > b:
        return a - b
    return b - a


@prog(lambda n=20: (R(1).random(n), R(2).random(n)))
def calls_helper(x, y):
    s = 0.0
    for i in range(len(x)):
        s += _helper(x[i], y[i])
    return s, _helper(s, 1.0)


@prog(lambda n=20: (R(1).random((n, n)),))
def out_kw(x):
    y = np.empty_like(x)
    np.multiply(x, 2, out=y)
    np.add(y, 1, y)
    a = y[::2]
    a += 1
    np.add.at(y, (np.array([0, 0, 1]), np.array([1, 1, 2])), 5.0)
    b = y.T.copy()
    b[0] = 0
    return y, b, y.sum(axis=0), y.mean(), y.astype(np.float32)


@prog(lambda n=20: (R(1).integers(-5, 5, n).astype(np.int32), R(2).random(n).astype(np.float32)))
def dtypes(i, f):
    a = i * f
    b = i / 2
    c = i // 2
    d = f * 2.5
    e = i + 1
    s = i.sum()
    m = i.mean()
    q = np.sqrt(i * i)
    g = f.sum()
    k = np.zeros(3, dtype=np.int16)
    k[0] = i[0]
    k += 1
    return a, b, c, d, e, s, m, q, g, k, (i > 0).sum(), i % 3, i**2, np.float32(2) * f, i.max()


@prog(lambda n=20: ({"a": R(1).random(n), "b": R(2).random(n)}, [1.0, 2.0]))
def structures(d, w):
    d["a"] *= w[0]
    return {"s": d["a"].sum() + w[1], "t": (d["b"], 3)}


@prog(lambda: (27,))
def collatz(n):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


@prog(lambda: (2.0, 1e-12))
def newton_sqrt(a, tol):
    x = a
    for it in range(100):
        nx = 0.5 * (x + a / x)
        if abs(nx - x) < tol:
            return nx, it
        x = nx
    return x, -1


@prog(lambda: (np.arange(24.0).reshape(2, 3, 4),))
def transposes(x):
    a = x.transpose(2, 0, 1)
    b = np.swapaxes(x, 0, 1)
    c = np.concatenate([x[0], x[1]], axis=0)
    d = np.stack((x[0, 0], x[1, 2]))
    e = np.vstack([x[0], x[1]])
    f = x[::-1, :, ::2]
    return (
        a.copy(),
        b + 1,
        c,
        d,
        e,
        f,
        np.tile(x[0, 0], 3),
        np.repeat(x[0, 0], 2),
        np.rot90(x[0]),
        np.diff(x, axis=2),
        np.cross(x[0, :, :3], x[1, :, :3]),
    )


@prog(lambda: (R(0).random((4, 5)),))
def reductions(x):
    return (
        x.min(axis=1),
        x.argmax(axis=0),
        np.any(x > 0.9),
        np.all(x > 0, axis=0),
        np.median(x),
        np.percentile(x, 30),
        x.std(axis=0),
        x.var(ddof=1),
        np.cumsum(x, axis=1),
        np.prod(x),
        np.linalg.norm(x, axis=1),
        np.trace(x[:, :4]),
        np.ptp(x, axis=0),
        np.average(x, weights=x),
        np.max(x) - np.min(x),
    )


@prog(lambda: (R(0).random(30),))
def selections(x):
    i = np.argsort(x)
    y = np.take(x, i)
    z = np.clip(x, 0.2, 0.8)
    w = np.where(x > 0.5, 1, 0)
    s = np.searchsorted(y, 0.5)
    h, e = np.histogram(x, bins=5, range=(0.0, 1.0))
    return (
        i,
        y,
        z,
        w,
        s,
        h,
        e,
        np.interp(0.3, np.linspace(0, 1, 30), y),
        np.digitize(x, np.array([0.2, 0.5])),
        np.count_nonzero(x > 0.3),
        np.floor(x * 10),
        np.sign(x - 0.5),
        np.mod(x, 0.3),
        np.isnan(x).sum(),
        np.maximum(x, 0.5),
        np.hypot(x, 1),
        np.round(x, 2),
    )


@prog(lambda: (R(0).integers(0, 1000, 50),))
def integers(a):
    return (
        a % 7,
        a // 3,
        a & 15,
        a | 8,
        a ^ 5,
        a << 2,
        a >> 1,
        -a,
        abs(a - 500),
        a**2,
        np.gcd(a, 12),
        a.max() - a.min(),
        (a * a).sum(),
        a / 2,
        ~a,
    )


@prog(lambda: (R(0).random((8, 2)), np.array([0.5, 0.5])))
def point_in_polygon(poly, p):
    n = len(poly)
    inside = False
    j = n - 1
    for i in range(n):
        if ((poly[i, 1] > p[1]) != (poly[j, 1] > p[1])) and p[0] < (poly[j, 0] - poly[i, 0]) * (p[1] - poly[i, 1]) / (
            poly[j, 1] - poly[i, 1]
        ) + poly[i, 0]:
            inside = not inside
        j = i
    return inside
