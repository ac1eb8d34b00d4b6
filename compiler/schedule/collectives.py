"""Collectives in the plan of a program that several devices run.

All devices run one plan, each in separate memory that the others can read. A collective begins with a barrier of its
group, after which all operands are ready. Each device reads the parts that it needs in place, in the order of the
group's members, so that sums are bitwise reproducible. After a second barrier all reads are done, and the operand's
memory may be reused.

If all members get the same result, each computes a part of it. A result that only kernels read is in memory shared by
the group; others (results of the program, loop state) are written to the memory of each member. The first barrier of a
collective also ensures that nothing reads the previous content of shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import repeat

import numpy as np

from hloom.compiler.fusibility import FREE
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.schedule.buffer_assignment import Buffer, allocate
from hloom.compiler.schedule.overlap import arrivals
from hloom.compiler.schedule.steps import ArriveStep, AwaitStep, Place
from hloom.compiler.transforms.inline import inline_calls
from hloom.ir.build import Builder
from hloom.ir.errors import UnsupportedError
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops.programs.collective import COLLECTIVES, NUMBERS
from hloom.ir.records import record, replace
from hloom.ir.spmd.groups import device_groups, device_pairs, in_pairs
from hloom.ir.types import DTYPES, Shape

Groups = tuple[tuple[int, ...], ...]
READABLE = ("input", "output", "constant", "arena", "shared")  # kinds of places that other devices can read
ZEROS = 1 << 16  # bytes of the zero constant that is copied where there is no sender
SHARED = 2048  # bytes from which members divide the work of a common result
LINE = 64  # bytes up to which one device writes everything


@record(eq=False)
class Elsewhere:
    """A buffer of other devices, or a part of one. peer, offsets: as in a Place."""

    buffer: Buffer
    peer: tuple[int, ...] | None = None
    offsets: tuple[int, ...] | None = None

    @property
    def bytes(self) -> int | list[int]:
        """The bytes from here to the end of the buffer, by device if they differ."""
        whole = self.buffer.bytes
        return whole if self.offsets is None else [whole - offset for offset in self.offsets]

    @property
    def assigned(self) -> Place:
        place = self.buffer.assigned
        if place.kind == "shared":  # equal within the group that shares it
            assert place.offsets is not None
            base = place.offsets if self.peer is None else [place.offsets[device] for device in self.peer]
            return replace(place, offsets=tuple(map(sum, zip(base, self.offsets or repeat(0), strict=False))))
        return replace(place, peer=self.peer, offsets=self.offsets)


@record(eq=False)
class Transfer:
    """A copy on some of the devices; None: on all."""

    target: Buffer | Elsewhere
    source: Buffer | Elsewhere
    bytes: int
    instruction: Instruction
    devices: frozenset[int] | None = None


@record(eq=False)
class PartLaunch:
    """A launch on some of the devices."""

    launch: Launch
    pointers: dict
    instruction: Instruction
    devices: frozenset[int]


class Collectives:
    """The part of a Planner for collectives."""

    def __init__(self, planner, processes: Sequence[int] = (), remote: type[Emitted] | None = None):
        """processes: the process of each device; () if there is only one. remote: emits collectives among devices of
        several processes."""
        self.planner, self.processes, self.remote = planner, processes, remote
        self.messages = 0  # batches of messages so far
        self.replicas, self.partitions = planner.module.replicas, planner.module.partitions
        self.devices = self.replicas * self.partitions
        self.barriers: dict[Groups, int] = {}
        self.shared: dict[Groups, list[Buffer]] = {}
        self.private: set[Instruction] = set()  # collectives whose results are written to each device's memory
        self.arrivals: dict[Instruction, Instruction] = {}  # collectives that begin early: after which instruction
        self.waiting: dict[Instruction, list[Instruction]] = {}  # the inverse mapping
        self.begun: set[Instruction] = set()  # those whose arrival was already signalled

    def look(self, module: Module) -> None:
        """Finds the collectives whose results leave their computation."""
        if self.devices == 1:
            return
        waiting = [c.root for c in module.computations()]
        while waiting:
            instruction = waiting.pop()
            if instruction in self.private:
                continue
            if instruction.opcode in COLLECTIVES:
                self.private.add(instruction)
            elif instruction.opcode in FREE:
                waiting += instruction.operands

    def moves(self, instruction: Instruction) -> bool:
        """Whether a collective may begin early and end late: it is among devices of this process."""
        return self.handles(instruction) and not self.crosses(instruction)

    def overlap(self, computation: Computation) -> None:
        """Finds the collectives of a computation that begin early. If other devices write into the memory of a result
        that leaves the computation, they wait until the device has reached it."""
        if self.devices == 1:
            return
        for instruction, at in arrivals(computation, self.moves, self.planner.runs_alone).items():
            if instruction not in self.private:
                self.arrivals[instruction] = at
                self.waiting.setdefault(at, []).append(instruction)

    def begins(self, instruction: Instruction) -> int:
        """The time from which on other devices may write into the memory of a collective's result."""
        return self.planner.time[self.arrivals.get(instruction, instruction)]

    def arrive(self, behind: Instruction, planned: list) -> None:
        """The arrivals of the collectives that begin after an instruction."""
        for instruction in self.waiting.get(behind, ()):
            groups = self.groups(instruction)
            if max(map(len, groups)) > 1 and all(map(self.readable, instruction.operands)):
                planned.append(ArriveStep(self.barrier(groups), groups, instruction))
                self.begun.add(instruction)

    def readable(self, operand: Instruction) -> bool:
        """Whether other devices can read an operand in place."""
        (buffer,) = self.planner.buffers[operand]
        return buffer.swap is None and (buffer.place is None or buffer.place.kind in READABLE)

    def share(self, instruction: Instruction, results: list[Buffer]) -> None:
        """Puts results into shared memory if that saves work."""
        if not self.handles(instruction) or instruction in self.private:
            return
        if instruction.opcode not in ("all-reduce", "all-gather"):
            return
        if self.crosses(instruction):
            return
        groups = self.groups(instruction)
        for operand, result in zip(instruction.operands, results, strict=True):
            if len(groups[0]) > 1 and len({*map(len, groups)}) == 1 and self.divides(instruction, operand):
                result.place = Place("shared", 0)
                self.shared.setdefault(groups, []).append(result)

    def divides(self, instruction: Instruction, operand: Instruction) -> bool:
        """Whether the members of a group divide the work for the result of an operand."""
        size = operand.shape.bytes
        if instruction.opcode == "all-gather":
            return size * len(self.groups(instruction)[0]) >= SHARED
        return size >= SHARED and self.has_kernel(combination(operand.shape, 2, instruction["to_apply"]))

    def has_kernel(self, computation: Computation) -> bool:
        target = self.planner.target
        return all(map(target.has_kernel, computation.instructions)) and target.kind_of(computation) is not None

    def temporary(self, groups: Groups, size: int, instruction: Instruction) -> Buffer:
        """Shared memory while a collective runs."""
        begin, now = self.begins(instruction), self.planner.time[instruction]
        buffer = Buffer(size, Place("shared", 0), begin, now, instruction)
        self.shared.setdefault(groups, []).append(buffer)
        return buffer

    def allocate(self) -> int:
        """Allocates shared buffers; returns their total bytes."""
        total = 0
        for groups, buffers in self.shared.items():
            size = allocate(buffers)
            number = {device: k for k, group in enumerate(groups) for device in group}
            offsets = tuple([total + size * number[k] for k in range(self.devices)])
            for buffer in buffers:
                buffer.place = Place("shared", buffer.assigned.number, offsets=offsets)
            total += size * len(groups)
        return total

    def groups(self, instruction: Instruction) -> Groups:
        return device_groups(instruction.opcode, instruction.attributes, self.replicas, self.partitions)

    def crosses(self, instruction: Instruction) -> bool:
        """Whether a collective is among devices of several processes."""
        return bool(self.processes) and any(
            len({self.processes[device] for device in group}) > 1 for group in self.groups(instruction)
        )

    def handles(self, instruction: Instruction) -> bool:
        """Whether an instruction exchanges values between devices."""
        return self.devices > 1 and instruction.opcode in COLLECTIVES

    def number(self, instruction: Instruction) -> Buffer:
        """The place of the partition or replica id."""
        if self.devices == 1:
            return self.planner.constant(np.zeros((), np.uint32))
        return Buffer(4, Place("device", NUMBERS.index(instruction.opcode)))

    def emit(self, instruction: Instruction, planned: list) -> None:
        results = self.planner.buffers[instruction]
        if sum(b.bytes for b in results):
            emitted = self.remote if self.remote is not None and self.crosses(instruction) else Emitted
            emitted(self, instruction, planned).emit()

    def barrier(self, groups: Groups) -> int:
        """The barrier id of these groups. Each device reaches barriers in program order, and leaves each before
        reaching the next, so one barrier suffices for all collectives among the same devices."""
        return self.barriers.setdefault(groups, len(self.barriers))


