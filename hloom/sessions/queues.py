"""Queues that programs put arrays into and take them from, filled by threads: FIFO, shuffled, padded.

    queue = ShuffleQueue(1000, min_after_dequeue=100, dtypes=["float32", "int32"], shapes=[(8, 8), ()])
    QueueRunner(queue, [queue.enqueue([image, label])] * 2)
    images, labels = queue.dequeue_many(32)
    ...
    with Coordinator() as coordinator:
        threads = start_queue_runners(session, coordinator)
        while not coordinator.should_stop(): session.run(train)

A queue belongs to this process. A run that dequeues gets its elements before the compiled program starts.
"""

from __future__ import annotations

import functools
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from hloom.data import Dataset
from hloom.errors import ArgumentError, OutOfRangeError, SessionError, ShapeError
from hloom.ir.types import Shape, as_dtype
from hloom.sessions.graph import Node, Operation
from hloom.sessions.program import QUEUE_RUNNERS, Program, current_program, program_of
from hloom.tree import pytrees as tree

_WAIT = 0.05  # seconds between checks whether a waiting thread has to stop


class FIFOQueue:
    """First in, first out.

    capacity: elements that it holds; enqueue waits while it is full. dtypes, shapes: of the parts of an element. None
    in a shape is a size that differs between elements, which only PaddingFIFOQueue batches.
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Sequence[Any],
        shapes: Sequence[Sequence[int | None]],
        name: str = "queue",
        program: Program | None = None,
    ):
        if capacity < 1 or len(dtypes) != len(shapes) or not dtypes:
            raise ArgumentError(
                f"queue {name!r}", f"capacity {capacity}, {len(dtypes)} dtypes, {len(shapes)} shapes",
                "pass a capacity of at least 1, and a dtype and a shape for each part of an element",
            )  # fmt: skip
        self.program = program or current_program()
        self.name, self.capacity = name, capacity
        self.dtypes = [as_dtype(d) for d in dtypes]
        self.shapes: list[tuple[int | None, ...]] = [tuple(s) for s in shapes]
        self._elements: deque | list = deque()
        self._closed = self._cancelled = False
        self._changed = threading.Condition()

    # --- operations of the program ---

    def enqueue(self, parts: Any, name: str = "enqueue") -> Operation:
        """The operation that adds one element."""
        return self.program.host_operation(f"{self.name}/{name}", _list(parts), lambda *values: self.put(values))

    def enqueue_many(self, parts: Any, name: str = "enqueue_many") -> Operation:
        """The operation that adds each row of the parts' first dimension."""

        def put(*values):
            arrays = [np.asarray(v) for v in values]
            for row in range(len(arrays[0])):
                self.put([a[row] for a in arrays])

        return self.program.host_operation(f"{self.name}/{name}", _list(parts), put)

    def dequeue(self, name: str = "dequeue") -> Any:
        """The parts of one element as nodes, which are taken from the queue once in each run that needs them."""
        return self._nodes(name, self.shapes, self.take)

    def dequeue_many(self, count: int, name: str = "dequeue_many") -> Any:
        """`count` elements, stacked. A run raises OutOfRangeError where a closed queue has fewer."""
        shapes = [(count, *shape) for shape in self.shapes]
        return self._nodes(name, shapes, lambda: self._stacked(self._take(count, count)))

    def dequeue_up_to(self, count: int, name: str = "dequeue_up_to") -> Any:
        """As `dequeue_many`; the last elements of a closed queue are a smaller batch."""
        rows = f"{self.name}/{name}/rows"
        shapes = [(rows, *shape) for shape in self.shapes]
        return self._nodes(name, shapes, lambda: self._stacked(self._take(count, 1)))

    def close_operation(self, cancel_pending_enqueues: bool = False, name: str = "close") -> Operation:
        """The operation that closes the queue. cancel_pending_enqueues: those that wait fail, instead of being done."""
        return self.program.host_operation(f"{self.name}/{name}", (), lambda: self.close(cancel_pending_enqueues))

    def size(self) -> int:
        """How many elements wait."""
        return len(self._elements)

    def _nodes(self, name: str, shapes: Iterable[Sequence], source: Callable[[], list]) -> Any:
        found = []
        for k, (dtype, shape) in enumerate(zip(self.dtypes, shapes, strict=True)):
            dims = tuple([
                self.program.sizes.dim(f"{self.name}/{k}/{axis}" if n is None else n)
                if n is None or isinstance(n, str)
                else n
                for axis, n in enumerate(shape)
            ])  # fmt: skip
            found.append(self.program.host_value(f"{self.name}/{name}", Shape(dtype, dims), source, k))
        return found[0] if len(found) == 1 else tuple(found)

    # --- elements ---

    def put(self, parts: Sequence[Any]) -> None:
        """Adds an element; waits while the queue is full. Raises ShapeError for other parts than declared,
        SessionError where the queue is closed."""
        if len(parts) != len(self.dtypes):
            raise ArgumentError(
                f"an element of queue {self.name!r}", f"{len(parts)} parts", f"{len(self.dtypes)} parts"
            )
        arrays = [np.array(p, dtype=d) for p, d in zip(parts, self.dtypes, strict=True)]
        for k, (array, shape) in enumerate(zip(arrays, self.shapes, strict=True)):
            if array.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, array.shape, strict=True)):
                raise ShapeError(
                    f"part {k} of an element of queue {self.name!r}, which has shape {shape}", f"{array.shape}",
                    "enqueue parts of the declared shapes (enqueue_many for batches)",
                )  # fmt: skip
        with self._changed:
            while len(self._elements) >= self.capacity and not self._closed:
                self._changed.wait(_WAIT)
            if self._cancelled or (self._closed and len(self._elements) >= self.capacity):
                raise SessionError(f"enqueue to {self.name!r}", "the queue is closed", "stop enqueueing")
            if self._closed:
                raise SessionError(f"enqueue to {self.name!r}", "the queue is closed", "stop enqueueing")
            self._elements.append(arrays)
            self._changed.notify_all()

    def take(self) -> list[np.ndarray]:
        """Takes an element; waits while there is none. Raises OutOfRangeError if a closed queue is empty."""
        return self._take(1, 1)[0]

    def _least(self) -> int:
        """How many elements remain in the queue while it is open."""
        return 0

    def _next(self) -> list[np.ndarray]:
        return self._elements.popleft()  # type: ignore[union-attr]  # a deque here

    def _take(self, count: int, least: int) -> list[list[np.ndarray]]:
        with self._changed:
            while len(self._elements) < count + self._least() and not self._closed:
                self._changed.wait(_WAIT)
            if len(self._elements) < least:
                raise OutOfRangeError(
                    f"dequeue {count} from {self.name!r}",
                    f"it is closed and has {len(self._elements)}",
                    "stop: Coordinator treats this as the end of the data",
                )
            found = [self._next() for _ in range(min(count, len(self._elements)))]
            self._changed.notify_all()
        return found

    def _stacked(self, elements: list[list[np.ndarray]]) -> list[np.ndarray]:
        return [np.stack(parts) for parts in zip(*elements, strict=True)]

    def close(self, cancel_pending_enqueues: bool = False) -> None:
        """Closes the queue: nothing can be added any more, but the remaining elements can be taken."""
        with self._changed:
            self._closed = True
            self._cancelled = self._cancelled or cancel_pending_enqueues
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        return self._closed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self.size()} of {self.capacity}>"


