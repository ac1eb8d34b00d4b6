"""pinv: A^+ = V S^-1 U^H, by the rotations of the SVD, with the singular values of more than bound * the largest."""

from __future__ import annotations

from hloom.compiler.kernels.codegen.constants import literal
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.matrices import svd, unitary
from hloom.compiler.kernels.matrices.common import batch, is_complex, matrix_launches
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.types import HLO_NAME

# x[r], a rotated column, is u[r] times its length d[r]: v[r] (x[r] / d[r])^H / d[r] are the terms of the inverse. The
# square of d[r] may underflow.
BEGIN = """
    top = 0.0
    for r in range(short):
        top = max_f64(top, d[o + r])
    least = f64(b[item]) * top
    for r in range(short):
        d[o + r] = 1.0 / d[o + r] if d[o + r] > least and d[o + r] > 0.0 else 0.0
    for i in range(short):
        for k in range(long):
            place = at + (i * long + k if tall == 1 else k * short + i)
"""
REAL = """
            s = 0.0
            for r in range(short):
                s = sum_f64(s, v[vs + r * short + i] * (x[xs + r * long + k] * d[o + r]) * d[o + r])
            out0[place] = T(s / scale) if wrong == 0 else T(nan)
"""
COMPLEX = """
            sr = 0.0
            si = 0.0
            for r in range(short):
                p = vs + r * short + i
                q = xs + r * long + k
                yr = xr[q] * d[o + r]
                yi = xi[q] * d[o + r]
                sr = sum_f64(sr, (vr[p] * yr + vi[p] * yi) * d[o + r])
                si = sum_f64(si, (vi[p] * yr - vr[p] * yi) * d[o + r])
            y = R(sr / scale) if wrong == 0 else R(nan)
            w = R(si / scale) if wrong == 0 else R(nan)
            out0[place] = complex_R(y, w if tall == 1 else -w)
"""


def pinv_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one pinv; an item is a matrix."""
    instruction = request.instruction("pinv")
    a = instruction.operands[0]
    m, n = a.dims[-2:]
    short, long = min(m, n), max(m, n)
    items = batch(a.shape) if m and n else 0
    sizes = {"long": long, "short": short, "tall": int(m >= n)}
    if is_complex(instruction):
        text = unitary.HEAD + unitary.COLUMNS + svd.rotations(unitary.ROTATE, **unitary.TURNS)
        text += BEGIN + COMPLEX.lstrip("\n")
        memory = unitary.memory_of(items, long, short, basis=False)
    else:
        text = svd.rotations(svd.ROTATE, values="values") + BEGIN + REAL.lstrip("\n")
        memory = svd.memory_of(items, long, short) | {"values": (HLO_NAME[a.dtype], items * short)}
    bound = instruction.operands[1]
    if bound not in request.names:
        text = text.replace("b[item]", literal(bound["value"].item(), bound.dtype))
    work = (160.0 if is_complex(instruction) else 40.0) * short * short * long + long
    return matrix_launches(request, instruction, text, sizes, items, work, memory)
