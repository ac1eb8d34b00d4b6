"""What a kernel's nest becomes: a launch, with the values of its arguments and the chunks that its items go in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloom.compiler.kernels.source import KernelSource
from hloom.ir.records import field, record

WORK = 65536  # element operations that a chunk should have: some 10 microseconds, against 1 to hand it to a thread


@record
class Launch:
    """One kernel of a program.

    arguments: for each parameter but lo and hi a pointer's name, an integer, or a KernelSource whose address it is.
    items, grain: work items, and how many of them are one chunk. work: element operations of all, roughly.
    temporaries: bytes by pointer name. tables: constant arrays by pointer name.
    prepares: whether it only makes temporaries that no other launch writes, so that it need not run again before what
        it reads has changed.
    stand_ins: makes kernels that take the same arguments and make the same bits, only slower: they may run while
        `source` is compiled.
    """

    source: KernelSource
    arguments: list[str | int | KernelSource]
    items: int
    grain: int
    work: float = 0.0
    temporaries: dict[str, int] = field(default_factory=dict)
    tables: dict[str, np.ndarray] = field(default_factory=dict)
    prepares: bool = False
    stand_ins: Callable[[], list[KernelSource]] | None = None

    def grid(self) -> str:
        """How the work is handed out, for people."""
        return f"items {self.items}, in chunks of {self.grain}"


def launch_by_work(source, arguments, items: int, work: float, temporaries=None, tables=None, least: int = 1) -> Launch:
    """A launch whose items are about `work` element operations each, at least `least` of them in a chunk."""
    grain = min(max(grain_of(items, work), least), items)
    return Launch(source, arguments, items, grain, items * work, temporaries or {}, tables or {})


def launch_by_grain(source, arguments, items: int, grain: int, temporaries=None) -> Launch:
    """A launch whose chunks, of `grain` items, were made to be worth a thread's while."""
    return Launch(source, arguments, items, grain, items * WORK / grain, temporaries or {})


def grain_of(items: int, work: float) -> int:
    """Items in a chunk, from their work; small kernels stay in one piece. Depends on the shape only."""
    if items * work <= 2 * WORK:
        return items
    grain = max(1, int(WORK / work))
    return -(-grain // 64) * 64 if grain >= 64 else grain
