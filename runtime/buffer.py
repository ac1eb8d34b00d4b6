"""Memory for outputs and temporaries: aligned, and recycled, because fresh pages cost more than the arithmetic.

    allocate(shape, dtype) -> ndarray          from the pool of this process (`default_pool()`)
    shelf(shape, dtype) -> Shelf               for a caller that needs this shape often: shelf.take() -> ndarray
    address(array) -> int                      of the first element
    Arena(nbytes)                              aligned bytes for temporaries: .address, .array, .nbytes
    statistics() -> Statistics, trim() -> int

An array from the pool belongs to its user for as long as anything refers to it: the array, a view, a memoryview, a
DLPack capsule. When the last reference is gone the memory may be reused; no explicit release is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import mmap
import os
import sys
from collections.abc import Sequence
from sys import getrefcount

import numpy as np

from hloom.ir.base_error import out_of_memory
from hloom.ir.process import forking, memory
from hloom.ir.records import record
from hloom.ir.types import Shape
from hloom.runtime import code_memory

ALIGNMENT = 64
_HUGE_PAGE = 2 << 20
_LARGE = 2 * _HUGE_PAGE  # blocks of this size get separate pages, huge pages where the system supports them

_SWEPT = 32 << 20  # bytes of new small blocks from which idle ones that were not used meanwhile are freed

_SPARE = 8  # times its size that a block may be larger than the array it is recycled for

# CPython keeps an ndarray's data address right after the object header.
_DATA_OFFSET = object.__basicsize__
_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()


def address(array: np.ndarray) -> int:
    """Address of the first element of `array`. Some 100 ns; `array.ctypes.data` takes five times as long."""
    return ctypes.c_int64.from_address(id(array) + _DATA_OFFSET).value


def _address_slow(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


_probe = np.empty(3)
if not _GIL or address(_probe) != _address_slow(_probe):
    address = _address_slow  # another layout of objects (free-threaded Python)


def is_own(array: np.ndarray) -> bool:
    """Whether hloom owns the array's memory (from a pool, or a copy), so that it is not written while the array lives.
    Views of a caller's arrays and memory lent by other libraries do not count."""
    base = array.base
    if isinstance(base, np.ndarray):  # a view of a block, as handed out by a shelf
        base = base.base or base
    return array.flags.writeable and (base is None or isinstance(base, bytearray | mmap.mmap))


def _block(nbytes: int) -> tuple[bytearray | mmap.mmap, int]:
    """An object with the buffer protocol that owns at least `nbytes` bytes, and the offset of the first aligned one.

    The owner is deliberately not an ndarray: NumPy would make it the base of every view of a view, and the pool could
    not tell that views of an array are alive.
    """
    owner: bytearray | mmap.mmap
    if nbytes < _LARGE:
        owner, alignment = bytearray(nbytes + ALIGNMENT), ALIGNMENT
    else:
        owner = pages = mmap.mmap(-1, nbytes + _HUGE_PAGE)
        alignment = _HUGE_PAGE
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # kernels without transparent huge pages
                pages.madvise(mmap.MADV_HUGEPAGE)
    start = _address_slow(np.frombuffer(owner, np.uint8))
    return owner, -start % alignment


def _owner(array: np.ndarray) -> bytearray | mmap.mmap:
    """The block of an array that `_new_array` made."""
    owner = array.base
    assert isinstance(owner, bytearray | mmap.mmap)
    return owner


def _capacity(array: np.ndarray) -> int:
    """Bytes of the block of an array that `_new_array` made."""
    owner = _owner(array)
    return len(owner) - (ALIGNMENT if type(owner) is bytearray else _HUGE_PAGE)


def _new_array(shape: tuple[int, ...], dtype: np.dtype, asked: str = "") -> np.ndarray:
    """Raises OutOfMemoryError. asked: the purpose of the memory, unless it is a result."""
    nbytes = math.prod(shape) * dtype.itemsize
    try:
        owner, offset = _block(nbytes)
    except (OSError, OverflowError, MemoryError) as error:
        asked = asked or f"memory for an array {Shape(dtype, shape)!r}"
        raise out_of_memory(asked, f"{nbytes} bytes, which the system refuses: {error}") from None
    return np.ndarray(shape, dtype, owner, offset)


def _free_count() -> int:
    """The reference count, inside `Shelf.take`, of an array without other references (depends on the Python
    version)."""
    arrays = [np.empty(1)]
    array = arrays[0]
    return getrefcount(array)


_FREE = _free_count()
# What `getrefcount` says of an array that only the variable holds that it is called with, and that has one more holder.
_COUNTED = _FREE - 1


@record(frozen=True)
class Statistics:
    """Counters of a pool since it was made.

    bytes_allocated: bytes of all blocks ever made. bytes_held: bytes of the blocks the pool keeps, in use or idle.
    hits, misses:    requests answered by a recycled block of that shape, and by a new one or one of another shape.
    """

    bytes_allocated: int
    bytes_held: int
    hits: int
    misses: int


