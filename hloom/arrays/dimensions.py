"""Named dimensions whose sizes are chosen when an exported program is called: `hl.Dim("batch", 1, 4096)`."""

from __future__ import annotations

from typing import Any

from hloom.errors import ArgumentError
from hloom.ir.types import as_dtype

__all__ = ["Dim", "DimStruct"]

LARGEST = 1 << 40


class Dim:
    """A dimension of an argument of `hl.export`, of any size from `least` to `most`.

    name: an identifier; equal names are the same dimension. Raises ArgumentError.

        x = hl.ShapeDtypeStruct((hl.Dim("batch", 1, 4096), 784), "float32")
    """

    __slots__ = ("least", "most", "name")

    def __init__(self, name: str, least: int = 1, most: int = 4096):
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
            raise ArgumentError(f"Dim({name!r})", "its name is no identifier", "pass a name such as 'batch'")
        if not isinstance(least, int) or not isinstance(most, int) or not 0 < least <= most <= LARGEST:
            raise ArgumentError(
                f"Dim({name!r}, {least!r}, {most!r})",
                "the least size is at least 1, and at most the most",
                "pass two integers: Dim('batch', 1, 4096)",
            )
        self.name, self.least, self.most = name, least, most

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and (self.name, self.least, self.most) == (other.name, other.least, other.most)

    def __hash__(self) -> int:
        return hash((self.name, self.least, self.most))

    def __repr__(self) -> str:
        return f"Dim({self.name!r}, {self.least}, {self.most})"


class DimStruct:
    """The shape and dtype of an argument with named dimensions: what `ShapeDtypeStruct` makes of a shape with a Dim."""

    __slots__ = ("dtype", "shape", "weak")

    def __init__(self, shape: Any, dtype: Any, weak: bool = False):
        sizes = []
        for size in shape:
            if not isinstance(size, Dim):
                try:
                    size = int(size)
                except (TypeError, ValueError):
                    raise ArgumentError(
                        "ShapeDtypeStruct requires sizes", f"{shape!r}", "pass a tuple of integers and Dims"
                    ) from None
            sizes.append(size)
        self.shape, self.dtype, self.weak = tuple(sizes), as_dtype(dtype), weak

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name})"
