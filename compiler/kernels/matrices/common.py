"""What the kernels of linear algebra share: which matrices they take, and how their statements become a launch.

A kernel's text is written with `T` for the dtype of the elements (`sqrt_T`, `T(0.0)`; see `texts`), and with one work
item after the other in `for item in range(lo, hi):`. Sizes are arguments, so that another shape reuses the kernel.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.launch import Launch, launch_by_work
from hloom.compiler.kernels.matrices.texts import text_for
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.module import Instruction
from hloom.ir.types import DTYPES, HLO_NAME, Shape

REAL = (DTYPES["f32"], DTYPES["f64"])
COMPLEX = (DTYPES["c64"], DTYPES["c128"])


def is_real(instruction: Instruction) -> bool:
    """Whether the operands are matrices of f32 or f64."""
    return all(o.dtype in REAL for o in instruction.operands)


def is_complex(instruction: Instruction) -> bool:
    """Whether the first operand has matrices of c64 or c128."""
    return instruction.operands[0].dtype in COMPLEX


def largest_side(instruction: Instruction) -> int:
    """The larger of rows and columns of the first operand."""
    return max(instruction.operands[0].dims[-2:])


def batch(shape: Shape, core: int = 2) -> int:
    """How many matrices an array holds."""
    return math.prod(shape.dims[: len(shape.dims) - core])


def matrix_launches(
    request: KernelRequest,
    instruction: Instruction,
    text: str,
    sizes: Mapping[str, int],
    items: int,
    work: float,
    temporaries: Mapping[str, tuple[str, int]] | None = None,
) -> list[Launch]:
    """The launch of a kernel.

    text: the body, with the operands as a, b, ..., the results as out0, out1, ..., and `for item in range(lo, hi):`
        in it. sizes: integers by their names. work: element operations of an item.
    temporaries: dtype and elements, of all items, by name.
    """
    if not items:
        return []
    temporaries = temporaries or {}
    name = HLO_NAME[instruction.operands[0].dtype]
    # Scalar constants have no memory: the text has their value.
    given = {letter: o for letter, o in zip("abcd", instruction.operands, strict=False) if o in request.names}
    operands = {letter: request.names[o] for letter, o in given.items()}
    arrays = [letter for letter, o in zip("abcd", instruction.operands, strict=False) if HLO_NAME[o.dtype] == name]
    arrays += [f"out{k}" for k, output in enumerate(request.outputs) if HLO_NAME[output.dtype] == name]
    arrays += [key for key, (kind, _) in temporaries.items() if kind == name]
    text = text_for(textwrap.dedent(text).strip(), name, arrays)
    for letter, pointer in operands.items():
        text = re.sub(rf"\b{letter}\[", f"{pointer}[", text)
    pointers = {request.names[o]: HLO_NAME[o.dtype] for o in given.values()}
    for k, output in enumerate(request.outputs):
        text = re.sub(rf"\bout{k}\[", f"{request.output_name(k)}[", text)
        pointers[request.output_name(k)] = HLO_NAME[output.dtype]
    pointers |= {key: kind for key, (kind, _) in temporaries.items()}
    title = request.title("matrix")
    lines = "\n".join(f"    {line}" if line else "" for line in text.splitlines())
    kernel = f"def {title}({', '.join([*pointers, *sizes])}, lo, hi):\n{lines}\n"
    types = (*(f"{kind}*" for kind in pointers.values()), *["s64"] * (len(sizes) + 2))
    memory = {key: count * DTYPES[kind].itemsize for key, (kind, count) in temporaries.items()}
    arguments = [*pointers, *sizes.values()]
    return [launch_by_work(KernelSource(title, kernel, types), arguments, items, work, memory, moved=request.moved)]
