"""Programs on several devices: one executor per device, each in the threads of its device, runs its part of a call.

Executors see the same inputs and outputs, and pass values through *channels*: memory that all of them can access, with
counts of the values that were sent, read and requested. Nothing is copied on the way: a program computes a value in the
buffer of its channel, and the others read it there.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from hloom.ir.process import forking
from hloom.ir.records import field, record
from hloom.ir.types import Shape
from hloom.runtime.buffer import Arena, default_pool
from hloom.runtime.distributed.messages import Message
from hloom.runtime.driver import Driver
from hloom.runtime.host_steps import callbacks_of, new_state, take_error
from hloom.runtime.program import LINE, Frame, as_shape
from hloom.runtime.steps import Program

ALIGNMENT = 64


class Executor(Protocol):
    """Runs a device's part of a program.

    kept: None, or for a device with its own memory the indices of the results that stay there, which the function
    returned by `prepare` returns by index.
    """

    name: str
    kept: frozenset[int] | None

    def prepare(self, control: np.ndarray, state: np.ndarray, handed: dict) -> Callable:
        """As `HostExecutor.prepare`."""


class HostExecutor:
    """The program of a device in the host's memory, and the driver with the device's threads."""

    kept: frozenset[int] | None = None

    def __init__(
        self,
        name: str,
        program: Program,
        driver: Driver,
        failed: Callable[[int, Message | int], Exception] | None = None,
    ):
        """failed: the error for a message of a channel that did not come, or that MPI refused."""
        self.name, self.program, self.driver, self._failed = name, program, driver, failed
        self._kept, self._callbacks = callbacks_of(program)

    def prepare(self, control: np.ndarray, state: np.ndarray, handed: dict) -> Callable:
        """A function that runs the executor in a call: run(*inputs, *outputs, *channel addresses). A value outside host
        memory is an object of its device for executors with their own memory, and 0 for the others.

        control: the counts of all executors. state: a byte, 0 once an executor has failed: then none may wait for it.
        handed: values that executors pass to each other outside of the host's memory, by buffer and receiver.
        """
        frame = Frame(self.program, self.driver, self._callbacks, control, state)
        call, where, failed = self.driver.call, frame.address, self._failed

        def run(*arguments, kept=(frame, self._kept)) -> None:  # kept alive as long as the code that runs in them
            call(where, *arguments)
            frame.check()
            if failed is not None and not state[0]:
                for channel, batch in frame.batches.items():
                    if (failure := batch.failure()) is not None:
                        raise failed(channel, failure)

        return run


@record
class ChannelWords:
    """Ids of the control words of a channel; each is written by one executor only.

    sent: values sent so far. allowance: how many of them every receiver must have read before the next is written.
    wanted, freed: by receiver, the values that it has requested, and those that it has read.
    """

    sent: int
    allowance: int
    wanted: dict[str, int]
    freed: dict[str, int]


@record
class Control:
    """The layout of the control words, and their values when a call begins."""

    initial: list[int] = field(default_factory=list)

    def word(self, value: int = 0) -> int:
        number = len(self.initial)
        self.initial += [value] + [0] * (LINE - 1)
        return number

    def channel(self, receivers: Sequence[str]) -> ChannelWords:
        sent, allowance = self.word(), self.word()
        return ChannelWords(sent, allowance, *({name: self.word() for name in receivers} for _ in range(2)))


class _Thread:
    """The thread in which a device runs its part of calls that other threads make."""

    def __init__(self, name: str):
        self.waiting: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._run, name=f"hloom-{name}", daemon=True).start()

    def _run(self) -> None:
        while True:
            task, done = self.waiting.get()
            done.put(task())
            task = done = None  # holds nothing while it waits


_abandoned: list = []  # the memory of calls that failed with messages under way, which may still arrive

_threads: dict[str, _Thread] = {}
# The queues of all devices hold calls in one order, so that no part waits for one queued after a different call.
_order = forking.lock()


class _Inside(threading.local):
    part = False  # whether this thread runs a part of a call


_inside = _Inside()


def _thread_of(device: str) -> _Thread:
    found = _threads.get(device)
    if found is None:
        found = _threads[device] = _Thread(device)
    return found


def _forget_threads() -> None:
    """Called in a forked child, which has none of its parent's threads."""
    _threads.clear()


forking.on_fork(child=_forget_threads)


