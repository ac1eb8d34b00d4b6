"""Which tasks a cluster has, where they listen, and the key that lets programs in."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hloom.config import SETTINGS, config
from hloom.errors import ArgumentError, DistributedError, MissingFileError, file_error
from hloom.ir.records import field, record
from hloom.platforms.names import parse_device_name

KEY_BYTES = 32
_JOB = re.compile(r"\w+")


@record(frozen=True)
class Tls:
    """Certificates in PEM files. certificate, private_key: of the servers. authority: the certificate authority of
    accepted certificates. The names in a certificate have to be the hosts of the ClusterSpec."""

    certificate: str
    private_key: str
    authority: str


@record(frozen=True)
class Task:
    """A task of a cluster by its job and number."""

    job: str
    index: int

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.index}"


def parse_task(text: str) -> Task:
    """The task of a name such as `/job:worker/task:1` or of a device of it. Raises DeviceError."""
    name = parse_device_name(text)
    return Task(name.job or "", name.task or 0)


class ClusterSpec:
    """The tasks of a cluster: for each job a list of addresses `host:port`, or a mapping from task indices to
    addresses.

        hl.cluster.ClusterSpec({"worker": ["a:2222", "b:2222"], "ps": ["c:2222"]})

    key: the secret that servers and clients share, at least 16 bytes. By default it is read from the file
    `hl.config.cluster_key_file` (`make_key` makes it). tls: certificates, where connections are to be encrypted. Raises
    ArgumentError for malformed jobs.
    """

    def __init__(
        self,
        jobs: Mapping[str, Sequence[str] | Mapping[int, str]] | ClusterSpec,
        *,
        key: bytes | None = None,
        tls: Tls | None = None,
    ):
        given: Any = jobs
        if isinstance(given, ClusterSpec):
            key, tls, given = key or given.key, tls or given.tls, given.jobs
        self.jobs: dict[str, dict[int, str]] = _checked(given)
        self.tls: Tls | None = tls
        if key is not None and (not isinstance(key, bytes) or len(key) < 16):
            found = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
            raise ArgumentError("key= of a cluster is at least 16 bytes", found, "pass secrets.token_bytes(32)")
        self._key = key

    @property
    def key(self) -> bytes:
        """The secret of the cluster. Raises FileError, DistributedError."""
        if self._key is None:
            path = config.cluster_key_file
            self._key = key_of_file(path, make=path == SETTINGS["cluster_key_file"].default)
        return self._key

    @property
    def tasks(self) -> list[Task]:
        return [Task(job, index) for job, addresses in self.jobs.items() for index in addresses]

    def num_tasks(self, job: str) -> int:
        """Raises DistributedError for a job that the cluster does not have."""
        return len(self._job(job))

    def address(self, task: Task) -> str:
        """`host:port` of a task. Raises DistributedError for one that the cluster does not have."""
        addresses = self._job(task.job)
        if task.index not in addresses:
            raise DistributedError(
                f"{task}", f"job {task.job!r} has the tasks {', '.join(map(str, addresses))}", "name one of these"
            )
        return addresses[task.index]

    def _job(self, job: str) -> Mapping[int, str]:
        if job not in self.jobs:
            nearest = difflib.get_close_matches(job, list(self.jobs), 1, 0.0)
            raise DistributedError(
                f"job {job!r} of a cluster",
                f"it has {', '.join(map(repr, self.jobs))}",
                f"did you mean {nearest[0]!r}?",
            )
        return self.jobs[job]

    def as_dict(self) -> dict[str, dict[int, str]]:
        """The addresses by job and number of task."""
        return {job: dict(addresses) for job, addresses in self.jobs.items()}

    def __eq__(self, other) -> bool:
        return isinstance(other, ClusterSpec) and self.jobs == other.jobs

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"ClusterSpec({json.dumps({job: list(found.values()) for job, found in self.jobs.items()})})"


def _checked(jobs: Any) -> dict[str, dict[int, str]]:
    if not isinstance(jobs, Mapping) or not jobs:
        raise ArgumentError(
            "a ClusterSpec takes a mapping of jobs to addresses",
            f"{jobs!r:.80}",
            'pass {"worker": ["localhost:2222", "localhost:2223"]}',
        )
    found: dict[str, dict[int, str]] = {}
    seen: dict[str, str] = {}
    for job, given in jobs.items():
        if not isinstance(job, str) or not _JOB.fullmatch(job):
            raise ArgumentError("names of jobs", repr(job), "use letters, digits and _")
        if isinstance(given, str):
            given = [given]
        addresses = dict(given) if isinstance(given, Mapping) else dict(enumerate(given))
        if not addresses:
            raise ArgumentError(f"job {job!r} of a cluster", "it has no tasks", "give it an address or leave it out")
        found[job] = {}
        for index, address in sorted((int(k), v) for k, v in addresses.items()):
            split_address(address)
            if address in seen:
                raise ArgumentError(
                    f"address {address} of /job:{job}/task:{index}",
                    f"it is that of {seen[address]} too",
                    "give each task a different port",
                )
            seen[address] = f"/job:{job}/task:{index}"
            found[job][index] = address
    return found


def split_address(address: str) -> tuple[str, int]:
    """host and port. Raises ArgumentError."""
    host, _, port = str(address).removeprefix("hloom://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ArgumentError("an address of a cluster", repr(address), "write host:port, such as 'localhost:2222'")
    return host.strip("[]"), int(port)


def make_key(path: str | os.PathLike) -> Path:
    """Makes a file with a new key for clusters, which only its owner may read; an existing one is kept.

    For `hl.config.cluster_key_file`, on one host; the others get copies of it. Raises FileError, DistributedError for a
    file that holds no key, or that others may read.
    """
    key_of_file(path, make=True)
    return Path(path).expanduser()


def key_of_file(path: str | os.PathLike, make: bool = False) -> bytes:
    """The key in a file. make: a missing file is created. Raises MissingFileError, FileError, DistributedError if
    others may read it."""
    file = Path(path).expanduser()
    try:
        if not file.exists():
            if not make:
                raise MissingFileError(
                    f"the key of clusters in {file}, which hl.config.cluster_key_file (HLOOM_CLUSTER_KEY_FILE) names",
                    "there is no such file",
                    f"copy it from the cluster's other hosts; for a new cluster make one: hloom cluster key {file}",
                )
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write_key(file)
        if file.stat().st_mode & 0o077:
            raise DistributedError(
                f"the key of clusters in {file}", "other users may read it", f"chmod 600 {file}, or make a new key"
            )
        key = bytes.fromhex(file.read_text(encoding="ascii").strip())
    except (ValueError, UnicodeDecodeError):
        key = b""
    except MissingFileError:
        raise
    except OSError as error:
        raise file_error("the key of clusters", error) from error
    if len(key) < 16:
        raise DistributedError(
            f"the key of clusters in {file}", "it is not a hexadecimal text of at least 16 bytes", "delete the file"
        )
    return key


def _write_key(file: Path) -> None:
    """Complete or not at all; the first of several processes that do so at a time wins."""
    made = file.with_name(f"{file.name}.{os.getpid()}-{threading.get_ident()}")
    made.touch(mode=0o600)
    made.write_text(secrets.token_bytes(KEY_BYTES).hex() + "\n", encoding="ascii")
    with contextlib.suppress(FileExistsError):
        os.link(made, file)
    made.unlink()


def free_addresses(count: int, host: str = "127.0.0.1") -> list[str]:
    """Free addresses of this machine, for clusters of one machine."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((host, 0))
        return [f"{host}:{one.getsockname()[1]}" for one in sockets]
    finally:
        for one in sockets:
            one.close()


