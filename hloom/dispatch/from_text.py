"""Programs in text as functions: `hl.from_stablehlo`, `hl.from_hlo`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.dispatch.jit import JitFunction, jit
from hloom.dispatch.stages import Lowered
from hloom.errors import ArgumentError, DTypeError, ParseError, ShapeError, UnsupportedError
from hloom.ir.build import Builder, tuple_elements
from hloom.ir.module import Computation, Instruction, Module, below
from hloom.ir.portable import fusions_as_calls
from hloom.ir.source import on_device
from hloom.ir.text import parse_module
from hloom.ir.types import Shape, TupleShape, scalar_dtype
from hloom.ir.verify import verify
from hloom.platforms.device import find_device
from hloom.tracing.signatures import named, results_of
from hloom.tracing.trace import Tracer, apply_computation, as_array


def from_stablehlo(source, *, function: str | None = None, input_shapes=None) -> Program:
    """The function that a StableHLO program describes (MLIR text with the dialects func, stablehlo and chlo).

    source: the text, a path (os.PathLike, or a string that ends in .mlir), or an open file.
    function: which function; by default @main, or the only public one.
    input_shapes: a shape for each argument, where the program has dynamic sizes (`tensor<?x4xf32>`); by default the
        shapes of the arrays that it is called with. They decide the results of `dynamic_*` ops.

    Returns a callable like a jitted function: `f(*arrays)`, `f.lower(*arrays)`; it works in jit, grad, vmap. A program
    of one result returns an array, one of several a tuple. One with dynamic sizes is read and compiled once for all
    sizes for which the text means the same operations; `f.lower` takes shapes with `hl.Dim`s, too.
    Raises ParseError (line, column, caret), UnsupportedError for an op or a type that hloom lacks (also for sizes that
    depend on values), ShapeError and DTypeError where arguments do not fit.
    """
    # Saves start-up time: only StableHLO needs its reader.
    from hloom.dispatch.stablehlo_modules import StableHloModules

    text, file = _read(source, (".mlir", ".stablehlo"))
    return Program(StableHloModules(text, file, function, input_shapes), file)


def from_hlo(source) -> Program:
    """The function that a module of HLO text describes: its ENTRY computation.

    source: the text, a path (os.PathLike, or a string that ends in .hlo or .txt), or an open file. Parameters that are
    tuples are taken as Python tuples. Returns and raises as `from_stablehlo` does.

    >>> text = hl.jit(lambda x: 2 * x).lower(hnp.zeros(3)).as_text()
    >>> double = hl.from_hlo(text)
    >>> double(hnp.array([1.0, 2.0, 3.0]))
    Array([2., 4., 6.], dtype=float32)
    """
    text, file = _read(source, (".hlo", ".txt"))
    module = parse_module(text, file)
    verify(module)
    return Program(_Hlo(fusions_as_calls(module)), file)


def _read(source, endings) -> tuple[str, str]:
    if hasattr(source, "read"):
        text, file = source.read(), getattr(source, "name", "<text>")
        return (text.decode("utf-8") if isinstance(text, bytes) else text), str(file)
    if isinstance(source, os.PathLike) or (isinstance(source, str) and "\n" not in source and source.endswith(endings)):
        return Path(source).read_text(encoding="utf-8"), str(source)
    if isinstance(source, bytes):
        source = source.decode("utf-8", "replace")
    if not isinstance(source, str):
        raise ArgumentError(
            "a program from text or from a file",
            f"{type(source).__name__}",
            f"pass text or a path to a file ({endings[0]})",
        )
    return source, "<text>"


class Program:
    """A program in text as a function. It is compiled by its first call for each set of shapes."""

    def __init__(self, reader, file: str):
        self._reader = reader
        self._functions: dict[tuple, JitFunction] = {}
        self._open = reader.programs()
        self.__name__ = reader.name
        self.__qualname__ = self.__name__
        self.__doc__ = f"{self.__name__}, from {file}"

    def __call__(self, *args, **kwargs):
        """Arguments go by position or by the names that the text has."""
        operands = self._leaves(self._by_position(args, kwargs))
        found = None if self._open is None else self._open.serving(operands)
        if found is not None:
            function, sizes = found
            return function(*operands, *sizes)
        function = self._fixed(operands)
        if self._open is not None:
            self._open.refuse()
        return function(*operands)

    def lower(self, *args, **kwargs) -> Lowered:
        """As `hl.jit(f).lower`: traces for these arguments (arrays or ShapeDtypeStructs) without running."""
        operands = self._leaves(self._by_position(args, kwargs))
        return self._fixed(operands).lower(*operands)

    def module(self, *args) -> Module:
        """The module as read, for these arguments (none are needed where the text has all shapes)."""
        if not args:
            return self._reader.module(None, ())
        _, shapes, known = self._key(self._leaves(args))
        return self._reader.module(shapes, known)

    def __repr__(self) -> str:
        return f"<{self.__doc__}>"

    def _by_position(self, args: tuple, kwargs: dict) -> tuple:
        """The arguments in the text's order. Raises ArgumentError for names that it does not have."""
        if not kwargs:
            return args
        names = self._reader.names()
        rest = names[len(args) :]
        if set(rest) != set(kwargs):
            wrong = [n for n in kwargs if n not in rest] or [n for n in rest if n not in kwargs]
            raise ArgumentError(
                f"'{self.__name__}' takes {', '.join(names)}",
                f"{len(args)} by position, then {', '.join(kwargs)}",
                f"pass each once, by position or by name; check {wrong[0]}",
            )
        return (*args, *(kwargs[name] for name in rest))

    def _fixed(self, leaves: list) -> JitFunction:
        """The program for the sizes of these arguments."""
        key, shapes, known = self._key(leaves)
        found = self._functions.get(key)
        if found is None:
            found = self._functions[key] = self._make(self._reader.module(shapes, known))
        return found

    def _key(self, leaves: list) -> tuple[tuple, tuple | None, tuple]:
        """(key of the module for arguments, their shapes, known values)."""
        if not self._reader.open:
            return (), None, ()
        shapes = self._shapes(leaves)
        known = tuple(_known(leaf) for leaf in leaves)
        if (shapes, ()) in self._functions or not any(k is not None for k in known):
            return (shapes, ()), shapes, ()
        try:
            self._functions[shapes, ()] = self._make(self._reader.module(shapes, ()))
            return (shapes, ()), shapes, ()
        except UnsupportedError:
            # Sizes that are passed as integers, as JAX's exporter does: a program for these values.
            key = (shapes, tuple(None if k is None else int(k) for k in known))
            return key, shapes, known

    def _make(self, module: Module) -> JitFunction:
        _find_devices(module.entry)
        computation = _flat_parameters(module.entry)
        results = results_of(module.entry.shape)
        return jit(named(lambda *o: results(apply_computation(computation, list(o))), self.__name__, computation))

    def _shapes(self, leaves: list) -> tuple[Shape | None, ...]:
        """The shape of each argument; None of a tuple."""
        rest = iter(leaves)
        shapes: list[Shape | None] = []
        for want in self._reader.parameters():
            shape = self._reader.shape(want)
            given = [next(rest)._shape for _ in range(_count(shape))]
            shapes.append(None if isinstance(shape, TupleShape) else given[0])
        return tuple(shapes)

    def _leaves(self, args: Sequence) -> list:
        """The arrays in the arguments. Raises ArgumentError, DTypeError, ShapeError if they do not fit."""
        wanted = self._reader.parameters()
        if len(args) != len(wanted):
            raise ArgumentError(
                f"'{self.__name__}' takes {len(wanted)} arguments: {', '.join(map(str, wanted))}", f"{len(args)} given",
                "pass one array per parameter",
            )  # fmt: skip
        pairs = zip(args, wanted, strict=True)
        return [leaf for k, (arg, want) in enumerate(pairs) for leaf in _leaves(arg, self._reader.shape(want), k)]


