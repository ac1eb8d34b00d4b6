"""Collectives in the plan of a program that several devices run.

All devices run one plan, each in memory of its own that the others can read. A collective begins with a barrier of its
group: what the others will read is there then. Each device reads the parts that it needs where they are, in the order
of the group's members, so that sums have the same bits in every run. At a second barrier all have read, and the
operand's memory may be used again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.schedule.buffer_assignment import Buffer
from hloom.compiler.schedule.steps import ArriveStep, AwaitStep, Place
from hloom.compiler.transforms.inline import inline_calls
from hloom.ir.build import Builder
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops.programs.collective import COLLECTIVES, NUMBERS
from hloom.ir.records import record, replace
from hloom.ir.spmd.groups import device_groups, device_pairs
from hloom.ir.types import DTYPES, Shape

Groups = tuple[tuple[int, ...], ...]
READABLE = ("input", "output", "constant", "arena", "shared")  # places that other devices can read
ZEROS = 1 << 16  # bytes of a constant that is copied where nobody sends


@record(eq=False)
class Elsewhere:
    """A buffer of other devices, or a part of one. peer, offsets: as of a Place."""

    buffer: Buffer
    peer: tuple[int, ...] | None = None
    offsets: tuple[int, ...] | None = None

    @property
    def assigned(self) -> Place:
        return replace(self.buffer.assigned, peer=self.peer, offsets=self.offsets)


@record(eq=False)
class Transfer:
    """A copy on some of the devices; None: on all."""

    target: Buffer | Elsewhere
    source: Buffer | Elsewhere
    bytes: int
    instruction: Instruction
    devices: frozenset[int] | None = None


class Collectives:
    """The part of a Planner that knows collectives."""

    def __init__(self, planner):
        self.planner = planner
        self.replicas, self.partitions = planner.module.replicas, planner.module.partitions
        self.devices = self.replicas * self.partitions
        self.barriers: dict[Groups, int] = {}

    def handles(self, instruction: Instruction) -> bool:
        """Whether an instruction exchanges values between devices."""
        return self.devices > 1 and instruction.opcode in COLLECTIVES

    def number(self, instruction: Instruction) -> Buffer:
        """The place of the number of the partition or replica."""
        if self.devices == 1:
            return self.planner.constant(np.zeros((), np.uint32))
        return Buffer(4, Place("device", NUMBERS.index(instruction.opcode)))

    def emit(self, instruction: Instruction, planned: list) -> None:
        results = self.planner.buffers[instruction]
        if sum(b.bytes for b in results):
            _Emitted(self, instruction, planned).emit()

    def barrier(self, groups: Groups) -> int:
        """The number of the barrier of these groups. Each device comes to all barriers in the order of the program, and
        to none before it has left the one before, so one is enough for all collectives among the same devices."""
        return self.barriers.setdefault(groups, len(self.barriers))


class _Emitted:
    """The steps of one collective."""

    def __init__(self, collectives: Collectives, instruction: Instruction, planned: list):
        self.planner, self.all = collectives.planner, collectives
        self.instruction, self.planned = instruction, planned
        opcode, attributes = instruction.opcode, instruction.attributes
        sizes = collectives.replicas, collectives.partitions
        self.groups: Groups = device_groups(opcode, attributes, *sizes)
        self.size = max(map(len, self.groups), default=1)
        self.position = [0] * collectives.devices  # of each device in its group
        self.member = [(k,) * self.size for k in range(collectives.devices)]  # of the device's group, in order
        for group in self.groups:
            for position, device in enumerate(group):
                self.position[device], self.member[device] = position, group
        self.results: list[Buffer] = self.planner.buffers[instruction]

    def emit(self) -> None:
        operands = [self._readable(o) for o in self.instruction.operands]
        if self.size == 1 and self.instruction.opcode not in ("collective-permute", "collective-broadcast"):
            for result, operand in zip(self.results, operands, strict=True):
                self._copy(result, operand, result.bytes)
            return
        number = self.all.barrier(self.groups)
        self.planned += [ArriveStep(number, self.groups, self.instruction)]
        self.planned += [AwaitStep(number, self.groups, self.instruction)]
        getattr(self, "_" + self.instruction.opcode.replace("-", "_"))(operands)
        self.planned += [ArriveStep(number, self.groups, self.instruction)]
        self.planned += [AwaitStep(number, self.groups, self.instruction)]

    def _readable(self, operand: Instruction) -> Buffer:
        """The buffer of an operand, or a copy of it where other devices can read it."""
        (buffer,) = self.planner.buffers[operand]
        if buffer.swap is None and (buffer.place is None or buffer.place.kind in READABLE):
            return buffer
        staged = self.planner.new(buffer.bytes, self.planner.time[self.instruction], self.instruction)
        self._copy(staged, buffer, buffer.bytes)
        return staged

    def _of(self, buffer: Buffer, member: int, stride: int = 0) -> Elsewhere:
        """The buffer of a member of the group; stride: bytes by which each device's part lies behind the last's."""
        peer = tuple([group[member] for group in self.member])
        return Elsewhere(buffer, peer, tuple([stride * p for p in self.position]) if stride else None)

    def _copy(self, target, source, size: int, devices: frozenset[int] | None = None) -> None:
        if size:
            self.planned.append(Transfer(target, source, size, self.instruction, devices))

    def _part(self, buffer: Buffer, offset: int) -> Buffer | Elsewhere:
        return Elsewhere(buffer, None, (offset,) * self.all.devices) if offset else buffer

    def _launch(self, computation: Computation, given: Sequence, made: Sequence) -> None:
        """Computes with the memory of several devices."""
        planner, target = self.planner, self.planner.target
        computation = inline_calls(computation)
        if any(not target.has_kernel(i) for i in computation.instructions) or target.kind_of(computation) is None:
            call = Instruction("call", tuple(computation.parameters), computation.root.shape, {"to_apply": computation})
            call.source = self.instruction.source
            self.planned.append((call, list(given), list(made)))
            return
        key: tuple = (planner.keys.computation(computation), (), frozenset(), frozenset())
        launches = planner.launches.get(key)
        if launches is None:
            launches = planner.launches[key] = target.launches(KernelRequest(computation, {}, target))
        pointers = {f"in{k}": b for k, b in enumerate(given)} | {f"out{k}": b for k, b in enumerate(made)}
        for launch in launches:
            tables = {name: planner.table(table) for name, table in launch.tables.items()}
            self.planned.append((launch, pointers | tables, self.instruction))

    # --- reductions ---

    def _all_reduce(self, operands: list[Buffer]) -> None:
        for operand, instruction, result in zip(operands, self.instruction.operands, self.results, strict=True):
            shape = instruction.shape.with_dims((instruction.shape.size,))
            if shape.bytes:
                computation = self._combined(shape, None)
                self._launch(computation, [self._of(operand, r) for r in range(self.size)], [result])

    def _reduce_scatter(self, operands: list[Buffer]) -> None:
        (operand,), (instruction,) = operands, self.instruction.operands
        before, size, after = self._divided(instruction.shape)
        part = size // self.size * after
        shape = instruction.shape.with_dims((part,) if before == 1 else (before, size * after))
        given = [self._of(operand, r, part * shape.dtype.itemsize) for r in range(self.size)]
        self._launch(self._combined(shape, None if before == 1 else part), given, self.results)

    def _combined(self, shape: Shape, part: int | None) -> Computation:
        """The combination of an array of each member in their order. part: of each the first elements of the rows."""
        b = Builder("combine")
        values = [b.parameter(shape) for _ in range(self.size)]
        if part is not None:
            values = [_first(b, value, part) for value in values]
        total = values[0]
        dimensions = tuple(range(len(total.dims)))
        for value in values[1:]:
            total = b.emit("map", total, value, dimensions=dimensions, to_apply=self.instruction["to_apply"])
        return b.finish(total)

    def _divided(self, shape: Shape) -> tuple[int, int, int]:
        """The numbers of elements before, along and behind the dimension of the collective."""
        (d,) = self.instruction["dimensions"]
        return math.prod(shape.dims[:d]), shape.dims[d], math.prod(shape.dims[d + 1 :])

    # --- what only moves ---

    def _all_gather(self, operands: list[Buffer]) -> None:
        (operand,), (result,), (instruction,) = operands, self.results, self.instruction.operands
        before, size, after = self._divided(instruction.shape)
        if before == 1:
            for r in range(self.size):
                self._copy(self._part(result, r * operand.bytes), self._of(operand, r), operand.bytes)
            return
        shape = _words(instruction.shape, (before, size * after))
        given = [self._of(operand, r) for r in range(self.size)]
        self._launch(_joined(shape, self.size, None), given, [result])

    def _all_to_all(self, operands: list[Buffer]) -> None:
        if "dimensions" not in self.instruction.attributes:
            for r, result in enumerate(self.results):
                for k, operand in enumerate(operands):
                    devices = frozenset(d for d, p in enumerate(self.position) if p == k)
                    self._copy(result, self._of(operand, r), result.bytes, devices)
            return
        (operand,), (result,), (instruction,) = operands, self.results, self.instruction.operands
        before, size, after = self._divided(instruction.shape)
        part = size // self.size * after
        stride = part * instruction.dtype.itemsize
        if before == 1:
            for r in range(self.size):
                self._copy(self._part(result, r * stride), self._of(operand, r, stride), stride)
            return
        shape = _words(instruction.shape, (before, size * after))
        given = [self._of(operand, r, stride) for r in range(self.size)]
        self._launch(_joined(shape, self.size, part * shape.dims[1] // (size * after)), given, [result])

    def _collective_broadcast(self, operands: list[Buffer]) -> None:
        self._receive(operands[0], {d: group[0] for group in self.groups for d in group})

    def _collective_permute(self, operands: list[Buffer]) -> None:
        pairs = device_pairs(self.instruction.attributes, self.all.replicas, self.all.partitions)
        self._receive(operands[0], {t: s for s, t in pairs})

    def _receive(self, operand: Buffer, source: dict[int, int]) -> None:
        """Each device has the value of its source, and zeros where it has none."""
        (result,) = self.results
        devices = range(self.all.devices)
        found = Elsewhere(operand, tuple([source.get(d, d) for d in devices]))
        self._copy(result, found, result.bytes, frozenset(source))
        rest = frozenset(devices) - frozenset(source)
        if rest:
            zeros = self.planner.constant(np.zeros(min(ZEROS, result.bytes), np.uint8))
            for start in range(0, result.bytes, ZEROS):
                self._copy(self._part(result, start), zeros, min(ZEROS, result.bytes - start), rest)


def _words(shape: Shape, dims: tuple[int, int]) -> Shape:
    """A shape of the same bytes whose elements kernels load, whatever the dtype is."""
    size = shape.dtype.itemsize
    word = min(size, 8)
    return Shape(DTYPES[f"u{8 * word}"], (dims[0], dims[1] * (size // word)))


def _first(b: Builder, value: Instruction, part: int) -> Instruction:
    return b.emit("slice", value, slice=((0, value.dims[0], 1), (0, part, 1)))


def _joined(shape: Shape, count: int, part: int | None) -> Computation:
    """The rows of `count` arrays behind each other. part: of each the first elements of the rows."""
    b = Builder("join")
    values = [b.parameter(shape) for _ in range(count)]
    if part is not None:
        values = [_first(b, value, part) for value in values]
    return b.finish(b.emit("concatenate", *values, dimensions=(1,)))
