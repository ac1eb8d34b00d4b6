"""triangular-solve: substitution, with the right sides as rows of vectors or one by one.

The matrix that is solved with is M(i, k) = a[i * down + k * across]; a transposed one has the two steps exchanged.
X A = B is solved as A^T X^T = B^T, whose right sides are rows.

Source: G. Golub, C. Van Loan, Matrix Computations, 3.1.
"""

from __future__ import annotations

from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.matrices.common import batch, matrix_launches
from hloom.compiler.kernels.request import KernelRequest

WIDE = 8  # right sides from which on they are solved side by side
BLOCK = 64  # right sides that one item solves

# Right sides are the columns of b[n, m]; an item is a block of them.
COLUMNS = """
row = scratch_T({block})
for item in range(lo, hi):
    first = item % blocks * {block}
    wide = min(m - first, {block})
    matrix = item // blocks * n * n
    at = item // blocks * n * m + first
    for step in range(n):
        i = {forward}
        for j in range(wide):
            row[j] = b[at + i * m + j]
        begin = {begin}
        end = {end}
        for k in range(begin, end):
            x = {conj}(a[matrix + i * down + k * across])
            for j in range(wide):
                row[j] = row[j] - x * out0[at + k * m + j]
        d = {diagonal}
        for j in range(wide):
            out0[at + i * m + j] = row[j] / d
"""

# Right sides one by one, each with elements `apart` apart; the rows of M lie in memory.
BY_ROWS = """
for item in range(lo, hi):
    matrix = item // m * n * n
    at = item // m * n * m + item % m * between
    for step in range(n):
        i = {forward}
        begin = {begin}
        end = {end}
        s = T(0.0)
        for k in range(begin, end):
            s = sum_T(s, {conj}(a[matrix + i * down + k]) * out0[at + k{apart}])
        out0[at + i{apart}] = (b[at + i{apart}] - s) / {diagonal}
"""

# The same where the columns of M lie in memory: each element that is found is taken out of the others.
BY_COLUMNS = """
for item in range(lo, hi):
    matrix = item // m * n * n
    at = item // m * n * m + item % m * between
    for i in range(n):
        out0[at + i{apart}] = b[at + i{apart}]
    for step in range(n):
        k = {forward}
        i = k
        x = out0[at + k{apart}] / {diagonal}
        out0[at + k{apart}] = x
        begin = {after}
        end = {until}
        for i in range(begin, end):
            out0[at + i{apart}] = out0[at + i{apart}] - {conj}(a[matrix + i + k * across]) * x
"""


def triangular_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one triangular-solve."""
    instruction = request.instruction("triangular-solve")
    a, b = instruction.operands
    n, left = a.dims[-1], bool(instruction.attributes.get("left_side"))
    m = b.dims[-1] if left else b.dims[-2]
    transposed = instruction.attributes.get("transpose_a", "NO_TRANSPOSE")
    turned, conj = transposed != "NO_TRANSPOSE", "conj_T" if transposed == "ADJOINT" else "T"
    if not left:
        turned = not turned
    ascending = bool(instruction.attributes.get("lower")) != turned
    unit = bool(instruction.attributes.get("unit_diagonal"))
    across, down = (n, 1) if turned else (1, n)
    words = {
        "forward": "step" if ascending else "n - 1 - step",
        "begin": "0" if ascending else "i + 1",
        "end": "i" if ascending else "n",
        "after": "k + 1" if ascending else "0",
        "until": "n" if ascending else "k",
        "diagonal": "T(1.0)" if unit else f"{conj}(a[matrix + i * (n + 1)])",
        "conj": conj,
        "block": BLOCK,
    }
    count = batch(a.shape) if n and m else 0
    sizes = {"n": n, "m": m, "down": down, "across": across}
    if left and m >= WIDE:
        blocks = -(-m // BLOCK)
        work = n * n * min(m, BLOCK) / 2
        return matrix_launches(
            request, instruction, COLUMNS.format(**words), sizes | {"blocks": blocks}, count * blocks, work
        )
    words["apart"] = " * m" if left and m > 1 else ""
    text = (BY_COLUMNS if turned else BY_ROWS).format(**words)
    sizes["between"] = 1 if left else n
    return matrix_launches(request, instruction, text, sizes, count * m, n * n / 2.0)
