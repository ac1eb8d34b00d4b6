"""svd and eigh of complex matrices: one-sided Jacobi rotations, in float64, with real and imaginary parts apart.

A rotation of two columns takes the phase of their product out of the second one, and is then that of `svd`. A Hermitian
matrix with the sum of absolute values of its largest row added to the diagonal has no negative eigenvalue: its right
singular vectors are its eigenvectors, and its singular values the eigenvalues, less what was added. Names are those of
`svd`, with `r` and `i` for the parts.

Source: M. Hestenes, "Inversion of matrices by biorthogonalization and related results" (1958); J. Demmel, K. Veselić,
"Jacobi's method is more accurate than QR" (1992).
"""

from __future__ import annotations

from hloom.compiler.kernel_ir.generic.language import (
    KernelFunction,
    Pointer,
    R,
    T,
    f64,
    is_finite,
    kernel_function,
    maximum,
    nan,
    pair,
    s64,
    sqrt,
    summed,
)
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.matrices.common import batch, matrix_launches
from hloom.compiler.kernels.matrices.svd import (
    EPSILON,
    LEAST,
    SHORTEST,
    SWEEPS,
    angle,
    factor_names,
    place_of,
)
from hloom.compiler.kernels.request import KernelRequest


@kernel_function
def measure(a: Pointer[T], at: s64, count: s64) -> tuple[s64, f64]:
    """How many numbers are not finite, and the largest part of one: the scale."""
    wrong = 0
    largest = 0.0
    for i in range(count):
        y = f64(a[at + i].real)
        w = f64(a[at + i].imag)
        wrong += 0 if is_finite(y) and is_finite(w) else 1
        largest = maximum(largest, maximum(abs(y), abs(w)))
    scale = largest if largest > 0.0 and wrong == 0 else 1.0
    return wrong, scale


@kernel_function
def read_columns(
    a: Pointer[T], xr: Pointer[f64], xi: Pointer[f64], at: s64, xs: s64, long: s64, short: s64, tall: s64, scale: f64
) -> None:
    """The columns of A, or of its adjoint where it has more columns than rows."""
    for i in range(short):
        for k in range(long):
            place = at + (k * short + i if tall == 1 else i * long + k)
            xr[xs + i * long + k] = f64(a[place].real) / scale
            xi[xs + i * long + k] = f64(a[place].imag) / scale if tall == 1 else -f64(a[place].imag) / scale


@kernel_function
def read_hermitian(
    a: Pointer[T], xr: Pointer[f64], xi: Pointer[f64], at: s64, xs: s64, long: s64, short: s64, lower: s64, scale: f64
) -> f64:
    """One triangle, and its adjoint; the imaginary parts of the diagonal do not count. Returns what is added to it."""
    added = 0.0
    for i in range(short):
        s = 0.0
        for k in range(short):
            row = max(i, k) if lower == 1 else min(i, k)
            place = at + row * short + (i + k - row)
            y = f64(a[place].real) / scale
            w = f64(a[place].imag) / scale
            w = 0.0 if i == k else w if row == k else -w
            xr[xs + i * short + k] = y
            xi[xs + i * short + k] = w
            s = s + abs(y) + abs(w)
        added = maximum(added, s)
    for i in range(short):
        xr[xs + i * short + i] = xr[xs + i * short + i] + added
    return added


@kernel_function
def turn(real: Pointer[f64], imag: Pointer[f64], p: s64, q: s64, size: s64, c: f64, s: f64, fr: f64, fi: f64) -> None:
    """Turns two rows by the angle; the second one without the phase of the product."""
    for k in range(size):
        yr = real[p + k]
        yi = imag[p + k]
        wr = real[q + k] * fr + imag[q + k] * fi
        wi = imag[q + k] * fr - real[q + k] * fi
        real[p + k] = c * yr - s * wr
        imag[p + k] = c * yi - s * wi
        real[q + k] = s * yr + c * wr
        imag[q + k] = s * yi + c * wi


@kernel_function
def rotate(
    xr: Pointer[f64], xi: Pointer[f64], vr: Pointer[f64], vi: Pointer[f64], d: Pointer[f64], noise: Pointer[f64],
    order: Pointer[s64], xs: s64, vs: s64, o: s64, long: s64, short: s64, wrong: s64,
) -> s64:  # fmt: skip
    """As `svd.rotate`, of columns that were read. Returns what is not zero where that failed."""
    for i in range(short):
        for k in range(short):
            vr[vs + i * short + k] = 1.0 if i == k else 0.0
            vi[vs + i * short + k] = 0.0
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
                turned = rotate_pair(xr, xi, vr, vi, noise, xs, vs, o, long, short, i, j, parallel, turned)
    for i in range(short):
        most = 0.0
        for k in range(long):
            p = xs + i * long + k
            most = maximum(most, maximum(abs(xr[p]), abs(xi[p])))
        s = 0.0
        for k in range(long if most > 0.0 else 0):
            yr = xr[xs + i * long + k] / most
            yi = xi[xs + i * long + k] / most
            s = summed(s, yr * yr + yi * yi)
        d[o + i] = most * sqrt(s)
        order[o + i] = i
    for i in range(short if wrong == 0 else 0):
        rank = place_of(d, o, i, short)
        order[o + rank] = i
    return wrong