def _list(parts: Any) -> list:
    return list(parts) if isinstance(parts, (list, tuple)) else [parts]


class ShuffleQueue(FIFOQueue):
    """Elements are taken in random order.

    min_after_dequeue: how many remain in the queue while it is open, which determines how well it shuffles. seed: the
    order, for one thread that enqueues.
    """

    def __init__(
        self,
        capacity: int,
        min_after_dequeue: int,
        dtypes: Sequence[Any],
        shapes: Sequence[Sequence[int | None]],
        seed: int | None = None,
        name: str = "shuffle_queue",
        program: Program | None = None,
    ):
        super().__init__(capacity, dtypes, shapes, name, program)
        if not 0 <= min_after_dequeue < capacity:
            raise ArgumentError(
                f"queue {name!r}", f"min_after_dequeue={min_after_dequeue}, capacity={capacity}",
                "choose a capacity above min_after_dequeue by several batches",
            )  # fmt: skip
        self._elements = []
        self._stay, self._random = min_after_dequeue, random.Random(seed)

    def _least(self) -> int:
        return self._stay

    def _next(self) -> list[np.ndarray]:
        last = len(self._elements) - 1
        k = self._random.randrange(last + 1)
        self._elements[k], self._elements[last] = self._elements[last], self._elements[k]
        return self._elements.pop()


