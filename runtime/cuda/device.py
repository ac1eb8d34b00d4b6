"""One GPU: its context, three streams, events, memory, loaded machine code, and the calls in flight on it.

Programs run on one stream, `main`, in the order of their calls; copies from and to the host have a stream each and are
ordered with it by events. A `Device` allocates nothing on the GPU before its first use.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from hloom.ir.process import forking
from hloom.ir.process.living import Living
from hloom.ir.records import record
from hloom.runtime.cuda.api import Api, FunctionFacts
from hloom.runtime.cuda.discovery import GpuFacts
from hloom.runtime.cuda.errors import CudaDeviceLostError, CudaError
from hloom.runtime.cuda.events import Event, Handles
from hloom.runtime.cuda.exports import collect
from hloom.runtime.cuda.memory import Buffer, Pool, PoolStatistics
from hloom.runtime.cuda.programs.condition import condition_cubin
from hloom.runtime.cuda.programs.program import Kernel
from hloom.runtime.cuda.staging import Download, Pieces, upload, upload_all

REMEMBERED = 64  # calls in flight that an error which shows later can name
DEFAULT_SHARED = 48 << 10  # bytes of shared memory that a block may use by default
SHARE = 8  # a 1/8 of the memory may be idle on shelves, and as much in the driver's pool


@record(frozen=True)
class Running:
    """A program as an error that shows later names it. lines: the user's."""

    name: str
    lines: tuple[str, ...]


_current = threading.local()  # the context that is current in a thread, as far as we know
_devices: Living[Device] = Living()


def _after_fork() -> None:
    """A forked process cannot use the driver that its parent had initialized."""
    for device in _devices:
        if device.context is not None:
            device.lost = CudaDeviceLostError(
                f"{device} in a forked process",
                "its parent had used it before, which CUDA does not allow",
                "start processes with multiprocessing's 'spawn', or use the GPU in one of them only",
            )
            device.lost.told = True


forking.on_fork(child=_after_fork)


class _Guard:
    """A reusable context manager: creating one per call would cost too much."""

    __slots__ = ("device",)

    def __init__(self, device: Device):
        self.device = device

    def __enter__(self) -> Api:
        device = self.device
        device.lock.acquire()
        try:
            device._enter()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return device.api

    def __exit__(self, kind, error, trace) -> None:
        device = self.device
        try:
            if isinstance(error, CudaDeviceLostError) and not error.told:
                raise device._lose(error) from None
        finally:
            device.lock.release()


