"""Programs in several processes: `hl.distributed.initialize()`, then the devices of all processes are there.

Each process runs the same Python program (`hloom launch -n 4 train.py`, or any starter of MPI programs).
`hl.devices()` lists the devices of all processes, `hl.local_devices()` those of this one.
"""

from __future__ import annotations

import atexit
import hashlib
import json
from itertools import zip_longest

import numpy as np

from hloom.distributed.environment import started_processes
from hloom.distributed.mpi import Group
from hloom.errors import DistributedError
from hloom.platforms.kinds import device_kinds
from hloom.platforms.processes import Processes, set_processes

_group: Group | None = None


def is_initialized() -> bool:
    """Whether `initialize` has met the other processes."""
    return _group is not None


def group() -> Group:
    """The processes that `initialize` has met. Raises DistributedError before."""
    if _group is None:
        raise DistributedError(
            "an exchange between processes", "hl.distributed.initialize() was not called", "call it at the start"
        )
    return _group


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids=None,
    *,
    job: str = "worker",
    initialization_timeout: float = 300.0,
) -> None:
    """Meets the other processes of the program. Call it once, before arrays are made.

    MPI's launcher says who takes part; num_processes and process_id, if they are given, must say the same.
    coordinator_address, local_device_ids: accepted for programs written for JAX; MPI needs no coordinator, and
    HLOOM_NUM_CPU_DEVICES says how many devices a process has. job: as in the device `/job:worker/task:1/cpu:0`.
    initialization_timeout: seconds to wait for the others. Raises DistributedError.
    """
    global _group
    if _group is not None:
        raise DistributedError("hl.distributed.initialize()", "it was called before", "call it once")
    if num_processes not in (None, 1) and started_processes() == 1:
        raise DistributedError(
            f"a program in {num_processes} processes",
            "this process was started alone",
            f"start it with: hloom launch -n {num_processes} program.py",
        )
    found = Group()
    for what, asked, there in (("num_processes", num_processes, found.count), ("process_id", process_id, found.index)):
        if asked is not None and asked != there:
            raise DistributedError(
                f"hl.distributed.initialize({what}={asked})", f"by MPI it is {there}", f"leave {what} out"
            )
    mine = {kind.name: kind.count() for kind in device_kinds().values()}
    everyone = found.exchange(json.dumps(mine).encode(), "hl.distributed.initialize()", initialization_timeout)
    set_processes(Processes(found.index, [json.loads(message) for message in everyone], job))
    _group = found
    atexit.register(shutdown)


def shutdown() -> None:
    """Leaves the other processes; what is there is this process's own again. Nothing happens where it was never
    initialized."""
    global _group
    if _group is not None:
        atexit.unregister(shutdown)
        _group.close()
        _group = None
        set_processes(Processes())


def barrier(name: str = "hl.distributed.barrier()", timeout: float | None = None) -> None:
    """Waits until every process is here. Raises DistributedError that names who did not come within `timeout` seconds
    (None: `hl.config.distributed_timeout`), or that is at another barrier."""
    names = [message.decode() for message in group().exchange(name.encode(), name, timeout)]
    other = next((k for k, found in enumerate(names) if found != name), None)
    if other is not None:
        raise DistributedError(
            f"all processes at {name}", f"process {other} is at {names[other]}", "let all processes take the same way"
        )


def same_program(name: str, text: str) -> None:
    """Checks that every process is about to run the same program, before its first collective.

    Raises DistributedError with the first line that differs.
    """
    digests = group().exchange(hashlib.sha256(text.encode()).digest(), f"the start of '{name}'")
    other = next((k for k, digest in enumerate(digests) if digest != digests[group().index]), None)
    differs = group().exchange(b"" if len(set(digests)) == 1 else text.encode(), f"the start of '{name}'")
    if len(set(digests)) == 1:
        return
    other = other if other is not None else next(k for k, d in enumerate(digests) if d != digests[0])
    lines = zip_longest(text.splitlines(), differs[other].decode().splitlines(), fillvalue="(nothing)")
    number, (mine, theirs) = next((n, pair) for n, pair in enumerate(lines, 1) if pair[0] != pair[1])
    raise DistributedError(
        f"all processes run the same program '{name}'",
        f"line {number} here is\n    {mine.strip()}\nand in process {other}\n    {theirs.strip()}",
        "let what the program depends on be the same in all processes: arguments' shapes, flags, random seeds",
    )


def all_gather(value, name: str = "hl.distributed.all_gather()") -> np.ndarray:
    """The arrays of all processes, stacked: [processes, *shape]. Shapes and dtypes must be the same everywhere.

    Raises DistributedError.
    """
    array = np.asarray(value, order="C")
    header = f"{array.dtype.str}{list(array.shape)}".encode()
    parts = [m.split(b"\0", 1) for m in group().exchange(header + b"\0" + array.tobytes(), name)]
    other = next((k for k, (found, _) in enumerate(parts) if found != header), None)
    if other is not None:
        raise DistributedError(
            f"{name}: one shape and dtype in all processes",
            f"{header.decode()} here, {parts[other][0].decode()} in process {other}",
            "pass the same everywhere",
        )
    return np.stack([np.frombuffer(data, array.dtype).reshape(array.shape) for _, data in parts])


def broadcast(value, source: int = 0, name: str = "hl.distributed.broadcast()") -> np.ndarray:
    """The array of the process `source`, in all of them."""
    return all_gather(value, name)[source]


__all__ = [
    "all_gather",
    "barrier",
    "broadcast",
    "group",
    "initialize",
    "is_initialized",
    "same_program",
    "shutdown",
]
__dir__ = __all__.copy
