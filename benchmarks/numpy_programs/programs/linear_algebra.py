"""Linear algebra."""

from __future__ import annotations

import numpy as np

from hloom.benchmarks.numpy_programs.table import R, programs_of

program = programs_of("linear algebra")


def spd(n):
    a = R(0).random((n, n))
    return a @ a.T + n * np.eye(n)


@program(lambda n: (spd(n),), 20, 32, 200, 600)
def cholesky(A):
    A[0, 0] = np.sqrt(A[0, 0])
    for i in range(1, A.shape[0]):
        for j in range(i):
            A[i, j] -= np.dot(A[i, :j], A[j, :j])
            A[i, j] /= A[j, j]
        A[i, i] -= np.dot(A[i, :i], A[i, :i])
        A[i, i] = np.sqrt(A[i, i])


@program(lambda n: (spd(n),), 20, 32, 150, 400)
def lu(A):
    for i in range(A.shape[0]):
        for j in range(i):
            A[i, j] -= A[i, :j] @ A[:j, j]
            A[i, j] /= A[j, j]
        for j in range(i, A.shape[0]):
            A[i, j] -= A[i, :i] @ A[:i, j]


@program(lambda n: (spd(n), R(1).random(n)), 20, 32, 150, 400)
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


@program(lambda n: (R(0).random(n) / n,), 20, 300, 2000, 12_000)
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


@program(lambda n: (np.tril(spd(n)), np.zeros(n), R(1).random(n)), 20, 32, 320, 2000)
def trisolv(L, x, b):
    for i in range(x.shape[0]):
        x[i] = (b[i] - L[i, :i] @ x[:i]) / L[i, i]


@program(lambda n: (R(0).random((n, n)) + np.eye(n) * n, np.zeros((n, n)), np.zeros((n, n))), 16, 32, 150, 400)
def gramschmidt(A, Q, R_):
    for k in range(A.shape[1]):
        nrm = np.dot(A[:, k], A[:, k])
        R_[k, k] = np.sqrt(nrm)
        Q[:, k] = A[:, k] / R_[k, k]
        for j in range(k + 1, A.shape[1]):
            R_[k, j] = np.dot(Q[:, k], A[:, j])
            A[:, j] -= Q[:, k] * R_[k, j]


@program(lambda n: (1.5, 1.2, R(0).random((n, n)), R(1).random((n, n))), 16, 32, 150, 400)
def syrk(alpha, beta, C, A):
    for i in range(A.shape[0]):
        C[i, : i + 1] *= beta
        for k in range(A.shape[1]):
            C[i, : i + 1] += alpha * A[i, k] * A[: i + 1, k]


@program(lambda n: (1.5, R(0).random((n, n)), R(1).random((n, n))), 16, 32, 150, 300)
def trmm(alpha, A, B):
    for i in range(B.shape[0]):
        for j in range(B.shape[1]):
            B[i, j] += np.dot(A[i + 1 :, i], B[i + 1 :, j])
    B *= alpha


@program(lambda n: (1.5, 1.2, R(0).random((n, n)), R(1).random((n, n)), R(2).random((n, n))), 16, 32, 150, 300)
def symm(alpha, beta, C, A, B):
    temp2 = np.empty((C.shape[1],), dtype=C.dtype)
    C *= beta
    for i in range(C.shape[0]):
        for j in range(C.shape[1]):
            C[:i, j] += alpha * B[i, j] * A[i, :i]
            temp2[j] = B[:i, j] @ A[i, :i]
        C[i, :] += alpha * B[i, :] * A[i, i] + alpha * temp2


@program(lambda n: (1.1, 1.2, R(0).random((n, n)), R(1).random((n, n)), R(2).random((n, n))), 16, 32, 320, 1000)
def gemm(alpha, beta, C, A, B):
    C[:] = alpha * A @ B + beta * C


@program(lambda n: (R(0).random((n, n)), R(1).random(n)), 16, 32, 320, 2000)
def atax(A, x):
    return (A @ x) @ A


@program(lambda n: (R(0).random((n, n)), R(1).random(n)), 10, 32, 100, 300)
def linalg_mix(A, b):
    A = A + A.T + 10 * np.eye(len(b))
    w, v = np.linalg.eigh(A)
    x = np.linalg.solve(A, b)
    for i in range(3):
        x = x - 0.1 * (A @ x - b)
    return w, x, np.linalg.norm(x)


@program(lambda n: (spd(n), R(1).random(n), 100), 30, 32, 320, 1000)
def power_iteration(A, v, steps):
    lam = 0.0
    for k in range(steps):
        w = A @ v
        lam = np.sqrt((w * w).sum())
        v = w / lam
    return lam, v


