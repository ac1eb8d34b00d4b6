"""Which windows have kernels, and which loops these are: over windows, or scans where a window is cumulative."""

from __future__ import annotations

import math

from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.windows.reduce_window import ReduceWindow
from hloom.compiler.kernels.windows.scans import running_launches
from hloom.compiler.kernels.windows.select_scatter import SelectAndScatter
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops import OPS
from hloom.ir.types import HOST_DTYPES, Shape


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
    host = any(o.dtype in HOST_DTYPES for o in instruction.operands)
    return not host and all(is_inlined(instruction[name]) for name in names)


def window_launches(request: KernelRequest) -> list[Launch]:
    """The kernels of a computation of one reduce-window or select-and-scatter; none where the result is empty."""
    (instruction,) = [i for i in request.computation.instructions if OPS[i.opcode].family == "window"]
    if instruction.opcode == "reduce-window":
        return _reduction_launches(ReduceWindow(request, instruction))
    return SelectAndScatter(request, instruction).kernels()


def _reduction_launches(made: ReduceWindow) -> list[Launch]:
    if not made.lead * made.places * made.inner:
        return []
    scanned = made.scanned()
    if scanned is not None:
        return running_launches(made, *scanned)
    taps = math.prod(d.window.size for d in made.middle)
    if made.inner > 1:
        return [made.rows(taps)]
    if made.middle and (made.middle[-1].window.base_dilation == 1 or made.middle[-1].window.stride == 1):
        return [made.lines(taps)]
    return [made.elements(taps)]
