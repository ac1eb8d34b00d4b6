"""svd: one-sided Jacobi rotations, in float64.

The columns of A (its rows where it has more columns than rows) are rotated until they are orthogonal. Their lengths
are the singular values, and the product of the rotations is the other factor. Vectors lie in memory: x[i] of length
`long` is a rotated column, v[i] of length `short` the same combination of unit vectors.

Columns that lie in fewer dimensions than there are columns cannot all be orthogonal: some of them must become zero, and
rounding leaves vectors of noise in their place, whose directions, and so the cosines of their angles, mean nothing.
noise[i] bounds the square of what rounding has left in column i. A column that is no longer than that becomes zero.

Source: M. Hestenes, "Inversion of matrices by biorthogonalization and related results" (1958); J. Demmel, K. Veselić,
"Jacobi's method is more accurate than QR" (1992); Z. Drmač, K. Veselić, "New fast and accurate Jacobi SVD algorithm"
(2008), on the cosines that rounding allows.
"""

from __future__ import annotations

from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.matrices.common import batch, matrix_launches
from hloom.compiler.kernels.request import KernelRequest

SWEEPS = 60  # over all pairs; 6 to 10 are usual. Beyond them the result is NaN.
# The largest element of a matrix is scaled to 1. The square of a column that is shorter than this would lose digits or
# underflow: it is so far below the rounding errors of the others that its direction does not matter.
SHORTEST = 1e-130
# Of the rounding errors in an element of a rotated column, relative to what it is made of, squared. An operation is off
# by 2^-53; a factor of 8 covers the three operations, errors in the angle, and how far errors exceed their mean.
ROUNDING = 2.0**-100

# The angle that makes two columns orthogonal: alpha and beta are their squared lengths, gamma their product. Errors in
# independent directions add up as squares.
ANGLE = """\
                    turned += 1
                    zeta = (beta - alpha) / (2.0 * gamma)
                    t = 1.0 / (abs_f64(zeta) + sqrt_f64(1.0 + zeta * zeta))
                    t = -t if zeta < 0.0 else t
                    c = 1.0 / sqrt_f64(1.0 + t * t)
                    s = c * t
                    first = noise[o + i] + {rounding} * alpha
                    second = noise[o + j] + {rounding} * beta
                    noise[o + i] = c * c * first + s * s * second
                    noise[o + j] = s * s * first + c * c * second
"""
# The place of column i by length, the longest first.
RANK = """\
        rank = 0
        for k in range(short):
            if d[o + k] > d[o + i] or (d[o + k] == d[o + i] and k < i):
                rank += 1
        order[o + rank] = i
"""

ROTATE = """
for item in range(lo, hi):
    at = item * long * short
    xs = item * long * long
    vs = item * short * short
    o = item * short
    wrong = 0
    largest = 0.0
    for i in range(long * short):
        wrong += 0 if is_finite_T(a[at + i]) else 1
        largest = max_f64(largest, abs_f64(f64(a[at + i])))
    scale = largest if largest > 0.0 and wrong == 0 else 1.0
    for i in range(short):
        for k in range(long):
            place = k * short + i if tall == 1 else i * long + k
            x[xs + i * long + k] = f64(a[at + place]) / scale
        for k in range(short):
            v[vs + i * short + k] = 1.0 if i == k else 0.0
        noise[o + i] = 0.0
    parallel = {epsilon} * (8.0 + sqrt_f64(f64(long)))
    turned = 1
    sweep = 0
    while turned > 0 and wrong == 0:
        turned = 0
        sweep += 1
        if sweep > {sweeps}:
            wrong = 1
        for i in range(short - 1):
            for j in range(i + 1, short):
                p = xs + i * long
                q = xs + j * long
                alpha = 0.0
                beta = 0.0
                gamma = 0.0
                for k in range(long):
                    y = x[p + k]
                    w = x[q + k]
                    alpha = sum_f64(alpha, y * y)
                    beta = sum_f64(beta, w * w)
                    gamma = sum_f64(gamma, y * w)
                for k in range(long if alpha <= noise[o + i] else 0):
                    x[p + k] = 0.0
                for k in range(long if beta <= noise[o + j] else 0):
                    x[q + k] = 0.0
                clear = alpha > max_f64(noise[o + i], {least}) and beta > max_f64(noise[o + j], {least})
                if clear and abs_f64(gamma) > parallel * sqrt_f64(alpha) * sqrt_f64(beta):
{angle}                    for k in range(long):
                        y = x[p + k]
                        w = x[q + k]
                        x[p + k] = c * y - s * w
                        x[q + k] = s * y + c * w
                    for k in range(short):
                        y = v[vs + i * short + k]
                        w = v[vs + j * short + k]
                        v[vs + i * short + k] = c * y - s * w
                        v[vs + j * short + k] = s * y + c * w
    for i in range(short):
        most = 0.0
        for k in range(long):
            most = max_f64(most, abs_f64(x[xs + i * long + k]))
        s = 0.0
        for k in range(long if most > 0.0 else 0):
            y = x[xs + i * long + k] / most
            s = sum_f64(s, y * y)
        d[o + i] = most * sqrt_f64(s)
        order[o + i] = i
        {values}[o + i] = T(nan)
    for i in range(short if wrong == 0 else 0):
{rank}        {values}[o + rank] = T(d[o + i] * scale)
"""

