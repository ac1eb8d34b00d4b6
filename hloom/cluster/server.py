"""A task of a cluster as a process that serves: it runs its parts of programs, and keeps arrays and variables.

    server = hl.cluster.Server({"worker": ["localhost:2222", "localhost:2223"]}, "worker", 0)
    server.join()

Programs come as text of the IR from clients that have the cluster's key; nothing is unpickled or executed otherwise.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.cluster.graphs.executors import GraphStore
from hloom.cluster.listener import Listener
from hloom.cluster.peers import Peers, waits_for_tasks
from hloom.cluster.programs import Part, part_handle, read_part
from hloom.cluster.rendezvous import Channel, Rendezvous
from hloom.cluster.spec import ClusterSpec, Task, own_task, parse_task, split_address
from hloom.cluster.variables import VariableStore
from hloom.cluster.wire import HANDSHAKE_SECONDS, VERSION, PeerLost, Stream, error_header, server_context
from hloom.config import config
from hloom.errors import DistributedError, HloomError
from hloom.platforms import processes
from hloom.platforms.kinds import DeviceKind, device_kinds
from hloom.platforms.names import DeviceName

MAX_CONNECTIONS = 4096
INLINE_BYTES = 1 << 16  # results up to this size travel with the answer, although the server keeps them
Answer = tuple[dict, Sequence[np.ndarray]]


class _Client:
    """The state of a client: its programs by handle, its arrays by id."""

    def __init__(self) -> None:
        self.programs: dict[str, tuple[Part, dict[int, dict]]] = {}
        self.arrays: dict[int, np.ndarray] = {}
        self.leases = 0  # connections that keep it here: a new one may be made before the old one's end is seen


class ServerTasks:
    """The names of the cluster's tasks in the process of a server, which connects to them when it uses them."""

    def __init__(self, spec: ClusterSpec, task: Task):
        self.spec, self.task = spec, task

    def numbers(self, job: str) -> Sequence[int] | None:
        return list(self.spec.jobs[job]) if job in self.spec.jobs else None

    def names(self) -> list[str]:
        return [str(task) for task in self.spec.tasks]

    def kind(self, device: DeviceName) -> DeviceKind:
        return self.connection().kind(device)

    def devices(self) -> list[DeviceName]:
        """None: a server waits for the other tasks when it uses them, or is connected to them."""
        return []

    def connection(self) -> Any:
        """The process as a client of the other tasks. Raises DistributedError."""
        return self._clients().connection()

    def close(self) -> None:
        """Leaves the cluster, where the process is its client for this server."""
        self._clients().close_for(self)

    @staticmethod
    def _clients() -> Any:
        return importlib.import_module("hloom.cluster.client")  # by its name: clients import servers


