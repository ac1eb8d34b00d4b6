"""Where the processes of a job run: on this machine, as children of the supervisor."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from hloom.distributed.parents import die_with_parent

Line = tuple[str, str]  # the name of a process, its output


class Host(Protocol):
    """A machine that runs processes by name. Every method may raise HostLost."""

    def start(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> None: ...

    def poll(self) -> dict[str, int | None]:
        """The exit status of each process that was started; None of those that run."""

    def kill(self, name: str, number: int) -> None: ...

    def lines(self) -> list[Line]:
        """The output of the processes since the last call."""

    def close(self) -> None:
        """Ends all processes."""


class HostLost(Exception):
    """The agent of a host does not answer: its processes have ended with it."""


class LocalHost:
    """Processes of this machine."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen] = {}
        self._readers: dict[str, threading.Thread] = {}
        self._lines: queue.SimpleQueue[Line] = queue.SimpleQueue()

    def start(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> None:
        process = subprocess.Popen(
            list(command), env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
        self._processes[name] = process
        reader = self._readers[name] = threading.Thread(target=self._read, args=(name, process), daemon=True)
        reader.start()

    def _read(self, name: str, process: subprocess.Popen) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put((name, line.rstrip("\n")))

    def poll(self) -> dict[str, int | None]:
        found = {name: process.poll() for name, process in self._processes.items()}
        for name, status in found.items():
            if status is not None:
                self._readers[name].join(1.0)  # its output is reported before its end
        return found

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def kill(self, name: str, number: int) -> None:
        process = self._processes.get(name)
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def lines(self) -> list[Line]:
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._lines.get_nowait())
        return found

    def forget(self, name: str) -> None:
        self._processes.pop(name, None)
        self._readers.pop(name, None)

    def close(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
        for process in self._processes.values():
            process.wait()
        self._processes.clear()


__all__ = ["Host", "HostLost", "Line", "LocalHost"]
