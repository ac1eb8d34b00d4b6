"""One program that several devices run together (SPMD), each in its own memory, natively from start to end.

Each device has a frame of the program: an arena, argument words, steps. The frames of a call are a *team*: a program
runs until it reaches a barrier that others have not reached yet, and resumes when they have. Any number of threads run
a team, each the frames of its share, so that devices may outnumber processors: a wait then costs about 50 ns, not a
thread switch. Deadlocks are detected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hloom.runtime import driver_source, team_source
from hloom.runtime.buffer import Arena, address, default_pool
from hloom.runtime.distributed.messages import Message, Others
from hloom.runtime.driver import Activation, Driver, step
from hloom.runtime.driver_source import KERNEL, MOST_WAKING
from hloom.runtime.host_steps import callbacks_of, new_state, take_error
from hloom.runtime.program import LINE, Frame, Seat, as_shape
from hloom.runtime.steps import Arrive, Await, Call, Exchange, Host, Jump, Program

LEAST = 50  # nanoseconds of a kernel, at least
SHARED_ALIGNMENT = 64


_abandoned: list[Team] = []  # with messages under way


class Team:
    """The memory of one running call of all devices.

    The slots of its activation are those of each device in turn: inputs, then outputs. Code that runs it directly calls
    `SpmdProgram.error` if `state`, a byte of `done` or the word TEAM_STOP indicates that it ended early.
    """

    __slots__ = (
        "activation", "address", "args", "counts", "done", "frames", "memory", "seats", "state", "targets", "words",
    )  # fmt: skip

    def __init__(self, owner: SpmdProgram):
        program, devices = owner.program, len(owner.numbers)
        self.state = new_state()
        self.done = np.array([1, 0] * devices, np.uint8)
        arenas = [Arena(max(program.arena_bytes, 64), program.guards) for _ in range(devices)]
        shared = Arena(max(program.shared_bytes, SHARED_ALIGNMENT))
        slots = np.zeros(max(devices * (len(program.inputs) + len(program.outputs)), 1), np.int64)
        barriers = -(-max(program.barriers, 1) // LINE) * LINE
        self.counts = np.zeros(barriers * devices * LINE, np.int64)
        self.targets = np.zeros((devices, barriers), np.int64)
        self.seats = []
        positions = {device: k for k, device in enumerate(owner.numbers)}
        for k, device in enumerate(owner.numbers):
            identity = np.array([device % owner.partitions, device // owner.partitions], np.uint32)
            places = positions, arenas, slots, shared, self.counts, self.targets[k]
            self.seats.append(Seat(device, *places, identity, owner.others))
        self.frames = [
            Frame(program, driver, owner.callbacks, None, self.state, seat, self.done[2 * k : 2 * k + 2])
            for k, (driver, seat) in enumerate(zip(owner.drivers, self.seats, strict=True))
        ]
        self.memory = np.zeros(team_source.TEAM_MEMBERS + team_source.MEMBER_WORDS * devices + 2 * LINE, np.int64)
        self.words = self.memory[-address(self.memory) % (8 * LINE) // 8 :]
        self.args = np.array([address(self.words)], np.int64)
        rows = [
            step(KERNEL, owner.begin, 0, 0, 0),
            step(KERNEL, owner.run, 0, owner.threads, 1, 0, owner.nanoseconds),
        ]
        flags = driver_source.FLAG_RELEASE_GIL | driver_source.FLAG_PARALLEL | driver_source.FLAG_LOOKS
        self.activation = Activation(rows, [], self.args, slots, flags)
        self.address = self.activation.address
        self.words[team_source.TEAM_COUNT] = devices
        self.words[team_source.TEAM_HELPERS] = owner.threads
        self.words[team_source.TEAM_STATUS] = address(self.state)
        self.words[team_source.TEAM_BLOCK] = self.address
        self.words[team_source.TEAM_STATE] = owner.team.state_address
        for k, (frame, driver) in enumerate(zip(self.frames, owner.drivers, strict=True)):
            at = team_source.TEAM_MEMBERS + team_source.MEMBER_WORDS * k
            self.words[at : at + 2] = frame.address, driver.state_address

    def reset(self) -> None:
        """After a call that ended before its end: no device has reached any barrier."""
        self.counts[:] = 0
        self.targets[:] = 0
        self.state[0] = 1

    def standing(self) -> list[tuple[int, int]]:
        """The position of each device that has not ended: its index and the index of its step."""
        found = []
        for frame in self.frames:
            assert frame.seat is not None
            device = frame.seat.device
            row = int(frame.activation.block[driver_source.BLOCK_AT])
            if row >= 0:
                found.append((device, next(k for k, first in enumerate(frame.first) if first > row) - 1))
        return found

    def failed(self) -> tuple[int, int, Message | int] | None:
        """The device, the index of the step and the message that failed, or MPI's error code; None if the failure was
        not a message."""
        for frame in self.frames:
            for number, batch in frame.batches.items():
                if (failure := batch.failure()) is not None:
                    assert frame.seat is not None
                    return frame.seat.device, number, failure
        return None


class SpmdProgram:
    """A program that several devices run together, ready to be called from several threads concurrently."""

    def __init__(
        self,
        program: Program,
        partitions: int,
        drivers: Sequence[Driver],
        team: Driver,
        entries: tuple[int, int],
        stuck: Callable[[list[tuple[int, int]]], Exception],
        numbers: Sequence[int] | None = None,
        others: Others | None = None,
        failed: Callable[[int, int, Message | int], Exception] | None = None,
    ):
        """drivers: of each device of this process. team: whose threads run the devices' frames. entries: the addresses
        of `hloom_team_begin` and `hloom_team`. stuck: makes the error for a deadlock, from the indices of the devices
        that have not ended and of the steps where they wait. numbers: indices of this process's devices; by default all
        of them. others: the transport to the rest. failed: makes the error for a failed message, from the result of
        `Team.failed`."""
        self.program, self.partitions, self.drivers, self.team = program, partitions, list(drivers), team
        self.numbers = range(len(self.drivers)) if numbers is None else numbers
        self.others, self._failed = others, failed
        self.devices = len(self.drivers)
        self.threads = min(team.num_threads, self.devices)
        self.begin, self.run = entries
        self._stuck = stuck
        self._kept, self.callbacks = callbacks_of(program)
        self.nanoseconds = _nanoseconds(program) * self.devices
        pool = default_pool()
        self._donated = program.donated
        self._take = [
            None if k in program.donated else pool.shelf(shape.dims, shape.dtype).take
            for k, shape in enumerate(program.outputs)
        ]
        self._idle: list[Team] = []

    def __call__(self, shards: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        """Runs the program. shards: for each input a C-contiguous array for each device. Returns for each output a new
        (or donated) array of each device; raises exceptions of Python steps, KeyboardInterrupt where a signal handler
        did, and the error of `stuck`."""
        try:
            team = self._idle.pop()
        except IndexError:
            team = self.new_team()
        devices = range(self.devices)
        outputs = [
            [take() for _ in devices]
            if take
            else [as_shape(array, self.program.outputs[k]) for array in shards[self._donated[k]]]
            for k, take in enumerate(self._take)
        ]
        arguments = [array for arrays in zip(*shards, *outputs, strict=True) for array in arrays]
        try:
            self.team.call(team.address, *arguments)
        except BaseException:
            take_error(team.state)
            self._stopped(team)
            raise
        if team.words[team_source.TEAM_STOP] or not team.state[0] or (self.callbacks and not team.done[::2].all()):
            error = self.error(team)
            self._stopped(team)
            raise error
        self._idle.append(team)
        return outputs

    @property
    def runs_python(self) -> bool:
        """Whether a step is a Python function."""
        return bool(self.callbacks)

    def new_team(self) -> Team:
        """The memory of one more running call."""
        return Team(self)

    def error(self, team: Team) -> BaseException:
        """Why a call ended before its end; Python steps may run in it again."""
        interrupted = not team.done[::2].all()
        team.done[::2] = 1
        error = take_error(team.state)
        if error is None and interrupted:
            return KeyboardInterrupt()
        failure = team.failed() if error is None and self._failed is not None else None
        if failure is not None:
            assert self._failed is not None
            error = self._failed(*failure)
        return error or self._stuck(team.standing())

    def _stopped(self, team: Team) -> None:
        """After a call that ended before its end."""
        if self.others is not None:
            # Messages may still arrive: the team is not used again, and lives as long as the process.
            _abandoned.append(team)
        else:
            team.reset()
            self._idle.append(team)


def _nanoseconds(program: Program) -> int:
    """The approximate time of a device's program on one thread, by which sleeping threads are woken or not."""
    total = 0
    for number, item in enumerate(program.steps):
        if isinstance(item, Host) or (isinstance(item, Jump) and item.target <= number):
            return MOST_WAKING
        if isinstance(item, Call):
            total += max(item.nanoseconds, LEAST)
        elif isinstance(item, Exchange):
            return MOST_WAKING
        elif not isinstance(item, (Arrive, Await)):
            total += getattr(item, "bytes", 0) // 20
    return min(max(total, 1), MOST_WAKING)
