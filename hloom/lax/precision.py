"""Precision arguments of `hloom.lax` functions. On the CPU results always have full precision."""

from __future__ import annotations

import enum
from typing import Any

from hloom.ir.records import record


class Precision(enum.Enum):
    """The precision of a product on devices with faster, less precise ones; on the CPU all are equivalent."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    def __str__(self) -> str:
        return self.name


@record(frozen=True)
class DotAlgorithm:
    """The algorithm of a product: dtypes of the operands and of the sum, and the number of parts that operands are
    split into."""

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class DotAlgorithmPreset(enum.Enum):
    """The algorithms of devices: operands, sum, and number of partial products. The CPU ignores them."""

    DEFAULT = enum.auto()
    ANY_F8_ANY_F8_F32 = enum.auto()
    ANY_F8_ANY_F8_F32_FAST_ACCUM = enum.auto()
    ANY_F8_ANY_F8_ANY = enum.auto()
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = enum.auto()
    F16_F16_F16 = enum.auto()
    F16_F16_F32 = enum.auto()
    BF16_BF16_BF16 = enum.auto()
    BF16_BF16_F32 = enum.auto()
    BF16_BF16_F32_X3 = enum.auto()
    BF16_BF16_F32_X6 = enum.auto()
    BF16_BF16_F32_X9 = enum.auto()
    TF32_TF32_F32 = enum.auto()
    TF32_TF32_F32_X3 = enum.auto()
    F32_F32_F32 = enum.auto()
    F64_F64_F64 = enum.auto()

    def __str__(self) -> str:
        return self.name


@record(frozen=True)
class Tolerance:
    """The permitted error of a function: absolute, relative, or in units in the last place."""

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0


class AccuracyMode(enum.Enum):
    """The implementation of a function to use if a device has several; the CPU has only the accurate one."""

    HIGHEST = 1
    DEFAULT = 2


PrecisionLike = Precision | DotAlgorithm | DotAlgorithmPreset | str | tuple | None
"""The values that functions accept as precision=."""
DotDimensionNumbers = tuple
"""((contracting left, right), (batch left, right)), axis indices."""
