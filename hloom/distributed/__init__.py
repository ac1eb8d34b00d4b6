"""Programs in several processes: `hl.distributed.initialize()`, then the devices of all processes are there.

Each process runs the same Python program (`hloom launch -n 4 train.py`, or any starter of MPI programs).
`hl.devices()` lists the devices of all processes, `hl.local_devices()` those of this one.
"""

from __future__ import annotations

import atexit
import hashlib
import json
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from hloom.distributed.environment import started_processes
from hloom.distributed.mpi import Group
from hloom.distributed.tasks import assigned, tasks_of_cluster
from hloom.errors import DistributedError
from hloom.platforms.device import devices_were_named
from hloom.platforms.kinds import device_kinds
from hloom.platforms.processes import Processes, set_processes

_group: Group | None = None
_met_before = False  # by `meet`, before the program began


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
    job: str | None = None,
    task: int | None = None,
    cluster=None,
    initialization_timeout: float = 300.0,
) -> None:
    """Connects to the other processes of the program. Call it once, before functions are compiled, devices named, or
    arrays put on them.

    MPI's launcher determines the processes; num_processes and process_id, if given, must agree with it.
    coordinator_address, local_device_ids: accepted for programs written for JAX; MPI needs no coordinator, and
    HLOOM_NUM_CPU_DEVICES sets the number of devices per process.

    job, task: the name of this process in device names, `/job:worker/task:1/cpu:0`. By default its job is `worker`, and
    the processes of a job are numbered in order.
    cluster: the tasks of all jobs, `{"ps": 1, "worker": 2}` or with addresses in place of counts, as in TensorFlow's
    ClusterSpec; the same in all processes. Processes without a job and task take its tasks in order.
    initialization_timeout: seconds to wait for the others. Raises DistributedError.
    """
    global _group, _met_before
    if _group is not None and not _met_before:
        raise DistributedError("hl.distributed.initialize()", "it was called before", "call it once")
    if num_processes not in (None, 1) and started_processes() == 1:
        raise DistributedError(
            f"a program in {num_processes} processes",
            "this process was started alone",
            f"start it with: hloom launch -n {num_processes} program.py",
        )
    if _group is None and started_processes() > 1 and devices_were_named():
        raise DistributedError(
            "hl.distributed.initialize() at the start of the program",
            "devices were used before, as those of a program in one process: named, compiled for, or given arrays",
            "call it first, right after the imports",
        )
    found, _met_before = _group or Group(), False
    for what, asked, there in (("num_processes", num_processes, found.count), ("process_id", process_id, found.index)):
        if asked is not None and asked != there:
            raise DistributedError(
                f"hl.distributed.initialize({what}={asked})", f"by MPI it is {there}", f"leave {what} out"
            )
    mine = {
        "devices": {kind.name: kind.count() for kind in device_kinds().values()},
        "claim": (job, task),
        "cluster": None if cluster is None else tasks_of_cluster(cluster),
    }
    messages = found.exchange(json.dumps(mine).encode(), "hl.distributed.initialize()", initialization_timeout)
    everyone = [json.loads(message) for message in messages]
    tasks = _tasks(everyone)
    set_processes(Processes(found.index, [one["devices"] for one in everyone], tasks))
    if _group is None:
        atexit.register(shutdown)
    _group = found


def meet() -> None:
    """Connects to the other processes before the program begins, for launchers: `initialize` may still be called
    once."""
    global _met_before
    initialize()
    _met_before = True


def _tasks(everyone: list[dict]) -> list[tuple[str, int]]:
    """The task of each process. Raises DistributedError."""
    clusters = [one["cluster"] for one in everyone]
    other = next((k for k, cluster in enumerate(clusters) if cluster != clusters[0]), None)
    if other is not None:
        raise DistributedError(
            "one cluster in all processes",
            f"{clusters[0]} in process 0, {clusters[other]} in process {other}",
            "pass the same cluster= everywhere",
        )
    cluster = None if clusters[0] is None else [(job, number) for job, number in clusters[0]]
    return assigned([tuple(one["claim"]) for one in everyone], cluster)


def shutdown() -> None:
    """Disconnects from the other processes; this process then runs on its own. Does nothing if it was never
    initialized."""
    global _group, _met_before
    if _group is not None:
        _met_before = False
        atexit.unregister(shutdown)
        _group.leave()
        _group.close()
        _group = None
        set_processes(Processes())


def barrier(name: str = "hl.distributed.barrier()", timeout: float | None = None) -> None:
    """Waits until every process is here. Raises DistributedError that names the processes that did not arrive within
    `timeout` seconds (None: `hl.config.distributed_timeout`), or that is somewhere else."""
    group().exchange(b"", name, timeout)


def same_program(name: str, text: str, members: Sequence[int] | None = None) -> None:
    """Checks that every process (of `members`) is about to run the same program, before its first collective.

    Raises DistributedError with the first line that differs.
    """
    everyone = range(group().count) if members is None else sorted(set(members))
    doing = f"the start of '{name}'"
    digest = hashlib.sha256(text.encode()).digest()
    digests = dict(zip(everyone, group().exchange(digest, doing, members=everyone), strict=True))
    if len(set(digests.values())) == 1:
        return
    texts = dict(zip(everyone, group().exchange(text.encode(), doing, members=everyone), strict=True))
    other = next(k for k in everyone if digests[k] != digest)
    lines = zip_longest(text.splitlines(), texts[other].decode().splitlines(), fillvalue="(nothing)")
    number, (mine, theirs) = next((n, pair) for n, pair in enumerate(lines, 1) if pair[0] != pair[1])
    raise DistributedError(
        f"all processes run the same program '{name}'",
        f"line {number} here is\n    {mine.strip()}\nand in process {other}\n    {theirs.strip()}",
        "make everything the program depends on the same in all processes: arguments' shapes, flags, random seeds",
    )


def all_gather(value, name: str = "hl.distributed.all_gather()") -> np.ndarray:
    """The arrays of all processes, stacked: [processes, *shape]. Shapes and dtypes must be the same everywhere.

    Raises DistributedError.
    """
    array = np.asarray(value, order="C")
    header = f"{_dtype_name(array.dtype)}{list(array.shape)}".encode()
    parts = [m.split(b"\0", 1) for m in group().exchange(header + b"\0" + array.tobytes(), name)]
    other = next((k for k, (found, _) in enumerate(parts) if found != header), None)
    if other is not None:
        raise DistributedError(
            f"{name}: one shape and dtype in all processes",
            f"{header.decode()} here, {parts[other][0].decode()} in process {other}",
            "pass the same everywhere",
        )
    return np.stack([np.frombuffer(data, array.dtype).reshape(array.shape) for _, data in parts])


def _dtype_name(dtype: np.dtype) -> str:
    """Of bfloat16 and its like, NumPy's own string is that of bytes."""
    return dtype.str if dtype.isbuiltin == 1 else dtype.name


def broadcast(value, source: int = 0, name: str = "hl.distributed.broadcast()") -> np.ndarray:
    """The array of the process `source`, in all of them; the values of the others do not matter. Raises
    DistributedError."""
    message = b""
    if group().index == source:
        array = np.asarray(value, order="C")
        message = json.dumps([_dtype_name(array.dtype), array.shape]).encode() + b"\0" + array.tobytes()
    header, data = group().exchange(message, name)[source].split(b"\0", 1)
    dtype, shape = json.loads(header)
    return np.frombuffer(data, np.dtype(dtype)).reshape(shape)


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
