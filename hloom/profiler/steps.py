"""Runs a compiled program step by step and times each step.

Python replaces the driver: it runs one step of the program at a time, on all threads, and follows jumps. The overhead
of a few hundred nanoseconds per step is measured with an empty step and subtracted.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom import tree
from hloom.backends.cpu.driver import driver
from hloom.compiler.analysis import instruction_flops
from hloom.compiler.schedule.steps import CopyStep, HostStep, KernelStep
from hloom.ir.module import Instruction
from hloom.ir.types import TupleShape, result_shapes
from hloom.runtime.driver import step as row
from hloom.runtime.driver_source import END, JUMP, JUMP_IF_ZERO, LOOP, STEP_WORDS, SWITCH
from hloom.runtime.program import Frame, callbacks_of


@dataclass
class Part:
    """The cost of one instruction of the optimized module in a call.

    name: of the kernel that takes longest, or 'copy' or 'Python'; what: the instruction and its shape. seconds: of all
    its launches in one call. launches: so many. bytes, flops: read and written, and computed, all launches together.
    shared: whether some launch has more than one chunk, which threads share. instruction: of the optimized module.
    """

    name: str
    what: str
    seconds: float
    launches: int
    bytes: float
    flops: float
    shared: bool
    instruction: Instruction | None = None

    def facts(self) -> dict[str, Any]:
        """All but the instruction, as JSON can hold it."""
        return {name: value for name, value in vars(self).items() if name != "instruction"}

    def __str__(self) -> str:
        return (
            f"{self.seconds * 1e6:10.1f} us  {self.launches:5} x {self.name:24} {self.what}: "
            f"{self.bytes / self.seconds / 1e9:.1f} GB/s, {self.flops / self.seconds / 1e9:.1f} GF/s"
        )


_READERS: list[Callable[[object, Sequence], tuple[Any, list] | None]] = []


def add_reader(reader: Callable[[object, Sequence], tuple[Any, list] | None]) -> None:
    """Lets `profile` take what another framework compiled. reader(compiled, args): the executable and the arrays that
    it takes, or None for what is not of this framework."""
    _READERS.append(reader)


def profile(compiled, args: Sequence, seconds: float = 0.2, most_seconds: float = 5.0) -> list[Part]:
    """The parts of a call, the longest first. compiled: `jitted.lower(*args).compile()`, also of jax on hloom; args: as
    lowered.

    The program is walked for `seconds` but three times at least, and a part's time is the least of the walks'; a walk
    ends after `most_seconds`, with what it has seen by then.

    >>> x = hnp.ones((256, 256))
    >>> compiled = hl.jit(lambda x: hnp.tanh(x @ x)).lower(x).compile()
    >>> parts = hl.profiler.profile(compiled, (x,), seconds=0.01)
    >>> len(parts) > 0
    True
    """
    foreign = next((read for reader in _READERS if (read := reader(compiled, args)) is not None), None)
    executable, arrays = foreign or (compiled.executable, tree.leaves(args))
    plan, program = executable.plan, executable.runner.program
    arrays = [np.ascontiguousarray(np.asarray(x)) for x in arrays]
    if len(arrays) != len(program.inputs):
        raise ValueError(f"the program takes {len(program.inputs)} arrays, {len(arrays)} were given")
    walk = _Walk(program, arrays, executable.runner.kept(arrays))
    walks: list = []
    end = time.perf_counter() + seconds
    while len(walks) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        walks.append(walk.times(most_seconds))
        if time.perf_counter() - start > max(seconds, 1.0):
            break
    least: dict[int, float] = {}
    counts: dict[int, int] = {}
    for seen in walks:
        for place, (spent, count) in seen.items():
            least[place], counts[place] = min(spent, least.get(place, spent)), count
    parts: dict[int, Part] = {}
    longest: dict[int, float] = {}
    for number, spent in least.items():
        step, count = plan.steps[number], counts[number]
        instruction = getattr(step, "instruction", None)
        if instruction is None:
            continue
        found = parts.get(id(instruction))
        if found is None:
            what = f"{instruction.hint or instruction.opcode} {_shape(instruction)}"
            moved, flops = _costs(step, instruction)
            found = parts[id(instruction)] = Part("", what, 0.0, 0, moved * count, flops * count, False, instruction)
        if spent >= longest.get(id(instruction), 0.0):
            longest[id(instruction)] = spent
            found.name = _name(step)
        found.seconds += spent
        found.launches += count
        if isinstance(step, KernelStep):
            found.shared = found.shared or step.launch.items > step.launch.grain > 0
    return sorted(parts.values(), key=lambda part: -part.seconds)


def _name(step) -> str:
    if isinstance(step, KernelStep):
        return step.launch.source.name
    return "Python" if isinstance(step, HostStep) else "copy"


def _shape(instruction) -> str:
    """The shape of the result; of a long tuple the first two and how many there are."""
    if isinstance(instruction.shape, TupleShape) and len(instruction.shape.elements) > 3:
        first = ", ".join(repr(s) for s in instruction.shape.elements[:2])
        return f"({first}, ... {len(instruction.shape.elements)} in all)"
    return repr(instruction.shape)


def _costs(step, instruction) -> tuple[float, float]:
    if isinstance(step, CopyStep):
        return 2.0 * step.bytes, 0.0
    shapes = result_shapes(instruction.shape)
    operands = dict.fromkeys(instruction.operands)
    read = sum(0 if isinstance(o.shape, TupleShape) else o.shape.bytes for o in operands)
    return float(read + sum(s.bytes for s in shapes if not isinstance(s, TupleShape))), instruction_flops(instruction)


class _Walk:
    """The rows of a program as programs of one row, over the same argument words."""

    def __init__(self, program, arrays: list[np.ndarray], kept: np.ndarray | None):
        self.driver = driver()
        callbacks, addresses = callbacks_of(program)
        frame = Frame(program, self.driver, addresses)
        whole = frame.activation
        outputs = [np.empty(s.dims, s.dtype) for s in program.outputs]
        for output, given in program.donated.items():
            outputs[output] = arrays[given] = arrays[given].copy()
        slots = [x.ctypes.data for x in (*arrays, *outputs, *([] if kept is None else [kept]))]
        whole.slots[: len(slots)] = slots
        self.rows = whole.steps.reshape(-1, STEP_WORDS).tolist()
        self.args = whole.args
        self.owner: list[int] = []  # the step of each row
        for number, (first, after) in enumerate(itertools.pairwise(frame.first)):
            self.owner += [number] * (after - first)

        def alone(rows, relocations=()):
            return self.driver.activation(rows, relocations, whole.args, whole.slots)

        self.start = alone([row(END)], whole.relocations.reshape(-1, 3).tolist())
        self.empty = alone([row(END)])
        jumps = (JUMP, LOOP, JUMP_IF_ZERO, SWITCH, END)
        self.single = [None if r[0] in jumps else alone([r, row(END)]) for r in self.rows]
        self.kept = (frame, callbacks, arrays, outputs, kept)

    def times(self, most_seconds: float) -> dict[int, tuple[float, int]]:
        """Seconds and runs of each step in one walk."""
        run, clock = self.driver.run, time.perf_counter
        run(self.start.address)
        around = min(_timed(run, self.empty.address) for _ in range(20))
        found: dict[int, tuple[float, int]] = {}
        place, stop = 0, clock() + most_seconds
        while place < len(self.rows) and self.rows[place][0] != END and clock() < stop:
            kind, *operands = self.rows[place]
            if kind in (JUMP, LOOP):
                place = operands[0]
            elif kind == JUMP_IF_ZERO:
                place = operands[0] if self._read(self.args[operands[1]], np.uint8) == 0 else place + 1
            elif kind == SWITCH:
                chosen, count = int(self._read(self.args[operands[0]], np.int32)), operands[1]
                place = int(self.args[operands[2] + (chosen if 0 <= chosen < count else count - 1)])
            else:
                single = self.single[place]
                assert single is not None  # jumps alone have none
                spent = max(0.0, _timed(run, single.address) - around)
                before = found.get(self.owner[place], (0.0, 0))
                begins = place == 0 or self.owner[place - 1] != self.owner[place]
                found[self.owner[place]] = before[0] + spent, before[1] + begins
                place += 1
        return found

    @staticmethod
    def _read(address: int, dtype):
        memory = (ctypes.c_uint8 * np.dtype(dtype).itemsize).from_address(int(address))
        return np.frombuffer(memory, dtype)[0]


def _timed(function, argument) -> float:
    start = time.perf_counter()
    function(argument)
    return time.perf_counter() - start
