"""The metrics of a run: rows in memory, as JSON lines or CSV in a file, and as curves in a PNG."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import math
import os
from pathlib import Path
from typing import Any

from hloom.errors import ArgumentError, FileError, file_error
from hloom.ir.process.files import is_unicode, write_whole
from hloom.ir.process.lazy import LazyModule
from hloom.summary.files import csv_line

_figure = LazyModule("matplotlib.figure")  # half a second to import

Row = dict[str, Any]


class History:
    """Rows of metrics by step, each with `step`, `epoch` and `seconds` (of training), in memory and in a file.

    path: a file that ends in .jsonl or .csv, or None. Rows are in the file when `flush` returns. writes: False if
    another process writes the file.
    """

    def __init__(self, path: str | os.PathLike | None, writes: bool = True):
        """Raises ArgumentError for another kind of file."""
        self.rows: list[Row] = []
        self.path = None if path is None else Path(path)
        if self.path is not None and self.path.suffix not in (".jsonl", ".csv"):
            raise ArgumentError(
                "a file for metrics: JSON lines or CSV", str(path), "name it metrics.jsonl or metrics.csv"
            )
        self._writes = writes
        self._written = 0  # rows in the file
        self._columns: list[str] = []

    def open(self, last_step: int) -> None:
        """Takes the rows up to a step from the file, and drops those after it. Raises FileError."""
        if self.path is None:
            return
        try:
            if self._writes:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                self.rows = [row for row in read(self.path) if row["step"] <= last_step]
            if self._writes:
                self._rewrite()
        except OSError as error:
            raise _as_file_error(self.path, error) from error

    def add(self, row: Row) -> None:
        """Appends a row. Raises ArgumentError for a name that a file cannot have."""
        for name in row:
            if not name or not is_unicode(name):
                raise ArgumentError("a metric has a name", f"{name!r:.60}", "pass a text, such as 'loss'")
        self.rows.append(row)

    def flush(self) -> None:
        """Writes the rows that are missing from the file."""
        if self.path is None or not self._writes or self._written == len(self.rows):
            return
        rows = self.rows[self._written :]
        if self.path.suffix == ".csv" and any(key not in self._columns for row in rows for key in row):
            self._rewrite()  # a new column
            return
        try:
            with open(self.path, "a", encoding="utf-8", newline="") as file:
                file.write(self._text(rows))
        except OSError as error:
            raise _as_file_error(self.path, error) from error
        self._written = len(self.rows)

    def _text(self, rows: list[Row]) -> str:
        if self.path is not None and self.path.suffix == ".csv":
            return "".join(csv_line([row.get(name, "") for name in self._columns]) for row in rows)
        return "".join(json.dumps(row) + "\n" for row in rows)

    def _rewrite(self) -> None:
        assert self.path is not None
        self._columns = list(dict.fromkeys(key for row in self.rows for key in row))
        head = csv_line(self._columns) if self._columns and self.path.suffix == ".csv" else ""
        try:
            write_whole(self.path, (head + self._text(self.rows)).encode())
        except OSError as error:
            raise _as_file_error(self.path, error) from error
        self._written = len(self.rows)


def _as_file_error(path: Path, error: OSError) -> FileError:
    return error if isinstance(error, FileError) else file_error(f"write metrics to {path}", error)


def read(path: str | os.PathLike) -> list[Row]:
    """The rows of a file of metrics, .jsonl or .csv. A last line that is not complete is left out. Raises FileError."""
    try:
        text = Path(path).read_bytes().decode("utf-8")  # line ends as they are: names may have some
    except (OSError, UnicodeDecodeError) as error:
        raise file_error(f"read the metrics of {os.fspath(path)}", error) from error
    text = text[: text.rfind("\n") + 1]
    try:
        if Path(path).suffix == ".csv":
            rows = csv.DictReader(io.StringIO(text, newline=""))
            found = [{k: _number(v) for k, v in row.items() if v} for row in rows]
        else:
            found = [json.loads(line) for line in text.split("\n") if line]
        if not all(isinstance(row.get("step"), int) for row in found):
            raise ValueError("a row without a step")
    except (ValueError, AttributeError) as error:
        raise FileError(f"read the metrics of {os.fspath(path)}", str(error), "name a file that fit wrote") from error
    return found


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return float(text)


def require_matplotlib() -> None:
    """Raises ArgumentError if curves cannot be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ArgumentError(
            "curves of a run are drawn by matplotlib", "it is not installed", "pip install 'hloom[train]'"
        )


def plot_curves(rows: list[Row], path: str | os.PathLike) -> None:
    """Draws each metric over the steps into a PNG; `eval_x` is drawn with `x`. Raises ArgumentError, FileError."""
    require_matplotlib()
    names = [k for k in dict.fromkeys(k for row in rows for k in row) if k not in ("step", "epoch", "seconds")]
    panels = list(dict.fromkeys(name.removeprefix("eval_") for name in names)) or ["loss"]
    columns = min(len(panels), 3)
    lines = math.ceil(len(panels) / columns)
    figure = _figure.Figure(figsize=(5 * columns, 3.4 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for axis, panel in zip(axes, panels, strict=False):
        for name, style in ((panel, "-"), (f"eval_{panel}", "o-")):
            points = [(row["step"], row[name]) for row in rows if name in row]
            if points:
                axis.plot(*zip(*points, strict=True), style, label=name, markersize=3)
        axis.set(title=panel, xlabel="step")
        axis.grid(alpha=0.3)
        if f"eval_{panel}" in names and panel in names:
            axis.legend()
    for axis in axes[len(panels) :]:
        axis.remove()
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110, format="png")
    except OSError as error:
        raise file_error(f"write curves to {os.fspath(path)}", error) from error


__all__ = ["History", "plot_curves", "read", "require_matplotlib"]