class Shelf:
    """The blocks of one shape and dtype."""

    __slots__ = ("arrays", "dtype", "hits", "nbytes", "pool", "position", "seen", "shape", "stamp")

    def __init__(self, pool: Pool, shape: tuple[int, ...], dtype: np.dtype):
        self.pool = pool
        self.shape = shape
        self.dtype = dtype
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.arrays: list[np.ndarray] = []
        self.position = 0
        self.hits = 0
        self.stamp = 0
        self.seen = 0, 0  # hits and stamp when the pool was last swept

    def take(self) -> np.ndarray:
        """An array without other users; its contents are arbitrary."""
        array: np.ndarray | None
        arrays, position = self.arrays, self.position
        try:
            array = arrays[position]
            if getrefcount(array) == _FREE:
                self.hits += 1
                # A view, so that a user who sets shape, dtype or flags in place changes no block.
                return array[...]
            # A program with many outputs of one shape took that one just now, and takes the next.
            position += 1
            array = arrays[position]
            if getrefcount(array) == _FREE:
                self.position = position
                self.hits += 1
                return array[...]
        except IndexError:  # the end of the list
            pass
        array = None  # a reference to a block would make it count as used
        return self._search()

    def _search(self) -> np.ndarray:
        """Look at all blocks, from the one that was free last (a loop that drops its output finds that one again).

        Threads need no lock: each thread's own reference during the look makes the block count as used for all others.
        """
        arrays = self.arrays
        position = self.position
        for _ in range(len(arrays)):
            position += 1
            try:
                array = arrays[position]
            except IndexError:  # the end of the list, or another thread has trimmed it
                if not arrays:
                    break
                position = 0
                array = arrays[0]
            if getrefcount(array) == _FREE:
                self.position = position
                self.hits += 1
                return array[...]
            del array
        return self.pool._add(self)


class Pool:
    """Recycled arrays by shape and dtype.

    limit: bytes of blocks, idle and in use, that the pool keeps track of at most. Beyond it, idle blocks of shapes not
    requested lately are freed first; anything that still does not fit is allocated normally and not recycled.

    Idle small blocks are also freed when their shape was not requested while many others were: a program that keeps
    meeting new shapes retains the blocks of only a few of them.
    """

    def __init__(self, limit: int | None = None):
        self.limit = default_limit() if limit is None else limit
        self._shelves: dict[tuple, Shelf] = {}
        self._lock = forking.lock()
        self._misses = 0
        self._allocated = 0
        self._held = 0
        self._clock = 0
        self._new_small = 0  # bytes of small blocks made since the last sweep

    def allocate(self, shape: tuple[int, ...], dtype) -> np.ndarray:
        """A C-contiguous array of `shape` (a tuple of int) and `dtype`, aligned to 64 bytes, contents arbitrary."""
        try:
            return self._shelves[shape, dtype].take()
        except KeyError:
            return self.shelf(shape, dtype).take()

    def shelf(self, shape: tuple[int, ...], dtype) -> Shelf:
        """The shelf of `shape` and `dtype`, which the pool keeps while it is referenced elsewhere."""
        kind = np.dtype(dtype)
        with self._lock:
            shelf = self._shelves.get((shape, kind))
            if shelf is None:
                shelf = self._shelves[shape, kind] = Shelf(self, tuple(int(extent) for extent in shape), kind)
            return shelf

    def _add(self, shelf: Shelf) -> np.ndarray:
        """A miss: an idle block of another shape, or a new one, kept on the shelf where the limit allows."""
        with self._lock:
            self._misses += 1
            moved = self._moved(shelf)
        if moved is not None:
            return moved
        array = _new_array(shelf.shape, shelf.dtype)
        with self._lock:
            self._allocated += shelf.nbytes
            self._clock += 1
            shelf.stamp = self._clock
            if self._shelves.get((shelf.shape, shelf.dtype)) is not shelf:
                return array  # dropped because it was unused
            if self._held + shelf.nbytes > self.limit:
                self._trim(self.limit - shelf.nbytes)
            if shelf.nbytes < _LARGE:
                self._new_small += shelf.nbytes
                if self._new_small > _SWEPT:
                    self._sweep()
            if _GIL and self._held + shelf.nbytes <= self.limit:
                self._held += shelf.nbytes
                shelf.arrays.append(array)
                return array[...]
        return array

    def _moved(self, shelf: Shelf) -> np.ndarray | None:
        """The least idle block that is large enough, moved from its shelf to this one: its pages are there already.

        None if there is none, and for small arrays, whose allocation costs less than the search.
        """
        if shelf.nbytes < _LARGE or not _GIL:
            return None
        found: tuple[int, Shelf, int] | None = None
        for other in self._shelves.values():
            for index in range(len(other.arrays)):
                array = other.arrays[index]
                size = _capacity(array)
                fits = shelf.nbytes <= size <= _SPARE * shelf.nbytes and (found is None or size < found[0])
                if fits and getrefcount(array) == _FREE:
                    found = size, other, index
                del array
        if found is None:
            return None
        size, other, index = found
        array = other.arrays.pop(index)
        if getrefcount(array) >= _FREE:  # another thread has taken it meanwhile
            other.arrays.insert(index, array)
            return None
        owner = _owner(array)
        offset = address(array) - _address_slow(np.frombuffer(owner, np.uint8))
        array = np.ndarray(shelf.shape, shelf.dtype, owner, offset)
        self._clock += 1
        shelf.stamp = self._clock
        shelf.arrays.append(array)
        return array[...]

    def trim(self, bytes_kept: int = 0) -> int:
        """Give idle blocks back to the system until at most `bytes_kept` bytes are held; the bytes given back."""
        with self._lock:
            return self._trim(bytes_kept)

    def forget_unused(self) -> None:
        """Drop the shelves without other references, with their idle blocks."""
        if not _GIL:
            return
        with self._lock:
            for kind in list(self._shelves):
                shelf = self._shelves.pop(kind)
                if getrefcount(shelf) > _COUNTED:
                    self._shelves[kind] = shelf
                else:
                    self._held -= sum(map(_capacity, shelf.arrays))

    def _sweep(self) -> None:
        """Free the idle small blocks of shapes that were not requested since the last sweep."""
        self._new_small = 0
        for shelf in self._shelves.values():
            seen, shelf.seen = shelf.seen, (shelf.hits, shelf.stamp)
            if shelf.nbytes < _LARGE and shelf.arrays and seen == shelf.seen:
                self._free_idle(shelf, 0)

    def _trim(self, goal: int) -> int:
        before = self._held
        for shelf in sorted(self._shelves.values(), key=lambda shelf: shelf.stamp):
            if self._held <= goal:
                break
            self._free_idle(shelf, goal)
        return before - self._held

    def _free_idle(self, shelf: Shelf, goal: int) -> None:
        """Free idle blocks of a shelf until at most `goal` bytes are held by all."""
        index = 0
        while index < len(shelf.arrays) and self._held > goal:
            # Taken off the shelf before the look: from then on no other thread can find it.
            array = shelf.arrays.pop(index)
            if getrefcount(array) < _FREE:
                self._held -= _capacity(array)
            else:
                shelf.arrays.insert(index, array)
                index += 1
            del array

    @property
    def statistics(self) -> Statistics:
        with self._lock:
            hits = sum(shelf.hits for shelf in self._shelves.values())
            return Statistics(self._allocated, self._held, hits, self._misses)


