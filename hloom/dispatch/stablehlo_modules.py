"""A StableHLO program as `from_stablehlo` needs it: its arguments, its module for their shapes, and its programs for
many sizes.

A text with open sizes is read for the sizes of a call that no program serves yet (`reader.open_sizes`). Where hloom
cannot read or compute it with open sizes, it is read at the sizes of each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.dispatch.backend import takes_open_sizes
from hloom.dispatch.jit import JitFunction, jit
from hloom.dispatch.open_arguments import open_function
from hloom.errors import ArgumentError, HloomError, UnsupportedError
from hloom.ir.module import Module, below
from hloom.ir.stablehlo import parse_program, to_module
from hloom.ir.stablehlo.reader.module import Converter
from hloom.ir.stablehlo.reader.open_sizes import OpenModule, bounds_of, open_module
from hloom.ir.stablehlo.syntax import Operation, Program
from hloom.ir.stablehlo.types import Tensor, Tuple
from hloom.ir.types import Shape, TupleShape
from hloom.tracing.signatures import names_of, results_of
from hloom.tracing.trace import Tracer

__all__ = ["OpenPrograms", "StableHloModules"]


class _OpenShape:
    """The dtype and sizes of an argument, of which some are dynamic (None), with their bounds (None: any)."""

    def __init__(self, dtype, dims, bounds):
        self.dtype, self.dims, self._bounds = dtype, dims, bounds

    def fits(self, given) -> bool:
        """Whether an array may have these sizes."""
        return len(given) == len(self.dims) and all(
            size == stated if stated is not None else bound is None or size <= bound
            for size, stated, bound in zip(given, self.dims, self._bounds, strict=True)
        )

    def __repr__(self) -> str:
        pairs = zip(self.dims, self._bounds, strict=True)
        sizes = [str(d) if d is not None else "?" if bound is None else f"<={bound}" for d, bound in pairs]
        return f"{self.dtype}[{','.join(sizes)}]"


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
        if type_.static:
            return Shape(dtype, type_.dims)
        try:
            return _OpenShape(dtype, type_.dims, bounds_of(type_))
        except ValueError as error:
            raise self.converter.fail(self.entry, f"the argument {type_}", str(error), "bound each dimension") from None

    def programs(self) -> OpenPrograms | None:
        """The programs of open sizes; None if the text has no open sizes."""
        if not self.open or not all(isinstance(t, Tensor) for t in self.types):
            return None
        return OpenPrograms(self.program, self.entry)

    def module(self, shapes, known) -> Module:
        return to_module(self.program, self.function, shapes if shapes is not None else self.given, known)


KEPT = 1024  # sizes of arguments whose program is kept


class OpenPrograms:
    """The programs of a function that takes tensors, by the sizes for which each is right."""

    def __init__(self, program: Program, function: Operation):
        self._program, self._function = program, function
        self._programs: list[tuple[OpenModule, JitFunction]] = []
        self._served: dict[tuple, tuple[OpenModule, JitFunction]] = {}
        self._closed = False

    def serving(self, leaves: Sequence) -> tuple[JitFunction, list[np.ndarray]] | None:
        """The program for some arguments, and its additional arguments; None if there is no program for these sizes
        alone."""
        if self._closed or not takes_open_sizes(leaves):
            return None
        shapes, values = tuple([leaf._shape for leaf in leaves]), tuple(map(_value, leaves))
        if any(shape.is_open for shape in shapes):
            return None
        found = self._served.get((shapes, None)) or self._served.get((shapes, values))
        if found is None:
            dims = [shape.dims for shape in shapes]
            found = next((one for one in self._programs if one[0].serves(dims, values)), None)
            found = found or self._read(dims, values)
            if found is None:
                return None
            if len(self._served) >= KEPT:
                self._served.clear()
            takes_values = any(axis is None for _, axis in found[0].places.values())
            self._served[shapes, values if takes_values else None] = found
        module, function = found
        return function, [np.empty((size, 0), np.bool_) for size in module.sizes(values)]

    def refuse(self) -> None:
        """Says that the program could be read at the sizes of arguments for which `serving` had none."""
        self._closed = True

    def _read(self, dims: Sequence[tuple[int, ...]], values: tuple) -> tuple[OpenModule, JitFunction] | None:
        try:
            try:
                module = open_module(self._program, self._function, dims, (None,) * len(values))
            except UnsupportedError:
                if all(value is None for value in values):
                    raise
                module = open_module(self._program, self._function, dims, values)
        except HloomError:
            return None  # specializing to these sizes either reports the error or works
        if any(one.device or one.sharding is not None for one in below(module.module.entry.instructions)):
            return None
        made = module, _function_of(module, self._function.attributes["sym_name"])
        self._programs.append(made)
        return made


def _value(leaf: Any) -> int | None:
    """The value of an argument that may be a size: of a scalar integer that is not traced."""
    if isinstance(leaf, (Tracer, ShapeDtypeStruct)) or leaf.ndim or leaf.dtype.kind not in "iu":
        return None
    return int(np.asarray(leaf))


def _function_of(module: OpenModule, name: str) -> JitFunction:
    """A module as a function of its arguments, followed by an empty array for each size that occurs in none of their
    shapes."""
    computation = module.module.entry
    names = names_of(computation) or [f"arg{k}" for k in range(len(computation.parameters))]
    run, dims = open_function(computation, names, results_of(computation.shape), module.alone)
    run.__name__ = run.__qualname__ = name
    return jit(run, dims=dims) if dims else jit(run)
