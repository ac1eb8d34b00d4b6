"""reduce-window: loops over windows, and in them over the elements that are inside.

Dimensions that the window leaves alone are joined: those before the others are work items, those after them (features
of images) an innermost loop. Elements are combined in the order of the window, as a loop over the definition does. A
cumulative window, which is as long as the array, is a scan, with as many steps as the array has elements.
"""

from __future__ import annotations

from hloom.compiler.kernels.codegen.elements import load, store
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.windows.loops import LITERAL, Windows
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
        self.names = [f"a{k}" for k in range(half)]  # the accumulators

    def another(self) -> ReduceWindow:
        """The same with a text of its own: for a further kernel."""
        return ReduceWindow(self.request, self.instruction)

    def _source(self, position: str) -> str:
        terms = f"lead * {self.text.number('plane', self.plane)} + {position}" if self.middle else "lead"
        return f"({terms}) * {self.text.number('inner', self.inner)}" if self.inner != 1 else terms

    def take(self, names: list[str], at: str, reverse: bool = False) -> None:
        """Combines the accumulators `names` with the elements at `at`, which come first where `reverse`."""
        values = [f"e{k}" for k in range(len(self.arrays))]
        for value, array in zip(values, self.arrays, strict=True):
            self.text.add(f"{value} = {load(self.request.names[array], at, array.dtype)}")
        self.combine(names, [*values, *names] if reverse else [*names, *values])

    def combine(self, names: list[str], arguments: list[str]) -> None:
        """names = combiner(arguments). Narrow floats are rounded each time, as a loop over arrays of them does it."""
        results = self.combined(self.combiner, arguments)
        for k, array in enumerate(self.arrays):
            if array.dtype in NARROW_FLOATS:
                results[k] = f"round_{HLO_NAME[array.dtype]}({results[k]})"
        self.text.add(f"{', '.join(names)} = {', '.join(results)}")

    def elements(self, taps: int) -> Launch:
        """One accumulator: an item is a row of windows, along the last dimension."""
        text, last, row = self.text, len(self.middle) - 1, 1
        text.open("for item in range(lo, hi):")
        self.place("item", range(last))
        if last < 0:
            inner = text.number("inner", self.inner)
            text.open(f"for column in range({inner}):")
            out = f"item * {inner} + column"
        else:
            row = self.middle[last].count
            count = text.number(f"count{last}", row)
            text.open(f"for p{last} in range({count}):")
            out = f"item * {count} + p{last}"
        for name, start in zip(self.names, self.initial, strict=True):
            text.add(f"{name} = {self.scalar(start)}")
        depth = text.depth
        self.take(self.names, self._source(self.open_window()))
        text.depth = depth
        for k, (name, array) in enumerate(zip(self.names, self.arrays, strict=True)):
            text.add(store(self.request.output_name(k), out, array.dtype, name))
        return self.finished("window", self.lead * self.places * self.inner // row, row * taps * 2.0)

    def _open_rows(self, variable: str, count: str) -> None:
        """Begins an item whose accumulators are a row of `count` elements of the result, from `out` on."""
        self.text.add(f"out = item * {count}")
        self.text.open(f"for {variable} in range({count}):")
        for k, start in enumerate(self.initial):
            self.text.add(store(self.request.output_name(k), f"out + {variable}", start.dtype, self.scalar(start)))
        self.text.depth -= 1

    def _accumulate(self, out: str, at: str) -> None:
        """Combines the elements of the result at `out` with those of the arrays at `at`."""
        outputs = [(self.request.output_name(k), array.dtype) for k, array in enumerate(self.arrays)]
        for name, (output, dtype) in zip(self.names, outputs, strict=True):
            self.text.add(f"{name} = {load(output, out, dtype)}")
        self.take(self.names, at)
        for name, (output, dtype) in zip(self.names, outputs, strict=True):
            self.text.add(store(output, out, dtype, name))

    def rows(self, taps: int) -> Launch:
        """A row of accumulators, in the result itself: an item is a window."""
        text = self.text
        inner = text.number("inner", self.inner)
        text.open("for item in range(lo, hi):")
        self.place("item", range(len(self.middle)))
        self._open_rows("c", inner)
        source = self._source(self.open_window())
        text.add(f"at = {source}")
        text.open(f"for c in range({inner}):")
        self._accumulate("out + c", "at + c")
        return self.finished("window", self.lead * self.places, self.inner * taps * 2.0)

    def lines(self, taps: int) -> Launch:
        """A row of accumulators, in the result itself, for all windows along the last dimension: an item is such a row.

        The loop over these windows is the innermost, so that it becomes vectors; each position in the window has a
        range of windows in which it is inside, known before that loop.
        """
        text, last = self.text, len(self.middle) - 1
        d, w = self.middle[last], self.middle[last].window
        count = text.number(f"count{last}", d.count)
        text.open("for item in range(lo, hi):")
        self.place("item", range(last))
        self._open_rows("p", count)
        above = self.open_window(last)
        extent = text.number(f"extent{last}", d.extent)
        terms = f"lead * {text.number('lines', self.plane // d.extent)} + {above}" if last else "lead"
        text.add(f"line = ({terms}) * {extent}")
        size = f"{w.size}" if w.size <= LITERAL else text.number(f"size{last}", w.size)
        text.open(f"for w{last} in range({size}):")
        text.add(f"b = {text.times(f'w{last}', f'step{last}', w.window_dilation)}")
        if w.low:
            text.add(f"b = b - {text.number(f'low{last}', w.low)}")
        stride = ""
        if w.stride != 1:  # a constant of the kernel, so that vectors can be gathered from neighbours
            stride = f"{w.stride}" if w.stride <= LITERAL else text.number(f"stride{last}", w.stride)
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
        self._accumulate(f"out_at + p{step}", source)
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
