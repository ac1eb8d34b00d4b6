"""The cheapest path from one layout of an array to another: a sequence of slices and collectives, by the cost model.

Each step changes the axes of one or two dimensions:

    slice           an axis along which all devices hold the same splits a dimension further: nothing is sent
    all-gather      the last axes of a dimension go
    all-to-all      the last axes of a dimension move to another one
    reduce-scatter  an axis of partial sums splits a dimension further
    all-reduce      axes of partial sums go
    permute         other axes of the same sizes: the devices' parts change places
    widen           the last axes of a dimension become axes of partial sums: each part is among zeros, nothing is sent
    keep            a value becomes partial sums: all but the first device along an axis have zero

Dijkstra's algorithm finds the path; few steps lead towards the target. If a dimension is not divisible by its axes, its
parts are padded, and a step from c parts to c * n is possible only if part k of the former consists of parts k * n and
following of the latter, or if c is 1.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator

from hloom.compiler.passes.spmd.resharding.costs import COPY, cost
from hloom.compiler.passes.spmd.resharding.layouts import Axes, Layout, Layouts
from hloom.ir.records import record
from hloom.ir.sizes.guards import typical


@record(frozen=True)
class Step:
    """A step to a layout. kind: see above. d: the dimension that gains or loses axes; source: of an all-to-all, the one
    that loses them."""

    kind: str
    axes: Axes
    target: Layout
    d: int = 0
    source: int = 0


class Paths:
    """Cheapest paths over one mesh, memoized."""

    def __init__(self, layouts: Layouts):
        self.layouts = layouts
        self._known: dict[tuple, tuple[float, list[Step]]] = {}

    def find(self, start: Layout, target: Layout, dims: tuple[int, ...], itemsize: int) -> tuple[float, list[Step]]:
        """(cost, steps) of the cheapest path for an array of these dims."""
        if start is target:
            return 0.0, []
        key = (start, target, dims, itemsize)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _Search(self.layouts, target, dims, itemsize).run(start)
        return found


class _Search:
    def __init__(self, layouts: Layouts, target: Layout, dims: tuple[int, ...], itemsize: int):
        self.layouts, self.target, self.dims, self.itemsize = layouts, target, dims, itemsize
        self.place = {a: d for d, axes in enumerate(target.dims) for a in axes}

    def run(self, start: Layout) -> tuple[float, list[Step]]:
        ticket = itertools.count()
        best: dict[Layout, float] = {start: 0.0}
        queue: list[tuple[float, int, Layout, tuple]] = [(0.0, next(ticket), start, ())]
        while queue:
            total, _, layout, path = heapq.heappop(queue)
            if layout is self.target:
                steps: list[Step] = []
                while path:
                    step, path = path
                    steps.append(step)
                return total, steps[::-1]
            if total > best[layout]:
                continue
            for price, step in self.steps(layout):
                reached = total + price
                if reached < best.get(step.target, math.inf):
                    best[step.target] = reached
                    heapq.heappush(queue, (reached, next(ticket), step.target, (step, path)))
        raise AssertionError(f"no path from {start} to {self.target}")

    # --- steps ---

    def bytes(self, layout: Layout) -> float:
        return float(typical(math.prod(layout.local(self.dims)) * self.itemsize))

    def steps(self, layout: Layout) -> Iterator[tuple[float, Step]]:
        part = self.bytes(layout)
        yield from self._slices(layout, part)
        for d, axes in enumerate(layout.dims):
            if axes and axes != self.target.dims[d]:
                yield from self._gathers(layout, d, axes, part)
        if layout.unreduced != self.target.unreduced:
            yield from self._sums(layout, part)
        yield from self._permutes(layout, part)

    def with_axes(self, layout: Layout, changes: dict[int, Axes], unreduced: Axes | None = None) -> Layout:
        dims = tuple([changes.get(d, axes) for d, axes in enumerate(layout.dims)])
        return self.layouts.of(dims, layout.unreduced if unreduced is None else unreduced)

    def nested(self, d: int, axes: Axes, more: Axes) -> bool:
        """Whether the parts along `axes` consist of those along `axes + more`."""
        few, times, size = self.layouts.count(axes), self.layouts.count(more), self.dims[d]
        return few == 1 or -(-size // few) == times * -(-size // (few * times))

    def _slices(self, layout: Layout, part: float):
        for d, wanted in enumerate(self.target.dims):
            axes = layout.dims[d]
            if len(axes) < len(wanted) and wanted[: len(axes)] == axes:
                rest = wanted[len(axes) :]
                for count in range(1, len(rest) + 1):
                    if not self.free(layout, rest[count - 1]):
                        break
                    if self.nested(d, axes, rest[:count]):
                        reached = self.with_axes(layout, {d: (*axes, *rest[:count])})
                        yield 1.0 + COPY * part, Step("slice", rest[:count], reached, d)
            else:
                for axis in wanted:
                    if self.free(layout, axis) and self.nested(d, axes, (axis,)):
                        reached = self.with_axes(layout, {d: (*axes, axis)})
                        yield 1.0 + COPY * part, Step("slice", (axis,), reached, d)

    def free(self, layout: Layout, axis: str) -> bool:
        return axis not in layout.axes and axis not in layout.unreduced

    def _gathers(self, layout: Layout, d: int, axes: Axes, part: float):
        """All-gathers and all-to-alls of the last axes of a dimension."""
        for count in range(1, len(axes) + 1):
            kept, moved = axes[: len(axes) - count], axes[len(axes) - count :]
            if not self.nested(d, kept, moved):
                continue
            n = self.layouts.count(moved)
            yield cost("all-gather", n, part), Step("all-gather", moved, self.with_axes(layout, {d: kept}), d)
            if all(a in self.target.unreduced for a in moved) and self.dims[d] % self.layouts.count(axes) == 0:
                reached = self.with_axes(layout, {d: kept}, (*layout.unreduced, *moved))
                yield 1.0 + COPY * part * n, Step("widen", moved, reached, d)
            places = {self.place.get(a) for a in moved}
            e = next(iter(places))
            if len(places) == 1 and e is not None and e != d and self.nested(e, layout.dims[e], moved):
                reached = self.with_axes(layout, {d: kept, e: (*layout.dims[e], *moved)})
                yield cost("all-to-all", n, part), Step("all-to-all", moved, reached, e, d)

    def _sums(self, layout: Layout, part: float):
        gone = tuple(a for a in layout.unreduced if a not in self.target.unreduced)
        for subset in {gone, tuple(a for a in gone if a not in self.place)} - {()}:
            rest = tuple(a for a in layout.unreduced if a not in subset)
            reached = self.with_axes(layout, {}, rest)
            yield cost("all-reduce", self.layouts.count(subset), part), Step("all-reduce", subset, reached)
        for d, wanted in enumerate(self.target.dims):
            axes = layout.dims[d]
            run = tuple(a for a in wanted if a in gone)
            for some in {run, run[:1], run[-1:]} - {()}:
                if self.nested(d, axes, some):
                    rest = tuple(a for a in layout.unreduced if a not in some)
                    reached = self.with_axes(layout, {d: (*axes, *some)}, rest)
                    yield (
                        cost("reduce-scatter", self.layouts.count(some), part),
                        Step("reduce-scatter", some, reached, d),
                    )
        more = tuple(a for a in self.target.unreduced if self.free(layout, a))
        if more:
            reached = self.with_axes(layout, {}, (*layout.unreduced, *more))
            yield 1.0 + COPY * part, Step("keep", more, reached)

    def _permutes(self, layout: Layout, part: float):
        target = self.target
        if layout.counts == target.counts and layout.unreduced == target.unreduced:
            yield cost("collective-permute", 2, part), Step("permute", (), target)
        ordered = tuple(
            axes if axes == target.dims[d] else (
                *(a for a in target.dims[d] if a in axes), *(a for a in axes if a not in target.dims[d])
            )
            for d, axes in enumerate(layout.dims)
        )  # fmt: skip
        if ordered != layout.dims:
            reached = self.layouts.of(ordered, layout.unreduced)
            yield cost("collective-permute", 2, part), Step("permute", (), reached)
