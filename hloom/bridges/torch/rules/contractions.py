"""Products of matrices."""

from __future__ import annotations

import hloom.numpy as hnp
from hloom.bridges.torch.dtypes import F32, convert, operand
from hloom.bridges.torch.table import rule
from hloom.ir.types import INEXACT, NARROW_FLOATS


def product(x, y):
    """x y, of narrow floats in f32: what is added to it is rounded with it."""
    if x.dtype in NARROW_FLOATS:
        return hnp.matmul(x, y, preferred_element_type=F32)
    return hnp.matmul(x, y)


@rule("mm.default", "bmm.default", "matmul.default")
def mm(x, y):
    return hnp.matmul(x, y)


@rule("mv.default", "dot.default")
def mv(x, y):
    return hnp.matmul(x, y)


def _scaled(x, factor):
    return x if factor == 1 else x * operand(factor if x.dtype in INEXACT else int(factor), x.dtype)


@rule("addmm.default", "baddbmm.default", "addmv.default")
def addmm(bias, x, y, *, beta=1, alpha=1):
    found = _scaled(product(x, y), alpha)
    return found if beta == 0 else found + _scaled(convert(bias, found.dtype), beta)


@rule("addr.default")
def addr(bias, x, y, *, beta=1, alpha=1):
    found = _scaled(hnp.outer(x, y), alpha)
    return found if beta == 0 else found + _scaled(bias, beta)


@rule("addbmm.default")
def addbmm(bias, x, y, *, beta=1, alpha=1):
    """The sum of the products of a batch."""
    found = _scaled(convert(hnp.sum(product(x, y), axis=0), x.dtype), alpha)
    return found if beta == 0 else found + _scaled(bias, beta)


@rule("_trilinear.default")
def trilinear(x, y, z, expand_x, expand_y, expand_z, sums, unroll_dim=1):
    """The products of three arrays, each with dimensions of 1 put in, summed over some dimensions."""
    rank = x.ndim + len(expand_x)
    letters = "abcdefghijklmnopqrstuvwxyz"[:rank]
    own = ["".join(c for k, c in enumerate(letters) if k not in missing) for missing in (expand_x, expand_y, expand_z)]
    kept = "".join(c for k, c in enumerate(letters) if k not in [d % rank for d in sums])
    return hnp.einsum(f"{','.join(own)}->{kept}", x, y, z)
