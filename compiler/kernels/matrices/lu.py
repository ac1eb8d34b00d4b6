"""lu, solve, det and lu-pivots-to-permutation: elimination with row exchanges.

Source: G. Golub, C. Van Loan, Matrix Computations, 3.4.1 (outer products, partial pivoting).
"""

from __future__ import annotations

from hloom.compiler.kernel_ir.generic.language import Int, Pointer, R, T, cabs1, kernel_function, nan, s32, s64
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.matrices.common import batch, copy, matrix_launches
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.types import DTYPES, HLO_NAME, real_dtype


@kernel_function
def pivot_row(f: Pointer[T], at: s64, m: s64, n: s64, k: s64) -> s64:
    """The row of the largest element of column k, of F[m, n], at or below the diagonal."""
    best = k
    most = R(-1.0)
    for i in range(k, m):
        size = cabs1(f[at + i * n + k])
        if size > most or (size != size and most == most):
            most = size
            best = i
    return best


@kernel_function
def exchange_rows(f: Pointer[T], at: s64, n: s64, k: s64, best: s64) -> None:
    """Exchanges two rows of n elements."""
    for j in range(n):
        x = f[at + k * n + j]
        f[at + k * n + j] = f[at + best * n + j]
        f[at + best * n + j] = x


@kernel_function
def eliminate(f: Pointer[T], row: Pointer[T], at: s64, item: s64, m: s64, n: s64, k: s64) -> None:
    """Step k: takes multiples of row k out of the rows below it. A zero pivot leaves its column as it is, as in LAPACK:
    the factors exist, and U is singular."""
    pivot = f[at + k * n + k]
    for j in range(k, n):
        row[item * n + j] = f[at + k * n + j]
    if pivot != T(0.0):
        for i in range(k + 1, m):
            x = f[at + i * n + k] / pivot
            f[at + i * n + k] = x
            for j in range(k + 1, n):
                f[at + i * n + j] = f[at + i * n + j] - x * row[item * n + j]


