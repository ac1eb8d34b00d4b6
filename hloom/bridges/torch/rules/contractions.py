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
