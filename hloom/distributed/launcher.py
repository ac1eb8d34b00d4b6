"""Starts a program in several processes of this machine, which find each other by MPI, and supervises them.

The processes are started by the MPI library's `mpiexec`, which ends all of them when one dies. A folder connects each
of them with the launcher (`hloom.distributed.worker`): two pipes for its output, which is printed with the process's
rank in front of each line, its id, and its exit status.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from hloom.distributed.environment import installed_file
from hloom.distributed.parents import die_with_parent
from hloom.errors import DistributedError
from hloom.ir.process.files import temporary_folder

DEVICES = "HLOOM_NUM_CPU_DEVICES"
SECONDS_TO_END = 10.0  # that processes have after an interrupt
PIPES = ("out", "err")
INTERRUPTED = "interrupted"  # a file that is there once all processes get the interrupt


def mpiexec() -> str:
    """The path of `mpiexec`: that of this Python's packages, else the first on PATH. Raises DistributedError."""
    own = installed_file("mpiexec")
    found = shutil.which("mpiexec") if own is None else str(own)
    if found is None:
        raise DistributedError(
            "a program in several processes",
            "there is no mpiexec in this Python's environment or on PATH",
            "pip install 'hloom[cluster]'",
        )
    return found


def launch(
    command: Sequence[str], processes: int, devices_per_process: int = 1, *, module: bool = False, label: bool = True
) -> int:
    """Runs a Python program in several processes and returns the exit status: 0, that of the process that failed first
    (128 and the signal's number for one that was killed), or 130 after Ctrl-C.

    command: the script and its arguments; with `module` the name of a module in place of the script. label: whether
    each line is prefixed with the rank of its process. Raises DistributedError if there is no MPI.
    """
    if processes < 1 or devices_per_process < 1:
        raise DistributedError(
            f"{processes} processes with {devices_per_process} devices each",
            "both are at least 1",
            "pass larger numbers",
        )
    with temporary_folder("hloom-launch-") as folder:
        for number in range(processes):
            for name in PIPES:
                os.mkfifo(folder / f"{number}.{name}")
        started = subprocess.Popen(
            [
                mpiexec(), "-n", str(processes), sys.executable, "-m", "hloom.distributed.worker", str(folder),
                *(["-m"] if module else []), *command,
            ],
            env=_environment(processes, devices_per_process),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=die_with_parent,
        )  # fmt: skip
        return _Watch(started, folder, processes, label).status()


