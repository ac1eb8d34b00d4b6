"""The storage of values during planning: lifetimes of buffers, and arena allocation."""

from __future__ import annotations

import mmap
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any

from hloom.compiler.schedule.steps import Place
from hloom.ir.module import Computation, Instruction
from hloom.ir.records import field, record
from hloom.ir.sizes.guards import typical
from hloom.ir.sizes.numbers import Number, higher_of

ALIGNMENT = 64
SEARCHED = 400  # maximum number of buffers for which the arena compares all pairs


@record(eq=False)
class Buffer:
    """The storage of one value, from the time `first` to `last`.

    maker: the instruction that computes it. reads: (time, None), or (time, (computation, number)) if the value is
    result `number` of a computation, read at its end. swap: id of a buffer that is swapped with others after each step
    of a loop.
    """

    bytes: int
    place: Place | None = None
    first: int = 0
    last: int = 0
    maker: Instruction | None = None
    reads: list[tuple[int, tuple[Computation, int] | None]] = field(default_factory=list)
    swap: int | None = None

    @property
    def assigned(self) -> Place:
        """The place of an allocated buffer."""
        assert self.place is not None
        return self.place

    def read(self, time: int, result: tuple[Computation, int] | None = None) -> None:
        self.reads.append((time, result))
        self.last = max(self.last, time)


def _size(buffer: Buffer) -> Any:
    return aligned(buffer.bytes, ALIGNMENT)


def aligned(bytes: Number, alignment: int) -> Any:
    """The smallest positive multiple of an alignment that is at least this many bytes."""
    return -(-higher_of(bytes, 1) // alignment) * alignment


def allocated(buffers: list[Buffer], guarded: bool) -> tuple[int, list[int]]:
    """Allocates each buffer in the arena: (its bytes, offsets of guard pages, if any)."""
    return allocate_apart(buffers) if guarded else (allocate(buffers), [])


def allocated_slots(buffers: list[Buffer], slots: Sequence[Sequence[int]]) -> Any:
    """Allocates the buffers of each slot at a common offset; returns the arena's bytes. slots: indices of buffers."""
    total: Any = 0
    for slot in slots:
        size = 0
        for number in slot:
            buffers[number].place = Place("arena", total, buffers[number].swap)
            size = higher_of(size, _size(buffers[number]))
        total = total + size
    return total


def allocate(buffers: list[Buffer]) -> int:
    """Assigns offsets so that buffers with overlapping lifetimes are disjoint; returns the bytes of the arena."""
    if len(buffers) > SEARCHED:
        return _by_time(buffers)
    by_time = _by_time(buffers)
    places = [buffer.place for buffer in buffers]
    by_size = _by_size(buffers)
    if by_time < by_size:
        for buffer, place in zip(buffers, places, strict=True):
            buffer.place = place
    return min(by_time, by_size)


def shared_slots(buffers: Sequence[Buffer]) -> list[list[int]]:
    """Groups of buffer indices with disjoint lifetimes, which share memory: for open sizes. The largest ones (for the
    sample) come first, so that buffers of similar size share a slot."""
    slots: list[list[int]] = []
    times: list[list[tuple[int, int]]] = []  # lifetimes of each slot, in order
    for number in sorted(range(len(buffers)), key=lambda k: -typical(buffers[k].bytes)):
        life = buffers[number].first, buffers[number].last
        slot = next((k for k, taken in enumerate(times) if _is_free(taken, life)), len(slots))
        if slot == len(slots):
            slots.append([])
            times.append([])
        slots[slot].append(number)
        insort(times[slot], life)
    return slots


def _is_free(taken: Sequence[tuple[int, int]], life: tuple[int, int]) -> bool:
    """Whether a lifetime is free. taken: the sorted, disjoint lifetimes of others."""
    place = bisect_left(taken, life)
    ended = place == 0 or taken[place - 1][1] < life[0]
    return ended and (place == len(taken) or life[1] < taken[place][0])


def allocate_apart(buffers: list[Buffer]) -> tuple[Any, list]:
    """Places each buffer at the end of separate pages, followed by a guard page: (bytes of the arena, offsets of the
    guard pages)."""
    total: Any = 0
    guards = []
    for buffer in buffers:
        end = total + aligned(_size(buffer), mmap.PAGESIZE)
        buffer.place = Place("arena", end - _size(buffer), buffer.swap)
        guards.append(end)
        total = end + mmap.PAGESIZE
    return total, guards


def _by_size(buffers: list[Buffer]) -> int:
    """Largest first, at the lowest offset free during its lifetime: compact, but in quadratic time."""
    placed: list[tuple[int, int, int, int]] = []  # (offset, its end, first, last)
    total = 0
    for buffer in sorted(buffers, key=lambda b: -b.bytes):
        size, first, last = _size(buffer), buffer.first, buffer.last
        busy = [(start, stop) for start, stop, begun, ended in placed if begun <= last and first <= ended]
        offset = 0
        for start, stop in sorted(busy):
            if offset + size <= start:
                break
            offset = max(offset, stop)
        buffer.place = Place("arena", offset, buffer.swap)
        placed.append((offset, offset + size, first, last))
        total = max(total, offset + size)
    return total


def _by_time(buffers: list[Buffer]) -> int:
    """In order of birth, each in the smallest sufficient hole (best fit), for programs with thousands of buffers."""
    order = sorted(buffers, key=lambda b: (b.first, -b.bytes))
    ends = sorted(buffers, key=lambda b: b.last)
    at_offset: dict[int, int] = {}  # holes: offset -> size
    at_end: dict[int, int] = {}  # end -> offset
    by_size: list[tuple[int, int]] = []  # (size, offset)
    total = finished = 0

    def add(offset: int, size: int) -> None:
        before = at_end.pop(offset, None)
        if before is not None:
            length = at_offset.pop(before)
            by_size.pop(bisect_left(by_size, (length, before)))
            offset, size = before, size + length
        behind = at_offset.pop(offset + size, None)
        if behind is not None:
            by_size.pop(bisect_left(by_size, (behind, offset + size)))
            size += behind
        at_offset[offset] = size
        at_end[offset + size] = offset
        insort(by_size, (size, offset))

    for buffer in order:
        while ends[finished].last < buffer.first:
            # An ended buffer has been placed: its birth precedes its end.
            add(ends[finished].assigned.number, _size(ends[finished]))
            finished += 1
        size = _size(buffer)
        found = bisect_left(by_size, (size, -1))
        if found < len(by_size):
            length, offset = by_size.pop(found)
            del at_offset[offset], at_end[offset + length]
            if length > size:
                add(offset + size, length - size)
        else:
            offset = at_end.pop(total, total)  # the last hole grows
            if offset != total:
                by_size.pop(bisect_left(by_size, (at_offset.pop(offset), offset)))
            total = offset + size
        buffer.place = Place("arena", offset, buffer.swap)
    return total
