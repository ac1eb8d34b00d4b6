"""reduce-window and select-and-scatter: loops over places, and in them over the elements of the window that are inside.

Dimensions that the window leaves alone are joined: those before the others are work items, those after them (features
of images) an innermost loop. Elements are combined in the order of the window, as a loop over the definition does. A
cumulative window, which is as long as the array, is a running combination and costs what the array costs.
"""

from __future__ import annotations

import math

from hloom.compiler.kernels.codegen.elements import load, store
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.windows.loops import LITERAL, Windows
from hloom.compiler.kernels.windows.scans import running_launches
from hloom.compiler.kernels.windows.select_scatter import SelectAndScatter
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops import OPS
from hloom.ir.types import HLO_NAME, HOST_DTYPES, NARROW_FLOATS, Shape
from hloom.ir.window import dilated

SHORT = 16  # windows up to this size are looped over where a running combination would round otherwise


def is_inlined(computation: Computation) -> bool:
    """Whether a computation on scalars can be written into a kernel."""
    for instruction in computation.instructions:
        opcode = instruction.opcode
        if opcode in ("parameter", "tuple") or (opcode == "constant" and instruction.shape.dims == ()):
            continue
        if not isinstance(instruction.shape, Shape) or OPS[opcode].family != "elementwise":
            return False
    return True


def has_window_kernel(instruction: Instruction) -> bool:
    """Whether a reduce-window or select-and-scatter has a kernel: where its computations are element-wise ops."""
    names = ("to_apply",) if instruction.opcode == "reduce-window" else ("select", "scatter")
    dtypes = {o.dtype for o in instruction.operands}
    if not dtypes.isdisjoint(HOST_DTYPES):
        return False
    return all(is_inlined(instruction[name]) for name in names)


def window_launches(request: KernelRequest) -> list[Launch]:
    """The kernels of a computation of one reduce-window or select-and-scatter; none where the result is empty."""
    (instruction,) = [i for i in request.computation.instructions if OPS[i.opcode].family == "window"]
    maker = ReduceWindow if instruction.opcode == "reduce-window" else SelectAndScatter
    made = maker(request, instruction).kernel()
    if isinstance(made, list):
        return made
    return [] if made is None else [made]


