"""Collectives between devices of several processes, as messages in the plan.

Devices of one process read each other's memory (`hloom.compiler.schedule.collectives`). In a group across processes,
each member sends the others the data they need, into their memory, and computes its result from the received data, in
member order: so results are bitwise independent of the division of devices into processes.
"""

from __future__ import annotations

from hloom.compiler.schedule.buffer_assignment import Buffer
from hloom.compiler.schedule.collectives import LINE, Elsewhere, Emitted, combination, joined, words_of
from hloom.compiler.schedule.steps import MessagesStep, PlannedMessage
from hloom.ir.module import Instruction
from hloom.ir.ops.programs.collective import COLLECTIVES
from hloom.ir.records import record
from hloom.ir.spmd.groups import device_pairs

GATHERED = 1 << 16  # bytes up to which every member of an all-reduce receives all operands


@record(eq=False)
class Messages:
    """Messages of one exchange. Each is (receives, buffer, bytes, peer), the last two by device."""

    messages: list[tuple[bool, Buffer | Elsewhere, tuple[int, ...], tuple[int, ...]]]
    number: int
    instruction: Instruction

    def step(self) -> MessagesStep:
        planned = [PlannedMessage(receives, b.assigned, size, peer) for receives, b, size, peer in self.messages]
        return MessagesStep(self.number, tuple(planned), self.instruction)