class Emitted:
    """The steps of one collective."""

    def __init__(self, collectives: Collectives, instruction: Instruction, planned: list):
        self.planner, self.all = collectives.planner, collectives
        self.instruction, self.planned = instruction, planned
        self.groups = collectives.groups(instruction)
        self._choose(max(map(len, self.groups), default=1))
        self.results: list[Buffer] = self.planner.buffers[instruction]

    def _choose(self, size: int) -> None:
        """Emits for the groups of one size."""
        devices = range(self.all.devices)
        self.size = size
        self.position = [0] * self.all.devices  # position of each device in its group
        self.member = [(k,) * size for k in devices]  # members of the device's group, in order
        for group in self.groups:
            if len(group) == size:
                for position, device in enumerate(group):
                    self.position[device], self.member[device] = position, group
        one_size = len({len(group) for group in self.groups}) < 2
        self.only = None if one_size else frozenset(d for g in self.groups if len(g) == size for d in g)

    def emit(self) -> None:
        operands = [self._readable(o) for o in self.instruction.operands]
        if self.size == 1 and self.instruction.opcode not in ("collective-permute", "collective-broadcast"):
            for result, operand in zip(self.results, operands, strict=True):
                self._copy(result, operand, result.bytes)
            return
        last = self.planned[-1] if self.planned else None
        number = self.all.barrier(self.groups)
        if self.instruction in self.all.begun:
            self.planned.append(AwaitStep(number, self.groups, self.instruction))
        elif not isinstance(last, AwaitStep) or last.number != number:
            self._meet(number)
        for size in sorted({len(group) for group in self.groups}):
            self._choose(size)
            getattr(self, "_" + self.instruction.opcode.replace("-", "_"))(operands)
        self._meet(number)

    def _meet(self, number: int) -> None:
        self.planned += [ArriveStep(number, self.groups, self.instruction)]
        self.planned += [AwaitStep(number, self.groups, self.instruction)]

    def _readable(self, operand: Instruction) -> Buffer:
        """The buffer of an operand, or a copy of it that other devices can read."""
        (buffer,) = self.planner.buffers[operand]
        if self.all.readable(operand):
            return buffer
        staged = self.planner.new(buffer.bytes, self.planner.time[self.instruction], self.instruction)
        self._copy(staged, buffer, buffer.bytes)
        return staged

    def _of(self, buffer: Buffer, member: int, stride: int = 0) -> Elsewhere:
        """The buffer of a member of the group; stride: bytes between consecutive devices' parts."""
        peer = tuple([group[member] for group in self.member])
        return Elsewhere(buffer, peer, self._by_position(stride))

    def _by_position(self, stride: int) -> tuple[int, ...] | None:
        return tuple([stride * p for p in self.position]) if stride else None

    def _copy(self, target, source, size: int, devices: frozenset[int] | None = None) -> None:
        if size:
            self.planned.append(Transfer(target, source, size, self.instruction, devices))

    def _part(self, buffer: Buffer, offset: int) -> Buffer | Elsewhere:
        return Elsewhere(buffer, None, (offset,) * self.all.devices) if offset else buffer

    def _divide(self, made, rows: int, least: int, written: int, read: int, given: Buffer, result: Buffer) -> None:
        """Divides the rows of a common result among the members.

        made: the computation of a part with a number of rows. least: the row granularity of parts. written, read: bytes
        per row of the result, and of `given` of each member.
        """
        part = -(-rows // (self.size * least)) * least
        full, rest = divmod(rows, part)
        target, copied = result, False
        if result.place is None or result.place.kind != "shared":
            if result.swap is not None:  # its location on others depends on the steps of their loops
                target, copied = self.all.temporary(self.groups, result.bytes, self.instruction), True
        places: list = [Elsewhere(target, None, self._by_position(part * written))]
        if target is result and not (result.place and result.place.kind == "shared"):
            places = [self._of(result, r, part * written) for r in range(self.size)]
        pointers = [self._of(given, r, part * read) for r in range(self.size)]
        for count, low, high in ((part, 0, full), (rest, full, full + 1)):
            if count and high > low:
                devices = frozenset(d for d, p in enumerate(self.position) if low <= p < high)
                devices = devices if self.only is None else devices & self.only
                self._launch(_repeated(made(count), len(places)), pointers, places, devices)
        if copied:
            self._meet(self.all.barrier(self.groups))
            self._copy(result, target, result.bytes, self.only)

    def _launch(self, computation: Computation, given: Sequence, made: Sequence, devices=None) -> None:
        """Launches a kernel on the memory of several devices. devices: those that launch it; None: all."""
        planner, target = self.planner, self.planner.target
        devices = self.only if devices is None else devices
        if not self.all.has_kernel(computation):
            if devices is not None:
                raise UnsupportedError(
                    f"{self.instruction.opcode} of {self.instruction.shape!r} in groups of several sizes",
                    "there is no kernel for its combiner", "make the groups of one size", self.instruction.source or "",
                )  # fmt: skip
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
            if devices is None:
                self.planned.append((launch, pointers | tables, self.instruction))
            else:
                self.planned.append(PartLaunch(launch, pointers | tables, self.instruction, devices))

    # --- reductions ---

    def _all_reduce(self, operands: list[Buffer]) -> None:
        combiner = self.instruction["to_apply"]
        for operand, instruction, result in zip(operands, self.instruction.operands, self.results, strict=True):
            shape, size = instruction.shape, instruction.dtype.itemsize
            if self.size == 1:
                self._copy(result, operand, result.bytes, self.only)
            elif self.all.divides(self.instruction, instruction):

                def part(count: int, shape: Shape = shape) -> Computation:
                    return combination(shape.with_dims((count,)), self.size, combiner)

                self._divide(part, shape.size, max(LINE // size, 1), size, size, operand, result)
            elif shape.bytes:
                computation = combination(shape.with_dims((shape.size,)), self.size, combiner)
                self._launch(computation, [self._of(operand, r) for r in range(self.size)], [result])

    def _reduce_scatter(self, operands: list[Buffer]) -> None:
        (operand,), (instruction,) = operands, self.instruction.operands
        before, size, after = self._divided(instruction.shape)
        part = size // self.size * after
        shape = instruction.shape.with_dims((part,) if before == 1 else (before, size * after))
        given = [self._of(operand, r, part * shape.dtype.itemsize) for r in range(self.size)]
        computation = combination(shape, self.size, self.instruction["to_apply"], None if before == 1 else part)
        self._launch(computation, given, self.results)

    def _divided(self, shape: Shape) -> tuple[int, int, int]:
        """The numbers of elements before, along and after the collective's dimension."""
        (d,) = self.instruction["dimensions"]
        return math.prod(shape.dims[:d]), shape.dims[d], math.prod(shape.dims[d + 1 :])

    # --- data movement ---

    def _all_gather(self, operands: list[Buffer]) -> None:
        (operand,), (result,), (instruction,) = operands, self.results, self.instruction.operands
        before, size, after = self._divided(instruction.shape)
        shared = result.place is not None and result.place.kind == "shared"
        if before == 1 and shared:
            self._copy(Elsewhere(result, None, self._by_position(operand.bytes)), operand, operand.bytes)
            return
        if before == 1:
            for r in range(self.size):
                self._copy(self._part(result, r * operand.bytes), self._of(operand, r), operand.bytes)
            return
        shape = words_of(instruction.shape, (before, size * after))
        if shared:
            row = operand.bytes // before

            def part(count: int) -> Computation:
                return joined(shape.with_dims((count, shape.dims[1])), self.size, None)

            self._divide(part, before, 1, row * self.size, row, operand, result)
            return
        given = [self._of(operand, r) for r in range(self.size)]
        self._launch(joined(shape, self.size, None), given, [result])

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
        shape = words_of(instruction.shape, (before, size * after))
        given = [self._of(operand, r, stride) for r in range(self.size)]
        self._launch(joined(shape, self.size, part * shape.dims[1] // (size * after)), given, [result])

    def _collective_broadcast(self, operands: list[Buffer]) -> None:
        self._receive(operands[0], {d: group[0] for group in self.groups for d in group})

    def _collective_permute(self, operands: list[Buffer]) -> None:
        pairs = device_pairs(self.instruction.attributes, self.all.replicas, self.all.partitions)
        self._receive(operands[0], {t: s for s, t in pairs})

    def _receive(self, operand: Buffer, source: dict[int, int]) -> None:
        """Each device gets the value of its source, or zeros without one."""
        (result,) = self.results
        devices = range(self.all.devices)
        found = Elsewhere(operand, tuple([source.get(d, d) for d in devices]))
        self._copy(result, found, result.bytes, frozenset(source))
        self._clear(result, frozenset(devices) - frozenset(source))

    def _clear(self, result: Buffer, rest: frozenset[int]) -> None:
        """Zeros, on some devices."""
        if rest:
            zeros = self.planner.constant(np.zeros(min(ZEROS, result.bytes), np.uint8))
            for start in range(0, result.bytes, ZEROS):
                self._copy(self._part(result, start), zeros, min(ZEROS, result.bytes - start), rest)


def combination(shape: Shape, count: int, combiner: Computation, part: int | None = None) -> Computation:
    """Arrays of `count` members combined pairwise. part: the first elements of each one's rows."""
    b = Builder("combine")
    values = [b.parameter(shape) for _ in range(count)]
    if part is not None:
        values = [_first(b, value, part) for value in values]
    dimensions = tuple(range(len(values[0].dims)))
    total = in_pairs(values, lambda x, y: b.emit("map", x, y, dimensions=dimensions, to_apply=combiner))
    return inline_calls(b.finish(total))


def _repeated(computation: Computation, count: int) -> Computation:
    """The result of a computation, `count` times."""
    if count == 1:
        return computation
    b = Builder(computation.name)
    root = b.inline(computation, [b.parameter(p.shape) for p in computation.parameters])
    return b.finish(b.tuple([root] * count))


def words_of(shape: Shape, dims: tuple[int, int]) -> Shape:
    """A shape with the same bytes and an element type that kernels can load, for any dtype."""
    size = shape.dtype.itemsize
    word = min(size, 8)
    return Shape(DTYPES[f"u{8 * word}"], (dims[0], dims[1] * (size // word)))


def _first(b: Builder, value: Instruction, part: int) -> Instruction:
    return b.emit("slice", value, slice=((0, value.dims[0], 1), (0, part, 1)))


def joined(shape: Shape, count: int, part: int | None) -> Computation:
    """The rows of `count` arrays concatenated. part: the first elements of each one's rows."""
    b = Builder("join")
    values = [b.parameter(shape) for _ in range(count)]
    if part is not None:
        values = [_first(b, value, part) for value in values]
    return b.finish(b.emit("concatenate", *values, dimensions=(1,)))