def _find_devices(computation: Computation) -> None:
    """Replaces the device names in a text by those of this process. Raises DeviceError for missing devices, unless
    `hl.config.soft_placement` is set."""
    for instruction in below(computation.instructions):
        if instruction.device:
            found = find_device(instruction.device)
            instruction.source = on_device(instruction.source, str(found))


def _count(shape) -> int:
    """How many arrays a shape has."""
    return sum(map(_count, shape.elements)) if isinstance(shape, TupleShape) else 1


def _known(leaf):
    """The value of an argument that may be a size: a scalar integer that is not traced."""
    if isinstance(leaf, (Tracer, ShapeDtypeStruct)) or leaf.ndim or leaf.dtype.kind not in "iu":
        return None
    return np.asarray(leaf)


def _leaves(arg, shape, k: int) -> list:
    """The arrays in an argument, of the dtypes that the program has."""
    if isinstance(shape, TupleShape):
        if not isinstance(arg, (tuple, list)) or len(arg) != len(shape.elements):
            raise ArgumentError(f"argument {k} is a tuple of {len(shape.elements)}", f"{arg!r:.80}", "pass a tuple")
        return [leaf for a, s in zip(arg, shape.elements, strict=True) for leaf in _leaves(a, s, k)]
    if isinstance(arg, ShapeDtypeStruct):
        found = arg
    elif not isinstance(arg, (Array, Tracer)) and np.ndim(arg) == 0 and isinstance(arg, (bool, int, float, complex)):
        if scalar_dtype(arg)[1] or isinstance(arg, bool):
            arg = np.asarray(arg).astype(shape.dtype)
        found = as_array(arg, f"argument {k}")
    else:
        found = as_array(arg, f"argument {k}")
    if found.dtype != shape.dtype:
        raise DTypeError(f"argument {k} is {shape!r}", f"dtype {found.dtype} given", "convert it with astype")
    if not (found.shape == shape.dims if isinstance(shape, Shape) else shape.fits(found.shape)):
        raise ShapeError(f"argument {k} is {shape!r}", f"{found._shape!r} given", "pass an array of this shape")
    return [found]


