"""reduce-window and select-and-scatter: a thread an element of the result.

What a gradient of pooling adds to an element comes from the windows that chose it. So that nobody writes where another
may, a first kernel notes what each window chose, and a second one goes through the windows that an element is in, in
order. Cumulative windows are running combinations (`running`).
"""

from __future__ import annotations

import math

from hloom.compiler.kernels.codegen.constants import literal
from hloom.compiler.kernels.codegen.elements import load, store
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.windows.loops import Windows
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
        text = self.text
        names = [f"a{k}" for k in range(len(self.arrays))]
        column = _place(self)
        for name, start in zip(names, self.initial, strict=True):
            text.add(f"{name} = {self.scalar(start)}")
        source = self._source(self.open_window())
        self.take(names, f"{source} + {column}" if column else source)
        text.depth = 0
        for k, (name, array) in enumerate(zip(names, self.arrays, strict=True)):
            text.add(store(self.request.output_name(k), "item", array.dtype, name))
        taps = math.prod(d.window.size for d in self.middle)
        items = self.lead * self.places * self.inner
        return launch_of_windows(self, "window", items, taps * 2.0, processors, grain="element")


def _place(made: Windows) -> str:
    """Takes `item` apart into lead, p0, p1, ... and what is innermost; returns the name of that, '' where it is one."""
    if made.inner == 1:
        made.place("item", range(len(made.middle)))
        return ""
    inner = made.text.number("inner", made.inner)
    made.text.add(f"place = item // {inner}", f"column = item - place * {inner}")
    made.place("place", range(len(made.middle)))
    return "column"


class _Chosen(Windows):
    """The first kernel: the element that each window chooses, as its place in the operand; -1 where there is none."""

    def launch(self, processors: int) -> CudaLaunch:
        operand, text, dtype = self.instruction.operands[0], self.text, self.instruction.operands[0].dtype
        column = _place(self)
        text.add("chosen = s64(-1)", f"best = {literal(0, dtype)}")
        position = self.open_window()
        at = f"lead * {text.number('plane', self.plane)} + {position}" if self.middle else "lead"
        at = f"({at}) * {text.number('inner', self.inner)} + {column}" if column else at
        text.add(f"at = {at}", f"value = {load(self.request.names[operand], 'at', dtype)}")
        (keep,) = self.combined(self.instruction["select"], ["best", "value"])
        text.open(f"if chosen < 0 or not {keep}:")
        text.add("best = value", "chosen = s64(at)")
        text.depth = 0
        text.add("chosen0[item] = chosen")
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
        text, dtype = self.text, operand.dtype
        rest = "item"
        if self.inner != 1:
            inner = text.number("inner", self.inner)
            text.add(f"position = item // {inner}", f"column = item - position * {inner}")
            rest = "position"
        for k in reversed(range(len(self.middle))):
            extent = text.number(f"extent{k}", self.middle[k].extent)
            text.add(f"rest{k} = {rest} // {extent}", f"x{k} = {rest} - rest{k} * {extent}")
            rest = f"rest{k}"
        text.add(f"lead = {rest}", f"total = {self.scalar(initial)}")
        for k, d in enumerate(self.middle):
            # Places p whose window may have x: p * stride - low <= x <= p * stride - low + reach - 1.
            w = d.window
            at = text.times(f"x{k}", f"gap{k}", w.base_dilation)
            at = f"{at} + {text.number(f'low{k}', w.low)}" if w.low else at
            reach = text.number(f"reach{k}", dilated(w.size, w.window_dilation) - 1)
            stride, count = text.number(f"stride{k}", w.stride), text.number(f"count{k}", d.count)
            text.add(f"first{k} = max({at} - {reach} + {stride} - 1, 0) // {stride}")
            text.add(f"last{k} = min(max({at} + {stride}, 0) // {stride}, {count})")
            text.open(f"for p{k} in range(first{k}, last{k}):")
        position = self.position([(f"p{k}", d.count, f"count{k}") for k, d in enumerate(self.middle)])
        place = f"lead * {text.number('places', self.places)} + {position}" if self.middle else "lead"
        text.add(f"place = ({place}) * inner + column" if self.inner != 1 else f"place = {place}")
        text.open("if chosen0[place] == item:")
        text.add(f"new = {load(self.request.names[source], 'place', dtype)}")
        (result,) = self.combined(self.instruction["scatter"], ["total", "new"])
        text.add(f"total = round_{HLO_NAME[dtype]}({result})" if dtype in NARROW_FLOATS else f"total = {result}")
        text.depth = 0
        text.add(store(self.request.output_name(0), "item", dtype, "total"))
        items = self.lead * self.plane * self.inner
        arrays = {"chosen0": ("s64", max(self.lead * self.places * self.inner, 1))}
        return launch_of_windows(self, "gather_chosen", items, 4.0, processors, arrays=arrays, grain="element")
