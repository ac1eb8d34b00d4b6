"""Programs whose integers are known only when they are called: each frame has those for the sizes of its last call.

New sizes cost some native evaluations (`hloom.runtime.numbers_source`): the values are written where the driver reads
them, and the arena grows as needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hloom.ir.process import forking
from hloom.ir.sizes.numbers import Nodes, Number
from hloom.ir.types import Shape
from hloom.runtime.buffer import Arena, address, default_pool
from hloom.runtime.driver import Driver
from hloom.runtime.host_steps import take_error
from hloom.runtime.numbers_source import BY_ZERO, OVERFLOW, WELL
from hloom.runtime.program import ARENA, Frame, Preparation, as_shape
from hloom.runtime.steps import Program

__all__ = ["Evaluator", "NativeNumbers", "NumberError", "OpenProgram"]

SPARE = 4  # an arena that is larger than this times what is needed is replaced
LEAST = 1 << 20  # bytes of an arena that is not replaced for being large


class NumberError(ArithmeticError):
    """A number without room in 64 bits, or a quotient by 0."""

    _WHY = {OVERFLOW: "a number that it needs has no room in 64 bits", BY_ZERO: "a divisor is 0"}

    def __init__(self, status: int):
        super().__init__(self._WHY[status])


class NativeNumbers:
    """The native functions. addresses: of `numbers_source.FUNCTIONS`, by name."""

    def __init__(self, addresses: Mapping[str, int]):
        three = [ctypes.c_int64] * 3
        self.evaluate = ctypes.CFUNCTYPE(ctypes.c_int64, *three)(addresses["hloom_evaluate"])
        self.write = ctypes.CFUNCTYPE(None, *three)(addresses["hloom_write"])


class Evaluator:
    """Evaluates nodes: the first values are given, the others are computed from them."""

    def __init__(self, nodes: Nodes, native: NativeNumbers):
        self._values = np.array(nodes.values, np.int64)
        self._rows = np.array(nodes.rows, np.int64).reshape(-1)
        self._call = native.evaluate, address(self._rows), len(nodes.rows)
        self._given = len(nodes.names)

    def values(self, given: Sequence[int]) -> np.ndarray:
        """The values of all nodes. Raises NumberError."""
        values = self._values.copy()
        values[: self._given] = given
        evaluate, rows, count = self._call
        if (status := evaluate(rows, count, address(values))) != WELL:
            raise NumberError(status)
        return values


class _OpenFrame:
    """A frame, and its current values. given: those of its last call; None: no call yet. shapes, take: for each result
    its shape, and its allocator; None for one that reuses the memory of an argument."""

    __slots__ = ("frame", "given", "shapes", "take", "values", "where", "write", "writes")

    def __init__(self, frame: Frame, values: np.ndarray):
        self.frame, self.values, self.where = frame, values, address(values)
        self.writes = np.array([(place, node.index) for place, node in frame.open], np.int64).reshape(-1)
        self.write = address(self.writes), len(frame.open), self.where  # the arguments of `hloom_write`
        self.given: tuple[int, ...] | None = None
        self.shapes: list[Shape] = []
        self.take: list[Callable[[], np.ndarray] | None] = []


class OpenProgram:
    """A program with nodes, ready to be called from several threads concurrently: each running call has its own frame.

    results: the dimensions and dtype of each. note: as in `Preparation`. The nodes are evaluated for the given values
    of a call, followed by the address of the arena.
    """

    def __init__(
        self, program: Program, driver: Driver, native: NativeNumbers,
        results: Sequence[tuple[Sequence[Number], np.dtype]], note: Callable[[Preparation], None] | None = None,
    ):  # fmt: skip
        nodes = program.nodes
        assert nodes is not None and nodes.names[-1] == ARENA
        self.program, self._driver, self._native, self._nodes = program, driver, native, nodes
        self._arena_at = len(nodes.names) - 1
        self._guards = len(program.guards)
        wanted = [program.arena_bytes, *program.guards, *[d for dims, _ in results for d in dims]]
        self._read = np.array([nodes.node(number).index for number in wanted])
        self._results = [(len(dims), dtype) for dims, dtype in results]
        self._donated = program.donated
        self._preparation = Preparation(program, driver, note) if program.kept_bytes else None
        self._sized = len(nodes.rows)  # rows that do not depend on the address of the arena
        self._idle: list[_OpenFrame] = []
        self._lock = forking.lock()
        self._values: np.ndarray | None = None
        self._rows, self._rows_at = np.zeros(0, np.int64), 0

    def __call__(self, given: tuple[int, ...], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs the program for C-contiguous arrays, of which it overwrites those whose memory results reuse
        (`Program.donated`). given: the values derived from them. Raises NumberError."""
        frame = self._frame(given)
        outputs = [
            take() if take else as_shape(inputs[self._donated[k]], frame.shapes[k]) for k, take in enumerate(frame.take)
        ]
        if self._preparation is None:
            self._driver.call(frame.frame.address, *inputs, *outputs)
        else:
            self._driver.call(frame.frame.address, *inputs, *outputs, self._preparation.kept(inputs))
        self._finished(frame)
        return outputs

    def run_at(self, given: tuple[int, ...], addresses: Sequence[int]) -> None:
        """Runs the program in memory of the caller's, as `Executable.run_at` does. Raises NumberError."""
        frame = self._frame(given)
        kept = [] if self._preparation is None else [self._preparation.made(addresses[: len(self.program.inputs)])]
        self._driver.call(frame.frame.address, *addresses, *kept)
        self._finished(frame)

    def _finished(self, frame: _OpenFrame) -> None:
        """After a call. Raises the error of an access outside of its array."""
        self._idle.append(frame)
        if self.program.checked and (error := take_error(frame.frame.state)) is not None:
            raise error

    def prepare(self, given: tuple[int, ...]) -> None:
        """Prepares a frame for these values. Raises NumberError."""
        self._idle.append(self._frame(given))

    def _frame(self, given: tuple[int, ...]) -> _OpenFrame:
        """An idle frame with the values of a call."""
        try:
            frame = self._idle.pop()
        except IndexError:
            frame = self._new_frame()
        if frame.given != given:
            self._resize(frame, given)
        return frame

    def _new_frame(self) -> _OpenFrame:
        with self._lock:
            frame = Frame(self.program, self._driver, {})
            if self._values is None:  # all frames make the same nodes
                self._rows = np.array(self._nodes.rows, np.int64).reshape(-1)
                self._rows_at = address(self._rows)
                self._values = np.array(self._nodes.values, np.int64)
            return _OpenFrame(frame, self._values.copy())

    def _evaluate(self, first: int, count: int, frame: _OpenFrame) -> None:
        if (status := self._native.evaluate(self._rows_at + 32 * first, count, frame.where)) != WELL:
            raise NumberError(status)

    def _resize(self, frame: _OpenFrame, given: tuple[int, ...]) -> None:
        frame.given = None
        frame.values[: self._arena_at] = given
        self._evaluate(0, self._sized, frame)
        arena_bytes, *numbers = frame.values[self._read].tolist()
        memory, guards, dims = frame.frame.arena, numbers[: self._guards], numbers[self._guards :]
        if guards or not arena_bytes <= memory.nbytes <= max(SPARE * arena_bytes, LEAST):
            memory = frame.frame.arena = Arena(max(arena_bytes, 64), guards)
        frame.values[self._arena_at] = memory.address
        self._evaluate(self._sized, self._rows.size // 4 - self._sized, frame)
        self._native.write(*frame.write)
        pool, place, frame.take, frame.shapes = default_pool(), 0, [], []
        for number, (rank, dtype) in enumerate(self._results):
            shape = Shape(dtype, tuple(dims[place : place + rank]))
            frame.shapes.append(shape)
            frame.take.append(None if number in self._donated else pool.shelf(shape.dims, dtype).take)
            place += rank
        frame.given = given
