"""A StableHLO program as `from_stablehlo` needs it: its arguments, and its module for their shapes."""

from __future__ import annotations

from hloom.errors import ArgumentError, UnsupportedError
from hloom.ir.module import Module
from hloom.ir.stablehlo import parse_program, to_module
from hloom.ir.stablehlo.reader.module import Converter
from hloom.ir.stablehlo.types import Tensor, Tuple
from hloom.ir.types import Shape, TupleShape

__all__ = ["StableHloModules"]


class _OpenShape:
    """The dtype and sizes of an argument, of which some are dynamic (None)."""

    def __init__(self, dtype, dims):
        self.dtype, self.dims, self.open = dtype, dims, dims

    def __repr__(self) -> str:
        return f"{self.dtype}[{','.join('?' if d is None else str(d) for d in self.dims)}]"


class StableHloModules:
    """The modules of a StableHLO text, for shapes of its arguments. The arguments of the constructor are those of
    `from_stablehlo`; it raises the same errors."""

    def __init__(self, text: str, file: str, function: str | None, input_shapes):
        self.program, self.function = parse_program(text, file), function
        self.converter = Converter(self.program, False)
        self.entry = self.converter._entry(function)
        self.name = self.entry.attributes["sym_name"]
        self.types = self.entry.attributes["function_type"].inputs
        self.given = None if input_shapes is None else tuple(None if s is None else tuple(s) for s in input_shapes)
        if self.given is not None and len(self.given) != len(self.types):
            raise ArgumentError(
                f"@{self.name} takes {len(self.types)} arguments",
                f"{len(self.given)} input_shapes",
                "pass one for each",
            )
        self.open = not self.converter.is_static(self.name) and any(None in getattr(t, "dims", ()) for t in self.types)

    def parameters(self):
        return self.types

    def names(self) -> list[str]:
        return [name.lstrip("%") for name, _ in self.entry.regions[0].arguments]

    def shape(self, type_):
        if isinstance(type_, Tuple):
            return TupleShape([self.shape(t) for t in type_.elements])
        if not isinstance(type_, Tensor):
            raise UnsupportedError(
                f"@{self.name} called from Python", f"an argument of type {type_}", "use a function of tensors"
            )
        dtype = self.converter.dtype(self.entry, type_)
        return Shape(dtype, type_.dims) if type_.static else _OpenShape(dtype, type_.dims)

    def module(self, shapes, known) -> Module:
        return to_module(self.program, self.function, shapes if shapes is not None else self.given, known)
