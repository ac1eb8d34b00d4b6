"""The plan: launches in order, and where each value lives.

Values that are outputs are computed in the caller's buffers; all others share one arena by liveness. A value may
overwrite an operand that dies with it, where its kernel reads that operand only at the place that it writes (or, for
dynamic-update-slice, by design); a donated argument's buffer becomes an output the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hloom.compiler.kernels.emit import Launch, launches
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.build import Builder, tuple_elements
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops import OPS
from hloom.ir.types import Shape, TupleShape

ALIGNMENT = 64
ALIASES = {"reshape", "bitcast-convert"}  # standing alone: the operand's bytes under other extents
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "optimization-barrier"} | ALIASES


def runs_on_host(instruction: Instruction) -> bool:
    """Whether an instruction is a Python function between native steps, and no kernel."""
    return instruction.opcode == "custom-call" or OPS[instruction.opcode].family == "library"


@dataclass(frozen=True)
class Place:
    """Where a value lives. kind: 'input' or 'output' (number), 'constant' (number), 'arena' (byte offset)."""

    kind: str
    number: int


@dataclass
class KernelStep:
    """A launch with its pointers resolved. `instruction` is what it computes."""

    launch: Launch
    pointers: dict[str, Place]
    instruction: Instruction


@dataclass
class CopyStep:
    """Bytes copied from one place to another."""

    target: Place
    source: Place
    bytes: int
    instruction: Instruction


@dataclass
class HostStep:
    """A custom call or a library op: Python, between two native stretches."""

    instruction: Instruction
    inputs: list[Place]
    outputs: list[Place]


Step = KernelStep | CopyStep | HostStep


@dataclass
class Plan:
    """steps, the constants that they read, arena bytes, and for outputs that reuse a donated input: output -> input."""

    module: Module
    steps: list[Step]
    constants: list[np.ndarray]
    arena_bytes: int
    input_shapes: list[Shape]
    output_shapes: list[Shape]
    donated: dict[int, int] = field(default_factory=dict)

    def kernels(self) -> list[KernelStep]:
        return [s for s in self.steps if isinstance(s, KernelStep)]


@dataclass(eq=False)
class _Buffer:
    """The storage of one value while it is being planned."""

    bytes: int
    place: Place | None = None
    first: int = 0
    last: int = 0


def make_plan(module: Module, target, donated: frozenset[int] = frozenset()) -> Plan:
    """Plans a fused module for a target. `donated`: numbers of parameters whose buffers may be overwritten."""
    return _Planner(module, target, donated).plan()


class _Planner:
    def __init__(self, module: Module, target, donated: frozenset[int]):
        self.module, self.target, self.donated = module, target, donated
        self.entry = module.entry
        self.buffers: dict[Instruction, list[_Buffer]] = {}  # one for each element of a tuple
        self.constants: list[np.ndarray] = []
        self.steps: list[tuple[int, object]] = []
        self.all: dict[_Buffer, None] = {}
        self.holders: dict[_Buffer, list[tuple[list[_Buffer], int]]] = {}  # where in `buffers` a buffer stands
        self.single: dict[Instruction, Computation] = {}
        self.reused: dict[int, int] = {}

    def plan(self) -> Plan:
        entry = self.entry
        work = [i for i in entry.instructions if i.opcode not in FREE]
        self.time = {i: k + 1 for k, i in enumerate(work)}
        self._find_last_uses()
        outputs = entry.outputs() if isinstance(entry.shape, TupleShape) and entry.root.opcode == "tuple" else None
        for parameter in entry.parameters:
            buffer = _Buffer(parameter.shape.bytes, Place("input", parameter["index"]))
            self.buffers[parameter] = [buffer]
        for instruction in entry.instructions:
            self._storage(instruction)
        roots = outputs if outputs is not None else [entry.root]
        flat: list[tuple[Instruction, _Buffer, Shape]] = []
        for root in roots:
            shapes = root.shape.elements if isinstance(root.shape, TupleShape) else (root.shape,)
            flat += [(root, b, s) for b, s in zip(self.buffers[root], shapes, strict=True)]
        copies = []
        for number, (root, buffer, _) in enumerate(flat):
            if buffer.place is None:
                buffer.place = Place("output", number)
            else:
                copies.append((number, root, buffer))
        self._reuse_donated(flat)
        planned: list[Step] = []
        for instruction in work:
            planned += self._emit(instruction)
        for number, root, buffer in copies:
            if buffer.bytes:
                planned.append((Place("output", number), buffer, buffer.bytes, root))
        arena = self._allocate(planned, len(work) + 1)
        steps = [self._resolve(s) for s in planned]
        return Plan(
            self.module,
            steps,
            self.constants,
            arena,
            [p.shape for p in entry.parameters],
            [shape for _, _, shape in flat],
            self.reused,
        )

    # --- storage ---

    def _find_last_uses(self) -> None:
        """For every instruction the time of the last work that reads it, through aliases."""
        self.last: dict[Instruction, int] = {}
        end = len(self.time) + 1
        self.last[self.entry.root] = end
        for instruction in reversed(self.entry.instructions):
            when = self.time.get(instruction) or self.last.get(instruction, 0)
            for operand in instruction.operands:
                self.last[operand] = max(self.last.get(operand, 0), when)

    def _storage(self, instruction: Instruction) -> None:
        opcode = instruction.opcode
        if opcode == "parameter":
            pass  # the caller's buffer
        elif opcode == "constant":
            self.constants.append(np.ascontiguousarray(instruction["value"]))
            place = Place("constant", len(self.constants) - 1)
            self.buffers[instruction] = [_Buffer(instruction.shape.bytes, place)]
        elif opcode in ALIASES:
            self.buffers[instruction] = self.buffers[instruction.operands[0]]
        elif opcode in ("tuple", "optimization-barrier"):
            self.buffers[instruction] = [b for o in instruction.operands for b in self.buffers[o]]
        elif opcode == "get-tuple-element":
            self.buffers[instruction] = [self.buffers[instruction.operands[0]][instruction["index"]]]
        else:
            shapes = instruction.shape.elements if isinstance(instruction.shape, TupleShape) else (instruction.shape,)
            made = [_Buffer(s.bytes, None, self.time[instruction]) for s in shapes]
            self.all |= dict.fromkeys(made)
            self.buffers[instruction] = made
        if opcode not in ALIASES:  # these share their operand's list
            for k, buffer in enumerate(self.buffers[instruction]):
                self.holders.setdefault(buffer, []).append((self.buffers[instruction], k))
        for buffer in self.buffers[instruction]:
            buffer.last = max(buffer.last, self.last.get(instruction, 0), self.time.get(instruction, 0))

    def _reuse_donated(self, flat) -> None:
        """Gives outputs the buffers of donated inputs that are dead by then, or die where the output is written."""
        parameters = self.entry.parameters
        free = {k for k in self.donated}
        taken_inputs = {b.place.number for _, b, _ in flat if b.place.kind == "input"}
        for number, (_, buffer, shape) in enumerate(flat):
            if buffer.place != Place("output", number):
                continue
            maker = self._maker(buffer)
            for k in sorted(free - taken_inputs):
                other = self.buffers[parameters[k]][0]
                if parameters[k].shape.bytes != shape.bytes or shape.bytes == 0:
                    continue
                if other.last < buffer.first or (other.last == buffer.first and self._may_share(maker, buffer, other)):
                    self.reused[number] = k
                    free.discard(k)
                    break

    def _maker(self, buffer: _Buffer) -> Instruction:
        for instruction in self.time:
            if any(b is buffer for b in self.buffers[instruction]):
                return instruction
        raise AssertionError("an output that nothing computes")

    # --- in place ---

    def _may_share(self, instruction: Instruction, buffer: _Buffer, other: _Buffer) -> bool:
        """Whether the value in `buffer` may overwrite `other`, which `instruction` reads."""
        return self._shared_operand(instruction, buffer, other) is not None

    def _shared_operand(self, instruction, buffer, other) -> int | None:
        computation = self._computation(instruction)
        positions = [k for k, o in enumerate(self._inputs(instruction)) if any(b is other for b in self.buffers[o])]
        if len(positions) != 1 or buffer.bytes != other.bytes:
            return None
        output = next(k for k, b in enumerate(self.buffers[instruction]) if b is buffer)
        parameter, value = computation.parameters[positions[0]], computation.outputs()[output]
        if value.shape is not parameter.shape:
            return None
        if value.opcode == "dynamic-update-slice" and len(computation.outputs()) == 1:
            reads = [i for i in computation.instructions if parameter in i.operands]
            return positions[0] if reads == [value] and value.operands.count(parameter) == 1 else None
        if runs_on_host(instruction):
            return None
        return positions[0] if _read_in_place(computation, parameter) else None

    def _computation(self, instruction: Instruction) -> Computation:
        """The computation of a fusion, or one made of a single instruction."""
        if instruction.opcode == "fusion":
            return instruction["calls"]
        found = self.single.get(instruction)
        if found is None:
            builder = Builder(instruction.opcode)
            made = {o: builder.parameter(o.shape, o.hint) for o in dict.fromkeys(instruction.operands)}
            operands = tuple(made[o] for o in instruction.operands)
            root = builder.add(instruction.with_operands(operands))
            if isinstance(root.shape, TupleShape):
                root = builder.tuple(tuple_elements(builder, root))
            found = self.single[instruction] = builder.finish(root)
        return found

    def _inputs(self, instruction: Instruction) -> list[Instruction]:
        if instruction.opcode == "fusion":
            return list(instruction.operands)
        return list(dict.fromkeys(instruction.operands))

    # --- steps ---

    def _emit(self, instruction: Instruction) -> list:
        inputs = self._inputs(instruction)
        if runs_on_host(instruction):
            return [(instruction, [self.buffers[o][0] for o in inputs], self.buffers[instruction])]
        computation = self._computation(instruction)
        computation = _with_literals(computation, inputs)
        planned: list = []
        shared: dict[int, int] = {}
        now = self.time[instruction]
        for k, buffer in enumerate(self.buffers[instruction]):
            donor = self._donor(instruction, buffer, now, set(shared.values()))
            if donor is None:
                continue
            position, other = donor
            shared[k] = position
            if other is not None:
                self._join(buffer, other)
        root = computation.root
        if root.opcode == "dynamic-update-slice" and 0 not in shared and root.operands[0] in computation.parameters:
            position = computation.parameters.index(root.operands[0])
            reads = [i for i in computation.instructions if root.operands[0] in i.operands]
            if reads == [root] and root.operands.count(root.operands[0]) == 1:
                # The array lives on: a copy is updated.
                source = self.buffers[inputs[position]][0]
                planned.append((self.buffers[instruction][0], source, root.shape.bytes, instruction))
                shared[0] = position
        request = KernelRequest(computation, shared)
        for launch in launches(request, self.target):
            pointers: dict[str, object] = {}
            for k, operand in enumerate(inputs):
                pointers[f"in{k}"] = self.buffers[operand][0]
            for k, buffer in enumerate(self.buffers[instruction]):
                pointers[f"out{k}"] = pointers[f"io{k}"] = buffer
            planned.append((launch, pointers, instruction))
        return planned

    def _donor(self, instruction, buffer, now, taken) -> tuple[int, _Buffer | None] | None:
        """(operand position, buffer to join) of an operand that this output may overwrite."""
        inputs = self._inputs(instruction)
        number = buffer.place.number if buffer.place and buffer.place.kind == "output" else None
        for position, operand in enumerate(inputs):
            if position in taken or len(self.buffers[operand]) != 1:
                continue
            other = self.buffers[operand][0]
            if number is not None:
                fits = number in self.reused and other.place == Place("input", self.reused[number])
                if fits and other.last == now and self._shared_operand(instruction, buffer, other) is not None:
                    return position, None
                continue
            if other.place is None and other.last == now and other.bytes == buffer.bytes > 0:
                if self._shared_operand(instruction, buffer, other) is not None:
                    return position, other
        return None

    def _join(self, buffer: _Buffer, other: _Buffer) -> None:
        """Makes a value live in the buffer of the operand that it overwrites."""
        other.last = max(other.last, buffer.last)
        holders = self.holders.pop(buffer)
        for made, k in holders:
            made[k] = other
        self.holders[other] += holders
        del self.all[buffer]

    # --- the arena ---

    def _allocate(self, planned, end: int) -> int:
        """Offsets for the buffers without a place: the largest first, at the lowest offset free in its lifetime."""
        waiting = [b for b in self.all if b.place is None]
        self.temporaries: dict[tuple[int, str], _Buffer] = {}
        for item in planned:
            if isinstance(item[0], Launch):
                launch, _, instruction = item
                for name, size in launch.temporaries.items():
                    key = (id(instruction), name)
                    if key not in self.temporaries:
                        now = self.time[instruction]
                        self.temporaries[key] = _Buffer(size, None, now, now)
                        waiting.append(self.temporaries[key])
                    buffer = self.temporaries[key]
                    buffer.bytes = max(buffer.bytes, size)
        placed: list[_Buffer] = []
        total = 0
        for buffer in sorted(waiting, key=lambda b: -b.bytes):
            size = -(-max(buffer.bytes, 1) // ALIGNMENT) * ALIGNMENT
            busy = [
                (b.place.number, b.place.number + -(-max(b.bytes, 1) // ALIGNMENT) * ALIGNMENT)
                for b in placed
                if b.first <= buffer.last and buffer.first <= b.last
            ]
            offset = 0
            for start, stop in sorted(busy):
                if offset + size <= start:
                    break
                offset = max(offset, stop)
            buffer.place = Place("arena", offset)
            placed.append(buffer)
            total = max(total, offset + size)
        return total

    def _resolve(self, item) -> Step:
        if isinstance(item[0], Launch):
            launch, pointers, instruction = item
            places = {}
            for argument in launch.arguments:
                if isinstance(argument, str):
                    buffer = pointers.get(argument) or self.temporaries[(id(instruction), argument)]
                    places[argument] = buffer.place
            return KernelStep(launch, places, instruction)
        if len(item) == 4:
            target, source, size, instruction = item
            target = target if isinstance(target, Place) else target.place
            return CopyStep(target, source.place, size, instruction)
        instruction, inputs, outputs = item
        return HostStep(instruction, [b.place for b in inputs], [b.place for b in outputs])


def _read_in_place(computation: Computation, parameter: Instruction) -> bool:
    """Whether a parameter is read only at the index that is written: everything made from it is element-wise."""
    affected = {parameter}
    for instruction in computation.instructions:
        if affected.isdisjoint(instruction.operands):
            continue
        if instruction is computation.root and instruction.opcode == "tuple":
            continue
        if OPS[instruction.opcode].family != "elementwise" or instruction.dims != parameter.dims:
            return False
        affected.add(instruction)
    return len(affected) > 1


def _with_literals(computation: Computation, inputs: list[Instruction]) -> Computation:
    """Scalar constants that stand outside become literals of the kernel; the parameters keep their numbers."""
    literal = {
        p: o
        for p, o in zip(computation.parameters, inputs, strict=True)
        if o.opcode == "constant" and o.shape.size == 1 and o.dims == ()
    }
    if not literal:
        return computation
    mapped = {}
    instructions = []
    for instruction in computation.instructions:
        if instruction in literal:
            constant = literal[instruction].with_operands(())
            instructions += [instruction, constant]
            mapped[instruction] = constant
        else:
            mapped[instruction] = instruction.with_operands(tuple(mapped[o] for o in instruction.operands))
            instructions.append(mapped[instruction])
    parameters = [p if p in literal else mapped[p] for p in computation.parameters]
    return Computation(computation.name, parameters, instructions, mapped[computation.root])