class Server:
    """The server of one task. It listens from its creation on, in background threads.

    cluster: a ClusterSpec or its mapping; None, like the other arguments, for a process of a submitted job. folder:
    where the variables of a parameter server are saved, and restored from after a restart. Raises DistributedError for
    a port in use and unknown tasks.
    """

    def __init__(
        self, cluster=None, job_name: str | None = None, task_index: int | None = None, *, folder=None
    ):  # fmt: skip
        told = own_task()
        if cluster is None:
            if told is None:
                raise DistributedError(
                    "hl.cluster.Server() without arguments",
                    "this process was not started by `hloom cluster submit`",
                    "pass Server(cluster, job_name, task_index)",
                )
            cluster, job_name, task_index = told.spec(), told.job, told.index
            folder = folder or os.path.join(told.folder, f"{told.job}-{told.index}")
        self.spec = ClusterSpec(cluster)
        self.task = Task(job_name or next(iter(self.spec.jobs)), task_index or 0)
        self.address = self.spec.address(self.task)
        self.incarnation = secrets.token_hex(8)
        self.started = time.time()
        self._peers = Peers(self.spec, str(self.task))
        self._rendezvous = Rendezvous()
        self._clients: dict[str, _Client] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._streams: set[Stream] = set()
        self._runs = 0
        self.variables = VariableStore(str(self.task), self._peers, folder)
        self._tasks = ServerTasks(self.spec, self.task)
        self._graphs = GraphStore(self.task, self._tasks.connection)
        self._operations: dict[str, Callable[[dict, list[np.ndarray]], Answer]] = {
            "status": lambda header, arrays: (self.status(), ()),
            "program": self._program,
            "run": self._run,
            "send": self._send,
            "receive": self._receive,
            "end": self._end,
            "put": self._put,
            "get": self._get,
            "stop": self._stop,
            **self.variables.operations(),
            "graph.load": self._graphs.load,
            "graph.run": self._graphs.run,
            "graph.variables": self._graphs.variables,
            "graph.assign": self._graphs.assign,
            "variables.add": self._graphs.add_update,
            "variables.run": self._update,
        }
        context = server_context(self.spec.tls) if self.spec.tls is not None else None
        listening = self._listening()
        if processes.tasks() is None:
            processes.set_tasks(self._tasks)
        self._listener = Listener(listening, self.spec.key, context, str(self.task), self._serve, MAX_CONNECTIONS)

    @property
    def target(self) -> str:
        """The address for clients: `hloom://host:port`."""
        return f"hloom://{self.address}"

    def _listening(self) -> socket.socket:
        host, port = split_address(self.address)
        try:
            return socket.create_server((host, port), backlog=128)
        except OSError as error:
            raise DistributedError(
                f"a server of {self.task} at {self.address}",
                f"{error.strerror or error}",
                "end the process that listens there, or give the task another port in the ClusterSpec",
            ) from error

    def join(self, timeout: float | None = None) -> bool:
        """Waits until the server is stopped (`stop`, Ctrl-C, or a client's request). timeout: seconds; None: no limit.
        Whether it has ended."""
        try:
            return self._ended.wait(timeout)
        except KeyboardInterrupt:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the server: connections are closed, variables are saved."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._listener.stop()
        for stream in list(self._streams):
            stream.shut_down()
        self._peers.close()
        self.variables.close()
        self._tasks.close()
        if processes.tasks() is self._tasks:
            processes.set_tasks(None)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Server {self.task} at {self.address}>"

    # --- connections ---

    def _serve(self, stream: Stream) -> None:
        """Answers a peer that has the key, until it leaves."""
        self._streams.add(stream)
        client = ""
        try:
            while not self._ended.is_set():
                header, arrays = stream.receive()
                if header.get("op") == "attach":
                    if client:  # a connection keeps one client here
                        self._left(client)
                    client = str(header.get("client"))
                    stream.send(self._attached(client))
                else:
                    self._reply(stream, header, arrays)
        except PeerLost:
            pass  # it left
        except (
            Exception
        ) as error:  # its input is not a message, or the answer cannot be encoded: it is told, and may reconnect
            with contextlib.suppress(OSError, HloomError):
                stream.send(error_header(error), timeout=HANDSHAKE_SECONDS)
        finally:
            self._streams.discard(stream)
            stream.close()
            if client:
                self._left(client)

    def _left(self, client: str) -> None:
        """Releases the state of one connection of a client; with the last one, the client."""
        with self._lock:
            found = self._clients[client]
            found.leases -= 1
            if found.leases:
                return
            self._clients.pop(client)
        self.variables.left(client)
        self._rendezvous.forget(time.monotonic() - 2 * config.distributed_timeout)

    def _reply(self, stream: Stream, header: dict, arrays: list[np.ndarray]) -> None:
        timeout = _number(header.get("timeout"))
        try:
            name = str(header.get("op"))
            operation = self._operations.get(name)
            if operation is None:
                raise DistributedError(
                    f"the operation {name!r} of a server",
                    f"it has {', '.join(self._operations)}",
                    "use the same version of hloom in all processes of the cluster",
                )
            header["timeout"] = timeout
            answer, results = operation(header, arrays)
        except Exception as error:  # the client gets whatever went wrong
            answer, results = error_header(error), ()
        stream.send(answer, results, timeout)

    def _attached(self, client: str) -> dict:
        with self._lock:
            self._clients.setdefault(client, _Client()).leases += 1
        devices = {kind.name: kind.count() for kind in device_kinds().values()}
        hardware = {k.name: [k.description(n) for n in range(k.count())] for k in device_kinds().values()}
        jobs = {job: {str(k): a for k, a in tasks.items()} for job, tasks in self.spec.jobs.items()}
        return {
            "task": str(self.task), "incarnation": self.incarnation, "devices": devices,
            "hardware": hardware, "version": VERSION, "jobs": jobs,
        }  # fmt: skip

    def _client(self, header: dict) -> _Client:
        found = self._clients.get(str(header.get("client")))
        if found is None:
            raise DistributedError(
                f"a request to {self.task}",
                "it does not know this client: the server was restarted, or the client left",
                "connect again: hl.cluster.connect(...)",
            )
        return found

    # --- programs ---

    def _program(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        client, text = self._client(header), arrays[0].tobytes()
        handle = part_handle(text, header["channels"])
        if handle != header.get("handle"):
            raise DistributedError("a part of a program", "its text and its handle differ", "send it again")
        if handle not in client.programs:
            channels = {int(k): v for k, v in header["channels"].items()}
            client.programs[handle] = Part(read_part(text.decode("utf-8"))), channels
        return {"handle": handle}, ()

    def _run(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        client = self._client(header)
        for held in header.get("drop", ()):
            client.arrays.pop(held, None)
        found = client.programs.get(header.get("handle", ""))
        if found is None:
            return {"unknown": True}, ()
        part, channels = found
        run, self._runs = str(header["run"]), self._runs + 1
        arguments = [self._argument(client, feed, arrays) for feed in header["feeds"]]
        transport = _Transport(self, run, channels, header["timeout"])
        try:
            results = part.run(arguments, transport)
        except BaseException as error:
            self._rendezvous.end(run, _first_line(error))
            raise
        self._rendezvous.finish(run)
        entries: list[dict] = []
        sent: list[np.ndarray] = []
        for held, value in zip(header["keep"], results, strict=True):
            entry: dict[str, Any] = {}
            if held is not None:
                client.arrays[held] = value
            if held is None or value.nbytes <= INLINE_BYTES:
                entry["value"] = len(sent)
                sent.append(value)
            entries.append(entry)
        return {"results": entries}, sent

    def _argument(self, client: _Client, feed, arrays: list[np.ndarray]):
        if feed is None:
            return None
        if "held" in feed:
            return self._held(client, feed["held"])
        return arrays[feed["value"]]

    def _update(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        client = self._client(header)
        return self._graphs.update(header, [self._argument(client, feed, arrays) for feed in header["given"]])

    def _held(self, client: _Client, held: int | str) -> np.ndarray:
        if isinstance(held, str):
            return self._graphs.shared.value(held)
        if held not in client.arrays:
            raise DistributedError(
                f"an array that {self.task} keeps for a client",
                "it is not there: the server was restarted since",
                "put it there again, or restore a checkpoint",
            )
        return client.arrays[held]

    def _send(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        channel = Channel(str(header["run"]), int(header["channel"]), str(self.task), int(header["step"]))
        self._rendezvous.put(channel, arrays[0], header["timeout"])
        return {}, ()

    def _receive(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        """The client, which does not listen, requests the values sent to it."""
        channel = Channel(str(header["run"]), int(header["channel"]), "", int(header["step"]))
        return {}, [self._rendezvous.take(channel, str(self.task), header["timeout"])]

    def _end(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        self._rendezvous.end(str(header["run"]), str(header.get("failure", "")))
        return {}, ()

    # --- arrays that a client keeps here ---

    def _put(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        client = self._client(header)
        client.arrays.update(zip(header["ids"], arrays, strict=True))
        return {}, ()

    def _get(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        client = self._client(header)
        return {}, [self._held(client, held) for held in header["ids"]]

    # --- status ---

    def status(self) -> dict:
        """The status of a task as shown by `hloom cluster status`."""
        with self._lock:
            clients = list(self._clients.values())
        return {
            "task": str(self.task), "address": self.address, "pid": os.getpid(), "host": socket.gethostname(),
            "incarnation": self.incarnation, "seconds": round(time.time() - self.started, 1), "runs": self._runs,
            "clients": len(clients), "programs": sum(len(c.programs) for c in clients),
            "bytes": sum(a.nbytes for c in clients for a in list(c.arrays.values())),
            "waits": self._rendezvous.waits() + self.variables.waits() + waits_for_tasks(), **self.variables.status(),
        }  # fmt: skip

    def _stop(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        threading.Timer(0.1, self.stop).start()  # after the answer
        return {}, ()


class _Transport:
    """How a part on this server sends and receives in one run."""

    def __init__(self, server: Server, run: str, channels: dict[int, dict], timeout: float):
        self._server, self._run, self._channels, self._timeout = server, run, channels, timeout

    def send(self, channel: int, step: int, value: np.ndarray) -> None:
        for receiver in self._channels[channel]["to"]:
            if not receiver:
                self._server._rendezvous.put(Channel(self._run, channel, "", step), value, self._timeout)
                continue
            peer = self._server._peers.attached(parse_task(receiver), self._timeout)
            peer.request({"op": "send", "run": self._run, "channel": channel, "step": step}, [value], self._timeout)

    def receive(self, channel: int, step: int) -> np.ndarray:
        sender = self._channels[channel]["from"] or "the client"
        return self._server._rendezvous.take(
            Channel(self._run, channel, str(self._server.task), step), sender, self._timeout
        )


def _number(value) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return config.distributed_timeout
    return min(max(found, 0.001), 1e6)


def _first_line(error: BaseException) -> str:
    return f"{error.asked}: {error.found}" if isinstance(error, HloomError) else f"{type(error).__name__}: {error}"


__all__ = ["Server"]
