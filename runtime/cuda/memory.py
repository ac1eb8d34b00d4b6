"""Device memory: a stream-ordered pool with named buffers, and the handling of out-of-memory conditions.

The driver's own pool (`cuMemAllocFromPoolAsync`) holds the memory. It is fronted by shelves of blocks by size: a
program's outputs reuse the addresses of freed arrays, so that its graph keeps the arguments of an earlier call, and a
call allocates without the driver. A block on a shelf may be used again by work that is enqueued on the main stream at
any later time, since everything that used it is on that stream, or the stream has waited for it.

A `Buffer` returns to the pool with its last reference. Since that can happen at any point, it is only noted there; the
pool acts on it at the next allocation.
"""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Callable

from hloom.ir.records import record
from hloom.runtime.cuda.errors import CudaDeviceLostError, CudaError, CudaOutOfMemoryError
from hloom.runtime.cuda.events import Event

GRANULE = 512  # bytes: the driver's alignment, sufficient for every vector load
_LARGE, _LARGE_GRANULE = 1 << 20, 1 << 16
LARGEST_NAMED = 8


@record(frozen=True)
class PoolStatistics:
    """bytes_in_use: of live buffers. bytes_idle: of blocks on shelves. peak: the most that was in use.

    hits, misses: requests answered from a shelf, and by the driver. retries: times that memory ran out and was found.
    """

    bytes_in_use: int
    bytes_idle: int
    peak: int
    hits: int
    misses: int
    retries: int


class Buffer:
    """Device memory that goes back to its pool with its last reference. label: the user's name for what is in it.

    pending: the event (of an upload) that the main stream has to wait for before it uses the buffer, or None.
    readers: events of other streams that read it; the main stream waits for them before the memory is used again.
    stream: a stream other than the main one, as long as only that stream may use it.
    ready: the event after which its contents are available, or None if they already are.
    owned: whether the memory is hloom's; memory lent by another library must not be written.
    shelved: whether the pool keeps the block; those that another stream used first go back to the driver, which knows
    when that stream can have them again.
    """

    __slots__ = (
        "__weakref__",
        "_release",
        "address",
        "capacity",
        "label",
        "nbytes",
        "owned",
        "pending",
        "readers",
        "ready",
        "shelved",
        "stream",
    )

    def __init__(self, address: int, nbytes: int, capacity: int, label: str, release: Callable, stream=None):
        self.address, self.nbytes, self.capacity, self.label = address, nbytes, capacity, label
        self.pending: Event | None = None
        self.ready: Event | None = None
        self.readers: list = []
        self.stream = stream
        self.shelved = stream is None
        self.owned = True
        self._release = release

    def __del__(self):
        release = getattr(self, "_release", None)
        if release is not None:
            release(self.address, self.capacity, self.stream, self.pending, self.readers, self.shelved)


