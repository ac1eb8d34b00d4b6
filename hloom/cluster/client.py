"""A client of a cluster: its connection, and arrays that stay with the tasks that made them."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from hloom.arrays.array import Array
from hloom.cluster.graphs.executors import cluster_of
from hloom.cluster.peers import Peers
from hloom.cluster.server import Server, ServerTasks
from hloom.cluster.spec import ClusterSpec, Task, parse_task
from hloom.cluster.wire import HANDSHAKE_SECONDS
from hloom.errors import DistributedError
from hloom.ir.types import Shape
from hloom.platforms import processes
from hloom.platforms.backend import Backend
from hloom.platforms.device import Device
from hloom.platforms.kinds import CLUSTER, DeviceKind, load_backend
from hloom.platforms.names import DeviceName

_THREADS = 64


class RemoteData:
    """The data of an array that a task keeps. It is copied here when it is read, and freed there when the last
    reference here is gone."""

    __slots__ = ("__weakref__", "_link", "_value", "id", "incarnation", "shape_", "task")

    def __init__(self, link: Connection, task: Task, incarnation: str, held: int, shape: Shape, value=None):
        self._link, self.task, self.incarnation, self.shape_ = link, task, incarnation, shape
        self.id: int | str = held
        self._value: np.ndarray | None = value
        weakref.finalize(self, link.drop, task, held).atexit = False

    @property
    def dtype(self) -> np.dtype:
        return self.shape_.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.shape_.dims)

    @property
    def nbytes(self) -> int:
        return self.shape_.bytes

    def is_there(self) -> bool:
        """Whether the process that has it is the one that runs now, as far as is known here."""
        peer = self._link.peers[self.task]
        return peer.attached and peer.incarnation == self.incarnation and self._link is _connection

    def numpy(self) -> np.ndarray:
        """The elements. Raises DistributedError if the task was restarted."""
        if self._value is None:
            if not self.is_there():
                raise DistributedError(
                    f"{self.shape_!r} of {self.task}",
                    "the server that kept it was restarted, or this process connected anew",
                    "restore a checkpoint",
                )
            (self._value,) = self._link.peers.attached(self.task).request({"op": "get", "ids": [self.id]})[1]
        return self._value

    def block_until_ready(self) -> None:
        """A call returns when its parts have run."""


class RemoteVariable(RemoteData):
    """A variable of a task by its name: its elements are the variable's value at the time of reading."""

    __slots__ = ()

    def __init__(self, link: Connection, task: Task, name: str, shape: Shape):
        self._link, self.task, self.incarnation, self.id, self.shape_ = link, task, "", name, shape
        self._value = None

    def is_there(self) -> bool:
        return True


class TaskKind(DeviceKind):
    """The devices of a task to this process: arrays stay there, programs run there."""

    name = "cpu"
    keeps_arrays = True
    backend_name = CLUSTER

    def __init__(self, link: Connection, task: Task, kind: str):
        self._link, self._task, self.name = link, task, kind

    @property
    def backend(self) -> Backend:
        return load_backend(CLUSTER)

    def count(self) -> int:
        return self._link.peers.attached(self._task).devices.get(self.name, 0)

    def description(self, index: int) -> str:
        """As reported by the task. Raises DistributedError."""
        found = self._link.peers.attached(self._task).hardware.get(self.name, [])
        return found[index] if index < len(found) else ""

    def put(self, data, index: int, label: str) -> RemoteData:
        """The data of an array at the task. Raises DistributedError."""
        if isinstance(data, RemoteData) and data.task == self._task and data.is_there():
            return data
        array = np.asarray(data if isinstance(data, np.ndarray) else data.numpy(), order="C")
        peer, held = self._link.peers.attached(self._task), self._link.new_id()
        peer.request({"op": "put", "ids": [held]}, [array])
        return RemoteData(self._link, self._task, peer.incarnation, held, Shape(array.dtype, array.shape), None)


