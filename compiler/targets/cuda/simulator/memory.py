"""Memory of the simulated GPU: bounds, uninitialised reads, and races are errors."""

from __future__ import annotations

import numpy as np


class LockstepError(RuntimeError):
    """A kernel text that a GPU would not run as it is meant: a race, a barrier that some threads miss, a bad index."""


class Place:
    """Where the running thread stands.

    now: (block, thread, barriers that its block has passed, barriers that its warp has passed)
    """

    __slots__ = ("now",)

    def __init__(self):
        self.now = (-1, -1, 0, 0)

    def __str__(self) -> str:
        return f"thread {self.now[1]} of block {self.now[0]}"


def ordered(before, after) -> bool:
    """Whether an access is seen by a later one: same thread, or a barrier of the block or the warp between them."""
    if before[0] != after[0]:
        return False  # nothing orders blocks
    return before[1] == after[1] or before[2] != after[2] or (before[1] >> 5 == after[1] >> 5 and before[3] != after[3])


class Memory:
    """A flat array behind a pointer, or a shared array, with a log of who touched each element.

    Shuffles do not order memory, so only barriers count. `initialised` is False for shared memory: an element that no
    thread has written may not be read.
    """

    def __init__(self, name: str, array: np.ndarray, place: Place, initialised: bool = True):
        self.name, self.array, self.place = name, array, place
        self.size = array.size
        self.writers: dict[int, tuple] = {}
        self.readers: dict[int, tuple[tuple, ...]] = {}  # the last two that differ
        self.initialised = initialised
        self.coming: dict[int, tuple] = {}  # elements that copies are on their way to, and who asked for them

    def _outside(self, index: int, what: str) -> LockstepError:
        return LockstepError(f"{self.place} {what} {self.name}[{index}], which has {self.array.size} elements")

    def _race(self, index: int, other: tuple, what: str) -> LockstepError:
        return LockstepError(
            f"race on {self.name}[{index}]: {self.place} {what} what thread {other[1]} of block {other[0]} touches, "
            "with no barrier between"
        )

    def __getitem__(self, index):
        index = int(index)
        self.read(index)
        return self.array[index]

    def __setitem__(self, index, value) -> None:
        index = int(index)
        self.write(index)
        self.array[index] = value

    def _arrived(self, index: int, what: str) -> None:
        if index in self.coming:
            _, thread, *_ = self.coming[index]
            raise LockstepError(
                f"{self.place} {what} {self.name}[{index}], which a copy by thread {thread} is on its way to: nothing "
                "has waited for it"
            )

    def read(self, index: int) -> None:
        """Notes that the running thread reads an element."""
        now = self.place.now
        if not 0 <= index < self.size:
            raise self._outside(index, "reads")
        if self.coming:
            self._arrived(index, "reads")
        writer = self.writers.get(index)
        if writer is None:
            if not self.initialised:
                raise LockstepError(f"{self.place} reads {self.name}[{index}] before it was written")
        elif writer is not now and not ordered(writer, now):
            raise self._race(index, writer, "reads")
        # Two readers are enough to find any later writer that is unordered with one of them.
        before = self.readers.get(index)
        if before is None:
            self.readers[index] = (now,)
        elif before[-1] is not now:
            last = before[-1]
            same_thread = last[1] == now[1] and last[0] == now[0]
            self.readers[index] = (*before[:-1], now) if same_thread else (last, now)

    def write(self, index: int) -> None:
        """Notes that the running thread writes an element."""
        now = self.place.now
        if not 0 <= index < self.size:
            raise self._outside(index, "writes")
        if self.coming:
            self._arrived(index, "writes")
        for other in (self.writers.get(index), *self.readers.pop(index, ())):
            if other is not None and other is not now and not ordered(other, now):
                raise self._race(index, other, "writes")
        self.writers[index] = now

    def expect(self, index: int, values: np.ndarray) -> None:
        """A copy of the running thread is on its way to these elements, and writes them at any time from now on."""
        for x in range(values.size):
            self.write(index + x)
            self.coming[index + x] = self.place.now
        self.array[index : index + values.size] = values

    def arrive(self, index: int, count: int) -> None:
        """The copy has arrived, for the running thread; for the others after a barrier."""
        for x in range(index, index + count):
            del self.coming[x]
            self.writers[x] = self.place.now


class View:
    """The same memory from an element on, with elements of another dtype, at least as wide."""

    def __init__(self, base: Memory, dtype: np.dtype, start: int = 0):
        self.base, self.name = base, base.name
        self.ratio = dtype.itemsize // base.array.itemsize
        self.first = start * self.ratio
        self.array = base.array[: base.array.size // self.ratio * self.ratio].view(dtype)[start:]

    def _elements(self, index: int) -> range:
        """The elements of the base that an element consists of."""
        if index < 0:
            raise LockstepError(f"a part of {self.name} is touched in front of its beginning, at {index}")
        start = self.first + index * self.ratio
        return range(start, start + self.ratio)

    def read(self, index: int) -> None:
        for x in self._elements(index):
            self.base.read(x)

    def write(self, index: int) -> None:
        for x in self._elements(index):
            self.base.write(x)

    def __getitem__(self, index):
        index = int(index)
        self.read(index)
        return self.array[index]

    def __setitem__(self, index, value) -> None:
        index = int(index)
        self.write(index)
        self.array[index] = value
