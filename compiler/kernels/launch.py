"""What a kernel's nest becomes: a launch, with the values of its arguments and the chunks that its items go in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.ir.records import field, record, replace
from hloom.ir.sizes.guards import typical
from hloom.ir.sizes.numbers import Node, Number, chosen, higher_of, lower_of

OPERATIONS, BYTES = 65.5, 20  # element operations, and bytes moved, of one thread per nanosecond
WORK = 32768  # element operations of a chunk, at least: half a microsecond, as long as two threads need to meet
LARGEST = 32 * WORK
CHUNKS = 128  # of a large kernel, so that all cores have work until the end
FRACTION = 1024  # of an element operation, in which the work of an item is counted
NEAR = 128 << 10  # bytes that a chunk moves, at most: threads that walk memory far from each other are slower


Argument = str | int | KernelSource  # an integer, or an expression, as sizes are


@record(frozen=True)
class ByWork:
    """Chunks by what they do. item: element operations of an item. least: items in a chunk at least. multiple: of which
    a chunk is one."""

    item: float
    least: int = 1
    multiple: int = 1

    def grain(self, items: Number, moved: Number) -> Any:
        """Items in a chunk of so many items, which read and write so many bytes."""
        grain = lower_of(higher_of(grain_of(items, self.item, moved), self.least), items)
        return -(-grain // self.multiple) * self.multiple


@record
class Launch:
    """One kernel of a program, for all sizes of the scope that it was compiled in.

    arguments: for each parameter but lo and hi a pointer's name, a size, or a KernelSource whose address it is.
    items, grain: work items, and how many of them are one chunk, of the sample where that depends on sizes. work:
        element operations of all, roughly. moved: bytes that all read and write, 0 where that matters less.
    by_work: what the chunks come from; None: they are `grain`.
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
    items: int  # or an expression, as sizes are
    grain: int
    work: float = 0.0
    temporaries: dict[str, int] = field(default_factory=dict)
    tables: dict[str, np.ndarray] = field(default_factory=dict)
    moved: int = 0
    prepares: bool = False
    side_by_side: bool = False
    fallbacks: Callable[[], list[KernelSource]] | None = None
    by_work: ByWork | None = None

    @property
    def nanoseconds(self) -> int:
        """The approximate time of the launch on one thread."""
        work = self.work if isinstance(self.work, Node) else int(self.work)
        return nanoseconds_of(work, typical(self.moved))

    def at(self, number: Callable[[int], Any]) -> Launch:
        """The launch for sizes. number: of a size."""
        items, moved = number(self.items), number(self.moved)
        grain = lower_of(number(self.grain), items) if self.by_work is None else self.by_work.grain(items, moved)
        work = items * max(1, int(FRACTION * self.work / max(typical(self.items), 1))) // FRACTION
        arguments = [a if isinstance(a, (str, KernelSource)) else number(a) for a in self.arguments]
        return replace(self, arguments=arguments, items=items, grain=grain, work=work, moved=moved)

    def grid(self) -> str:
        """The distribution of the work, as text."""
        return f"items {self.items}, in chunks of {self.grain}"


def launch_by_work(
    source, arguments, items: int, work: float, temporaries=None, tables=None, least: int = 1, moved: int = 0,
    multiple: int = 1,
) -> Launch:  # fmt: skip
    """A launch whose items are about `work` element operations each, with at least `least` of them in a chunk."""
    chunks = ByWork(typical(work) or 1, typical(least), multiple)  # reductions of nothing do no work
    count = typical(items)
    grain = chunks.grain(count, typical(moved))
    return Launch(source, arguments, items, grain, count * work, temporaries or {}, tables or {}, moved, by_work=chunks)


def launch_by_grain(source, arguments, items: int, grain: int, temporaries=None, work: float = 0.0) -> Launch:
    """A launch with chunks of `grain` items. work: element operations of all; 0: `WORK` for each chunk."""
    return Launch(source, arguments, items, grain, work or typical(items) * WORK / typical(grain), temporaries or {})


def nanoseconds_of(work: Number, moved: Number) -> Any:
    """The approximate time on one thread of so many element operations, which move so many bytes."""
    return higher_of(higher_of(1, work * 2 // int(2 * OPERATIONS)), moved // BYTES)


def grain_of(items: Number, work: float, moved: Number = 0) -> Any:
    """Items in a chunk, from their work; small kernels have one. Depends on the shape only."""
    most = items // CHUNKS
    if not isinstance(moved, int) or moved:
        most = lower_of(most, items * NEAR // higher_of(moved, 1))
    grain = higher_of(1, lower_of(higher_of(most, int(WORK / work)), int(LARGEST / work)))
    grain = chosen(grain >= 64, -(-grain // 64) * 64, grain)
    return chosen(items <= int(3 * WORK / work), items, grain)
