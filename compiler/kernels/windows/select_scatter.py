"""select-and-scatter: each window chooses one of its elements, into which its update goes.

Where windows overlap, an item is all between the dimensions that are joined; windows side by side are items each.
"""

from __future__ import annotations

import itertools
import math

from hloom.compiler.kernels.codegen.affine import row_major_strides
from hloom.compiler.kernels.codegen.constants import literal
from hloom.compiler.kernels.codegen.elements import load, store
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.windows.loops import Windows

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
        text, dtype = self.text, operand.dtype
        out = self.request.output_name(0)
        size = text.number("whole", self.plane * self.inner)
        text.open("for item in range(lo, hi):")
        text.add(f"first = item * {size}")
        text.open(f"for x in range({size}):")
        text.add(store(out, "first + x", dtype, self.scalar(initial)))
        text.depth -= 1
        for k, d in enumerate(self.middle):
            text.open(f"for p{k} in range({text.number(f'count{k}', d.count)}):")
        position = self.position([(f"p{k}", d.count, f"count{k}") for k, d in enumerate(self.middle)])
        text.add(f"place = item * {text.number('places', self.places)} + {position}")
        if self.inner != 1:
            text.open(f"for c in range({text.number('inner', self.inner)}):")
        text.add("chosen = -1", f"best = {literal(0, dtype)}")
        depth = text.depth
        position = self.open_window()
        inner = f"({position}) * inner + c" if self.inner != 1 else position
        text.add(f"at = first + {inner}", f"value = {load(self.request.names[operand], 'at', dtype)}")
        (keep,) = self.combined(self.instruction["select"], ["best", "value"])
        text.open(f"if chosen < 0 or not {keep}:")
        text.add("best = value", "chosen = at")
        text.depth = depth
        text.open("if chosen >= 0:")
        at = "place * inner + c" if self.inner != 1 else "place"
        text.add(f"old = {load(out, 'chosen', dtype)}", f"new = {load(self.request.names[source], at, dtype)}")
        (result,) = self.combined(self.instruction["scatter"], ["old", "new"])
        text.add(store(out, "chosen", dtype, result))
        return [self.finished("select", self.lead, self.inner * (self.places * taps * 3.0 + self.plane))]

    def _side_by_side(self, taps: int) -> Launch:
        """Where each element is in one window: it is written once, and the innermost loop becomes vectors.

        That loop is over what is innermost, or else over the places along the last dimension; an item is the rest.
        """
        operand, source, initial = self.instruction.operands
        text, dtype, last = self.text, operand.dtype, len(self.middle) - 1
        out, inner = self.request.output_name(0), self.inner
        text.open("for item in range(lo, hi):")
        self.place("item", range(last + 1 if inner > 1 else last))
        row = inner if inner > 1 else self.middle[last].count
        count = text.number("inner" if inner > 1 else f"count{last}", row)
        places = [f"p{k}" for k in range(last + 1 if inner > 1 else last)]
        corner = f"lead * {text.number('plane', self.plane)}"
        steps = row_major_strides([d.extent for d in self.middle])
        for k, place in enumerate(places):
            corner += f" + {place} * {text.number(f'corner{k}', self.middle[k].window.stride * steps[k])}"
        text.add(f"corner = ({corner}) * inner" if inner > 1 else f"corner = {corner}")
        offsets = [
            sum(w * step for w, step in zip(where, steps, strict=True)) * inner
            for where in itertools.product(*(range(d.window.size) for d in self.middle))
        ]
        for k, offset in enumerate(offsets):
            text.add(f"at{k} = corner + {text.number(f'offset{k}', offset)}" if offset else f"at{k} = corner")
        text.add(f"nothing = {self.scalar(initial)}")
        text.open(f"for c in range({count}):")
        at = "c" if inner > 1 else f"c * {self.middle[last].window.stride}"
        text.add(f"best = {load(self.request.names[operand], f'at0 + {at}', dtype)}", "chosen = s32(0)")
        for k in range(1, taps):
            text.add(f"value = {load(self.request.names[operand], f'at{k} + {at}', dtype)}")
            (keep,) = self.combined(self.instruction["select"], ["best", "value"])
            text.add(f"best = best if {keep} else value", f"chosen = chosen if {keep} else s32({k})")
        text.add(f"new = {load(self.request.names[source], f'item * {count} + c', dtype)}")
        (result,) = self.combined(self.instruction["scatter"], ["nothing", "new"])
        for k in range(taps):
            text.add(store(out, f"at{k} + {at}", dtype, f"{result} if chosen == s32({k}) else nothing"))
        return self.finished("select_tiled", self.lead * self.places * inner // row, row * taps * 3.0)
