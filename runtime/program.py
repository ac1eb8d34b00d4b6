"""Program: an executable as data. Executable: a program with a driver, its arenas and output buffers.

A Python function among the steps is a kernel to the driver: its address is that of a callback, which takes the GIL.
What it raises is kept; a byte that the next step tests then ends the program, and the caller gets the exception.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from hloom.ir.process import forking
from hloom.ir.records import field, record, replace
from hloom.ir.types import Shape
from hloom.runtime.buffer import Arena, address, default_pool
from hloom.runtime.driver import Driver, step
from hloom.runtime.driver_source import (
    AWAIT,
    COPY,
    JUMP,
    JUMP_IF_ZERO,
    KERNEL,
    LOOK,
    LOOP,
    MOST_WAKING,
    SIGNAL,
    STEP_WORDS,
    SWAP,
    SWITCH,
)

SMALL = 30_000  # element operations up to which other Python threads can wait for a call: some 5 microseconds


@record(frozen=True)
class Ref:
    """A place in memory: kind 'input', 'output', 'constant' (number) or 'arena' (byte offset). In a program that runs
    on several devices (`hloom.runtime.multi_device`) also 'channel' and 'control': a buffer of a channel, a count.

    swap: number of a place that Swaps exchange with others.
    """

    kind: str
    number: int
    swap: int | None = None


@record(frozen=True)
class Call:
    """One kernel: its address, argument words (integers or places), work items and items in a chunk.

    side_by_side: whether any thread takes the next chunk, instead of a share of them for each. nanoseconds: that it
    takes one thread, roughly; 0 where nobody knows.
    """

    kernel: int
    words: tuple[int | Ref, ...]
    items: int
    grain: int
    side_by_side: bool = False
    nanoseconds: int = 0


@record(frozen=True)
class Copy:
    """Bytes from one place to another."""

    target: Ref
    source: Ref
    bytes: int


@record(frozen=True)
class Host:
    """A Python function between native steps: function(arrays, results) writes the results, which are the outputs.

    keeps: whether it may keep what it is given, which then is a copy: the memory is written again. A function that does
    not keeps its hands off the arrays too.
    """

    function: Callable
    inputs: tuple[tuple[Ref, Shape], ...]
    outputs: tuple[tuple[Ref, Shape], ...]
    keeps: bool = True


@record(frozen=True)
class Jump:
    """To the step of this number."""

    target: int


@record(frozen=True)
class Branch:
    """To the step of this number where the pred is false."""

    pred: Ref
    target: int


@record(frozen=True)
class Switch:
    """To the step whose number stands at the place that the s32 names; the last where it names none."""

    index: Ref
    targets: tuple[int, ...]


@record(frozen=True)
class Swap:
    """The two places, which have `swap` numbers, stand for each other from here on."""

    first: Ref
    second: Ref


@record(frozen=True)
class Count:
    """Adds one to each of some control words, then waits for each pair until its first is as large as its second."""

    added: tuple[Ref, ...] = ()
    waits: tuple[tuple[Ref, Ref], ...] = ()


Step = Call | Copy | Host | Jump | Branch | Switch | Swap | Count


@record
class Program:
    """What a device runs: steps over inputs, outputs, constants and one arena.

    donated: output number -> input number whose buffer the output is computed in. work: rough element operations.
    code: keeps the kernels in memory whose addresses are in the steps; a program that runs is kept by who called it.
    """

    steps: list[Step]
    constants: Sequence[np.ndarray]
    arena_bytes: int
    inputs: Sequence[Shape]
    outputs: Sequence[Shape]
    donated: dict[int, int] = field(default_factory=dict)
    work: float = 0.0
    channels: int = 0
    code: list[object] = field(default_factory=list)


class Frame:
    """The memory of one running call: arena, argument words, slots and rows of steps.

    state: one byte, 1 while all goes well; a Python step that raised leaves its exception in `errors` and 0 here.
    Programs that run beside each other share it, and `control`, their counts. first: the row of each step.
    done: a byte that is 1 unless a Python step ended without reaching its end, and a zero.
    """

    __slots__ = (
        "__weakref__", "activation", "address", "arena", "code", "constants", "control", "done", "first", "state",
    )  # fmt: skip

    def __init__(
        self,
        program: Program,
        driver: Driver,
        callbacks: dict[int, int],
        control: np.ndarray | None = None,
        state: np.ndarray | None = None,
    ):
        self.arena = Arena(max(program.arena_bytes, 64))
        self.constants, self.code = program.constants, program.code
        self.state = np.ones(1, np.uint8) if state is None else state
        self.done = np.array([1, 0], np.uint8)
        self.control = 0 if control is None else address(control)
        maker = _Rows(program, self)
        rows = maker.rows(callbacks)
        self.first = maker.first
        slots = np.zeros(max(len(program.inputs) + len(program.outputs) + program.channels, 1), np.int64)
        args = np.array(maker.words or [0], np.int64)
        release = program.work > SMALL or control is not None
        self.activation = driver.activation(rows, maker.relocations, args, slots, release_gil=release)
        self.address = self.activation.address

    def check(self) -> None:
        """Raises KeyboardInterrupt where a signal handler raised in a Python step before its first line: ctypes reports
        that and drops it."""
        if not self.done[0]:
            self.done[0] = 1
            raise KeyboardInterrupt


class _Rows:
    """Makes the rows of the driver's steps, and the argument words that they read."""

    def __init__(self, program: Program, frame: Frame):
        self.program, self.frame = program, frame
        self.words: list[int] = []
        self.relocations: list[tuple[int, int, int]] = []
        self.swapped: dict[int, list[int]] = {}  # swap number of a place -> the words that hold its address
        self.constants = [address(c) for c in program.constants]
        self.first: list[int] = []

    def word(self, value: int | Ref) -> int:
        """Appends an argument word; its position."""
        position = len(self.words)
        if isinstance(value, Ref):
            if value.swap is not None:
                self.swapped.setdefault(value.swap, []).append(position)
            if value.kind in ("input", "output", "channel"):
                slot = value.number
                if value.kind != "input":
                    slot += len(self.program.inputs)
                if value.kind == "channel":
                    slot += len(self.program.outputs)
                self.relocations.append((position, slot, 0))
                value = 0
            elif value.kind == "control":
                value = self.frame.control + 8 * value.number
            elif value.kind == "constant":
                value = self.constants[value.number]
            else:
                value = self.frame.arena.address + value.number
        self.words.append(value)
        return position

    def rows(self, callbacks: dict[int, int]) -> list[list[int]]:
        """`callbacks`: the address of each Python step, by its number."""
        program = self.program
        first, count = self.first, 0
        for item in program.steps:
            first.append(count)
            count += 5 if isinstance(item, Host) else 1
            if isinstance(item, Count):
                count += len(item.added) + len(item.waits) - 1
        first.append(count)
        rows: list[list[int]] = []
        swaps: list[tuple[int, Swap]] = []
        status = self.word(address(self.frame.state))
        ahead = _work_ahead(program.steps)
        for number, item in enumerate(program.steps):
            if isinstance(item, Call):
                start = len(self.words)
                for value in item.words:
                    self.word(value)
                chunks = item.items, item.grain, int(item.side_by_side)
                rows.append(step(KERNEL, item.kernel, start, *chunks, ahead[number]))
            elif isinstance(item, Copy):
                rows.append(step(COPY, self.word(item.target), self.word(item.source), item.bytes))
            elif isinstance(item, Host):
                done, zero = (self.word(address(self.frame.done) + k) for k in (0, 1))
                start = self.word(address(self.frame.state))
                self.word(address(self.frame.done))
                for ref, _ in (*item.inputs, *item.outputs):
                    self.word(ref)
                rows += [step(LOOK), step(COPY, done, zero, 1), step(KERNEL, callbacks[number], start, 1, 1)]
                rows += [step(JUMP_IF_ZERO, count, status), step(JUMP_IF_ZERO, count, done)]
            elif isinstance(item, Count):
                rows += [step(SIGNAL, self.word(word), 1) for word in item.added]
                rows += [step(AWAIT, self.word(first), self.word(second), status) for first, second in item.waits]
            elif isinstance(item, Jump):
                back = item.target <= number
                rows.append(step(LOOP, first[item.target], status) if back else step(JUMP, first[item.target]))
            elif isinstance(item, Branch):
                rows.append(step(JUMP_IF_ZERO, first[item.target], self.word(item.pred)))
            elif isinstance(item, Switch):
                place, start = self.word(item.index), len(self.words)
                for target in item.targets:
                    self.word(first[target])
                rows.append(step(SWITCH, place, len(item.targets), start))
            else:
                for ref in (item.first, item.second):
                    if ref.swap not in self.swapped:
                        self.word(ref)
                swaps.append((len(rows), item))
                rows.append([])
        for row, swap in swaps:  # now all words are there
            operands = []
            for ref in (swap.first, swap.second):
                assert ref.swap is not None  # places that are exchanged have a number
                positions = self.swapped[ref.swap]
                operands += [len(self.words), len(positions)]
                for position in positions:
                    self.word(position)
            rows[row] = step(SWAP, *operands)
        return rows


