"""reduce-window: loops over windows, and in them over the elements that are inside.

Dimensions that the window leaves alone are joined: those before the others are work items, those after them (features
of images) an innermost loop. Elements are combined in the order of the window, as a loop over the definition does. A
cumulative window, which is as long as the array, is a scan, with as many steps as the array has elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    call,
    floor_divided,
    greatest,
    least,
    load,
    minus,
    plus,
    times,
)
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.nodes import Expr
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.windows.loops import Windows, beyond
from hloom.ir.types import HLO_NAME, NARROW_FLOATS
from hloom.ir.window import dilated

SHORT = 16  # windows up to this size are looped over where a scan would round otherwise


class ReduceWindow(Windows):
    """The launches of a reduce-window."""

    def __init__(self, request, instruction):
        super().__init__(request, instruction)
        half = len(instruction.operands) // 2
        self.arrays, self.initial = instruction.operands[:half], instruction.operands[half:]
        self.combiner = instruction["to_apply"]
        self.accumulators = [f"a{k}" for k in range(half)]

    def another(self) -> ReduceWindow:
        """The same with statements of its own: for a further kernel."""
        return ReduceWindow(self.request, self.instruction)

    def source(self, position: Expr) -> Expr:
        """Where the elements at a position in a plane begin."""
        lead: Expr = self.names["lead"]
        if self.middle:
            lead = beyond(times(lead, self.number("plane", self.plane)), position)
        return self.times(lead, "inner", self.inner)

    def begin(self, block: Block, names: Sequence[str]) -> None:
        """Accumulators of these names, which have the initial values."""
        for name, start in zip(names, self.initial, strict=True):
            block.let(name, self.scalar(start))

    def take(self, block: Block, names: Sequence[str], at: Expr, reverse: bool = False) -> None:
        """Combines the accumulators `names` with the elements at `at`, which come first where `reverse`."""
        values = [block.let(f"e{k}", load(self.operand(array), at)) for k, array in enumerate(self.arrays)]
        before = [self.names[name] for name in names]
        self.combine(block, names, [*values, *before] if reverse else [*before, *values])

    def combine(self, block: Block, names: Sequence[str], arguments: Sequence[Expr]) -> None:
        """names = combiner(arguments). Narrow floats are rounded each time, as a loop over arrays of them does it."""
        results = self.combined(block, self.combiner, arguments)
        for k, array in enumerate(self.arrays):
            if array.dtype in NARROW_FLOATS:
                results[k] = call(f"round_{HLO_NAME[array.dtype]}", (results[k],), by_name)
        into = [self.names.declare(name, result.type) for name, result in zip(names, results, strict=True)]
        block.set(into, results)

    def write(self, block: Block, names: Sequence[str], at: Expr, streamed: bool = False) -> None:
        """Stores the accumulators. streamed: by non-temporal stores, if the kernel has them."""
        for k, name in enumerate(names):
            block.store(self.output(k), at, self.names[name], streamed and self.request.streamed(k))

    def elements(self, taps: int) -> Launch:
        """One accumulator: an item is a row of windows, along the last dimension."""
        last, row = len(self.middle) - 1, 1
        item, block = self.items()
        self.place(block, item, range(last))
        if last < 0:
            inner = self.number("inner", self.inner)
            column, block = block.loop("column", ZERO, inner)
            out = plus(times(item, inner), column)
        else:
            row = self.middle[last].count
            count = self.number(f"count{last}", row)
            column, block = block.loop(f"p{last}", ZERO, count)
            out = plus(times(item, count), column)
        self.begin(block, self.accumulators)
        position, inside = self.open_window(block)
        self.take(inside, self.accumulators, self.source(position))
        self.write(block, self.accumulators, out)
        return self.finished("window", self.lead * self.places * self.inner // row, row * taps * 2.0)

    def _begin_rows(self, block: Block, item: Expr, variable: str, count: Expr) -> Expr:
        """Begins an item whose accumulators are a row of `count` elements of the result; returns where that begins."""
        out = block.let("out", times(item, count))
        column, inside = block.loop(variable, ZERO, count)
        for k, start in enumerate(self.initial):
            inside.store(self.output(k), plus(out, column), self.scalar(start))
        return out

    def _accumulate(self, block: Block, out: Expr, at: Expr) -> None:
        """Combines the elements of the result at `out` with those of the arrays at `at`."""
        for k, name in enumerate(self.accumulators):
            block.let(name, load(self.output(k), out))
        self.take(block, self.accumulators, at)
        self.write(block, self.accumulators, out)

    def rows(self, taps: int) -> Launch:
        """A row of accumulators, in the result itself: an item is a window."""
        inner = self.number("inner", self.inner)
        item, block = self.items()
        self.place(block, item, range(len(self.middle)))
        out = self._begin_rows(block, item, "c", inner)
        position, block = self.open_window(block)
        at = block.let("at", self.source(position))
        column, block = block.loop("c", ZERO, inner)
        self._accumulate(block, plus(out, column), plus(at, column))
        return self.finished("window", self.lead * self.places, self.inner * taps * 2.0)

    def lines(self, taps: int) -> Launch:
        """A row of accumulators, in the result itself, for all windows along the last dimension: an item is such a row.

        The loop over these windows is the innermost, so that it becomes vectors; each position in the window has a
        range of windows in which it is inside, known before that loop.
        """
        last = len(self.middle) - 1
        d, w = self.middle[last], self.middle[last].window
        count = self.number(f"count{last}", d.count)
        item, block = self.items()
        lead: Expr = self.place(block, item, range(last))
        out = self._begin_rows(block, item, "p", count)
        above, block = self.open_window(block, last)
        extent = self.number(f"extent{last}", d.extent)
        if last:
            lead = beyond(times(lead, self.number("lines", self.plane // d.extent)), above)
        line = block.let("line", times(lead, extent))
        within, block = block.loop(f"w{last}", ZERO, self.size(f"size{last}", w.size))
        b = block.let("b", self.times(within, f"step{last}", w.window_dilation))
        if w.low:
            block.let("b", minus(b, self.number(f"low{last}", w.low)))
        # The stride is a constant of the kernel, so that vectors can be gathered from neighbours.
        stride = self.size(f"stride{last}", w.stride) if w.stride != 1 else None
        spread = self.number(f"reach{last}", dilated(d.extent, w.base_dilation))
        gap: Expr | None = None
        if w.base_dilation != 1:
            # Every base_dilation-th place meets an element: x = (p + b) / gap for p = first, first + gap, ...
            gap = self.number(f"gap{last}", w.base_dilation)
            x = block.let("x", floor_divided(greatest(minus(plus(b, gap), ONE), ZERO), gap))
            first = block.let("first", minus(times(x, gap), b))
            stop = block.let("stop", least(minus(spread, b), count))
            reached = greatest(minus(plus(minus(stop, first), gap), ONE), ZERO)
            steps, begin = block.let("steps", floor_divided(reached, gap)), plus(line, x)
            stride = None
        elif stride is not None:
            before, after = minus(minus(stride, ONE), b), minus(plus(minus(spread, b), stride), ONE)
            first = block.let("first", floor_divided(greatest(before, ZERO), stride))
            stop = block.let("stop", least(floor_divided(greatest(after, ZERO), stride), count))
            steps, begin = block.let("steps", minus(stop, first)), plus(line, times(first, stride), b)
        else:
            first = block.let("first", greatest(minus(ZERO, b), ZERO))
            steps = block.let("steps", minus(least(minus(spread, b), count), first))
            begin = plus(line, first, b)
        line_at, out_at = block.let("line_at", begin), block.let("out_at", plus(out, first))
        p, block = block.loop("p", ZERO, steps)
        written = plus(out_at, p if gap is None else times(p, gap))
        self._accumulate(block, written, plus(line_at, p if stride is None else times(p, stride)))
        return self.finished("window", self.lead * self.places // d.count, d.count * taps * 2.0)

    def scanned(self) -> tuple[int, bool] | None:
        """(the dimension, whether from its end) of a scan; None where the windows are none."""
        wide = [k for k, d in enumerate(self.middle) if not d.window.is_plain()]
        if len(wide) != 1:
            return None
        (k,) = wide
        d = self.middle[k]
        reverse = d.window.running(d.extent)
        if reverse is None:
            return None
        # From its end it combines in another order than a loop over each window, so floats are rounded otherwise.
        return None if reverse and d.window.size <= SHORT else (k, reverse)
