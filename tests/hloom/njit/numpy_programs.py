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


# stencils
@prog(lambda n=40: (5, R(0).random(n), R(1).random(n)))
def jacobi_1d(T, A, B):
    for t in range(1, T):
        B[1:-1] = 0.33333 * (A[:-2] + A[1:-1] + A[2:])
        A[1:-1] = 0.33333 * (B[:-2] + B[1:-1] + B[2:])


@prog(lambda n=30: (5, R(0).random((n, n))))
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


@prog(lambda n=30: (5, R(0).random((n, n))))
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


@prog(lambda n=20: (3, R(0).random((n, n, n)), R(1).random((n, n, n))))
def heat_3d(T, A, B):
    for t in range(1, T):
        B[1:-1, 1:-1, 1:-1] = (
            0.125 * (A[2:, 1:-1, 1:-1] - 2.0 * A[1:-1, 1:-1, 1:-1] + A[:-2, 1:-1, 1:-1])
            + 0.125 * (A[1:-1, 2:, 1:-1] - 2.0 * A[1:-1, 1:-1, 1:-1] + A[1:-1, :-2, 1:-1])
            + 0.125 * (A[1:-1, 1:-1, 2:] - 2.0 * A[1:-1, 1:-1, 1:-1] + A[1:-1, 1:-1, 0:-2])
            + A[1:-1, 1:-1, 1:-1]
        )
        A[1:-1, 1:-1, 1:-1] = B[1:-1, 1:-1, 1:-1] * 0.5


@prog(lambda n=20: (4, R(0).random((n, n)), R(1).random((n, n)), R(2).random((n, n)), R(3).random(4)))
def fdtd_2d(TMAX, ex, ey, hz, _fict_):
    for t in range(TMAX):
        ey[0, :] = _fict_[t]
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])


# linear algebra by loops
def spd(n):
    a = R(0).random((n, n))
    return a @ a.T + n * np.eye(n)


@prog(lambda n=20: (spd(n),))
def cholesky(A):
    A[0, 0] = np.sqrt(A[0, 0])
    for i in range(1, A.shape[0]):
        for j in range(i):
            A[i, j] -= np.dot(A[i, :j], A[j, :j])
            A[i, j] /= A[j, j]
        A[i, i] -= np.dot(A[i, :i], A[i, :i])
        A[i, i] = np.sqrt(A[i, i])


@prog(lambda n=20: (spd(n),))
def lu(A):
    for i in range(A.shape[0]):
        for j in range(i):
            A[i, j] -= A[i, :j] @ A[:j, j]
            A[i, j] /= A[j, j]
        for j in range(i, A.shape[0]):
            A[i, j] -= A[i, :i] @ A[:i, j]


@prog(lambda n=20: (spd(n), R(1).random(n)))
def ludcmp(A, b):
    x = np.zeros_like(b)
    y = np.zeros_like(b)
    for i in range(A.shape[0]):
        for j in range(i):
            A[i, j] -= A[i, :j] @ A[:j, j]
            A[i, j] /= A[j, j]
        for j in range(i, A.shape[0]):
            A[i, j] -= A[i, :i] @ A[:i, j]
    for i in range(A.shape[0]):
        y[i] = b[i] - A[i, :i] @ y[:i]
    for i in range(A.shape[0] - 1, -1, -1):
        x[i] = (y[i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
    return x, y


@prog(lambda n=20: (R(0).random(n),))
def durbin(r):
    y = np.empty_like(r)
    alpha = -r[0]
    beta = 1.0
    y[0] = -r[0]
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y


@prog(lambda n=20: (np.tril(spd(n)), np.zeros(n), R(1).random(n)))
def trisolv(L, x, b):
    for i in range(x.shape[0]):
        x[i] = (b[i] - L[i, :i] @ x[:i]) / L[i, i]


@prog(lambda n=16: (R(0).random((n, n)), np.zeros((n, n)), np.zeros((n, n))))
def gramschmidt(A, Q, R_):
    for k in range(A.shape[1]):
        nrm = np.dot(A[:, k], A[:, k])
        R_[k, k] = np.sqrt(nrm)
        Q[:, k] = A[:, k] / R_[k, k]
        for j in range(k + 1, A.shape[1]):
            R_[k, j] = np.dot(Q[:, k], A[:, j])
            A[:, j] -= Q[:, k] * R_[k, j]


@prog(lambda n=16: (1.5, 1.2, R(0).random((n, n)), R(1).random((n, n))))
def syrk(alpha, beta, C, A):
    for i in range(A.shape[0]):
        C[i, : i + 1] *= beta
        for k in range(A.shape[1]):
            C[i, : i + 1] += alpha * A[i, k] * A[: i + 1, k]


@prog(lambda n=16: (1.5, R(0).random((n, n)), R(1).random((n, n))))
def trmm(alpha, A, B):
    for i in range(B.shape[0]):
        for j in range(B.shape[1]):
            B[i, j] += np.dot(A[i + 1 :, i], B[i + 1 :, j])
    B *= alpha


@prog(lambda n=16: (1.5, 1.2, R(0).random((n, n)), R(1).random((n, n)), R(2).random((n, n))))
def symm(alpha, beta, C, A, B):
    temp2 = np.empty((C.shape[1],), dtype=C.dtype)
    C *= beta
    for i in range(C.shape[0]):
        for j in range(C.shape[1]):
            C[:i, j] += alpha * B[i, j] * A[i, :i]
            temp2[j] = B[:i, j] @ A[i, :i]
        C[i, :] += alpha * B[i, :] * A[i, i] + alpha * temp2


@prog(lambda n=16: (1.1, 1.2, R(0).random((n, n)), R(1).random((n, n)), R(2).random((n, n))))
def gemm(alpha, beta, C, A, B):
    C[:] = alpha * A @ B + beta * C


@prog(lambda n=16: (R(0).random((n, n)), R(1).random(n)))
def atax(A, x):
    return (A @ x) @ A


@prog(lambda n=16: (R(0).random((n, n)),))
def covariance(data):
    mean = np.mean(data, axis=0)
    data -= mean
    M = data.shape[1]
    cov = np.zeros((M, M), dtype=data.dtype)
    for i in range(M):
        cov[i:M, i] = data[:, i] @ data[:, i:M] / (data.shape[0] - 1.0)
        cov[i, i:M] = cov[i:M, i]
    return cov


# dynamic programming, graphs
@prog(lambda n=16: (R(0).integers(1, 100, (n, n)).astype(np.int32),))
def floyd_warshall(path):
    for k in range(path.shape[0]):
        path[:] = np.minimum(path[:], np.add.outer(path[:, k], path[k, :]))


@prog(lambda n=20: (20, R(0).integers(0, 4, 20)))
def nussinov(N, seq):
    table = np.zeros((N, N), np.int32)
    for i in range(N - 1, -1, -1):
        for j in range(i + 1, N):
            if j - 1 >= 0:
                table[i, j] = max(table[i, j], table[i, j - 1])
            if i + 1 < N:
                table[i, j] = max(table[i, j], table[i + 1, j])
            if j - 1 >= 0 and i + 1 < N:
                if i < j - 1:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1] + (1 if seq[i] + seq[j] == 3 else 0))
                else:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1])
            for k in range(i + 1, j):
                table[i, j] = max(table[i, j], table[i, k] + table[k + 1, j])
    return table


