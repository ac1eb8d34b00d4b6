"""The storage of values while a program is planned: who reads it and when, and the arena."""

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
SEARCHED = 400  # buffers up to which the arena compares each with all


@record(eq=False)
class Buffer:
    """The storage of one value, from the time `first` to `last`.

    maker: the instruction that computes it. reads: (time, None), or (time, (computation, number)) where the value is
        result `number` of a computation that is read at its end. swap: number of a buffer that changes places with
        others after each step of a loop.
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
        """The place, of a buffer that has one."""
        assert self.place is not None
        return self.place

    def read(self, time: int, result: tuple[Computation, int] | None = None) -> None:
        self.reads.append((time, result))
        self.last = max(self.last, time)


def _size(buffer: Buffer) -> Any:
    return aligned(buffer.bytes, ALIGNMENT)


def aligned(bytes: Number, alignment: int) -> Any:
    """The least multiple of an alignment, not 0, that is so many bytes."""
    return -(-higher_of(bytes, 1) // alignment) * alignment


def allocated(buffers: list[Buffer], guarded: bool) -> tuple[int, list[int]]:
    """Gives each buffer a place in the arena: (its bytes, offsets of pages that nobody may touch, where there are)."""
    return allocate_apart(buffers) if guarded else (allocate(buffers), [])


def allocated_slots(buffers: list[Buffer], slots: Sequence[Sequence[int]]) -> Any:
    """Gives the buffers of each slot one place in the arena; returns its bytes. slots: numbers of buffers."""
    total: Any = 0
    for slot in slots:
        size = 0
        for number in slot:
            buffers[number].place = Place("arena", total, buffers[number].swap)
            size = higher_of(size, _size(buffers[number]))
        total = total + size
    return total


def allocate(buffers: list[Buffer]) -> int:
    """Gives each buffer an offset such that no two that live at one time overlap; returns the bytes of the arena."""
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
    """The numbers of buffers that share memory, as no two of them live at one time: for sizes that are known later. The
    largest ones, of the sample, come first, so that what shares a slot is much as large."""
    slots: list[list[int]] = []
    times: list[list[tuple[int, int]]] = []  # of each slot, in order
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
    """Whether nothing lives within a time. taken: the times of others, of which no two overlap, in order."""
    place = bisect_left(taken, life)
    ended = place == 0 or taken[place - 1][1] < life[0]
    return ended and (place == len(taken) or life[1] < taken[place][0])


def allocate_apart(buffers: list[Buffer]) -> tuple[Any, list]:
    """Gives each buffer pages of its own, at whose end it lies, and a page behind that nobody may touch: (bytes of the
    arena, offsets of those pages)."""
    total: Any = 0
    guards = []
    for buffer in buffers:
        end = total + aligned(_size(buffer), mmap.PAGESIZE)
        buffer.place = Place("arena", end - _size(buffer), buffer.swap)
        guards.append(end)
        total = end + mmap.PAGESIZE
    return total, guards


def _by_size(buffers: list[Buffer]) -> int:
    """The largest first, at the lowest offset free in its lifetime: few bytes, and a time that grows as the square."""
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
    """In the order in which they begin to live, each in the smallest hole that takes it, for programs of thousands."""
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
            # One that ended has been placed: it began no later than it ended.
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
            offset = at_end.pop(total, total)  # the hole at the end grows
            if offset != total:
                by_size.pop(bisect_left(by_size, (at_offset.pop(offset), offset)))
            total = offset + size
        buffer.place = Place("arena", offset, buffer.swap)
    return total
