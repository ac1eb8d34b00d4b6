"""The status of a worker, as a small file that `hloom cluster status` and the supervisor read."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from hloom.cluster.spec import TaskFile
from hloom.ir.process.files import write_whole
from hloom.training.callbacks import Callback

EVERY = 0.2  # seconds between reports


def write_report(folder: str | os.PathLike, name: str, fields: dict[str, Any]) -> None:
    """Writes `<folder>/status/<name>.json`, complete or not at all. A full disk does not end the training: the report
    is left out."""
    path = Path(folder) / "status" / f"{name}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**fields, "pid": os.getpid(), "time": time.time()})
        write_whole(path, text.encode())
    except OSError:
        return


def read_reports(folder: str | os.PathLike) -> list[dict[str, Any]]:
    """The reports of a job's processes, by name. Those that cannot be read are left out."""
    found = []
    for path in sorted((Path(folder) / "status").glob("[!.]*.json")):
        try:
            one = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(one, dict):
            found.append({"name": path.stem, **one})
    return found


class Report(Callback):
    """Reports each step of a submitted job: its step, loss, waits for input and for other workers, last checkpoint."""

    def __init__(self, step: Any, told: TaskFile | None, start: int = 0):
        self._strategy, self._told, self._start = step, told, start
        self._last = 0.0
        self._saved: int | None = None
        self._began = time.monotonic()

    def on_start(self, loop) -> None:
        self._began = time.monotonic()
        if loop.manager is not None:
            self._saved = loop.manager.latest()
        self._write(loop, "running")

    def on_step(self, loop) -> None:
        if time.monotonic() - self._last > EVERY:
            self._write(loop, "running")

    def on_checkpoint(self, loop) -> None:
        self._saved = self._start + loop.step
        self._write(loop, "running")

    def on_end(self, loop) -> None:
        self._write(loop, "ended")

    def _write(self, loop, state: str) -> None:
        if self._told is None:
            return
        self._last = now = time.monotonic()
        seconds = max(now - self._began, 1e-9)
        fields = {
            "state": state, "step": self._start + loop.step, "loss": loop.metrics.get("loss"),
            "input_wait": round(loop.waited / max(loop.seconds, 1e-9), 4),
            "peer_wait": round(getattr(self._strategy, "waited", 0.0) / seconds, 4),
            "saved": self._saved, "attempt": self._told.attempt,
        }  # fmt: skip
        write_report(self._told.folder, f"{self._told.job}-{self._told.index}", fields)


__all__ = ["Report", "read_reports", "write_report"]
