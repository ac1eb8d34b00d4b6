"""concatenate of many pieces: a copy of each piece, in a kernel of its own. An item is a range of rows and columns.

As an element-wise expression, an element of a concatenation asks for each piece whether it is in it. From some ten
pieces on, that takes longer than computing the pieces first, and so does its compilation.
"""

from __future__ import annotations

import functools
import math

from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    constant,
    floor_divided,
    load,
    operation,
    plus,
    times,
)
from hloom.compiler.kernel_ir.generic.language import Pointer, T, kernel_function, s64
from hloom.compiler.kernel_ir.nodes import Do, Kernel, Var
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.codegen.functions import source_of
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.launch import WORK, Launch, launch_by_grain
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.module import Computation, Instruction
from hloom.ir.types import HLO_NAME

FEW = 8  # pieces up to which the element-wise kernel is as fast
TOGETHER = 128  # pieces that one launch copies: LLVM's time grows as the square of a function's arguments
SOME, SMALL = 32, 64  # pieces, and elements, up to which it takes less time than a kernel for each piece


def is_wide(instruction: Instruction) -> bool:
    """Whether a concatenate has more and larger pieces than an element-wise kernel should choose from."""
    if instruction.opcode != "concatenate":
        return False
    count = len(instruction.operands)
    return count > FEW and (count > SOME or instruction.shape.size > SMALL)


def is_pieces(computation: Computation) -> bool:
    """Whether a computation is one wide concatenate."""
    root = computation.root
    return is_wide(root) and all(o.opcode == "parameter" for o in root.operands)


def pieces_launches(request: KernelRequest) -> list[Launch]:
    """The launches of a computation of one concatenate; none where there are no elements."""
    instruction = request.instruction("concatenate")
    dims = instruction.dims
    (axis,) = instruction["dimensions"]
    rows, inner = math.prod(dims[:axis]), math.prod(dims[axis + 1 :])
    length = dims[axis] * inner
    if not rows or not length:
        return []
    kind = HLO_NAME[instruction.dtype]
    part = _part(kind)
    launches, begin = [], 0
    for first in range(0, len(instruction.operands), TOGETHER):
        pieces = instruction.operands[first : first + TOGETHER]
        widths = [o.dims[axis] * inner for o in pieces]
        if any(widths):
            launches.append(_launch(request, pieces, widths, part, (rows, length, begin)))
        begin += sum(widths)
    return launches


def _launch(request: KernelRequest, pieces, widths, part: KernelSource, sizes: tuple[int, int, int]) -> Launch:
    """The launch that copies some pieces, of these columns, to where they begin in rows of a length. The source names
    pieces by their order, so that it is the same for all launches of equal widths."""
    rows, length, begin = sizes
    dtype = pieces[0].dtype
    kind = HLO_NAME[dtype]
    root = Block()
    y = root.names.declare("y", f"*{kind}")
    first, last, n, first_element, all_rows, blocks, strips, lo, hi = (
        root.names.declare(name, "s64")
        for name in ("first", "last", "n", "begin", "rows", "blocks", "strips", "lo", "hi")
    )
    item, block = root.loop("item", lo, hi)
    number = block.let("block", floor_divided(item, strips))
    strip = block.let("strip", operation("%", item, strips))
    block.let("first", floor_divided(times(number, all_rows), blocks))
    block.let("last", floor_divided(times(plus(number, ONE), all_rows), blocks))
    at = block.let("at", first_element)
    pointers: dict[str, Var] = {}  # of the computation -> of the source
    numbers: dict[int, Var] = {}
    single = 0  # elements since the last line that counts
    for piece, width in zip(pieces, widths, strict=True):
        if not width:
            continue
        name = request.names[piece]
        if name not in pointers:
            pointers[name] = root.names.declare(f"p{len(pointers)}", f"*{kind}")
        pointer, away = pointers[name], constant(single)
        if rows == width == 1:
            block.store(y, plus(at, away), load(pointer, ZERO))
            single += 1
            continue
        if width not in numbers:
            numbers[width] = root.names.declare(f"w{len(numbers)}", "s64")
        known = numbers[width]
        given = (pointer, y, first, last, known, n, plus(at, away), strip, strips, ZERO, ZERO)
        block.body.append(Do(part.name, given))
        block.increase(at, plus(known, away) if single else known)
        single = 0
    params = (*pointers.values(), y, n, first_element, all_rows, blocks, strips, *numbers.values(), lo, hi)
    kernel = Kernel(request.title("pieces"), params, root.statements())
    source = KernelSource.of(kernel, ((part.name, part),) if numbers else ())
    size = rows * sum(widths)
    chunks = -(-size // WORK)
    blocks_of_rows = min(rows, chunks)
    strips_of_columns = -(-chunks // blocks_of_rows) if numbers else 1
    arguments = [*pointers, "out0", length, begin, rows, blocks_of_rows, strips_of_columns, *numbers]
    items = blocks_of_rows * strips_of_columns
    launch = launch_by_grain(source, arguments, items, 1, None, float(size + len(pieces) * items * 4))
    launch.moved = 2 * size * dtype.itemsize
    return launch


@functools.lru_cache
def _part(kind: str) -> KernelSource:
    """The function that copies the columns of one strip, in some rows, to their place in rows of n."""
    names = ("first", "last", "width", "n", "offset", "strip", "strips", "lo", "hi")
    params = {"x": Var(f"*{kind}", "x"), "y": Var(f"*{kind}", "y")} | {name: Var("s64", name) for name in names}
    return source_of(piece, f"piece_{kind}", [*params.values()], params, {"T": kind})


@kernel_function
def piece(
    x: Pointer[T], y: Pointer[T], first: s64, last: s64, width: s64, n: s64, offset: s64, strip: s64, strips: s64,
    lo: s64, hi: s64,
) -> None:  # fmt: skip
    begin = strip * width // strips
    end = (strip + 1) * width // strips
    if width == 1:
        for row in range(first, last if strip == 0 else first):
            taken = x[row]
            y[row * n + offset] = taken
    else:
        for row in range(first, last):
            for i in range(begin, end):
                taken = x[row * width + i]
                y[row * n + offset + i] = taken
