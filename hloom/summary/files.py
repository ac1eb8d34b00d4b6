"""The files of a run: TensorBoard's event file, and scalars as lines of JSON or CSV."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hloom.ir.process.files import write_whole
from hloom.summary.events import tensorboard

COLUMNS = ["step", "time", "name", "value"]
_numbers = itertools.count()  # of the event files of this process


class EventFile:
    """A file of events that TensorBoard reads while it is written: TFRecord frames of `Event` messages."""

    def __init__(self, folder: Path, purge_step: int | None):
        proto = tensorboard().event_pb2
        # Readers take the files in the order of their names, those of one second too.
        name = f"events.out.tfevents.{time.time():010.0f}.{socket.gethostname()}.{os.getpid()}.{next(_numbers):06d}"
        self._file = (folder / name).open("wb")
        self._records = tensorboard().records.RecordWriter(self._file)
        self.write(0.0, file_version="brain.Event:2")
        if purge_step is not None:
            self.write(0.0, step=purge_step, session_log=proto.SessionLog(status=proto.SessionLog.START))

    def write(self, wall_time: float, **content) -> None:
        """One event. content: fields of the message `Event`."""
        event = tensorboard().event_pb2.Event(wall_time=wall_time or time.time(), **content)
        self._records.write(event.SerializeToString())

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class Lines:
    """Scalars as lines: `{"step": 3, "time": 1764096000.0, "name": "loss", "value": 0.25}`, or the same as CSV.

    NaN and infinities are texts in JSON, which has no numbers for them. purge_step: lines of this and later steps,
    written by an interrupted run, are removed.
    """

    def __init__(self, path: Path, kind: str, purge_step: int | None):
        self.kind = kind
        if purge_step is not None and path.exists():
            _remove_from(path, kind, purge_step)
        new = not path.exists() or path.stat().st_size == 0
        self._file = path.open("a", encoding="utf-8", newline="")
        if new and kind == "csv":
            self._file.write(",".join(COLUMNS) + "\n")

    def write(self, step: int, wall_time: float, name: str, value: float) -> None:
        if self.kind == "csv":
            self._file.write(csv_line([step, f"{wall_time:.3f}", name, repr(value)]))
            return
        shown: Any = value if math.isfinite(value) else str(value)
        line = {"step": step, "time": round(wall_time, 3), "name": name, "value": shown}
        self._file.write(json.dumps(line) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def csv_line(cells: Sequence[Any]) -> str:
    """A row of CSV. Readers take a carriage return for the end of a row, which Python's writer does not quote."""
    made = io.StringIO()
    special = any(isinstance(cell, str) and "\r" in cell for cell in cells)
    csv.writer(made, lineterminator="\n", quoting=csv.QUOTE_ALL if special else csv.QUOTE_MINIMAL).writerow(cells)
    return made.getvalue()


def _remove_from(path: Path, kind: str, step: int) -> None:
    """Rewrites a file of lines without those of `step` and later, and without a last line that was cut off."""
    kept = []
    text = path.read_bytes().decode("utf-8")  # line ends as they are: names may have some
    text = text[: text.rfind("\n") + 1]
    if kind == "csv":
        rows = csv.reader(io.StringIO(text, newline=""))
        write_whole(path, "".join(csv_line(row) for row in rows if row == COLUMNS or _step(row[:1]) < step).encode())
        return
    for line in text.split("\n"):
        try:
            found = json.loads(line)["step"]
        except (ValueError, KeyError, TypeError):
            found = step
        if found < step:
            kept.append(line + "\n")
    write_whole(path, "".join(kept).encode())


def _step(cells: list[str]) -> float:
    """The step of a row; infinite if it has none."""
    try:
        return int(cells[0])
    except (ValueError, IndexError):
        return math.inf
