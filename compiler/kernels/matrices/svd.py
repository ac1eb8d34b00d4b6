"""svd: one-sided Jacobi rotations, in float64.

The columns of A (its rows where it has more columns than rows) are rotated until they are orthogonal. Their lengths
are the singular values, and the product of the rotations is the other factor. Vectors lie in memory: x[i] of length
`long` is a rotated column, v[i] of length `short` the same combination of unit vectors. The places of a matrix are `at`
in a, `xs` in x, `vs` in v, and `o` in the lengths.

Columns that lie in fewer dimensions than there are columns cannot all be orthogonal: some of them must become zero, and
rounding leaves vectors of noise in their place, whose directions, and so the cosines of their angles, mean nothing.
noise[i] bounds the square of what rounding has left in column i. A column that is no longer than that becomes zero.

Source: M. Hestenes, "Inversion of matrices by biorthogonalization and related results" (1958); J. Demmel, K. Veselić,
"Jacobi's method is more accurate than QR" (1992); Z. Drmač, K. Veselić, "New fast and accurate Jacobi SVD algorithm"
(2008), on the cosines that rounding allows.
"""

from __future__ import annotations

from hloom.compiler.kernel_ir.generic.language import (
    KernelFunction,
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

SWEEPS = 60  # over all pairs; 6 to 10 are usual. Beyond them the result is NaN.
# The largest element of a matrix is scaled to 1. The square of a column that is shorter than this would lose digits or
# underflow: it is so far below the rounding errors of the others that its direction does not matter.
SHORTEST = 1e-130
LEAST = SHORTEST**2
EPSILON = 2.0**-53
# Of the rounding errors in an element of a rotated column, relative to what it is made of, squared. An operation is off
# by 2^-53; a factor of 8 covers the three operations, errors in the angle, and how far errors exceed their mean.
ROUNDING = 2.0**-100


@kernel_function
def angle(noise: Pointer[f64], o: s64, i: s64, j: s64, alpha: f64, beta: f64, gamma: f64) -> tuple[f64, f64]:
    """The angle that makes two columns orthogonal: alpha and beta are their squared lengths, gamma their product.
    Errors in independent directions add up as squares."""
    zeta = (beta - alpha) / (2.0 * gamma)
    t = 1.0 / (abs(zeta) + sqrt(1.0 + zeta * zeta))
    t = -t if zeta < 0.0 else t
    c = 1.0 / sqrt(1.0 + t * t)
    s = c * t
    first = noise[o + i] + ROUNDING * alpha
    second = noise[o + j] + ROUNDING * beta
    noise[o + i] = c * c * first + s * s * second
    noise[o + j] = s * s * first + c * c * second
    return c, s


@kernel_function
def place_of(d: Pointer[f64], o: s64, i: s64, short: s64) -> s64:
    """The place of column i by length, the longest first."""
    rank = 0
    for k in range(short):
        if d[o + k] > d[o + i] or (d[o + k] == d[o + i] and k < i):
            rank += 1
    return rank


@kernel_function
def rotate(
    a: Pointer[T], x: Pointer[f64], v: Pointer[f64], d: Pointer[f64], noise: Pointer[f64], order: Pointer[s64],
    values: Pointer[T], at: s64, xs: s64, vs: s64, o: s64, long: s64, short: s64, tall: s64,
) -> tuple[s64, f64]:  # fmt: skip
    """x becomes the rotated columns, v the product of the rotations, `order` the columns by length. Returns what is
    not zero where that failed, and what the columns were divided by."""
    wrong = 0
    largest = 0.0
    for i in range(long * short):
        wrong += 0 if is_finite(a[at + i]) else 1
        largest = maximum(largest, abs(f64(a[at + i])))
    scale = largest if largest > 0.0 and wrong == 0 else 1.0
    for i in range(short):
        for k in range(long):
            place = k * short + i if tall == 1 else i * long + k
            x[xs + i * long + k] = f64(a[at + place]) / scale
        for k in range(short):
            v[vs + i * short + k] = 1.0 if i == k else 0.0
        noise[o + i] = 0.0
    parallel = EPSILON * (8.0 + sqrt(f64(long)))
    turned = 1
    sweep = 0
    while turned > 0 and wrong == 0:
        turned = 0
        sweep += 1
        if sweep > SWEEPS:
            wrong = 1
        for i in range(short - 1):
            for j in range(i + 1, short):
                turned = rotate_pair(x, v, noise, xs, vs, o, long, short, i, j, parallel, turned)
    for i in range(short):
        most = 0.0
        for k in range(long):
            most = maximum(most, abs(x[xs + i * long + k]))
        s = 0.0
        for k in range(long if most > 0.0 else 0):
            y = x[xs + i * long + k] / most
            s = summed(s, y * y)
        d[o + i] = most * sqrt(s)
        order[o + i] = i
        values[o + i] = T(nan)
    for i in range(short if wrong == 0 else 0):
        rank = place_of(d, o, i, short)
        order[o + rank] = i
        values[o + rank] = T(d[o + i] * scale)
    return wrong, scale


@kernel_function
def rotate_pair(
    x: Pointer[f64], v: Pointer[f64], noise: Pointer[f64], xs: s64, vs: s64, o: s64, long: s64, short: s64,
    i: s64, j: s64, parallel: f64, turned: s64,
) -> s64:  # fmt: skip
    """Makes columns i and j orthogonal. Returns how many pairs were not."""
    p = xs + i * long
    q = xs + j * long
    alpha = 0.0
    beta = 0.0
    gamma = 0.0
    for k in range(long):
        y = x[p + k]
        w = x[q + k]
        alpha = summed(alpha, y * y)
        beta = summed(beta, w * w)
        gamma = summed(gamma, y * w)
    for k in range(long if alpha <= noise[o + i] else 0):
        x[p + k] = 0.0
    for k in range(long if beta <= noise[o + j] else 0):
        x[q + k] = 0.0
    clear = alpha > maximum(noise[o + i], LEAST) and beta > maximum(noise[o + j], LEAST)
    if clear and abs(gamma) > parallel * sqrt(alpha) * sqrt(beta):
        turned += 1
        c, s = angle(noise, o, i, j, alpha, beta, gamma)
        for k in range(long):
            y = x[p + k]
            w = x[q + k]
            x[p + k] = c * y - s * w
            x[q + k] = s * y + c * w
        for k in range(short):
            y = v[vs + i * short + k]
            w = v[vs + j * short + k]
            v[vs + i * short + k] = c * y - s * w
            v[vs + j * short + k] = s * y + c * w
    return turned


@kernel_function
def svd_values(
    a: Pointer[T], x: Pointer[f64], v: Pointer[f64], d: Pointer[f64], noise: Pointer[f64], order: Pointer[s64],
    values: Pointer[T], long: s64, short: s64, tall: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """The singular values alone."""
    for item in range(lo, hi):
        at = item * long * short
        xs = item * long * long
        vs = item * short * short
        o = item * short
        rotate(a, x, v, d, noise, order, values, at, xs, vs, o, long, short, tall)


@kernel_function
def svd(
    a: Pointer[T], x: Pointer[f64], v: Pointer[f64], d: Pointer[f64], noise: Pointer[f64], order: Pointer[s64],
    basis: Pointer[f64], values: Pointer[T], long_factor: Pointer[T], short_factor: Pointer[T],
    long: s64, short: s64, tall: s64, full: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """The singular values and both factors, one of them of `full` vectors."""
    for item in range(lo, hi):
        at = item * long * short
        xs = item * long * long
        vs = item * short * short
        o = item * short
        wrong, scale = rotate(a, x, v, d, noise, order, values, at, xs, vs, o, long, short, tall)
        axis = 0
        for r in range(full):
            axis = unit_vector(x, d, order, basis, item, xs, o, long, short, r, wrong, axis)
        for r in range(full):
            for k in range(long):
                place = k * full + r if tall == 1 else r * long + k
                y = basis[item * long * long + r * long + k]
                long_factor[item * long * full + place] = T(y) if wrong == 0 else T(nan)
        for r in range(short):
            for k in range(short):
                place = r * short + k if tall == 1 else k * short + r
                y = v[vs + order[o + r] * short + k]
                short_factor[vs + place] = T(y) if wrong == 0 else T(nan)


@kernel_function
def unit_vector(
    x: Pointer[f64], d: Pointer[f64], order: Pointer[s64], basis: Pointer[f64],
    item: s64, xs: s64, o: s64, long: s64, short: s64, r: s64, wrong: s64, axis: s64,
) -> s64:  # fmt: skip
    """Vector r of the basis: the unit vector of the r-th longest column. Those of length zero, and those that a full
    basis has beyond them, are unit vectors of the axes made orthogonal to the ones before (twice, so that rounding does
    not matter). Returns the first axis that was not tried."""
    from_ = xs + order[o + min(r, short - 1)] * long
    length = d[o + order[o + min(r, short - 1)]] if r < short else 0.0
    u = item * long * long + r * long
    if length > SHORTEST:
        for k in range(long):
            basis[u + k] = x[from_ + k] / length
    elif wrong == 0:
        found = 0.0
        while found < 0.1 and axis < long:
            for k in range(long):
                basis[u + k] = 1.0 if k == axis else 0.0
            for _turn in range(2):
                for other in range(r):
                    b0 = item * long * long + other * long
                    s = 0.0
                    for k in range(long):
                        s = summed(s, basis[u + k] * basis[b0 + k])
                    for k in range(long):
                        basis[u + k] = basis[u + k] - s * basis[b0 + k]
            found = 0.0
            for k in range(long):
                found = summed(found, basis[u + k] * basis[u + k])
            found = sqrt(found) * sqrt(f64(long))
            axis += 1
        found = found / sqrt(f64(long))
        for k in range(long):
            basis[u + k] = basis[u + k] / found
    return axis


def memory_of(items: int, long: int, short: int) -> dict[str, tuple[str, int]]:
    """The temporaries of the rotations."""
    return {
        "x": ("f64", items * long * long), "v": ("f64", items * short * short), "d": ("f64", items * short),
        "noise": ("f64", items * short), "order": ("s64", items * short),
    }  # fmt: skip


def factor_names(tall: bool) -> dict[str, str]:
    """Which results the factors are."""
    longer, shorter = ("out0", "out2") if tall else ("out2", "out0")
    return {"values": "out1", "long_factor": longer, "short_factor": shorter}


def svd_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one svd; an item is a matrix."""
    instruction = request.instruction("svd")
    (a,) = instruction.operands
    m, n = a.dims[-2:]
    short, long, tall = min(m, n), max(m, n), m >= n
    items = batch(a.shape) if m and n else 0
    sizes = {"long": long, "short": short, "tall": int(tall)}
    temporaries = memory_of(items, long, short)
    function: KernelFunction = svd_values
    memory = {"values": "out0"}
    if instruction.attributes.get("compute_uv"):
        function, memory = svd, factor_names(tall)
        sizes["full"] = long if instruction.attributes.get("full_matrices") else short
        temporaries["basis"] = ("f64", items * long * long)
    work = 40.0 * short * short * long + long
    return matrix_launches(request, instruction, function, sizes, items, work, temporaries, memory)
