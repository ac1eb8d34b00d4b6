"""Executable: a program (`hloom.runtime.steps`) with a driver, its arenas and output buffers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, ClassVar

import numpy as np

from hloom.ir.process import forking
from hloom.ir.records import replace
from hloom.ir.sizes.numbers import Node, Number
from hloom.ir.types import Shape
from hloom.runtime.buffer import Arena, address, default_pool, is_own
from hloom.runtime.distributed.messages import Batch, Message, Others
from hloom.runtime.driver import Driver, step
from hloom.runtime.driver_source import (
    AWAIT,
    COPY,
    JUMP,
    JUMP_IF_ZERO,
    KERNEL,
    LOOK,
    LOOP,
    POLL,
    SIGNAL,
    STEP_WORDS,
    SWAP,
    SWITCH,
    Work,
    work_ahead,
)
from hloom.runtime.host_steps import callbacks_of, new_state, take_error
from hloom.runtime.steps import (
    Arrive,
    Await,
    Branch,
    Call,
    Copy,
    Count,
    Deliver,
    Exchange,
    Host,
    Jump,
    Program,
    Ref,
    Settle,
    Step,
    Swap,
    Switch,
)

ARENA = "arena"  # the name of the arena's address, among the values given to a program with nodes
LINE = 16  # words between control words, so that threads do not share a cache line
SMALL = 30_000  # element operations up to which other Python threads can wait for a call: some 5 microseconds


class Seat:
    """A device frame's view of the other devices that run the same program alongside it.

    device: its index. positions: of each device of this process, by its index. arenas, slots: of these devices in this
    order, with equally many slots each. shared: the memory shared by all. counts: for each barrier and each device, as
    first of its group, the number of arrivals. targets: for each barrier, how many arrivals the device waits for.
    identity: the indices of its partition and replica. others: the transport to devices of other processes.
    """

    __slots__ = ("arenas", "counts", "device", "identity", "others", "positions", "shared", "slots", "targets")

    def __init__(
        self, device: int, positions: dict[int, int], arenas, slots, shared, counts, targets, identity,
        others: Others | None = None,
    ):  # fmt: skip
        self.device, self.positions, self.arenas, self.slots, self.shared = device, positions, arenas, slots, shared
        self.counts, self.targets, self.identity, self.others = counts, targets, identity, others


class Frame:
    """The memory of one running call: arena, argument words, slots and rows of steps.

    state: one byte, 1 until an error; a Python step that raised leaves its exception in `errors` and 0 here. Programs
    that run alongside each other share it, and `control`, their counts. first: the row of each step. done: a byte that
    is 1 unless a Python step was cut short, and a zero. batches: messages, by the index of their step, or of the
    channel for their value. open: (address of a word, the node whose value it has), of a program with nodes.
    """

    __slots__ = (
        "__weakref__", "activation", "address", "arena", "batches", "code", "constants", "control", "done", "first",
        "open", "seat", "state",
    )  # fmt: skip

    def __init__(
        self,
        program: Program,
        driver: Driver,
        callbacks: dict[int, int],
        control: np.ndarray | None = None,
        state: np.ndarray | None = None,
        seat: Seat | None = None,
        done: np.ndarray | None = None,
    ):
        self.seat = seat
        self.batches: dict[int, Batch] = {}
        if seat:
            self.arena = seat.arenas[seat.positions[seat.device]]
        elif program.nodes is None:
            self.arena = Arena(max(program.arena_bytes, 64), program.guards)
        else:
            self.arena = Arena(64)  # until the sizes are known
        self.constants, self.code = program.constants, program.code
        self.state = new_state() if state is None else state
        self.done = np.array([1, 0], np.uint8) if done is None else done
        self.control = 0 if control is None else address(control)
        maker = _Rows(program, self)
        rows = maker.rows(callbacks)
        self.first = maker.first
        count = len(program.inputs) + len(program.outputs) + program.channels + bool(program.kept_bytes)
        slots = seat.slots if seat else np.zeros(max(count, 1), np.int64)
        args = np.array(maker.words or [0], np.int64)
        release = program.work > SMALL or control is not None
        made = self.activation = driver.activation(
            rows, maker.relocations, args, slots, release_gil=release, resumes=seat is not None,
            parallel=program.nodes is not None,
        )  # fmt: skip
        self.address = made.address
        places = {"row": address(made.steps), "word": address(made.args), "offset": address(made.relocations)}
        self.open = [(places[kind] + 8 * position, node) for kind, position, node in maker.open]

    def check(self) -> None:
        """Raises KeyboardInterrupt if a signal handler raised in a Python step before its first line: ctypes reports
        that and drops it."""
        if not self.done[0]:
            self.done[0] = 1
            raise KeyboardInterrupt


class _Rows:
    """Makes the rows of the driver's steps, and the argument words that they read."""

    def __init__(self, program: Program, frame: Frame):
        self.program, self.frame, self.seat = program, frame, frame.seat
        self.words: list[int] = []
        self.relocations: list[tuple[int, int, int]] = []
        self.swapped: dict[int, list[int]] = {}  # swap index of a reference -> the words that hold its address
        self.constants = [address(c) for c in program.constants]
        self.first: list[int] = []
        self.batches: dict[int, int] = {}  # of `Deliver`, by channel: the position of their words
        self.open: list[tuple[str, int, Node]] = []  # ("row", "word" or "offset", position of a word, its node)

    def word(self, value: int | Ref) -> int:
        """Appends an argument word; its position."""
        position = len(self.words)
        self.words.append(0)
        found = self._value(value, position) if isinstance(value, Ref) else value
        self.words[position] = self._known(found, "word", position)
        return position

    def _known(self, number: Number, kind: str, position: int) -> int:
        """A number as it is now; one that is a node is noted."""
        if isinstance(number, Node):
            self.open.append((kind, position, number))
            return 0
        return number

    def _value(self, ref: Ref, position: int) -> Number:
        """The address of a reference, or 0 where a call's slot has it."""
        if ref.swap is not None:
            self.swapped.setdefault(ref.swap, []).append(position)
        program, seat, number = self.program, self.seat, ref.number
        if ref.kind == "kept":  # the last slot
            slot = len(program.inputs) + len(program.outputs) + program.channels
            self.relocations.append((position, slot, number))
            return 0
        if ref.kind in ("input", "output", "channel"):
            slot = number
            if ref.kind != "input":
                slot += len(program.inputs)
            if ref.kind == "channel":
                slot += len(program.outputs)
            if seat is not None:
                slot += self._owner(ref) * (len(program.inputs) + len(program.outputs))
            self.relocations.append((position, slot, self._offset(ref)))
            return 0
        if ref.kind == "state":
            return address(self.frame.state)
        if ref.kind == "number":
            return number + self._offset(ref)
        if ref.kind == "control":
            return self.frame.control + 8 * number
        if ref.kind == "constant":
            return self.constants[number] + self._offset(ref)
        if seat is None:
            return number + (self.frame.arena.address if program.nodes is None else program.nodes.given(ARENA))
        if ref.kind == "shared":
            return seat.shared.address + number + self._offset(ref)
        if ref.kind == "device":
            return address(seat.identity) + 4 * number
        return seat.arenas[self._owner(ref)].address + number + self._offset(ref)

    def _owner(self, ref: Ref) -> int:
        """The position of the device that owns a reference."""
        assert self.seat is not None
        return self.seat.positions[self.seat.device if ref.peer is None else ref.peer[self.seat.device]]

    def _offset(self, ref: Ref) -> int:
        return 0 if ref.offsets is None or self.seat is None else ref.offsets[self.seat.device]

    def _group(self, item: Arrive | Await) -> tuple[int, ...]:
        """The group of the device; () if it waits for no other device."""
        assert self.seat is not None
        found = next((g for g in item.groups if self.seat.device in g), ())
        return found if len(found) > 1 else ()

    def _count(self, item: Step) -> int:
        """The number of rows of a step."""
        if isinstance(item, Host):
            return (5 if item.native is None else 2) * (not self._skips(item))
        if isinstance(item, Count):
            return len(item.added) + len(item.waits)
        if isinstance(item, (Call, Copy)):
            return int(not self._skips(item))
        if isinstance(item, (Arrive, Await)):
            return (1 + isinstance(item, Arrive)) * bool(self._group(item))
        if isinstance(item, Exchange):
            return 2 * bool(self._own_messages(item))
        if isinstance(item, Deliver):
            return 2
        if isinstance(item, Settle):
            return len(item.channels)
        return 1

    def _batch(self, channel: int, message: Message | None = None) -> int:
        """The position of the words that lead to the messages of a channel: known by one that is sent or received."""
        if channel not in self.batches:
            assert self.program.transport is not None
            if message is None:
                found = next(s for s in self.program.steps if isinstance(s, Deliver) and s.channel == channel)
                message = _message(found)
            batch = self.frame.batches[channel] = Batch(self.program.transport, [message])
            self.batches[channel] = self.word(batch.address)
            self.word(address(self.frame.state))
        return self.batches[channel]

    def _deliver(self, number: int, item: Deliver) -> list[list[int]]:
        transport = self.program.transport
        assert transport is not None
        batch = self._batch(item.channel, _message(item))
        start = self.word(self.frame.batches[item.channel].address)
        self.word(address(self.frame.state))
        self.word(item.place)
        rows = [step(POLL, transport.poll, batch), step(KERNEL, transport.start, start, 1, 1)]
        return rows[::-1] if item.receives else rows

    def _settle(self, number: int, item: Settle) -> list[list[int]]:
        assert self.program.transport is not None
        return [step(POLL, self.program.transport.poll, self._batch(channel)) for channel in item.channels]

    def _own_messages(self, item: Exchange) -> list[tuple[bool, Ref, int, int]]:
        """Those of the device."""
        assert self.seat is not None
        me = self.seat.device
        found = [(receives, ref, size[me], peer[me]) for receives, ref, size, peer in item.messages]
        return [message for message in found if message[2] and message[3] != me]

    def _exchange(self, number: int, item: Exchange) -> list[list[int]]:
        messages = self._own_messages(item)
        if not messages:
            return []
        assert self.seat is not None and self.seat.others is not None
        others, me = self.seat.others, self.seat.device
        batch = Batch(
            others.transport,
            [others.message(receives, size, item.number, me, peer) for receives, _, size, peer in messages],
        )
        self.frame.batches[number] = batch
        start = self.word(batch.address)
        self.word(address(self.frame.state))
        for _, ref, _, _ in messages:
            self.word(ref)
        return [step(KERNEL, others.transport.start, start, 1, 1), step(POLL, others.transport.poll, start)]

    def _skips(self, item: Call | Copy | Host) -> bool:
        return item.devices is not None and self.seat is not None and self.seat.device not in item.devices

    def _barrier(self, number: int, item: Arrive | Await) -> list[list[int]]:
        group = self._group(item)
        if not group:
            return []
        assert self.seat is not None
        target = self.word(address(self.seat.targets) + 8 * item.number)
        place = item.number * len(self.seat.arenas) + self.seat.positions[group[0]]
        count = self.word(address(self.seat.counts) + 8 * LINE * place)
        if isinstance(item, Await):
            return [step(AWAIT, count, target, self.status)]
        return [step(SIGNAL, target, len(group)), step(SIGNAL, count, 1)]

    def rows(self, callbacks: dict[int, int]) -> list[list[int]]:
        """`callbacks`: the address of each Python step, by its number."""
        program = self.program
        count = 0
        for item in program.steps:
            self.first.append(count)
            count += self._count(item)
        self.first.append(count)
        self.callbacks = callbacks
        self.ahead = work_ahead([_work(step, number) for number, step in enumerate(program.steps)])
        self.status = self.word(address(self.frame.state))
        rows: list[list[int]] = []
        swaps: list[tuple[int, Swap]] = []
        for number, item in enumerate(program.steps):
            if isinstance(item, Swap):
                for ref in (item.first, item.second):
                    if ref.swap not in self.swapped:
                        self.word(ref)
                swaps.append((len(rows), item))
                rows.append([])
            elif not isinstance(item, (Call, Copy, Host)) or not self._skips(item):
                rows += self._MADE[type(item)](self, number, item)
        for row, swap in swaps:  # now all words are there
            rows[row] = self._swap(swap)
        if program.nodes is not None:
            words = enumerate(word for row in rows for word in row)
            known = [self._known(word, "row", position) for position, word in words]
            rows = [known[k : k + STEP_WORDS] for k in range(0, len(known), STEP_WORDS)]
        return rows

    # The rows of one step, by its number and kind.

    def _call(self, number: int, item: Call) -> list[list[int]]:
        start = len(self.words)
        for value in item.words:
            self.word(value)
        chunks = item.items, item.grain, int(item.side_by_side)
        return [step(KERNEL, item.kernel, start, *chunks, self.ahead[number])]

    def _copy(self, number: int, item: Copy) -> list[list[int]]:
        return [step(COPY, self.word(item.target), self.word(item.source), item.bytes)]

    def _host(self, number: int, item: Host) -> list[list[int]]:
        done, zero = (self.word(address(self.frame.done) + k) for k in (0, 1))
        start, end = self.word(address(self.frame.state)), self.first[-1]
        self.word(address(self.frame.done))
        for ref, _ in (*item.inputs, *item.outputs):
            self.word(ref)
        if (native := item.native) is not None:
            for word in (self.callbacks[number], *native.numbers):
                self.word(word)
            call = step(KERNEL, native.address, start, native.items, native.grain, 1, self.ahead[number])
            return [call, step(JUMP_IF_ZERO, end, self.status)]
        rows = [step(LOOK), step(COPY, done, zero, 1), step(KERNEL, self.callbacks[number], start, 1, 1)]
        return [*rows, step(JUMP_IF_ZERO, end, self.status), step(JUMP_IF_ZERO, end, done)]

    def _counted(self, number: int, item: Count) -> list[list[int]]:
        rows = [step(SIGNAL, self.word(word), 1) for word in item.added]
        return rows + [step(AWAIT, self.word(first), self.word(second), self.status) for first, second in item.waits]

    def _jump(self, number: int, item: Jump) -> list[list[int]]:
        target = self.first[item.target]
        return [step(LOOP, target, self.status) if item.target <= number else step(JUMP, target)]

    def _branch(self, number: int, item: Branch) -> list[list[int]]:
        return [step(JUMP_IF_ZERO, self.first[item.target], self.word(item.pred))]

    def _switch(self, number: int, item: Switch) -> list[list[int]]:
        place, start = self.word(item.index), len(self.words)
        for target in item.targets:
            self.word(self.first[target])
        return [step(SWITCH, place, len(item.targets), start)]

    _MADE: ClassVar[dict[type, Callable[[Any, int, Any], list[list[int]]]]] = {
        Call: _call,
        Copy: _copy,
        Host: _host,
        Count: _counted,
        Arrive: _barrier,
        Await: _barrier,
        Exchange: _exchange,
        Deliver: _deliver,
        Settle: _settle,
        Jump: _jump,
        Branch: _branch,
        Switch: _switch,
    }

    def _swap(self, swap: Swap) -> list[int]:
        operands = []
        for ref in (swap.first, swap.second):
            assert ref.swap is not None  # swapped references have an index
            positions = self.swapped[ref.swap]
            operands += [len(self.words), len(positions)]
            for position in positions:
                self.word(position)
        return step(SWAP, *operands)


