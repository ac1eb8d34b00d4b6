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
    """The launch of a computation of one concatenate; none where there are no elements."""
    instruction = request.instruction("concatenate")
    dims = instruction.dims
    (axis,) = instruction["dimensions"]
    rows, inner = math.prod(dims[:axis]), math.prod(dims[axis + 1 :])
    length = dims[axis] * inner
    if not rows or not length:
        return []
    kind = HLO_NAME[instruction.dtype]
    part = _part(kind, instruction.dtype)
    pointers = dict.fromkeys(request.names[o] for o in instruction.operands)
    widths: dict[int, str] = {}
    lines, single = ["at = 0"], 0  # elements since the last line that counts
    for operand in instruction.operands:
        width = operand.dims[axis] * inner
        name = request.names[operand]
        if not width:
            continue
        if rows == width == 1:
            lines.append(store("out0", f"at + {single}", instruction.dtype, load(name, "0", instruction.dtype)))
            single += 1
            continue
        known = widths.setdefault(width, f"w{len(widths)}")
        lines.append(f"{part.name}({name}, out0, first, last, {known}, n, at + {single}, strip, strips, 0, 0)")
        lines.append(f"at += {known} + {single}" if single else f"at += {known}")
        single = 0
    title = request.title("pieces")
    numbers = ["n", "rows", "blocks", "strips", *widths.values()]
    head = [
        "for item in range(lo, hi):",
        "    block = item // strips",
        "    strip = item % strips",
        "    first = block * rows // blocks",
        "    last = (block + 1) * rows // blocks",
    ]
    text = f"def {title}({', '.join([*pointers, 'out0', *numbers, 'lo', 'hi'])}):\n"
    text += "".join(f"    {line}\n" for line in [*head, *("    " + line for line in lines)])
    types = [f"{kind}*"] * (len(pointers) + 1) + ["s64"] * (len(numbers) + 2)
    source = KernelSource(title, text, tuple(types), ((part.name, part),) if widths else ())
    chunks = -(-rows * length // WORK)
    blocks = min(rows, chunks)
    strips = -(-chunks // blocks) if widths else 1
    launch = launch_by_grain(
        source,
        [*pointers, "out0", length, rows, blocks, strips, *widths],
        blocks * strips,
        1,
        None,
        float(rows * length + len(instruction.operands) * blocks * strips * 4),
    )
    launch.moved = 2 * instruction.shape.bytes
    return [launch]


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