@record(frozen=True)
class TaskFile:
    """The configuration passed to a process of a submitted job: its cluster, its task, the job's folder, and where in
    it a ps keeps its variables. backup, elastic: the options of `hloom cluster submit`."""

    jobs: dict
    job: str
    index: int
    key: str
    folder: str
    attempt: int = 0
    options: dict = field(default_factory=dict)

    def spec(self) -> ClusterSpec:
        return ClusterSpec(self.jobs, key=bytes.fromhex(self.key))


def own_task() -> TaskFile | None:
    """The configuration of this process (`hl.config.cluster_task`); None if it was not submitted. Raises
    DistributedError."""
    path = config.cluster_task
    if not path:
        return None
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        jobs = {job: {int(k): v for k, v in tasks.items()} for job, tasks in found.pop("jobs").items()}
        return TaskFile(jobs, **found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DistributedError(
            f"the task that HLOOM_CLUSTER_TASK={path} describes", str(error), "start it with: hloom cluster submit"
        ) from error


def write_task(path: str | os.PathLike, task: TaskFile) -> None:
    """Readable for its owner only, as it holds the key."""
    file = Path(path)
    file.touch(mode=0o600)
    names = ("jobs", "job", "index", "key", "folder", "attempt", "options")
    file.write_text(json.dumps({name: getattr(task, name) for name in names}), encoding="utf-8")


__all__ = ["ClusterSpec", "Task", "TaskFile", "Tls", "free_addresses", "key_of_file", "own_task", "parse_task"]