@kernel_function
def lu(
    a: Pointer[T], out0: Pointer[T], out1: Pointer[s32], out2: Pointer[s32], row: Pointer[T],
    m: s64, n: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """The factors, the rows that each step exchanges, and the permutation that they make."""
    for item in range(lo, hi):
        at = item * m * n
        copy(a, out0, at, m * n)
        for i in range(m):
            out2[item * m + i] = s32(i)
        for k in range(min(m, n)):
            best = pivot_row(out0, at, m, n, k)
            out1[item * min(m, n) + k] = s32(best)
            if best != k:
                exchange_rows(out0, at, n, k, best)
                place = out2[item * m + k]
                out2[item * m + k] = out2[item * m + best]
                out2[item * m + best] = place
            eliminate(out0, row, at, item, m, n, k)


@kernel_function
def solve(
    a: Pointer[T], b: Pointer[T], out0: Pointer[T], row: Pointer[T], work: Pointer[T],
    m: s64, n: s64, r: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """The right sides B[n, r] are exchanged with the rows, and substituted forwards and backwards. A matrix with a zero
    pivot has no solution: NaN."""
    for item in range(lo, hi):
        at = item * m * n
        copy(a, work, at, m * n)
        to = item * n * r
        copy(b, out0, to, n * r)
        for k in range(min(m, n)):
            best = pivot_row(work, at, m, n, k)
            if best != k:
                exchange_rows(work, at, n, k, best)
                exchange_rows(out0, to, r, k, best)
            eliminate(work, row, at, item, m, n, k)
        singular = 0
        for k in range(n):
            if work[at + k * n + k] == T(0.0):
                singular = 1
            for i in range(k + 1, n):
                x = work[at + i * n + k]
                for j in range(r):
                    out0[to + i * r + j] = out0[to + i * r + j] - x * out0[to + k * r + j]
        for back in range(n):
            k = n - 1 - back
            d = work[at + k * n + k]
            for j in range(r):
                out0[to + k * r + j] = out0[to + k * r + j] / d
            for i in range(k):
                x = work[at + i * n + k]
                for j in range(r):
                    out0[to + i * r + j] = out0[to + i * r + j] - x * out0[to + k * r + j]
        if singular == 1:
            for i in range(n * r):
                out0[to + i] = T(nan)


@kernel_function
def det(
    a: Pointer[T], out0: Pointer[T], row: Pointer[T], work: Pointer[T],
    big: float, small: float, high: float, low: float, m: s64, n: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """The product of the diagonal, with a power of `big` apart: parts of it may be beyond the range where the whole is
    not."""
    for item in range(lo, hi):
        at = item * m * n
        copy(a, work, at, m * n)
        odd = 0
        for k in range(min(m, n)):
            best = pivot_row(work, at, m, n, k)
            if best != k:
                exchange_rows(work, at, n, k, best)
                odd = 1 - odd
            eliminate(work, row, at, item, m, n, k)
        product = T(1.0)
        power = 0
        for k in range(n):
            x = work[at + k * n + k]
            for _turn in range(2):
                x, power = scaled(x, power, big, small, high, low)
            product = product * x
            product, power = scaled(product, power, big, small, high, low)
        for _k in range(power):
            product = product * R(big)
        for _k in range(-power):
            product = product * R(small)
        out0[item] = product if odd == 0 else -product


@kernel_function
def scaled(x: T, power: s64, big: float, small: float, high: float, low: float) -> tuple[T, s64]:
    """A number nearer to 1, and the power of `big` that it has to be multiplied by."""
    size = cabs1(x)
    if size > R(high):
        x = x * R(small)
        power += 1
    if size < R(low) and size > R(0.0):
        x = x * R(big)
        power -= 1
    return x, power


@kernel_function
def permutation(a: Pointer[s32], out0: Pointer[Int], n: s64, m: s64, lo: s64, hi: s64) -> None:
    """The places of m rows after n exchanges."""
    for item in range(lo, hi):
        for i in range(m):
            out0[item * m + i] = Int(i)
        for k in range(n):
            other = s64(a[item * n + k])
            place = out0[item * m + k]
            out0[item * m + k] = out0[item * m + other]
            out0[item * m + other] = place


def lu_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one lu; an item is a matrix."""
    m, n = request.instruction("lu").operands[0].dims[-2:]
    return _launches(request, "lu", lu, {}, min(m, n) * m * n * 2 / 3 + m, work=False)


def solve_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one solve; an item is a matrix with its right sides."""
    a, b = request.instruction("solve").operands
    n, r = a.dims[-1], b.dims[-1]
    return _launches(request, "solve", solve, {"r": r}, n**3 * 2 / 3 + 2.0 * n * n * r)


def det_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one det; an item is a matrix."""
    instruction = request.instruction("det")
    n = instruction.operands[0].dims[-1]
    half = 64 if real_dtype(instruction.dtype) == DTYPES["f32"] else 512
    powers = {"big": half, "small": -half, "high": half - 6, "low": 6 - half}
    known = {key: 2.0**power for key, power in powers.items()}
    return _launches(request, "det", det, {}, n**3 * 2 / 3 + n, known=known)


def _launches(request, opcode: str, function, sizes: dict, operations: float, work=True, known=None) -> list[Launch]:
    """operations: of an item. work: whether what is eliminated is memory of the kernel's own."""
    instruction = request.instruction(opcode)
    a = instruction.operands[0]
    m, n = a.dims[-2:]
    items = batch(a.shape) if m and n and all(sizes.values()) else 0
    name = HLO_NAME[a.dtype]
    temporaries = {"row": (name, items * n)} | ({"work": (name, items * m * n)} if work else {})
    sizes = {"m": m, "n": n} | sizes
    return matrix_launches(request, instruction, function, sizes, items, operations, temporaries, known=known)


def permutation_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one lu-pivots-to-permutation; an item is a vector of pivots."""
    instruction = request.instruction("lu-pivots-to-permutation")
    (pivots,) = instruction.operands
    n, m = pivots.dims[-1], instruction.dims[-1]
    items = batch(pivots.shape, 1) if m else 0
    return matrix_launches(request, instruction, permutation, {"n": n, "m": m}, items, m + 4.0 * n)
