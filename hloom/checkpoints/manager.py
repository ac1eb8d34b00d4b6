"""The checkpoints of a training run: saved while the next steps run, the old ones deleted by rules."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hloom.arrays.array import Array
from hloom.checkpoints.directory import UNFINISHED, Checkpoint, Snapshot, write
from hloom.checkpoints.processes import index
from hloom.errors import ArgumentError, CheckpointError, HloomError, MissingFileError
from hloom.ir.source import current_source
from hloom.runtime.buffer import allocate
from hloom.tree import pytrees

_NAME = re.compile(r"step_(\d{8,})")
_DELETED = ".deleted-"
_LARGE = 1 << 20  # bytes of arrays whose copies are worth preparing for


class Manager:
    """The checkpoints of one run in one folder, by global step.

    `save` returns as soon as the arrays are held; a thread writes them. One checkpoint is written at a time: `save`
    waits for the one before. Arrays of hloom are not copied: while a checkpoint is being written, a step that would
    overwrite a donated array works on a copy of it.

    keep: how many of the latest are kept (None: all). best: the name of a metric and "min" or "max"; the keep_best
    checkpoints with the best values are also kept. keep_every: those whose step is a multiple of it are kept
    permanently;
    keep_every_hours: and the first of each such period.

    >>> with hl.checkpoints.Manager("runs", keep=2) as manager:
    ...     for step in range(4):
    ...         manager.save(step, {"w": hnp.full(2, step)})
    >>> manager.steps(), manager.latest()
    ([2, 3], 3)
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        *,
        keep: int | None = 3,
        best: tuple[str, Literal["min", "max"]] | None = None,
        keep_best: int = 1,
        keep_every: int | None = None,
        keep_every_hours: float | None = None,
    ):
        """Creates the folder; removes leftovers of killed processes. Raises ArgumentError, FileError."""
        if keep is not None and keep < 1:
            raise ArgumentError("a Manager keeps at least one checkpoint", f"keep={keep}", "pass keep=1 or None")
        if best is not None and best[1] not in ("min", "max"):
            raise ArgumentError("best= names a metric and its order", repr(best), 'pass ("loss", "min")')
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._keep, self._best, self._keep_best = keep, best, keep_best
        self._every, self._period = keep_every, None if keep_every_hours is None else 3600 * keep_every_hours
        self._writer: ThreadPoolExecutor | None = None  # of the process in which it was made
        self._process = 0
        self._written: Future | None = None  # done when the checkpoint is on the disk
        self._error: BaseException | None = None
        self._metrics: dict[int, dict[str, float]] = {}
        self._remove_leftovers()

    # --- saving ---

    def save(
        self,
        step: int,
        tree: Any,
        *,
        metrics: Mapping[str, float] | None = None,
        metadata: Mapping[str, Any] | None = None,
        wait: bool = False,
    ) -> None:
        """Saves a tree of arrays, keys, numbers and texts as the checkpoint of a step.

        metrics: numbers by name, for `best`. metadata: any JSON value. wait: until it is on disk. Raises
        CheckpointError if this or a later step is already saved or a leaf cannot be saved, and the error of the
        previous checkpoint if that failed.
        """
        self.wait()
        if self._best is not None and self._best[0] not in (metrics or {}):
            raise CheckpointError(
                f"save step {step} with the metric {self._best[0]!r}, by which the best checkpoints are kept",
                f"metrics {sorted(metrics or {})}",
                f"pass metrics={{{self._best[0]!r}: ...}}",
            )
        path = self.path(step)
        if path.exists():
            raise CheckpointError(f"save step {step}", f"{path} exists", "save a later step, or delete it")
        if (latest := self.latest()) is not None and step < latest:
            raise CheckpointError(
                f"save step {step} after step {latest}",
                f"{self.folder} has later steps, of which the rules would keep more than of this one",
                f"go back with rewind({step}), which deletes them, or use another folder",
            )
        snapshot = Snapshot(tree, copy=not wait)

        source = current_source()

        def work() -> None:
            try:
                write(path, snapshot, step, metrics, metadata)
                self._delete_old()
            except BaseException as error:
                if isinstance(error, HloomError):
                    error.source = source  # not the thread's line
                self._error = error

        if wait:
            work()
            self._raise()
        else:
            self._written = self._thread().submit(work)

    def prepare(self, tree: Any) -> None:
        """Has memory for a second tree of this kind ready, in the thread that writes. A step that donates arrays which
        are being written works on copies of them; finding the pages for these takes longer than the copy."""
        shapes = [
            (*leaf.shape, leaf.dtype)
            for leaf in pytrees.leaves(tree)
            if isinstance(leaf, Array) and leaf.is_fully_addressable and not leaf.is_sharded and leaf.nbytes >= _LARGE
        ]

        def work() -> None:
            blocks = [allocate(tuple(dims), dtype) for *dims, dtype in shapes]
            for block in blocks:
                np.copyto(block, 0)

        if shapes:
            self._thread().submit(work)

    def _thread(self) -> ThreadPoolExecutor:
        """One thread for all saves: `Thread.start` waits until the system has run the new one for the first time."""
        if self._writer is None or self._process != os.getpid():
            self._writer, self._process = ThreadPoolExecutor(1, "hloom-checkpoint"), os.getpid()
        return self._writer

    def wait(self) -> None:
        """Waits until the checkpoint being written is on disk. Raises its error if it failed."""
        if self._written is not None and self._process == os.getpid():
            self._written.result()
        self._written = None
        self._raise()

    @property
    def saving(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._written is not None and not self._written.done()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def __enter__(self) -> Manager:
        return self

    def __exit__(self, *exception) -> None:
        self.wait()

    # --- contents ---

    def path(self, step: int) -> Path:
        """The folder of a step's checkpoint, whether it exists or not."""
        return self.folder / f"step_{step:08d}"

    def steps(self) -> list[int]:
        """The saved steps in order."""
        return sorted(int(m[1]) for p in self.folder.iterdir() if (m := _NAME.fullmatch(p.name)))

    def latest(self) -> int | None:
        """The last saved step; None if there is none."""
        return max(self.steps(), default=None)

    def best(self) -> int | None:
        """The saved step with the best metric; None if there is none."""
        ranked = self._ranked(self.steps())
        return ranked[0] if ranked else None

    def metrics(self, step: int) -> dict[str, float]:
        """The metrics that were saved with a step."""
        if step not in self._metrics:
            self._metrics[step] = Checkpoint(self.path(step)).metrics
        return self._metrics[step]

    def restore(self, like: Any = None, *, step: int | None = None, partial: bool = False) -> Any:
        """The tree of a step, the last one by default; `hl.checkpoints.restore` explains the arguments.

        Raises MissingFileError if nothing was saved, CheckpointError."""
        self.wait()
        chosen = self.latest() if step is None else step
        if chosen is None:
            raise MissingFileError(f"restore the latest checkpoint of {self.folder}", "there is none", "save one first")
        return Checkpoint(self.path(chosen)).restore(like, partial=partial)

    # --- deleting ---

    def delete(self, step: int) -> None:
        """Deletes a checkpoint."""
        gone = self.folder / f"{_DELETED}{self.path(step).name}-{os.getpid()}"
        os.rename(self.path(step), gone)
        shutil.rmtree(gone)
        self._metrics.pop(step, None)

    def rewind(self, step: int) -> list[int]:
        """Deletes the checkpoints after a step, so that training resumes from there; returns their steps."""
        self.wait()
        gone = [later for later in self.steps() if later > step]
        for later in reversed(gone):  # the last one first, so that the rest is always a prefix
            self.delete(later)
        return gone

    def _ranked(self, steps: list[int]) -> list[int]:
        """Steps by metric, the best first; NaN is worse than all values, and of equal ones the later is better."""
        if self._best is None:
            return []
        name, order = self._best
        sign = 1 if order == "min" else -1

        def rank(step: int):
            value = sign * self.metrics(step).get(name, math.nan)
            return (math.isnan(value), value, -step)

        return sorted(steps, key=rank)

    def _delete_old(self) -> None:
        if index() != 0:
            return  # the others' files are in the same folder
        steps = self.steps()
        kept = set(steps if self._keep is None else steps[-self._keep :])
        kept |= set(self._ranked(steps)[: self._keep_best])
        if self._every is not None:
            kept |= {step for step in steps if step % self._every == 0}
        if self._period is not None:
            first: dict[int, int] = {}
            for step in steps:
                first.setdefault(int(self.path(step).stat().st_mtime // self._period), step)
            kept |= set(first.values())
        for step in steps:
            if step not in kept:
                self.delete(step)

    def _remove_leftovers(self) -> None:
        """Leftovers of processes that no longer run: unfinished checkpoints, and half deleted ones."""
        if index() != 0:
            return
        for path in self.folder.iterdir():
            if path.name.startswith((UNFINISHED, _DELETED)):
                number = path.name.rpartition("-")[2]
                if number.isdecimal() and int(number) != os.getpid() and not _runs(int(number)):
                    shutil.rmtree(path, ignore_errors=True)


def _runs(pid: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True


__all__ = ["Manager"]
