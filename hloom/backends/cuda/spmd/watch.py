"""Collectives among GPUs of several processes, watched until they are done.

A kernel of NCCL waits for its peers forever. A thread polls whether the enqueued work has completed, queries NCCL for
errors, and aborts the groups after `hl.config.distributed_timeout`: from then on the GPUs raise the error, since their
results are invalid.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time

from hloom import distributed
from hloom.backends.cuda.spmd.communicators import World, abandon, made_members, nccl
from hloom.config import config
from hloom.errors import DistributedError
from hloom.ir.process import forking
from hloom.ir.records import record
from hloom.ir.source import Source
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.errors import CudaError
from hloom.runtime.cuda.events import Event
from hloom.runtime.cuda.libraries.nccl import IN_PROGRESS

LOOK = 0.002  # seconds between looks


@record(eq=False)
class Watched:
    """Work of a program on this process's GPUs of a world. ends: on the clock `time.monotonic`."""

    world: World
    asked: str
    source: Source | None
    events: list[tuple[Device, Event]]
    seconds: float
    ends: float


_waiting: queue.SimpleQueue[Watched] = queue.SimpleQueue()
_threads: list[threading.Thread] = []
_lock = forking.lock()
forking.on_fork(child=_threads.clear)


def watch(
    world: World, asked: str, source: Source | None, events: list[tuple[Device, Event]] | None = None
) -> None:  # fmt: skip
    """Watches the work before some events; None: the work now on the main streams of the GPUs of a world. asked,
    source: the requested operation, and the user's line. Raises CudaError."""
    if events is None:
        events = []
        for device in world.own.values():
            with device.guard():
                events.append((device, device.record(device.main)))
    seconds = config.distributed_timeout
    _waiting.put(Watched(world, asked, source, events, seconds, time.monotonic() + seconds))
    with _lock:
        if not _threads:
            thread = threading.Thread(target=_run, name="hloom-nccl-watch", daemon=True)
            _threads.append(thread)
            thread.start()


def _run() -> None:
    while True:
        task = _waiting.get()
        with contextlib.suppress(CudaError):  # the GPU is lost: whoever waits for it learns so
            look_until_done(task)
        task = None  # type: ignore[assignment]  # holds nothing while it waits


def look_until_done(task: Watched) -> None:
    """Returns when the work is done, or when it has been ended and the GPUs raise why."""
    while True:
        task.events = [(device, event) for device, event in task.events if not _is_done(device, event)]
        if not task.events:
            return
        status = _status(task)
        if status or time.monotonic() > task.ends:
            error = failure(task, status)
            for device in task.world.own.values():
                device.failure = error
            abandon(task.world)
            return
        time.sleep(LOOK)


def _is_done(device: Device, event: Event) -> bool:
    with device.guard() as api:
        return event.is_over or api.query_event(event.handle, "a collective was watched")


def _status(task: Watched) -> int:
    """0, or an error of one of the groups."""
    found = (nccl().state(member) for member in made_members(task.world) if member.handle is not None)
    return next((status for status in found if status not in (0, IN_PROGRESS)), 0)


def failure(task: Watched, status: int) -> DistributedError:
    """The error for work that NCCL has given up (status), or that was not done in time (0)."""
    others = task.world.others
    names = ", ".join(map(str, others))
    found = f"nothing came from process {names} within {task.seconds:g} s"
    if status:
        found = f"NCCL lost process {names}: error {status}, {nccl().module.get_error_string(status)}"
    where = [
        f"process {k} is at {place}"
        for k in others
        if distributed.is_initialized() and (place := distributed.group().whereabouts(k, -1)) is not None
    ]
    return DistributedError(
        task.asked,
        "; ".join([found, *where]),
        "look at what that process does (py-spy dump --pid); start the program again, from its last checkpoint",
        task.source,
    )


__all__ = ["look_until_done", "watch"]
