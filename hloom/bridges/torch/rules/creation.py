"""New arrays: filled, ranges, empty."""

from __future__ import annotations

import math

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import S64, convert, operand, splat
from hloom.bridges.torch.table import rule
from hloom.ir.types import FLOATS


@rule("full.default", "full_like.default", "new_full.default", result=True)
def full(first, value_or_size, value=None, *, dtype=None, result):
    return splat(value_or_size if value is None else value, result)


@rule("empty.memory_format", "empty_strided.default", "empty_like.default", "new_empty.default",
      "new_empty_strided.default", "zeros.default", "zeros_like.default", "new_zeros.default",
      "empty_permuted.default", "_efficientzerotensor.default", result=True)  # fmt: skip
def zeros(*arguments, dtype=None, result):
    """Uninitialized tensors are zeros here."""
    return splat(0, result)


@rule("ones.default", "ones_like.default", "new_ones.default", result=True)
def ones(*arguments, dtype=None, result):
    return splat(1, result)


@rule("arange.start_step", result=True)
def arange(start, end, step=1, *, dtype=None, result):
    if result.dtype in FLOATS and any(isinstance(v, float) for v in (start, end, step)):
        numbers = convert(lax.iota(S64, result.dims[0]), "f8")
        return numbers * operand(float(step), numbers.dtype) + operand(float(start), numbers.dtype)
    return lax.iota(S64, result.dims[0]) * operand(math.trunc(step), S64) + operand(math.trunc(start), S64)


@rule("prims::iota.default", result=True)
def iota(length, *, start, step, dtype, requires_grad=False, result):
    return lax.iota(S64, length) * operand(step, S64) + operand(start, S64)


@rule("eye.default", "eye.m", result=True)
def eye(rows, columns=None, *, dtype=None, result):
    return hnp.eye(*result.dims, dtype=result.dtype)