def _environment(processes: int, devices: int) -> dict[str, str]:
    """Threads are shared out: the processes together use as many as there are cores."""
    cores = len(os.sched_getaffinity(0))
    threads = {
        "HLOOM_NUM_THREADS": str(max(cores // processes, 1)),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    return {**threads, **os.environ, DEVICES: str(devices), "PYTHONUNBUFFERED": "1"}


class _Watch:
    """One run of mpiexec. Forwards the output of the processes, and interrupts; knows which process ended first."""

    def __init__(self, process: subprocess.Popen, folder: Path, count: int, label: bool):
        self.process, self.folder, self.count = process, folder, count
        self._first: set[int] = set()  # the processes that ended first, where it is not known which of them did
        self._said = b""  # mpiexec's own output
        self._pids: dict[int, int] = {}
        self._handles: dict[int, int] = {}  # process file descriptor -> number
        self._ended: list[int] = []  # the ranks of the processes, in the order in which they ended
        self._unseen: list[int] = []  # those that had ended when they were found, and are not in `_ended` yet
        self._readers = [threading.Thread(target=self._listen, daemon=True)]
        for number in range(count):
            prefix = f"[{number}] " if label else ""
            for name, target in zip(PIPES, (sys.stdout, sys.stderr), strict=True):
                arguments = (folder / f"{number}.{name}", target, prefix)
                self._readers.append(threading.Thread(target=_pass_on, args=arguments, daemon=True))

    def status(self) -> int:
        for reader in self._readers:
            reader.start()
        # Ending the launcher ends the processes.
        in_main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGTERM, signal.default_int_handler) if in_main else None
        try:
            while self.process.poll() is None:
                self._look(0.05)
        except KeyboardInterrupt:
            return self._interrupted()
        finally:
            if in_main:
                signal.signal(signal.SIGTERM, before)
            for handle in self._handles:
                os.close(handle)
            self._close_pipes()
        return self._explained(self.process.returncode)

    def _look(self, seconds: float) -> None:
        """Waits for the end of a process, or for some time."""
        if len(self._pids) < self.count:
            self._find_processes()
            seconds = 0.01
        poll = select.poll()
        for handle, number in self._handles.items():
            if number not in self._ended:
                poll.register(handle, select.POLLIN)
        together = [*self._unseen, *[self._handles[handle] for handle, _ in poll.poll(seconds * 1000)]]
        self._unseen.clear()
        # Of several that have ended since the last check, the one that reported how was first: the others were killed.
        silent = {number for number in together if not (self.folder / f"{number}.status").exists()}
        if not self._ended and len(silent) == len(together) > 1:
            self._first = silent
        self._ended += sorted(together, key=lambda number: number in silent)

    def _find_processes(self) -> None:
        for path in self.folder.glob("*.pid"):
            number = int(path.stem)
            if number not in self._pids and (text := path.read_text()):
                self._pids[number] = int(text)
                try:
                    self._handles[os.pidfd_open(int(text))] = number
                except ProcessLookupError:
                    self._unseen.append(number)

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self._said = self.process.stderr.read()

    def _close_pipes(self) -> None:
        """Ends the readers, also those of processes that never began."""
        self.process.wait()
        for number in range(self.count):
            for name in PIPES:
                # Fails where no reader is left.
                with contextlib.suppress(OSError):
                    os.close(os.open(self.folder / f"{number}.{name}", os.O_WRONLY | os.O_NONBLOCK))
        for reader in self._readers:
            reader.join()

    def _interrupted(self) -> int:
        """Every process gets the interrupt, and a few seconds to save its state."""
        (self.folder / INTERRUPTED).touch()
        for pid in self._pids.values():
            _kill(pid, signal.SIGINT)
        ends = time.monotonic() + SECONDS_TO_END
        while self.process.poll() is None and time.monotonic() < ends:
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(0.05)
        if self.process.poll() is None:
            print(f"hloom launch: some processes run on after {SECONDS_TO_END:g} s; they are killed", file=sys.stderr)
            for pid in [*self._pids.values(), self.process.pid]:
                _kill(pid, signal.SIGKILL)
        print("hloom launch: interrupted", file=sys.stderr)
        return 130

    def _explained(self, code: int) -> int:
        """The status to exit with. Reports on standard error which process failed first, if any."""
        statuses = {int(path.stem): int(path.read_text()) for path in self.folder.glob("*.status")}
        failed = next((k for k in self._ended if statuses.get(k) != 0), None)
        if failed is None and code == 0:
            return 0
        if failed is None:
            print(self._said.decode(errors="replace"), file=sys.stderr)
            print("hloom launch: the processes could not be started", file=sys.stderr)
            return code
        if failed in statuses:
            how, status = f"failed with status {statuses[failed]}", statuses[failed]
        else:
            # mpiexec ends with the status of a process that was killed: the signal's number.
            number = code - 128 if code > 128 else code
            status = 128 + number
            how = f"was killed by {next((s.name for s in signal.Signals if s == number), f'signal {number}')}"
        others = "; all others were ended" if self.count > 1 else ""
        numbers = ", ".join(map(str, sorted(self._first)))
        which = f"one of the processes {numbers}" if failed in self._first else f"process {failed}"
        print(f"hloom launch: {which} {how}{others}", file=sys.stderr)
        return status


def _pass_on(pipe: Path, target, prefix: str) -> None:
    """The lines of a pipe as they come."""
    with open(pipe, encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in lines:
            target.write(prefix + line if line.endswith("\n") else f"{prefix}{line}\n")
            target.flush()


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


__all__ = ["launch", "mpiexec"]
