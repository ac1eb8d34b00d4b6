"""Converts programs with computed sizes to programs with fixed shapes.

An array of a computed size (`hloom.ir.sizes.counted`) is stored with the shape of its bound; elements beyond the size
are arbitrary. Each instruction is transformed by the `bounded` rule of its op's entry, and rejected at the user's line
if there is none. The sizes of results, and those that must not be 0, are an additional result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hloom.compiler.transforms.inline import inline_calls
from hloom.ir.build import Builder, Value, tuple_elements
from hloom.ir.module import Computation, Instruction, callees_first
from hloom.ir.op_table import OPS
from hloom.ir.ops.bounding import refused
from hloom.ir.records import record
from hloom.ir.sizes.counted import Check, CountedScope
from hloom.ir.sizes.expressions import Size, SizeExpression, highest, lowest, single
from hloom.ir.sizes.terms import Atom, Extremum, Quotient, Symbol, Terms
from hloom.ir.types import DTYPES, Shape, TupleShape

__all__ = ["CountedProgram", "counted_program"]

S32, S64 = DTYPES["s32"], DTYPES["s64"]


@record(frozen=True)
class CountedProgram:
    """A program with fixed shapes. shapes: of the results, with the computed sizes. sizes: the last result contains
    their values, s64, in this order, if there are any. checks: with the index of a size."""

    computation: Computation
    shapes: Sequence[Shape]
    sizes: Mapping[SizeExpression, int]
    checks: Sequence[tuple[int, Check]]


def _leaves(shape: Any) -> list[Shape]:
    return [leaf for e in shape.elements for leaf in _leaves(e)] if isinstance(shape, TupleShape) else [shape]


def _holds_sizes(value: Any) -> bool:
    """Whether an attribute has a size that is not a number."""
    if isinstance(value, (tuple, list)):
        return any(map(_holds_sizes, value))
    fields = getattr(type(value), "__record_fields__", ())
    return isinstance(value, SizeExpression) or any(_holds_sizes(getattr(value, name)) for name in fields)


class _Found:
    """Finds computations with open sizes, at any depth."""

    def __init__(self, entry: Computation):
        self._open: set[int] = set()
        for computation in callees_first(entry, Instruction.called):
            if any(map(self.concerns, computation.instructions)):
                self._open.add(id(computation))

    def concerns(self, instruction: Instruction) -> bool:
        """Whether an instruction has open sizes in the shapes of its operands or result, its attributes, or called
        computations."""
        shapes = [leaf for one in (instruction, *instruction.operands) for leaf in _leaves(one.shape)]
        if any([shape.is_open for shape in shapes]) or any(map(_holds_sizes, instruction.attributes.values())):
            return True
        return any(map(self.within, instruction.called()))

    def within(self, computation: Computation) -> bool:
        """Whether a computation called by the entry has some."""
        return id(computation) in self._open


def counted_program(computation: Computation) -> CountedProgram:
    """The program with fixed shapes. Raises UnsupportedError, at the user's line, for ops that do not support such
    arrays."""
    computation = inline_calls(computation, rules=True)
    builder = Builder(computation.name)
    counting = Counting(builder, _Found(computation), None)
    root = counting.walk(computation)
    outputs = [e for value in _flat(root) for e in tuple_elements(builder, value.instruction)]
    shapes = _leaves(computation.root.shape)
    checks = list({id(check): check for scope in counting.scopes for check in scope.checks}.values())
    dims: list[Any] = [d for shape in shapes for d in shape.dims]
    numbers: dict[SizeExpression, int] = {}
    for size in [*dims, *[check.size for check in checks]]:
        if isinstance(size, SizeExpression):
            numbers.setdefault(size, len(numbers))
    if numbers:
        values = [counting.size(size).reshape((1,)) for size in numbers]
        joined = values[0].op("concatenate", *values[1:], dimensions=(0,)) if len(values) > 1 else values[0]
        outputs.append(joined.instruction)
    made = builder.finish(outputs[0] if len(outputs) == 1 else builder.tuple(outputs))
    return CountedProgram(made, shapes, numbers, [(numbers[check.size], check) for check in checks])


def _flat(value: Value | list) -> list[Value]:
    return [leaf for v in value for leaf in _flat(v)] if isinstance(value, list) else [value]


class Counting:
    """Emits instructions with fixed shapes. It is the `build` argument of the ops' rules for computed sizes.

    scopes: of the sizes computed so far. loop: the instruction that calls this computation, if any.
    """

    def __init__(self, builder: Builder, found: _Found, loop: Instruction | None):
        self.builder, self._found, self._loop = builder, found, loop
        self.scopes: list[CountedScope] = []
        self._values: dict[Instruction, Value | list] = {}
        self._counts: dict[Symbol, Value] = {}
        self._current: Instruction | None = None
        self._sizes: dict[Terms, Value] = {}

    # --- for rules ---

    def stored(self, shape: Any) -> Any:
        """The shape of the bounds."""
        if isinstance(shape, TupleShape):
            return TupleShape([self.stored(one) for one in shape.elements])
        return shape.with_dims([int(highest(d)) if isinstance(d, SizeExpression) else d for d in shape.dims])

    def size(self, size: Size) -> Value:
        """The value of a size, a scalar s64."""
        if not isinstance(size, SizeExpression):
            return self._number(size)
        found = self._sizes.get(size.terms)
        if found is None:
            found = self._sizes[size.terms] = self._of_terms(size.terms)
        return found

    def numbers(self, shape: Shape, dimension: int) -> Value:
        """The index along a dimension for each element of a shape."""
        return Value(self.builder, self.builder.emit("iota", shape=shape, iota_dimension=dimension))

    def before(self, shape: Shape, dimension: int, size: Size) -> Value:
        """pred of a stored shape: whether an element is before a size along a dimension."""
        dtype = S32 if shape.dims[dimension] <= 2**31 - 1 else S64
        limit = self.size(size).convert(dtype).broadcast(shape.dims, ())
        return self.numbers(shape.with_dtype(dtype), dimension).compare("LT", limit)

    def masked(self, value: Value, dims: Sequence[Size], dimensions: Sequence[int], fill: Any) -> Value:
        """A stored value of an array of these sizes, with elements beyond them along some dimensions replaced by a
        number."""
        for d in dimensions:
            value = self.before(value.shape, d, dims[d]).where(value, fill)
        return value

    def define(self, size: Size, count: Value) -> None:
        """Records that the program now has the value of a size."""
        dim = single(size)
        assert dim is not None and isinstance(dim.scope, CountedScope)
        symbol = dim.terms[0][0][0]
        assert isinstance(symbol, Symbol)
        if symbol not in self._counts:
            self._counts[symbol] = count.convert(S64)
            self.scopes.append(dim.scope)

    def with_called(self, instruction: Instruction, operands: list) -> Value | list:
        """The instruction with its called computations converted to fixed shapes."""
        if any([leaf.is_open for o in (instruction, *instruction.operands) for leaf in _leaves(o.shape)]):
            raise refused(instruction, "values of such sizes do not go into or out of it")
        callees = {}
        for callee in filter(self._found.within, instruction.called()):
            inner = Counting(Builder(callee.name), self._found, instruction)
            root = inner._packed(inner.walk(inline_calls(callee, rules=True)))
            for check in [check for scope in inner.scopes for check in scope.checks]:
                raise refused(instruction, f"{check.error.asked} in it must not be empty; initial= serves all sizes")
            callees[id(callee)] = inner.builder.finish(root)
        given = dict(zip(instruction.operands, map(self._packed, operands), strict=True))
        made = Value(self.builder, self.builder.add(instruction.replaced(given, callees)))
        return made.results()

    # --- the value of a size ---

    def _number(self, number: int) -> Value:
        return Value(self.builder, self.builder.constant(number, S64))

    def _of_terms(self, terms: Terms) -> Value:
        total: Value | None = None
        for monomial, factor in terms:
            product = self._number(factor)
            for atom in monomial:
                product = product * self._of_atom(atom)
            total = product if total is None else total + product
        return self._number(0) if total is None else total

    def _of_atom(self, atom: Atom) -> Value:
        if isinstance(atom, Symbol):
            found = self._counts.get(atom)
            if found is None:
                assert self._current is not None
                raise refused(self._current, f"the size {atom.name} is computed outside of the loop or branch")
            return found
        if isinstance(atom, Quotient):
            numerator, divisor = map(SizeExpression, (atom.numerator, atom.divisor))
            assert self._current is not None
            if lowest(numerator) < 0 or lowest(divisor) < 1:
                raise refused(self._current, f"a quotient of {numerator} by {divisor}")
            return self._of_terms(atom.numerator).op("divide", self._of_terms(atom.divisor))
        assert isinstance(atom, Extremum)
        first, *rest = map(self._of_terms, atom.operands)
        for other in rest:
            first = first.op("minimum" if atom.kind == "min" else "maximum", other)
        return first

    # --- the walk ---

    def walk(self, computation: Computation) -> Value | list:
        """Emits the computation; returns the value of its root."""
        for parameter in computation.parameters:
            if any([leaf.is_open for leaf in _leaves(parameter.shape)]):
                raise refused(self._loop or parameter, "values of such sizes do not go into it")
            own = self.builder.parameter(parameter.shape, parameter.hint, parameter.source)
            own.sharding = parameter.sharding
            self._values[parameter] = Value(self.builder, own)
        for instruction in computation.instructions:
            if instruction not in self._values:
                self._values[instruction] = self._made(instruction)
        return self._values[computation.root]

    def _packed(self, value: Value | list) -> Instruction:
        return self.builder.tuple(list(map(self._packed, value))) if isinstance(value, list) else value.instruction

    def _made(self, instruction: Instruction) -> Value | list:
        operands = [self._values[o] for o in instruction.operands]
        if instruction.opcode == "tuple":
            return operands
        if instruction.opcode == "get-tuple-element" and isinstance(operands[0], list):
            return operands[0][instruction["index"]]
        if not self._found.concerns(instruction):
            given = dict(zip(instruction.operands, map(self._packed, operands), strict=True))
            return Value(self.builder, self.builder.add(instruction.replaced(given, {})))
        rule = OPS[instruction.opcode].bounded
        if not rule:
            raise refused(instruction, rule.reason)
        self._current = instruction
        with self.builder.provenance(instruction, "counted"):
            made = rule(self, instruction, operands)
        if isinstance(made, Value):
            made.instruction.hint = instruction.hint
        return made
