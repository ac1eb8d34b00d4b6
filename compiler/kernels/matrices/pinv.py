"""pinv: A^+ = V S^-1 U^H, by the rotations of the SVD, with the singular values of more than bound * the largest.

x[r], a rotated column, is u[r] times its length d[r]: v[r] (x[r] / d[r])^H / d[r] are the terms of the inverse. The
square of d[r] may underflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloom.compiler.kernel_ir.generic.language import (
    KernelFunction,
    Pointer,
    R,
    T,
    f64,
    kernel_function,
    maximum,
    nan,
    pair,
    s64,
    summed,
)
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.matrices import svd, unitary
from hloom.compiler.kernels.matrices.common import batch, is_complex, matrix_launches
from hloom.compiler.kernels.matrices.svd import rotate
from hloom.compiler.kernels.matrices.unitary import measure, read_columns
from hloom.compiler.kernels.matrices.unitary import rotate as rotate_complex
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.types import HLO_NAME

if TYPE_CHECKING:
    from hloom.compiler.kernel_ir.generic.specialize import Known


@kernel_function
def invert(d: Pointer[f64], b: Pointer[R] | None, bound: float, item: s64, o: s64, short: s64) -> None:
    """The lengths become their inverses, or 0. The bound is an operand or a constant."""
    top = 0.0
    for r in range(short):
        top = maximum(top, d[o + r])
    least = f64(R(bound) if b is None else b[item]) * top
    for r in range(short):
        d[o + r] = 1.0 / d[o + r] if d[o + r] > least and d[o + r] > 0.0 else 0.0


@kernel_function
def pinv_real(
    a: Pointer[T], b: Pointer[R] | None, bound: float, out0: Pointer[T], x: Pointer[f64], v: Pointer[f64],
    d: Pointer[f64], noise: Pointer[f64], order: Pointer[s64], values: Pointer[T],
    long: s64, short: s64, tall: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """The inverse of a real matrix."""
    for item in range(lo, hi):
        at = item * long * short
        xs = item * long * long
        vs = item * short * short
        o = item * short
        wrong, scale = rotate(a, x, v, d, noise, order, values, at, xs, vs, o, long, short, tall)
        invert(d, b, bound, item, o, short)
        for i in range(short):
            for k in range(long):
                place = at + (i * long + k if tall == 1 else k * short + i)
                s = 0.0
                for r in range(short):
                    s = summed(s, v[vs + r * short + i] * (x[xs + r * long + k] * d[o + r]) * d[o + r])
                out0[place] = T(s / scale) if wrong == 0 else T(nan)


@kernel_function
def pinv_complex(
    a: Pointer[T], b: Pointer[R] | None, bound: float, out0: Pointer[T], xr: Pointer[f64], xi: Pointer[f64],
    vr: Pointer[f64], vi: Pointer[f64], d: Pointer[f64], noise: Pointer[f64], order: Pointer[s64],
    long: s64, short: s64, tall: s64, lo: s64, hi: s64,
) -> None:  # fmt: skip
    """The inverse of a complex matrix."""
    for item in range(lo, hi):
        at = item * long * short
        xs = item * long * long
        vs = item * short * short
        o = item * short
        wrong, scale = measure(a, at, long * short)
        read_columns(a, xr, xi, at, xs, long, short, tall, scale)
        wrong = rotate_complex(xr, xi, vr, vi, d, noise, order, xs, vs, o, long, short, wrong)
        invert(d, b, bound, item, o, short)
        for i in range(short):
            for k in range(long):
                place = at + (i * long + k if tall == 1 else k * short + i)
                sr = 0.0
                si = 0.0
                for r in range(short):
                    p = vs + r * short + i
                    q = xs + r * long + k
                    yr = xr[q] * d[o + r]
                    yi = xi[q] * d[o + r]
                    sr = summed(sr, (vr[p] * yr + vi[p] * yi) * d[o + r])
                    si = summed(si, (vi[p] * yr - vr[p] * yi) * d[o + r])
                y = R(sr / scale) if wrong == 0 else R(nan)
                w = R(si / scale) if wrong == 0 else R(nan)
                out0[place] = pair(y, w if tall == 1 else -w)


def pinv_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one pinv; an item is a matrix."""
    instruction = request.instruction("pinv")
    a, bound = instruction.operands
    m, n = a.dims[-2:]
    short, long = min(m, n), max(m, n)
    items = batch(a.shape) if m and n else 0
    sizes = {"long": long, "short": short, "tall": int(m >= n)}
    function: KernelFunction = pinv_complex if is_complex(instruction) else pinv_real
    if is_complex(instruction):
        temporaries = unitary.memory_of(items, long, short, basis=False)
    else:
        temporaries = svd.memory_of(items, long, short) | {"values": (HLO_NAME[a.dtype], items * short)}
    known: dict[str, Known] = {"bound": 0.0}
    if bound not in request.names:  # the shortest decimal of the dtype itself
        known |= {"b": None, "bound": float(str(bound["value"].reshape(())[()]))}
    work = (160.0 if is_complex(instruction) else 40.0) * short * short * long + long
    return matrix_launches(request, instruction, function, sizes, items, work, temporaries, known=known)