@prog(lambda n=30: (R(0).integers(0, 4, n), R(1).integers(0, 4, n + 3)))
def edit_distance(a, b):
    m = len(a)
    n = len(b)
    d = np.zeros((m + 1, n + 1), dtype=np.int64)
    for i in range(m + 1):
        d[i, 0] = i
    for j in range(n + 1):
        d[0, j] = j
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            cost = 0 if a[i - 1] == b[j - 1] else 1
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + cost)
    return d[m, n]


@prog(lambda n=40: (R(0).random(n), R(1).integers(1, 20, n), 50))
def knapsack(v, w, W):
    best = np.zeros(W + 1)
    for i in range(len(v)):
        for c in range(W, w[i] - 1, -1):
            best[c] = max(best[c], best[c - w[i]] + v[i])
    return best[W]


# scalar loops
@prog(lambda n=100: (R(0).integers(0, 256, n).astype(np.uint8),))
def crc16(data):
    poly = 0x8408
    crc = 0xFFFF
    for b in data:
        cur = 0xFF & b
        for _ in range(8):
            if (crc & 0x0001) ^ (cur & 0x0001):
                crc = (crc >> 1) ^ poly
            else:
                crc >>= 1
            cur >>= 1
    crc = ~crc & 0xFFFF
    crc = (crc << 8) | ((crc >> 8) & 0xFF)
    return crc & 0xFFFF


@prog(lambda n=40: (R(0).random((n, n)),))
def go_fast(a):
    trace = 0.0
    for i in range(a.shape[0]):
        trace += np.tanh(a[i, i])
    return a + trace


@prog(lambda n=50: (R(0).random(n) * 9, R(1).random(n), 10))
def azimint_naive(radius, data, npt):
    rmax = radius.max()
    res = np.zeros(npt, dtype=np.float64)
    for i in range(npt):
        r1 = rmax * i / npt
        r2 = rmax * (i + 1) / npt
        mask_r12 = np.logical_and((r1 <= radius), (radius < r2))
        values_r12 = data[mask_r12]
        res[i] = values_r12.mean()
    return res


@prog(lambda n=40: (-2.0, 0.5, -1.2, 1.2, 40, 30, 50))
def mandelbrot(xmin, xmax, ymin, ymax, xn, yn, maxiter):
    N = np.zeros((yn, xn), dtype=np.int64)
    for i in range(yn):
        for j in range(xn):
            c = complex(xmin + (xmax - xmin) * j / xn, ymin + (ymax - ymin) * i / yn)
            z = 0j
            for k in range(maxiter):
                z = z * z + c
                if abs(z) > 2.0:
                    N[i, j] = k
                    break
    return N


@prog(lambda n=20: (R(0).random((n, 3)), R(1).random((n, 3)), R(2).random(n), 0.01, 5))
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


