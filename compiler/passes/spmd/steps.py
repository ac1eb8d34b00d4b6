"""What propagation works on: the layouts of arrays while they are being found, and the steps that carry them on.

A `Draft` is the layout of one array (several instructions may share one: a tuple's elements are its operands). A `Step`
joins layouts by an op's factors. Layouts only grow: a dimension gets further axes behind those that it has, so that
every order of steps comes to an end; which end that is, is decided by the order (`Propagation`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from hloom.ir.sizes.guards import typical
from hloom.ir.spmd.factors import FactorRule
from hloom.ir.spmd.sharding import DeviceMesh, Sharding

# What a step does at a stage: carry on along all factors in both directions, only from the result to the operands, or
# only along factors that need nothing of other devices.
ALL, BACKWARD, PASSING = 0, 1, 2

Axes = tuple[str, ...]


class Draft:
    """The axes of each dimension of an array.

    fixed: the dimensions that stay as they are. hidden: those that are not carried on yet, with their priorities. used:
    axes that no further dimension may get: those of its dimensions, those that an annotation rules out, and those of
    the manual computation around it. passive: computed of nothing that is laid out (constants, counters,
    numbers spread over an array): it follows its readers and passes nothing on to others.
    """

    __slots__ = ("sizes", "bytes", "dims", "fixed", "hidden", "used", "unreduced", "passive", "sharded", "steps")

    def __init__(self, shape, banned: Axes = (), passive: bool = False):
        self.sizes: tuple[int, ...] = shape.dims
        self.bytes: int = typical(shape.bytes)
        self.dims: list[Axes] = [()] * len(shape.dims)
        self.fixed: frozenset[int] = frozenset()
        self.hidden: dict[int, int] = {}
        self.used = banned
        self.unreduced: Axes = ()
        self.passive = passive
        self.sharded = False
        self.steps: list[Step] = []

    def fix(self, sharding: Sharding) -> None:
        """Makes an annotation the layout; its open dimensions may still grow."""
        self.dims = list(sharding.dims)
        self.unreduced = sharding.unreduced
        self.fixed = frozenset(range(len(self.dims))) - frozenset(sharding.open)
        self.hidden = {d: priority for d, priority in enumerate(sharding.priorities) if priority and self.dims[d]}
        self.used += (*sharding.axes, *sharding.unreduced, *sharding.replicated_axes)
        self.passive = False
        self.sharded = any(self.dims)

    def grow(self, d: int, axes: Axes) -> None:
        """Gives a dimension further axes, behind those that it has."""
        self.used += axes[len(self.dims[d]) :]
        self.dims[d] = axes
        self.sharded = True


class Plan:
    """A factor rule as steps use it: one for all instructions that share the rule.

    factors: for each array (operands, then results), for each dimension, its factors. operands: how many there are.
    apart: factors along which an op needs what lies on other devices. where: for each factor (array, dimension).
    single: whether no dimension has several factors.
    """

    __slots__ = ("factors", "operands", "sizes", "windows", "apart", "where", "single", "rule")

    def __init__(self, rule: FactorRule):
        self.rule = rule
        self.factors = (*rule.operands, *rule.results)
        self.operands = len(rule.operands)
        self.sizes = rule.sizes
        self.windows = rule.windows
        self.apart = rule.windows | rule.whole | rule.masked
        where: list[list[tuple[int, int]]] = [[] for _ in rule.sizes]
        self.single = True
        for k, factors in enumerate(self.factors):
            for d, these in enumerate(factors):
                self.single &= len(these) < 2
                for f in these:
                    where[f].append((k, d))
        self.where = tuple(map(tuple, where))


class Step:
    """Layouts joined by the factors of an op: of its operands, then of its results.

    stages: (level, what is done there), see `Propagation`.
    """

    __slots__ = ("layouts", "plan", "stages", "order", "queued")

    def __init__(self, layouts: Sequence[Draft], plan: Plan, stages: tuple[tuple[int, int], ...]):
        self.layouts = tuple(layouts)
        self.plan = plan
        self.stages = stages
        self.order = 0
        self.queued = 0

    def carry(self, sizes: dict[str, int], what: int) -> list[Draft]:
        """Carries axes on from the arrays that have them to the others; the layouts that changed."""
        plan = self.plan
        best = self._best(sizes, plan.apart if what == PASSING else ())
        changed: list[Draft] = []
        if not best:
            return changed
        ranked = list(best.items())
        if len(ranked) > 1:
            ranked.sort(key=_weight, reverse=True)
        for factor, (axes, active, _) in ranked:
            for k, d in plan.where[factor]:
                layout = self.layouts[k]
                if d in layout.fixed or not (active or layout.passive) or (what == BACKWARD and k >= plan.operands):
                    continue
                these = plan.factors[k][d]
                wanted = axes if len(these) == 1 else self._joined(these, best, sizes)
                old = layout.dims[d]
                if len(wanted) > len(old) and wanted[: len(old)] == old:
                    new = self._allowed(layout, d, factor, old, wanted, sizes)
                    if new is not old:
                        layout.grow(d, new)
                        changed.append(layout)
        return changed

    def _allowed(self, layout: Draft, d: int, factor: int, old: Axes, wanted: Axes, sizes: dict[str, int]) -> Axes:
        """The longest beginning of the wanted axes that a dimension may have."""
        used, end = layout.used, len(old)
        while end < len(wanted) and wanted[end] not in used:
            end += 1
        if factor in self.plan.windows:  # dimensions of several sizes: one may have fewer elements than there are parts
            if layout.sizes[d] < _product(wanted[:end], sizes):
                return old
        return wanted[:end] if end > len(old) else old

    def _best(self, sizes: dict[str, int], without) -> dict[int, tuple[Axes, bool, int]]:
        """For each factor the axes to carry on: the longest list that agrees with the others; where two lists disagree,
        that of the array with more bytes, or else the first one. With whether it is not of passive arrays only, and
        the bytes of the largest array that has it."""
        best: dict[int, tuple[Axes, bool, int]] = {}
        for layout, factors in zip(self.layouts, self.plan.factors, strict=True):
            if not layout.sharded:
                continue
            active, size = not layout.passive, layout.bytes
            for d, axes in enumerate(layout.dims):
                if not axes or d in layout.hidden:
                    continue
                these = factors[d]
                for f, part in ((these[0], axes),) if len(these) == 1 else self._split(these, axes, sizes):
                    if f in without:
                        continue
                    known = best.get(f)
                    if known is None:
                        best[f] = (part, active, size)
                    elif active != known[1]:
                        if active:
                            best[f] = (part, active, size)
                    elif len(part) <= len(known[0]) and known[0][: len(part)] == part:
                        if size > known[2]:
                            best[f] = (known[0], active, size)
                    elif part[: len(known[0])] == known[0]:
                        best[f] = (part, active, max(size, known[2]))
                    elif size > known[2]:
                        best[f] = (part, active, size)
        return best

    def _split(self, factors: Sequence[int], axes: Axes, sizes: dict[str, int]) -> list[tuple[int, Axes]]:
        """The axes of a dimension of several factors, by factor: a minor factor has axes only where those before are
        split into single elements, and no factor has axes that do not divide it."""
        found, at = [], 0
        for f in factors:
            left, start = self.plan.sizes[f], at
            while at < len(axes) and left % sizes[axes[at]] == 0:
                left //= sizes[axes[at]]
                at += 1
            if at > start:
                found.append((f, axes[start:at]))
            if left != 1:
                break
        return found

    def _joined(self, factors: Sequence[int], best, sizes: dict[str, int]) -> Axes:
        """The axes of a dimension of several factors: the reverse of `_split`."""
        found: Axes = ()
        for f in factors:
            left = self.plan.sizes[f]
            for axis in best[f][0] if f in best else ():
                if left % sizes[axis]:
                    return found
                left //= sizes[axis]
                found += (axis,)
            if left != 1:
                break
        return found


class ManualStep(Step):
    """An argument or result of a manual computation, outside and inside of it: inside, the manual axes are missing,
    which are the major ones of each dimension."""

    __slots__ = ("prefixes",)

    def __init__(self, outside: Draft, inside: Draft, prefixes: Sequence[Axes]):
        line = tuple((d,) for d in range(len(outside.sizes)))
        super().__init__([outside, inside], Plan(FactorRule((line,), (line,), outside.sizes)), ((0, ALL),))
        self.prefixes = prefixes

    def carry(self, sizes: dict[str, int], what: int) -> list[Draft]:
        outside, inside = self.layouts
        changed = []
        for d, prefix in enumerate(self.prefixes):
            outer, inner = outside.dims[d], inside.dims[d]
            if outer[: len(prefix)] != prefix or d in outside.hidden:
                continue
            rest = outer[len(prefix) :]
            for layout, old, wanted in ((inside, inner, rest), (outside, outer, (*prefix, *inner))):
                if d not in layout.fixed and len(wanted) > len(old) and wanted[: len(old)] == old:
                    new = self._allowed(layout, d, d, old, wanted, sizes)
                    if new is not old:
                        layout.grow(d, new)
                        changed.append(layout)
        return changed


def _weight(item) -> tuple[bool, int]:
    return item[1][1], item[1][2]


def _product(axes: Axes, sizes: dict[str, int]) -> int:
    result = 1
    for axis in axes:
        result *= sizes[axis]
    return result


class Propagation:
    """Runs steps until nothing changes, those of the lowest level first, and of one level the first in the program."""

    def __init__(self, mesh: DeviceMesh):
        self.sizes = dict(zip(mesh.names, mesh.sizes, strict=True))
        self.steps: list[Step] = []
        self.late: list[Draft] = []  # with hidden dimensions
        self._queue: list[int] = []

    def add(self, step: Step) -> None:
        arrays = [layout for layout in step.layouts if layout.sizes]
        if len(arrays) < 2:
            return
        step.order = len(self.steps)
        self.steps.append(step)
        for layout in arrays:
            layout.steps.append(step)

    def _push(self, step: Step) -> None:
        for level, what in step.stages:
            bit = 1 << what
            if not step.queued & bit:
                step.queued |= bit
                heapq.heappush(self._queue, (level << 48) | (step.order << 2) | what)

    def run(self) -> None:
        """First without the dimensions that are hidden, then with those of priority 1 and so on."""
        for step in self.steps:
            if any([layout.sharded for layout in step.layouts]):
                self._push(step)
        self._empty()
        while self.late:
            lowest = min(priority for layout in self.late for priority in layout.hidden.values())
            for layout in self.late:
                layout.hidden = {d: priority for d, priority in layout.hidden.items() if priority > lowest}
                for step in layout.steps:
                    self._push(step)
            self.late = [layout for layout in self.late if layout.hidden]
            self._empty()

    def _empty(self) -> None:
        """Runs the steps in the queue, and those that they add to it."""
        queue, steps = self._queue, self.steps
        while queue:
            key = heapq.heappop(queue)
            step, what = steps[(key & ((1 << 48) - 1)) >> 2], key & 3
            step.queued &= ~(1 << what)
            for layout in step.carry(self.sizes, what):
                for other in layout.steps:
                    if other is not step or not step.plan.single:  # one factor may show the next of a dimension
                        self._push(other)
