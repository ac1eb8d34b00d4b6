"""The names of precisions that functions of `hloom.lax` take. Products on the CPU have the full precision always."""

from __future__ import annotations

import enum


class Precision(enum.Enum):
    """How exact a product may be on devices that have faster, coarser ones; on the CPU all are the same."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    def __str__(self) -> str:
        return self.name


PrecisionLike = Precision | str | tuple | None
DotDimensionNumbers = tuple  # ((contracting left, right), (batch left, right)), positions of axes
