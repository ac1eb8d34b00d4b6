"""What kernels of windows share: the dimensions, the loops over a window, and the launch that they become."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    compared,
    constant,
    floor_divided,
    greatest,
    least,
    load,
    minus,
    plus,
    terms_of,
    times,
)
from hloom.compiler.kernel_ir.nodes import Expr, Kernel, Var
from hloom.compiler.kernel_ir.rewrite import variables_of
from hloom.compiler.kernels.codegen.constants import literal
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.codegen.streamed_stores import fallbacks, with_stores
from hloom.compiler.kernels.codegen.writer import Writer
from hloom.compiler.kernels.launch import Launch, launch_by_work
from hloom.compiler.kernels.loops.accumulators import inline_scalars
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.module import Computation, Instruction
from hloom.ir.records import record
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


class Windows:
    """What both kernels share: the dimensions, and the loops over a window.

    root: the statements of the kernel. integers: its integer arguments. middle: the dimensions from the first to the
    last one that the window does not leave alone; lead, inner: elements of those before and after.
    """

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
        self.writer: Writer = request.writer(())
        self.root, self.names, self.integers = self.writer.root, self.writer.names, self.writer.integers

    def number(self, name: str, value: int) -> Var:
        """An integer argument."""
        self.integers[name] = value
        return self.writer.index(name)

    def size(self, name: str, value: int) -> Expr:
        """A number that short loops are unrolled by, else an argument."""
        return constant(value) if value <= LITERAL else self.number(name, value)

    def times(self, value: Expr, name: str, factor: int) -> Expr:
        return value if factor == 1 else times(value, self.number(name, factor))

    def items(self, step: Expr = ONE) -> tuple[Var, Block]:
        """(the work item, the statements for one) of the kernel."""
        return self.root.loop("item", self.writer.index("lo"), self.writer.index("hi"), step)

    def operand(self, instruction: Instruction) -> Var:
        return self.names[self.request.names[instruction]]

    def output(self, k: int) -> Var:
        return self.names[self.request.output_name(k)]

    def position(self, terms: Sequence[tuple[str, int, str]]) -> Expr:
        """The flat index of coordinates, the last fastest: (variable, size, name of the size) each."""
        result: Expr | None = None
        for variable, extent, name in terms:
            if result is None:
                result = self.names[variable]
            elif extent != 1:
                result = plus(times(result, self.number(name, extent)), self.names[variable])
        return ZERO if result is None else result

    def open_window(self, block: Block, count: int | None = None) -> tuple[Expr, Block]:
        """(the position in a plane, the block) of the elements of the window at place p0, p1, ..., in loops over them.

        count: only along the first so many dimensions.
        """
        opened = self.middle if count is None else self.middle[:count]
        for k, d in enumerate(opened):
            w = d.window
            base = self.times(self.names[f"p{k}"], f"stride{k}", w.stride)
            if w.low:
                base = minus(base, self.number(f"low{k}", w.low))
            base = block.let(f"b{k}", base)
            spread = dilated(d.extent, w.base_dilation)
            size = self.size(f"size{k}", w.size)
            start: Expr = ZERO
            stop = size
            if w.low > 0 or (d.count - 1) * w.stride - w.low + w.reach > spread:
                reach = self.number(f"reach{k}", spread)
                if w.window_dilation != 1:
                    step = self.number(f"step{k}", w.window_dilation)
                    before, after = minus(minus(step, ONE), base), minus(plus(minus(reach, base), step), ONE)
                    start = floor_divided(greatest(before, ZERO), step)
                    stop = least(floor_divided(greatest(after, ZERO), step), size)
                else:
                    start, stop = greatest(minus(ZERO, base), ZERO), least(minus(reach, base), size)
                start, stop = block.let(f"from{k}", start), block.let(f"to{k}", stop)
            within, block = block.loop(f"w{k}", start, stop)
            x = block.let(f"x{k}", plus(base, self.times(within, f"step{k}", w.window_dilation)))
            if w.base_dilation != 1:
                gap = self.number(f"gap{k}", w.base_dilation)
                y = block.let(f"y{k}", floor_divided(x, gap))
                block = block.branch(compared("==", times(y, gap), x))
                block.let(f"x{k}", y)
        return self.position([(f"x{k}", d.extent, f"extent{k}") for k, d in enumerate(opened)]), block

    def place(self, block: Block, item: Var, dims: range) -> Var:
        """Splits a work item into p0, p1, ... (those of `dims`) and `lead`, which it returns."""
        rest = item
        for k in reversed(dims):
            count = self.number(f"count{k}", self.middle[k].count)
            above = block.let(f"rest{k}", floor_divided(rest, count))
            block.let(f"p{k}", minus(rest, times(above, count)))
            rest = above
        return block.let("lead", rest)

    def combined(self, block: Block, computation: Computation, arguments: Sequence[Expr]) -> list[Expr]:
        """Writes a computation's statements; returns its results."""
        return inline_scalars(self.writer, block, computation, arguments)

    def scalar(self, instruction: Instruction) -> Expr:
        """The value of a scalar operand."""
        if instruction.opcode == "constant":
            return literal(instruction["value"].reshape(())[()], instruction.dtype)
        return load(self.operand(instruction), ZERO)

    def finished(
        self, kind: str, items: int, work: float, least: int = 1,
        parts: dict[str, tuple[np.dtype, int]] | None = None, outputs: bool = True,
    ) -> Launch:  # fmt: skip
        """parts: name -> (dtype, elements) of arrays between kernels. outputs: whether the results are written."""
        parts = parts or {}
        used = {var.name for var in variables_of(self.root.statements())}
        pointers = [name for name, _ in self.request.input_pointers() if name in used]
        pointers += parts
        if outputs:
            pointers += [name for name, _ in self.request.output_pointers()]
        params = [self.names[name] for name in pointers]
        params += [self.writer.index(name) for name in (*self.integers, "lo", "hi")]
        source = KernelSource.of(Kernel(self.request.title(kind), tuple(params), self.root.statements()))
        temporaries = {name: dtype.itemsize * count for name, (dtype, count) in parts.items()}
        chosen = with_stores(source, self.request.past_caches(*self.request.outputs[0].dims[-1:]))
        arguments = [*pointers, *self.integers.values()]
        launch = launch_by_work(chosen, arguments, items, work, temporaries, least=least, moved=self.request.moved)
        launch.fallbacks = fallbacks(source, self.request.leaving_names)
        return launch


def beyond(start: Expr, position: Expr) -> Expr:
    """`start + position`, a sum that is added from the left."""
    return plus(start, *terms_of(position))
