"""A writer of summaries: a thread converts and writes them, so that training is not blocked."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hloom import tree
from hloom.arrays.base import ArrayMethods
from hloom.errors import ArgumentError, AttributeValueError, HloomError, ShapeError, file_error
from hloom.ir.process.files import is_unicode
from hloom.ir.process.forking import on_fork
from hloom.ir.process.living import Living
from hloom.platforms.device import process_count, process_index
from hloom.summary import events, graph
from hloom.summary.files import EventFile, Lines
from hloom.tracing.trace import Tracer

PENDING = 1000  # summaries that wait for the thread; beyond them a call waits
FLUSH_SECONDS = 5.0

_open: Living[Writer] = Living()
_everywhere: list[Writer] = []  # the writers that `as_default` made current, the innermost last, in any thread


class SummaryWarning(UserWarning):
    """A warning about misleading summaries: histograms with non-finite values, a summary without a writer."""


class Writer:
    """Writes summaries of one run into a folder.

    folder: of the run; TensorBoard shows each folder below its `--logdir` as a run.
    events: whether to write an event file for TensorBoard (the package `tensorboard`, extra `train`).
    lines: 'jsonl' or 'csv': scalars also as lines of `metrics.jsonl` or `metrics.csv`, which needs no package.
    purge_step: a resumed run writes from this step on; later steps of the interrupted run are not shown.

    In a program of several processes, process 0 writes, and the others' summaries are dropped.

    Values are written by a thread: arrays of hloom are held, NumPy arrays are copied. `flush()` waits for it. Errors
    there (a full disk) are raised by the next call. Raises FileError, AttributeValueError; UnsupportedError where
    `tensorboard` is not installed.

    >>> with hl.summary.Writer("run", events=False, lines="jsonl") as writer:
    ...     writer.scalar("loss", 0.5, step=1)
    >>> '"loss"' in open("run/metrics.jsonl").read()
    True
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        *,
        events: bool = True,
        lines: str | None = None,
        purge_step: int | None = None,
    ):
        if lines not in (None, "jsonl", "csv"):
            raise AttributeValueError("a Writer's lines are 'jsonl' or 'csv'", f"{lines!r}", "lines='jsonl'")
        self.folder = Path(folder)
        self._files: dict[str, EventFile] = {}
        self._lines: Lines | None = None
        self._purge_step = purge_step
        self._warned: set[str] = set()  # the names of histograms that have left out values
        self._writes_events = events
        self._error: BaseException | None = None
        self._closed = False
        self._waiting: queue.Queue = queue.Queue(PENDING)
        self._thread: threading.Thread | None = None
        self.active = process_count() == 1 or process_index() == 0
        if not self.active:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if events:
                self._files[""] = EventFile(self.folder, purge_step)
            if lines:
                self._lines = Lines(self.folder / f"metrics.{lines}", lines, purge_step)
        except OSError as error:
            raise file_error("writing summaries", error) from None
        _open.add(self)

    # accepted types

    def scalar(self, name: str, value: Any, step: Any) -> None:
        """A number. Raises ShapeError for arrays of several elements."""
        number, held = _number(step), _held(value, "scalar")
        if np.size(held) != 1:
            raise ShapeError(f"the scalar {name!r}", f"the shape {list(np.shape(held))}", "hnp.mean(x), or a histogram")
        self._put(self._write_scalar, _tag(name), number, held)

    def scalars(self, values: Mapping[str, Any], step: Any, prefix: str = "") -> None:
        """Several scalars: a dict, or a tree whose paths are the names."""
        for name, value in _named(values, prefix).items():
            self.scalar(name, value, step)

    def histogram(self, name: str, values: Any, step: Any, buckets: int = events.BUCKETS) -> None:
        """How the values of an array are distributed, in buckets of equal width."""
        self._put(self._write_histogram, _tag(name), _number(step), _held(values, "histogram"), buckets)

    def histograms(self, name: str, values: Any, step: Any) -> None:
        """A histogram of each array of a tree, such as a model's parameters; their names are the paths."""
        for path, leaf in _named(values, name).items():
            self.histogram(path, leaf, step)

    def image(self, name: str, pictures: Any, step: Any, most: int = 16) -> None:
        """Pictures: [height, width], [height, width, channels] or [n, height, width, channels]; u8, or floats from 0 to
        1. most: of n pictures so many are written. Raises ShapeError, DTypeError."""
        array = events.pictures(f"the image {name!r}", _numpy(_held(pictures, "image")))[:most]
        self._put(self._write_value, _number(step), events.images, _tag(name), array)

    def figure(self, name: str, figure: Any, step: Any, close: bool = True) -> None:
        """A figure of matplotlib. It is drawn by this call, and closed unless `close=False`."""
        if not hasattr(figure, "savefig"):
            raise ArgumentError(
                f"the figure {name!r} of matplotlib", f"{type(figure).__name__}", "pass plt.figure() or plt.gcf()"
            )
        self._put(self._write_made, _number(step), events.figure(_tag(name), figure))
        if close and (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
            pyplot.close(figure)

    def audio(self, name: str, samples: Any, rate: int, step: Any) -> None:
        """Sounds: f32[samples], [samples, channels] or [n, samples, channels] from -1 to 1. rate: samples a second.
        Raises ShapeError."""
        array = events.sounds(f"the audio {name!r}", _numpy(_held(samples, "audio")))
        self._put(self._write_value, _number(step), events.audio, _tag(name), array, int(rate))

    def text(self, name: str, content: str | Iterable[str], step: Any) -> None:
        """A text in Markdown; several texts are shown as a table."""
        self._put(self._write_value, _number(step), events.text, _tag(name), content)

    def hparams(self, values: Mapping[str, Any], metrics: Iterable[str] = (), group: str = "") -> None:
        """The hyperparameters of this run. metrics: names of scalars, shown next to them when runs are compared. Nested
        dicts are flattened; values other than numbers, bools and texts are written as text."""
        flat = _named(values, "", lambda x: not isinstance(x, dict))
        made = events.hparams(flat, list(metrics), group or self.folder.name, time.time())
        for value in made:
            self._put(self._write_made, 0, value)

    def graph(self, function: Any, *args, **kwargs) -> None:
        """The graph of a program: a function with its arguments, a `lowered` or `compiled` function, or a module.

        `hl.named_scope`s are boxes that unfold; loops and branches are boxes with their bodies inside.
        """
        self._put(self._write_graph, "", graph.definition(graph.module_of(function, args, kwargs)))

    def profile(self, function: Any, *args, step: int = 0, **kwargs) -> list:
        """Runs a jitted function kernel by kernel and writes the optimized graph with the time and the bytes of each.

        The graph is the run `<folder>/kernels` of TensorBoard: a box for each kernel, with the operations that it
        computes inside. Choose the tag `step <n>` there, and colour by compute time or memory. Donated arguments stay
        valid. Returns the parts (`hl.profiler.profile`).
        """
        nodes, metadata, parts = graph.profiled(function, args, kwargs)
        self._put(self._write_graph, "kernels", nodes)
        self._put(self._write_metadata, f"step {step}", metadata, step)
        return parts

    # the thread

    def _put(self, write: Callable, *content) -> None:
        if not self.active:
            return
        self._raise()
        if self._closed:
            raise AttributeValueError(f"writing a summary into {self.folder}", "the writer is closed", "make a new one")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="hloom-summary", daemon=True)
            self._thread.start()
        self._waiting.put((write, content, time.time()))

    def _run(self) -> None:
        flushed = time.monotonic()
        while True:
            try:
                item = self._waiting.get(timeout=FLUSH_SECONDS)
            except queue.Empty:
                item = ()
            if item is None:
                self._waiting.task_done()
                return
            try:
                if item and self._error is None:
                    write, content, now = item
                    write(*content, now)
                if self._error is None and time.monotonic() - flushed > FLUSH_SECONDS:
                    self._flush_files()
                    flushed = time.monotonic()
            except BaseException as error:  # raised by the next call: the thread continues so that callers do not hang
                self._error = error
            if item:
                self._waiting.task_done()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if isinstance(error, OSError) and not isinstance(error, HloomError):
            raise file_error(f"writing summaries into {self.folder}", error) from None
        if error is not None:
            raise error

    def _open_files(self) -> list[EventFile | Lines]:
        return [*self._files.values(), *([self._lines] if self._lines else [])]

    def _flush_files(self) -> None:
        for file in self._open_files():
            file.flush()

    def flush(self) -> None:
        """Returns when all that was handed over is in the files. Raises FileError."""
        if self._closed or not self.active:
            return
        self._waiting.join()
        self._raise()
        try:
            self._flush_files()
        except OSError as error:
            raise file_error(f"writing summaries into {self.folder}", error) from None

    def close(self) -> None:
        """Writes pending summaries, and closes the files. Raises FileError."""
        if self._closed or not self.active:
            self._closed = True
            return
        try:
            self.flush()
        finally:
            self._closed = True
            if self._thread is not None:
                self._waiting.put(None)
                self._thread.join()
                self._thread = None
            with contextlib.suppress(OSError):  # errors were raised by flush
                for file in self._open_files():
                    file.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Writer({str(self.folder)!r})"

    @contextlib.contextmanager
    def as_default(self) -> Iterator[Writer]:
        """Within it, the functions of `hl.summary`, also those in compiled programs, write to this writer. On leaving
        it, they have been written."""
        _everywhere.append(self)
        try:
            yield self
            self.flush()
        finally:
            _everywhere.remove(self)

    # run by the thread

    def _file(self, part: str) -> EventFile | None:
        if not self._writes_events:
            return None
        if part not in self._files:
            folder = self.folder / part
            folder.mkdir(parents=True, exist_ok=True)
            self._files[part] = EventFile(folder, self._purge_step)
        return self._files[part]

    def _write_made(self, step: int, value, now: float) -> None:
        if (file := self._file("")) is not None:
            summary = events.tensorboard().summary_pb2.Summary(value=[value])
            file.write(now, step=step, summary=summary)

    def _write_value(self, step: int, make: Callable, *content_and_time) -> None:
        *content, now = content_and_time
        if self._writes_events:
            self._write_made(step, make(*content), now)

    def _write_scalar(self, name: str, step: int, held, now: float) -> None:
        value = float(_numpy(held).reshape(()))
        if self._lines is not None:
            self._lines.write(step, now, name, value)
        if self._writes_events:
            self._write_made(step, events.scalar(name, value), now)

    def _write_histogram(self, name: str, step: int, held, count: int, now: float) -> None:
        values = _numpy(held)
        values = np.abs(values) if values.dtype.kind == "c" else values.astype(np.float64)
        wrong = values.size - int(np.isfinite(values).sum())
        if wrong and name not in self._warned:
            self._warned.add(name)
            warnings.warn(
                f"the histogram {name!r} at step {step} leaves out {wrong} of {values.size} values, which are not "
                "finite (this warning comes once for each name)",
                SummaryWarning,
                stacklevel=1,
            )
        if self._writes_events:
            self._write_made(step, events.histogram(name, values, count), now)

    def _write_graph(self, part: str, nodes, now: float) -> None:
        if (file := self._file(part)) is not None:
            file.write(now, graph_def=nodes.SerializeToString())

    def _write_metadata(self, tag: str, metadata, step: int, now: float) -> None:
        if (file := self._file("kernels")) is not None:
            tagged = events.tensorboard().event_pb2.TaggedRunMetadata(
                tag=tag, run_metadata=metadata.SerializeToString()
            )
            file.write(now, step=step, tagged_run_metadata=tagged)