class ByMessages(Emitted):
    """The steps of one collective across processes."""

    def emit(self) -> None:
        operands = [self._readable(o) for o in self.instruction.operands]
        assert self.instruction.opcode in COLLECTIVES
        getattr(self, "_" + self.instruction.opcode.replace("-", "_"))(operands)

    # --- exchange between members ---

    def _exchange(self, messages: list) -> None:
        number = self.all.messages = self.all.messages + 1
        self.planned.append(Messages(messages, number, self.instruction))

    def _member(self, r: int, within=lambda position: True) -> tuple[int, ...]:
        """By device, member r of its group; the device itself, to which nothing is sent, if it is that member or not in
        the group."""
        return tuple(
            group[r] if within(position) else device
            for device, (group, position) in enumerate(zip(self.member, self.position, strict=True))
        )

    def _at(self, buffer: Buffer, offset: int = 0, stride: int = 0) -> Elsewhere:
        """A part of a local buffer, which begins at `offset` plus `stride` times the position in the group."""
        return Elsewhere(buffer, None, tuple(offset + stride * p for p in self.position))

    def _stage(self, size: int) -> Buffer:
        return self.planner.new(size, self.planner.time[self.instruction], self.instruction)

    def _collect(self, target: Buffer, size: int, operand: Buffer, stride: int = 0) -> None:
        """Fills target with a part from each member: `size` bytes of the operand, or, with a stride, those selected by
        the device's position."""
        self._copy(self._at(target, 0, size), self._at(operand, 0, stride), size)
        sizes = (size,) * self.all.devices
        messages: list = []
        for r in range(self.size):
            peer = self._member(r)
            messages.append((False, self._part(operand, r * stride), sizes, peer))
            messages.append((True, self._part(target, r * size), sizes, peer))
        self._exchange(messages)

    # --- the collectives ---

    def _all_reduce(self, operands: list[Buffer]) -> None:
        combiner = self.instruction["to_apply"]
        for operand, instruction, result in zip(operands, self.instruction.operands, self.results, strict=True):
            shape = instruction.shape
            if not shape.bytes:
                continue
            flat = shape.with_dims((shape.size,))
            if shape.bytes <= GATHERED or not self.all.has_kernel(combination(flat, 2, combiner)):
                stage = self._stage(self.size * shape.bytes)
                self._collect(stage, shape.bytes, operand)
                given = [self._part(stage, r * shape.bytes) for r in range(self.size)]
                self._launch(combination(flat, self.size, combiner), given, [result])
            else:
                self._reduce_in_parts(operand, result, shape, combiner)

    def _reduce_in_parts(self, operand: Buffer, result: Buffer, shape, combiner) -> None:
        """Each member reduces one part of the operands, and sends it to all."""
        width = shape.dtype.itemsize
        least = max(LINE // width, 1)
        part = -(-shape.size // (self.size * least)) * least
        counts = [max(min(part, shape.size - r * part), 0) for r in range(self.size)]
        sizes = [count * width for count in counts]
        own = tuple(sizes[p] for p in self.position)
        stage = self._stage(self.size * part * width)
        messages: list = []
        for r in range(self.size):
            source, mine = self._part(operand, r * part * width), self._part(stage, r * part * width)
            peer = self._member(r)
            messages.append((False, source, (sizes[r],) * self.all.devices, peer))
            messages.append((True, mine, own, peer))
        self._exchange(messages)
        for position, count in enumerate(counts):
            if not count:
                continue
            # The received operands, and the local one in place.
            given = [self._part(operand if r == position else stage, r * part * width) for r in range(self.size)]
            devices = frozenset(d for d, p in enumerate(self.position) if p == position)
            computation = combination(shape.with_dims((count,)), self.size, combiner)
            self._launch(computation, given, [self._part(result, position * part * width)], devices)
        messages = []
        for r in range(self.size):
            peer = self._member(r)
            messages.append((False, self._at(result, 0, part * width), own, peer))
            messages.append((True, self._part(result, r * part * width), (sizes[r],) * self.all.devices, peer))
        self._exchange(messages)

    def _all_gather(self, operands: list[Buffer]) -> None:
        (operand,), (result,), (instruction,) = operands, self.results, self.instruction.operands
        before, size, after = self._divided(instruction.shape)
        target = result if before == 1 else self._stage(result.bytes)
        self._collect(target, operand.bytes, operand)
        if before > 1:
            shape = words_of(instruction.shape, (before, size * after))
            given = [self._part(target, r * operand.bytes) for r in range(self.size)]
            self._launch(joined(shape, self.size, None), given, [result])

    def _parts(self, operand: Buffer, instruction: Instruction) -> Buffer:
        """The device's parts of all members' operands, concatenated."""
        before, size, after = self._divided(instruction.shape)
        part = size // self.size * after
        bytes = before * part * instruction.dtype.itemsize
        packed = operand
        if before > 1:
            packed = self._stage(operand.bytes)
            shape = words_of(instruction.shape, (before, size * after))
            columns = shape.dims[1] // self.size
            for r in range(self.size):
                source = self._part(operand, r * part * instruction.dtype.itemsize)
                self._launch(joined(shape, 1, columns), [source], [self._part(packed, r * bytes)])
        stage = self._stage(self.size * bytes)
        self._collect(stage, bytes, packed, bytes)
        return stage

    def _reduce_scatter(self, operands: list[Buffer]) -> None:
        (operand,), (instruction,), shape = operands, self.instruction.operands, self.instruction.shape
        stage = self._parts(operand, instruction)
        given = [self._part(stage, r * shape.bytes) for r in range(self.size)]
        flat = shape.with_dims((shape.size,))
        self._launch(combination(flat, self.size, self.instruction["to_apply"]), given, self.results)

    def _all_to_all(self, operands: list[Buffer]) -> None:
        if "dimensions" not in self.instruction.attributes:
            messages: list = []
            for r, (operand, result) in enumerate(zip(operands, self.results, strict=True)):
                self._copy(result, operand, result.bytes, frozenset(d for d, p in enumerate(self.position) if p == r))
                peer, sizes = self._member(r), (result.bytes,) * self.all.devices
                messages += [(False, operand, sizes, peer), (True, result, sizes, peer)]
            self._exchange(messages)
            return
        (operand,), (result,), (instruction,) = operands, self.results, self.instruction.operands
        before, size, after = self._divided(instruction.shape)
        bytes = result.bytes // self.size
        if before == 1:
            self._collect(result, bytes, operand, bytes)
            return
        stage = self._parts(operand, instruction)
        shape = words_of(instruction.shape, (before, size // self.size * after))
        given = [self._part(stage, r * bytes) for r in range(self.size)]
        self._launch(joined(shape, self.size, None), given, [result])

    def _collective_broadcast(self, operands: list[Buffer]) -> None:
        self._send_to({d: group[0] for group in self.groups for d in group}, operands[0])

    def _collective_permute(self, operands: list[Buffer]) -> None:
        pairs = device_pairs(self.instruction.attributes, self.all.replicas, self.all.partitions)
        self._send_to({t: s for s, t in pairs}, operands[0])

    def _send_to(self, source: dict[int, int], operand: Buffer) -> None:
        """Each device gets the value of its source, or zeros without one."""
        (result,) = self.results
        devices = range(self.all.devices)
        sizes = (result.bytes,) * self.all.devices
        own = frozenset(t for t, s in source.items() if s == t)
        targets: dict[int, list[int]] = {}
        for target, s in source.items():
            if target != s:
                targets.setdefault(s, []).append(target)
        self._copy(result, operand, result.bytes, own)
        messages: list = [(True, result, sizes, tuple(source.get(d, d) for d in devices))]
        for k in range(max(map(len, targets.values()), default=0)):
            peer = tuple(targets[d][k] if len(targets.get(d, ())) > k else d for d in devices)
            messages.append((False, operand, sizes, peer))
        self._exchange(messages)
        self._clear(result, frozenset(devices) - frozenset(source))


__all__ = ["ByMessages", "Messages"]
