"""Copies between the host and a device, on separate streams, so that they overlap with kernels.

The driver copies asynchronously only from and to pinned memory, and pinning is slow: so all copies go through a few
pinned pieces that are kept. A piece that was copied from may be written again once its event has happened, one that was
copied to once the host has read it.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Sequence

import numpy as np

from hloom.ir.process import forking
from hloom.runtime.cuda.memory import Buffer, rounded

# Bytes of a piece, and how many of them one direction keeps at most.
SIZES = ((64 << 10, 32), (4 << 20, 4))
PIECE = SIZES[-1][0]
AHEAD = 3  # pieces of one array in flight to the host concurrently


class Pieces:
    """The pinned pieces of one direction. The first of a size is allocated by the first copy that needs it."""

    def __init__(self, device):
        self.device = device
        self._free: dict[int, list[int]] = {size: [] for size, _ in SIZES}
        self._busy: dict[int, deque] = {size: deque() for size, _ in SIZES}  # (address, event): the oldest first
        self._made: dict[int, int] = {}  # address -> size
        self.readers: dict[int, weakref.ref] = {}  # downloads that may hold pieces, by their id, the oldest first

    def take(self, nbytes: int) -> tuple[int, int]:
        """(address, size) of a piece of at least `nbytes` bytes that nothing uses."""
        size, limit = next((size, limit) for size, limit in SIZES if nbytes <= size)
        free, busy, api = self._free[size], self._busy[size], self.device.api
        while not free:
            full = list(self._made.values()).count(size) >= limit
            if busy and (full or api.query_event(busy[0][1].handle, "a copy was made")):
                if full:
                    api.synchronize_event(busy[0][1].handle, "a copy was waited for")
                free.append(busy.popleft()[0])
            elif not full or not self.readers:
                address = api.allocate_pinned(size)
                self._made[address] = size
                free.append(address)
            else:
                # A reader may be waiting for this thread: skip its piece, and allocate an extra one instead.
                reader = self.readers.pop(next(iter(self.readers)))()
                if reader is not None:
                    reader.finish(wait=False)
        return free.pop(), size

    def use(self, address: int, size: int, event) -> None:
        """The piece is in use until the event."""
        self._busy[size].append((address, event))

    def give(self, address: int, size: int) -> None:
        """The piece is not used any more."""
        self._free[size].append(address)

    def close(self) -> None:
        for address in list(self._made):
            self.device.api.free_pinned(address)
            del self._made[address]
        self._free = {size: [] for size, _ in SIZES}
        self._busy = {size: deque() for size, _ in SIZES}


def upload(device, array: np.ndarray, label: str) -> Buffer:
    """A buffer with the bytes of a C-contiguous array, which may be modified as soon as this returns. Does not wait for
    work on the main stream. Raises CudaError."""
    api, stream, pieces = device.api, device.uploads, device.upload_pieces
    asked = f"{array.nbytes:,} bytes of {label} were copied to {device}"
    buffer = device.pool.take(array.nbytes, label, stream)
    source = array.__array_interface__["data"][0]
    done = None
    for first in range(0, array.nbytes, PIECE):
        count = min(PIECE, array.nbytes - first)
        address, size = pieces.take(count)
        ctypes.memmove(address, source + first, count)
        try:
            api.copy(buffer.address + first, address, count, stream, asked)
            done = device.record(stream)
        except BaseException:
            device.drain(stream)  # the copy may run all the same: only then is the piece free
            pieces.give(address, size)
            raise
        pieces.use(address, size, done)
    buffer.pending = buffer.ready = done or device.record(stream)
    buffer.stream = None
    return buffer


TOGETHER = 16 << 10  # bytes of an array up to which it shares a copy with others


def upload_all(device, arrays: list[np.ndarray], labels: Sequence[str]) -> list[Buffer]:
    """As `upload` for each array; the small ones are one copy into one block, which goes back with the last of them."""
    result: list[Buffer | None] = [None] * len(arrays)
    small = [k for k, array in enumerate(arrays) if array.nbytes <= TOGETHER]
    while len(small) > 1:
        group, size = [], 0
        while small and size + rounded(arrays[small[0]].nbytes) <= SIZES[0][0]:
            group.append((small.pop(0), size))
            size += rounded(arrays[group[-1][0]].nbytes)
        packed = np.empty(size, np.uint8)
        for k, start in group:
            packed[start : start + arrays[k].nbytes] = arrays[k].reshape(-1).view(np.uint8)
        block = upload(device, packed, ", ".join(labels[k] for k, _ in group))
        for k, start in group:
            part = Buffer(block.address + start, arrays[k].nbytes, 0, labels[k], _part_of(block))
            part.pending = part.ready = block.pending
            result[k] = part
    return [
        upload(device, array, labels[k]) if made is None else made
        for k, (array, made) in enumerate(zip(arrays, result, strict=True))
    ]


def _part_of(block: Buffer):
    """The release of a part of a block, which keeps the block for as long as the part lives."""

    def release(address, capacity, stream, pending, readers, shelved):
        block.readers.extend(readers)

    return release


def read(device, address: int, nbytes: int, asked: str, where: str = "") -> bytearray:
    """Reads bytes of a program's memory, after the work on the main stream."""
    result, pieces = bytearray(nbytes), device.download_pieces
    for first in range(0, nbytes, PIECE):
        count = min(PIECE, nbytes - first)
        piece, size = pieces.take(count)
        try:
            device.api.copy(piece, address + first, count, device.main, asked, where)
            device.wait(device.record(device.main), asked)
            result[first : first + count] = ctypes.string_at(piece, count)
        except BaseException:
            device.drain(device.main)
            raise
        finally:
            pieces.give(piece, size)
    return result