def current() -> Writer | None:
    """The writer that `as_default` made current."""
    return _everywhere[-1] if _everywhere else None


def _tag(name: str) -> str:
    if not isinstance(name, str) or not name or not is_unicode(name):
        raise ArgumentError("a summary has a name", f"{name!r:.60}", "pass a text, such as 'loss'")
    return name


def _number(step: Any) -> int:
    if isinstance(step, Tracer):
        raise ArgumentError(
            "a Writer's methods run outside of compiled functions",
            f"the step {step!r:.60} of a program that is traced",
            "call hl.summary.scalar(name, value, step) inside, and the program within `with writer.as_default():`",
        )
    array = np.asarray(step)
    if array.size != 1 or array.dtype.kind not in "iuf" or float(array.reshape(())) != int(array.reshape(())):
        raise ArgumentError("a step is a whole number", f"{step!r:.60}", "pass the number of the step")
    return int(array.reshape(()))


def _held(value: Any, kind: str) -> Any:
    """A value that stays as it is: arrays of hloom are immutable, others are copied."""
    if isinstance(value, Tracer):
        raise ArgumentError(
            "a Writer's methods run outside of compiled functions",
            f"a value that is traced: {value!r:.60}",
            f"call hl.summary.{kind}(...) inside, and the program within `with writer.as_default():`",
        )
    if isinstance(value, ArrayMethods):
        return value
    try:
        found = np.array(value)
        if found.dtype == object:
            raise TypeError(f"{type(value).__name__}")
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"a summary's {kind} is an array or a number", str(error), "pass an array") from None
    return found


def _numpy(held: Any) -> np.ndarray:
    array = np.asarray(held)
    return array if array.dtype.kind in "biufc" else array.astype(np.float32)  # bfloat16 and its like


def _named(values: Any, prefix: str, is_leaf: Callable | None = None) -> dict[str, Any]:
    """The leaves of a tree by their paths, such as `weights/layers/0/kernel`."""
    found = {}
    for path, leaf in tree.leaves_with_path(values, is_leaf):
        name = tree.keystr(path, simple=True, separator="/")
        found["/".join(filter(None, (prefix, name))) or "value"] = leaf
    return found


def _after_fork() -> None:
    """A forked child has no thread, and the file belongs to its parent: its summaries are dropped."""
    for writer in _open:
        writer.active, writer._closed, writer._thread = False, True, None
    _everywhere.clear()


on_fork(child=_after_fork)
