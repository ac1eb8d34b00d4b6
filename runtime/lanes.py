"""Lanes: the programs of several devices that run one call together, each in the threads of its device.

They see the same inputs and outputs, and hand values to each other through *channels*: memory that all of them reach,
with counts of what was sent, read and wanted. Nothing is copied on the way: a program computes a value in the place of
its channel, and the others read it there.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence

import numpy as np

from hloom.ir.records import field, record
from hloom.ir.types import Shape
from hloom.runtime.buffer import Arena, default_pool
from hloom.runtime.driver import Driver
from hloom.runtime.program import Frame, Program, as_shape, callbacks_of, take_error

LINE = 16  # words that what one thread writes keeps away from what others spin on
ALIGNMENT = 64


class Lane:
    """A device's program, and the driver with the device's threads.

    Lanes of other kinds of devices have the same `name`, `prepare` and `kept`: None, or where the device has memory of
    its own the numbers of the results that stay there, which `run` returns by number.
    """

    kept: frozenset[int] | None = None

    def __init__(self, name: str, program: Program, driver: Driver):
        self.name, self.program, self.driver = name, program, driver
        self._kept, self._callbacks = callbacks_of(program)

    def prepare(self, control: np.ndarray, state: np.ndarray, handed: dict) -> Callable:
        """What runs the lane in a call of its own memory: run(*inputs, *outputs, *channel addresses). What is not in
        the host's memory is an object of its device for lanes with memory of their own, and 0 for the others.

        control: the counts of all lanes. state: a byte, 0 once a lane has failed: then none may wait for it. handed:
        what lanes hand to each other outside of the host's memory, by place and receiver.
        """
        frame = Frame(self.program, self.driver, self._callbacks, control, state)
        call, where = self.driver.call, frame.address

        def run(*arguments, frame=frame) -> None:  # the frame lives as long as what runs in it
            call(where, *arguments)  # (its answer says nothing here)

        return run


@record
class ChannelWords:
    """Numbers of the control words of a channel; each is written by one lane only.

    sent: values sent so far. allowance: how many of them every receiver must have read before the next is written.
    wanted, freed: by receiver, the values that it has asked for, and those that it has read.
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
    """The thread in which a device runs its part of calls that begin elsewhere."""

    def __init__(self, name: str):
        self.waiting: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._run, name=f"hloom-{name}", daemon=True).start()

    def _run(self) -> None:
        while True:
            task, done = self.waiting.get()
            done.put(task())
            task = done = None  # holds nothing while it waits


_threads: dict[str, _Thread] = {}
# Parts of one call stand in the queues of all devices in one order, so that none waits for one behind another.
_order = threading.Lock()


class _Inside(threading.local):
    part = False  # whether this thread runs a part of a call


_inside = _Inside()


def _thread_of(device: str) -> _Thread:
    found = _threads.get(device)
    if found is None:
        found = _threads[device] = _Thread(device)
    return found


def _forget_threads() -> None:
    """In a forked child: no thread came along."""
    global _order
    _threads.clear()
    _order = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


class _Group:
    """The memory of one running call of all lanes."""

    __slots__ = ("control", "done", "handed", "memory", "places", "runs", "state")

    def __init__(self, owner: LanesExecutable):
        self.control = owner.initial.copy()
        self.state = np.ones(1, np.uint8)
        offsets, total = [], 0
        for size in owner.channel_bytes:
            offsets.append(total)
            total += -(-size // ALIGNMENT) * ALIGNMENT
        self.memory = Arena(max(total, ALIGNMENT))
        self.places = [self.memory.address + offset for offset in offsets]
        self.handed: dict = {}
        self.runs = [lane.prepare(self.control, self.state, self.handed) for lane in owner.lanes]
        self.done: queue.SimpleQueue = queue.SimpleQueue()


class LanesExecutable:
    """Programs of several devices, ready to be called together; from several threads at once."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        outputs: Sequence[Shape],
        initial: Sequence[int],
        channel_bytes: Sequence[int],
        donated: dict[int, int] | None = None,
    ):
        """outputs: shapes of the outputs, which the programs' references number. initial: control words of a new call.
        channel_bytes: of each place of a channel. donated: as of a Program."""
        self.lanes = list(lanes)
        self.initial = np.array(initial or [0], np.int64)
        self.channel_bytes = list(channel_bytes)
        pool = default_pool()
        self.outputs, self._donated = list(outputs), donated or {}
        kept = [lane.kept for lane in self.lanes if lane.kept is not None]
        self._mixed, self._kept = bool(kept), frozenset().union(*kept)
        self._take = [
            None if k in self._donated else pool.shelf(shape.dims, shape.dtype).take for k, shape in enumerate(outputs)
        ]
        self._idle: list[_Group] = []

    def __call__(self, inputs: Sequence) -> list:
        """Runs the programs. inputs: C-contiguous arrays, or what a lane keeps on its device. Returns new arrays, and
        what lanes keep; raises what a Python step raised."""
        try:
            group = self._idle.pop()
            group.control[:] = self.initial
        except IndexError:
            group = _Group(self)
        outputs = [self._output(k, inputs) for k in range(len(self.outputs))]
        arguments = (*inputs, *outputs, *group.places)
        in_host = tuple([a if isinstance(a, (np.ndarray, int)) else 0 for a in arguments]) if self._mixed else arguments
        first, *others = [
            _part(run, in_host if lane.kept is None else arguments, group.state)
            for run, lane in zip(group.runs, self.lanes, strict=True)
        ]
        if _inside.part:
            # Called by a Python step of such a program, which the devices' threads may be waiting for.
            for part in others:
                threading.Thread(target=lambda part=part: group.done.put(part()), daemon=True).start()
        else:
            with _order:
                for lane, part in zip(self.lanes[1:], others, strict=True):
                    _thread_of(lane.name).waiting.put((part, group.done))
        results = [first(), *(group.done.get() for _ in others)]
        error = take_error(group.state) or next((r for r in results if isinstance(r, BaseException)), None)
        group.handed.clear()
        self._idle.append(group)
        if error is not None:
            raise error
        for made in results:
            for number, value in (made or {}).items():
                outputs[number] = value
        return outputs

    def _output(self, k: int, inputs):
        """The memory of an output in the host's memory; None for one that a lane keeps."""
        if k in self._kept:
            return None
        take = self._take[k]
        return take() if take else as_shape(inputs[self._donated[k]], self.outputs[k])

    def for_one_output(self):
        """None: there is no shorter way (`Executable.for_one_output`)."""
        return


def _part(run: Callable, arguments, state: np.ndarray) -> Callable:
    """The part of a lane in a call; it returns what the lane keeps, or what went wrong."""

    def part() -> dict | BaseException | None:
        around, _inside.part = _inside.part, True
        try:
            return run(*arguments)
        except BaseException as error:
            state[0] = 0  # nobody may wait for this lane
            return error
        finally:
            _inside.part = around

    return part