class Connection:
    """A process as a client of a cluster. `with connect(...)` closes it.

    device: the first device of the task that was connected to.
    """

    def __init__(self, spec: ClusterSpec, task: Task):
        self.spec, self.task, self.peers = spec, task, Peers(spec)
        self.device = Device("cpu", 0, task.index, task.job)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="hloom cluster")
        self._ids, self._lock = itertools.count(), threading.Lock()
        self._dropped: dict[Task, list[int]] = {}
        before = processes.tasks()
        self._before = before if isinstance(before, ServerTasks) else None

    def numbers(self, job: str) -> Sequence[int] | None:
        """The indices of a job's tasks; None for a job that the cluster does not have."""
        return list(self.spec.jobs[job]) if job in self.spec.jobs else None

    def names(self) -> list[str]:
        """The names of all tasks, such as /job:worker/task:0."""
        return [str(task) for task in self.spec.tasks]

    def kind(self, device: DeviceName) -> DeviceKind:
        """The kind of a device of a task."""
        return TaskKind(self, Task(device.job or "", device.task or 0), device.kind)

    def devices(self) -> list[DeviceName]:
        """Those of all tasks, task by task. Tasks that are not there are waited for. Raises DistributedError."""
        return [
            DeviceName(kind, number, peer.task.job, peer.task.index)
            for peer in self.peers.all_attached(self.spec.tasks)
            for kind, count in peer.devices.items()
            for number in range(count)
        ]

    def status(self, task: Task | None = None, timeout: float = HANDSHAKE_SECONDS) -> dict:
        """The status of a task (`Server.status`). Raises DistributedError."""
        return self.peers.attached(task or self.task, timeout).request({"op": "status"}, (), timeout)[0]

    def stop_servers(self) -> None:
        """Ends the servers of all tasks."""
        for task in self.spec.tasks:
            self.peers.attached(task, HANDSHAKE_SECONDS).request({"op": "stop"}, (), HANDSHAKE_SECONDS)

    # --- for programs ---

    def submit(self, function: Callable, *arguments) -> Future:
        """Calls a function in a thread of the connection."""
        return self._pool.submit(function, *arguments)

    def new_id(self) -> int:
        """A number that no other object of this connection has."""
        return next(self._ids)

    def variable(self, task: Task, name: str, shape: Shape) -> RemoteVariable:
        """The data of a variable that the server of a task has."""
        return RemoteVariable(self, task, name, shape)

    @staticmethod
    def entries(task: Task, values: Sequence) -> tuple[list[dict | None], list[np.ndarray]]:
        """How a request to a task names these arguments, and the arrays that travel with it: not those that are there
        already. None: an argument that the part does not read."""
        entries: list[dict | None] = []
        sent: list[np.ndarray] = []
        for value in values:
            data = value._held() if isinstance(value, Array) else value
            if data is None:
                entries.append(None)
            elif isinstance(data, RemoteData) and data.task == task and data.is_there():
                entries.append({"held": data.id})
            else:
                entries.append({"value": len(sent)})
                sent.append(np.asarray(data) if not hasattr(data, "numpy") else data.numpy())
        return entries, sent

    def drop(self, task: Task, held: int) -> None:
        """Marks an array as no longer needed; the task hears of it with the next program."""
        self._dropped.setdefault(task, []).append(held)

    def dropped(self, task: Task) -> list[int]:
        """The ids of a task's objects that nothing refers to any more; each is told once."""
        return self._dropped.pop(task, [])

    def end_run(self, run: str, tasks: list[str], failure: str = "") -> None:
        """Tells tasks that a run has failed, so that none keeps waiting in it."""
        for name in tasks:
            peer = self.peers[parse_task(name)]
            try:
                if peer.attached:
                    peer.request({"op": "end", "run": run, "failure": failure}, (), HANDSHAKE_SECONDS)
            except DistributedError:
                peer.detach()  # it is this one that has failed

    def check(self) -> None:
        """Forgets connections to tasks that do not answer, so that the next call looks them up again."""
        for task in self.spec.tasks:
            peer = self.peers[task]
            if peer.attached:
                try:
                    peer.request({"op": "status"}, (), HANDSHAKE_SECONDS)
                except DistributedError:
                    peer.detach()

    def close(self) -> None:
        """Leaves the cluster, which frees everything it kept for this process."""
        global _connection
        self.peers.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if _connection is self:
            _connection = None
            processes.set_tasks(self._before)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exception) -> None:
        self.close()


_connection: Connection | None = None
_connecting = threading.Lock()


def connect(
    target: str | ClusterSpec | Server, task: str | None = None, *, key: bytes | None = None, tls=None,
    timeout: float | None = None,
) -> Connection:  # fmt: skip
    """Connects this process to a cluster: its tasks can be named in `hl.device` and `hl.device_put` from then on.

    target: `hloom://host:port` of one server, which knows the others; a ClusterSpec; or a Server. task: the one whose
    devices are meant where the target is a ClusterSpec, by default its first. timeout: seconds to wait for it, by
    default `hl.config.distributed_timeout`; each try is reported. Raises DistributedError.
    """
    global _connection
    if isinstance(target, Server):
        spec, chosen = target.spec, target.task
    elif isinstance(target, ClusterSpec):
        spec, chosen = target, parse_task(task) if task else target.tasks[0]
    else:
        spec, chosen = cluster_of(str(target), key=key, tls=tls, timeout=timeout)
    if _connection is not None:
        _connection.close()
    made = Connection(spec, chosen)
    made.peers.attached(chosen, timeout)
    _connection = made
    processes.set_tasks(made)
    return made


def close_for(server: ServerTasks) -> None:
    """Closes this process's connection to its own server, which is shutting down."""
    if _connection is not None and _connection._before is server:
        _connection.close()


def connection() -> Connection:
    """The cluster that this process is connected to; if it is a server itself, the server's. Raises
    DistributedError where there is none."""
    found = processes.tasks()
    with _connecting:
        if _connection is None and isinstance(found, ServerTasks):
            connect(found.spec, str(found.task))
    if _connection is None:
        raise DistributedError(
            "a program on tasks of a cluster", "this process is connected to none", "call hl.cluster.connect(target)"
        )
    return _connection


__all__ = ["Connection", "RemoteData", "connect", "connection"]
