"""qr, geqrf and householder-product: reflections, with the signs that LAPACK chooses.

Source: G. Golub, C. Van Loan, Matrix Computations, 5.1.6 (backward accumulation) and 5.2.2; LAPACK's dlarfg.
"""

from __future__ import annotations

from hloom.compiler.kernel_ir.generic.language import (
    Pointer,
    R,
    T,
    abs_squared,
    cabs1,
    conj,
    kernel_function,
    maximum,
    s64,
    sqrt,
)
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.matrices.common import batch, copy, matrix_launches
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.types import HLO_NAME


@kernel_function
def reflect(
    f: Pointer[T], taus: Pointer[T], w: Pointer[T], item: s64, at: s64, m: s64, n: s64, most: s64, wide: s64
) -> None:
    """Reflects F[m, n] into R and the vectors below its diagonal, v[k] = 1; their scales go to `taus`. A column is
    divided by its largest element first: norms and quotients of denormal numbers have few digits."""
    for k in range(min(m, n)):
        largest = abs(f[at + k * n + k].imag)
        for i in range(k + 1, m):
            largest = maximum(largest, cabs1(f[at + i * n + k]))
        head = f[at + k * n + k]
        tau = T(0.0)
        if largest > R(0.0) or largest != largest:
            largest = maximum(largest, cabs1(head))
            s = R(0.0)
            for i in range(k, m):
                x = f[at + i * n + k] / largest
                f[at + i * n + k] = x
                s = s + abs_squared(x)
            head = f[at + k * n + k]
            norm = sqrt(s)
            beta = -norm if head.real >= R(0.0) else norm
            tau = (beta - head) / beta
            scale = head - beta
            for i in range(k + 1, m):
                f[at + i * n + k] = f[at + i * n + k] / scale
            f[at + k * n + k] = T(beta * largest)
        taus[item * most + k] = tau
        if tau != T(0.0):
            for j in range(k + 1, n):
                w[item * wide + j] = f[at + k * n + j]
            for i in range(k + 1, m):
                x = conj(f[at + i * n + k])
                for j in range(k + 1, n):
                    w[item * wide + j] = w[item * wide + j] + x * f[at + i * n + j]
            for j in range(k + 1, n):
                x = conj(tau) * w[item * wide + j]
                w[item * wide + j] = x
                f[at + k * n + j] = f[at + k * n + j] - x
            for i in range(k + 1, m):
                x = f[at + i * n + k]
                for j in range(k + 1, n):
                    f[at + i * n + j] = f[at + i * n + j] - x * w[item * wide + j]


@kernel_function
def form(
    f: Pointer[T], taus: Pointer[T], w: Pointer[T], product: Pointer[T],
    item: s64, at: s64, m: s64, n: s64, p: s64, count: s64, most: s64, wide: s64,
) -> None:  # fmt: skip
    """The product Q[m, p] of `count` reflections, whose vectors are the columns of F[m, n]."""
    q = item * m * p
    for i in range(m):
        for j in range(p):
            product[q + i * p + j] = T(1.0) if i == j else T(0.0)
    for back in range(count):
        k = count - 1 - back
        tau = taus[item * most + k]
        if tau != T(0.0):
            for j in range(k, p):
                w[item * wide + j] = product[q + k * p + j]
            for i in range(k + 1, m):
                x = conj(f[at + i * n + k])
                for j in range(k, p):
                    w[item * wide + j] = w[item * wide + j] + x * product[q + i * p + j]
            for j in range(k, p):
                x = tau * w[item * wide + j]
                w[item * wide + j] = x
                product[q + k * p + j] = product[q + k * p + j] - x
            for i in range(k + 1, m):
                x = f[at + i * n + k]
                for j in range(k, p):
                    product[q + i * p + j] = product[q + i * p + j] - x * w[item * wide + j]


@kernel_function
def qr(
    a: Pointer[T], out0: Pointer[T], out1: Pointer[T], w: Pointer[T], work: Pointer[T], taus: Pointer[T],
    m: s64, n: s64, p: s64, count: s64, most: s64, wide: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """Q[m, p] and R[p, n]."""
    for item in range(lo, hi):
        at = item * m * n
        copy(a, work, at, m * n)
        reflect(work, taus, w, item, at, m, n, most, wide)
        for i in range(p):
            for j in range(n):
                out1[item * p * n + i * n + j] = work[at + i * n + j] if j >= i and i < m else T(0.0)
        form(work, taus, w, out0, item, at, m, n, p, count, most, wide)


@kernel_function
def geqrf(
    a: Pointer[T], out0: Pointer[T], out1: Pointer[T], w: Pointer[T],
    m: s64, n: s64, p: s64, count: s64, most: s64, wide: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """R with the vectors below its diagonal, and their scales."""
    for item in range(lo, hi):
        at = item * m * n
        copy(a, out0, at, m * n)
        reflect(out0, out1, w, item, at, m, n, most, wide)


@kernel_function
def householder_product(
    a: Pointer[T], b: Pointer[T], out0: Pointer[T], w: Pointer[T],
    m: s64, n: s64, p: s64, count: s64, most: s64, wide: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """The product of the reflections of vectors, whose scales are b[item, count]."""
    for item in range(lo, hi):
        at = item * m * n
        form(a, b, w, out0, item, at, m, n, p, count, count, wide)


def _launches(request, opcode: str, function, p: int, count: int, temporaries: dict) -> list[Launch]:
    instruction = request.instruction(opcode)
    a = instruction.operands[0]
    m, n = a.dims[-2:]
    items = batch(a.shape) if m and n else 0
    name, most, wide = HLO_NAME[a.dtype], max(min(m, n), count, 1), max(n, p, 1)
    sizes = {"m": m, "n": n, "p": p, "count": count, "most": most, "wide": wide}
    memory = {key: (name, items * size) for key, size in ({"w": wide} | temporaries).items()}
    return matrix_launches(request, instruction, function, sizes, items, 4.0 * m * n * max(p, 1), memory)


def qr_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one qr; an item is a matrix."""
    instruction = request.instruction("qr")
    m, n = instruction.operands[0].dims[-2:]
    p = m if instruction.attributes.get("full_matrices") else min(m, n)
    return _launches(request, "qr", qr, p, min(m, n), {"work": m * n, "taus": max(min(m, n), 1)})


def geqrf_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one geqrf."""
    return _launches(request, "geqrf", geqrf, 0, 0, {})


def householder_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one householder-product."""
    a, taus = request.instruction("householder-product").operands
    return _launches(request, "householder-product", householder_product, a.dims[-1], taus.dims[-1], {})