def write(device, address: int, array: np.ndarray, asked: str, where: str = "") -> None:
    """Puts an array at a place of a program, in the order of the main stream. array: C-contiguous."""
    source, pieces = array.__array_interface__["data"][0], device.upload_pieces
    for first in range(0, array.nbytes, PIECE):
        count = min(PIECE, array.nbytes - first)
        piece, size = pieces.take(count)
        ctypes.memmove(piece, source + first, count)
        try:
            device.api.copy(address + first, piece, count, device.main, asked, where)
            event = device.record(device.main)
        except BaseException:
            device.drain(device.main)
            pieces.give(piece, size)
            raise
        pieces.use(piece, size, event)


class Download:
    """A copy of a buffer to the host under way. `result()` waits for it and returns the array.

    All of it is enqueued immediately, so that later writes to the buffer are not visible in it. For an array larger
    than the pinned pieces, this waits for the part that does not fit.
    """

    def __init__(self, device, buffer: Buffer, array: np.ndarray, asked: str):
        """array: C-contiguous, of no more bytes than the buffer."""
        self.device, self.array, self.asked = device, array, asked
        self.buffer: Buffer | None = buffer  # kept until it was read
        self._held: deque = deque()  # (first byte, bytes, address, size, event)
        self._mine = forking.rlock()
        api, stream = device.api, device.downloads
        before = device.record(device.main)
        self._calls = before.calls
        api.wait_event(stream, before.handle)
        if buffer.pending:
            api.wait_event(stream, buffer.pending.handle)
        for first in range(0, array.nbytes, PIECE):
            if len(self._held) >= AHEAD:
                self._read()
            self._enqueue(buffer, first, min(PIECE, array.nbytes - first))
        if self._held:
            device.download_pieces.readers[id(self)] = weakref.ref(self)

    def _enqueue(self, buffer: Buffer, first: int, count: int) -> None:
        device, readers = self.device, buffer.readers
        pieces, stream = device.download_pieces, device.downloads
        address, size = pieces.take(count)
        try:
            device.api.copy(address, buffer.address + first, count, stream, self.asked)
            event = device.record(stream)
            event.calls = self._calls
        except BaseException:
            device.drain(stream)
            pieces.give(address, size)
            raise
        if self._held and self._held[-1][-1] in readers:
            readers.remove(self._held[-1][-1])  # the last is enough: one stream makes all copies
        readers.append(event)
        self._held.append((first, count, address, size, event))

    def _read(self) -> None:
        """Waits for the oldest piece, and puts it into the array."""
        first, count, address, size, event = self._held[0]
        self.device.wait(event, self.asked)
        ctypes.memmove(self.array.__array_interface__["data"][0] + first, address, count)
        self._held.popleft()
        self.device.download_pieces.give(address, size)

    def finish(self, wait: bool = True) -> bool:
        """Waits until everything is in the array. wait=False: not for another thread that does so; then it is False.
        Raises CudaError."""
        if not self._mine.acquire(blocking=wait):
            return False
        try:
            while self._held:
                self._read()
            self.buffer = None
            self.device.download_pieces.readers.pop(id(self), None)
        finally:
            self._mine.release()
        return True

    def result(self) -> np.ndarray:
        """The array, once it is complete. Raises CudaError."""
        self.finish()
        return self.array

    def __del__(self):
        held = getattr(self, "_held", ())
        if held:  # these have not been read
            self.device.download_pieces.readers.pop(id(self), None)
        for _, _, address, size, event in held:
            self.device.download_pieces.use(address, size, event)
