"""Promotion: the common dtype and shape of operands.

Promotion follows `hloom.ir.types.promote`: JAX's lattice, where Python numbers are weak. `hl.config.enable_x64` and
`narrow_numpy` set the width of their default dtypes.
"""

from __future__ import annotations

import warnings
from functools import lru_cache

import ml_dtypes
import numpy as np

from hloom.arrays.base import ArrayMethods
from hloom.config import config
from hloom.errors import ShapeError
from hloom.ir.sizes.expressions import is_known
from hloom.ir.sizes.guards import size_key
from hloom.ir.types import (
    DTYPES,
    INEXACT,
    canonical_dims,
    default_dtype,
    narrow_scalars,
    promote,
    scalar_dtype,
    set_default_width,
    strict_promotion,
)

NUMBERS = (bool, int, float, complex)
F32, F64 = DTYPES["f32"], DTYPES["f64"]
_WIDE_INTEGERS = frozenset((DTYPES["s64"], DTYPES["u64"]))

promoted = lru_cache(maxsize=4096)(promote)


def _use_width(wide: bool) -> None:
    set_default_width(64 if wide else 32)
    promoted.cache_clear()


def _use_rules(_=None) -> None:
    narrow_scalars(config.narrow_numpy and not config.enable_x64)
    strict_promotion(config.numpy_dtype_promotion == "strict")
    promoted.cache_clear()


config.on_change("enable_x64", _use_width)
if config.enable_x64:
    set_default_width(64)
for _name in ("enable_x64", "narrow_numpy", "numpy_dtype_promotion"):
    config.on_change(_name, _use_rules)
_use_rules()


def default_float() -> np.dtype:
    """f32, or f64 with `hl.config.enable_x64`."""
    return default_dtype(float)


def default_int() -> np.dtype:
    """s32, or s64 with `hl.config.enable_x64`."""
    return default_dtype(int)


def dtype_of(value) -> tuple[np.dtype, bool]:
    """(dtype, weak) of an operand: an Array, a Tracer or a Python number."""
    return (value._shape.dtype, value.weak) if isinstance(value, ArrayMethods) else scalar_dtype(value)


def dims_of(value) -> tuple[int, ...]:
    return value._shape.dims if isinstance(value, ArrayMethods) else ()


@lru_cache(maxsize=64)
def limits(dtype) -> tuple[int, int]:
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


def inexact_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in which functions of real numbers compute: s64 and u64 become f64, other integers and pred f32."""
    if dtype in INEXACT:
        return dtype
    return F64 if dtype in _WIDE_INTEGERS else F32


def check_ranks(name: str, shapes) -> None:
    """Applies `hl.config.numpy_rank_promotion` to operands of different shapes. Raises ShapeError."""
    rule = config.numpy_rank_promotion
    if rule == "allow" or len({len(dims) for dims in shapes if dims}) < 2:
        return
    error = ShapeError(
        f"{name} takes arrays of one rank, as numpy_rank_promotion is {rule!r}",
        " and ".join(str(dims) for dims in shapes),
        "reshape one of them, for example with x[None]",
    )
    if rule == "raise":
        raise error
    warnings.warn(str(error), stacklevel=3)


def are_same(first: tuple, other: tuple) -> bool:
    """Whether dimensions are known to be equal."""
    if first is other or (first.__class__ is tuple and other.__class__ is tuple):
        return first == other
    return len(first) == len(other) and all(a is b or is_known(a == b) for a, b in zip(first, other, strict=True))


def _different(sizes) -> list:
    """The sizes of which none equals another. Raises UndecidedSizeError if it is not known."""
    found: list = []
    for size in sizes:
        if not any([size == other for other in found]):
            found.append(size)
    return found


def broadcast_shapes(name: str, shapes) -> tuple[int, ...]:
    """The shape to which all shapes broadcast by NumPy's rule. Raises ShapeError."""
    first = shapes[0]
    for other in shapes:
        if not are_same(first, other):
            break
    else:
        return first
    stretched = [s for s in shapes if s]
    if all(are_same(s, stretched[0]) for s in stretched):
        return stretched[0]
    rank = max(len(s) for s in shapes)
    result = []
    for k in range(-rank, 0):
        sizes = {size_key(s[k]): s[k] for s in shapes if len(s) >= -k}
        sizes.pop(1, None)
        if len(sizes) > 1:
            different = _different(sizes.values())
            if len(different) == 1:
                result.append(different[0])
                continue
            raise ShapeError(
                f"Incompatible shapes for broadcasting: {name} broadcasts its operands to one shape",
                " and ".join(str(s) for s in shapes) + f", which differ in axis {k}",
                "reshape or transpose one of them so that each pair of sizes is equal or contains a 1",
            )
        result.append(next(iter(sizes.values()), 1))
    return canonical_dims(result)
