"""eigh: reduction to tridiagonal form by reflections, and the implicit QL method, in float64.

z[i, k] is element k of vector i: vectors lie in memory, so that rotations of two of them are loops over memory. The
matrix is scaled so that its largest element is 1, since squares and products of its elements are formed. `at` is the
place of the matrix, `o` that of its eigenvalues.

Source: the Algol procedures tred2 and tql2 of H. Bowdler, R. Martin, C. Reinsch, J. Wilkinson, Handbook for Automatic
Computation vol. II, Linear Algebra (1971).
"""

from __future__ import annotations

from hloom.compiler.kernel_ir.generic.language import (
    Pointer,
    T,
    f64,
    is_finite,
    kernel_function,
    maximum,
    nan,
    s64,
    sqrt,
    summed,
)
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.matrices.common import batch, matrix_launches
from hloom.compiler.kernels.request import KernelRequest

ITERATIONS = 60  # of QL for one eigenvalue; three are usual. Beyond them the result is NaN.
EPSILON = 2.0**-52


@kernel_function
def eigh(
    a: Pointer[T], out0: Pointer[T], out1: Pointer[T], z: Pointer[f64], d: Pointer[f64], e: Pointer[f64],
    n: s64, lower: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """The eigenvalues, and the vectors as columns."""
    for item in range(lo, hi):
        at = item * n * n
        o = item * n
        wrong, unit = read(a, z, at, n, lower)
        for j in range(n):
            d[o + j] = z[at + j * n + n - 1]
            e[o + j] = 0.0
        for back in range(n - 1):
            reflect(z, d, e, at, o, n, n - 1 - back, wrong)
        form(z, d, at, o, n)
        for i in range(1, n):
            e[o + i - 1] = e[o + i]
        e[o + n - 1] = 0.0
        shift = 0.0
        small = 0.0
        for l in range(n):
            small = maximum(small, abs(d[o + l]) + abs(e[o + l]))
            m = l
            while m < n - 1 and abs(e[o + m]) > EPSILON * small:
                m += 1
            turn = 0
            while m > l and wrong == 0 and (turn == 0 or abs(e[o + l]) > EPSILON * small):
                turn += 1
                if turn > ITERATIONS:
                    wrong = 1
                shift = iterate(z, d, e, at, o, n, l, m, shift)
            d[o + l] = d[o + l] + shift
            e[o + l] = 0.0
        for i in range(n):
            rank = 0
            for k in range(n):
                if d[o + k] < d[o + i] or (d[o + k] == d[o + i] and k < i):
                    rank += 1
            out0[o + rank] = T(d[o + i] * unit)
            for k in range(n):
                out1[at + k * n + rank] = T(z[at + i * n + k])
        if wrong > 0:
            for i in range(n):
                out0[o + i] = T(nan)
            for i in range(n * n):
                out1[at + i] = T(nan)


@kernel_function
def read(a: Pointer[T], z: Pointer[f64], at: s64, n: s64, lower: s64) -> tuple[s64, f64]:
    """z becomes the matrix, scaled. Returns how many elements are not finite, and the scale."""
    wrong = 0
    largest = 0.0
    for i in range(n):
        for k in range(n):
            x = a[at + max(i, k) * n + min(i, k)] if lower == 1 else a[at + min(i, k) * n + max(i, k)]
            wrong += 0 if is_finite(x) else 1
            largest = maximum(largest, abs(f64(x)))
            z[at + i * n + k] = f64(x)
    unit = largest if largest > 0.0 and wrong == 0 else 1.0
    for i in range(n * n):
        z[at + i] = z[at + i] / unit
    return wrong, unit


@kernel_function
def reflect(z: Pointer[f64], d: Pointer[f64], e: Pointer[f64], at: s64, o: s64, n: s64, i: s64, wrong: s64) -> None:
    """Row and column i become zero beside the diagonal and its neighbours."""
    scale = 0.0
    h = 0.0
    for k in range(i):
        scale = scale + abs(d[o + k])
    if scale == 0.0 or wrong > 0:
        e[o + i] = d[o + i - 1]
        for j in range(i):
            d[o + j] = z[at + j * n + i - 1]
            z[at + j * n + i] = 0.0
            z[at + i * n + j] = 0.0
    else:
        for k in range(i):
            x = d[o + k] / scale
            d[o + k] = x
            h = h + x * x
        f = d[o + i - 1]
        g = -sqrt(h) if f > 0.0 else sqrt(h)
        e[o + i] = scale * g
        h = h - f * g
        d[o + i - 1] = f - g
        for j in range(i):
            e[o + j] = 0.0
        for j in range(i):
            f = d[o + j]
            z[at + i * n + j] = f
            g = e[o + j] + z[at + j * n + j] * f
            for k in range(j + 1, i):
                v = z[at + j * n + k]
                g = summed(g, v * d[o + k])
                e[o + k] = e[o + k] + v * f
            e[o + j] = g
        f = 0.0
        for j in range(i):
            x = e[o + j] / h
            e[o + j] = x
            f = f + x * d[o + j]
        hh = f / (h + h)
        for j in range(i):
            e[o + j] = e[o + j] - hh * d[o + j]
        for j in range(i):
            f = d[o + j]
            g = e[o + j]
            for k in range(j, i):
                z[at + j * n + k] = z[at + j * n + k] - (f * e[o + k] + g * d[o + k])
            d[o + j] = z[at + j * n + i - 1]
            z[at + j * n + i] = 0.0
    d[o + i] = h


@kernel_function
def form(z: Pointer[f64], d: Pointer[f64], at: s64, o: s64, n: s64) -> None:
    """z becomes the product of the reflections, d the diagonal."""
    for i in range(n - 1):
        z[at + i * n + n - 1] = z[at + i * n + i]
        z[at + i * n + i] = 1.0
        h = d[o + i + 1]
        if h != 0.0:
            for k in range(i + 1):
                d[o + k] = z[at + (i + 1) * n + k] / h
            for j in range(i + 1):
                g = 0.0
                for k in range(i + 1):
                    g = summed(g, z[at + (i + 1) * n + k] * z[at + j * n + k])
                for k in range(i + 1):
                    z[at + j * n + k] = z[at + j * n + k] - g * d[o + k]
        for k in range(i + 1):
            z[at + (i + 1) * n + k] = 0.0
    for j in range(n):
        d[o + j] = z[at + j * n + n - 1]
        z[at + j * n + n - 1] = 0.0
    z[at + n * n - 1] = 1.0


@kernel_function
def iterate(
    z: Pointer[f64], d: Pointer[f64], e: Pointer[f64], at: s64, o: s64, n: s64, l: s64, m: s64, shift: f64
) -> f64:
    """One step of QL on the part of the matrix from l to m. Returns the sum of the shifts."""
    g = d[o + l]
    p = (d[o + l + 1] - g) / (2.0 * e[o + l])
    r = sqrt(p * p + 1.0)
    r = -r if p < 0.0 else r
    d[o + l] = e[o + l] / (p + r)
    d[o + l + 1] = e[o + l] * (p + r)
    next_d = d[o + l + 1]
    h = g - d[o + l]
    for i in range(l + 2, n):
        d[o + i] = d[o + i] - h
    shift = shift + h
    p = d[o + m]
    c = 1.0
    c2 = 1.0
    c3 = 1.0
    next_e = e[o + l + 1]
    s = 0.0
    s2 = 0.0
    for back in range(m - l):
        i = m - 1 - back
        c3 = c2
        c2 = c
        s2 = s
        g = c * e[o + i]
        h = c * p
        big = maximum(abs(p), abs(e[o + i]))
        p1 = p / big if big > 0.0 else 0.0
        e1 = e[o + i] / big if big > 0.0 else 0.0
        r = big * sqrt(p1 * p1 + e1 * e1)
        e[o + i + 1] = s * r
        s = e[o + i] / r if r > 0.0 else 0.0
        c = p / r if r > 0.0 else 1.0
        p = c * d[o + i] - s * g
        d[o + i + 1] = h + s * (c * g + s * d[o + i])
        for k in range(n):
            x = z[at + (i + 1) * n + k]
            y = z[at + i * n + k]
            z[at + (i + 1) * n + k] = s * y + c * x
            z[at + i * n + k] = c * y - s * x
    p = -s * s2 * c3 * next_e * e[o + l] / next_d
    e[o + l] = s * p
    d[o + l] = c * p
    return shift


def eigh_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one eigh; an item is a matrix."""
    instruction = request.instruction("eigh")
    (a,) = instruction.operands
    n = a.dims[-1]
    items = batch(a.shape) if n else 0
    sizes = {"n": n, "lower": int(bool(instruction.attributes.get("lower")))}
    memory = {"z": ("f64", items * n * n), "d": ("f64", items * n), "e": ("f64", items * n)}
    return matrix_launches(request, instruction, eigh, sizes, items, 12.0 * n**3 + n, memory)
