"""A plan as the tables that the exported driver (`native/driver.c`) walks: rows of steps, argument words, and the
values written into them when a call begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.schedule.buffer_assignment import ALIGNMENT, Buffer
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import (
    BranchStep,
    CopyStep,
    JumpStep,
    KernelStep,
    Place,
    SwapStep,
    SwitchStep,
)
from hloom.export.nodes import Nodes
from hloom.ir.records import field, record
from hloom.ir.sizes.expressions import Comparison, Size, SizeExpression, greatest
from hloom.ir.sizes.guards import typical
from hloom.ir.sizes.numbers import Node, Number
from hloom.runtime.driver_source import (
    COPY,
    JUMP,
    JUMP_IF_ZERO,
    KERNEL,
    STEP_WORDS,
    SWAP,
    SWITCH,
    Work,
    work_ahead,
)

# As in native/driver.c.
FIX_SLOT, FIX_CONSTANT, FIX_ARENA, FIX_KERNEL = range(4)
USE_WORD, USE_ROW, USE_FIX, USE_ARENA = range(4)

EXPORTABLE = (KernelStep, CopyStep, JumpStep, BranchStep, SwitchStep, SwapStep)


class Shared:
    """The shared parts of a library's functions: kernels and constants, each once."""

    def __init__(self) -> None:
        self.kernels: dict[KernelSource, int] = {}
        self.constants: list[np.ndarray] = []
        self._constants: dict[tuple, int] = {}

    def kernel(self, source: KernelSource) -> int:
        return self.kernels.setdefault(source, len(self.kernels))

    def constant(self, value: np.ndarray) -> int:
        key = value.dtype.str, value.shape, value.tobytes()
        if key not in self._constants:
            self._constants[key] = len(self.constants)
            self.constants.append(value)
        return self._constants[key]


@record
class Tables:
    """words: argument words; fixes: (position, kind, index) of those that are addresses; rows: of the steps. nodes: of
    the integers that depend on sizes; guards: those that have to hold, among the first guard_nodes. uses: (kind, index,
    node) of such integers, which are 0 in the other tables."""

    nodes: Nodes
    words: list[int] = field(default_factory=list)
    fixes: list[tuple[int, int, int]] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    arena_bytes: int = 0
    uses: list[tuple[int, int, int]] = field(default_factory=list)
    guards: list[int] = field(default_factory=list)
    guard_nodes: int = 0


def tables_of(plan: Plan, shared: Shared, dimensions: Mapping[str, int], guards: Sequence[Comparison] = ()) -> Tables:
    """The tables of a plan whose steps are all `EXPORTABLE`. dimensions: their indices by name."""
    made = Tables(Nodes(dimensions))
    made.guards = [made.nodes.guard(guard) for guard in guards]
    made.guard_nodes = len(made.nodes.values)
    return _Maker(plan, shared, made).tables()


