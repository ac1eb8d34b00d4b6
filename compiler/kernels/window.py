"""reduce-window and select-and-scatter: loops over places, and in them over the elements of the window that are inside.

Dimensions that the window leaves alone are joined: those before the others are work items, those after them (features
of images) an innermost loop. Elements are combined in the order of the window, as a loop over the definition does. A
cumulative window, which is as long as the array, is a running combination and costs what the array costs.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

from hloom.compiler.kernels.combine import inline_scalars
from hloom.compiler.kernels.description import Block
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.running import running_kernels
from hloom.compiler.kernels.source import KernelSource
from hloom.compiler.kernels.writer import Writer, literal, load, store
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops import OPS
from hloom.ir.types import HLO_NAME, HOST_DTYPES, NARROW_FLOATS, Shape
from hloom.ir.window import WindowDimension, dilated, window_of

SHORT = 16  # windows up to this size are looped over where a running combination would round otherwise
TAPS = 16  # elements of windows that are chosen from side by side
LITERAL = 8  # window sizes up to this are constants of the kernel, so that their loops are unrolled


@dataclass(frozen=True)
class WindowKernel:
    """A kernel text with the values of its integers, its work items, and about how many operations an item is.

    least: items that a chunk should have at least. temporaries: bytes by pointer name.
    """

    source: KernelSource
    arguments: list
    items: int
    work: float
    least: int = 1
    temporaries: dict[str, int] = field(default_factory=dict)


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


def window_kernels(request: KernelRequest) -> list[WindowKernel]:
    """The kernels of a computation of one reduce-window or select-and-scatter; none where the result is empty."""
    (instruction,) = [i for i in request.computation.instructions if OPS[i.opcode].family == "window"]
    maker = _ReduceWindow if instruction.opcode == "reduce-window" else _SelectAndScatter
    made = maker(request, instruction).kernel()
    if isinstance(made, list):
        return made
    return [] if made is None else [made]


@dataclass
class _Dimension:
    """A windowed dimension: of the operand `extent`, of the places `count`."""

    extent: int
    count: int
    window: WindowDimension

    def is_tiled(self) -> bool:
        """Whether each element is in one window, and all windows are inside."""
        w = self.window
        plain = w.low == w.high == 0 and w.base_dilation == w.window_dilation == 1
        return plain and w.size == w.stride and self.count * w.size == self.extent


@dataclass
class _Text:
    """Lines with their depth, and the integer arguments that they use."""

    integers: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    depth: int = 0

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def open(self, header: str) -> None:
        self.add(header)
        self.depth += 1

    def number(self, name: str, value: int) -> str:
        self.integers[name] = value
        return name

    def times(self, variable: str, name: str, value: int) -> str:
        return variable if value == 1 else f"{variable} * {self.number(name, value)}"


class _Windows:
    """What both kernels share: the dimensions, and the loops over a window."""

    def __init__(self, request: KernelRequest, instruction: Instruction):
        self.request, self.instruction = request, instruction
        window = window_of(instruction)
        dims = instruction.operands[0].dims
        plain = [d.is_plain() for d in window]
        first = plain.index(False) if False in plain else len(plain)
        last = len(plain) - plain[::-1].index(False) if False in plain else len(plain)
        self.lead = math.prod(dims[:first])
        self.inner = math.prod(dims[last:])
        self.middle = [_Dimension(e, d.output(e), d) for e, d in zip(dims[first:last], window[first:last], strict=True)]
        self.plane = math.prod(d.extent for d in self.middle)
        self.places = math.prod(d.count for d in self.middle)
        self.text = _Text()
        self.writer: Writer = request.writer(())
        self.writer.integers = self.text.integers

    def position(self, terms: list[tuple[str, int, str]]) -> str:
        """The flat index of coordinates with extents, the last fastest: (variable, extent, name of the extent)."""
        result = ""
        for variable, extent, name in terms:
            if not result:
                result = variable
            else:
                result = f"({result}) * {self.text.number(name, extent)} + {variable}" if extent != 1 else result
        return result or "0"

    def open_window(self, count: int | None = None) -> str:
        """Opens the loops over the elements of the window at place p0, p1, ...; returns their position in a plane.

        count: only along the first so many dimensions.
        """
        text = self.text
        opened = self.middle if count is None else self.middle[:count]
        for k, d in enumerate(opened):
            w = d.window
            base = text.times(f"p{k}", f"stride{k}", w.stride)
            if w.low:
                base += f" - {text.number(f'low{k}', w.low)}"
            text.add(f"b{k} = {base}")
            spread = dilated(d.extent, w.base_dilation)
            size = str(w.size) if w.size <= LITERAL else text.number(f"size{k}", w.size)
            start, stop = "0", size
            if w.low > 0 or (d.count - 1) * w.stride - w.low + w.reach > spread:
                reach = text.number(f"reach{k}", spread)
                step = text.number(f"step{k}", w.window_dilation) if w.window_dilation != 1 else ""
                if step:
                    text.add(f"from{k} = max({step} - 1 - b{k}, 0) // {step}")
                    text.add(f"to{k} = min(max({reach} - b{k} + {step} - 1, 0) // {step}, {size})")
                else:
                    text.add(f"from{k} = max(0 - b{k}, 0)", f"to{k} = min({reach} - b{k}, {size})")
                start, stop = f"from{k}", f"to{k}"
            text.open(f"for w{k} in range({start}, {stop}):")
            text.add(f"x{k} = b{k} + {text.times(f'w{k}', f'step{k}', w.window_dilation)}")
            if w.base_dilation != 1:
                gap = text.number(f"gap{k}", w.base_dilation)
                text.add(f"y{k} = x{k} // {gap}")
                text.open(f"if y{k} * {gap} == x{k}:")
                text.add(f"x{k} = y{k}")
        return self.position([(f"x{k}", d.extent, f"extent{k}") for k, d in enumerate(opened)])

    def _place(self, item: str, dims) -> None:
        """Statements that take a work item apart into lead and p0, p1, ... (those of `dims`)."""
        rest = item
        for k in reversed(dims):
            count = self.text.number(f"count{k}", self.middle[k].count)
            self.text.add(f"rest{k} = {rest} // {count}", f"p{k} = {rest} - rest{k} * {count}")
            rest = f"rest{k}"
        self.text.add(f"lead = {rest}")

    def combined(self, computation: Computation, arguments: list[str]) -> list[str]:
        """Writes a computation's statements; returns its results."""
        from hloom.compiler.targets.cpu.render import block_lines

        block = Block()
        results = inline_scalars(self.writer, block, computation, arguments)
        self.text.add(*block_lines(block))
        return results

    def scalar(self, instruction: Instruction) -> str:
        """The value of a scalar operand."""
        if instruction.opcode == "constant":
            return literal(instruction["value"].reshape(())[()], instruction.dtype)
        return load(self.request.names[instruction], "0", instruction.dtype)

    def finished(
        self, kind: str, items: int, work: float, least: int = 1, parts: dict | None = None, outputs: bool = True
    ) -> WindowKernel:
        """parts: name -> (dtype, elements) of arrays between kernels. outputs: whether the results are written."""
        parts = parts or {}
        pointers = [
            (self.request.names[p], p.dtype)
            for p in self.request.computation.parameters
            if self.request.names[p].startswith("in") and any(self.request.names[p] in line for line in self.text.lines)
        ]
        pointers += [(name, dtype) for name, (dtype, _) in parts.items()]
        if outputs:
            pointers += [(self.request.output_name(k), o.dtype) for k, o in enumerate(self.request.outputs)]
        # An argument may have been asked for by a loop that was then not written.
        names = [name for name, _ in pointers] + list(self.text.integers)
        title = self.request.title(kind)
        lines = [f"def {title}({', '.join([*names, 'lo', 'hi'])}):", *("    " + line for line in self.text.lines)]
        types = [f"{HLO_NAME[dtype]}*" for _, dtype in pointers] + ["s64"] * (len(self.text.integers) + 2)
        source = KernelSource(title, "\n".join(lines) + "\n", tuple(types))
        arguments = [name for name, _ in pointers] + list(self.text.integers.values())
        temporaries = {name: dtype.itemsize * count for name, (dtype, count) in parts.items()}
        return WindowKernel(source, arguments, items, work, least, temporaries)


