"""Threads and processes that apply a function to elements.

A worker process is forked from this one, so that the function may be any closure; elements and results are pickled
through a pipe between the two. It ends with the pipe, and when this process is gone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import queue
import signal
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from hloom.data.blocks import Block, Origin
from hloom.data.nodes import Epochs, applied
from hloom.errors import WorkerError
from hloom.ir.process.living import Living
from hloom.ir.source import Source

_LOOK = 1.0  # seconds after which a worker that waits looks whether its parent is still there
_ENDING = 2.0  # seconds that a worker process has to end on its own

_connections: Living = Living()  # the ends of this process


class ThreadWorkers:
    """`count` threads. submit(block, epochs, first) -> a future of the list of results."""

    def __init__(self, function: Callable, seed: int | None, count: int):
        self.function, self.seed, self.count = function, seed, count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="hloom-data")

    def submit(self, block: Block, epochs: Epochs, first: int) -> Future:
        return self._pool.submit(self._apply, block, epochs, first)

    def _apply(self, block: Block, epochs: Epochs, first: int) -> list:
        return applied(self.function, block, "map", self.seed, epochs, first)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class ProcessWorkers(ThreadWorkers):
    """`count` processes, and as many threads that feed them elements."""

    def __init__(self, function: Callable, seed: int | None, count: int):
        super().__init__(function, seed, count)
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers = [_Worker(index, function, seed) for index in range(count)]
        for worker in self._workers:
            self._idle.put(worker)

    def _apply(self, block: Block, epochs: Epochs, first: int) -> list:
        worker = self._idle.get()
        try:
            return worker.apply(block, epochs, first)
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        super().close()
        for worker in self._workers:
            worker.end()
        self._pool.shutdown(wait=True)
        for worker in self._workers:
            worker.join()


class _Worker:
    """One worker process."""

    def __init__(self, index: int, function: Callable, seed: int | None):
        self.index = index
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        _connections.add(self._pipe)
        self._process = context.Process(
            target=_serve, args=(theirs, os.getpid(), function, seed), name=f"hloom-data-{index}", daemon=True
        )
        with warnings.catch_warnings():
            # Python 3.12 warns of any fork alongside threads; hloom's locks and threads have rules for it (ir.process).
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        theirs.close()

    def apply(self, block: Block, epochs: Epochs, first: int) -> list:
        origin = (block.origin.names, block.origin.where) if block.origin is not None else None
        try:
            message = pickle.dumps((block.elements(), origin, epochs, first), 5)
            self._pipe.send_bytes(message)
            status, found = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            raise self._ended(block, first) from None
        if status == "results":
            return found
        asked, text, repair, source, trace = found
        error = WorkerError(asked, text, repair, source)
        error.add_note(f"The traceback in worker process {self.index}:\n{trace}")
        raise error

    def _ended(self, block: Block, first: int) -> WorkerError:
        self._process.join(_ENDING)
        code, how = self._process.exitcode, "it ended"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                how = f"it was ended by {signal.Signals(-code).name}"
        elif code is not None:
            how = f"it ended with exit status {code}"
        return WorkerError(
            f"map in worker process {self.index} (pid {self._process.pid}) of {block.describe(0, first)} and following",
            how,
            "SIGKILL is often the system short of memory: use fewer processes; else look for a crash in the function",
            "",
        )

    def end(self) -> None:
        if self._process.is_alive():
            self._process.terminate()

    def join(self) -> None:
        self._process.join(_ENDING)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(_ENDING)
        self._pipe.close()


def _serve(pipe, parent: int, function: Callable, seed: int | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in _connections:  # the parent's ends of the pipes: with a copy here, its end would go unseen
        with contextlib.suppress(OSError):
            other.close()
    with contextlib.suppress(EOFError, OSError):
        while True:
            while not pipe.poll(_LOOK):
                if os.getppid() != parent:
                    return
            elements, origin, epochs, first = pickle.loads(pipe.recv_bytes())
            pipe.send_bytes(_answer(function, seed, elements, origin, epochs, first))


def _answer(function: Callable, seed: int | None, elements: list, origin, epochs: Epochs, first: int) -> bytes:
    block = Block.of_elements(elements, Origin(*origin) if origin is not None else None)
    try:
        results = applied(function, block, "map", seed, epochs, first)
        return pickle.dumps(("results", results), 5)
    except WorkerError as error:
        cause = error.__cause__ or error
        trace = "".join(traceback.format_exception(cause))
        source = Source(*error.source) if isinstance(error.source, Source) else str(error.source)
        return pickle.dumps(("error", (error.asked, error.found, error.repair, source, trace)))
    except Exception as error:  # pickle raises what it likes
        asked = f"map in a worker process: the results of {block.describe(0, first)} and following"
        found = f"{type(error).__name__}: {error}"
        repair = "return arrays, numbers and texts, or use threads instead of processes"
        return pickle.dumps(("error", (asked, found, repair, "", "")))