def _message(item: Deliver) -> Message:
    return Message(item.receives, item.bytes, item.peer, item.tag)


def _work(step: Step, number: int) -> Work | bool:
    """What `work_ahead` asks of a step."""
    if isinstance(step, Call):
        return step.items, step.grain, step.nanoseconds
    if isinstance(step, Host) and step.native is not None:
        return step.native.items, step.native.grain, 0
    return isinstance(step, Jump) and step.target <= number


def as_shape(array: np.ndarray, shape: Shape) -> np.ndarray:
    """The bytes of an array as one of another shape: a donated buffer has the size of the result, not its dtype."""
    return array.reshape(-1).view(shape.dtype).reshape(shape.dims)


class Preparation:
    """The steps of a program that run when a steady input has changed, and their results for the last steady inputs.

    bytes: size of their results. note: called with the preparation when it keeps new memory.
    """

    def __init__(self, program: Program, driver: Driver, note: Callable[[Preparation], None] | None = None):
        self._steady, self.bytes = program.steady, program.kept_bytes
        self._program = replace(
            program,
            steps=[*program.prepared],
            prepared=(),
            outputs=(),
            donated={},
            arena_bytes=0,
            guards=(),
            nodes=None,
        )
        self._driver, self._note = driver, note
        self._frames: list[Frame] = []
        self._last: tuple[list[np.ndarray], np.ndarray] | None = None

    def kept(self, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """The memory for these inputs: that of the last call, where the steady ones are the same arrays."""
        steady, last = [inputs[k] for k in self._steady], self._last
        if last is not None and all(map(is_, steady, last[0])):
            return last[1]
        memory = self.made(inputs)
        # Memory owned elsewhere may have different contents next time.
        self._last = (steady, memory) if all(map(is_own, steady)) else None
        if self._note is not None and self._last is not None:
            self._note(self)
        return memory

    def forget(self) -> None:
        """Gives the memory that is kept back to the pool, once no call has it."""
        self._last = None

    def made(self, inputs: Sequence) -> np.ndarray:
        """New memory for these inputs: arrays, or addresses."""
        memory = default_pool().allocate((self.bytes,), np.dtype(np.uint8))
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = Frame(self._program, self._driver, {})
        self._driver.call(frame.address, *inputs, memory)
        self._frames.append(frame)
        if (error := take_error(frame.state)) is not None:
            raise error
        return memory


class Executable:
    """A program ready to be called from several threads concurrently: each running call has its own frame."""

    def __init__(self, program: Program, driver: Driver):
        self.program = program
        self._driver = driver
        self._call = driver.call
        pool = default_pool()
        self._take = [
            None if k in program.donated else pool.shelf(shape.dims, shape.dtype).take
            for k, shape in enumerate(program.outputs)
        ]
        self._donated = program.donated
        self._simple = not program.donated
        self._new = [take for take in self._take if take]
        self._kept, self._callbacks = callbacks_of(program)
        self._idle: list[Frame] = []
        self._frames: weakref.WeakSet[Frame] = weakref.WeakSet()
        self._lock = forking.lock()
        self._preparation = Preparation(program, driver) if program.kept_bytes else None
        # Whether a step is a Python function, or may fail as one does.
        self.runs_python = bool(self._callbacks) or program.checked

    def new_frame(self) -> Frame:
        with self._lock:
            frame = Frame(self.program, self._driver, self._callbacks)
            self._frames.add(frame)
        return frame

    def exchange(self, steps: Sequence[int], kernel: int, code: object) -> None:
        """Replaces the kernel of the Calls with these indices by another one with the same results; running calls
        continue with the old kernel, or switch at their next chunk. code: keeps the kernel in memory."""
        with self._lock:
            self.program.code.append(code)  # in addition to the old one, which may be running
            for number in steps:
                call = self.program.steps[number]
                assert isinstance(call, Call)
                self.program.steps[number] = replace(call, kernel=kernel)
            for frame in self._frames:
                for number in steps:
                    frame.activation.steps[frame.first[number] * STEP_WORDS + 1] = kernel

    def __call__(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs the program. inputs: C-contiguous arrays of the program's shapes. Returns new (or donated) arrays."""
        try:
            frame = self._idle.pop()
        except IndexError:
            frame = self.new_frame()
        if self._simple:
            outputs = [take() for take in self._new]
        else:
            outputs = [
                take() if take else as_shape(inputs[self._donated[k]], self.program.outputs[k])
                for k, take in enumerate(self._take)
            ]
        if self._preparation is None:
            self._call(frame.address, *inputs, *outputs)
        else:
            self._call(frame.address, *inputs, *outputs, self._preparation.kept(inputs))
        if self.runs_python:
            self._raise_error_of(frame)
        self._idle.append(frame)
        return outputs

    def kept(self, inputs: Sequence[np.ndarray]) -> np.ndarray | None:
        """The memory that is prepared for these inputs; None if nothing is."""
        return None if self._preparation is None else self._preparation.kept(inputs)

    def _raise_error_of(self, frame: Frame) -> None:
        """Raises the exception that ended the run of a frame, which is then idle."""
        frame.check()
        if (error := take_error(frame.state)) is not None:
            self._idle.append(frame)
            raise error

    def run_at(self, addresses: Sequence[int]) -> None:
        """Runs the program in memory of the caller's: the addresses of its inputs, then those of its outputs, each
        C-contiguous. An output that is computed in an input (`Program.donated`) has that one's address."""
        try:
            frame = self._idle.pop()
        except IndexError:
            frame = self.new_frame()
        kept: list[np.ndarray] = []
        if self._preparation is not None:  # the contents at an address are unknown
            kept.append(self._preparation.made(addresses[: len(self.program.inputs)]))
        self._call(frame.address, *addresses, *kept)
        if self.runs_python:
            self._raise_error_of(frame)
        self._idle.append(frame)

    def for_one_output(self):
        """`run(inputs) -> array` for a program of one new output, with little Python; None for other programs."""
        take = self._take[0] if len(self._take) == 1 else None
        if take is None or self.runs_python or self._preparation is not None:
            return None
        idle, call, make = self._idle, self._call, self.new_frame

        def run(inputs: Sequence[np.ndarray]) -> np.ndarray:
            try:
                frame = idle.pop()
            except IndexError:
                frame = make()
            output = take()
            call(frame.address, *inputs, output)
            idle.append(frame)
            return output

        return run
