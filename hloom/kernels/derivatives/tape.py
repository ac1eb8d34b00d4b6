"""The tape of one loop: memory for values that statements overwrite, with a place for each iteration around them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hloom.compiler.kernel_ir.nodes import Binary, Const, Expr, For, Load, Scratch, Stmt, Store, Var
from hloom.compiler.kernel_ir.types import STORED
from hloom.ir.types import DTYPES
from hloom.kernels.derivatives.activity import unsupported
from hloom.kernels.programs import Array, Draft, Names

__all__ = ["Tape"]

IN_SCRATCH = 1 << 18  # bytes of an iteration's tape, at most; larger ones are temporaries of all iterations
LARGEST = 1 << 32


class Tape:
    """trips: the greatest number of iterations of each loop, by variable."""

    def __init__(self, name: str, draft: Draft, trips: Mapping[Var, int], names: Names, separate: bool):
        self.name, self.draft, self.trips, self.names, self.separate = name, draft, trips, names, separate
        self.pointers: dict[str, Var] = {}  # by the type of an element
        self.counts: dict[str, int] = {}  # elements of one iteration of the draft

    def place(self, kind: str, loops: Sequence[For]) -> Place:
        """Space for a value of each iteration of loops. kind: of the stored value."""
        counts = []
        for loop in loops:
            if loop.var not in self.trips:
                raise unsupported(self.name, f"the number of iterations of the loop of '{loop.var.name}' has no bound")
            counts.append(max(1, self.trips[loop.var]))
        if kind not in self.pointers:
            self.pointers[kind] = Var(f"*{kind}", self.names.fresh(f"tape_{kind}_v"))
        start = self.counts.get(kind, 0)
        self.counts[kind] = start + math.prod(counts)
        index: Expr = Const("s64", 0)
        for loop, count in zip(loops, counts, strict=True):
            index = _plus(_times(index, count), _iteration(loop))
        return Place(self, kind, start, index)

    def finish(self) -> tuple[list[Scratch], dict[Var, Array]]:
        """(scratch memory, temporaries) for all slots."""
        total = sum(count * DTYPES[kind].itemsize for kind, count in self.counts.items())
        if self.draft.items * total > LARGEST and (self.separate or total > IN_SCRATCH):
            raise unsupported(self.name, f"the values that it overwrites take {self.draft.items * total:,} bytes")
        if not self.separate and total <= IN_SCRATCH:
            return [Scratch(self.pointers[kind], count) for kind, count in self.counts.items()], {}
        items = max(1, self.draft.items)
        arrays = {
            self.pointers[kind]: Array(DTYPES[kind], (items * count,), "temporary")
            for kind, count in self.counts.items()
        }
        return [], arrays

    @property
    def by_item(self) -> bool:
        """Whether each iteration of the draft has a part of temporaries."""
        total = sum(count * DTYPES[kind].itemsize for kind, count in self.counts.items())
        return self.separate or total > IN_SCRATCH


class Place:
    """A value's place on the tape."""

    def __init__(self, tape: Tape, kind: str, start: int, index: Expr):
        self.tape, self.kind, self.start, self.index = tape, kind, start, index

    def at(self) -> Expr:
        """Known once all slots are."""
        index = _plus(self.index, Const("s64", self.start))
        if self.tape.by_item and self.tape.draft.item is not None:
            index = _plus(_times(self.tape.draft.item, self.tape.counts[self.kind]), index)
        return index

    def push(self, value: Expr) -> Stmt:
        return Store(self.tape.pointers[self.kind], self.at(), value, self.kind)

    def load(self, kind: str) -> Expr:
        return Load(kind if self.kind in STORED else self.kind, self.tape.pointers[self.kind], self.at())


def _iteration(loop: For) -> Expr:
    """How many iterations were before."""
    passed = loop.var if loop.start == Const("s64", 0) else Binary("s64", "-", loop.var, loop.start)
    return passed if loop.step == Const("s64", 1) else Binary("s64", "//", passed, loop.step)


def _plus(left: Expr, right: Expr) -> Expr:
    zero = Const("s64", 0)
    return right if left == zero else left if right == zero else Binary("s64", "+", left, right)


def _times(left: Expr, count: int) -> Expr:
    zero = Const("s64", 0)
    return zero if left == zero else left if count == 1 else Binary("s64", "*", left, Const("s64", count))
