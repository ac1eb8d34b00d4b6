"""triangular-solve: substitution, with the right sides as rows of vectors or one by one.

The matrix that is solved with is M(i, k) = a[i * down + k * across]; a transposed one has the two steps exchanged.
X A = B is solved as A^T X^T = B^T, whose right sides are rows. What is known of a system: `ascending`, whether it is
solved from the first unknown to the last, `adjoint`, whether the elements of M are conjugates, and `unit`, whether its
diagonal is 1.

Source: G. Golub, C. Van Loan, Matrix Computations, 3.1.
"""

from __future__ import annotations

from hloom.compiler.kernel_ir.generic.language import Pointer, T, conj, kernel_function, s64, scratch, summed
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.matrices.common import batch, matrix_launches
from hloom.compiler.kernels.request import KernelRequest

WIDE = 8  # right sides from which on they are solved side by side
BLOCK = 64  # right sides that one item solves


@kernel_function
def element(a: Pointer[T], place: s64, adjoint: bool) -> T:
    """An element of M."""
    return conj(a[place]) if adjoint else a[place]


@kernel_function
def diagonal(a: Pointer[T], place: s64, adjoint: bool, unit: bool) -> T:
    """An element of the diagonal of M."""
    return T(1.0) if unit else conj(a[place]) if adjoint else a[place]


@kernel_function
def side_by_side(
    a: Pointer[T], b: Pointer[T], out0: Pointer[T], ascending: bool, adjoint: bool, unit: bool,
    n: s64, m: s64, down: s64, across: s64, blocks: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """Right sides are the columns of b[n, m]; an item is a block of them."""
    row = scratch(T, BLOCK)
    for item in range(lo, hi):
        first = item % blocks * BLOCK
        wide = min(m - first, BLOCK)
        matrix = item // blocks * n * n
        at = item // blocks * n * m + first
        for step in range(n):
            i = step if ascending else n - 1 - step
            for j in range(wide):
                row[j] = b[at + i * m + j]
            begin = 0 if ascending else i + 1
            end = i if ascending else n
            for k in range(begin, end):
                x = element(a, matrix + i * down + k * across, adjoint)
                for j in range(wide):
                    row[j] = row[j] - x * out0[at + k * m + j]
            d = diagonal(a, matrix + i * (n + 1), adjoint, unit)
            for j in range(wide):
                out0[at + i * m + j] = row[j] / d


@kernel_function
def by_rows(
    a: Pointer[T], b: Pointer[T], out0: Pointer[T], ascending: bool, adjoint: bool, unit: bool, apart: bool,
    n: s64, m: s64, down: s64, across: s64, between: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """Right sides one by one. apart: whether their elements lie m apart. The rows of M lie in memory."""
    for item in range(lo, hi):
        matrix = item // m * n * n
        at = item // m * n * m + item % m * between
        for step in range(n):
            i = step if ascending else n - 1 - step
            begin = 0 if ascending else i + 1
            end = i if ascending else n
            s = T(0.0)
            for k in range(begin, end):
                s = summed(s, element(a, matrix + i * down + k, adjoint) * out0[at + (k * m if apart else k)])
            place = at + (i * m if apart else i)
            out0[place] = (b[place] - s) / diagonal(a, matrix + i * (n + 1), adjoint, unit)


@kernel_function
def by_columns(
    a: Pointer[T], b: Pointer[T], out0: Pointer[T], ascending: bool, adjoint: bool, unit: bool, apart: bool,
    n: s64, m: s64, down: s64, across: s64, between: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """The same where the columns of M lie in memory: each element that is found is taken out of the others."""
    for item in range(lo, hi):
        matrix = item // m * n * n
        at = item // m * n * m + item % m * between
        for i in range(n):
            out0[at + (i * m if apart else i)] = b[at + (i * m if apart else i)]
        for step in range(n):
            k = step if ascending else n - 1 - step
            found = at + (k * m if apart else k)
            x = out0[found] / diagonal(a, matrix + k * (n + 1), adjoint, unit)
            out0[found] = x
            begin = k + 1 if ascending else 0
            end = n if ascending else k
            for i in range(begin, end):
                place = at + (i * m if apart else i)
                out0[place] = out0[place] - element(a, matrix + i + k * across, adjoint) * x


def triangular_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one triangular-solve."""
    instruction = request.instruction("triangular-solve")
    a, b = instruction.operands
    n, left = a.dims[-1], bool(instruction.attributes.get("left_side"))
    m = b.dims[-1] if left else b.dims[-2]
    transposed = instruction.attributes.get("transpose_a", "NO_TRANSPOSE")
    turned = (transposed != "NO_TRANSPOSE") == left
    known = {
        "ascending": bool(instruction.attributes.get("lower")) != turned,
        "adjoint": transposed == "ADJOINT",
        "unit": bool(instruction.attributes.get("unit_diagonal")),
    }
    across, down = (n, 1) if turned else (1, n)
    count = batch(a.shape) if n and m else 0
    sizes = {"n": n, "m": m, "down": down, "across": across}
    if left and m >= WIDE:
        sizes["blocks"] = -(-m // BLOCK)
        count, work = count * sizes["blocks"], n * n * min(m, BLOCK) / 2
        return matrix_launches(request, instruction, side_by_side, sizes, count, work, known=known)
    sizes["between"] = 1 if left else n
    known["apart"] = left and m > 1
    function = by_columns if turned else by_rows
    return matrix_launches(request, instruction, function, sizes, count * m, n * n / 2.0, known=known)