class PaddingFIFOQueue(FIFOQueue):
    """Elements of different sizes (None in their shape), which `dequeue_many` pads with zeros to the largest one."""

    def _stacked(self, elements: list[list[np.ndarray]]) -> list[np.ndarray]:
        found = []
        for parts in zip(*elements, strict=True):
            sizes = np.max([p.shape for p in parts], axis=0)
            batch = np.zeros((len(parts), *sizes), parts[0].dtype)
            for k, part in enumerate(parts):
                batch[k][tuple([slice(n) for n in part.shape])] = part
            found.append(batch)
        return found


# --- datasets as sources ---------------------------------------------------------------------------------------------


def from_dataset(
    dataset: Dataset | Iterable, name: str = "input", *, rows: int | None = -1, program: Program | None = None
) -> Any:
    """The elements of an `hl.data` dataset (or of another iterable of trees of arrays) as nodes of the same tree: each
    run that needs one of them takes the next element. The end of the data raises OutOfRangeError.

    Shapes and dtypes are those of the first element. rows=None: the first dimension is of unknown size, as where the
    last batch is smaller."""
    program = program or current_program()
    iterator = iter(dataset)
    first = next(iterator, None)
    if first is None:
        raise ArgumentError(f"the input {name!r}", "the dataset is empty", "check its files")
    leaves, structure = tree.flatten(first)
    source = _Elements(name, leaves, iterator)
    nodes = []
    for k, leaf in enumerate(leaves):
        array = np.asarray(leaf)
        dims = array.shape
        if rows is None and array.ndim:
            dims = (program.sizes.dim(f"{name}/rows"), *array.shape[1:])
        nodes.append(program.host_value(name, Shape(array.dtype, dims), source, k))
    return tree.unflatten(structure, nodes)


class _Elements:
    """The elements of an iterator, the first of which is known. Threads take turns."""

    def __init__(self, name: str, first: list, rest: Iterator):
        self._name, self._first, self._rest = name, first, rest
        self._lock = threading.Lock()

    def __call__(self) -> list:
        with self._lock:
            if self._first:
                first, self._first = self._first, []
                return first
            try:
                return tree.leaves(next(self._rest))
            except StopIteration:
                raise OutOfRangeError(
                    f"the next element of {self._name!r}", "the data are used up", "repeat() them, or stop"
                ) from None


# --- threads -------------------------------------------------------------------------------------------------------


