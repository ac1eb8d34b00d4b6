"""qr, geqrf and householder-product: reflections, with the signs that LAPACK chooses.

Source: G. Golub, C. Van Loan, Matrix Computations, 5.1.6 (backward accumulation) and 5.2.2; LAPACK's dlarfg.
"""

from __future__ import annotations

from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.matrices.common import batch, matrix_launches
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.types import HLO_NAME

# Reflects F[m, n] at `at` into R and the vectors below its diagonal, v[k] = 1; their scales go to `taus`. A column is
# divided by its largest element first: norms and quotients of denormal numbers have few digits.
REFLECT = """
    for k in range(min(m, n)):
        largest = abs_R(imag_T(F[at + k * n + k]))
        for i in range(k + 1, m):
            largest = max_R(largest, size_T(F[at + i * n + k]))
        head = F[at + k * n + k]
        tau = T(0.0)
        if largest > R(0.0) or largest != largest:
            largest = max_R(largest, size_T(head))
            s = R(0.0)
            for i in range(k, m):
                x = F[at + i * n + k] / largest
                F[at + i * n + k] = x
                s = s + square_T(x)
            head = F[at + k * n + k]
            norm = sqrt_R(s)
            beta = -norm if real_T(head) >= R(0.0) else norm
            tau = (beta - head) / beta
            scale = head - beta
            for i in range(k + 1, m):
                F[at + i * n + k] = F[at + i * n + k] / scale
            F[at + k * n + k] = T(beta * largest)
        taus[item * most + k] = tau
        if tau != T(0.0):
            for j in range(k + 1, n):
                w[item * wide + j] = F[at + k * n + j]
            for i in range(k + 1, m):
                x = conj_T(F[at + i * n + k])
                for j in range(k + 1, n):
                    w[item * wide + j] = w[item * wide + j] + x * F[at + i * n + j]
            for j in range(k + 1, n):
                x = conj_T(tau) * w[item * wide + j]
                w[item * wide + j] = x
                F[at + k * n + j] = F[at + k * n + j] - x
            for i in range(k + 1, m):
                x = F[at + i * n + k]
                for j in range(k + 1, n):
                    F[at + i * n + j] = F[at + i * n + j] - x * w[item * wide + j]
"""

# The product Q[m, p] of `count` reflections, whose vectors are the columns of F[m, n].
FORM = """
    q = item * m * p
    for i in range(m):
        for j in range(p):
            Q[q + i * p + j] = T(1.0) if i == j else T(0.0)
    for back in range(count):
        k = count - 1 - back
        tau = taus[item * most + k]
        if tau != T(0.0):
            for j in range(k, p):
                w[item * wide + j] = Q[q + k * p + j]
            for i in range(k + 1, m):
                x = conj_T(F[at + i * n + k])
                for j in range(k, p):
                    w[item * wide + j] = w[item * wide + j] + x * Q[q + i * p + j]
            for j in range(k, p):
                x = tau * w[item * wide + j]
                w[item * wide + j] = x
                Q[q + k * p + j] = Q[q + k * p + j] - x
            for i in range(k + 1, m):
                x = F[at + i * n + k]
                for j in range(k, p):
                    Q[q + i * p + j] = Q[q + i * p + j] - x * w[item * wide + j]
"""

HEAD = """
for item in range(lo, hi):
    at = item * m * n
"""
COPY = """
    for i in range(m * n):
        F[at + i] = a[at + i]
"""
UPPER = """
    for i in range(p):
        for j in range(n):
            out1[item * p * n + i * n + j] = F[at + i * n + j] if j >= i and i < m else T(0.0)
"""


def _launches(request, instruction, text: str, reflected: str, p: int, count: int, temporaries: dict) -> list[Launch]:
    """text: with F for what is reflected, Q for the product."""
    a = instruction.operands[0]
    m, n = a.dims[-2:]
    items = batch(a.shape) if m and n else 0
    name, most, wide = HLO_NAME[a.dtype], max(min(m, n), count, 1), max(n, p, 1)
    sizes = {"m": m, "n": n, "p": p, "count": count, "most": most, "wide": wide}
    text = text.replace("F[", f"{reflected}[").replace("Q[", "out0[")
    memory = {key: (name, items * size) for key, size in ({"w": wide} | temporaries).items()}
    return matrix_launches(request, instruction, text, sizes, items, 4.0 * m * n * max(p, 1), memory)


def qr_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one qr; an item is a matrix."""
    instruction = request.instruction("qr")
    m, n = instruction.operands[0].dims[-2:]
    p = m if instruction.attributes.get("full_matrices") else min(m, n)
    text = HEAD + COPY + REFLECT + UPPER + FORM
    return _launches(request, instruction, text, "work", p, min(m, n), {"work": m * n, "taus": max(min(m, n), 1)})


def geqrf_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one geqrf."""
    instruction = request.instruction("geqrf")
    text = (HEAD + COPY + REFLECT).replace("taus[", "out1[")
    return _launches(request, instruction, text, "out0", 0, 0, {})


def householder_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one householder-product."""
    instruction = request.instruction("householder-product")
    a, taus = instruction.operands
    text = (HEAD + FORM).replace("taus[item * most", "b[item * count")
    return _launches(request, instruction, text, "a", a.dims[-1], taus.dims[-1], {})
