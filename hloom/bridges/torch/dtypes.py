"""PyTorch's dtypes as hloom's, and the promotion of operands as PyTorch does it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from hloom import lax
from hloom.arrays.base import ArrayMethods
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.types import DTYPES, NARROW_FLOATS, Shape
from hloom.lax.operands import constant

_NAMES = {
    torch.bool: "pred",
    torch.int8: "s8",
    torch.int16: "s16",
    torch.int32: "s32",
    torch.int64: "s64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.float8_e4m3fn: "f8e4m3fn",
    torch.float8_e4m3fnuz: "f8e4m3fnuz",
    torch.float8_e5m2: "f8e5m2",
    torch.float8_e5m2fnuz: "f8e5m2fnuz",
    torch.float8_e8m0fnu: "f8e8m0fnu",
}
TO_HLOOM: dict[torch.dtype, np.dtype] = {theirs: DTYPES[ours] for theirs, ours in _NAMES.items()}
TO_TORCH: dict[np.dtype, torch.dtype] = {ours: theirs for theirs, ours in TO_HLOOM.items()}
F32, S64, PRED = DTYPES["f32"], DTYPES["s64"], DTYPES["pred"]


def dtype_of(value) -> np.dtype:
    """hloom's dtype of a torch.dtype, or of an array."""
    return TO_HLOOM[value] if isinstance(value, torch.dtype) else value.dtype


def convert(x, dtype):
    """An array in a dtype (torch's or hloom's); itself if it has it."""
    wanted = TO_HLOOM[dtype] if isinstance(dtype, torch.dtype) else dtype
    if x.dtype == wanted:
        return x
    if wanted == PRED:
        return lax.ne(x, lax.full_like(x, 0))
    return lax.convert_element_type(x, wanted)


def natural(number) -> torch.dtype:
    """The dtype of a Python number where nothing else decides."""
    if isinstance(number, bool):
        return torch.bool
    if isinstance(number, (int, SizeExpression)):
        return torch.int64
    default = torch.get_default_dtype()
    return default if isinstance(number, float) else torch.complex128 if default == torch.float64 else torch.complex64


def _joined(high: torch.dtype | None, low: torch.dtype | None) -> torch.dtype | None:
    """ATen's `combine_categories`: combines the dtype of operands of a higher priority with that of a lower one."""
    if high is None or low is None:
        return low if high is None else high
    if high.is_complex:
        return high
    if high.is_floating_point:
        return high.to_complex() if low.is_complex else high
    if high == torch.bool or low.is_floating_point or low.is_complex:
        return torch.promote_types(high, low)
    return high


@lru_cache(maxsize=4096)
def _promoted(kinds: tuple) -> torch.dtype:
    found: list[torch.dtype | None] = [None, None, None]
    for priority, dtype in kinds:
        known = found[priority]
        found[priority] = dtype if known is None else torch.promote_types(known, dtype)
    result = _joined(_joined(found[0], found[1]), found[2])
    assert result is not None, "an op without operands has a declared dtype"
    return result


def result_type(*values) -> torch.dtype:
    """PyTorch's common dtype of arrays and Python numbers: arrays with dimensions take precedence over those without,
    and those over numbers."""
    kinds = []
    for value in values:
        if isinstance(value, ArrayMethods):
            kinds.append((0 if value.ndim else 1, TO_TORCH[value.dtype]))
        elif value is not None:
            kinds.append((2, natural(value)))
    return _promoted(tuple(kinds))


def in_floats(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a real-valued function: PyTorch's default for integers and booleans."""
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()


def computed_in(dtype: torch.dtype) -> np.dtype:
    """The dtype in which PyTorch computes an element: f32 for the narrow floats."""
    found = TO_HLOOM[dtype]
    return F32 if found in NARROW_FLOATS else found


def operand(value, dtype: np.dtype):
    """An array or Python number as an array of a dtype."""
    if isinstance(value, ArrayMethods):
        return convert(value, dtype)
    if isinstance(value, SizeExpression) and dtype == PRED:
        return lax.ne(constant(value, S64), constant(0, S64))
    if isinstance(value, SizeExpression) and dtype.kind in "iu" and dtype.itemsize < 4:
        value = int(value)  # whether there is room is known now
    return constant(value if dtype != PRED else bool(value), dtype)


def count(size, dtype: np.dtype):
    """A number of elements, which may be open, as an array of a float's dtype."""
    return operand(size if isinstance(size, SizeExpression) else float(size), dtype)


def splat(value, shape: Shape):
    """An array of a shape filled with a number."""
    if isinstance(value, SizeExpression):
        return lax.full(shape.dims, operand(value, shape.dtype), shape.dtype)
    return lax.full(shape.dims, np.asarray(value).astype(shape.dtype), shape.dtype)
