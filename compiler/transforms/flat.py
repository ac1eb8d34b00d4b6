"""Computations in flat form for the transforms of control flow: parameters and outputs are arrays.

In HLO a computation of a while or a conditional has one parameter, a tuple, and returns one. `flat` and `nested`
convert between the two forms. `with_tangents` and `carried` determine which values have tangents.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.compiler.transforms.jvp import SharingBuilder, push_computation
from hloom.ir.build import Builder, Value, tuple_elements
from hloom.ir.module import Computation, Instruction
from hloom.ir.rewrite import sweep
from hloom.ir.types import Shape, TupleShape

# --- tuples -------------------------------------------------------------------------------------------------------


def leaf_shapes(shape) -> list[Shape]:
    """The arrays of a shape, nested tuples from left to right."""
    if isinstance(shape, TupleShape):
        return [leaf for element in shape.elements for leaf in leaf_shapes(element)]
    return [shape]


def leaves(builder: Builder, instruction: Instruction) -> list[Instruction]:
    """The arrays of a value, in the order of `leaf_shapes`."""
    if isinstance(instruction.shape, TupleShape):
        return [leaf for element in tuple_elements(builder, instruction) for leaf in leaves(builder, element)]
    return [instruction]


def pack(builder: Builder, shape, arrays: list[Instruction]) -> Instruction:
    """The value of a shape from its arrays. Consumes `arrays` from the front."""
    if isinstance(shape, TupleShape):
        return builder.tuple([pack(builder, element, arrays) for element in shape.elements])
    return arrays.pop(0)


def place(builder: Builder, computation: Computation, operands: Sequence[Instruction]) -> list[Instruction]:
    """Inlines a computation for these operands into the builder, without tuples that are only packed and unpacked;
    returns its result arrays."""
    mapped = dict(zip(computation.parameters, operands, strict=True))
    for instruction in computation.instructions:
        if instruction in mapped:
            continue
        given = tuple([mapped[o] for o in instruction.operands])
        if instruction.opcode == "get-tuple-element" and given[0].opcode == "tuple":
            mapped[instruction] = given[0].operands[instruction["index"]]
        else:
            mapped[instruction] = builder.add(instruction.with_operands(given))
    return leaves(builder, mapped[computation.root])


def flat(computation: Computation) -> Computation:
    """The computation with a parameter per array, and a flat tuple of arrays as its result."""
    builder = Builder(computation.name)
    operands = []
    for parameter in computation.parameters:
        arrays = [builder.parameter(s, "", parameter.source) for s in leaf_shapes(parameter.shape)]
        operands.append(pack(builder, parameter.shape, arrays))
    return sweep(builder.finish(builder.tuple(place(builder, computation, operands))))


def nested(computation: Computation, parameter, result) -> Computation:
    """A flat computation as one with a single parameter and a result of these shapes."""
    builder = Builder(computation.name)
    given = leaves(builder, builder.parameter(parameter))
    return builder.finish(pack(builder, result, place(builder, computation, given)))


def values(builder: Builder, instructions: Sequence[Instruction]) -> list[Value]:
    return [Value(builder, i) for i in instructions]


def instructions(given: Sequence[Value]) -> list[Instruction]:
    return [v.instruction for v in given]


def elements(builder: Builder, instruction: Instruction) -> list[Value]:
    return values(builder, tuple_elements(builder, instruction))


def flat_values(builder: Builder, value) -> list[Value]:
    """The arrays of a rule's operand: a Value (possibly a tuple) or a list of them."""
    if isinstance(value, list):
        return [leaf for v in value for leaf in flat_values(builder, v)]
    return values(builder, leaves(builder, value.instruction))


def flat_flags(mapped, shape) -> list[bool]:
    """Which arrays are mapped."""
    if isinstance(mapped, list):
        return [f for m, s in zip(mapped, shape.elements, strict=True) for f in flat_flags(m, s)]
    return [mapped] * len(leaf_shapes(shape))


def flat_tangents(tangent, shape) -> list[Value | None]:
    """A tangent for each array, None for zeros."""
    if isinstance(shape, TupleShape):
        given = [None] * len(shape.elements) if tangent is None else tangent
        return [t for g, s in zip(given, shape.elements, strict=True) for t in flat_tangents(g, s)]
    return [tangent]


def unflat(shape, found: list):
    """Flat results of a rule in the form of a shape: nested lists. Consumes `found` from the front."""
    if isinstance(shape, TupleShape):
        return [unflat(s, found) for s in shape.elements]
    return found.pop(0)


def zeros(builder: Builder, shape: Shape) -> Value:
    return Value(builder, builder.splat(0, shape))


def lasting(builder: Builder, computation: Computation, operands: Sequence[Instruction]) -> set[Instruction]:
    """The parameters of a computation whose operands last (`SharingBuilder.lasting`)."""
    if not isinstance(builder, SharingBuilder):
        return set()
    return {p for p, o in zip(computation.parameters, operands, strict=True) if builder.lasts(o)}


# --- tangents of computations -------------------------------------------------------------------------------------


def with_tangents(computation: Computation, nonzero: Sequence[bool], wanted: Sequence[bool] | None = None):
    """(the computation (parameters, nonzero tangents) -> (outputs, tangents), flags of the outputs with a tangent).

    wanted: outputs whose tangents are returned even if zero.
    """
    builder = SharingBuilder(f"{computation.name}_jvp")
    outputs, pushforward, _ = push_computation(builder, computation, nonzero)
    found = [pushforward.tangent(o) for o in outputs]
    present = [f is not None for f in found]
    if wanted is not None:
        present = [p or w for p, w in zip(present, wanted, strict=True)]
    tangents = [
        f if f is not None else builder.splat(0, o.shape) for f, o, p in zip(found, outputs, present, strict=True) if p
    ]
    return sweep(builder.finish(builder.tuple([*outputs, *tangents]))), present


def carried(computation: Computation, before: list[bool], first: int, count: int) -> list[bool]:
    """The parameters that have tangents when those of `count` carried ones, starting at `first`, are passed from step
    to step.

    before: those that have one initially. The computation's first `count` outputs are the carried values.
    """
    active = list(before)
    while True:
        _, present = with_tangents(computation, active)
        grown = [a or p for a, p in zip(active[first : first + count], present[:count], strict=True)]
        if grown == active[first : first + count]:
            return active
        active[first : first + count] = grown
