"""Vectorization: from a computation on one batch element to one on `size` independent ones.

Values that differ between batch elements are mapped: they have an additional first dimension. Instructions that do not
depend on a mapped value are reused. All others are transformed by the `batch` rule of their op's entry.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.compiler.transforms import reduction, windows
from hloom.compiler.transforms.flat import leaf_shapes
from hloom.compiler.transforms.inline import inline_calls
from hloom.compiler.transforms.jvp import SharingBuilder
from hloom.compiler.transforms.rules import load_rules
from hloom.ir.build import Builder, Value, tuple_elements
from hloom.ir.errors import BatchingError
from hloom.ir.module import Computation, Instruction, below
from hloom.ir.ops import OPS
from hloom.ir.records import record
from hloom.ir.rewrite import sweep
from hloom.ir.types import Shape, TupleShape, as_dtype


@record(frozen=True)
class Unmapped:
    """Wraps a rule's result that is equal for all batch elements, and has no new dimension."""

    value: Value


class Batching:
    """Computes mapped values, instruction by instruction. It is the `build` argument of the ops' batching rules.

    builder: receives new instructions. size: the number of batch elements. axis_name: the name of the new dimension for
    collectives, or None.
    """

    def __init__(self, builder: Builder, size: int, axis_name=None):
        load_rules()
        self.builder = builder
        self.size = size
        self.axis_name = axis_name
        self.values: dict[Instruction, Value | list] = {}
        self.mapped: dict[Instruction, bool | list] = {}

    # --- for rules ---

    def spread(self, value: Value) -> Value:
        """An unmapped value broadcast along a new first dimension of size `size`."""
        dims = value.dims
        return value.broadcast((self.size, *dims), range(1, len(dims) + 1))

    def spread_all(self, operands: Sequence[Value], mapped: Sequence[bool]) -> list[Value]:
        """All operands with the new dimension."""
        return [v if m else self.spread(v) for v, m in zip(operands, mapped, strict=True)]

    def unmapped(self, value: Value) -> Unmapped:
        """Marks a result of a rule that is equal for all batch elements and has no new dimension."""
        return Unmapped(value)

    def reduction_by_tree(self, instruction: Instruction, operands, mapped):
        """A reduce with any combiner, expanded to ordinary ops, for initial values that differ between batch
        elements."""
        one = Builder("reduction")
        parameters = [one.parameter(o.shape) for o in instruction.operands]
        results = reduction.reduction_tree(one, instruction.with_operands(tuple(parameters)))
        made, _ = self.computation(one.finish(one.tuple(results)), mapped, [True] * len(results))
        root = self.builder.inline(made, [v.instruction for v in operands])
        values = [Value(self.builder, e) for e in tuple_elements(self.builder, root)]
        return values if isinstance(instruction.shape, TupleShape) else values[0]

    def reduce_window_by_tree(self, instruction: Instruction, operands, mapped):
        """A reduce-window expanded to ordinary ops, for initial values that differ between batch elements."""
        return windows.reduce_window_by_tree(self, instruction, operands, mapped)

    def iota(self, dtype="s32") -> Value:
        """0, 1, ..., size - 1: the index of each batch element."""
        return Value(
            self.builder, self.builder.emit("iota", shape=Shape(as_dtype(dtype), (self.size,)), iota_dimension=0)
        )

    def merge(self, value: Value, dimension: int) -> Value:
        """A mapped value with the new dimension merged into dimension `dimension` of the unmapped value, as its major
        part; the sizes are multiplied."""
        rank = len(value.dims)
        order = [*range(1, dimension + 1), 0, *range(dimension + 1, rank)]
        moved = value.transpose(order)
        dims = list(moved.dims)
        dims[dimension : dimension + 2] = [dims[dimension] * dims[dimension + 1]]
        return moved.reshape(dims)

    def split(self, value: Value, dimension: int) -> Value:
        """The inverse of `merge`: the major part of the dimension becomes the first dimension."""
        dims = list(value.dims)
        dims[dimension : dimension + 1] = [self.size, dims[dimension] // self.size if self.size else 0]
        opened = value.reshape(dims)
        return opened.transpose([dimension, *(k for k in range(len(dims)) if k != dimension)])

    def computation(
        self, computation: Computation, mapped: Sequence[bool], out: Sequence[bool] | None = None
    ) -> tuple[Computation, list[bool]]:
        """A called computation for all batch elements: see `batch`."""
        return batch(computation, mapped, self.size, out, self.axis_name)

    def sequential(self, instruction: Instruction, operands, mapped):
        """The op once per batch element, on slices, with stacked results."""
        results = []
        for k in range(self.size):
            one = [_one(v, k) if m is True else v for v, m in zip(operands, mapped, strict=True)]
            copy = instruction.with_operands(tuple(_instruction(self.builder, v) for v in one))
            made = self.builder.add(copy)
            results.append([Value(self.builder, e) for e in tuple_elements(self.builder, made)])
        if not results:
            shapes = [s.with_dims((0, *s.dims)) for s in leaf_shapes(instruction.shape)]
            stacked = [Value(self.builder, self.builder.splat(0, s)) for s in shapes]
        else:
            stacked = [_stack(list(column)) for column in zip(*results, strict=True)]
        return stacked if isinstance(instruction.shape, TupleShape) else stacked[0]

    # --- the walk ---

    def value(self, instruction: Instruction) -> Value | list:
        found = self.values.get(instruction)
        if found is None:
            found = self.values[instruction] = Value(self.builder, instruction)
        return found

    def is_mapped(self, instruction: Instruction):
        return self.mapped.get(instruction, False)

    def push(self, instruction: Instruction) -> None:
        """Emits an instruction whose operands are available, for all batch elements."""
        mapped = [self.mapped.get(o, False) for o in instruction.operands]
        opcode = instruction.opcode
        named = self.axis_name is not None and self.axis_name in _axes(instruction)
        if not named and not any(m if isinstance(m, bool) else any(m) for m in mapped):
            self._keep(instruction)
            return
        builder = self.builder
        operands = [self.value(o) for o in instruction.operands]
        if opcode == "tuple":
            self.values[instruction], self.mapped[instruction] = operands, mapped
            return
        if opcode == "get-tuple-element":
            index, of_tuple, flags = instruction["index"], operands[0], mapped[0]
            assert isinstance(of_tuple, list) and isinstance(flags, list)
            self.values[instruction], self.mapped[instruction] = of_tuple[index], flags[index]
            return
        rule = OPS[opcode].batch
        if not rule:
            raise BatchingError(
                f"vmap of '{opcode}' was asked for",
                f"{instruction.shape!r} {opcode} cannot be applied to a batch: {rule.reason}",
                "use lax.map, which goes through them one after the other",
                source=instruction.source,
            )
        outer = builder.source, builder.made_by
        builder.source, builder.made_by = instruction.source, (*instruction.made_by, "batch")
        result = rule(self, instruction, operands, mapped)
        builder.source, builder.made_by = outer
        self._take(instruction, result)

    def _keep(self, instruction: Instruction) -> None:
        """An instruction shared by all batch elements: itself, or a copy if an operand was replaced."""
        operands = tuple([_instruction(self.builder, self.value(o)) for o in instruction.operands])
        same = all(a is b for a, b in zip(operands, instruction.operands, strict=True))
        made = self.builder.add(instruction if same else instruction.with_operands(operands))
        if made is not instruction:
            self.values[instruction] = Value(self.builder, made)

    def _take(self, instruction: Instruction, result) -> None:
        if isinstance(instruction.shape, TupleShape):
            self.values[instruction] = [r.value if isinstance(r, Unmapped) else r for r in result]
            self.mapped[instruction] = [not isinstance(r, Unmapped) for r in result]
        elif isinstance(result, Unmapped):
            self.values[instruction] = result.value
        else:
            self.values[instruction], self.mapped[instruction] = result, True


def _axes(instruction: Instruction) -> tuple:
    """The named axes over which an instruction communicates."""
    if not instruction.attributes:
        return ()
    return tuple(name for inner in below([instruction]) for name in inner.attributes.get("axis_name", ()))


def _instruction(builder: Builder, value) -> Instruction:
    if isinstance(value, list):
        return builder.tuple([_instruction(builder, v) for v in value])
    return value.instruction


def _one(value: Value, k: int) -> Value:
    bounds = ((k, k + 1, 1), *((0, extent, 1) for extent in value.dims[1:]))
    return value.op("slice", slice=bounds).reshape(value.dims[1:])


def _stack(values: list[Value]) -> Value:
    rows = [v.reshape((1, *v.dims)) for v in values]
    return rows[0] if len(rows) == 1 else rows[0].op("concatenate", *rows[1:], dimensions=(0,))


def batch(
    computation: Computation,
    mapped: Sequence[bool],
    size: int,
    out: Sequence[bool] | None = None,
    axis_name=None,
) -> tuple[Computation, list[bool]]:
    """(the computation for `size` batch elements, flags of its mapped outputs).

    mapped: for each parameter whether it has the new first dimension of size `size`. out: for each output whether it
    must have the new dimension even if it is equal for all batch elements; by default only those that differ do. The
    result is a tuple if that of `computation` is one. Raises BatchingError, with the user's line, for an op without a
    batching rule.
    """
    computation = inline_calls(computation)
    builder = SharingBuilder(f"{computation.name}_batched")
    batching = Batching(builder, size, axis_name)
    for parameter, wanted in zip(computation.parameters, mapped, strict=True):
        if wanted is not True:
            own = builder.add(parameter)
            builder.parameters.append(own)
            continue
        shape = parameter.shape.with_dims((size, *parameter.shape.dims))
        own = builder.parameter(shape, parameter.hint, parameter.source)
        batching.values[parameter], batching.mapped[parameter] = Value(builder, own), True
    for instruction in computation.instructions:
        if instruction.opcode != "parameter":
            batching.push(instruction)
    root = computation.root
    is_tuple = isinstance(root.shape, TupleShape)
    found, differs = batching.value(root), batching.mapped.get(root, False)
    if isinstance(found, list):
        values = found
    else:
        values = [Value(builder, e) for e in tuple_elements(builder, found.instruction)]
    flags = differs if isinstance(differs, list) else [differs] * len(values)
    if out is not None:
        pairs = zip(values, flags, out, strict=True)
        values = [batching.spread(v) if wanted and not flag else v for v, flag, wanted in pairs]
        flags = [flag or wanted for flag, wanted in zip(flags, out, strict=True)]
    result = builder.tuple([v.instruction for v in values]) if is_tuple else values[0].instruction
    return sweep(builder.finish(result)), flags
