"""How elements lie in memory, in the words of `jax.experimental.layout`. Arrays of hloom are in row-major order."""

from __future__ import annotations

from typing import Any

from hloom.ir.records import record


@record(frozen=True)
class Layout:
    """The order of the axes of an array in memory, the outermost first."""

    major_to_minor: tuple[int, ...]
    tiling: Any = None
    sub_byte_element_size_in_bits: int = 0


@record(frozen=True)
class Format:
    """A layout and a sharding."""

    layout: Layout | None = None
    sharding: Any = None


__all__ = ["Format", "Layout"]
__dir__ = __all__.copy
