"""The processes of a program that runs in several: the number of this process, the number of processes, and the devices
of each.

There is one process until `hl.distributed.initialize` has connected to the others. A process is a task of a job, as in
TensorFlow's clusters: `/job:worker/task:1`.
The tasks of a cluster (`hloom.cluster`) are known once this process is connected to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Protocol

from hloom.ir.records import field, record
from hloom.platforms.kinds import DeviceKind
from hloom.platforms.names import DeviceName

LOCAL_JOB = "localhost"


@record(frozen=True)
class Processes:
    """index: the number of this process. devices: for each process how many devices it has of each kind. tasks: for
    each process its job and its number in that job (`/job:worker/task:1/cpu:0`)."""

    index: int = 0
    devices: Sequence[Mapping[str, int]] = field(default_factory=list)
    tasks: Sequence[tuple[str, int]] = ((LOCAL_JOB, 0),)

    @property
    def count(self) -> int:
        return max(len(self.devices), 1)

    @property
    def job(self) -> str:
        """Of this process."""
        return self.tasks[self.index][0]

    def first(self, kind: str, process: int) -> int:
        """The number among all devices of a kind of the first one that a process has."""
        return sum(found.get(kind, 0) for found in self.devices[:process])

    def name(self, process: int) -> str:
        """As in the names of its devices: /job:worker/task:1."""
        job, task = self.tasks[process]
        return f"/job:{job}/task:{task}"

    def process_of(self, job: str | None, task: int | None) -> int | None:
        """The number of the process that a device name's job and task name; None where there is no such task.

        A task without a job is one of this process's job. A job without a task is this process where it is in that job,
        and task 0 elsewhere. `localhost` is this process.
        """
        own = self.tasks[self.index]
        wanted = job or own[0], (own[1] if job in (None, own[0]) else 0) if task is None else task
        if wanted in self.tasks:
            return self.tasks.index(wanted)
        return self.index if wanted == (LOCAL_JOB, 0) else None


_known = Processes()


def processes() -> Processes:
    return _known


def set_processes(found: Processes) -> None:
    global _known
    _known = found


class Tasks(Protocol):
    """The tasks of a cluster that this process is connected to."""

    def numbers(self, job: str) -> Sequence[int] | None:
        """The numbers of the tasks of a job; None where the cluster has no such job."""

    def names(self) -> list[str]:
        """`/job:worker/task:0` and so on."""

    def kind(self, device: DeviceName) -> DeviceKind:
        """How the devices of a device's task relate to this process."""

    def devices(self) -> list[DeviceName]:
        """The devices of all tasks, where this process is connected to them."""


_own = ""  # as set by whoever started this process


def set_own_task(task: str) -> None:
    global _own
    _own = task


_acting: ContextVar[str] = ContextVar("hloom_acting_task", default="")


@contextlib.contextmanager
def acting_as(task: str) -> Iterator[None]:
    """While a server runs something for its task, `/job:worker/task:1`: one process may have several servers."""
    token = _acting.set(task)
    try:
        yield
    finally:
        _acting.reset(token)


def own_task_name() -> str:
    """The task that this process is, as logs name it: /job:worker/task:1. '' for a program in one process."""
    return _acting.get() or _own or (_known.name(_known.index) if _known.devices else "")


_tasks: Tasks | None = None


def tasks() -> Tasks | None:
    """The tasks of the cluster that this process is connected to; None where it is connected to none."""
    return _tasks


def set_tasks(found: Tasks | None) -> None:
    global _tasks
    _tasks = found
