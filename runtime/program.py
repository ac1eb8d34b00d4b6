"""Program: an executable as data. Executable: a program with a driver, its arenas and output buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hloom.ir.types import Shape
from hloom.runtime.buffer import Arena, address, default_pool
from hloom.runtime.driver import Activation, Driver, step
from hloom.runtime.driver_source import COPY, KERNEL

SMALL = 30_000  # element operations up to which other Python threads can wait for a call: some 5 microseconds


@dataclass(frozen=True)
class Ref:
    """A place in memory: kind 'input', 'output', 'constant' (number) or 'arena' (byte offset)."""

    kind: str
    number: int


@dataclass(frozen=True)
class Call:
    """One kernel: its address, argument words (integers or places), work items and items in a chunk."""

    kernel: int
    words: tuple[int | Ref, ...]
    items: int
    grain: int


@dataclass(frozen=True)
class Copy:
    """Bytes from one place to another."""

    target: Ref
    source: Ref
    bytes: int


@dataclass(frozen=True)
class Host:
    """A Python function between native steps: function(*arrays) -> array or tuple, written to the outputs."""

    function: Callable
    inputs: tuple[tuple[Ref, Shape], ...]
    outputs: tuple[tuple[Ref, Shape], ...]


@dataclass
class Program:
    """What a device runs: steps over inputs, outputs, constants and one arena.

    donated: output number -> input number whose buffer the output is computed in. work: rough element operations.
    """

    steps: Sequence[Call | Copy | Host]
    constants: Sequence[np.ndarray]
    arena_bytes: int
    inputs: Sequence[Shape]
    outputs: Sequence[Shape]
    donated: dict[int, int] = field(default_factory=dict)
    work: float = 0.0


class _Frame:
    """The memory of one running call: arena, argument words, slots, and the native stretches between host steps."""

    __slots__ = ("arena", "segments", "slots", "address")

    def __init__(self, program: Program, driver: Driver):
        self.arena = Arena(max(program.arena_bytes, 64))
        self.slots = np.zeros(max(len(program.inputs) + len(program.outputs), 1), np.int64)
        words: list[int] = []
        relocations: list[tuple[int, int, int]] = []
        rows: list[list[int]] = []
        parts: list[list[list[int]] | Host] = [rows]

        def word(value) -> int:
            if isinstance(value, Ref):
                if value.kind in ("input", "output"):
                    slot = value.number + (len(program.inputs) if value.kind == "output" else 0)
                    relocations.append((len(words), slot, 0))
                    value = 0
                elif value.kind == "constant":
                    value = address(program.constants[value.number])
                else:
                    value = self.arena.address + value.number
            words.append(value)
            return len(words) - 1

        for item in program.steps:
            if isinstance(item, Call):
                start = len(words)
                for value in item.words:
                    word(value)
                rows.append(step(KERNEL, item.kernel, start, item.items, item.grain))
            elif isinstance(item, Copy):
                rows.append(step(COPY, word(item.target), word(item.source), item.bytes))
            else:
                rows = []
                parts += [item, rows]
        args = np.array(words or [0], np.int64)
        release = program.work > SMALL
        self.segments: list[Activation | Host] = []
        for part in parts:
            if isinstance(part, Host):
                self.segments.append(part)
            elif part or len(parts) == 1:
                self.segments.append(driver.activation(part, relocations, args, self.slots, release_gil=release))
        alone = self.segments[0] if len(self.segments) == 1 else None
        self.address = alone.address if isinstance(alone, Activation) else 0  # of no use to a program with host steps


def _as_shape(array: np.ndarray, shape: Shape) -> np.ndarray:
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
        self._host = any(isinstance(s, Host) for s in program.steps)
        self._idle: list[_Frame] = []

    def __call__(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs the program. inputs: C-contiguous arrays of the program's shapes. Returns new (or donated) arrays."""
        try:
            frame = self._idle.pop()
        except IndexError:
            frame = _Frame(self.program, self._driver)
        if self._simple:
            outputs = [take() for take in self._take]
        else:
            outputs = [
                take() if take else _as_shape(inputs[self._donated[k]], self.program.outputs[k])
                for k, take in enumerate(self._take)
            ]
        if self._host:
            self._run_segments(frame, inputs, outputs)
        else:
            self._call(frame.address, *inputs, *outputs)
        self._idle.append(frame)
        return outputs

    def for_one_output(self):
        """`run(inputs) -> array` for a program of one new output, with little Python; None for other programs."""
        if len(self._take) != 1 or self._take[0] is None or self._host:
            return None
        idle, call, (take,), program, driver = self._idle, self._call, self._take, self.program, self._driver

        def run(inputs: Sequence[np.ndarray]) -> np.ndarray:
            try:
                frame = idle.pop()
            except IndexError:
                frame = _Frame(program, driver)
            output = take()
            call(frame.address, *inputs, output)
            idle.append(frame)
            return output

        return run

    def _run_segments(self, frame: _Frame, inputs, outputs) -> None:
        for k, array in enumerate([*inputs, *outputs]):
            frame.slots[k] = address(array)
        places = {"input": inputs, "output": outputs, "constant": self.program.constants}

        def view(ref: Ref, shape: Shape) -> np.ndarray:
            if ref.kind == "arena":
                data = frame.arena.array[ref.number : ref.number + shape.bytes]
                return data.view(shape.dtype).reshape(shape.dims)
            return np.asarray(places[ref.kind][ref.number]).reshape(-1).view(shape.dtype).reshape(shape.dims)

        for segment in frame.segments:
            if isinstance(segment, Host):
                # Copies: the function may keep what it is given, and the arena is written again.
                result = segment.function(*(view(r, s).copy() for r, s in segment.inputs))
                results = result if isinstance(result, tuple) else (result,)
                for (ref, shape), value in zip(segment.outputs, results, strict=True):
                    view(ref, shape)[...] = value
            else:
                self._driver.run(segment.address)