class _Group:
    """The memory of one running call of all executors."""

    __slots__ = ("control", "done", "handed", "memory", "places", "runs", "state")

    def __init__(self, owner: MultiDeviceProgram):
        self.control = owner.initial.copy()
        self.state = new_state()
        offsets, total = [], 0
        for size in owner.channel_bytes:
            offsets.append(total)
            total += -(-size // ALIGNMENT) * ALIGNMENT
        self.memory = Arena(max(total, ALIGNMENT))
        self.places = [self.memory.address + offset for offset in offsets]
        self.handed: dict = {}
        self.runs = [executor.prepare(self.control, self.state, self.handed) for executor in owner.executors]
        self.done: queue.SimpleQueue = queue.SimpleQueue()


class MultiDeviceProgram:
    """A program on several devices, ready to be called from several threads at once."""

    def __init__(
        self,
        executors: Sequence[Executor],
        outputs: Sequence[Shape],
        initial: Sequence[int],
        channel_bytes: Sequence[int],
        donated: dict[int, int] | None = None,
        elsewhere: frozenset[int] | None = None,
    ):
        """outputs: shapes of the outputs, indexed by the programs' references. initial: control words of a new call.
        channel_bytes: size of each channel buffer. donated: as in a Program. elsewhere: indices of the results that are
        in other processes, returned as None; None if the program is this process's alone."""
        self.executors = list(executors)
        self.initial = np.array(initial or [0], np.int64)
        self.channel_bytes = list(channel_bytes)
        pool = default_pool()
        self.outputs, self._donated = list(outputs), donated or {}
        kept = [executor.kept for executor in self.executors if executor.kept is not None]
        self._spread = elsewhere is not None
        self._mixed = bool(kept) or self._spread
        self._kept = frozenset().union(*kept, elsewhere or ())
        self._take = [
            None if k in self._donated else pool.shelf(shape.dims, shape.dtype).take for k, shape in enumerate(outputs)
        ]
        self._idle: list[_Group] = []

    def __call__(self, inputs: Sequence) -> list:
        """Runs the program. inputs: C-contiguous arrays, or data on an executor's device. Returns new arrays, and data
        that stays on devices; raises exceptions of Python steps."""
        try:
            group = self._idle.pop()
            group.control[:] = self.initial
        except IndexError:
            group = _Group(self)
        outputs = [self._output(k, inputs) for k in range(len(self.outputs))]
        arguments = (*inputs, *outputs, *group.places)
        in_host = tuple([a if isinstance(a, (np.ndarray, int)) else 0 for a in arguments]) if self._mixed else arguments
        if not self.executors:
            return outputs
        first, *others = [
            _part(run, in_host if executor.kept is None else arguments, group.state)
            for run, executor in zip(group.runs, self.executors, strict=True)
        ]
        if _inside.part:
            # Called by a Python step of such a program, which the devices' threads may be waiting for.
            for part in others:
                threading.Thread(target=lambda part=part: group.done.put(part()), daemon=True).start()
        else:
            with _order:
                for executor, part in zip(self.executors[1:], others, strict=True):
                    _thread_of(executor.name).waiting.put((part, group.done))
        results = [first(), *self._results(group, len(others))]
        error = take_error(group.state) or next((r for r in results if isinstance(r, BaseException)), None)
        group.handed.clear()
        if error is not None and self._spread:
            _abandoned.append((group, arguments))
        else:
            self._idle.append(group)
        if error is not None:
            raise error
        for made in results:
            for number, value in (made or {}).items():
                outputs[number] = value
        return outputs

    @staticmethod
    def _results(group: _Group, count: int) -> list:
        """The results of the other executors' parts. An interrupt ends them before it is raised."""
        results: list = []
        try:
            while len(results) < count:
                results.append(group.done.get())
        except BaseException:
            group.state[0] = 0
            for _ in range(count - len(results)):
                group.done.get()
            raise
        return results

    def _output(self, k: int, inputs):
        """The buffer of an output in the host's memory; None for one that stays on its device."""
        if k in self._kept:
            return None
        take = self._take[k]
        return take() if take else as_shape(inputs[self._donated[k]], self.outputs[k])


def _part(run: Callable, arguments, state: np.ndarray) -> Callable:
    """An executor's part of a call; it returns the results that stay on its device, or the error."""

    def part() -> dict | BaseException | None:
        around, _inside.part = _inside.part, True
        try:
            return run(*arguments)
        except BaseException as error:
            state[0] = 0  # no other executor may wait for this one
            return error
        finally:
            _inside.part = around

    return part