@program(
    lambda n: (spd(n), R(1).random(n), 1e-10), 20, 32, 320, 1000, rtol=1e-9, conditioning="stops at a residual of 1e-10"
)
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


@program(lambda n: (spd(n), R(1).random(n)), 20, 32, 100, 200)
def newton_solve(A, b):
    x = b * 0
    for i in range(100):
        x = x + np.linalg.solve(A, b - A @ x) * 0.5
    return x


@program(
    lambda n: (R(0).random((n, n)) + 8 * np.eye(n), R(1).random(n)),
    8,
    32,
    120,
    400,
    rtol=1e-10,
    conditioning="the condition of the matrix",
)
def gauss_pivot(A, b):
    n = len(b)
    for k in range(n):
        p = k + np.argmax(np.abs(A[k:, k]))
        if p != k:
            for j in range(n):
                A[k, j], A[p, j] = A[p, j], A[k, j]
            b[k], b[p] = b[p], b[k]
        for i in range(k + 1, n):
            f = A[i, k] / A[k, k]
            A[i, k:] -= f * A[k, k:]
            b[i] -= f * b[k]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
    return x


@program(lambda n: (R(0).random((n, n - 2)),), 7, 32, 100, 300)
def householder_qr(A):
    m, n = A.shape
    Q = np.eye(m)
    for k in range(n):
        x = A[k:, k]
        a = -np.sign(x[0]) * np.sqrt((x * x).sum())
        v = x.copy()
        v[0] -= a
        v /= np.sqrt((v * v).sum())
        A[k:, k:] -= 2 * np.outer(v, v @ A[k:, k:])
        Q[:, k:] -= 2 * np.outer(Q[:, k:] @ v, v)
    return Q


@program(lambda n: (R(0).random((n, n)),), 6, 10, 30, 80)
def jacobi_eigen(A):
    A = A + A.T
    n = len(A)
    for sweep in range(12):
        for p in range(n - 1):
            for q in range(p + 1, n):
                if abs(A[p, q]) > 1e-15:
                    th = (A[q, q] - A[p, p]) / (2 * A[p, q])
                    t = np.sign(th) / (abs(th) + np.sqrt(th * th + 1)) if th != 0 else 1.0
                    c = 1 / np.sqrt(t * t + 1)
                    s = t * c
                    for k in range(n):
                        a = A[k, p]
                        b = A[k, q]
                        A[k, p] = c * a - s * b
                        A[k, q] = s * a + c * b
                    for k in range(n):
                        a = A[p, k]
                        b = A[q, k]
                        A[p, k] = c * a - s * b
                        A[q, k] = s * a + c * b
    return np.sort(np.diag(A))


@program(lambda n: (R(0).random((n, n)) / n, 13), 5, 32, 100, 400)
def matrix_power(A, n):
    out = np.eye(len(A))
    base = A.copy()
    while n > 0:
        if n % 2 == 1:
            out = out @ base
        base = base @ base
        n //= 2
    return out


@program(lambda n: (R(0).random((n, n)), R(1).random((n, n))), 12, 32, 100, 300)
def matmul_loops(a, b):
    n, m, k = a.shape[0], b.shape[1], a.shape[1]
    c = np.zeros((n, m))
    for i in range(n):
        for j in range(m):
            for p in range(k):
                c[i, j] += a[i, p] * b[p, j]
    return c


@program(lambda n: (np.tril(spd(n)),), 12, 32, 150, 400)
def lower_inverse(L):
    n = len(L)
    X = np.zeros_like(L)
    for j in range(n):
        X[j, j] = 1 / L[j, j]
        for i in range(j + 1, n):
            X[i, j] = -(L[i, j:i] @ X[j:i, j]) / L[i, i]
    return X


@program(lambda n: (R(0).random((n, n)),), 8, 20, 80, 250)
def givens_qr(A):
    m, n = A.shape
    for j in range(n):
        for i in range(m - 1, j, -1):
            r = np.hypot(A[i - 1, j], A[i, j])
            if r == 0.0:
                continue
            c = A[i - 1, j] / r
            s = A[i, j] / r
            for k in range(j, n):
                top = A[i - 1, k]
                low = A[i, k]
                A[i - 1, k] = c * top + s * low
                A[i, k] = c * low - s * top


@program(lambda n: (R(0).random(2 * n - 1), R(1).random(n)), 20, 32, 320, 5000)
def toeplitz_product(t, x):
    n = len(x)
    y = np.zeros(n)
    for i in range(n):
        for j in range(n):
            y[i] += t[i - j + n - 1] * x[j]
    return y
