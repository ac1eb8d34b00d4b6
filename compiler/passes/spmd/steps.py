"""The data structures of propagation: layouts under construction, and the steps that propagate them.

A `Draft` is the layout of one array (several instructions may share one: a tuple's elements are its operands). A `Step`
joins layouts by an op's factors. Layouts only grow: a dimension gets further axes after those it has, so every order of
steps terminates; the order determines the result (`Propagation`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from hloom.ir.sizes.guards import typical
from hloom.ir.spmd.factors import FactorRule
from hloom.ir.spmd.sharding import DeviceMesh, Sharding

# The work of a step at a stage: propagate along all factors in both directions, only from the result to the operands,
# or only along factors without remote elements.
ALL, BACKWARD, PASSING = 0, 1, 2

Axes = tuple[str, ...]


class Draft:
    """The axes of each dimension of an array.

    fixed: the dimensions that do not change. hidden: those not yet propagated, with their priorities. used: axes that
    no further dimension may get: those of its dimensions, those excluded by an annotation, and those of the enclosing
    manual computation. passive: computed only from values without a layout (constants, counters, broadcast scalars): it
    follows its readers and does not propagate.
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
        """Adds axes to a dimension, after those it has."""
        self.used += axes[len(self.dims[d]) :]
        self.dims[d] = axes
        self.sharded = True


class Plan:
    """A factor rule in the form for steps, shared by all instructions with the rule.

    factors: for each array (operands, then results), for each dimension, its factors. operands: their number. apart:
    factors along which an op needs remote elements. where: for each factor (array, dimension).
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

    stages: (level, work at that level), see `Propagation`.
    """

    __slots__ = ("layouts", "plan", "stages", "order", "queued")

    def __init__(self, layouts: Sequence[Draft], plan: Plan, stages: tuple[tuple[int, int], ...]):
        self.layouts = tuple(layouts)
        self.plan = plan
        self.stages = stages
        self.order = 0
        self.queued = 0

    def carry(self, sizes: dict[str, int], what: int) -> list[Draft]:
        """Propagates axes from the arrays that have them to the others; returns the layouts that changed."""
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
        """The longest prefix of the proposed axes that a dimension may have."""
        used, end = layout.used, len(old)
        while end < len(wanted) and wanted[end] not in used:
            end += 1
        if factor in self.plan.windows:  # dimensions of several sizes: one may have fewer elements than there are parts
            if layout.sizes[d] < _product(wanted[:end], sizes):
                return old
        return wanted[:end] if end > len(old) else old

    def _best(self, sizes: dict[str, int], without) -> dict[int, tuple[Axes, bool, int]]:
        """For each factor the axes to propagate: the longest list compatible with the others; if two lists conflict,
        that of the array with more bytes, or else the first one. Also whether it comes not only from passive arrays,
        and the bytes of the largest array that has it."""
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
        """The axes of a dimension of several factors, by factor: a minor factor has axes only if the preceding ones are
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
        """The axes of a dimension of several factors: the inverse of `_split`."""
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
    """An argument or result of a manual computation, outside and inside: inside, the manual axes, which are the major
    ones of each dimension, are removed."""

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
    """Runs steps to a fixed point, by level and then in program order."""

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
        """First without hidden dimensions, then with those of priority 1, and so on."""
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
        """Runs the queued steps, and those that they enqueue."""
        queue, steps = self._queue, self.steps
        while queue:
            key = heapq.heappop(queue)
            step, what = steps[(key & ((1 << 48) - 1)) >> 2], key & 3
            step.queued &= ~(1 << what)
            for layout in step.carry(self.sizes, what):
                for other in layout.steps:
                    if other is not step or not step.plan.single:  # one factor may reveal the next of a dimension
                        self._push(other)
