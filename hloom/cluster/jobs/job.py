"""The description of a job, which its supervisor reads from the file `job.json` in its folder."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hloom.cluster.spec import KEY_BYTES, TaskFile, free_addresses, write_task
from hloom.errors import ArgumentError, DistributedError
from hloom.ir.process.files import write_whole
from hloom.ir.records import asdict, field, record

FILE = "job.json"


@record
class Job:
    """A program and how it is run.

    command: the script and its arguments, after '-m' a module. workers, devices: processes, and CPU devices of each.
    ps: parameter servers. backup, elastic: as of `hl.cluster.fit`. asynchronous: workers of parameter servers are
    started again one by one, not all together. restarts: how many are allowed. hang: seconds without a step after which
    a worker counts as hung; 0: never. platform: 'local' or 'ray'. hosts: of Ray, the nodes to use; 0: as it likes.
    """

    folder: str
    command: list[str]
    workers: int = 2
    devices: int = 1
    ps: int = 0
    backup: int = 0
    elastic: bool = False
    asynchronous: bool = False
    restarts: int = 10
    hang: float = 300.0
    platform: str = "local"
    address: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    key: str = field(default_factory=lambda: secrets.token_bytes(KEY_BYTES).hex())

    def check(self) -> None:
        """Raises ArgumentError."""
        for name, least in (("workers", 1), ("devices", 1), ("ps", 0), ("backup", 0), ("restarts", 0), ("hang", 0)):
            if getattr(self, name) < least:
                raise ArgumentError(f"--{name} of a job", str(getattr(self, name)), f"pass at least {least}")
        if self.backup >= self.workers:
            raise ArgumentError(
                f"--backup {self.backup} of {self.workers} workers", "no worker would count", "use more workers"
            )
        if (self.backup or self.asynchronous) and not self.ps:
            raise ArgumentError(
                "--async" if self.asynchronous else f"--backup {self.backup}",
                "the job has no parameter servers", "add --ps 1",
            )  # fmt: skip
        if not self.command or self.command == ["-m"]:
            raise ArgumentError("the program of a job", "none", "hloom cluster submit train.py")
        script = Path(self.command[0])
        if self.command[0] != "-m" and not script.is_file():
            raise ArgumentError(f"the program {script}", "there is no such file", "check the path")

    def save(self) -> None:
        """Readable for its owner only, as it has the key."""
        path = Path(self.folder) / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(asdict(self), indent=1).encode(), 0o600)

    def options(self) -> dict[str, Any]:
        return {"backup": self.backup, "elastic": self.elastic}

    def write_tasks(self, workers: int, attempt: int, hosts: Sequence[str] = ()) -> None:
        """The files that identify the processes of an attempt: `tasks/worker-0.json` and so on."""
        folder = Path(self.folder) / "tasks"
        folder.mkdir(parents=True, exist_ok=True)
        addresses = free_addresses(workers + self.ps)
        if hosts:
            addresses = [
                f"{hosts[k % len(hosts)]}:{a.rpartition(':')[2]}" for k, a in enumerate(addresses)
            ]  # the ports are looked for here, and mostly free there as well
        jobs = {"worker": dict(enumerate(addresses[:workers]))}
        if self.ps:
            jobs["ps"] = dict(enumerate(addresses[workers:]))
        for job, tasks in jobs.items():
            for index in tasks:
                told = TaskFile(jobs, job, index, self.key, self.folder, attempt, self.options())
                write_task(folder / f"{job}-{index}.json", told)

    def variables(self) -> dict[str, str]:
        """The environment of its processes: threads are shared out among those of one machine."""
        cores = len(os.sched_getaffinity(0))
        threads = str(max(cores // self.workers, 1))
        return {
            "HLOOM_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
            "HLOOM_NUM_CPU_DEVICES": str(self.devices), **self.environment,
        }  # fmt: skip


def load_job(folder: str | os.PathLike) -> Job:
    """The job of a folder. Raises DistributedError."""
    path = Path(folder) / FILE
    try:
        return Job(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise DistributedError(
            f"the job in {folder}", f"there is no {FILE}", "name the folder of a submitted job (--folder)"
        ) from error
    except (OSError, ValueError, TypeError) as error:
        raise DistributedError(f"the job in {folder}", str(error), "submit it again") from error


__all__ = ["Job", "load_job"]
