"""Watches over a job: starts its processes, and starts them again from the last checkpoint when one fails or hangs.

    python -m hloom.cluster.jobs.supervisor FOLDER

Without parameter servers the workers are one gang of MPI, which ends as a whole when one process ends. With them,
synchronous jobs are restarted as a whole too; of asynchronous ones only the process that has ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from hloom.cluster.jobs.hosts import Host, HostLost, LocalHost
from hloom.cluster.jobs.job import Job, load_job
from hloom.cluster.jobs.task import UNSAVED
from hloom.cluster.report import read_reports, write_report
from hloom.distributed.launcher import mpiexec
from hloom.distributed.parents import die_with_parent
from hloom.errors import DistributedError

LOOK = 0.05  # seconds between checks of the processes
GRACE = 10.0  # seconds that processes have to save and leave
PAUSE = 0.2  # seconds before a restart
HOPELESS = 3  # attempts in a row that end by an error of the program before its first step
FIRST_STEP = 60.0  # seconds; an attempt that takes longer may have done work that it does not report
_KILLING = {
    signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM
}  # fmt: skip


class Gang:
    """mpiexec with `-launcher manual`: it prints the command for each host, and the hosts' agents run it."""

    def __init__(self, command: Sequence[str], workers: int, hosts: Sequence[str], variables: dict[str, str]):
        """hosts: names of the hosts of the processes. Raises DistributedError."""
        places = ["-hosts", ",".join(hosts), "-ppn", str(-(-workers // len(hosts)))] if hosts else []
        self.process = subprocess.Popen(
            [
                mpiexec(), "-launcher", "manual", "-prepend-rank", *places,
                *(["-localhost", "127.0.0.1"] if not hosts else []), "-n", str(workers), *command,
            ],
            env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
        self.proxies: list[list[str]] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("HYDRA_LAUNCH_END"):
                return
            if line.startswith("HYDRA_LAUNCH:"):
                self.proxies.append(line.removeprefix("HYDRA_LAUNCH:").split())
        raise DistributedError(
            "a gang of MPI processes", f"mpiexec ended with status {self.process.wait()}", "check the MPI installation"
        )


class Supervisor:
    """One job. say: takes the lines of its log."""

    def __init__(self, job: Job, hosts: Sequence[Host], names: Sequence[str] = (), say: Callable[[str], None] = print):
        """names: of the hosts, for MPI; none for this machine alone."""
        self.job, self.hosts, self.names, self._say = job, list(hosts), list(names), say
        self.workers, self.attempt, self.restarts = job.workers, 0, 0
        self.problem = ""
        self._unsaved = ""  # a server that has ended without its variables on the disk
        self._stop = False
        self._places: dict[str, Host] = {}
        self._lost = False  # whether the last attempt ended with its host's agent
        self._hopeless = 0  # attempts in a row without a step

    def stop(self, *_) -> None:
        """Lets the processes save and leave. A signal's handler."""
        self._stop = True

    def run(self) -> int:
        """The exit status: 0, that of the last failure, or 143 after `stop`."""
        self._report("starting")
        while True:
            started = time.time()
            status = self._attempt(started)
            if status == 0 and self._unsaved and not self._stop:
                self.problem = f"{self._unsaved} could not save its variables: the results of the workers are complete"
                self._say(f"hloom cluster: {self.problem}; its own error is above")
                self._report("failed")
                return 1
            if status == 0 or self._stop:
                self._report("ended" if status == 0 else "stopped")
                return status if not self._stop or status == 0 else 143
            self._hopeless = self._hopeless + 1 if self._without_a_step(status, started) else 0
            if self._hopeless == HOPELESS:
                self._say(
                    f"hloom cluster: {self.problem}, {HOPELESS} times before its first step: it is not started again"
                )
                self._report("failed")
                return status
            self.restarts += 1
            if self.restarts > self.job.restarts:
                self._say(f"hloom cluster: {self.problem}; no restarts are left")
                self._report("failed")
                return status
            if ("worker" in self.problem or self._lost) and self._may_shrink():
                self.workers -= 1
            self.attempt += 1
            self._say(
                f"hloom cluster: {self.problem}; restart {self.restarts} of {self.job.restarts} with "
                f"{self.workers} workers, from the last checkpoint"
            )
            self._report("restarting")
            time.sleep(PAUSE)

    def _without_a_step(self, status: int, started: float) -> bool:
        """Whether an attempt ended by an error of the program, without evidence that it completed a step."""
        steps = [r.get("step", 0) for r in read_reports(self.job.folder) if r["name"].startswith("worker")]
        return status in (1, 2) and not self._lost and not any(steps) and time.time() - started < FIRST_STEP

    def _may_shrink(self) -> bool:
        """Whether the job may continue with one worker fewer."""
        return self.job.elastic and self.workers > self.job.backup + 1

    def _report(self, state: str) -> None:
        write_report(
            self.job.folder, "supervisor",
            {
                "state": state, "attempt": self.attempt, "restarts": self.restarts, "workers": self.workers,
                "ps": self.job.ps, "problem": self.problem, "platform": self.job.platform,
            },
        )  # fmt: skip

    # --- one attempt ---

    def _attempt(self, started: float) -> int:
        self.problem, self._unsaved, self._lost = "", "", False
        with contextlib.suppress(FileNotFoundError):
            for path in (Path(self.job.folder) / "status").glob("worker-*.json"):
                path.unlink()
        self.job.write_tasks(self.workers, self.attempt, self.names)
        gang: Gang | None = None
        try:
            if self.job.ps:
                self._start_tasks()
            else:
                gang = self._start_gang()
            self._report("running")
            return self._watch(gang, started)
        except HostLost as error:
            self._lost = True
            self.problem = f"the agent of a host was lost ({error})"
            return 1
        finally:
            self._end(gang)

    def _command(self, job: str, index: str) -> list[str]:
        program = [sys.executable, "-m", "hloom.cluster.jobs.task", self.job.folder, job, index]
        return program if job == "ps" else [*program, *self.job.command]

    def _start_gang(self) -> Gang:
        variables = self.job.variables()
        gang = Gang(self._command("worker", "-"), self.workers, self.names, variables)
        for number, proxy in enumerate(gang.proxies):
            host = self.hosts[number % len(self.hosts)]
            host.start(f"agent-{number}", proxy, variables)
            self._places[f"agent-{number}"] = host
        assert gang.process.stdout is not None
        os.set_blocking(gang.process.stdout.fileno(), False)
        return gang

    def _start_tasks(self) -> None:
        for job, count in (("ps", self.job.ps), ("worker", self.workers)):
            for index in range(count):
                self._start_task(job, index)

    def _start_task(self, job: str, index: int) -> None:
        name, host = f"{job}-{index}", self.hosts[index % len(self.hosts)]
        host.start(name, self._command(job, str(index)), self.job.variables())
        self._places[name] = host

    def _watch(self, gang: Gang | None, started: float) -> int:
        """Until the job has ended, or a process of it."""
        told, ended = 0.0, set[str]()
        while True:
            self._show(gang)
            if self._stop and not told:
                told = time.monotonic()
                self._signal(gang, signal.SIGTERM)
            if told and time.monotonic() - told > GRACE:
                return 143
            if (hung := self._hung(started)) and not told:
                self.problem = hung
                return 1
            if gang is not None:
                status = gang.process.poll()
                if status is not None:
                    self._show(gang)
                    return self._gang_ended(status)
            else:
                found = self._look(ended)
                if found is not None:
                    return found
            time.sleep(LOOK)

    def _gang_ended(self, status: int) -> int:
        if status == 0:
            return 0
        # mpiexec passes on the number of a signal as a status; 1 and 2 are those of Python programs.
        killed = f"signal {status}" if status in _KILLING else f"status {status}"
        self.problem = f"a worker ended with {killed}"
        return status if status > 0 else 128 - status

    def _look(self, ended: set[str]) -> int | None:
        """The status of a job with parameter servers that has ended; None while it runs."""
        for host in self.hosts:
            for name, status in host.poll().items():
                if status is None or name in ended:
                    continue
                if status == 0 and name.startswith("worker"):
                    ended.add(name)
                    if sum(n.startswith("worker") for n in ended) >= self._needed():
                        return 0
                    continue
                self.problem = f"{name.replace('-', ' ')} ended with " + (
                    f"signal {-status}" if status < 0 else f"status {status}"
                )
                if self._stop:
                    ended.add(name)
                    continue
                if not self.job.asynchronous or self.restarts >= self.job.restarts:
                    return status if status > 0 else 128 - status
                self._again(name, ended)
        return None

    def _needed(self) -> int:
        """How many workers have to finish: backup workers may be late."""
        return self.workers

    def _again(self, name: str, ended: set[str]) -> None:
        """Starts one process of an asynchronous job again; of an elastic one, a worker is not missed."""
        job, _, index = name.partition("-")
        host = self._places[name]
        if isinstance(host, LocalHost):
            host.forget(name)
        if job == "worker" and self.job.elastic and self.workers - len(ended) > 1:
            ended.add(name)
            self._say(f"hloom cluster: {self.problem}; the job continues without it")
            return
        self.restarts += 1
        self._say(
            f"hloom cluster: {self.problem}; restart {self.restarts} of {self.job.restarts}, of this process only"
        )
        self._report("running")
        self._start_task(job, int(index))

    def _hung(self, started: float) -> str:
        """The worker that has not completed a step for too long; '' if all make progress, or none reports."""
        if not self.job.hang:
            return ""
        now = time.time()
        reports = [
            r for r in read_reports(self.job.folder)
            if r["name"].startswith("worker") and r.get("state") == "running" and r.get("time", 0) >= started
        ]  # fmt: skip
        late = [r for r in reports if now - max(r["time"], started) > self.job.hang]
        if not late or (self.job.ps == 0 and len(late) < len(reports)):
            return ""
        # In synchronous training all are stalled: report the one that waits least for others.
        slowest = min(late, key=lambda r: (r.get("step", 0), r.get("peer_wait") or 0))
        seconds = now - slowest["time"]
        return f"{slowest['name'].replace('-', ' ')} hangs: no step for {seconds:.0f} s"

    # --- the processes ---

    def _show(self, gang: Gang | None) -> None:
        if gang is not None and gang.process.stdout is not None:
            with contextlib.suppress(BlockingIOError, TypeError):
                for line in iter(gang.process.stdout.readline, ""):
                    self._say(line.rstrip("\n"))
        for host in self.hosts:
            for name, line in host.lines():
                self._say(f"[{name}] {line}")

    def _signal(self, gang: Gang | None, number: int) -> None:
        if gang is not None:
            for report in read_reports(self.job.folder):
                if report["name"].startswith("worker"):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(int(report["pid"]), number)
            return
        for name, host in self._places.items():
            with contextlib.suppress(HostLost):
                if name.startswith("worker"):
                    host.kill(name, number)

    def _end(self, gang: Gang | None) -> None:
        """Ends the remains of an attempt, so that they cannot interfere with the next one."""
        if gang is not None:
            if gang.process.poll() is None:
                gang.process.kill()
            gang.process.wait()
            if gang.process.stdout is not None:
                gang.process.stdout.close()
        if self.job.ps:  # servers save their variables when they are told to end
            deadline = time.monotonic() + GRACE
            for name, host in self._places.items():
                with contextlib.suppress(HostLost):
                    host.kill(name, signal.SIGTERM if name.startswith("ps") and not self.problem else signal.SIGKILL)
            while time.monotonic() < deadline:
                with contextlib.suppress(HostLost):
                    ends = {name: status for host in self.hosts for name, status in host.poll().items()}
                    if None not in ends.values():
                        self._unsaved = next((n.replace("-", " ") for n, s in ends.items() if s == UNSAVED), "")
                        break
                time.sleep(LOOK)
        for host in self.hosts:
            with contextlib.suppress(HostLost):
                host.close()
        self._places.clear()


class Log:
    """The lines of a job: on standard output, and in `log.txt` of its folder."""

    def __init__(self, folder: str, stream: TextIO | None = None):
        self._file = open(Path(folder) / "log.txt", "a", encoding="utf-8")  # noqa: SIM115  (open as long as it runs)
        self._stream = stream or sys.stdout

    def __call__(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a full disk, or no reader: the job continues
            self._file.write(line + "\n")
            self._file.flush()
        with contextlib.suppress(OSError):
            self._stream.write(line + "\n")
            self._stream.flush()


def main() -> None:
    job = load_job(sys.argv[1])
    supervisor = Supervisor(job, [LocalHost()], say=Log(job.folder))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, supervisor.stop)
    sys.exit(supervisor.run())


if __name__ == "__main__":
    main()
