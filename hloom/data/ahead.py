"""Steps that work ahead of their consumer: maps in threads or processes, and prefetching.

Such a step records the state of its input periodically. Its own state is the latest recorded one and the number of
elements after it, which a restored iterator reads again and drops.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom.data.blocks import Block
from hloom.data.cursors import Noted, skipped
from hloom.data.nodes import Epochs, Node, State
from hloom.data.workers import ProcessWorkers, ThreadWorkers
from hloom.errors import HloomError, WorkerError
from hloom.ir.process import forking
from hloom.ir.source import Source, current_source
from hloom.lax.transfer import device_put
from hloom.tree import pytrees as tree

_THREADING = threading.__file__
_CHUNK = 16  # elements that a worker gets at a time
_PATIENCE = 1.0  # seconds for which `close` waits for a thread that a function of the user's may hold
_WAIT = 0.5  # seconds after which a consumer looks whether the thread is still there


class _Ahead(Node):
    """Common parts: the remainder of the last block, and marks as state."""

    def __init__(self, source: Node):
        super().__init__(source)
        self.single = source.single
        self._rest: Block | None = None
        self._mark: tuple[State, int] = ({}, 0)
        self._failed: BaseException | None = None

    def _fetch(self) -> tuple[Block | None, tuple[State, int]]:
        raise AssertionError(type(self).__name__)

    def next(self, limit: int) -> Block | None:
        if self._failed is not None:
            raise self._failed
        if self._rest is None:
            try:
                block, self._mark = self._fetch()
            except Exception as error:
                self._failed = error
                raise
            if block is None:
                return None
            self._rest = block
        block, rest = self._rest[:limit], None
        if block.size < self._rest.size:
            rest = self._rest[block.size :]
        self._rest = rest
        self._mark = (self._mark[0], self._mark[1] + block.size)
        return block

    def _reset(self) -> None:
        self._rest = self._failed = None

    def state(self) -> State:
        return {"input": self._mark[0], "skip": self._mark[1]}


class ParallelMap(_Ahead):
    """A function of each element, computed by several workers, in the order of the elements."""

    def __init__(self, source: Node, function: Callable, seed: int | None, count: int, processes: bool):
        super().__init__(source)
        self.function, self.seed, self.count, self.processes = function, seed, count, processes
        self._workers: ThreadWorkers | None = None
        self._epochs: Epochs = ()
        self._at = self._taken = 0  # elements that were submitted, and handed out
        self._pending: deque = deque()
        self._ended = False

    def begin(self, epochs: Epochs) -> None:
        super().begin(epochs)
        self._epochs, self._at, self._taken = epochs, 0, 0
        if self._workers is None:
            kind = ProcessWorkers if self.processes else ThreadWorkers
            self._workers = kind(self.function, self.seed, self.count)
        self._clear()
        self._mark = self._noted.mark

    def _clear(self) -> None:
        for future, *_ in self._pending:
            future.cancel()
        self._pending.clear()
        self._reset()
        self._noted, self._ended = Noted(self.inputs[0]), False
        self._input_failed: Exception | None = None

    def _fetch(self) -> tuple[Block | None, tuple[State, int]]:
        assert self._workers is not None
        while not self._ended and len(self._pending) < 2 * self.count:
            try:
                block, mark = self._noted.next(1 if self.single else _CHUNK)
            except Exception as error:  # raised after the elements before it were handed out
                self._ended, self._input_failed = True, error
                break
            if block is None:
                self._ended, self._last = True, mark
                break
            future = self._workers.submit(block, self._epochs, self._at)
            self._pending.append((future, block.origin, mark))
            self._at += block.size
        if not self._pending:
            if self._input_failed is not None:
                raise self._input_failed
            return None, self._last
        future, origin, mark = self._pending.popleft()
        return Block.of_elements(future.result(), origin), mark

    def next(self, limit: int) -> Block | None:
        block = super().next(limit)
        if block is not None:
            self._taken += block.size
        return block

    def state(self) -> State:
        return {"at": self._taken, **super().state()}

    def restore(self, state: State) -> None:
        self.inputs[0].restore(state["input"])
        self._clear()
        skip = int(state["skip"])
        skipped(self.inputs[0], skip)
        self._noted.note(state["input"], skip)
        self._mark = self._noted.mark
        self._at = self._taken = int(state["at"])

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()
            self._workers = None
        super().close()


class _Channel:
    """The prefetched elements of a `Prefetch`'s thread. The thread refers to this and not to the iterator, so that
    dropping the iterator ends the thread."""

    def __init__(self, size: int):
        self.size, self.closed = size, False
        self.items: deque[tuple[Block | None, tuple[State, int]] | BaseException] = deque()
        self.changed = threading.Condition(forking.lock())

    def put(self, item) -> bool:
        with self.changed:
            while len(self.items) >= self.size and not self.closed:
                self.changed.wait()
            if self.closed:
                return False
            self.items.append(item)
            self.changed.notify_all()
            return True

    def get(self, thread: threading.Thread):
        with self.changed:
            while not self.items:
                if not thread.is_alive():
                    raise WorkerError(
                        "the next element of prefetch()",
                        "its thread is not there: the iterator was made before a fork, or the interpreter ends",
                        "make the iterator in the process that uses it", "",
                    )  # fmt: skip
                self.changed.wait(_WAIT)
            item = self.items.popleft()
            self.changed.notify_all()
            return item

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.items.clear()
            self.changed.notify_all()


def _fill(channel: _Channel, noted: Noted, limit: int, place: Callable[[Block], Block]) -> None:
    try:
        while True:
            block, mark = noted.next(limit)
            if block is not None:
                block = place(block)
            if not channel.put((block, mark)) or block is None:
                return
    except BaseException as error:  # raised in the consumer, at its line instead of the thread's
        if isinstance(error, HloomError) and isinstance(error.source, Source) and error.source.file == _THREADING:
            error.source = None
        channel.put(error)


class Prefetch(_Ahead):
    """The next elements, made by a thread, and placed on a device or on several."""

    def __init__(self, source: Node, size: int, device: Any):
        super().__init__(source)
        self.size, self.device = size, device
        self._channel: _Channel | None = None
        self._thread: threading.Thread | None = None
        self._last: tuple[State, int] | None = None

    def begin(self, epochs: Epochs) -> None:
        self._stop()
        super().begin(epochs)
        self._noted = Noted(self.inputs[0])
        self._mark = self._noted.mark

    def _fetch(self) -> tuple[Block | None, tuple[State, int]]:
        if self._last is not None:
            return None, self._last
        if self._thread is None:
            self._channel = _Channel(self.size)
            device = self.device
            place = (lambda block: block) if device is None else (lambda block: _placed(block, device))
            self._thread = threading.Thread(
                target=_fill, args=(self._channel, self._noted, 1 if self.single else 256, place),
                name="hloom-prefetch", daemon=True,
            )  # fmt: skip
            self._thread.start()
        assert self._channel is not None
        item = self._channel.get(self._thread)
        if isinstance(item, HloomError) and item.source is None:
            item.source = current_source()
        if isinstance(item, BaseException):
            raise item
        if item[0] is None:
            self._last = item[1]
        return item

    def restore(self, state: State) -> None:
        self._stop()
        self.inputs[0].restore(state["input"])
        skip = int(state["skip"])
        skipped(self.inputs[0], skip)
        self._noted = Noted(self.inputs[0])
        self._noted.note(state["input"], skip)
        self._mark = self._noted.mark

    def _stop(self, patience: float | None = None) -> None:
        self._reset()
        self._last = None
        if self._thread is not None and self._channel is not None:
            self._channel.close()
            if self._thread is not threading.current_thread():
                self._thread.join(patience)
        self._thread = self._channel = None

    def close(self) -> None:
        self._stop(_PATIENCE)
        super().close()


def _placed(block: Block, device: Any) -> Block:
    return Block.of_elements([placed(element, device) for element in block.elements()], block.origin)


def _is_object(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype.hasobject


def placed(element: Any, device: Any) -> Any:
    """The arrays of an element on a device or sharding; texts and other objects stay on the host."""
    leaves, structure = tree.flatten(element)
    moves = [not isinstance(leaf, (str, bytes)) and not _is_object(leaf) for leaf in leaves]
    moved = iter(device_put([leaf for leaf, move in zip(leaves, moves, strict=True) if move], device))
    return tree.unflatten(structure, [next(moved) if move else leaf for leaf, move in zip(leaves, moves, strict=True)])