def _work_ahead(steps: Sequence[Step]) -> list[int]:
    """For each step the nanoseconds, roughly, that one thread takes for what threads share of it and of what follows;
    sleeping threads are woken by that. At most MOST_WAKING, as a loop has, and a kernel whose time is not known."""
    total, found = 0, []
    for number in range(len(steps) - 1, -1, -1):
        item = steps[number]
        if isinstance(item, Jump) and item.target <= number:
            total = MOST_WAKING
        elif isinstance(item, Call) and item.items > item.grain:
            total = min(total + (item.nanoseconds or MOST_WAKING), MOST_WAKING)
        found.append(total)
    return found[::-1]


_errors: dict[int, BaseException] = {}  # by the address of a frame's state: what its Python step raised
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def _callback(host: Host):
    """The C function of a Python step. Its arguments are the addresses of the frame's state, of the frame's `done`, of
    the inputs and of the outputs."""
    count, given = 2 + len(host.inputs) + len(host.outputs), len(host.inputs)
    shapes = [shape for _, shape in (*host.inputs, *host.outputs)]

    def call(arguments: int, lo: int, hi: int) -> None:
        words = (ctypes.c_int64 * count).from_address(arguments)
        try:
            views = [_view(words[k + 2], shape) for k, shape in enumerate(shapes)]
            host.function([view.copy() if host.keeps else view for view in views[:given]], views[given:])
        except BaseException as error:
            _errors.setdefault(words[0], error)
            ctypes.c_uint8.from_address(words[0]).value = 0
        ctypes.c_uint8.from_address(words[1]).value = 1

    return _SIGNATURE(call)


