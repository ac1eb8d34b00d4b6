"""A plan as the tables that the exported driver (`native/driver.c`) walks: rows of steps, argument words, what goes
into them when a call begins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import (
    BranchStep,
    CopyStep,
    JumpStep,
    KernelStep,
    Place,
    Step,
    SwapStep,
    SwitchStep,
)
from hloom.ir.records import field, record

# As in native/driver.c.
FIX_SLOT, FIX_CONSTANT, FIX_ARENA, FIX_KERNEL = range(4)
USE_WORD, USE_ROW, USE_FIX, USE_ARENA, USE_SCALAR = range(5)
ROW_KERNEL, ROW_JUMP, ROW_BRANCH, ROW_COPY, ROW_SWITCH, ROW_SWAP = range(1, 7)
ROW_WORDS = 8
WAKING = 200_000  # nanoseconds from which on sleeping threads are woken in any case

EXPORTABLE = (KernelStep, CopyStep, JumpStep, BranchStep, SwitchStep, SwapStep)


class Shared:
    """What the functions of a library have in common: kernels and constants, each once."""

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
    """words: argument words; fixes: (position, kind, number) of those that are addresses; rows: of the steps. uses:
    (kind, index, expression) of numbers that depend on named dimensions, which stand as 0 in the other tables."""

    words: list[int] = field(default_factory=list)
    fixes: list[tuple[int, int, int]] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    arena_bytes: int = 0
    uses: list[tuple[int, int, Any]] = field(default_factory=list)


def tables_of(plan: Plan, shared: Shared) -> Tables:
    """The tables of a plan whose steps are all `EXPORTABLE`."""
    return _Maker(plan, shared).tables()


class _Maker:
    def __init__(self, plan: Plan, shared: Shared):
        self.plan, self.shared, self.made = plan, shared, Tables()
        self.constants = [shared.constant(np.asarray(value)) for value in plan.constants]
        self.swapped: dict[int, list[int]] = {}  # swap number of a place -> the words that hold its address

    def number(self, value: Any, kind: int, index: int) -> int:
        """A number of a table; one that depends on dimensions is noted as a use."""
        if type(value) is int or isinstance(value, (bool, np.integer)) or not hasattr(value, "expression"):
            return int(value)
        self.made.uses.append((kind, index, value))
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
            fixes.append((position, FIX_ARENA, self.number(number, USE_FIX, len(fixes))))
        else:
            slot = number + (len(self.plan.input_shapes) if place.kind == "output" else 0)
            fixes.append((position, FIX_SLOT, slot))

    def row(self, *values: Any) -> None:
        rows = self.made.rows
        start = ROW_WORDS * len(rows)
        row = [self.number(value, USE_ROW, start + k) for k, value in enumerate(values)]
        rows.append(row + [0] * (ROW_WORDS - len(row)))

    def tables(self) -> Tables:
        ahead = _work_ahead(self.plan.steps)
        swaps: list[tuple[int, SwapStep]] = []
        for number, step in enumerate(self.plan.steps):
            if isinstance(step, KernelStep):
                launch, start = step.launch, len(self.made.words)
                for argument in launch.arguments:
                    self.word(step.pointers[argument] if isinstance(argument, str) else argument)
                kernel, side_by_side = self.shared.kernel(launch.source), int(bool(launch.side_by_side))
                self.row(ROW_KERNEL, kernel, start, launch.items, launch.grain, side_by_side, ahead[number])
            elif isinstance(step, CopyStep):
                self.row(ROW_COPY, self.word(step.target), self.word(step.source), step.bytes)
            elif isinstance(step, JumpStep):
                self.row(ROW_JUMP, step.target)
            elif isinstance(step, BranchStep):
                self.row(ROW_BRANCH, step.target, self.word(step.pred))
            elif isinstance(step, SwitchStep):
                place, start = self.word(step.index), len(self.made.words)
                for target in step.targets:
                    self.word(target)
                self.row(ROW_SWITCH, place, len(step.targets), start)
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
                assert one.swap is not None  # places that are exchanged have a number
                positions = self.swapped[one.swap]
                operands += [len(self.made.words), len(positions)]
                for position in positions:
                    self.word(position)
            self.made.rows[row] = [ROW_SWAP, *operands, 0, 0, 0]
        self.made.arena_bytes = self.number(self.plan.arena_bytes, USE_ARENA, 0)
        return self.made


def _work_ahead(steps: Iterable[Step]) -> list[int]:
    """For each step the nanoseconds, roughly, that one thread takes for what threads share of it and of what follows,
    at most `WAKING`: sleeping threads are woken by that."""
    steps = list(steps)
    total, found = 0, []
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        if isinstance(step, JumpStep) and step.target <= number:
            total = WAKING
        elif isinstance(step, KernelStep) and total < WAKING:
            items, grain, time = (int(x) for x in (step.launch.items, step.launch.grain, step.launch.nanoseconds))
            if items > grain:
                total = min(total + time, WAKING)
        found.append(total)
    return found[::-1]