@prog(lambda n=40: (R(0).random((n,)), R(1).random(n) + 2, R(2).random(n), R(3).random(n)))
def tridiagonal(a, b, c, d):
    n = len(d)
    cp = np.empty(n)
    dp = np.empty(n)
    cp[0] = c[0] / b[0]
    dp[0] = d[0] / b[0]
    for i in range(1, n):
        m = b[i] - a[i] * cp[i - 1]
        cp[i] = c[i] / m
        dp[i] = (d[i] - a[i] * dp[i - 1]) / m
    x = np.empty(n)
    x[-1] = dp[-1]
    for i in range(n - 2, -1, -1):
        x[i] = dp[i] - cp[i] * x[i + 1]
    return x


@prog(lambda n=20: (0.25, R(0).random((n, n + 2))))
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


@prog(lambda n=50: (R(0).random(n),))
def bubble(a):
    n = len(a)
    for i in range(n):
        for j in range(n - 1 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]


@prog(lambda n=30: (R(0).random((n, n)),))
def clip_mask(x):
    x[x < 0.2] = 0
    y = np.where(x > 0.5, x, -x)
    x[:, 0] = 7
    return y.sum(axis=1)


@prog(lambda n=20: (R(0).random(n),))
def views(x):
    v = x[2:8]
    v[1:] *= 2
    w = x.reshape(4, 5).T
    w[0, :] = -1
    return v.sum(), w


@prog(lambda n=1000: (R(0).integers(0, 50, 1000),))
def histogram(a):
    h = np.zeros(50, dtype=np.int64)
    for v in a:
        h[v] += 1
    return h


@prog(lambda n=40: (R(0).random(n), R(1).random(n)))
def early(x, y):
    for i, (p, q) in enumerate(zip(x, y)):
        if p > 0.9 and q < 0.9:
            return i, p
    return -1, 0.0


@prog(lambda n=30: (30,))
def sieve(n):
    is_p = np.ones(n + 1, dtype=np.bool_)
    is_p[:2] = False
    i = 2
    while i * i <= n:
        if is_p[i]:
            is_p[i * i :: i] = False
        i += 1
    return np.nonzero(is_p)[0]


@prog(lambda n=30: (np.array([0, 2, 3, 6, 8]), np.array([0, 2, 1, 0, 1, 3, 2, 3]), R(0).random(8), R(1).random(4)))
def spmv(A_row, A_col, A_val, x):
    y = np.empty(A_row.size - 1, A_val.dtype)
    for i in range(A_row.size - 1):
        cols = A_col[A_row[i] : A_row[i + 1]]
        vals = A_val[A_row[i] : A_row[i + 1]]
        y[i] = vals @ x[cols]
    return y


@prog(lambda n=30: (100.0, 105.0, 0.05, 0.2, 1.0, R(0).normal(size=(50, 20))))
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


@prog(lambda n=10: (R(0).random((n, n)), R(1).random(n)))
def linalg_mix(A, b):
    A = A + A.T + 10 * np.eye(len(b))
    w, v = np.linalg.eigh(A)
    x = np.linalg.solve(A, b)
    for i in range(3):
        x = x - 0.1 * (A @ x - b)
    return w, x, np.linalg.norm(x)


@prog(lambda n=10: (R(0).random(64),))
def fft_filter(x):
    f = np.fft.rfft(x)
    f[10:] = 0
    return np.fft.irfft(f, len(x))


@prog(lambda n=30: (spd(n), R(1).random(n), 100))
def power_iteration(A, v, steps):
    lam = 0.0
    for k in range(steps):
        w = A @ v
        lam = np.sqrt((w * w).sum())
        v = w / lam
    return lam, v


@prog(lambda n=20: (spd(n), R(1).random(n), 1e-10))
def conjugate_gradient(A, b, tol):
    x = np.zeros_like(b)
    r = b - A @ x
    p = r.copy()
    rs = r @ r
    it = 0
    while np.sqrt(rs) > tol and it < 200:
        Ap = A @ p
        alpha = rs / (p @ Ap)
        x += alpha * p
        r -= alpha * Ap
        new = r @ r
        p = r + (new / rs) * p
        rs = new
        it += 1
    return x, it


@prog(lambda n=20: (spd(n), R(1).random(n)))
def newton_solve(A, b):
    x = b * 0
    for i in range(100):
        x = x + np.linalg.solve(A, b - A @ x) * 0.5
    return x


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


@prog(lambda n=20: (R(1).random((n, n)), R(2).random((3, 3))))
def conv2d_loops(img, ker):
    H, W = img.shape
    K = ker.shape[0]
    out = np.zeros((H - K + 1, W - K + 1))
    for i in range(H - K + 1):
        for j in range(W - K + 1):
            out[i, j] = np.sum(img[i : i + K, j : j + K] * ker)
    return out


@prog(lambda n=20: ({"a": R(1).random(n), "b": R(2).random(n)}, [1.0, 2.0]))
def structures(d, w):
    d["a"] *= w[0]
    return {"s": d["a"].sum() + w[1], "t": (d["b"], 3)}