class Coordinator:
    """Several threads that end together: when one asks for it, when one fails, or when the data are used up.

    As a context manager it stops the threads at the end of the block, and re-raises an exception of theirs, except
    OutOfRangeError, the end of the data.
    """

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._queues: list[FIFOQueue] = []

    def should_stop(self) -> bool:
        """Whether a stop was requested."""
        return self._stop.is_set()

    def request_stop(self, error: BaseException | None = None) -> None:
        """Asks all threads to stop. error: why; `join` raises the first one."""
        if error is not None and self._error is None and not isinstance(error, OutOfRangeError):
            self._error = error
        self._stop.set()

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Waits for a stop, for at most this many seconds; whether there was one."""
        return self._stop.wait(timeout)

    def start(self, target: Callable[[], None], name: str = "hloom-coordinated") -> threading.Thread:
        """Starts a thread that runs a function until it returns; an exception stops the others."""

        def run() -> None:
            try:
                target()
            except BaseException as error:
                self.request_stop(error)

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def close_at_stop(self, queue: FIFOQueue) -> None:
        """Closes a queue when a stop is requested, so that no thread waits for it."""
        if queue not in self._queues:
            self._queues.append(queue)

    def join(self, threads: Iterable[threading.Thread] | None = None, timeout: float = 60.0) -> None:
        """Waits for the threads after `request_stop`. Re-raises an exception of theirs; raises SessionError if one does
        not stop within `timeout` seconds."""
        self._stop.wait()
        for queue in self._queues:
            queue.close(cancel_pending_enqueues=True)
        for thread in self._threads if threads is None else threads:
            thread.join(timeout)
            if thread.is_alive():
                raise SessionError(
                    f"the end of thread {thread.name!r}", f"it still runs after {timeout:g} s",
                    "let it look at should_stop()",
                )  # fmt: skip
        error, self._error = self._error, None
        if error is not None:
            raise error

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, kind, error, trace) -> bool:
        ended = isinstance(error, OutOfRangeError)
        self.request_stop(error)
        try:
            self.join()
        except BaseException as other:
            if other is not error:
                raise
        return ended


class QueueRunner:
    """Threads that run enqueue operations until the data are used up or the coordinator stops; then the queue is
    closed. It is added to the program's collection of queue runners."""

    def __init__(self, queue: FIFOQueue, operations: Sequence[Operation]):
        self.queue, self.operations = queue, list(operations)
        self.name = f"{queue.name}/runner"
        queue.program.add_to_collection(QUEUE_RUNNERS, self)
        self._running = 0
        self._lock = threading.Lock()

    def create_threads(self, session: Any, coordinator: Coordinator) -> list[threading.Thread]:
        """Starts a thread for each operation."""
        coordinator.close_at_stop(self.queue)
        self._running = len(self.operations)
        return [
            coordinator.start(functools.partial(self._run, session, coordinator, operation), f"hloom-{self.name}")
            for operation in self.operations
        ]

    def _run(self, session: Any, coordinator: Coordinator, operation: Operation) -> None:
        step = session.make_callable(operation)
        try:
            while not coordinator.should_stop():
                step()
        except OutOfRangeError:
            pass
        except SessionError:
            if not self.queue.closed:  # otherwise it waited for room, and is not needed any more
                raise
        finally:
            with self._lock:
                self._running -= 1
                if self._running == 0:
                    self.queue.close()


def start_queue_runners(session: Any, coordinator: Coordinator) -> list[threading.Thread]:
    """Starts the threads of all queue runners of the session's program."""
    runners = session.program.get_collection(QUEUE_RUNNERS)
    return [thread for runner in runners for thread in runner.create_threads(session, coordinator)]


def shuffle_batch(
    tensors: Sequence[Node],
    batch_size: int,
    capacity: int,
    min_after_dequeue: int,
    *,
    threads: int = 1,
    seed: int | None = None,
    allow_smaller_final_batch: bool = False,
    name: str = "shuffle_batch",
) -> Any:
    """Batches of single examples in random order, by a queue and a queue runner. Returns nodes of batches."""
    program = program_of(tensors[0])
    shapes, dtypes = [t.dims for t in tensors], [t.dtype for t in tensors]
    queue = ShuffleQueue(capacity, min_after_dequeue, dtypes, shapes, seed, name, program)
    QueueRunner(queue, [queue.enqueue(list(tensors)) for _ in range(threads)])
    return queue.dequeue_up_to(batch_size) if allow_smaller_final_batch else queue.dequeue_many(batch_size)


def batch(
    tensors: Sequence[Node],
    batch_size: int,
    capacity: int = 32,
    *,
    threads: int = 1,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    name: str = "batch",
) -> Any:
    """As `shuffle_batch`, in order. dynamic_pad: examples of different sizes are padded with zeros."""
    program = program_of(tensors[0])
    shapes, dtypes = [t.dims for t in tensors], [t.dtype for t in tensors]
    kind = PaddingFIFOQueue if dynamic_pad else FIFOQueue
    queue = kind(max(capacity, batch_size), dtypes, [[None if isinstance(n, str) else n for n in s] for s in shapes],
                 name, program)  # fmt: skip
    QueueRunner(queue, [queue.enqueue(list(tensors)) for _ in range(threads)])
    return queue.dequeue_up_to(batch_size) if allow_smaller_final_batch else queue.dequeue_many(batch_size)


__all__ = [
    "Coordinator", "FIFOQueue", "PaddingFIFOQueue", "QueueRunner", "ShuffleQueue", "batch", "from_dataset",
    "shuffle_batch", "start_queue_runners",
]  # fmt: skip
