"""svd and eigh of complex matrices: one-sided Jacobi rotations, in float64, with real and imaginary parts apart.

A rotation of two columns takes the phase of their product out of the second one, and is then that of `svd`. A Hermitian
matrix with the sum of absolute values of its largest row added to the diagonal has no negative eigenvalue: its right
singular vectors are its eigenvectors, and its singular values the eigenvalues, less what was added.

Source: M. Hestenes, "Inversion of matrices by biorthogonalization and related results" (1958); J. Demmel, K. Veselić,
"Jacobi's method is more accurate than QR" (1992).
"""

from __future__ import annotations

from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.matrices.common import batch, matrix_launches
from hloom.compiler.kernels.matrices.svd import SHORTEST, rotations
from hloom.compiler.kernels.request import KernelRequest

HEAD = """
for item in range(lo, hi):
    at = item * long * short
    xs = item * long * long
    vs = item * short * short
    o = item * short
    wrong = 0
    largest = 0.0
    for i in range(long * short):
        y = f64(a[at + i].real)
        w = f64(a[at + i].imag)
        wrong += 0 if is_finite_f64(y) and is_finite_f64(w) else 1
        largest = max_f64(largest, max_f64(abs_f64(y), abs_f64(w)))
    scale = largest if largest > 0.0 and wrong == 0 else 1.0
"""
# The columns of A, or of its adjoint where it has more columns than rows.
COLUMNS = """
    for i in range(short):
        for k in range(long):
            place = at + (k * short + i if tall == 1 else i * long + k)
            xr[xs + i * long + k] = f64(a[place].real) / scale
            xi[xs + i * long + k] = f64(a[place].imag) / scale if tall == 1 else -f64(a[place].imag) / scale
"""
# One triangle, and its adjoint; the imaginary parts of the diagonal do not count.
HERMITIAN = """
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
            s = s + abs_f64(y) + abs_f64(w)
        added = max_f64(added, s)
    for i in range(short):
        xr[xs + i * short + i] = xr[xs + i * short + i] + added
"""
# Turns rows p and q of x or v, as they are kept, by the angle; the second one without the phase of the product.
TURN = """\
                    for k in range({size}):
                        yr = {x}r[p + k]
                        yi = {x}i[p + k]
                        wr = {x}r[q + k] * fr + {x}i[q + k] * fi
                        wi = {x}i[q + k] * fr - {x}r[q + k] * fi
                        {x}r[p + k] = c * yr - s * wr
                        {x}i[p + k] = c * yi - s * wi
                        {x}r[q + k] = s * yr + c * wr
                        {x}i[q + k] = s * yi + c * wi
"""
ROTATE = """
    for i in range(short):
        for k in range(short):
            vr[vs + i * short + k] = 1.0 if i == k else 0.0
            vi[vs + i * short + k] = 0.0
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
                real = 0.0
                imaginary = 0.0
                for k in range(long):
                    alpha = sum_f64(alpha, xr[p + k] * xr[p + k] + xi[p + k] * xi[p + k])
                    beta = sum_f64(beta, xr[q + k] * xr[q + k] + xi[q + k] * xi[q + k])
                    real = sum_f64(real, xr[p + k] * xr[q + k] + xi[p + k] * xi[q + k])
                    imaginary = sum_f64(imaginary, xr[p + k] * xi[q + k] - xi[p + k] * xr[q + k])
                big = max_f64(abs_f64(real), abs_f64(imaginary))
                fr = real / big if big > 0.0 else 1.0
                fi = imaginary / big if big > 0.0 else 0.0
                length = sqrt_f64(fr * fr + fi * fi)
                gamma = big * length
                fr = fr / length
                fi = fi / length
                for k in range(long if alpha <= noise[o + i] else 0):
                    xr[p + k] = 0.0
                    xi[p + k] = 0.0
                for k in range(long if beta <= noise[o + j] else 0):
                    xr[q + k] = 0.0
                    xi[q + k] = 0.0
                clear = alpha > max_f64(noise[o + i], {least}) and beta > max_f64(noise[o + j], {least})
                if clear and gamma > parallel * sqrt_f64(alpha) * sqrt_f64(beta):
{angle}{turn_columns}                    p = vs + i * short
                    q = vs + j * short
{turn_basis}    for i in range(short):
        most = 0.0
        for k in range(long):
            p = xs + i * long + k
            most = max_f64(most, max_f64(abs_f64(xr[p]), abs_f64(xi[p])))
        s = 0.0
        for k in range(long if most > 0.0 else 0):
            yr = xr[xs + i * long + k] / most
            yi = xi[xs + i * long + k] / most
            s = sum_f64(s, yr * yr + yi * yi)
        d[o + i] = most * sqrt_f64(s)
        order[o + i] = i
    for i in range(short if wrong == 0 else 0):
{rank}"""
VALUES = """
    for r in range(short):
        {values}[o + r] = R(d[o + order[o + r]] * scale) if wrong == 0 else R(nan)
"""
EIGEN = """
    for r in range(short):
        i = order[o + short - 1 - r]
        out0[o + r] = R((d[o + i] - added) * scale) if wrong == 0 else R(nan)
        for k in range(short):
            y = R(vr[vs + i * short + k]) if wrong == 0 else R(nan)
            w = R(vi[vs + i * short + k]) if wrong == 0 else R(nan)
            out1[at + k * short + r] = complex_R(y, w)
"""
# As in `svd`: unit vectors of the rotated columns, and unit vectors of axes made orthogonal to them for the others.
FACTORS = """
    axis = 0
    for r in range(full):
        from_ = xs + order[o + min(r, short - 1)] * long
        length = d[o + order[o + min(r, short - 1)]] if r < short else 0.0
        u = xs + r * long
        if length > {shortest}:
            for k in range(long):
                br[u + k] = xr[from_ + k] / length
                bi[u + k] = xi[from_ + k] / length
        elif wrong == 0:
            found = 0.0
            while found * found * f64(long) < 0.01 and axis < long:
                for k in range(long):
                    br[u + k] = 1.0 if k == axis else 0.0
                    bi[u + k] = 0.0
                for turn in range(2):
                    for other in range(r):
                        b0 = xs + other * long
                        sr = 0.0
                        si = 0.0
                        for k in range(long):
                            sr = sum_f64(sr, br[b0 + k] * br[u + k] + bi[b0 + k] * bi[u + k])
                            si = sum_f64(si, br[b0 + k] * bi[u + k] - bi[b0 + k] * br[u + k])
                        for k in range(long):
                            yr = br[b0 + k]
                            yi = bi[b0 + k]
                            br[u + k] = br[u + k] - (sr * yr - si * yi)
                            bi[u + k] = bi[u + k] - (sr * yi + si * yr)
                s = 0.0
                for k in range(long):
                    s = sum_f64(s, br[u + k] * br[u + k] + bi[u + k] * bi[u + k])
                found = sqrt_f64(s)
                axis += 1
            for k in range(long):
                br[u + k] = br[u + k] / found
                bi[u + k] = bi[u + k] / found
    for r in range(full):
        for k in range(long):
            place = k * full + r if tall == 1 else r * long + k
            y = R(br[xs + r * long + k]) if wrong == 0 else R(nan)
            w = R(bi[xs + r * long + k]) if wrong == 0 else R(nan)
            {long_factor}[item * long * full + place] = complex_R(y, w if tall == 1 else -w)
    for r in range(short):
        for k in range(short):
            place = r * short + k if tall == 1 else k * short + r
            y = R(vr[vs + order[o + r] * short + k]) if wrong == 0 else R(nan)
            w = R(vi[vs + order[o + r] * short + k]) if wrong == 0 else R(nan)
            {short_factor}[vs + place] = complex_R(y, -w if tall == 1 else w)
"""
TURNS = {"turn_columns": TURN.format(x="x", size="long"), "turn_basis": TURN.format(x="v", size="short")}