def callbacks_of(program: Program) -> tuple[list, dict[int, int]]:
    """The C functions of a program's Python steps, to be kept, and their addresses by the number of the step."""
    made = {k: _callback(s) for k, s in enumerate(program.steps) if isinstance(s, Host)}
    return list(made.values()), {k: ctypes.cast(c, ctypes.c_void_p).value or 0 for k, c in made.items()}


def take_error(state: np.ndarray) -> BaseException | None:
    """What a Python step raised in a call with this state, which is well again; None where none raised."""
    if state[0]:
        return None
    state[0] = 1
    return _errors.pop(address(state), None)


def _view(where: int, shape: Shape) -> np.ndarray:
    if not shape.bytes:
        return np.zeros(shape.dims, shape.dtype)
    memory = memoryview((ctypes.c_uint8 * shape.bytes).from_address(where))
    return np.frombuffer(memory, np.uint8).view(shape.dtype).reshape(shape.dims)


def as_shape(array: np.ndarray, shape: Shape) -> np.ndarray:
    """The bytes of an array as one of another shape: a donated buffer has the size of the result, not its dtype."""
    return array.reshape(-1).view(shape.dtype).reshape(shape.dims)


class Executable:
    """A program ready to be called, from several threads at once: each running call has a frame of its own."""

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

    @property
    def runs_python(self) -> bool:
        """Whether a step is a Python function."""
        return bool(self._callbacks)

    def new_frame(self) -> Frame:
        with self._lock:
            frame = Frame(self.program, self._driver, self._callbacks)
            self._frames.add(frame)
        return frame

    def exchange(self, steps: Sequence[int], kernel: int, code: object) -> None:
        """From here on the Calls of these numbers are of another kernel, which makes the same bits; those that run now
        go on with what they have, or with this one from their next chunk on. code: keeps the kernel in memory."""
        with self._lock:
            self.program.code.append(code)  # beside the old one, which may be running
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
        self._call(frame.address, *inputs, *outputs)
        if self._callbacks:
            self._raise_error_of(frame)
        self._idle.append(frame)
        return outputs

    def _raise_error_of(self, frame: Frame) -> None:
        """Raises what ended the run of a frame, which is idle then."""
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
        self._call(frame.address, *addresses)
        if self._callbacks:
            self._raise_error_of(frame)
        self._idle.append(frame)

    def for_one_output(self):
        """`run(inputs) -> array` for a program of one new output, with little Python; None for other programs."""
        take = self._take[0] if len(self._take) == 1 else None
        if take is None or self._callbacks:
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