class _ReduceWindow(_Windows):
    def __init__(self, request, instruction):
        super().__init__(request, instruction)
        half = len(instruction.operands) // 2
        self.arrays, self.initial = instruction.operands[:half], instruction.operands[half:]
        self.combiner = instruction["to_apply"]

    def another(self) -> _ReduceWindow:
        """The same with a text of its own: for a further kernel."""
        return _ReduceWindow(self.request, self.instruction)

    def kernel(self) -> WindowKernel | list[WindowKernel] | None:
        if not self.lead * self.places * self.inner:
            return None
        scanned = self._scanned()
        if scanned is not None:
            return running_kernels(self, *scanned)
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

    def _elements(self, taps: int) -> WindowKernel:
        """One accumulator: an item is a row of places."""
        text = self.text
        names = [f"a{k}" for k in range(len(self.arrays))]
        last = len(self.middle) - 1
        text.open("for item in range(lo, hi):")
        if self.inner > 1 or last < 0:
            row = self.inner
            self._place("item", range(last + 1))
            text.open(f"for column in range({text.number('inner', self.inner)}):")
            out = f"item * {text.number('inner', self.inner)} + column"
        else:
            row = self.middle[last].count
            self._place("item", range(last))
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

    def _rows(self, taps: int) -> WindowKernel:
        """A row of accumulators, in the result itself: an item is a place."""
        text = self.text
        outputs = [self.request.output_name(k) for k in range(len(self.arrays))]
        inner = text.number("inner", self.inner)
        text.open("for item in range(lo, hi):")
        self._place("item", range(len(self.middle)))
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

    def _lines(self, taps: int) -> WindowKernel:
        """A row of accumulators, in the result itself, for all places along the last dimension: an item is such a row.

        The loop over these places is the innermost, so that it becomes vectors; each element of the window has a range
        of places at which it is inside, known before that loop.
        """
        text, last = self.text, len(self.middle) - 1
        d, w = self.middle[last], self.middle[last].window
        outputs = [self.request.output_name(k) for k in range(len(self.arrays))]
        count = text.number(f"count{last}", d.count)
        text.open("for item in range(lo, hi):")
        self._place("item", range(last))
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