def rounded(nbytes: int) -> int:
    """The block size used for an allocation of this many bytes."""
    granule = GRANULE if nbytes <= _LARGE else _LARGE_GRANULE
    return max(granule, -(-nbytes // granule) * granule)


class Pool:
    """The memory of one device. `device` provides the driver, its handle of the pool, and the main stream.

    idle_limit: bytes that may wait on shelves; beyond it the least recently requested sizes are returned to the driver.
    """

    def __init__(self, device, idle_limit: int):
        self.device, self.idle_limit = device, idle_limit
        self._shelves: dict[int, list[int]] = {}  # by capacity; blocks used last are at the end
        self._stamps: dict[int, int] = {}  # by capacity: the hit count at its last request
        self._returned: deque = deque()
        self._live: dict[int, weakref.ref] = {}
        self._refused: list[tuple[int, object]] = []  # addresses to be freed, and on which stream
        self._capacity: dict[int, int] = {}  # of every block that the driver has given
        self._reclaimers: list[weakref.WeakMethod] = []
        self._in_use = self._idle = self._peak = self._hits = self._misses = self._retries = 0

    # --- taking and giving back ---

    def take(self, nbytes: int, label: str, stream=None) -> Buffer:
        """A buffer of at least `nbytes` bytes, contents arbitrary. Raises CudaOutOfMemoryError.

        stream: the first stream to use it, if not the main stream: such a block is allocated by the driver, which knows
        which memory this stream need not wait for.
        """
        if self._returned or self._refused:
            self._collect()
        capacity = rounded(nbytes)
        shelf = self._shelves.get(capacity) if stream is None else None
        if shelf:
            self._stamps[capacity] = self._hits
            address = shelf.pop()
            self._idle -= capacity
            self._hits += 1
        else:
            address = self._allocate(capacity, nbytes, label, stream)
            self._misses += 1
        self._in_use += capacity
        if self._in_use > self._peak:
            self._peak = self._in_use
        buffer = Buffer(address, nbytes, capacity, label, self._give_back, stream)
        self._live[address] = weakref.ref(buffer)
        return buffer

    def _give_back(self, address: int, capacity: int, stream, pending, readers: list, shelved: bool) -> None:
        # Atomic: this may run in the middle of any other method.
        self._returned.append((address, capacity, stream, pending, readers, shelved))

    def _collect(self) -> None:
        """Shelves the returned blocks."""
        device = self.device
        while self._returned:
            address, capacity, stream, pending, readers, shelved = self._returned[0]
            if readers or pending is not None:
                uploaded = () if pending is None or pending is device.waited else (pending,)
                for event in (*readers, *uploaded):
                    device.follow(event)
            self._returned.popleft()
            self._in_use -= capacity
            if stream is not None:  # it never reached the main stream, which therefore must not use it
                self._refused.append((address, stream))
                continue
            if not shelved:
                self._refused.append((address, device.main))
                continue
            self._idle += capacity
            shelf = self._shelves.get(capacity)
            if shelf is None:
                shelf = self._shelves[capacity] = []
            shelf.append(address)
        if self._idle > self.idle_limit or self._refused:
            self._free_idle(self.idle_limit)

    def _free_idle(self, keep: int) -> None:
        for capacity in sorted(self._shelves, key=lambda capacity: self._stamps.get(capacity, -1)):
            shelf = self._shelves[capacity]
            while shelf and self._idle > keep:
                address = shelf.pop(0)
                self._idle -= capacity
                self._refused.append((address, self.device.main))
            if not shelf:
                del self._shelves[capacity]
        while self._refused:  # a refused one stays in the list, and is retried the next time
            address, stream = self._refused[-1]
            try:
                self.device.api.free(address, stream)
            except CudaDeviceLostError:
                raise
            except CudaError:
                break
            self._refused.pop()
            del self._capacity[address]
            self._live.pop(address, None)

    # --- running out ---

    def _allocate(self, capacity: int, nbytes: int, label: str, stream) -> int:
        device = self.device
        asked = f"{nbytes:,} bytes of {device} were asked for, for {label}"
        where = device.main if stream is None else stream
        try:
            address = device.api.allocate(capacity, device.pool_handle, where, asked)
        except CudaOutOfMemoryError:
            self.release_unused()
            try:
                address = device.api.allocate(capacity, device.pool_handle, where, asked)
            except CudaOutOfMemoryError as error:
                raise self._exhausted(error) from None
            self._retries += 1
        self._capacity[address] = capacity
        return address

    def release_unused(self) -> None:
        """Frees unused memory: buffers in reference cycles, idle blocks, temporaries of idle programs."""
        gc.collect()
        for reclaim in self.reclaimers():
            reclaim()
        self._collect()
        self._free_idle(0)
        device = self.device
        device.api.synchronize_stream(device.main, "enqueued work was waited for, to free its memory")
        device.api.trim_pool(device.pool_handle, 0)

    def on_pressure(self, method: Callable[[], None]) -> None:
        """Has a bound method called when memory runs out, for as long as its object lives."""
        self._reclaimers.append(weakref.WeakMethod(method))

    def reclaimers(self) -> list[Callable[[], None]]:
        """The callbacks passed to `on_pressure` whose objects are still alive."""
        self._reclaimers = [method for method in self._reclaimers if method() is not None]
        return [reclaim for method in self._reclaimers if (reclaim := method()) is not None]

    def _exhausted(self, error: CudaOutOfMemoryError) -> CudaOutOfMemoryError:
        largest = self.largest()
        listed = "; ".join(f"{label} {_size(nbytes)}" for label, nbytes in largest) or "none"
        try:
            free, total = self.device.api.free_memory()
            state = f"{_size(free)} of {_size(total)} are free"
        except CudaError:
            state = "how much is free is not known"
        found = CudaOutOfMemoryError(
            error.asked,
            f"{state} after everything cached was given back; {_size(self._in_use)} are in use, the largest: {listed}",
            "delete arrays that are not needed (donate_argnums lets a program write over them), or use smaller batches",
            error.source,
            error.code,
            error.name,
        )
        found.largest = tuple(largest)
        return found

    def largest(self, count: int = LARGEST_NAMED) -> list[tuple[str, int]]:
        """(label, bytes) of the largest live buffers, the largest first."""
        live = [buffer for buffer in (r() for r in list(self._live.values())) if buffer is not None]
        live.sort(key=lambda buffer: -buffer.nbytes)
        return [(buffer.label, buffer.nbytes) for buffer in live[:count]]

    # --- books ---

    def statistics(self) -> PoolStatistics:
        self._collect()
        return PoolStatistics(self._in_use, self._idle, self._peak, self._hits, self._misses, self._retries)

    def trim(self) -> None:
        """Returns idle blocks to the driver, and the driver's cached memory to the system."""
        self._collect()
        self._free_idle(0)
        self.device.api.trim_pool(self.device.pool_handle, 0)

    def close(self) -> None:
        """Frees every block, live ones too: their buffers are dead from then on. Waits for other devices that read."""
        live = [buffer for ref in list(self._live.values()) if (buffer := ref()) is not None]
        for readers in [*(buffer.readers for buffer in live), *(entry[4] for entry in self._returned)]:
            for event in readers:
                if not event.is_over:
                    self.device.api.synchronize_event(event.handle, "who reads memory was waited for, to free it")
        for address in list(self._capacity):
            self.device.api.free(address, self.device.main)
            del self._capacity[address]
        self._shelves, self._refused, self._idle = {}, [], 0


def _size(nbytes: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} bytes"
