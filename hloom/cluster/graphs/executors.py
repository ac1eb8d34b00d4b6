"""Sessions at a server: `hl.sessions.Session(server.target)` sends a pruned program as text, once, and then runs it.

All sessions at one server share its variables, by name. Operations placed on other tasks (`hl.device`) run there.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hloom.cluster.graphs.steps import Variables, home_task, load
from hloom.cluster.peers import Peer, Peers, remote_error, until_there
from hloom.cluster.spec import ClusterSpec, Task, Tls, parse_task
from hloom.cluster.wire import HANDSHAKE_SECONDS
from hloom.cluster.wire import connect as connect_to
from hloom.config import config
from hloom.errors import DistributedError
from hloom.platforms.processes import acting_as
from hloom.sessions.executor import LocalExecutor, register
from hloom.sessions.program import Program

Answer = tuple[dict, Sequence[np.ndarray]]


class GraphStore:
    """The server's side: one executor, and the programs loaded into it by handle."""

    def __init__(self, task: Task, link: Callable[[], Any]) -> None:
        """task: whose server it is. link: returns the connection to the other tasks."""
        self._task, self._link = task, link
        self.executor = LocalExecutor()
        self.shared = Variables(self.executor, str(task))
        self._steps: dict[str, Any] = {}
        self._lock = threading.Lock()

    def load(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        text = arrays[0].tobytes()
        names = header["fetches"], header["feeds"]
        handle = hashlib.sha256(repr(names).encode() + text).hexdigest()
        with self._lock:
            if handle not in self._steps:
                program = Program.from_text(text.decode("utf-8"))
                with config(soft_placement=bool(header.get("soft")) or config.soft_placement):
                    self._steps[handle] = load(self.executor, self.shared, program, *names, self._task, self._link)
        return {"handle": handle}, ()

    def run(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        step = self._steps.get(str(header["handle"]))
        if step is None:
            return {"unknown": True}, ()
        log = bool(header.get("log")) or config.log_device_placement
        soft = bool(header.get("soft")) or config.soft_placement
        with config(log_device_placement=log, soft_placement=soft), acting_as(str(self._task)):
            found = self.executor.run(step, arrays)
        entries: list[Any] = []
        sent: list[np.ndarray] = []
        for value in found:
            if value is None or isinstance(value, str):
                entries.append(value)
            else:
                entries.append(len(sent))
                sent.append(np.asarray(value))
        return {"results": entries}, sent

    def variables(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        found = {str(name): self.executor.snapshot(str(name)) for name in header["names"]}
        known = {name: value for name, value in found.items() if value is not None}
        return {"names": list(known)}, list(known.values())

    def assign(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        self.executor.assign(dict(zip(header["names"], arrays, strict=True)), {})
        return {}, ()

    def add_update(self, header: dict, arrays: list[np.ndarray]) -> Answer:
        return {"handle": self.shared.add(arrays[0].tobytes())}, ()

    def update(self, header: dict, given: Sequence[np.ndarray | None]) -> Answer:
        """Runs an update of variables of this task, at the request of another task's session."""
        handle = str(header["handle"])
        if not self.shared.knows(handle):
            return {"unknown": True}, ()
        reads = {int(k): str(name) for k, name in header["reads"].items()}
        stores = [(str(name), int(number)) for name, number in header["stores"]]
        return {}, self.shared.update(handle, given, reads, stores)[: int(header["wanted"])]


class ServerExecutor:
    """The client's side: an executor for `Session`."""

    def __init__(self, target: str, *, key: bytes | None = None, tls: Tls | None = None, timeout: float | None = None):
        """Raises DistributedError if no server with this key answers at the target."""
        spec, self._task = cluster_of(target, key=key, tls=tls, timeout=timeout)
        self._peers = Peers(spec)
        self._peer = self._peers.attached(self._task, timeout)

    def load(self, program: Program, fetches: Sequence[Any], feeds: Sequence[Any]) -> dict[str, Any]:
        targets = [program.find(fetch) for fetch in fetches]
        nodes = [program.find(feed, "feed") for feed in feeds]
        made = {
            "text": program.prune(targets, nodes).to_text(), "fetches": [t.name for t in targets],
            "feeds": [n.name for n in nodes], "handle": "",
        }  # fmt: skip
        self._send(made)
        return made

    def _send(self, made: dict[str, Any]) -> None:
        text = np.frombuffer(made["text"].encode(), np.uint8)
        names = {name: made[name] for name in ("fetches", "feeds")}
        header = {"op": "graph.load", **names, "soft": config.soft_placement}
        made["handle"] = self._peer.request(header, [text])[0]["handle"]

    def run(self, handle: dict[str, Any], values: Sequence[Any]) -> list:
        arrays = [np.asarray(value) for value in values]
        for _ in range(2):
            header = {
                "op": "graph.run", "handle": handle["handle"], "log": config.log_device_placement,
                "soft": config.soft_placement,
            }  # fmt: skip
            answer, found = self._peer.request(header, arrays)
            if "unknown" not in answer:
                return [found[entry] if isinstance(entry, int) else entry for entry in answer["results"]]
            self._send(handle)  # the server was restarted
        raise DistributedError(f"a run at {self._peer.task}", "the server forgot the program twice", "restart it")

    def variables(self, devices: Mapping[str, str]) -> dict[str, Any]:
        """From the tasks that have them, whatever server the session is at."""
        values: dict[str, Any] = {}
        for peer, names in self._by_task(devices):
            answer, found = peer.request({"op": "graph.variables", "names": names})
            values.update(zip(answer["names"], found, strict=True))
        return values

    def assign(self, values: Mapping[str, Any], devices: Mapping[str, str]) -> None:
        for peer, names in self._by_task(devices):
            arrays = [np.asarray(values[name]) for name in names]
            peer.request({"op": "graph.assign", "names": names}, arrays)

    def _by_task(self, devices: Mapping[str, str]) -> list[tuple[Peer, list[str]]]:
        found: dict[Task, list[str]] = {}
        for name, device in devices.items():
            found.setdefault(home_task(device, self._task), []).append(name)
        return list(zip(self._peers.all_attached(found), found.values(), strict=True))

    def close(self) -> None:
        self._peers.close()


def cluster_of(target: str, *, key: bytes | None = None, tls: Tls | None = None, timeout: float | None = None):
    """The ClusterSpec and the task of the server at `hloom://host:port`, which is waited for. Raises
    DistributedError."""
    lone = ClusterSpec({"unknown": [target.removeprefix("hloom://")]}, key=key, tls=tls)
    address, seconds = lone.address(lone.tasks[0]), config.distributed_timeout if timeout is None else timeout
    stream = until_there(lambda: connect_to(address, lone.key, lone.tls, target), f"a server at {address}", seconds)
    try:
        stream.send({"op": "attach", "client": ""}, timeout=HANDSHAKE_SECONDS)
        answer, _ = stream.receive(HANDSHAKE_SECONDS)
    finally:
        stream.close()
    if "error" in answer:
        raise remote_error(answer, target)
    jobs = {job: {int(k): a for k, a in tasks.items()} for job, tasks in answer["jobs"].items()}
    return ClusterSpec(jobs, key=lone.key, tls=lone.tls), parse_task(answer["task"])


register("hloom", ServerExecutor)

__all__ = ["GraphStore", "ServerExecutor", "cluster_of"]
