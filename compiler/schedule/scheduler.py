"""The plan: launches in order, and the location of each value.

Outputs are computed in the caller's buffers; all other values share one arena by liveness. A value may overwrite an
operand that dies with it, if its kernel reads that operand only at the index that it writes (or, for
dynamic-update-slice, by design); a donated argument's buffer becomes an output the same way. Loops and branches are
ranges of the same list of steps (`plan_control`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hloom.compiler.fusibility import ALIASES, FREE, IN_PLACE, is_control
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.passes.cse import StructuralKeys
from hloom.compiler.schedule.buffer_assignment import Buffer, allocated
from hloom.compiler.schedule.channels import Channels
from hloom.compiler.schedule.collectives import Collectives, PartLaunch, Transfer
from hloom.compiler.schedule.control_flow import Control, Label, OnFalse, OnIndex, Swap, To, with_jumps
from hloom.compiler.schedule.fused_loops import whole_loops
from hloom.compiler.schedule.messages import ByMessages, Messages
from hloom.compiler.schedule.overlap import with_late_ends
from hloom.compiler.schedule.overwriting import is_of_kernel, kernel_updates, may_overwrite, only_updated, read_in_place
from hloom.compiler.schedule.preparation import Preparation
from hloom.compiler.schedule.steps import (
    ArriveStep,
    AwaitStep,
    BranchStep,
    CopyStep,
    FreeStep,
    HostStep,
    JumpStep,
    KernelStep,
    Place,
    ReceiveStep,
    RenewStep,
    SendStep,
    Step,
    SwapStep,
    SwitchStep,
)
from hloom.ir.build import Builder, tuple_elements
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops.programs.collective import NUMBERS
from hloom.ir.ops.programs.transfer import TRANSFERS
from hloom.ir.records import field, record
from hloom.ir.rewrite import has_effects
from hloom.ir.sizes.expressions import Size, SizeExpression, greatest
from hloom.ir.sizes.numbers import Nodes
from hloom.ir.types import Shape, TupleShape, result_shapes


@record
class Plan:
    """steps, their constants, arena bytes, and for outputs that reuse a donated input: output -> input. For several
    devices, barriers: their number; shared_bytes: of shared memory. guards: offsets of guard pages of the arena.
    prepared: steps that run when a steady input has changed, and fill `kept_bytes` of persistent memory. arena: for
    open sizes, the buffers of the arena, identified by index until sizes are known (`at_sizes`); guarded: whether each
    then has separate pages. nodes: the node list that numbers of the plan may refer to.

    `kernels()`: the launches in list order; those of a loop run repeatedly.
    """

    module: Module
    steps: list[Step]
    constants: list[np.ndarray]
    arena_bytes: int
    input_shapes: list[Shape]
    output_shapes: list[Shape]
    donated: dict[int, int] = field(default_factory=dict)
    barriers: int = 0
    shared_bytes: int = 0
    guards: Sequence[int] = ()
    prepared: list[Step] = field(default_factory=list)
    kept_bytes: int = 0
    arena: Sequence[Buffer] = ()
    guarded: bool = False
    nodes: Nodes | None = None

    def kernels(self) -> list[KernelStep]:
        return [s for s in (*self.prepared, *self.steps) if isinstance(s, KernelStep)]


def make_plan(
    module: Module,
    target,
    donated: frozenset[int] = frozenset(),
    *,
    updates: Mapping[int, int] | None = None,
    whole: bool = True,
    processes: Sequence[int] = (),
    steady: frozenset[int] = frozenset(),
) -> Plan:
    """Plans a module for a target after all passes: without scans, and with unique computations for each loop and
    branch.

    donated: indices of parameters whose buffers may be overwritten. updates: output -> the only parameter in whose
    buffer it may be computed, if possible. whole: fuse loops with small bodies into one kernel. processes: for a
    program on several devices, the process of each; () if there is only one. steady: indices of parameters with equal
    values in most calls: values that depend only on them are prepared.
    """
    return Planner(module, target, donated, updates, processes, steady).plan(whole)


class Planner:
    """Builds one plan. Time is the position of a piece of work in the total order, including loop bodies."""

    def __init__(
        self,
        module: Module,
        target,
        donated: frozenset[int],
        updates: Mapping[int, int] | None = None,
        processes: Sequence[int] = (),
        steady: frozenset[int] = frozenset(),
    ):
        self.module, self.target, self.donated, self.updates = module, target, donated, updates or {}
        self.preparation = Preparation(steady - donated)
        self.entry = module.entry
        self.buffers: dict[Instruction, list[Buffer]] = {}  # one for each element of a tuple
        self.constants: list[np.ndarray] = []
        self.all: dict[Buffer, None] = {}
        self.holders: dict[Buffer, list[tuple[list[Buffer], int]]] = {}  # the index of a buffer in `buffers`
        self.single: dict[Instruction, Computation] = {}
        self.reused: dict[int, int] = {}
        self.overwriting: dict[Instruction, bool] = {}
        self.time: dict[Instruction, int] = {}
        self.keys = StructuralKeys()
        self.launches: dict[tuple, list[Launch]] = {}  # shared by equal kernels
        self.tables: dict[int, Buffer] = {}  # by the id of an array kept alive by `constants`
        self.control = Control(self)
        self.channels = Channels(self)
        self.collectives = Collectives(self, processes, ByMessages)
        self.module = with_late_ends(module, self.collectives.moves, self.runs_alone)
        self.entry = self.module.entry

    def plan(self, whole: bool) -> Plan:
        entry = self.entry
        self.end = self.control.number(entry, 0) + 1
        self.collectives.look(self.module)
        for computation in self.module.computations():
            self.collectives.overlap(computation)
        self._store_entry()
        results, copies = self._place_results()
        planned: list = []
        self.emit_all(entry, planned)
        for number, root, buffer in copies:
            if buffer.bytes:
                planned.append((Place("output", number), buffer, buffer.bytes, root))
        prepared, planned = self.preparation.divided(planned)
        planned = with_jumps(whole_loops(self, planned) if whole and self.target.supports_loop_fusion else planned)
        waiting = [b for b in self.all if b.place is None] + self._temporaries([*prepared, *planned])
        shared = self.collectives.allocate()
        arena: list[Buffer] = []
        if any(isinstance(b.bytes, SizeExpression) for b in waiting):
            arena, arena_bytes, guards = waiting, 0, list[int]()
            for number, buffer in enumerate(waiting):
                buffer.place = Place("arena", number, buffer.swap)
        else:
            arena_bytes, guards = allocated(waiting, self.target.guards_memory)
        return Plan(
            self.module, self._resolve(planned), self.constants, arena_bytes, [p.shape for p in entry.parameters],
            [shape for _, _, shape in results], self.reused, len(self.collectives.barriers), shared, guards,
            self._resolve(prepared), self.preparation.bytes, arena, self.target.guards_memory,
        )  # fmt: skip

    def _store_entry(self) -> None:
        """Assigns buffers to the values of the entry."""
        for parameter in self.entry.parameters:
            buffer = Buffer(parameter.shape.bytes, Place("input", parameter["index"]))
            self.buffers[parameter] = self.held([buffer])
            self.preparation.note_parameter(parameter["index"], buffer)
        for instruction in self.entry.instructions:
            self.store(instruction)
            if self.preparation.steady and self.runs_alone(instruction):
                self.preparation.look(instruction, self._inputs(instruction), self.buffers, self.end)

    def _place_results(self) -> tuple[list[tuple[Instruction, Buffer, Shape]], list[tuple[int, Instruction, Buffer]]]:
        """Places results in the caller's buffers if possible. Returns the results with their buffers, and the copied
        ones by index. Channels of sends with a window are placed before the results, others later."""
        entry = self.entry
        is_tuple = isinstance(entry.shape, TupleShape) and entry.root.opcode == "tuple"
        roots = entry.outputs() if is_tuple else [entry.root]
        for root in roots:
            for buffer in self.buffers[root]:
                buffer.last = max(buffer.last, self.end)
        sends = [(i, *self.control.windows_of[i]) for i in self.control.sends]
        for send, window, in_body in sends:
            if window is not None:
                self.channels.take_place(send, window, in_body)
        self.control.take_over()
        results = [
            (root, buffer, shape)
            for root in roots
            for buffer, shape in zip(self.buffers[root], result_shapes(root.shape), strict=True)
        ]
        copies = []
        for number, (root, buffer, _) in enumerate(results):
            if buffer.place is None and buffer.swap is None:
                buffer.place = Place("output", number)
            else:
                copies.append((number, root, buffer))
        for send, window, in_body in sends:
            if window is None:
                self.channels.take_place(send, window, in_body)
        self._reuse_donated(results)
        return results, copies

    # --- storage ---

    def held(self, buffers: list[Buffer]) -> list[Buffer]:
        for k, buffer in enumerate(buffers):
            self.holders.setdefault(buffer, []).append((buffers, k))
        return buffers

    def new(self, bytes: int, time: int, maker: Instruction) -> Buffer:
        buffer = Buffer(bytes, None, time, time, maker)
        self.all[buffer] = None
        return buffer

    def hold(self, instruction: Instruction, buffers: list[Buffer]) -> None:
        """Records the locations of the elements of an instruction's value."""
        self.buffers[instruction] = self.held(buffers)

    def constant(self, value: np.ndarray) -> Buffer:
        """The buffer of a constant of the plan."""
        self.constants.append(np.ascontiguousarray(value))
        return Buffer(value.nbytes, Place("constant", len(self.constants) - 1))

    def store(self, instruction: Instruction) -> None:
        opcode = instruction.opcode
        operands = instruction.operands
        if opcode == "parameter":
            return  # the caller's buffer
        if opcode == "constant":
            self.hold(instruction, [self.constant(instruction["value"])])
        elif opcode in NUMBERS:
            self.hold(instruction, [self.collectives.number(instruction)])
        elif opcode in ALIASES:
            self.buffers[instruction] = self.buffers[operands[0]]  # its own list: one suffices for both
        elif opcode in ("tuple", "optimization-barrier"):
            self.hold(instruction, [b for o in operands for b in self.buffers[o]])
        elif opcode == "get-tuple-element":
            self.hold(instruction, [self.buffers[operands[0]][instruction["index"]]])
        elif is_control(instruction):
            self.control.store(instruction)
        elif opcode == "recv":
            self.hold(instruction, [self.control.received(instruction)])
        else:
            if opcode == "send":
                self.control.note_send(instruction)
            time = self.time[instruction]
            for operand in operands:
                for buffer in self.buffers[operand]:
                    buffer.read(time)
            shapes = result_shapes(instruction.shape)
            made = [self.new(s.bytes, self.collectives.begins(instruction), instruction) for s in shapes]
            self.collectives.share(instruction, made)
            self.hold(instruction, made)

    def _reuse_donated(self, flat) -> None:
        """Assigns outputs the buffers of donated inputs that are dead by then, or die where the output is written."""
        parameters = self.entry.parameters
        free = set(self.donated) - set(self.updates.values())
        taken_inputs = {b.place.number for _, b, _ in flat if b.place is not None and b.place.kind == "input"}
        for number, (_, buffer, shape) in enumerate(flat):
            if buffer.place != Place("output", number):
                continue
            wanted = {self.updates[number]} if number in self.updates else free
            for k in sorted(wanted - taken_inputs):
                other = self.buffers[parameters[k]][0]
                if not _fills(shape.bytes, parameters[k].shape.bytes):
                    continue
                shared = other.last == buffer.first and self.shared_operand(buffer.maker, buffer, other) is not None
                if other.last < buffer.first or shared:
                    self.reused[number] = k
                    free.discard(k)
                    break

    # --- in place ---

    def shared_operand(self, instruction: Instruction, buffer: Buffer, other: Buffer) -> int | None:
        """The index of the operand in `other`, if the value in `buffer` may overwrite it; else None."""
        if is_control(instruction):
            return self.control.shared_operand(instruction, buffer, other)
        if not self._may_overwrite(instruction):
            return None
        inputs = self._inputs(instruction)
        positions = [k for k, o in enumerate(inputs) if any(b is other for b in self.buffers[o])]
        if len(positions) != 1 or buffer.bytes != other.bytes:
            return None
        computation = self._computation(instruction)
        output = next((k for k, b in enumerate(self.buffers[instruction]) if b is buffer), None)
        if output is None:
            return None
        parameter, value = computation.parameters[positions[0]], computation.outputs()[output]
        if value.shape is not parameter.shape:
            return None
        if value.opcode in IN_PLACE and len(computation.outputs()) == 1:
            return positions[0] if only_updated(computation, value, parameter) else None
        if is_of_kernel(value):
            return positions[0] if kernel_updates(value, parameter) else None
        return positions[0] if read_in_place(computation, parameter) else None

    def _may_overwrite(self, instruction: Instruction) -> bool:
        """Whether any operand may be overwritten by a result."""
        found = self.overwriting.get(instruction)
        if found is None:
            found = self.overwriting[instruction] = (
                not self.collectives.handles(instruction)  # other devices read it
                and not self.target.runs_on_host(instruction)
                and may_overwrite(self._computation(instruction))
            )
        return found

    def _computation(self, instruction: Instruction) -> Computation:
        """The computation of a fusion, or one with a single instruction."""
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

    def emit_all(self, computation: Computation, planned: list) -> None:
        """Appends the steps of a computation."""
        for instruction in computation.instructions:
            if instruction.opcode in FREE or instruction.opcode in NUMBERS:
                continue
            if is_control(instruction):
                self.control.emit(instruction, planned)
            elif self.collectives.handles(instruction):
                self.collectives.emit(instruction, planned)
            elif instruction.opcode in TRANSFERS:
                self.channels.emit(instruction, planned, *self.control.windows_of[instruction])
            else:
                self._emit(instruction, planned)
            self.collectives.arrive(instruction, planned)

    def runs_alone(self, instruction: Instruction) -> bool:
        """Whether an instruction consists of device-local kernels without effects."""
        if instruction.opcode in FREE or instruction.opcode in TRANSFERS or is_control(instruction):
            return False
        return not (
            self.collectives.handles(instruction) or has_effects(instruction) or self.target.runs_on_host(instruction)
        )

    def _emit(self, instruction: Instruction, planned: list) -> None:
        inputs = self._inputs(instruction)
        if self.target.runs_on_host(instruction):
            planned.append((instruction, [self.buffers[o][0] for o in inputs], self.buffers[instruction]))
            return
        computation = _with_literals(self._computation(instruction), inputs)
        shared = self._overwritten(instruction, computation)
        root = computation.root
        if root.opcode in IN_PLACE and 0 not in shared and root.operands[0] in computation.parameters:
            position = computation.parameters.index(root.operands[0])
            if only_updated(computation, root, root.operands[0]):
                # The array is still live: a copy is updated.
                source, target = self.buffers[inputs[position]][0], self.buffers[instruction][0]
                if source is not target:
                    planned.append((target, source, root.shape.bytes, instruction))
                shared[0] = position
        for launch in self._launches(instruction, computation, shared):
            pointers: dict[str, object] = {}
            for k, operand in enumerate(inputs):
                pointers[f"in{k}"] = self.buffers[operand][0]
            for k, buffer in enumerate(self.buffers[instruction]):
                pointers[f"out{k}"] = pointers[f"io{k}"] = buffer
            for name, table in launch.tables.items():
                pointers[name] = self.table(table)
            planned.append((launch, pointers, instruction))

    def _overwritten(self, instruction: Instruction, computation: Computation) -> dict[int, int]:
        """output -> the index of the operand that it overwrites; their buffers are joined."""
        shared: dict[int, int] = {}
        if not self._may_overwrite(instruction):
            return shared
        now = self.time[instruction]
        updates = computation.root.opcode in IN_PLACE or is_of_kernel(computation.outputs()[0])
        for k, buffer in enumerate(self.buffers[instruction]):
            donor = self._donor(instruction, buffer, now, set(shared.values()), updates)
            if donor is not None:
                shared[k], other = donor
                if other is not None:
                    self.join(buffer, other)
        return shared

    def _launches(self, instruction: Instruction, computation: Computation, shared: dict[int, int]) -> list[Launch]:
        """The launches of an instruction. Repeated layers have the same kernels, which are written once."""
        kept: frozenset[int] = frozenset()
        if any(i.opcode in ("dot", "convolution") for i in computation.instructions):
            kept = frozenset(k for k, o in enumerate(self._inputs(instruction)) if self._stays(self.buffers[o][0]))
        buffers = enumerate(self.buffers[instruction])
        leaving = frozenset(k for k, b in buffers if _result_number(b) is not None and not b.reads)
        key = (self.keys.computation(computation), tuple(shared.items()), kept, leaving)
        made = self.launches.get(key)
        if made is None:
            made = self.launches[key] = self.target.launches(
                KernelRequest(computation, shared, self.target, kept, leaving)
            )
        return made

    def _stays(self, buffer: Buffer) -> bool:
        """Whether a value is invariant in the enclosing loop, or, outside of loops, in most calls."""
        return self.control.stays(buffer) or (self.control.loop is None and buffer in self.preparation.fixed)

    def table(self, table: np.ndarray) -> Buffer:
        """The buffer of a constant array that launches read, shared between them."""
        found = self.tables.get(id(table))
        if found is None:
            found = self.tables[id(table)] = self.constant(table)
        return found

    def _donor(self, instruction, buffer, now, taken, updates: bool) -> tuple[int, Buffer | None] | None:
        """(operand index, buffer to join) of an operand that this output may overwrite. updates: whether the operand
        must be copied otherwise; a result of the program is then computed in the caller's buffer."""
        left = [
            (position, self.buffers[o]) for position, o in enumerate(self._inputs(instruction)) if position not in taken
        ]
        for position, buffers in left:
            if buffers == [buffer]:
                return position, None  # already joined: the state of a loop
        ending = [(position, buffers[0]) for position, buffers in left if len(buffers) == 1 and buffers[0].last == now]
        number = _result_number(buffer)
        if number in self.reused:
            donated = Place("input", self.reused[number])
            for position, other in ending:
                if other.place == donated and self.shared_operand(instruction, buffer, other) is not None:
                    return position, None
            return None
        is_free = buffer.place is None or (updates and number is not None)
        if not is_free or buffer.first != now or buffer.swap is not None:
            return None  # the state of a loop, a result that several branches write, a channel's buffer
        for position, other in ending:
            if other.swap is None and other.place is None and other.bytes == buffer.bytes > 0:
                if self.shared_operand(instruction, buffer, other) is not None:
                    return position, other
        return None

    def join(self, buffer: Buffer, other: Buffer) -> None:
        """Assigns a value the buffer of the one that it overwrites."""
        if buffer.first < other.first:
            other.first, other.maker = buffer.first, buffer.maker
        other.last = max(other.last, buffer.last)
        other.reads += buffer.reads
        other.swap = buffer.swap if other.swap is None else other.swap
        other.place = other.place or buffer.place
        holders = self.holders.pop(buffer)
        for made, k in holders:
            made[k] = other
        self.holders[other] += holders
        del self.all[buffer]

    # --- the arena and the list of steps ---

    def _temporaries(self, planned) -> list[Buffer]:
        """Buffers for kernels' temporaries between the launches of one instruction."""
        self.temporaries: dict[tuple[int, str], Buffer] = {}
        for item in planned:
            if isinstance(item, tuple) and isinstance(item[0], Launch):
                launch, _, instruction = item
                for name, size in launch.temporaries.items():
                    key, now = (id(instruction), name), self.time[instruction]
                    first, last = self.control.prepared.get(key, (now, now))
                    buffer = self.temporaries.setdefault(key, Buffer(size, None, first, last))
                    buffer.bytes = greatest(buffer.bytes, size)
        for key in self.preparation.temporaries:
            self.preparation.keep(self.temporaries[key])
        return [buffer for buffer in self.temporaries.values() if buffer.place is None]

    def _resolve(self, planned) -> list[Step]:
        numbers: dict[Label, int] = {}
        count = 0
        for item in planned:
            if isinstance(item, Label):
                numbers[item] = count
            else:
                count += 1
        return [self._step(item, numbers) for item in planned if not isinstance(item, Label)]

    def _step(self, item, numbers: dict[Label, int]) -> Step:
        if isinstance(item, To):
            return JumpStep(numbers[item.label])
        if isinstance(item, OnFalse):
            return BranchStep(item.pred.assigned, numbers[item.label])
        if isinstance(item, OnIndex):
            return SwitchStep(item.index.assigned, [numbers[label] for label in item.labels])
        if isinstance(item, Swap):
            return SwapStep(item.first.assigned, item.second.assigned)
        if isinstance(item, (SendStep, ReceiveStep, RenewStep, FreeStep, ArriveStep, AwaitStep)):
            return item
        if isinstance(item, PartLaunch):
            places = {name: buffer.assigned for name, buffer in item.pointers.items()}
            extents = {name: buffer.bytes for name, buffer in item.pointers.items()}
            return KernelStep(item.launch, places, item.instruction, item.devices, extents)
        if isinstance(item, Messages):
            return item.step()
        if isinstance(item, Transfer):
            return CopyStep(item.target.assigned, item.source.assigned, item.bytes, item.instruction, item.devices)
        if isinstance(item[0], Launch):
            launch, pointers, instruction = item
            places, extents = dict[str, Place](), dict[str, int | list[int]]()
            for argument in launch.arguments:
                if isinstance(argument, str):
                    buffer = pointers.get(argument) or self.temporaries[(id(instruction), argument)]
                    places[argument], extents[argument] = buffer.assigned, buffer.bytes
            return KernelStep(launch, places, instruction, extents=extents)
        if len(item) == 4:
            target, source, size, instruction = item
            target = target if isinstance(target, Place) else target.assigned
            return CopyStep(target, source.assigned, size, instruction)
        instruction, inputs, outputs = item
        return HostStep(instruction, [b.assigned for b in inputs], [b.assigned for b in outputs])


def _fills(bytes: Size, given: Size) -> bool:
    """Whether a result has as many bytes as an argument, and is not empty. Open sizes must be the same expression, as a
    guard would hold for one call's size only."""
    if isinstance(bytes, SizeExpression) or isinstance(given, SizeExpression):
        return isinstance(bytes, SizeExpression) and isinstance(given, SizeExpression) and bytes.terms == given.terms
    return bytes == given > 0


def _with_literals(computation: Computation, inputs: list[Instruction]) -> Computation:
    """Inlines external scalar constants as literals of the kernel; the parameters keep their indices."""
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


def _result_number(buffer: Buffer) -> int | None:
    """The index of the result in whose memory a value is computed; None for others."""
    return buffer.place.number if buffer.place and buffer.place.kind == "output" else None
