"""Builder: creates instructions with inferred shapes. Value: an instruction with operators, for rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager

import numpy as np

from hloom.ir.errors import AttributeValueError, HloomError
from hloom.ir.module import AnyShape, Computation, Instruction
from hloom.ir.op_table import OPS, RULE_ERRORS, refused_by_rule
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.source import Source
from hloom.ir.types import Shape, TupleShape, as_dtype


class Builder:
    """Collects the instructions of one computation.

    Every instruction gets the current provenance: `source` (the user's line) and `made_by` (rules and passes).
    """

    def __init__(self, name: str):
        self.name = name
        self.parameters: list[Instruction] = []
        self.instructions: list[Instruction] = []
        self.source: Source | None = None
        self.made_by: tuple[str, ...] = ()

    def add(self, instruction: Instruction) -> Instruction:
        """Appends an existing instruction."""
        self.instructions.append(instruction)
        return instruction

    def parameter(self, shape: AnyShape, hint: str = "", source: Source | None = None) -> Instruction:
        instruction = Instruction(
            "parameter", (), shape, {"index": len(self.parameters)}, hint, source or self.source, self.made_by
        )
        self.parameters.append(instruction)
        return self.add(instruction)

    def emit(
        self, opcode: str, *operands: Instruction, shape: AnyShape | None = None, hint: str = "", **attributes
    ) -> Instruction:
        """Appends `opcode(operands)`; infers and checks the shape.

        Raises ShapeError, DTypeError or AttributeValueError.
        """
        entry = OPS.get(opcode)
        if entry is None:
            raise AttributeValueError(
                f"'{opcode}' is not an op of hloom", f"the table has {len(OPS)} ops", "check the name"
            )
        if opcode == "optimization-barrier" and len(operands) > 1:
            operands = (self.tuple(operands),)  # HLO's takes one operand
        try:
            shape = entry.infer([o.shape for o in operands], attributes, shape)
        except HloomError:
            raise
        except RULE_ERRORS as error:
            raise refused_by_rule(opcode, [o.shape for o in operands], attributes, error) from error
        return self.add(Instruction(opcode, operands, shape, attributes, hint, self.source, self.made_by))

    def constant(self, value, dtype=None) -> Instruction:
        """A constant array. The value is copied unless it already is a NumPy array of that dtype."""
        array = np.asarray(value, dtype=None if dtype is None else as_dtype(dtype))
        array = array.astype(as_dtype(array.dtype), copy=False)
        return self.add(
            Instruction(
                "constant", (), Shape(array.dtype, array.shape), {"value": array}, "", self.source, self.made_by
            )
        )

    def splat(self, value, shape: Shape) -> Instruction:
        """A number broadcast to a shape. A dynamic size becomes its run-time value."""
        if isinstance(value, SizeExpression):
            scalar = self.emit("size", shape=shape.with_dims(()), value=value)
        else:
            scalar = self.constant(np.asarray(value).astype(shape.dtype), shape.dtype)
        if not shape.dims:
            return scalar
        return self.emit("broadcast", scalar, shape=shape, dimensions=())

    def tuple(self, elements) -> Instruction:
        return self.emit("tuple", *elements)

    def inline(self, computation: Computation, arguments) -> Instruction:
        """Inlines the computation's instructions with its parameters replaced; returns the root's copy."""
        mapped = dict(zip(computation.parameters, arguments, strict=True))
        self.add_copies(computation.instructions, mapped)
        return mapped[computation.root]

    def add_copies(self, instructions: Iterable[Instruction], mapped: dict[Instruction, Instruction]) -> None:
        """Copies instructions, in order. mapped: replacements of their operands; copies are added to it, and
        instructions already in it are skipped."""
        for instruction in instructions:
            if instruction not in mapped:
                operands = tuple([mapped[o] for o in instruction.operands])
                mapped[instruction] = self.add(instruction.with_operands(operands))

    def finish(self, root: Instruction) -> Computation:
        return Computation(self.name, self.parameters, self.instructions, root)

    @contextmanager
    def provenance(self, instruction: Instruction, made_by: str):
        """Within it, new instructions carry the source of `instruction` and, added to its history, `made_by`."""
        before = self.source, self.made_by
        self.source, self.made_by = instruction.source, (*instruction.made_by, made_by)
        try:
            yield
        finally:
            self.source, self.made_by = before


def tuple_elements(builder: Builder, instruction: Instruction) -> list[Instruction]:
    """The elements of a tuple-shaped instruction (through get-tuple-element), or the instruction itself."""
    if not isinstance(instruction.shape, TupleShape):
        return [instruction]
    if instruction.opcode == "tuple":
        return list(instruction.operands)
    return [builder.emit("get-tuple-element", instruction, index=k) for k in range(len(instruction.shape.elements))]


class Value:
    """An instruction with arithmetic, so that rules read as mathematics: `g * (1 - y * y)`.

    Python numbers become constants of the other side's dtype, broadcast to its shape.
    """

    __slots__ = ("builder", "instruction")

    def __init__(self, builder: Builder, instruction: Instruction):
        self.builder = builder
        self.instruction = instruction

    @property
    def shape(self) -> Shape:
        return self.instruction.shape

    @property
    def dtype(self):
        return self.instruction.shape.dtype

    @property
    def dims(self) -> tuple[int, ...]:
        return self.instruction.shape.dims

    def like(self, value) -> Value:
        """A constant with this value's shape and dtype."""
        return Value(self.builder, self.builder.splat(value, self.shape))

    def filled(self, number, shape: Shape) -> Value:
        """A constant of another shape and dtype, in this value's computation."""
        return Value(self.builder, self.builder.splat(number, shape))

    def scalar(self, number) -> Value:
        """A scalar constant with this value's dtype."""
        return self.filled(number, Shape(self.dtype))

    def numbers(self, shape: Shape, dimension: int) -> Value:
        """The index along a dimension for each element of a shape: an iota in this value's computation."""
        return Value(self.builder, self.builder.emit("iota", shape=shape, iota_dimension=dimension))

    def op(self, opcode: str, *others, shape=None, **attributes) -> Value:
        """`opcode(self, *others)`."""
        operands = [self.instruction] + [(o if isinstance(o, Value) else self.like(o)).instruction for o in others]
        return Value(self.builder, self.builder.emit(opcode, *operands, shape=shape, **attributes))

    def results(self) -> Value | list[Value]:
        """The result of a rule for an op with one or several results: the value itself, or the elements of a tuple."""
        if not isinstance(self.instruction.shape, TupleShape):
            return self
        return [self.op("get-tuple-element", index=k) for k in range(len(self.instruction.shape.elements))]

    def _binary(self, opcode: str, other) -> Value:
        """`op` for the operators: a hot path of differentiation."""
        if not isinstance(other, Value):
            other = self.like(other)
        builder = self.builder
        return Value(builder, builder.emit(opcode, self.instruction, other.instruction))

    def __add__(self, other):
        return self._binary("add", other)

    def __radd__(self, other):
        return self.like(other).op("add", self)

    def __sub__(self, other):
        return self._binary("subtract", other)

    def __rsub__(self, other):
        return self.like(other).op("subtract", self)

    def __mul__(self, other):
        return self._binary("multiply", other)

    __rmul__ = __mul__

    def __truediv__(self, other):
        return self._binary("divide", other)

    def __rtruediv__(self, other):
        return self.like(other).op("divide", self)

    def __neg__(self):
        return self.op("negate")

    def compare(self, direction: str, other) -> Value:
        return self.op("compare", other, direction=direction)

    def where(self, on_true, on_false) -> Value:
        """select(self, on_true, on_false); self is pred. Either of the two may be a number."""
        if not isinstance(on_true, Value):
            on_true = on_false.like(on_true)
        return self.op("select", on_true, on_true.like(on_false) if not isinstance(on_false, Value) else on_false)

    def convert(self, dtype) -> Value:
        dtype = as_dtype(dtype)
        return self if dtype == self.dtype else self.op("convert", shape=self.shape.with_dtype(dtype))

    def broadcast(self, dims, dimensions) -> Value:
        """HLO broadcast: dimension k of self becomes dimension `dimensions[k]` of the result."""
        return self.op("broadcast", shape=self.shape.with_dims(dims), dimensions=tuple(dimensions))

    def reshape(self, dims) -> Value:
        dims = tuple(dims)
        return self if dims == self.dims else self.op("reshape", shape=self.shape.with_dims(dims))

    def transpose(self, permutation) -> Value:
        permutation = tuple(permutation)
        if permutation == tuple(range(len(permutation))):
            return self
        return self.op("transpose", dimensions=permutation)

    def sum(self, dimensions) -> Value:
        """Reduce with add over the dimensions (none: self)."""
        return self.reduce("add", 0, dimensions)

    def reduce(self, opcode: str, initial, dimensions) -> Value:
        """Reduce with a binary op. `initial` is a number."""
        dimensions = tuple(sorted(dimensions))
        if not dimensions:
            return self
        start = self.builder.constant(np.asarray(initial).astype(self.dtype), self.dtype)
        root = self.builder.emit(
            "reduce", self.instruction, start, dimensions=dimensions, to_apply=scalar_computation(opcode, self.dtype)
        )
        return Value(self.builder, root)


_combiners: dict[tuple, Computation] = {}


def scalar_computation(opcode: str, dtype) -> Computation:
    """The computation (a, b) -> opcode(a, b) on scalars, the same object each time."""
    key = (opcode, as_dtype(dtype))
    if key not in _combiners:
        builder = Builder(f"{opcode}_{key[1].name}")
        left, right = (builder.parameter(Shape(key[1]), hint) for hint in ("a", "b"))
        _combiners[key] = builder.finish(builder.emit(opcode, left, right))
    return _combiners[key]


def assignment_computation(dtype) -> Computation:
    """The computation (a, b) -> b on scalars, the same object each time; a scatter with it overwrites."""
    key = ("assignment", as_dtype(dtype))
    if key not in _combiners:
        builder = Builder(f"assign_{key[1].name}")
        _, new = (builder.parameter(Shape(key[1]), hint) for hint in ("a", "b"))
        _combiners[key] = builder.finish(new)
    return _combiners[key]


def combiner_opcode(computation: Computation) -> str | None:
    """'add', 'maximum', ... when the computation is (a, b) -> op(a, b) with one associative op, otherwise None."""
    root = computation.root
    if len(computation.parameters) != 2 or len(root.operands) != 2 or root.opcode == "tuple":
        return None
    if set(root.operands) != set(computation.parameters):
        return None
    entry = OPS[root.opcode]
    return root.opcode if entry.associative and entry.commutative else None


class Placed(Value):
    """A cotangent that is zero except at some elements, those that a slice or a gather has read.

    add_to: computes `array + value` for an array of this shape by updating these elements. In a loop this happens in
    place, whereas adding whole arrays costs their size in each step.
    """

    __slots__ = ("add_to",)

    def __init__(self, value: Value, add_to: Callable[[Value], Value]):
        super().__init__(value.builder, value.instruction)
        self.add_to = add_to
