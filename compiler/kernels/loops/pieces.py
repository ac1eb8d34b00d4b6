"""concatenate of many pieces: a copy of each piece, in a kernel of its own. An item is a range of rows and columns.

As an element-wise expression, an element of a concatenation asks for each piece whether it is in it. From some ten
pieces on, that takes longer than computing the pieces first, and so does its compilation.
"""

from __future__ import annotations

import math

from hloom.compiler.kernels.codegen.elements import load, store
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
    part = _part(kind, instruction.dtype)
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
    pointers: dict[str, str] = {}  # of the computation -> of the source
    numbers: dict[int, str] = {}
    lines, single = ["at = begin"], 0  # elements since the last line that counts
    for piece, width in zip(pieces, widths, strict=True):
        if not width:
            continue
        name = pointers.setdefault(request.names[piece], f"p{len(pointers)}")
        if rows == width == 1:
            lines.append(store("y", f"at + {single}", dtype, load(name, "0", dtype)))
            single += 1
            continue
        known = numbers.setdefault(width, f"w{len(numbers)}")
        lines.append(f"{part.name}({name}, y, first, last, {known}, n, at + {single}, strip, strips, 0, 0)")
        lines.append(f"at += {known} + {single}" if single else f"at += {known}")
        single = 0
    title = request.title("pieces")
    names = ["n", "begin", "rows", "blocks", "strips", *numbers.values()]
    head = [
        "for item in range(lo, hi):",
        "    block = item // strips",
        "    strip = item % strips",
        "    first = block * rows // blocks",
        "    last = (block + 1) * rows // blocks",
    ]
    text = f"def {title}({', '.join([*pointers.values(), 'y', *names, 'lo', 'hi'])}):\n"
    text += "".join(f"    {line}\n" for line in [*head, *("    " + line for line in lines)])
    types = [f"{kind}*"] * (len(pointers) + 1) + ["s64"] * (len(names) + 2)
    source = KernelSource(title, text, tuple(types), ((part.name, part),) if numbers else ())
    size = rows * sum(widths)
    chunks = -(-size // WORK)
    blocks = min(rows, chunks)
    strips = -(-chunks // blocks) if numbers else 1
    arguments = [*pointers, "out0", length, begin, rows, blocks, strips, *numbers]
    work = float(size + len(pieces) * blocks * strips * 4)
    launch = launch_by_grain(source, arguments, blocks * strips, 1, None, work)
    launch.moved = 2 * size * dtype.itemsize
    return launch


def _part(kind: str, dtype) -> KernelSource:
    """Copies the columns of one strip, in some rows, to their place in rows of n."""
    name = f"piece_{kind}"

    lines = [
        "begin = strip * width // strips",
        "end = (strip + 1) * width // strips",
        "if width == 1:",
        "    for row in range(first, last if strip == 0 else first):",
        f"        taken = {load('x', 'row', dtype)}",
        f"        {store('y', 'row * n + offset', dtype, 'taken')}",
        "else:",
        "    for row in range(first, last):",
        "        for i in range(begin, end):",
        f"            taken = {load('x', 'row * width + i', dtype)}",
        f"            {store('y', 'row * n + offset + i', dtype, 'taken')}",
    ]
    text = f"def {name}(x, y, first, last, width, n, offset, strip, strips, lo, hi):\n"
    text += "".join(f"    {line}\n" for line in lines)
    return KernelSource(name, text, (f"{kind}*", f"{kind}*", *["s64"] * 9))