@kernel_function
def rotate_pair(
    xr: Pointer[f64], xi: Pointer[f64], vr: Pointer[f64], vi: Pointer[f64], noise: Pointer[f64],
    xs: s64, vs: s64, o: s64, long: s64, short: s64, i: s64, j: s64, parallel: f64, turned: s64,
) -> s64:  # fmt: skip
    """Makes columns i and j orthogonal. Returns how many pairs were not."""
    p = xs + i * long
    q = xs + j * long
    alpha = 0.0
    beta = 0.0
    real = 0.0
    imaginary = 0.0
    for k in range(long):
        alpha = summed(alpha, xr[p + k] * xr[p + k] + xi[p + k] * xi[p + k])
        beta = summed(beta, xr[q + k] * xr[q + k] + xi[q + k] * xi[q + k])
        real = summed(real, xr[p + k] * xr[q + k] + xi[p + k] * xi[q + k])
        imaginary = summed(imaginary, xr[p + k] * xi[q + k] - xi[p + k] * xr[q + k])
    big = maximum(abs(real), abs(imaginary))
    fr = real / big if big > 0.0 else 1.0
    fi = imaginary / big if big > 0.0 else 0.0
    length = sqrt(fr * fr + fi * fi)
    gamma = big * length
    fr = fr / length
    fi = fi / length
    for k in range(long if alpha <= noise[o + i] else 0):
        xr[p + k] = 0.0
        xi[p + k] = 0.0
    for k in range(long if beta <= noise[o + j] else 0):
        xr[q + k] = 0.0
        xi[q + k] = 0.0
    clear = alpha > maximum(noise[o + i], LEAST) and beta > maximum(noise[o + j], LEAST)
    if clear and gamma > parallel * sqrt(alpha) * sqrt(beta):
        turned += 1
        c, s = angle(noise, o, i, j, alpha, beta, gamma)
        turn(xr, xi, p, q, long, c, s, fr, fi)
        p = vs + i * short
        q = vs + j * short
        turn(vr, vi, p, q, short, c, s, fr, fi)
    return turned