class _Hlo:
    """The one module of HLO text."""

    open = False

    def __init__(self, module: Module):
        self._module = module
        self.name = module.name

    def parameters(self):
        return [p.shape for p in self._module.entry.parameters]

    def names(self) -> list[str]:
        return [p.hint for p in self._module.entry.parameters]

    def shape(self, shape):
        return shape

    def module(self, shapes, known) -> Module:
        return self._module

    def programs(self) -> None:
        return None


# --- tuples -------------------------------------------------------------------------------------------------------


def _flat_parameters(computation: Computation) -> Computation:
    """The computation with a parameter for each array in its parameters, and one flat tuple as its root."""
    builder = Builder(computation.name)

    def parameter(shape, hint: str) -> Instruction:
        if isinstance(shape, TupleShape):
            return builder.tuple([parameter(s, f"{hint}_{k}") for k, s in enumerate(shape.elements)])
        return builder.parameter(shape, hint)

    def leaves(instruction: Instruction) -> list[Instruction]:
        if not isinstance(instruction.shape, TupleShape):
            return [instruction]
        return [leaf for element in tuple_elements(builder, instruction) for leaf in leaves(element)]

    shapes = [computation.shape, *(p.shape for p in computation.parameters)]
    nested = any(isinstance(s, TupleShape) for s in shapes[1:])
    nested |= isinstance(shapes[0], TupleShape) and any(isinstance(s, TupleShape) for s in shapes[0].elements)
    if not nested:
        return computation
    root = builder.inline(computation, [parameter(p.shape, p.hint) for p in computation.parameters])
    if isinstance(root.shape, TupleShape):
        root = builder.tuple(leaves(root))
    return builder.finish(root)


__all__ = ["ParseError", "Program", "from_hlo", "from_stablehlo"]
