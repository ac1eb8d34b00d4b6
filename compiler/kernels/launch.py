"""What a kernel's nest becomes: a launch, with the values of its arguments and the chunks that its items go in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.ir.records import field, record

OPERATIONS, BYTES = 65.5, 20  # element operations, and bytes moved, of one thread per nanosecond
WORK = 32768  # element operations of a chunk, at least: half a microsecond, as long as two threads need to meet
LARGEST = 32 * WORK
CHUNKS = 128  # of a large kernel, so that all cores have work until the end
NEAR = 128 << 10  # bytes that a chunk moves, at most: threads that walk memory far from each other are slower


Argument = str | int | KernelSource


@record
class Launch:
    """One kernel of a program.

    arguments: for each parameter but lo and hi a pointer's name, an integer, or a KernelSource whose address it is.
    items, grain: work items, and how many of them are one chunk. work: element operations of all, roughly. moved: bytes
        that all read and write, 0 where that matters less.
    temporaries: bytes by pointer name. tables: constant arrays by pointer name.
    prepares: whether it only writes temporaries that no other launch writes, so that it runs again only when what it
        reads has changed.
    side_by_side: dynamic schedule: any thread takes the next chunk, so that all walk through memory near each other.
        Otherwise each thread has its share of the chunks, whose memory stays in its core's cache.
    fallbacks: returns slower kernels with the same arguments and the same bits, which may run while `source` is
        compiled.
    """

    source: KernelSource
    arguments: list[Argument]
    items: int
    grain: int
    work: float = 0.0
    temporaries: dict[str, int] = field(default_factory=dict)
    tables: dict[str, np.ndarray] = field(default_factory=dict)
    moved: int = 0
    prepares: bool = False
    side_by_side: bool = False
    fallbacks: Callable[[], list[KernelSource]] | None = None

    @property
    def nanoseconds(self) -> int:
        """The approximate time of the launch on one thread."""
        return max(1, int(self.work / OPERATIONS), self.moved // BYTES)

    def grid(self) -> str:
        """The distribution of the work, as text."""
        return f"items {self.items}, in chunks of {self.grain}"


def launch_by_work(
    source, arguments, items: int, work: float, temporaries=None, tables=None, least: int = 1, moved: int = 0
) -> Launch:
    """A launch whose items are about `work` element operations each, with at least `least` of them in a chunk."""
    grain = min(max(grain_of(items, work, moved), least), items)
    return Launch(source, arguments, items, grain, items * work, temporaries or {}, tables or {}, moved)


def launch_by_grain(source, arguments, items: int, grain: int, temporaries=None, work: float = 0.0) -> Launch:
    """A launch with chunks of `grain` items. work: element operations of all; 0: `WORK` for each chunk."""
    return Launch(source, arguments, items, grain, work or items * WORK / grain, temporaries or {})


def grain_of(items: int, work: float, moved: int = 0) -> int:
    """Items in a chunk, from their work; small kernels have one. Depends on the shape only."""
    total = items * work
    if total <= 3 * WORK:
        return items
    most = total / CHUNKS
    if moved:
        most = min(most, total * NEAR / moved)
    grain = max(1, int(min(max(most, WORK), LARGEST) / work))
    return -(-grain // 64) * 64 if grain >= 64 else grain