@kernel_function
def svd_values(
    a: Pointer[T], xr: Pointer[f64], xi: Pointer[f64], vr: Pointer[f64], vi: Pointer[f64], d: Pointer[f64],
    noise: Pointer[f64], order: Pointer[s64], values: Pointer[R],
    long: s64, short: s64, tall: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """The singular values alone."""
    for item in range(lo, hi):
        at = item * long * short
        xs = item * long * long
        vs = item * short * short
        o = item * short
        wrong, scale = measure(a, at, long * short)
        read_columns(a, xr, xi, at, xs, long, short, tall, scale)
        wrong = rotate(xr, xi, vr, vi, d, noise, order, xs, vs, o, long, short, wrong)
        write_values(d, order, values, o, short, wrong, scale)


@kernel_function
def write_values(
    d: Pointer[f64], order: Pointer[s64], values: Pointer[R], o: s64, short: s64, wrong: s64, scale: f64
) -> None:
    """The singular values, largest first."""
    for r in range(short):
        values[o + r] = R(d[o + order[o + r]] * scale) if wrong == 0 else R(nan)


@kernel_function
def svd(
    a: Pointer[T], xr: Pointer[f64], xi: Pointer[f64], br: Pointer[f64], bi: Pointer[f64], vr: Pointer[f64],
    vi: Pointer[f64], d: Pointer[f64], noise: Pointer[f64], order: Pointer[s64], values: Pointer[R],
    long_factor: Pointer[T], short_factor: Pointer[T],
    long: s64, short: s64, tall: s64, full: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """The singular values and both factors, one of them of `full` vectors."""
    for item in range(lo, hi):
        at = item * long * short
        xs = item * long * long
        vs = item * short * short
        o = item * short
        wrong, scale = measure(a, at, long * short)
        read_columns(a, xr, xi, at, xs, long, short, tall, scale)
        wrong = rotate(xr, xi, vr, vi, d, noise, order, xs, vs, o, long, short, wrong)
        write_values(d, order, values, o, short, wrong, scale)
        axis = 0
        for r in range(full):
            axis = unit_vector(xr, xi, br, bi, d, order, xs, o, long, short, r, wrong, axis)
        for r in range(full):
            for k in range(long):
                place = k * full + r if tall == 1 else r * long + k
                y = R(br[xs + r * long + k]) if wrong == 0 else R(nan)
                w = R(bi[xs + r * long + k]) if wrong == 0 else R(nan)
                long_factor[item * long * full + place] = pair(y, w if tall == 1 else -w)
        for r in range(short):
            for k in range(short):
                place = r * short + k if tall == 1 else k * short + r
                y = R(vr[vs + order[o + r] * short + k]) if wrong == 0 else R(nan)
                w = R(vi[vs + order[o + r] * short + k]) if wrong == 0 else R(nan)
                short_factor[vs + place] = pair(y, -w if tall == 1 else w)


@kernel_function
def unit_vector(
    xr: Pointer[f64], xi: Pointer[f64], br: Pointer[f64], bi: Pointer[f64], d: Pointer[f64], order: Pointer[s64],
    xs: s64, o: s64, long: s64, short: s64, r: s64, wrong: s64, axis: s64,
) -> s64:  # fmt: skip
    """As `svd.unit_vector`."""
    from_ = xs + order[o + min(r, short - 1)] * long
    length = d[o + order[o + min(r, short - 1)]] if r < short else 0.0
    u = xs + r * long
    if length > SHORTEST:
        for k in range(long):
            br[u + k] = xr[from_ + k] / length
            bi[u + k] = xi[from_ + k] / length
    elif wrong == 0:
        found = 0.0
        while found * found * f64(long) < 0.01 and axis < long:
            for k in range(long):
                br[u + k] = 1.0 if k == axis else 0.0
                bi[u + k] = 0.0
            for _turn in range(2):
                for other in range(r):
                    b0 = xs + other * long
                    sr = 0.0
                    si = 0.0
                    for k in range(long):
                        sr = summed(sr, br[b0 + k] * br[u + k] + bi[b0 + k] * bi[u + k])
                        si = summed(si, br[b0 + k] * bi[u + k] - bi[b0 + k] * br[u + k])
                    for k in range(long):
                        yr = br[b0 + k]
                        yi = bi[b0 + k]
                        br[u + k] = br[u + k] - (sr * yr - si * yi)
                        bi[u + k] = bi[u + k] - (sr * yi + si * yr)
            s = 0.0
            for k in range(long):
                s = summed(s, br[u + k] * br[u + k] + bi[u + k] * bi[u + k])
            found = sqrt(s)
            axis += 1
        for k in range(long):
            br[u + k] = br[u + k] / found
            bi[u + k] = bi[u + k] / found
    return axis


@kernel_function
def eigh(
    a: Pointer[T], out0: Pointer[R], out1: Pointer[T], xr: Pointer[f64], xi: Pointer[f64], vr: Pointer[f64],
    vi: Pointer[f64], d: Pointer[f64], noise: Pointer[f64], order: Pointer[s64],
    long: s64, short: s64, lower: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """The eigenvalues, and the vectors as columns."""
    for item in range(lo, hi):
        at = item * long * short
        xs = item * long * long
        vs = item * short * short
        o = item * short
        wrong, scale = measure(a, at, long * short)
        added = read_hermitian(a, xr, xi, at, xs, long, short, lower, scale)
        wrong = rotate(xr, xi, vr, vi, d, noise, order, xs, vs, o, long, short, wrong)
        for r in range(short):
            i = order[o + short - 1 - r]
            out0[o + r] = R((d[o + i] - added) * scale) if wrong == 0 else R(nan)
            for k in range(short):
                y = R(vr[vs + i * short + k]) if wrong == 0 else R(nan)
                w = R(vi[vs + i * short + k]) if wrong == 0 else R(nan)
                out1[at + k * short + r] = pair(y, w)


def memory_of(items: int, long: int, short: int, basis: bool) -> dict[str, tuple[str, int]]:
    """The temporaries of the rotations. basis: those of the factors as well."""
    memory = dict.fromkeys(("xr", "xi", *(("br", "bi") if basis else ())), ("f64", items * long * long))
    memory |= dict.fromkeys(("vr", "vi"), ("f64", items * short * short))
    memory |= dict.fromkeys(("d", "noise"), ("f64", items * short))
    return memory | {"order": ("s64", items * short)}


def svd_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one svd of complex matrices; an item is a matrix."""
    instruction = request.instruction("svd")
    (a,) = instruction.operands
    m, n = a.dims[-2:]
    short, long, tall = min(m, n), max(m, n), m >= n
    factors = bool(instruction.attributes.get("compute_uv"))
    items = batch(a.shape) if m and n else 0
    sizes = {"long": long, "short": short, "tall": int(tall)}
    function: KernelFunction = svd_values
    memory = {"values": "out0"}
    if factors:
        function, memory = svd, factor_names(tall)
        sizes["full"] = long if instruction.attributes.get("full_matrices") else short
    work = 160.0 * short * short * long + long
    temporaries = memory_of(items, long, short, factors)
    return matrix_launches(request, instruction, function, sizes, items, work, temporaries, memory)


def eigh_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one eigh of Hermitian matrices; an item is a matrix."""
    instruction = request.instruction("eigh")
    (a,) = instruction.operands
    n = a.dims[-1]
    items = batch(a.shape) if n else 0
    sizes = {"long": n, "short": n, "lower": int(bool(instruction.attributes.get("lower")))}
    temporaries = memory_of(items, n, n, False)
    return matrix_launches(request, instruction, eigh, sizes, items, 160.0 * n**3 + n, temporaries)
