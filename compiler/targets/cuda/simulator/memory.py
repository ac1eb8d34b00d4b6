"""Memory of the simulated GPU: bounds, uninitialised reads, and races are errors."""

from __future__ import annotations

import numpy as np

from hloom.ir.records import record


class LockstepError(RuntimeError):
    """A kernel text that a GPU would not run as it is meant: a race, a barrier that some threads miss, a bad index."""


@record
class Place:
    """Where the running thread stands. epoch: barriers its block has passed; warp_epoch: barriers of its warp."""

    block: int = -1
    thread: int = -1
    epoch: int = 0
    warp_epoch: int = 0

    def now(self) -> tuple[int, int, int, int]:
        return self.block, self.thread, self.epoch, self.warp_epoch


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
        self.writers: dict[int, tuple] = {}
        self.readers: dict[int, list[tuple]] = {}
        self.initialised = initialised
        self.coming: dict[int, tuple] = {}  # elements that copies are on their way to, and who asked for them

    def _check(self, index, what: str) -> int:
        index = int(index)
        if not 0 <= index < self.array.size:
            raise LockstepError(
                f"thread {self.place.thread} of block {self.place.block} {what} {self.name}[{index}], which has "
                f"{self.array.size} elements"
            )
        return index

    def _race(self, index: int, other: tuple, what: str) -> LockstepError:
        return LockstepError(
            f"race on {self.name}[{index}]: thread {self.place.thread} of block {self.place.block} {what} what thread "
            f"{other[1]} of block {other[0]} touches, with no barrier between"
        )

    def __getitem__(self, index):
        self.read(index)
        return self.array[int(index)]

    def __setitem__(self, index, value) -> None:
        self.write(index)
        self.array[int(index)] = value

    def _arrived(self, index: int, what: str) -> None:
        if index in self.coming:
            _, thread, *_ = self.coming[index]
            raise LockstepError(
                f"thread {self.place.thread} of block {self.place.block} {what} {self.name}[{index}], which a copy by "
                f"thread {thread} is on its way to: nothing has waited for it"
            )

    def read(self, index) -> None:
        """Notes that the running thread reads an element."""
        index, now = self._check(index, "reads"), self.place.now()
        self._arrived(index, "reads")
        writer = self.writers.get(index)
        if writer is not None and not ordered(writer, now):
            raise self._race(index, writer, "reads")
        if writer is None and not self.initialised:
            raise LockstepError(f"thread {now[1]} of block {now[0]} reads {self.name}[{index}] before it was written")
        others = [r for r in self.readers.get(index, ()) if r[1] != now[1] or r[0] != now[0]]
        # Two readers are enough to find any later writer that is unordered with one of them.
        self.readers[index] = [*others[-1:], now]

    def write(self, index) -> None:
        """Notes that the running thread writes an element."""
        index, now = self._check(index, "writes"), self.place.now()
        self._arrived(index, "writes")
        for other in (self.writers.get(index), *self.readers.pop(index, ())):
            if other is not None and not ordered(other, now):
                raise self._race(index, other, "writes")
        self.writers[index] = now

    def expect(self, index: int, values: np.ndarray) -> None:
        """A copy of the running thread is on its way to these elements, and writes them at any time from now on."""
        for x in range(values.size):
            self.write(index + x)
            self.coming[index + x] = self.place.now()
        self.array[index : index + values.size] = values

    def arrive(self, index: int, count: int) -> None:
        """The copy has arrived, for the running thread; for the others after a barrier."""
        for x in range(index, index + count):
            del self.coming[x]
            self.writers[x] = self.place.now()


class View:
    """The same memory from an element on, with elements of another dtype, at least as wide."""

    def __init__(self, base: Memory, dtype: np.dtype, start: int = 0):
        self.base, self.name = base, base.name
        self.ratio = dtype.itemsize // base.array.itemsize
        self.first = start * self.ratio
        self.array = base.array[: base.array.size // self.ratio * self.ratio].view(dtype)[start:]

    def _touch(self, index, note) -> int:
        if index < 0:
            raise LockstepError(f"a part of {self.name} is touched in front of its beginning, at {index}")
        for x in range(self.ratio):
            note(self.first + int(index) * self.ratio + x)
        return int(index)

    def __getitem__(self, index):
        return self.array[self._touch(index, self.base.read)]

    def __setitem__(self, index, value) -> None:
        self.array[self._touch(index, self.base.write)] = value