class _SelectAndScatter(_Windows):
    def kernel(self) -> WindowKernel | None:
        operand, source, initial = self.instruction.operands
        if not operand.shape.size:
            return None
        taps = math.prod(d.window.size for d in self.middle)
        if self.middle and taps <= TAPS and all(d.is_tiled() for d in self.middle):
            return self._side_by_side(taps)
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
        return self.finished("select", self.lead, self.inner * (self.places * taps * 3.0 + self.plane))

    def _side_by_side(self, taps: int) -> WindowKernel:
        """Where each element is in one window: it is written once, and the innermost loop becomes vectors.

        That loop is over what is innermost, or else over the places along the last dimension; an item is the rest.
        """
        operand, source, initial = self.instruction.operands
        text, dtype, last = self.text, operand.dtype, len(self.middle) - 1
        out, inner = self.request.output_name(0), self.inner
        text.open("for item in range(lo, hi):")
        self._place("item", range(last + 1 if inner > 1 else last))
        if inner > 1:
            row = text.number("inner", inner)
            places = [f"p{k}" for k in range(last + 1)]
        else:
            row = text.number(f"count{last}", self.middle[last].count)
            places = [f"p{k}" for k in range(last)]
        corner = f"lead * {text.number('plane', self.plane)}"
        below, steps = 1, [0] * (last + 1)
        for k in range(last, -1, -1):
            steps[k] = below
            below *= self.middle[k].extent
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
        text.open(f"for c in range({row}):")
        at = "c" if inner > 1 else f"c * {self.middle[last].window.stride}"
        text.add(f"best = {load(self.request.names[operand], f'at0 + {at}', dtype)}", "chosen = s32(0)")
        for k in range(1, taps):
            text.add(f"value = {load(self.request.names[operand], f'at{k} + {at}', dtype)}")
            (keep,) = self.combined(self.instruction["select"], ["best", "value"])
            text.add(f"best = best if {keep} else value", f"chosen = chosen if {keep} else s32({k})")
        text.add(f"new = {load(self.request.names[source], f'item * {row} + c', dtype)}")
        (result,) = self.combined(self.instruction["scatter"], ["nothing", "new"])
        for k in range(taps):
            text.add(store(out, f"at{k} + {at}", dtype, f"{result} if chosen == s32({k}) else nothing"))
        row = inner if inner > 1 else self.middle[last].count
        return self.finished("select_tiled", self.lead * self.places * inner // row, row * taps * 3.0)
