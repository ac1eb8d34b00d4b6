"""select-and-scatter: each window chooses one of its elements, into which its update goes.

Where windows overlap, an item is all between the dimensions that are joined; windows side by side are items each.
"""

from __future__ import annotations

import itertools
import math

from hloom.compiler.kernel_ir.builder import (
    ZERO,
    both,
    cast,
    chosen,
    compared,
    constant,
    load,
    plus,
    times,
    unary,
)
from hloom.compiler.kernel_ir.nodes import Expr
from hloom.compiler.kernels.codegen.affine import row_major_strides
from hloom.compiler.kernels.codegen.constants import literal
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.windows.loops import Windows, beyond

TAPS = 16  # elements of windows that are chosen from side by side


class SelectAndScatter(Windows):
    """The launches of a select-and-scatter."""

    def kernels(self) -> list[Launch]:
        operand, source, initial = self.instruction.operands
        if not operand.shape.size:
            return []
        taps = math.prod(d.window.size for d in self.middle)
        if self.middle and taps <= TAPS and all(d.is_tiled() for d in self.middle):
            return [self._side_by_side(taps)]
        out, none = self.output(0), unary("-", constant(1))
        size = self.number("whole", self.plane * self.inner)
        item, block = self.items()
        first = block.let("first", times(item, size))
        x, begin = block.loop("x", ZERO, size)
        begin.store(out, plus(first, x), self.scalar(initial))
        for k, d in enumerate(self.middle):
            _, block = block.loop(f"p{k}", ZERO, self.number(f"count{k}", d.count))
        position = self.position([(f"p{k}", d.count, f"count{k}") for k, d in enumerate(self.middle)])
        place: Expr = block.let("place", beyond(times(item, self.number("places", self.places)), position))
        column: Expr | None = None
        if self.inner != 1:
            inner = self.number("inner", self.inner)
            column, block = block.loop("c", ZERO, inner)
            place = plus(times(place, inner), column)
        found = block.let("chosen", none)
        best = block.let("best", literal(0, operand.dtype))
        position, within = self.open_window(block)
        if column is not None:
            position = plus(times(position, inner), column)
        at = within.let("at", beyond(first, position))
        value = within.let("value", load(self.operand(operand), at))
        (keep,) = self.combined(within, self.instruction["select"], [best, value])
        better = within.branch(both("or", [compared("<", found, ZERO), unary("not", keep)]))
        better.let("best", value)
        better.let("chosen", at)
        taken = block.branch(compared(">=", found, ZERO))
        old, new = taken.let("old", load(out, found)), taken.let("new", load(self.operand(source), place))
        (result,) = self.combined(taken, self.instruction["scatter"], [old, new])
        taken.store(out, found, result)
        return [self.finished("select", self.lead, self.inner * (self.places * taps * 3.0 + self.plane))]

    def _side_by_side(self, taps: int) -> Launch:
        """Where each element is in one window: it is written once, and the innermost loop becomes vectors.

        That loop is over what is innermost, or else over the places along the last dimension; an item is the rest.
        """
        operand, source, initial = self.instruction.operands
        last, out, inner = len(self.middle) - 1, self.output(0), self.inner
        item, block = self.items()
        lead = self.place(block, item, range(last + 1 if inner > 1 else last))
        row = inner if inner > 1 else self.middle[last].count
        count = self.number("inner" if inner > 1 else f"count{last}", row)
        corner: Expr = times(lead, self.number("plane", self.plane))
        steps = row_major_strides([d.extent for d in self.middle])
        for k in range(last + 1 if inner > 1 else last):
            step = self.number(f"corner{k}", self.middle[k].window.stride * steps[k])
            corner = plus(corner, times(self.names[f"p{k}"], step))
        corner = block.let("corner", times(corner, count) if inner > 1 else corner)
        offsets = [
            sum(w * step for w, step in zip(where, steps, strict=True)) * inner
            for where in itertools.product(*(range(d.window.size) for d in self.middle))
        ]
        corners = []
        for k, offset in enumerate(offsets):
            begin = plus(corner, self.number(f"offset{k}", offset)) if offset else corner
            corners.append(block.let(f"at{k}", begin))
        nothing = block.let("nothing", self.scalar(initial))
        column, block = block.loop("c", ZERO, count)
        away: Expr = column if inner > 1 else times(column, constant(self.middle[last].window.stride))
        places = [plus(begin, away) for begin in corners]
        best = block.let("best", load(self.operand(operand), places[0]))
        which = block.let("chosen", cast("s32", ZERO))
        for k, at in enumerate(places[1:], 1):
            value = block.let("value", load(self.operand(operand), at))
            (keep,) = self.combined(block, self.instruction["select"], [best, value])
            block.let("best", chosen(keep, best, value))
            block.let("chosen", chosen(keep, which, cast("s32", constant(k))))
        new = block.let("new", load(self.operand(source), plus(times(item, count), column)))
        (result,) = self.combined(block, self.instruction["scatter"], [nothing, new])
        for k, at in enumerate(places):
            block.store(out, at, chosen(compared("==", which, cast("s32", constant(k))), result, nothing))
        return self.finished("select_tiled", self.lead * self.places * inner // row, row * taps * 3.0)