class ReduceWindow(Windows):
    """The launches of a reduce-window."""

    def __init__(self, request, instruction):
        super().__init__(request, instruction)
        half = len(instruction.operands) // 2
        self.arrays, self.initial = instruction.operands[:half], instruction.operands[half:]
        self.combiner = instruction["to_apply"]

    def another(self) -> ReduceWindow:
        """The same with a text of its own: for a further kernel."""
        return ReduceWindow(self.request, self.instruction)

    def kernel(self) -> Launch | list[Launch] | None:
        if not self.lead * self.places * self.inner:
            return None
        scanned = self._scanned()
        if scanned is not None:
            return running_launches(self, *scanned)
        taps = math.prod(d.window.size for d in self.middle)
        if self.inner > 1:
            return self._rows(taps)
        if self.middle and (self.middle[-1].window.base_dilation == 1 or self.middle[-1].window.stride == 1):
            return self._lines(taps)
        return self._elements(taps)

    def _source(self, position: str) -> str:
        terms = f"lead * {self.text.number('plane', self.plane)} + {position}" if self.middle else "lead"
        return f"({terms}) * {self.text.number('inner', self.inner)}" if self.inner != 1 else terms

    def _take(self, names: list[str], at: str) -> None:
        """Combines the accumulators `names` with the elements at `at`."""
        values = [f"e{k}" for k in range(len(self.arrays))]
        for value, array in zip(values, self.arrays, strict=True):
            self.text.add(f"{value} = {load(self.request.names[array], at, array.dtype)}")
        self.combine(names, [*names, *values])

    def combine(self, names: list[str], arguments: list[str]) -> None:
        """names = combiner(arguments). Narrow floats are rounded each time, as a loop over arrays of them does it."""
        results = self.combined(self.combiner, arguments)
        for k, array in enumerate(self.arrays):
            if array.dtype in NARROW_FLOATS:
                results[k] = f"round_{HLO_NAME[array.dtype]}({results[k]})"
        self.text.add(f"{', '.join(names)} = {', '.join(results)}")

    def _elements(self, taps: int) -> Launch:
        """One accumulator: an item is a row of places."""
        text = self.text
        names = [f"a{k}" for k in range(len(self.arrays))]
        last = len(self.middle) - 1
        text.open("for item in range(lo, hi):")
        if self.inner > 1 or last < 0:
            row = self.inner
            self.place("item", range(last + 1))
            text.open(f"for column in range({text.number('inner', self.inner)}):")
            out = f"item * {text.number('inner', self.inner)} + column"
        else:
            row = self.middle[last].count
            self.place("item", range(last))
            count = text.number(f"count{last}", row)
            text.open(f"for p{last} in range({count}):")
            out = f"item * {count} + p{last}"
        for name, start in zip(names, self.initial, strict=True):
            text.add(f"{name} = {self.scalar(start)}")
        depth = text.depth
        source = self._source(self.open_window())
        self._take(names, f"{source} + column" if self.inner > 1 else source)
        text.depth = depth
        for k, (name, array) in enumerate(zip(names, self.arrays, strict=True)):
            text.add(store(self.request.output_name(k), out, array.dtype, name))
        return self.finished("window", self.lead * self.places * self.inner // row, row * taps * 2.0)

    def _rows(self, taps: int) -> Launch:
        """A row of accumulators, in the result itself: an item is a place."""
        text = self.text
        outputs = [self.request.output_name(k) for k in range(len(self.arrays))]
        inner = text.number("inner", self.inner)
        text.open("for item in range(lo, hi):")
        self.place("item", range(len(self.middle)))
        text.add(f"out = item * {inner}")
        text.open(f"for c in range({inner}):")
        for name, start in zip(outputs, self.initial, strict=True):
            text.add(store(name, "out + c", start.dtype, self.scalar(start)))
        text.depth -= 1
        source = self._source(self.open_window())
        text.add(f"at = {source}")
        text.open(f"for c in range({inner}):")
        names = [f"a{k}" for k in range(len(self.arrays))]
        for name, output, array in zip(names, outputs, self.arrays, strict=True):
            text.add(f"{name} = {load(output, 'out + c', array.dtype)}")
        self._take(names, "at + c")
        for name, output, array in zip(names, outputs, self.arrays, strict=True):
            text.add(store(output, "out + c", array.dtype, name))
        return self.finished("window", self.lead * self.places, self.inner * taps * 2.0)

    def _lines(self, taps: int) -> Launch:
        """A row of accumulators, in the result itself, for all places along the last dimension: an item is such a row.

        The loop over these places is the innermost, so that it becomes vectors; each element of the window has a range
        of places at which it is inside, known before that loop.
        """
        text, last = self.text, len(self.middle) - 1
        d, w = self.middle[last], self.middle[last].window
        outputs = [self.request.output_name(k) for k in range(len(self.arrays))]
        count = text.number(f"count{last}", d.count)
        text.open("for item in range(lo, hi):")
        self.place("item", range(last))
        text.add(f"out = item * {count}")
        text.open(f"for p in range({count}):")
        for name, start in zip(outputs, self.initial, strict=True):
            text.add(store(name, "out + p", start.dtype, self.scalar(start)))
        text.depth -= 1
        above = self.open_window(last)
        extent = text.number(f"extent{last}", d.extent)
        terms = f"lead * {text.number('lines', self.plane // d.extent)} + {above}" if last else "lead"
        text.add(f"line = ({terms}) * {extent}")
        size = str(w.size) if w.size <= LITERAL else text.number(f"size{last}", w.size)
        text.open(f"for w{last} in range({size}):")
        text.add(f"b = {text.times(f'w{last}', f'step{last}', w.window_dilation)}")
        if w.low:
            text.add(f"b = b - {text.number(f'low{last}', w.low)}")
        stride = ""
        if w.stride != 1:  # a constant of the kernel, so that vectors can be gathered from neighbours
            stride = str(w.stride) if w.stride <= LITERAL else text.number(f"stride{last}", w.stride)
        spread = text.number(f"reach{last}", dilated(d.extent, w.base_dilation))
        if w.base_dilation != 1:
            # Every base_dilation-th place meets an element: x = (p + b) / gap for p = first, first + gap, ...
            gap = text.number(f"gap{last}", w.base_dilation)
            text.add(f"x = max(b + {gap} - 1, 0) // {gap}", f"first = x * {gap} - b")
            text.add(f"stop = min({spread} - b, {count})", f"steps = max(stop - first + {gap} - 1, 0) // {gap}")
            text.add("line_at = line + x", "out_at = out + first")
            step, source = f" * {gap}", "line_at + p"
        elif stride:
            text.add(f"first = max({stride} - 1 - b, 0) // {stride}")
            text.add(f"stop = min(max({spread} - b + {stride} - 1, 0) // {stride}, {count})", "steps = stop - first")
            text.add(f"line_at = line + first * {stride} + b", "out_at = out + first")
            step, source = "", f"line_at + p * {stride}"
        else:
            text.add("first = max(0 - b, 0)", f"steps = min({spread} - b, {count}) - first")
            text.add("line_at = line + first + b", "out_at = out + first")
            step, source = "", "line_at + p"
        text.open("for p in range(steps):")
        names = [f"a{k}" for k in range(len(self.arrays))]
        for name, output, array in zip(names, outputs, self.arrays, strict=True):
            text.add(f"{name} = {load(output, f'out_at + p{step}', array.dtype)}")
        self._take(names, source)
        for name, output, array in zip(names, outputs, self.arrays, strict=True):
            text.add(store(output, f"out_at + p{step}", array.dtype, name))
        return self.finished("window", self.lead * self.places // d.count, d.count * taps * 2.0)

    def _scanned(self) -> tuple[int, bool] | None:
        """(the dimension, whether from its end) of a running combination."""
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