def memory_of(items: int, long: int, short: int, basis: bool) -> dict[str, tuple[str, int]]:
    """The temporaries of the rotations. basis: those of `FACTORS` as well."""
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
    names = {
        "values": "out1" if factors else "out0",
        "long_factor": "out0" if tall else "out2",
        "short_factor": "out2" if tall else "out0",
    }
    text = HEAD + COLUMNS + rotations(ROTATE, **TURNS) + VALUES.format(**names)
    text += FACTORS.format(shortest=repr(SHORTEST), **names) if factors else ""
    items = batch(a.shape) if m and n else 0
    sizes = {"long": long, "short": short, "tall": int(tall)}
    if factors:
        sizes["full"] = long if instruction.attributes.get("full_matrices") else short
    work = 160.0 * short * short * long + long
    return matrix_launches(request, instruction, text, sizes, items, work, memory_of(items, long, short, factors))


def eigh_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one eigh of Hermitian matrices; an item is a matrix."""
    instruction = request.instruction("eigh")
    (a,) = instruction.operands
    n = a.dims[-1]
    items = batch(a.shape) if n else 0
    text = HEAD + HERMITIAN + rotations(ROTATE, **TURNS) + EIGEN
    sizes = {"long": n, "short": n, "lower": int(bool(instruction.attributes.get("lower")))}
    return matrix_launches(request, instruction, text, sizes, items, 160.0 * n**3 + n, memory_of(items, n, n, False))
