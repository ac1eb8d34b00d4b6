"""cholesky: A = L L^H or U^H U, row by row.

Source: G. Golub, C. Van Loan, Matrix Computations, 4.2 (the gaxpy and the dot form).
"""

from __future__ import annotations

from hloom.compiler.kernel_ir.generic.language import (
    Pointer,
    R,
    T,
    conj,
    is_finite,
    kernel_function,
    nan,
    s64,
    sqrt,
    summed,
)
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.matrices.common import batch, matrix_launches
from hloom.compiler.kernels.request import KernelRequest


@kernel_function
def lower_factor(a: Pointer[T], out0: Pointer[T], n: s64, lo: s64, hi: s64) -> None:
    """Four columns at a time: for the rows from the first of them on, the products with the columns before (all loads
    along rows), then those among the four. A pivot that is not positive, as in LAPACK, makes the whole result NaN.
    """
    for item in range(lo, hi):
        at = item * n * n
        for i in range(n):
            for j in range(n):
                out0[at + i * n + j] = a[at + i * n + j] if j <= i else T(0.0)
        failed = 0
        for first in range(0, n, 4):
            wide = min(n - first, 4)
            r0 = at + first * n
            r1 = at + min(first + 1, n - 1) * n
            r2 = at + min(first + 2, n - 1) * n
            r3 = at + min(first + 3, n - 1) * n
            for i in range(first, n):
                row = at + i * n
                s0 = T(0.0)
                s1 = T(0.0)
                s2 = T(0.0)
                s3 = T(0.0)
                for k in range(first):
                    x = out0[row + k]
                    s0 = summed(s0, x * conj(out0[r0 + k]))
                    s1 = summed(s1, x * conj(out0[r1 + k]))
                    s2 = summed(s2, x * conj(out0[r2 + k]))
                    s3 = summed(s3, x * conj(out0[r3 + k]))
                for t in range(min(wide, i - first + 1)):
                    s = s0 if t == 0 else s1 if t == 1 else s2 if t == 2 else s3
                    other = at + (first + t) * n
                    v = out0[row + first + t] - s
                    for k in range(first, first + t):
                        v = v - out0[row + k] * conj(out0[other + k])
                    if first + t == i:
                        p = v.real
                        if not p > R(0.0):
                            failed = 1
                        out0[row + i] = T(sqrt(p))
                    else:
                        out0[row + first + t] = v / out0[other + first + t]
        mark_failed(out0, at, n, failed, lower=True)


@kernel_function
def upper_factor(a: Pointer[T], out0: Pointer[T], n: s64, lo: s64, hi: s64) -> None:
    """A row of U is the row of A less multiples of the rows above it."""
    for item in range(lo, hi):
        at = item * n * n
        failed = 0
        for i in range(n):
            row = at + i * n
            for j in range(n):
                out0[row + j] = a[row + j] if j >= i else T(0.0)
            for k in range(i):
                above = at + k * n
                x = conj(out0[above + i])
                for j in range(i, n):
                    out0[row + j] = out0[row + j] - x * out0[above + j]
            v = out0[row + i].real
            if not v > R(0.0):
                failed = 1
            d = sqrt(v)
            for j in range(i, n):
                out0[row + j] = out0[row + j] / d
            out0[row + i] = T(d)
        mark_failed(out0, at, n, failed, lower=False)


@kernel_function
def mark_failed(out0: Pointer[T], at: s64, n: s64, failed: s64, lower: bool) -> None:
    """Makes the triangle NaN as a whole where the matrix has no factor, or numbers that are not finite passed through
    in part."""
    wrong = 0
    for i in range(n * n):
        wrong += 0 if is_finite(out0[at + i]) else 1
    if failed + wrong > 0:
        for i in range(n):
            for j in range(n):
                inside = failed > 0 or (j <= i if lower else j >= i)
                out0[at + i * n + j] = T(nan) if inside else T(0.0)


def cholesky_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one cholesky; an item is a matrix."""
    instruction = request.instruction("cholesky")
    (a,) = instruction.operands
    n = a.dims[-1]
    function = lower_factor if instruction.attributes.get("lower") else upper_factor
    return matrix_launches(request, instruction, function, {"n": n}, batch(a.shape) if n else 0, n**3 / 3 + n)
