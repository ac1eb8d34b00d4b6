"""reduce-window and select-and-scatter: a thread an element of the result.

What a gradient of pooling adds to an element comes from the windows that chose it. So that nobody writes where another
may, a first kernel notes what each window chose, and a second one goes through the windows that an element is in, in
order. Cumulative windows are running combinations (`running`).
"""

from __future__ import annotations

import math

from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    both,
    call,
    cast,
    compared,
    floor_divided,
    greatest,
    least,
    load,
    minus,
    plus,
    times,
    unary,
)
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.nodes import Expr, Var
from hloom.compiler.kernels.codegen.constants import literal
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.windows.loops import Windows, beyond
from hloom.compiler.kernels.windows.reduce_window import ReduceWindow
from hloom.compiler.targets.cuda.launches import CudaLaunch, launch_of_windows
from hloom.compiler.targets.cuda.scans import running_launches
from hloom.ir.ops import OPS
from hloom.ir.types import HLO_NAME, NARROW_FLOATS
from hloom.ir.window import dilated


def window_launches(request: KernelRequest, processors: int) -> list[CudaLaunch]:
    """The launches of a computation of one reduce-window or select-and-scatter; none where the result is empty."""
    (instruction,) = [i for i in request.computation.instructions if OPS[i.opcode].family == "window"]
    if instruction.opcode == "reduce-window":
        made = _ReduceWindow(request, instruction)
        if not made.lead * made.places * made.inner:
            return []
        scanned = made.scanned()
        if scanned is not None:
            return running_launches(made, *scanned, processors)
        return [made.launch(processors)]
    if not instruction.operands[0].shape.size:
        return []
    chosen = _Chosen(request, instruction)
    return [chosen.launch(processors), _Gathered(request, instruction).launch(processors)]


class _ReduceWindow(ReduceWindow):
    def another(self) -> _ReduceWindow:
        return _ReduceWindow(self.request, self.instruction)

    def launch(self, processors: int) -> CudaLaunch:
        column, block = _place(self), self.root
        self.begin(block, self.accumulators)
        position, within = self.open_window(block)
        source = self.source(position)
        self.take(within, self.accumulators, source if column is None else plus(source, column))
        self.write(block, self.accumulators, self.names["item"])
        taps = math.prod(d.window.size for d in self.middle)
        items = self.lead * self.places * self.inner
        return launch_of_windows(self, "window", items, taps * 2.0, processors, grain="element")


def _place(made: Windows) -> Var | None:
    """Takes `item` apart into lead, p0, p1, ... and what is innermost; returns that, None where it is one."""
    block, item = made.root, made.writer.index("item")
    if made.inner == 1:
        made.place(block, item, range(len(made.middle)))
        return None
    inner = made.number("inner", made.inner)
    place = block.let("place", floor_divided(item, inner))
    column = block.let("column", minus(item, times(place, inner)))
    made.place(block, place, range(len(made.middle)))
    return column


class _Chosen(Windows):
    """The first kernel: the element that each window chooses, as its place in the operand; -1 where there is none."""

    def launch(self, processors: int) -> CudaLaunch:
        operand, block = self.instruction.operands[0], self.root
        column = _place(self)
        chosen = block.let("chosen", cast("s64", unary("-", ONE)))
        best = block.let("best", literal(0, operand.dtype))
        position, within = self.open_window(block)
        at: Expr = self.names["lead"]
        if self.middle:
            at = beyond(times(at, self.number("plane", self.plane)), position)
        if column is not None:
            at = plus(times(at, self.number("inner", self.inner)), column)
        at = within.let("at", at)
        value = within.let("value", load(self.operand(operand), at))
        (keep,) = self.combined(within, self.instruction["select"], [best, value])
        better = within.branch(both("or", [compared("<", chosen, ZERO), unary("not", keep)]))
        better.let("best", value)
        better.let("chosen", cast("s64", at))
        block.store(self.names.declare("chosen0", "*s64"), self.names["item"], chosen)
        items = self.lead * self.places * self.inner
        taps = math.prod(d.window.size for d in self.middle)
        return launch_of_windows(
            self, "select", items, taps * 3.0, processors, arrays={"chosen0": ("s64", max(items, 1))}, outputs=False,
            grain="element",
        )  # fmt: skip


class _Gathered(Windows):
    """The second kernel: each element combines the updates of the windows that chose it, in their order."""

    def launch(self, processors: int) -> CudaLaunch:
        operand, source, initial = self.instruction.operands
        block, item = self.root, self.writer.index("item")
        rest, column = item, None
        if self.inner != 1:
            inner = self.number("inner", self.inner)
            rest = block.let("position", floor_divided(item, inner))
            column = block.let("column", minus(item, times(rest, inner)))
        for k in reversed(range(len(self.middle))):
            extent = self.number(f"extent{k}", self.middle[k].extent)
            above = block.let(f"rest{k}", floor_divided(rest, extent))
            block.let(f"x{k}", minus(rest, times(above, extent)))
            rest = above
        lead: Expr = block.let("lead", rest)
        total, within = block.let("total", self.scalar(initial)), block
        for k, d in enumerate(self.middle):
            # Places p whose window may have x: p * stride - low <= x <= p * stride - low + reach - 1.
            w = d.window
            at = self.times(self.names[f"x{k}"], f"gap{k}", w.base_dilation)
            at = plus(at, self.number(f"low{k}", w.low)) if w.low else at
            reach = self.number(f"reach{k}", dilated(w.size, w.window_dilation) - 1)
            stride, count = self.number(f"stride{k}", w.stride), self.number(f"count{k}", d.count)
            before = minus(plus(minus(at, reach), stride), ONE)
            first = within.let(f"first{k}", floor_divided(greatest(before, ZERO), stride))
            after = floor_divided(greatest(plus(at, stride), ZERO), stride)
            _, within = within.loop(f"p{k}", first, within.let(f"last{k}", least(after, count)))
        position = self.position([(f"p{k}", d.count, f"count{k}") for k, d in enumerate(self.middle)])
        if self.middle:
            lead = beyond(times(lead, self.number("places", self.places)), position)
        place = within.let("place", lead if column is None else plus(times(lead, inner), column))
        noted = load(self.names.declare("chosen0", "*s64"), place)
        within = within.branch(compared("==", noted, item))
        new = within.let("new", load(self.operand(source), place))
        (result,) = self.combined(within, self.instruction["scatter"], [total, new])
        if operand.dtype in NARROW_FLOATS:
            result = call(f"round_{HLO_NAME[operand.dtype]}", (result,), by_name)
        within.let("total", result)
        block.store(self.output(0), item, total)
        items = self.lead * self.plane * self.inner
        arrays = {"chosen0": ("s64", max(self.lead * self.places * self.inner, 1))}
        return launch_of_windows(self, "gather_chosen", items, 4.0, processors, arrays=arrays, grain="element")