# The unit vectors of the rotated columns, longest first; those of length zero, and those that a full basis has beyond
# them, are unit vectors of the axes made orthogonal to the ones before (twice, so that rounding does not matter).
FACTORS = """
    axis = 0
    for r in range(full):
        from_ = xs + order[o + min(r, short - 1)] * long
        length = d[o + order[o + min(r, short - 1)]] if r < short else 0.0
        u = item * long * long + r * long
        if length > {shortest}:
            for k in range(long):
                basis[u + k] = x[from_ + k] / length
        elif wrong == 0:
            found = 0.0
            while found < 0.1 and axis < long:
                for k in range(long):
                    basis[u + k] = 1.0 if k == axis else 0.0
                for turn in range(2):
                    for other in range(r):
                        b0 = item * long * long + other * long
                        s = 0.0
                        for k in range(long):
                            s = sum_f64(s, basis[u + k] * basis[b0 + k])
                        for k in range(long):
                            basis[u + k] = basis[u + k] - s * basis[b0 + k]
                found = 0.0
                for k in range(long):
                    found = sum_f64(found, basis[u + k] * basis[u + k])
                found = sqrt_f64(found) * sqrt_f64(f64(long))
                axis += 1
            found = found / sqrt_f64(f64(long))
            for k in range(long):
                basis[u + k] = basis[u + k] / found
    for r in range(full):
        for k in range(long):
            place = k * full + r if tall == 1 else r * long + k
            y = basis[item * long * long + r * long + k]
            {long_factor}[item * long * full + place] = T(y) if wrong == 0 else T(nan)
    for r in range(short):
        for k in range(short):
            place = r * short + k if tall == 1 else k * short + r
            y = v[vs + order[o + r] * short + k]
            {short_factor}[vs + place] = T(y) if wrong == 0 else T(nan)
"""


def rotations(text: str, **names: str) -> str:
    """The statements of a text of rotations, with names for what differs."""
    return text.format(
        sweeps=SWEEPS, epsilon=repr(2.0**-53), least=repr(SHORTEST**2), rank=RANK,
        angle=ANGLE.format(rounding=repr(ROUNDING)), **names,
    )  # fmt: skip


def memory_of(items: int, long: int, short: int) -> dict[str, tuple[str, int]]:
    """The temporaries of the rotations."""
    return {
        "x": ("f64", items * long * long), "v": ("f64", items * short * short), "d": ("f64", items * short),
        "noise": ("f64", items * short), "order": ("s64", items * short),
    }  # fmt: skip


def svd_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one svd; an item is a matrix."""
    instruction = request.instruction("svd")
    (a,) = instruction.operands
    m, n = a.dims[-2:]
    short, long = min(m, n), max(m, n)
    tall = m >= n
    factors = bool(instruction.attributes.get("compute_uv"))
    full = long if instruction.attributes.get("full_matrices") else short
    names = {
        "values": "out1" if factors else "out0",
        "long_factor": "out0" if tall else "out2",
        "short_factor": "out2" if tall else "out0",
    }
    text = rotations(ROTATE, **names) + (FACTORS.format(shortest=repr(SHORTEST), **names) if factors else "")
    items = batch(a.shape) if m and n else 0
    sizes = {"long": long, "short": short, "tall": int(tall)} | ({"full": full} if factors else {})
    memory = memory_of(items, long, short)
    if factors:
        memory["basis"] = ("f64", items * long * long)
    return matrix_launches(request, instruction, text, sizes, items, 40.0 * short * short * long + long, memory)
