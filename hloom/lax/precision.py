"""What functions of `hloom.lax` take to say how exact they may be. On the CPU results have full precision always."""

from __future__ import annotations

import enum
from typing import Any

from hloom.ir.records import record


class Precision(enum.Enum):
    """How exact a product may be on devices that have faster, coarser ones; on the CPU all are the same."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    def __str__(self) -> str:
        return self.name


@record(frozen=True)
class DotAlgorithm:
    """How a product is computed: dtypes of the operands and of the sum, and into how many parts operands are split."""

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class DotAlgorithmPreset(enum.Enum):
    """The algorithms that devices have: operands, sum, and how many products of parts. The CPU takes its own."""

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
    """The error that a function may have: absolute, relative, or in units of the last place."""

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0


class AccuracyMode(enum.Enum):
    """Which implementation of a function to take where a device has several; on the CPU there is one, the exact."""

    HIGHEST = 1
    DEFAULT = 2


PrecisionLike = Precision | DotAlgorithm | DotAlgorithmPreset | str | tuple | None
"""What functions accept as precision=."""
DotDimensionNumbers = tuple
"""((contracting left, right), (batch left, right)), positions of axes."""
