"""What kernels of windows share: the dimensions, the loops over a window, and the text that they become."""

from __future__ import annotations

import math

from hloom.compiler.kernels.codegen.constants import literal
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.codegen.elements import fallbacks, load, with_stores
from hloom.compiler.kernels.codegen.serial import block_lines, indent
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.codegen.writer import Writer
from hloom.compiler.kernels.launch import Launch, launch_by_work
from hloom.compiler.kernels.loops.accumulators import inline_scalars
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.module import Computation, Instruction
from hloom.ir.records import field, record
from hloom.ir.types import HLO_NAME, compute_dtype
from hloom.ir.window import WindowDimension, dilated, window_of

LITERAL = 8  # window sizes up to this are constants of the kernel, so that their loops are unrolled


@record
class Dimension:
    """A windowed dimension: `extent` elements of the operand, `count` windows."""

    extent: int
    count: int
    window: WindowDimension

    def is_tiled(self) -> bool:
        """Whether each element is in one window, and all windows are inside."""
        w = self.window
        plain = w.low == w.high == 0 and w.base_dilation == w.window_dilation == 1
        return plain and w.size == w.stride and self.count * w.size == self.extent


@record
class Text:
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


class Windows:
    """What both kernels share: the dimensions, and the loops over a window."""

    def __init__(self, request: KernelRequest, instruction: Instruction):
        self.request, self.instruction = request, instruction
        window = window_of(instruction)
        dims = instruction.operands[0].dims
        wide = [k for k, d in enumerate(window) if not d.is_plain()]
        first, last = (wide[0], wide[-1] + 1) if wide else (len(window), len(window))
        self.lead = math.prod(dims[:first])
        self.inner = math.prod(dims[last:])
        self.middle = [Dimension(e, d.output(e), d) for e, d in zip(dims[first:last], window[first:last], strict=True)]
        self.plane = math.prod(d.extent for d in self.middle)
        self.places = math.prod(d.count for d in self.middle)
        self.text = Text()
        self.writer: Writer = request.writer(())
        self.writer.integers = self.text.integers

    def position(self, terms: list[tuple[str, int, str]]) -> str:
        """The flat index of coordinates, the last fastest: (variable, size, name of the size) each."""
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
            size = f"{w.size}" if w.size <= LITERAL else text.number(f"size{k}", w.size)
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

    def place(self, item: str, dims) -> None:
        """Statements that split a work item into lead and p0, p1, ... (those of `dims`)."""
        rest = item
        for k in reversed(dims):
            count = self.text.number(f"count{k}", self.middle[k].count)
            self.text.add(f"rest{k} = {rest} // {count}", f"p{k} = {rest} - rest{k} * {count}")
            rest = f"rest{k}"
        self.text.add(f"lead = {rest}")

    def combined(self, computation: Computation, arguments: list[str]) -> list[str]:
        """Writes a computation's statements; returns its results."""
        block = Block()
        given = [
            block.names.declare(name, HLO_NAME[compute_dtype(parameter.dtype)])
            for name, parameter in zip(arguments, computation.parameters, strict=True)
        ]
        results = inline_scalars(self.writer, block, computation, given)
        self.text.add(*block_lines(block))
        return [str(result) for result in results]

    def scalar(self, instruction: Instruction) -> str:
        """The value of a scalar operand."""
        if instruction.opcode == "constant":
            return str(literal(instruction["value"].reshape(())[()], instruction.dtype))
        return load(self.request.names[instruction], "0", instruction.dtype)

    def finished(
        self, kind: str, items: int, work: float, least: int = 1, parts: dict | None = None, outputs: bool = True
    ) -> Launch:
        """parts: name -> (dtype, elements) of arrays between kernels. outputs: whether the results are written."""
        parts = parts or {}
        pointers = [p for p in self.request.input_pointers() if any(p[0] in line for line in self.text.lines)]
        pointers += [(name, HLO_NAME[dtype]) for name, (dtype, _) in parts.items()]
        if outputs:
            pointers += self.request.output_pointers()
        names = [name for name, _ in pointers] + list(self.text.integers)
        title = self.request.title(kind)
        lines = [f"def {title}({', '.join([*names, 'lo', 'hi'])}):", *indent(self.text.lines)]
        types = [f"{dtype}*" for _, dtype in pointers] + ["s64"] * (len(self.text.integers) + 2)
        source = KernelSource(title, "\n".join(lines) + "\n", tuple(types))
        arguments = [name for name, _ in pointers] + list(self.text.integers.values())
        temporaries = {name: dtype.itemsize * count for name, (dtype, count) in parts.items()}
        chosen = with_stores(source, self.request.past_caches(*self.request.outputs[0].dims[-1:]))
        launch = launch_by_work(chosen, arguments, items, work, temporaries, least=least, moved=self.request.moved)
        launch.fallbacks = fallbacks(source, self.request.leaving_names)
        return launch
