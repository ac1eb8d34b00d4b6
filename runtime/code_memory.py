"""Memory for machine code: blocks shared by many objects, unmapped when nothing in them is in use.

    place(sizes) -> list[Piece]        one range of whole pages for each size, writable until it is sealed
    seal(pieces)                       makes them executable and read-only
    statistics() -> Statistics

A process may have 65,530 mappings on Linux, so objects do not get separate mappings: a block of a megabyte has two or
three, however many objects are in it. Memory is never writable and executable at the same time: the pages of a new
object are writable until it is complete, those of the other objects in the block stay as they are.

A Piece owns its pages. When the last reference to it is gone, its pages go back to the system and may hold another
object; a block without pieces is unmapped. So every holder of a code address must also hold the piece.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from collections import deque
from collections.abc import Sequence

from hloom.ir.process import forking
from hloom.ir.records import record

PAGE = mmap.PAGESIZE
BLOCK = 1 << 20

_WRITABLE, _EXECUTABLE = mmap.PROT_READ | mmap.PROT_WRITE, mmap.PROT_READ | mmap.PROT_EXEC


class NotExecutableError(Exception):
    """The system does not let this process execute memory that it has written."""


@record(frozen=True)
class Statistics:
    """blocks: their number. bytes_held: of all blocks. bytes_used: of the pages of pieces in them."""

    blocks: int
    bytes_held: int
    bytes_used: int


@functools.cache
def _mprotect():
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


def _protect(address: int, nbytes: int, protection: int) -> None:
    if _mprotect()(address, nbytes, protection):
        raise NotExecutableError(f"mprotect answers error {ctypes.get_errno()}")


def forbid(address: int) -> None:
    """Makes the page at an address inaccessible."""
    _protect(address, PAGE, 0)


class _Block:
    """A mapping, private to this process, so that a forked child has its own copy. free: ranges of pages, in order:
    [first, count]."""

    def __init__(self, nbytes: int):
        self.memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=_WRITABLE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        # A reference dropped only by `release`: at exit the interpreter clears modules in an unspecified order, and
        # destructors and threads of other libraries (those of jax's arrays) may still call this code.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.memory))
        self.pages = nbytes // PAGE
        self.free = [[0, self.pages]]

    def take(self, pages: int) -> int | None:
        """The first of this many free pages; None if there are not so many in a row."""
        for index, (first, number) in enumerate(self.free):
            if number >= pages:
                if number == pages:
                    del self.free[index]
                else:
                    self.free[index] = [first + pages, number - pages]
                return first
        return None

    def release(self) -> None:
        """Unmaps it, when the last piece lets go of it."""
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(self.memory))

    def give_back(self, first: int, pages: int) -> None:
        # The system takes the pages; they read as zeros until another object is written there.
        self.memory.madvise(mmap.MADV_DONTNEED, first * PAGE, pages * PAGE)
        merged: list[list[int]] = []
        for at, number in sorted([*self.free, [first, pages]]):
            if merged and merged[-1][0] + merged[-1][1] == at:
                merged[-1][1] += number
            else:
                merged.append([at, number])
        self.free = merged


class Piece:
    """Some pages of a block. `len(piece)` is their size in bytes; `address` that of the first byte."""

    __slots__ = ("_block", "_first", "_owner", "_pages", "address")

    def __init__(self, owner: _Blocks, block: _Block, first: int, pages: int):
        self._owner, self._block, self._first, self._pages = owner, block, first, pages
        self.address = block.address + first * PAGE

    def __len__(self) -> int:
        return self._pages * PAGE

    @property
    def memory(self) -> memoryview:
        """The bytes, to be written before the piece is sealed."""
        start = self._first * PAGE
        return memoryview(self._block.memory)[start : start + len(self)]

    def __del__(self, _is_finalizing=sys.is_finalizing) -> None:
        # While the interpreter ends, threads may still be in the code; the system takes it all.
        if not _is_finalizing():
            self._owner.give_back(self._block, self._first, self._pages)


class _Blocks:
    """The blocks of a process."""

    def __init__(self) -> None:
        self._lock = forking.lock()
        self._blocks: list[_Block] = []
        self._returned: deque[tuple[_Block, int, int]] = deque()
        forking.on_fork(child=self._forget)

    def _forget(self) -> None:
        """In a forked child: another thread may have been changing the lists. Pieces keep their blocks."""
        self._blocks, self._returned = [], deque()

    def place(self, sizes: Sequence[int]) -> list[Piece]:
        with self._lock:
            self._collect()
            pieces = [self._place(max(1, -(-size // PAGE))) for size in sizes]
        for piece in pieces:
            _protect(piece.address, len(piece), _WRITABLE)
        return pieces

    def _place(self, pages: int) -> Piece:
        for block in reversed(self._blocks):  # the latest has room most often
            first = block.take(pages)
            if first is not None:
                return Piece(self, block, first, pages)
        block = _Block(max(BLOCK, pages * PAGE))
        self._blocks.append(block)
        first = block.take(pages)
        assert first is not None  # it has exactly the requested size
        return Piece(self, block, first, pages)

    def give_back(self, block: _Block, first: int, pages: int) -> None:
        """Called by destructors, which run in any thread at any time: if the lock is held, its current or next holder
        does the work."""
        self._returned.append((block, first, pages))
        if self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def _collect(self) -> None:
        while self._returned:
            block, first, pages = self._returned.popleft()
            block.give_back(first, pages)
            if block.free == [[0, block.pages]]:
                if block in self._blocks:  # not one of a process that this one was forked from
                    self._blocks.remove(block)
                block.release()

    def statistics(self) -> Statistics:
        with self._lock:
            self._collect()
            held = sum(block.pages for block in self._blocks)
            free = sum(number for block in self._blocks for _, number in block.free)
            return Statistics(len(self._blocks), held * PAGE, (held - free) * PAGE)


@functools.cache
def _blocks() -> _Blocks:
    return _Blocks()


def place(sizes: Sequence[int]) -> list[Piece]:
    """Memory for objects of these sizes in bytes: a piece for each, writable."""
    return _blocks().place(sizes)


def seal(pieces: Sequence[Piece]) -> None:
    """Makes pieces executable and not writable any more. Raises NotExecutableError."""
    start = end = 0
    for piece in sorted(pieces, key=lambda piece: piece.address):
        if piece.address != end:
            if end:
                _protect(start, end - start, _EXECUTABLE)
            start = piece.address
        end = piece.address + len(piece)
    if end:
        _protect(start, end - start, _EXECUTABLE)


def statistics() -> Statistics:
    """Counts of blocks, pieces and bytes in use."""
    return _blocks().statistics()


__all__ = ["NotExecutableError", "Piece", "Statistics", "place", "seal", "statistics"]
