"""The other tasks of a cluster as one process sees them: connections, requests, and waits that say what for."""

from __future__ import annotations

import itertools
import secrets
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from hloom import errors
from hloom.cluster.spec import ClusterSpec, Task
from hloom.cluster.wire import HANDSHAKE_SECONDS, PeerLost, Stream, connect
from hloom.config import config
from hloom.errors import DistributedError, HloomError

PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # seconds between tries to reach a task that is not there
T = TypeVar("T")
_SLACK = 10.0  # seconds that a client waits beyond what it told the server


def say(line: str) -> None:
    print(f"hloom: {line}", file=sys.stderr, flush=True)


def until_there(reach: Callable[[], T], what: str, timeout: float) -> T:
    """What `reach` returns, once it raises no PeerLost. Each try is reported. Raises the last PeerLost after `timeout`
    seconds."""
    started = time.monotonic()
    for tries in itertools.count(1):
        try:
            return reach()
        except PeerLost as error:
            left = started + timeout - time.monotonic()
            if left <= 0:
                raise
            say(f"waiting for {what}: try {tries}, {error.found}")
            time.sleep(min(PAUSES[min(tries, len(PAUSES)) - 1], max(left, 0.01)))
    raise AssertionError("count() does not end")


class Peer:
    """One task. Requests of several threads use a connection each, which are kept for further ones."""

    def __init__(self, spec: ClusterSpec, task: Task, client: str):
        self.task, self.address, self._client = task, spec.address(task), client
        self._key, self._tls = spec.key, spec.tls
        self._idle: list[Stream] = []
        self._lock, self.attaching = threading.Lock(), threading.Lock()
        self._lease: Stream | None = None
        self.incarnation = ""  # of the server's process, once it was reached
        self.devices: dict[str, int] = {}
        self.hardware: dict[str, list[str]] = {}  # of each kind, its devices' models

    def request(
        self, header: dict, arrays: Sequence[np.ndarray] = (), timeout: float | None = None
    ) -> tuple[dict, list[np.ndarray]]:
        """The answer of the task. timeout: seconds that the task may take; None: `hl.config.distributed_timeout`.

        Raises PeerLost, Timeout, and what the task raised.
        """
        seconds = config.distributed_timeout if timeout is None else timeout
        stream = self._checked_out()
        try:
            stream.send({**header, "timeout": seconds, "client": self._client}, arrays, seconds + _SLACK)
            answer, found = stream.receive(seconds + _SLACK)
        except PeerLost:
            stream.close()
            self.detach()  # the other connections are as old: who asks again looks for the task anew
            raise
        except BaseException:
            stream.close()
            raise
        with self._lock:
            self._idle.append(stream)
        if "error" in answer:
            raise remote_error(answer, str(self.task))
        return answer, found

    def _checked_out(self) -> Stream:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._connected()

    def _connected(self) -> Stream:
        return connect(self.address, self._key, self._tls, str(self.task))

    def _leased(self, timeout: float) -> tuple[Stream, dict]:
        lease = connect(self.address, self._key, self._tls, str(self.task), timeout)
        try:
            lease.send({"op": "attach", "client": self._client}, timeout=HANDSHAKE_SECONDS)
            return lease, lease.receive(HANDSHAKE_SECONDS)[0]
        except BaseException:
            lease.close()
            raise

    def attach(self, timeout: float | None = None) -> None:
        """Waits until the task is there, and says so at each try. What this process holds there is freed when this
        process ends. Raises PeerLost, DistributedError."""
        seconds = config.distributed_timeout if timeout is None else timeout
        lease, answer = until_there(
            lambda: self._leased(min(HANDSHAKE_SECONDS, seconds)), f"{self.task} at {self.address}", seconds
        )
        if "error" in answer:
            lease.close()
            raise remote_error(answer, str(self.task))
        if answer["task"] != str(self.task):
            lease.close()
            raise DistributedError(
                f"{self.task} at {self.address}", f"that server is {answer['task']}", "check the ClusterSpec"
            )
        if self._lease is not None:
            self._lease.close()
        self._lease, self.incarnation, self.devices = lease, answer["incarnation"], answer["devices"]
        self.hardware = answer.get("hardware", {})

    @property
    def attached(self) -> bool:
        return self._lease is not None

    def detach(self) -> None:
        """Closes all connections; the next request makes new ones."""
        with self._lock:
            idle, self._idle = self._idle, []
            lease, self._lease = self._lease, None
        for stream in [*idle, *([lease] if lease is not None else [])]:
            stream.close()


class Peers:
    """All tasks of a cluster. own: the task of this process, where it is one."""

    def __init__(self, spec: ClusterSpec, own: str = ""):
        self.spec, self.own = spec, own
        self.client = f"{own}#{secrets.token_hex(8)}"
        self._peers = {task: Peer(spec, task, self.client) for task in spec.tasks}

    def __getitem__(self, task: Task) -> Peer:
        found = self._peers.get(task)
        if found is None:
            self.spec.address(task)  # raises, with the tasks that there are
            raise KeyError(task)
        return found

    def attached(self, task: Task, timeout: float | None = None) -> Peer:
        """A task that was reached at least once."""
        peer = self[task]
        if not peer.attached:
            with peer.attaching:  # threads that ask at the same time share what the first one gets
                if not peer.attached:
                    peer.attach(timeout)
        return peer

    def close(self) -> None:
        for peer in self._peers.values():
            peer.detach()


def remote_error(answer: dict, who: str) -> HloomError:
    """What another process raised, as an error here."""
    kind = getattr(errors, str(answer["error"]), DistributedError)
    if not (isinstance(kind, type) and issubclass(kind, HloomError)):
        kind = DistributedError
    asked, found, repair = (str(answer.get(name, "")) for name in ("asked", "found", "repair"))
    made = kind(asked or f"a request to {who}", f"{found} (on {who})", repair)
    if answer.get("where"):
        made.source = str(answer["where"])
    return made


__all__ = ["Peer", "Peers", "remote_error", "say", "until_there"]
