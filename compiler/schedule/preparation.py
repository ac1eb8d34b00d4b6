"""Values computed once for many calls: those that depend only on steady inputs, such as the weights of a network.

An instruction of the entry whose operands are all steady, or derived from steady values, runs only when one of these
inputs has changed, as does a launch that only prepares a steady operand of a kernel (the packing of a matrix). Their
results are in separate memory that persists between calls, and are never overwritten by others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hloom.compiler.kernels.launch import Launch
from hloom.compiler.schedule.buffer_assignment import ALIGNMENT, Buffer
from hloom.compiler.schedule.steps import Place
from hloom.ir.module import Computation, Instruction
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.types import Shape, TupleShape

GROWTH = 4  # maximum size of a prepared value relative to its inputs: an 8-bit integer becomes a float32


class Preparation:
    """The part of a Planner for prepared values. steady: indices of the entry's parameters.

    fixed: buffers whose values are equal in most calls. temporaries: (id of the instruction, pointer name) of those
    that prepared launches write. bytes: of the persistent memory.
    """

    def __init__(self, steady: frozenset[int]):
        self.steady = steady
        self.fixed: dict[Buffer, None] = {}
        self.instructions: dict[Instruction, None] = {}
        self.temporaries: dict[tuple[int, str], None] = {}
        self.bytes = 0

    def note_parameter(self, number: int, buffer: Buffer) -> None:
        if number in self.steady:
            self.fixed[buffer] = None

    def look(
        self, instruction: Instruction, inputs: list[Instruction], buffers: Mapping[Instruction, list[Buffer]], end: int
    ) -> None:
        """Prepares an instruction of the entry if it reads only steady values; `end`: the time of the program's end."""
        read = [b for o in inputs for b in buffers[o]]
        steady = [b for b in read if b in self.fixed]
        if not steady or any(b not in self.fixed and not _is_constant(b) for b in read):
            return
        if _is_open(instruction):
            return  # its result depends on open sizes
        if sum(b.bytes for b in buffers[instruction]) > GROWTH * sum(b.bytes for b in steady):
            return
        self.instructions[instruction] = None
        for buffer in buffers[instruction]:
            self.keep(buffer)
            buffer.last = end
            self.fixed[buffer] = None

    def keep(self, buffer: Buffer) -> None:
        """Allocates a buffer in persistent memory."""
        buffer.place = Place("kept", self.bytes)
        self.bytes += -(-max(buffer.bytes, 1) // ALIGNMENT) * ALIGNMENT

    def divided(self, planned: list) -> tuple[list, list]:
        """(prepared steps, steps of each call) of the planned list, before loops are lowered to jumps."""
        if not self.steady:
            return [], planned
        prepared: list = []
        rest: list = []
        for item in planned:
            (prepared if self._is_prepared(item) else rest).append(item)
        return prepared, rest

    def _is_prepared(self, item) -> bool:
        if not isinstance(item, tuple):
            return False
        if not isinstance(item[0], Launch):
            return item[0] in self.fixed  # the copy of an updated array
        launch, pointers, instruction = item
        if instruction not in self.instructions:
            read = [pointers[a] for a in launch.arguments if isinstance(a, str) and a in pointers]
            if not launch.prepares or not read or any(b not in self.fixed and not _is_constant(b) for b in read):
                return False
            if any([isinstance(number, SizeExpression) for number in _numbers_of(launch)]):
                return False
        self.temporaries.update(dict.fromkeys((id(instruction), name) for name in launch.temporaries))
        return True


def _is_open(value: Any) -> bool:
    """Whether an instruction, or a computation that it calls, contains an open size: in a shape, in an attribute, or as
    a value."""
    if isinstance(value, SizeExpression):
        return True
    if isinstance(value, Instruction):
        return any(map(_is_open, [value.shape, *[o.shape for o in value.operands], *value.attributes.values()]))
    if isinstance(value, Computation):
        return any(map(_is_open, value.instructions))
    if isinstance(value, TupleShape):
        return any(map(_is_open, value.elements))
    if isinstance(value, (tuple, list)):
        return any(map(_is_open, value))
    if hasattr(type(value), "__record_fields__"):
        return any([_is_open(getattr(value, name)) for name in type(value).__record_fields__])
    return isinstance(value, Shape) and value.is_open


def _numbers_of(launch: Launch) -> list:
    """The numeric arguments of a launch, some of which may be open sizes."""
    return [*launch.arguments, *launch.temporaries.values(), launch.items, launch.grain, launch.moved]


def _is_constant(buffer: Buffer) -> bool:
    return buffer.place is not None and buffer.place.kind == "constant"
