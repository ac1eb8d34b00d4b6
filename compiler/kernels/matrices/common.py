"""What the kernels of linear algebra share: which matrices they take, and how a kernel function becomes a launch.

Kernel functions (`kernel_ir.generic`) have T for the type of the elements and R for that of their real part, and do one
work item after the other, `for item in range(lo, hi)`. Sizes are arguments, so that another shape reuses the kernel;
what the function is given besides is decided once for the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hloom.compiler.kernel_ir.generic.language import KernelFunction, Pointer, T, kernel_function, s64
from hloom.compiler.kernel_ir.nodes import Expr, Var
from hloom.compiler.kernel_ir.types import PART
from hloom.compiler.kernels.codegen.functions import source_of
from hloom.compiler.kernels.launch import Launch, launch_by_work
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.module import Instruction
from hloom.ir.types import DTYPES, HLO_NAME, Shape

if TYPE_CHECKING:
    from hloom.compiler.kernel_ir.generic.specialize import Known

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


@kernel_function
def copy(source: Pointer[T], target: Pointer[T], at: s64, count: s64) -> None:
    """Copies elements of a matrix to the same places."""
    for i in range(count):
        target[at + i] = source[at + i]


def matrix_launches(
    request: KernelRequest,
    instruction: Instruction,
    function: KernelFunction,
    sizes: Mapping[str, int],
    items: int,
    work: float,
    temporaries: Mapping[str, tuple[str, int]] | None = None,
    memory: Mapping[str, str] | None = None,
    known: Mapping[str, Known] | None = None,
) -> list[Launch]:
    """The launch of a kernel.

    function: a kernel function. Its parameters are the operands a, b, ..., the results out0, out1, ..., names of
        `sizes`, of `temporaries`, of `memory` and of `known`, and lo and hi.
    sizes: integers by their names, arguments of the kernel. work: element operations of an item.
    temporaries: dtype and elements, of all items, by name.
    memory: the name of an operand, a result or a temporary for a parameter that is one of them. known: numbers and
        truth values that decide what the kernel is.
    """
    if not items:
        return []
    temporaries = temporaries or {}
    kind = HLO_NAME[instruction.operands[0].dtype]
    # Scalar constants have no memory: a kernel is given their value.
    operands = {letter: o for letter, o in zip("abcd", instruction.operands, strict=False) if o in request.names}
    pointers = {request.names[o]: HLO_NAME[o.dtype] for o in operands.values()}
    names = {letter: request.names[o] for letter, o in operands.items()}
    for k, output in enumerate(request.outputs):
        names[f"out{k}"] = request.output_name(k)
        pointers[request.output_name(k)] = HLO_NAME[output.dtype]
    for key, (dtype, _) in temporaries.items():
        names[key], pointers[key] = key, dtype
    params = {name: Var(f"*{dtype}", name) for name, dtype in pointers.items()}
    numbers = {name: Var("s64", name) for name in (*sizes, "lo", "hi")}
    given: dict[str, Expr | Known] = {key: params[name] for key, name in names.items()}
    given |= numbers
    given |= {key: given[name] for key, name in (memory or {}).items()}
    given |= known or {}
    title = request.title("matrix")
    types = {"T": kind, "R": PART.get(kind, kind), "Int": HLO_NAME[request.outputs[0].dtype]}
    source = source_of(function, title, (*params.values(), *numbers.values()), given, types)
    room = {key: count * DTYPES[dtype].itemsize for key, (dtype, count) in temporaries.items()}
    arguments = [*pointers, *sizes.values()]
    return [launch_by_work(source, arguments, items, work, room, moved=request.moved)]