def default_limit() -> int:
    """A quarter of the machine's memory."""
    try:
        return max(256 << 20, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)
    except (AttributeError, OSError, ValueError):
        return 2 << 30


def is_exclusive(array: np.ndarray, references: int) -> bool:
    """Whether the caller's `references` references to `array` are the only way to its memory, so that it may be
    overwritten: no other view, memoryview or capsule.

    array: from the pool, or a NumPy array made by the program itself. Always False without the GIL, as reference counts
    are then unreliable.
    """
    if not _GIL or getrefcount(array) - _COUNTED > references:
        return False
    base = array.base
    if not isinstance(base, np.ndarray):
        return True  # it holds its memory itself
    # References of a lone view: its own, this function's, and for a block of the pool the shelf's.
    return getrefcount(base) - _COUNTED <= (1 if base.base is None else 2)


def references(holder: Sequence, position: int) -> int:
    """The number of references to an element of a list, the list's included. A very large number without the GIL, as
    counts are then unreliable."""
    return getrefcount(holder[position]) - _OF_AN_ELEMENT if _GIL else sys.maxsize


_LIST = [object()]
_OF_AN_ELEMENT = getrefcount(_LIST[0]) - 1  # references added by passing it on (depends on the Python version)


class Arena:
    """`nbytes` bytes for the temporaries of one activation. address: of the first byte, a multiple of 64.

    guards: offsets of inaccessible guard pages (`hl.config.guard_scratch`); all bytes are then initialized to 0xFF, NaN
    in floats.
    """

    __slots__ = ("address", "array", "nbytes")

    def __init__(self, nbytes: int, guards: Sequence[int] = ()):
        self.nbytes = nbytes
        if guards:
            self.array = np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
            self.address = address(self.array)
            self.array.fill(0xFF)
            for guard in guards:
                code_memory.forbid(self.address + guard)
            return
        self.array = _new_array((nbytes,), np.dtype(np.uint8), "memory for the temporaries of a program")
        self.address = address(self.array)


@functools.cache
def default_pool() -> Pool:
    """The pool of this process."""
    return Pool()


@memory.on_release
def _release(everything: bool) -> None:
    default_pool().forget_unused()
    if everything:
        default_pool().trim()
        if sys.platform == "linux":
            with contextlib.suppress(AttributeError):  # another C library than GNU's
                ctypes.CDLL(None).malloc_trim(0)  # it retains freed memory


def allocate(shape: tuple[int, ...], dtype) -> np.ndarray:
    """An array from the pool of this process; see Pool.allocate."""
    return default_pool().allocate(shape, dtype)


def shelf(shape: tuple[int, ...], dtype) -> Shelf:
    return default_pool().shelf(shape, dtype)


def statistics() -> Statistics:
    return default_pool().statistics


def trim(bytes_kept: int = 0) -> int:
    return default_pool().trim(bytes_kept)
