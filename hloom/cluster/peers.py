"""The other tasks of a cluster as one process sees them: connections, requests, and waits that report their reason."""

from __future__ import annotations

import itertools
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from hloom import errors
from hloom.cluster.spec import ClusterSpec, Task
from hloom.cluster.wire import HANDSHAKE_SECONDS, PeerLost, Stream, connect
from hloom.config import config
from hloom.errors import DistributedError, HloomError
from hloom.ir.process import forking

PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # seconds between tries to reach a task that is not there
T = TypeVar("T")
_SLACK = 10.0  # seconds that a client waits beyond the timeout it sent to the server


def say(line: str) -> None:
    print(f"hloom: {line}", file=sys.stderr, flush=True)


AGAIN = 30.0  # seconds between two lines about the same wait


class _Waits:
    """The waits of this process's threads: tasks waited for at the same time are reported in one line."""

    def __init__(self) -> None:
        self._lock = forking.lock()
        self._waits: dict[int, list] = {}  # by id: [what, why, began, until, when it was last reported]
        self._numbers = itertools.count()

    def begin(self, what: str, until: float) -> int:
        """Registers a wait. what: a task and its address. until: when it ends, as time.time()."""
        with self._lock:
            self._waits[number := next(self._numbers)] = [what, "", time.time(), until, 0.0]
        return number

    def failed(self, number: int, why: str) -> None:
        with self._lock:
            self._waits[number][1] = why

    def end(self, number: int) -> None:
        with self._lock:
            del self._waits[number]

    def tell(self, number: int) -> None:
        """Reports the waits, unless that was done recently."""
        now = time.time()
        with self._lock:
            if now - self._waits[number][-1] < AGAIN:
                return
            again = "still " if self._waits[number][-1] else ""
            new = [wait for wait in self._waits.values() if wait[1] and now - wait[-1] >= AGAIN]
            for wait in new:
                wait[-1] = now
        targets = dict.fromkeys(f"{what} ({why})" for what, why, *_ in new)
        end = time.strftime("%H:%M:%S", time.localtime(max(wait[3] for wait in new)))
        say(f"{again}waiting for {', '.join(targets)} until {end}")

    def list(self) -> list[dict]:
        """The current waits: [{"for": "/job:ps/task:0 at c:2222", "seconds": 2.5}]."""
        now = time.time()
        with self._lock:
            waits = [wait for wait in self._waits.values() if wait[1]]
        return [{"for": what, "seconds": round(now - began, 3)} for what, _, began, *_ in waits]


_waits = _Waits()


def until_there(reach: Callable[[], T], what: str, timeout: float) -> T:
    """Retries `reach` until it raises no PeerLost, and returns its result. After the first try one line reports the
    wait and its deadline, repeated every half minute. Raises the last PeerLost after `timeout` seconds."""
    ends = time.monotonic() + timeout
    number = _waits.begin(what, time.time() + timeout)
    try:
        for tries in itertools.count(1):
            try:
                return reach()
            except PeerLost as error:
                left = ends - time.monotonic()
                if left <= 0:
                    raise
                _waits.failed(number, error.found)
            time.sleep(min(PAUSES[min(tries, len(PAUSES)) - 1], max(left, 0.01)))
            if ends > time.monotonic():
                _waits.tell(number)
    finally:
        _waits.end(number)
    raise AssertionError("count() does not end")


def waits_for_tasks() -> list[dict]:
    """The tasks that are not there, and that this process waits for at the moment."""
    return _waits.list()


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

        Raises PeerLost, Timeout, and the task's error.
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
        """Waits until the task is up, and reports it. Objects that this process holds there are freed when it ends.
        Raises PeerLost, DistributedError."""
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
            with peer.attaching:  # threads that ask at the same time share the first one's result
                if not peer.attached:
                    peer.attach(timeout)
        return peer

    def all_attached(self, tasks: Iterable[Task], timeout: float | None = None) -> list[Peer]:
        """Tasks that were each reached at least once. Those that are not there are waited for at the same time, so that
        one line names them all. Raises PeerLost, DistributedError."""
        found = [self[task] for task in tasks]
        away = [peer.task for peer in found if not peer.attached]
        if len(away) > 1:
            with ThreadPoolExecutor(len(away), thread_name_prefix="hloom cluster") as pool:
                for reached in [pool.submit(self.attached, task, timeout) for task in away]:
                    reached.result()
        elif away:
            self.attached(away[0], timeout)
        return found

    def close(self) -> None:
        for peer in self._peers.values():
            peer.detach()


def remote_error(answer: dict, who: str) -> HloomError:
    """An error of another process, as an error here."""
    kind = getattr(errors, str(answer["error"]), DistributedError)
    if not (isinstance(kind, type) and issubclass(kind, HloomError)):
        kind = DistributedError
    asked, found, repair = (str(answer.get(name, "")) for name in ("asked", "found", "repair"))
    made = kind(asked or f"a request to {who}", f"{found} (on {who})", repair)
    if answer.get("where"):
        made.source = str(answer["where"])
    return made


__all__ = ["Peer", "Peers", "remote_error", "say", "until_there", "waits_for_tasks"]
