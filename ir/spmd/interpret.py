"""The reference semantics of a program for several devices: one interpreter per device, in synchronized threads.

A collective completes when all devices of its group have reached it. Deadlocks (a device has finished, or is at another
collective) are an error that reports the position of each device.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from hloom.ir.errors import ParticipantsError, ShapeError
from hloom.ir.interpret import run
from hloom.ir.module import Module
from hloom.ir.spmd.participants import Participant, set_current


def run_spmd(module: Module, arguments_by_device: Sequence[Sequence]) -> list:
    """The result on each device: an array, or a tuple of them. Device ids are replica * partitions + partition.

    arguments_by_device: the arguments of each device, with the shapes of the module's parameters. Raises
    ParticipantsError for deadlocks, and the errors of ops on any device.
    """
    count = module.replicas * module.partitions
    if len(arguments_by_device) != count:
        raise ShapeError(
            f"a program for {count} devices was to run ({module.replicas} replicas of {module.partitions} partitions)",
            f"arguments for {len(arguments_by_device)} devices",
            "pass a list of arguments for each device",
        )
    meeting = _Meeting(count)
    results: list[Any] = [None] * count

    def device(number: int) -> None:
        def meet(name, group, what, value):
            return meeting.meet(number, name, group, what, value)

        set_current(Participant(number, module.replicas, module.partitions, meet))
        try:
            results[number] = run(module, arguments_by_device[number])
        except BaseException as error:
            meeting.fail(number, error)
        finally:
            set_current(None)
            meeting.leave(number)

    threads = [threading.Thread(target=device, args=(k,), daemon=True) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if meeting.failure is not None:
        raise meeting.failure
    return results


class _Aborted(BaseException):
    """Another device failed."""


class _Meeting:
    """The synchronization of devices."""

    def __init__(self, count: int):
        self.changed = threading.Condition()
        self.running = set(range(count))  # neither waiting nor finished
        self.waiting: dict[int, tuple] = {}  # device -> (name, group, what)
        self.values: dict[int, Any] = {}
        self.found: dict[int, list] = {}  # results for devices to pick up
        self.failure: BaseException | None = None

    def meet(self, number: int, name: str, group: tuple[int, ...], what, value) -> list:
        with self.changed:
            self.waiting[number] = (name, group, what)
            self.values[number] = value
            self.running.discard(number)
            if all(self.waiting.get(m) == self.waiting[number] for m in group):
                values = [self.values.pop(m) for m in group]
                for member in group:
                    del self.waiting[member]
                    self.found[member] = values
                    self.running.add(member)
                self.changed.notify_all()
            self._check()
            while number not in self.found and self.failure is None:
                self.changed.wait()
            if self.failure is not None:
                raise _Aborted
            return self.found.pop(number)

    def leave(self, number: int) -> None:
        with self.changed:
            self.running.discard(number)
            self._check()

    def fail(self, number: int, error: BaseException) -> None:
        with self.changed:
            if self.failure is None and not isinstance(error, _Aborted):
                error.add_note(f"  on device {number}")
                self.failure = error
            self.changed.notify_all()

    def _check(self) -> None:
        """No device is running, and no waiting group is complete: a deadlock."""
        if self.running or not self.waiting or self.failure is not None:
            return
        at = [
            f"device {k} at {name} of the devices {list(group)}" for k, (name, group, _) in sorted(self.waiting.items())
        ]
        self.failure = ParticipantsError(
            "collectives complete when all devices of their group have come to them",
            f"{'; '.join(at[:8])}{'; ...' if len(at) > 8 else ''}; all others have finished",
            "let all devices of a group run the same collectives in one order, with arrays of one shape",
        )
        self.changed.notify_all()
