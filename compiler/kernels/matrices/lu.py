"""lu, solve, det and lu-pivots-to-permutation: elimination with row exchanges.

Source: G. Golub, C. Van Loan, Matrix Computations, 3.4.1 (outer products, partial pivoting).
"""

from __future__ import annotations

from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.matrices.common import batch, matrix_launches
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.types import DTYPES, HLO_NAME, real_dtype

# Factors F[m, n] at `at`. A zero pivot leaves its column as it is, as in LAPACK: the factors exist, and U is singular.
ELIMINATE = """
    for k in range(min(m, n)):
        best = k
        most = R(-1.0)
        for i in range(k, m):
            size = size_T(F[at + i * n + k])
            if size > most or (size != size and most == most):
                most = size
                best = i
        {exchanged}
        if best != k:
            for j in range(n):
                x = F[at + k * n + j]
                F[at + k * n + j] = F[at + best * n + j]
                F[at + best * n + j] = x
            {exchange}
        pivot = F[at + k * n + k]
        for j in range(k, n):
            row[item * n + j] = F[at + k * n + j]
        if pivot != T(0.0):
            for i in range(k + 1, m):
                x = F[at + i * n + k] / pivot
                F[at + i * n + k] = x
                for j in range(k + 1, n):
                    F[at + i * n + j] = F[at + i * n + j] - x * row[item * n + j]
"""
COPY = """
for item in range(lo, hi):
    at = item * m * n
    for i in range(m * n):
        F[at + i] = a[at + i]
"""
IDENTITY = """
    for i in range(m):
        out2[item * m + i] = s32(i)
"""
# The right sides B[n, r] are exchanged with the rows, and substituted forwards and backwards. A matrix with a zero
# pivot has no solution: NaN.
RIGHT = """
    to = item * n * r
    for i in range(n * r):
        out0[to + i] = b[to + i]
    {eliminate}
    singular = 0
    for k in range(n):
        if F[at + k * n + k] == T(0.0):
            singular = 1
        for i in range(k + 1, n):
            x = F[at + i * n + k]
            for j in range(r):
                out0[to + i * r + j] = out0[to + i * r + j] - x * out0[to + k * r + j]
    for back in range(n):
        k = n - 1 - back
        d = F[at + k * n + k]
        for j in range(r):
            out0[to + k * r + j] = out0[to + k * r + j] / d
        for i in range(k):
            x = F[at + i * n + k]
            for j in range(r):
                out0[to + i * r + j] = out0[to + i * r + j] - x * out0[to + k * r + j]
    if singular == 1:
        for i in range(n * r):
            out0[to + i] = T(nan)
"""
EXCHANGE_PLACES = """place = out2[item * m + k]
            out2[item * m + k] = out2[item * m + best]
            out2[item * m + best] = place"""
EXCHANGE_RIGHT = """for j in range(r):
                x = out0[to + k * r + j]
                out0[to + k * r + j] = out0[to + best * r + j]
                out0[to + best * r + j] = x"""
# The product of the diagonal, with a power of `big` apart: parts of it may be beyond the range where the whole is not.
PRODUCT = """
    product = T(1.0)
    power = 0
    for k in range(n):
        x = F[at + k * n + k]
        for turn in range(2):
            size = size_T(x)
            if size > R({high}):
                x = x * R({small})
                power += 1
            if size < R({low}) and size > R(0.0):
                x = x * R({big})
                power -= 1
        product = product * x
        size = size_T(product)
        if size > R({high}):
            product = product * R({small})
            power += 1
        if size < R({low}) and size > R(0.0):
            product = product * R({big})
            power -= 1
    for k in range(power):
        product = product * R({big})
    for k in range(-power):
        product = product * R({small})
    out0[item] = product if odd == 0 else -product
"""

PERMUTATION = """
for item in range(lo, hi):
    for i in range(m):
        out0[item * m + i] = I(i)
    for k in range(n):
        other = s64(a[item * n + k])
        place = out0[item * m + k]
        out0[item * m + k] = out0[item * m + other]
        out0[item * m + other] = place
"""


def lu_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one lu; an item is a matrix."""
    instruction = request.instruction("lu")
    m, n = instruction.operands[0].dims[-2:]
    pivots = "out1[item * min(m, n) + k] = s32(best)"
    text = COPY + IDENTITY + ELIMINATE.format(exchanged=pivots, exchange=EXCHANGE_PLACES)
    return _launches(request, instruction, text, "out0", {}, min(m, n) * m * n * 2 / 3 + m)


def solve_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one solve; an item is a matrix with its right sides."""
    instruction = request.instruction("solve")
    a, b = instruction.operands
    n, r = a.dims[-1], b.dims[-1]
    eliminate = ELIMINATE.format(exchanged="", exchange=EXCHANGE_RIGHT).strip()
    text = COPY + RIGHT.format(eliminate=eliminate)
    return _launches(request, instruction, text, "work", {"r": r}, n**3 * 2 / 3 + 2.0 * n * n * r)


def det_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one det; an item is a matrix."""
    instruction = request.instruction("det")
    n = instruction.operands[0].dims[-1]
    half = 64 if real_dtype(instruction.dtype) == DTYPES["f32"] else 512
    bounds = {"big": half, "small": -half, "high": half - 6, "low": 6 - half}
    product = PRODUCT.format(**{key: repr(2.0**power) for key, power in bounds.items()})
    text = COPY + "    odd = 0\n" + ELIMINATE.format(exchanged="", exchange="odd = 1 - odd") + product
    return _launches(request, instruction, text, "work", {}, n**3 * 2 / 3 + n)


def _launches(request, instruction, text: str, factors: str, sizes: dict, work: float) -> list[Launch]:
    """text: with F for what is eliminated: a result, or memory of the kernel's own ("work")."""
    a = instruction.operands[0]
    m, n = a.dims[-2:]
    items = batch(a.shape) if m and n and all(sizes.values()) else 0
    name = HLO_NAME[a.dtype]
    temporaries = {"row": (name, items * n)} | ({"work": (name, items * m * n)} if factors == "work" else {})
    text = text.replace("F[", f"{factors}[")
    return matrix_launches(request, instruction, text, {"m": m, "n": n} | sizes, items, work, temporaries)


def permutation_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one lu-pivots-to-permutation; an item is a vector of pivots."""
    instruction = request.instruction("lu-pivots-to-permutation")
    (pivots,) = instruction.operands
    n, m = pivots.dims[-1], instruction.dims[-1]
    text = PERMUTATION.replace("I(", "s32(" if instruction.dtype.itemsize == 4 else "s64(")
    items = batch(pivots.shape, 1) if m else 0
    return matrix_launches(request, instruction, text, {"n": n, "m": m}, items, m + 4.0 * n)