class _Maker:
    def __init__(self, plan: Plan, shared: Shared, made: Tables):
        self.plan, self.shared, self.made = plan, shared, made
        self.constants = [shared.constant(np.asarray(value)) for value in plan.constants]
        self.swapped: dict[int, list[int]] = {}  # swap index of a reference -> the words that hold its address
        self.slots, self.arena_bytes = self._slots(plan.arena)
        self.work: list[Work | bool] = []  # of each row, for `work_ahead`

    def _slots(self, arena: Sequence[Buffer]) -> tuple[list[Number], Number]:
        """The number of each buffer's offset, and that of the total size. Buffers with disjoint lifetimes share a slot,
        which is as large as the largest of them."""
        sizes: list[Any] = []
        last: list[int] = []
        slot_of = [0] * len(arena)
        for number, buffer in sorted(enumerate(arena), key=lambda pair: pair[1].first):
            free = [k for k, time in enumerate(last) if time < buffer.first]
            if free:
                want = typical(buffer.bytes)
                slot = min(free, key=lambda k: abs(typical(sizes[k]) - want))
                sizes[slot], last[slot] = greatest(sizes[slot], buffer.bytes), buffer.last
            else:
                slot = len(sizes)
                sizes.append(buffer.bytes)
                last.append(buffer.last)
            slot_of[number] = slot
        places: list[Number] = [0]
        for size in sizes:
            places.append(places[-1] + self.made.nodes.of((size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT))
        return [places[slot] for slot in slot_of], places[-1]

    def number(self, value: Size | Node, kind: int, index: int) -> int:
        """A number of a table; one that depends on dimensions is noted as a use."""
        found = value if isinstance(value, Node) else self.made.nodes.of(value)
        if not isinstance(found, Node):
            return int(found)
        self.made.uses.append((kind, index, found.index))
        return 0

    def word(self, value: Any) -> int:
        """Appends an argument word; its position."""
        made = self.made
        position = len(made.words)
        made.words.append(0)
        if isinstance(value, Place):
            if value.swap is not None:
                self.swapped.setdefault(value.swap, []).append(position)
            self.fix(position, value)
        elif isinstance(value, KernelSource):
            made.fixes.append((position, FIX_KERNEL, self.shared.kernel(value)))
        else:
            made.words[position] = self.number(value, USE_WORD, position)
        return position

    def fix(self, position: int, place: Place) -> None:
        fixes, number = self.made.fixes, place.number
        if place.kind == "constant":
            fixes.append((position, FIX_CONSTANT, self.constants[number]))
        elif place.kind == "arena":
            if self.plan.arena:
                number = self.number(self.slots[number], USE_FIX, len(fixes))
            fixes.append((position, FIX_ARENA, number))
        else:
            slot = number + (len(self.plan.input_shapes) if place.kind == "output" else 0)
            fixes.append((position, FIX_SLOT, slot))

    def row(self, *values: Any, work: Work | bool = False) -> None:
        rows = self.made.rows
        self.work.append(work)
        start = STEP_WORDS * len(rows)
        row = [self.number(value, USE_ROW, start + k) for k, value in enumerate(values)]
        rows.append(row + [0] * (STEP_WORDS - len(row)))

    def kernel(self, launch: Launch, pointers: Mapping[str, Place]) -> None:
        start = len(self.made.words)
        if isinstance(launch.items, SizeExpression) or isinstance(launch.moved, SizeExpression):
            launch = launch.at(self.made.nodes.of)
        for argument in launch.arguments:
            self.word(pointers[argument] if isinstance(argument, str) else argument)
        kernel, side_by_side = self.shared.kernel(launch.source), int(bool(launch.side_by_side))
        of = self.made.nodes.of
        items, grain = (one if isinstance(one, Node) else of(one) for one in (launch.items, launch.grain))
        self.row(KERNEL, kernel, start, items, grain, side_by_side, work=(items, grain, launch.nanoseconds))

    def tables(self) -> Tables:
        swaps: list[tuple[int, SwapStep]] = []
        for step in self.plan.steps:
            if isinstance(step, KernelStep):
                self.kernel(step.launch, step.pointers)
            elif isinstance(step, CopyStep):
                self.row(COPY, self.word(step.target), self.word(step.source), step.bytes)
            elif isinstance(step, JumpStep):
                self.row(JUMP, step.target, work=step.target <= len(self.made.rows))
            elif isinstance(step, BranchStep):
                self.row(JUMP_IF_ZERO, step.target, self.word(step.pred))
            elif isinstance(step, SwitchStep):
                place, start = self.word(step.index), len(self.made.words)
                for target in step.targets:
                    self.word(target)
                self.row(SWITCH, place, len(step.targets), start)
            else:
                assert isinstance(step, SwapStep)
                for one in (step.first, step.second):
                    if one.swap not in self.swapped:
                        self.word(one)
                swaps.append((len(self.made.rows), step))
                self.row()
        for row, swap in swaps:  # now all words are there
            operands: list[int] = []
            for one in (swap.first, swap.second):
                assert one.swap is not None  # swapped references have an index
                positions = self.swapped[one.swap]
                operands += [len(self.made.words), len(positions)]
                for position in positions:
                    self.word(position)
            self.made.rows[row] = [SWAP, *operands, 0, 0, 0]
        for k, ahead in enumerate(work_ahead(self.work)):
            if self.made.rows[k][0] == KERNEL:
                self.made.rows[k][6] = self.number(ahead, USE_ROW, STEP_WORDS * k + 6)
        self.made.arena_bytes = self.plan.arena_bytes
        if self.plan.arena:
            self.made.arena_bytes = self.number(self.arena_bytes, USE_ARENA, 0)
        return self.made
