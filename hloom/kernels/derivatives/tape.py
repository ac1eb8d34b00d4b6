"""The tape of one loop: memory for values that statements overwrite, with a place for each iteration around them.

Loops whose iterations fill a box have an index of each of their variables. The others are counted: the tape has a place
for each iteration that runs, in their order. Where their number has no bound, the tape gets what `hl.config.tape_bytes`
allows. Only pages of it that are written take memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Const,
    Expr,
    For,
    If,
    Jump,
    Load,
    Scratch,
    Stmt,
    Store,
    Var,
    While,
)
from hloom.compiler.kernel_ir.types import STORED
from hloom.config import config
from hloom.ir.records import field, record
from hloom.ir.types import DTYPES
from hloom.kernels.derivatives.activity import unsupported
from hloom.kernels.programs import Array, Draft, Names

__all__ = ["FULL", "Counted", "Tape"]

IN_SCRATCH = 1 << 18  # bytes of an iteration's tape, at most; larger ones are temporaries of all iterations
FULL = -1  # the fault of a tape without room


@record(eq=False)
class Counted:
    """A loop whose iterations are counted. total: the variable that counts them, from the beginning of the kernel's
    loop. number: that of the running iteration. most: the greatest total; None: it has no bound. kept: whether the
    tape has values of its iterations."""

    total: Var
    number: Var
    most: int | None
    kept: bool = field(default=False)

    def begin(self) -> list[Stmt]:
        """At the beginning of an iteration."""
        return [Assign(self.number, self.total), Assign(self.total, Binary("s64", "+", self.total, Const("s64", 1)))]

    def undo(self) -> list[Stmt]:
        """At the beginning of the iteration going back."""
        return [Assign(self.total, Binary("s64", "-", self.total, Const("s64", 1))), Assign(self.number, self.total)]


class Tape:
    """trips: the greatest number of iterations of each loop, by variable. calls: of the kernel, that run together."""

    def __init__(
        self, name: str, draft: Draft, trips: Mapping[Var, int], names: Names, separate: bool, calls: int
    ):  # fmt: skip
        self.name, self.draft, self.trips, self.names, self.separate = name, draft, trips, names, separate
        self.calls = calls
        self.pointers: dict[str, Var] = {}  # by the type of an element
        self.counts: dict[str, int] = {}  # elements of one iteration of the draft, in places whose number is known
        self.open: dict[str, int] = {}  # elements of one iteration of the loops without a bound
        self.counted: dict[int, Counted] = {}  # by the loop

    def count(self, loop: For | While, most: int | None) -> Counted:
        """Counts the iterations of a loop."""
        fresh = self.names.fresh
        made = Counted(Var("s64", fresh("steps"), True), Var("s64", fresh("step")), most)
        self.counted[id(loop)] = made
        return made

    def place(self, kind: str, loops: Sequence[For | While]) -> Place:
        """Space for a value of each iteration of loops. kind: of the stored value."""
        last = max((k for k, loop in enumerate(loops) if id(loop) in self.counted), default=-1)
        counted = None if last < 0 else self.counted[id(loops[last])]
        index: Expr = Const("s64", 0) if counted is None else counted.number
        counts = []
        for loop in loops[last + 1 :]:
            assert isinstance(loop, For)
            counts.append(max(1, self.trips[loop.var]))
            index = _plus(_times(index, counts[-1]), _iteration(loop))
        if kind not in self.pointers:
            self.pointers[kind] = Var(f"*{kind}", self.names.fresh(f"tape_{kind}_v"))
        self.counts.setdefault(kind, 0)
        each = math.prod(counts)
        if counted is None or counted.most is not None:
            start = self.counts[kind]
            self.counts[kind] += each * (1 if counted is None else max(1, counted.most or 0))
            return Place(self, kind, start, index)
        counted.kept = True
        start = self.open.get(kind, 0)
        self.open[kind] = start + each
        return Place(self, kind, start, index, is_open=True)

    @property
    def total(self) -> int:
        """Bytes of one iteration of the draft."""
        return _bytes(self.counts) + self.room * _bytes(self.open)

    @property
    def room(self) -> int:
        """For how many iterations of a loop without a bound there are places."""
        if not self.open:
            return 0
        share = config.tape_bytes // (self.calls * max(1, self.draft.items))
        if not self.separate and self.draft.item is not None:
            share = max(share, IN_SCRATCH)
        return max(1, (share - _bytes(self.counts)) // _bytes(self.open))

    def begin(self, counted: Counted, fault: Var) -> list[Stmt]:
        """At the beginning of an iteration of a counted loop."""
        if not counted.kept:
            return counted.begin()
        full = Store(fault, Const("s64", 0), Const("s64", FULL), "s64")
        check = If(Binary("pred", ">=", counted.total, Const("s64", self.room)), [full, Jump("return")])
        return [check, *counted.begin()]

    def finish(self, held: int = 0) -> tuple[list[Scratch], dict[Var, Array]]:
        """(scratch memory, temporaries) for all slots. held: bytes that are kept beside the tape."""
        items = max(1, self.draft.items)
        total = held + items * self.total
        if total > config.tape_bytes and (self.by_item or held):
            raise unsupported(
                self.name, f"the values that it overwrites take {total:,} bytes",
                "raise hl.config.tape_bytes, or give it a derivative with hl.custom_vjp",
            )  # fmt: skip
        sizes = {self.pointers[kind]: self.size(kind) for kind in self.pointers}
        if not self.by_item:
            return [Scratch(pointer, size) for pointer, size in sizes.items()], {}
        kinds = {pointer: DTYPES[kind] for kind, pointer in self.pointers.items()}
        return [], {p: Array(kinds[p], (items * size,), "temporary") for p, size in sizes.items()}

    def size(self, kind: str) -> int:
        """Elements of a type, of one iteration of the draft."""
        return self.counts[kind] + self.room * self.open.get(kind, 0)

    @property
    def by_item(self) -> bool:
        """Whether each iteration of the draft has a part of temporaries."""
        return self.separate or self.total > IN_SCRATCH


def _bytes(counts: Mapping[str, int]) -> int:
    return sum(count * DTYPES[kind].itemsize for kind, count in counts.items())


class Place:
    """A value's place on the tape. start: of its places, in elements; where they are open, in elements of each
    iteration that there is room for."""

    def __init__(self, tape: Tape, kind: str, start: int, index: Expr, is_open: bool = False):
        self.tape, self.kind, self.start, self.index, self.is_open = tape, kind, start, index, is_open

    def at(self) -> Expr:
        """Known once all slots are."""
        tape, start = self.tape, self.start
        if self.is_open:
            start = tape.counts[self.kind] + tape.room * start
        index = _plus(self.index, Const("s64", start))
        if tape.by_item and tape.draft.item is not None:
            index = _plus(_times(tape.draft.item, tape.size(self.kind)), index)
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
