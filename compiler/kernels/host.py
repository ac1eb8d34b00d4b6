"""Which instructions run as Python functions between native steps, and have no kernel."""

from __future__ import annotations

from hloom.compiler.kernels.scatter import has_scatter_kernel
from hloom.compiler.kernels.topk import has_topk_kernel
from hloom.compiler.kernels.windows.launches import has_window_kernel
from hloom.compiler.normal_forms import is_normal_convolution
from hloom.compiler.targets.cpu.fft.launches import has_fft_kernel
from hloom.ir.module import Instruction
from hloom.ir.ops import OPS
from hloom.ir.types import HOST_DTYPES, Shape


def runs_on_host(instruction: Instruction) -> bool:
    """Whether an instruction is a Python function that the driver calls, and no kernel."""
    if instruction.opcode == "convolution":
        return not is_normal_convolution(instruction)
    if OPS[instruction.opcode].family == "window":
        return not has_window_kernel(instruction)
    if instruction.opcode == "scatter":
        return not has_scatter_kernel(instruction)
    if instruction.opcode == "topk":
        return not has_topk_kernel(instruction)
    if instruction.opcode == "fft":
        return not has_fft_kernel(instruction)
    family = OPS[instruction.opcode].family
    if instruction.opcode == "custom-call" or family == "library":
        return True
    return family in _COMPUTING and any(
        isinstance(i.shape, Shape) and i.shape.dtype in HOST_DTYPES for i in (instruction, *instruction.operands)
    )


# Families whose ops look at elements.
_COMPUTING = ("elementwise", "index", "reduce", "contraction", "window")