class Device:
    """A GPU that programs run on. All methods are thread-safe.

    facts: of `discovery.gpus`. stepwise: programs run launch by launch, each waited for, so that an error names the
    launch (default: HLOOM_CUDA_STEPWISE). condition: architecture -> machine code of `condition.py`.
    """

    def __init__(
        self,
        api: Api,
        facts: GpuFacts,
        *,
        stepwise: bool | None = None,
        condition: Callable[[str], bytes] = condition_cubin,
    ):
        self.api, self.facts = api, facts
        self.stepwise = os.environ.get("HLOOM_CUDA_STEPWISE", "") not in ("", "0") if stepwise is None else stepwise
        self.lock = forking.rlock()
        self.lost: CudaDeviceLostError | None = None
        self.failure: Exception | None = None  # the error that invalidated its contents: raised on next use
        self.handle = self.context = self.pool_handle = None  # the driver's, from the first use on
        self.main = self.uploads = self.downloads = self.recording = None
        self.pool: Pool  # from the first use on
        self._condition = condition
        self._events = Handles()
        self._made_events: list = []
        self._modules: dict[bytes, object] = {}
        self._functions: dict[Kernel, tuple[object, FunctionFacts]] = {}
        self._shared: dict[Kernel, int] = {}
        self._calls = 0
        self._flight: deque[tuple[int, Running]] = deque(maxlen=REMEMBERED)  # (number of the call, program)
        self._deferred: deque = deque()  # of `defer`: (event, or the events to wait for before it; function)
        self.given: list = []  # arrays that other libraries have
        self._closers: list[Callable[[], None]] = []
        self._refused: list[tuple] = []  # (function, handle): objects that the driver refused to destroy
        self.waited: Event | None = None  # the event that the main stream waited for last: parts of a block share it
        self.reached: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # (`peers.reach`) device -> its pool
        self._only_gpu = False  # whether this is the only GPU
        self._guard = _Guard(self)
        _devices.add(self)

    def __str__(self) -> str:
        return f"cuda:{self.facts.index}"

    # --- opening and closing ---

    def open(self) -> Device:
        """Makes the context current in this thread; the first call creates everything else. Raises CudaError."""
        with self.lock:
            if self.lost is not None:
                raise self._gone(self.lost)
            if self.context is None:
                self._open()
            _current.context = None
            self.api.set_current(self.context)
            _current.context = self.context
        return self

    def _open(self) -> None:
        api = self.api
        count = api.device_count()
        self.handle = api.device(self.facts.index)
        context = api.retain_context(self.handle)
        made: list[tuple] = []
        try:
            api.set_current(context)
            for name in ("main", "uploads", "downloads", "recording"):
                setattr(self, name, api.create_stream())
                made.append((api.destroy_stream, getattr(self, name)))
            keep = self.facts.memory // SHARE
            self.pool_handle = api.create_pool(self.facts.index, keep)
        except BaseException:
            for destroy, handle in reversed(made):
                _quietly(destroy, handle)
            _quietly(api.release_context, self.handle)
            raise
        self.context, self._only_gpu = context, count == 1
        self.pool = Pool(self, keep)
        self.upload_pieces, self.download_pieces = Pieces(self), Pieces(self)

    def close(self) -> None:
        """Waits for enqueued work and releases everything. Buffers and programs are invalid from then on.

        After an error the rest is released all the same; the first error is raised at the end.
        """
        with self.lock:
            if self.context is None:
                return
            api, errors = self.api, []

            def attempt(function, *arguments):
                for last in (False, True):  # once more: a call that failed may have reported another's error
                    try:
                        return function(*arguments)
                    except CudaError as error:
                        if last or not errors:
                            errors.append(error)
                        if isinstance(error, CudaDeviceLostError):
                            return None

            attempt(api.set_current, self.context)
            for stream in (self.uploads, self.main, self.downloads):
                attempt(api.synchronize_stream, stream, "enqueued work was waited for, to close the device")
            while self._deferred:
                attempt(self._deferred.popleft()[1])
            for release in self.pool.reclaimers():
                attempt(release)
            for close in self._closers:
                attempt(close)
            for destroy, handle in self._refused:
                attempt(destroy, handle)
            attempt(self.pool.close)
            attempt(api.synchronize_stream, self.main, "memory was waited for, to close the device")
            for pieces in (self.upload_pieces, self.download_pieces):
                attempt(pieces.close)
            for module in self._modules.values():
                attempt(api.unload_module, module)
            for event in self._made_events:
                attempt(api.destroy_event, event)
            attempt(api.destroy_pool, self.pool_handle)
            for stream in (self.uploads, self.main, self.downloads, self.recording):
                attempt(api.destroy_stream, stream)
            attempt(api.release_context, self.handle)
            self.context = None
            self._modules, self._functions, self._shared = {}, {}, {}
            self._events.closed = True
            self._events, self._made_events = Handles(), []
            self._flight.clear()
            self._refused, self.given, self.waited = [], [], None
            self.reached.clear()
        if errors:
            raise errors[0]

    def on_close(self, function: Callable[[], None]) -> None:
        """Registers a function to call whenever this device is closed, after all programs have ended and while the
        context is current: libraries release their resources on the device there."""
        self._closers.append(function)

    # --- errors ---

    def guard(self) -> _Guard:
        """A context manager around calls of the driver, which it returns: one thread at a time, the context current. It
        records the loss of the device."""
        return self._guard

    def _enter(self) -> None:
        # With several GPUs other libraries change the current context, too.
        if not self._only_gpu or self.context is None or getattr(_current, "context", None) is not self.context:
            self.open()
        if self.lost is not None:
            raise self._gone(self.lost)
        if self.failure is not None:
            raise self.failure
        if self._deferred:
            self._run_deferred()
        if self.given:
            collect(self)

    def _lose(self, error: CudaDeviceLostError) -> CudaDeviceLostError:
        """Records that the device is lost, and names the programs that may have caused it."""
        if self.lost is None:
            suspects = list(dict.fromkeys(program for _, program in self._flight))
            found = error.found
            if suspects:
                found += f"; running since the device was last waited for: {', '.join(p.name for p in suspects)}"
            lines = list(dict.fromkeys(line for p in suspects for line in p.lines))
            where = error.source or "; ".join(lines[:6]) + (f"; {len(lines) - 6} more" if len(lines) > 6 else "")
            self.lost = CudaDeviceLostError(error.asked, found, error.repair, where, error.code, error.name)
            self.lost.programs, self.lost.told = tuple(p.name for p in suspects), True
        return self.lost

    def _gone(self, lost: CudaDeviceLostError) -> CudaDeviceLostError:
        error = CudaDeviceLostError(
            f"{self}, which was lost",
            f"before: {lost.asked}: {lost.found}",
            "restart the process; the CPU and other GPUs still work" if lost.code else lost.repair,
            lost.source,
            lost.code,
            lost.name,
        )
        error.programs, error.told = lost.programs, True
        return error

    # --- events ---

    def event(self) -> Event:
        """An event that nothing else refers to."""
        try:
            handle = self._events.pop()
        except IndexError:
            handle = self.api.create_event()
            self._made_events.append(handle)
        return Event(handle, self._events)

    def record(self, stream) -> Event:
        """An event after everything that is on the stream now."""
        event = self.event()
        self.api.record(event.handle, stream)
        if stream is self.main:
            event.calls = self._calls
        return event

    def follow(self, event: Event) -> None:
        """Makes the main stream wait for an event, which may be of another device."""
        if not event.is_over:
            self.api.wait_event(self.main, event.handle)

    def wait(self, event: Event, asked: str) -> None:
        """Waits for an event. Raises CudaError, also of earlier work. Other threads can enqueue meanwhile."""
        with self.guard() as api:
            pass
        try:
            api.synchronize_event(event.handle, asked)
        except CudaDeviceLostError as error:
            with self.lock:
                raise self._lose(error) from None
        if self.failure is not None:  # it has ended because others were missing
            raise self.failure
        with self.lock:
            flight = self._flight
            while flight and flight[0][0] <= event.calls:
                flight.popleft()

    def milliseconds(self, function: Callable[[], object]) -> float:
        """How long the main stream takes for the work that a function enqueues. Waits for it. Raises CudaError."""
        with self.guard() as api:
            first, last = (api.create_event(timing=True) for _ in range(2))
            try:
                api.record(first, self.main)
                function()
                api.record(last, self.main)
                api.synchronize_event(last, "a program was timed")
                return api.milliseconds(first, last)
            finally:
                self.discard(api.destroy_event, first)
                self.discard(api.destroy_event, last)

    def launched(self, program: Running) -> None:
        """Records a call of a program as in flight."""
        self._calls += 1
        self._flight.append((self._calls, program))

    def synchronize(self) -> None:
        """Waits for everything that was enqueued. Raises CudaError."""
        with self.guard() as api:
            for stream in (self.uploads, self.main, self.downloads):
                api.synchronize_stream(stream, f"everything that was enqueued on {self} was waited for")
            self._flight.clear()

    def drain(self, stream) -> None:
        """Waits for a stream after an error on it, and ignores further ones."""
        _quietly(self.api.synchronize_stream, stream, "a stream was waited for")

    def discard(self, destroy: Callable, handle) -> None:
        """Destroys a handle; where the driver refuses, `close` tries again. Raises nothing."""
        try:
            destroy(handle)
        except CudaError:
            self._refused.append((destroy, handle))

    def defer(self, function: Callable[[], None], after: list | tuple = ()) -> None:
        """Calls a function once everything that is on the main stream now is done, and after some events of other
        streams. Safe in a destructor."""
        self._deferred.append((after, function))

    def _run_deferred(self) -> None:
        pending = self._deferred
        for _ in range(len(pending)):
            event, function = pending[0]  # removed only when the calls for it have succeeded
            if not isinstance(event, Event):
                for reader in event:
                    self.follow(reader)
                event = self.record(self.main)
            elif self.api.query_event(event.handle, "work was waited for"):
                pending.popleft()
                function()
                continue
            pending.popleft()
            pending.append((event, function))

    # --- memory ---

    def put(self, array: np.ndarray, label: str = "an array") -> Buffer:
        """A copy of an array's bytes on this device. label: the user's name for it. Raises CudaError."""
        array = np.ascontiguousarray(array)
        with self.guard():
            return upload(self, array, label)

    def put_all(self, arrays: Sequence[np.ndarray], labels: Sequence[str]) -> list[Buffer]:
        """As `put` for each array, with one copy for those that are small. Raises CudaError."""
        with self.guard():
            return upload_all(self, [np.ascontiguousarray(array) for array in arrays], labels)

    def get(self, buffer: Buffer, array: np.ndarray, asked: str = "") -> Download:
        """Begins to copy a buffer to a C-contiguous array of the host."""
        with self.guard():
            asked = asked or f"{array.nbytes:,} bytes of {buffer.label} were copied from {self}"
            return Download(self, buffer, array, asked)

    def copy(self, buffer: Buffer) -> Buffer:
        """A copy of a buffer of this device, in the order of the main stream. Raises CudaError."""
        with self.guard() as api:
            self.use(buffer)
            target = self.pool.take(buffer.nbytes, buffer.label)
            if buffer.nbytes:
                asked = f"{buffer.nbytes:,} bytes of {buffer.label} were copied on {self}"
                api.copy(target.address, buffer.address, buffer.nbytes, self.main, asked)
            target.ready = self.record(self.main)
        return target

    def use(self, buffer: Buffer) -> None:
        """Makes the main stream wait for a buffer that is still being filled."""
        if buffer.pending is not None:
            if buffer.pending is not self.waited:
                self.api.wait_event(self.main, buffer.pending.handle)
                self.waited = buffer.pending
            buffer.pending = None

    def overwrite(self, buffer: Buffer) -> None:
        """Makes the main stream wait for pending writes to a buffer, and for its readers."""
        self.use(buffer)
        while buffer.readers:
            self.follow(buffer.readers[-1])
            buffer.readers.pop()

    def memory(self) -> PoolStatistics:
        """Memory of this process on this device."""
        with self.guard():
            return self.pool.statistics()

    # --- machine code ---

    def function(self, kernel: Kernel, shared: int = 0, where: str = "") -> object:
        """The loaded kernel, which may use `shared` bytes of dynamic shared memory."""
        try:
            handle = self._functions[kernel][0]
        except KeyError:
            handle = self._load(kernel, where)
        if shared > DEFAULT_SHARED and shared > self._shared.get(kernel, 0):
            self.api.allow_shared(handle, shared, kernel.name)
            self._shared[kernel] = shared
        return handle

    def _load(self, kernel: Kernel, where: str) -> object:
        try:
            module = self._modules.get(kernel.cubin)
            if module is None:
                module = self._modules[kernel.cubin] = self.api.load_module(kernel.cubin, kernel.name)
            handle = self.api.function(module, kernel.name)
            self._functions[kernel] = handle, self.api.function_facts(handle)
        except CudaError as error:
            error.locate(where)
            raise
        return handle

    def function_facts(self, kernel: Kernel) -> FunctionFacts:
        """Registers and memory of a kernel as the driver loaded it. Raises CudaModuleError."""
        with self.guard():
            self.function(kernel)
            return self._functions[kernel][1]

    def condition_kernel(self, by_index: bool) -> tuple[Kernel, object]:
        """The kernel that sets the condition of a graph's node, and its loaded function."""
        kernel = Kernel(self._condition(self.facts.arch), "set_index" if by_index else "set_pred")
        return kernel, self.function(kernel)


def _quietly(function, *arguments) -> None:
    """Calls a function after an error; its own errors would only be consequences."""
    with contextlib.suppress(CudaError):
        function(*arguments)
