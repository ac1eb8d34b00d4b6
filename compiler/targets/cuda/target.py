"""CUDA as a target: which instructions have a kernel, and how kinds of kernels become launches."""

from __future__ import annotations

from hloom.compiler.kernels.attention.structure import attention_of
from hloom.compiler.kernels.codegen.description import Nest
from hloom.compiler.kernels.codegen.writer import can_write
from hloom.compiler.kernels.emit import nests
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.scatter import has_scatter_kernel
from hloom.compiler.kernels.topk import has_topk_kernel
from hloom.compiler.kernels.windows.launches import has_window_kernel, is_inlined
from hloom.compiler.targets.cuda.attention import attention_sources, has_attention_kernel
from hloom.compiler.targets.cuda.contractions.launches import contraction_sources, has_product_kernel
from hloom.compiler.targets.cuda.contractions.naive import plain_product_nest
from hloom.compiler.targets.cuda.fft import fft_launches, has_fft_kernel
from hloom.compiler.targets.cuda.launches import CudaLaunch, launch_of_nest
from hloom.compiler.targets.cuda.libraries.linear_algebra import NAME as ROUTINES
from hloom.compiler.targets.cuda.machine import CudaMachine, machine_of
from hloom.compiler.targets.cuda.scatter import scatter_launches
from hloom.compiler.targets.cuda.sorting.choice import sort_launches
from hloom.compiler.targets.cuda.sorting.topk import topk_launches
from hloom.compiler.targets.cuda.windows import window_launches
from hloom.ir.errors import HloomError
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops import OPS
from hloom.ir.records import record
from hloom.ir.types import HOST_DTYPES, Shape


class NoCudaKernelError(HloomError, NotImplementedError):
    """A program for a GPU has an instruction that has no CUDA kernel. `instruction`: that one."""

    def __init__(self, instruction: Instruction):
        self.instruction = instruction
        operands = ", ".join(repr(operand.shape) for operand in instruction.operands)
        super().__init__(
            f"{instruction.opcode} on a GPU",
            f"no CUDA kernel for {instruction.opcode} of {operands or 'nothing'}",
            "compute this part on the CPU: with hl.device('cpu:0'), or set hl.config.soft_placement",
            instruction.source,
        )


def has_cuda_kernel(instruction: Instruction) -> bool:
    """Whether CUDA kernels compute an instruction; True for those that compute nothing (tuples, parameters, loops)."""
    opcode, family = instruction.opcode, OPS[instruction.opcode].family
    if opcode == "fusion":
        members = instruction["calls"].instructions
        mixed = {i.opcode for i in members} & {"dot", "convolution", "reduce"}
        if len(mixed) > 1 and attention_of(instruction["calls"]) is None:
            return False
        return all(has_cuda_kernel(i) for i in members)
    if opcode in ("while", "conditional", "call"):
        return all(has_cuda_kernel(i) for c in instruction.called() for i in c.instructions)
    if opcode == "custom-call":
        return False
    if family in ("structure", "control"):
        return True
    shapes = [i.shape for i in (instruction, *instruction.operands)]
    if any(isinstance(shape, Shape) and shape.dtype in HOST_DTYPES for shape in shapes):
        return opcode == "bitcast-convert"
    if family == "window":
        return has_window_kernel(instruction)
    if opcode == "scatter":
        return has_scatter_kernel(instruction)
    if opcode == "fft":
        return has_fft_kernel(instruction)
    if opcode == "topk":
        return has_topk_kernel(instruction)
    if opcode == "sort":
        return _has_sort_kernel(instruction)
    if opcode == "reduce":
        return is_inlined(instruction["to_apply"])
    if opcode in ("dot", "convolution", "bitcast-convert"):
        return True
    return can_write(instruction)


def _has_sort_kernel(sort: Instruction) -> bool:
    comparator: Computation = sort["to_apply"]
    return is_inlined(comparator) and sort.operands[0].dims[sort["dimensions"][0]] < 2**30


# Kinds with kernels of their own, by (request, multiprocessors). All others are nests.
_KINDS = {
    "fft": fft_launches,
    "window": window_launches,
    "topk": topk_launches,
    "sort": sort_launches,
    "scatter": scatter_launches,
}


@record(frozen=True)
class CudaTarget:
    """A GPU of an architecture. Needs neither the card nor the extra `cuda` to plan a program.

    arch: 'sm_80', 'sm_90', ... (`machine.MACHINES`). vectors: whether element-wise kernels load and store 16 bytes at
    a time, for which all arrays have to begin at multiples of 16. tf32: whether factors of float32 products may be
    rounded to 11 bits for tensor cores.
    """

    arch: str = "sm_90"
    vectors: bool = True
    tf32: bool = False

    cuts_loops = False  # threads take elements; a loop in pieces would be a branch in each
    joins_loops = False
    expansions = (ROUTINES,)  # passes that make what this target has out of ops that it has not
    exchanges_places = False  # a captured graph has its addresses
    streams_from = 0

    def __post_init__(self):
        machine_of(self.arch)

    @property
    def machine(self) -> CudaMachine:
        return machine_of(self.arch)

    @property
    def attention_pass(self) -> str:
        """The pass that joins what `attention_sources` has kernels for."""
        return f"fuse-attention-{self.machine.arch}"

    def runs_on_host(self, instruction: Instruction) -> bool:
        """Whether an instruction is a Python function of the user's (a callback), called between kernels. Raises
        NoCudaKernelError for any other one that has no kernel."""
        if instruction.opcode == "custom-call":
            return True
        attention = attention_of(instruction["calls"]) if instruction.opcode == "fusion" else None
        if attention is not None and not has_attention_kernel(attention, self.machine):
            raise NoCudaKernelError(instruction)  # fused for another architecture
        if not has_cuda_kernel(instruction):
            inside = instruction["calls"].instructions if instruction.opcode == "fusion" else ()
            raise NoCudaKernelError(next((i for i in inside if not has_cuda_kernel(i)), instruction))
        return False

    def launches(self, request: KernelRequest, kind: str) -> list[CudaLaunch]:
        """The launches of a fused computation of a kind (`emit.nest_kind`)."""
        if kind in _KINDS:
            return _KINDS[kind](request, self.machine.multiprocessors)
        if kind in ("product", "attention"):
            if attention := attention_of(request.computation):
                return attention_sources(request, attention, self.machine, vectors=self.vectors)
            found = [i for i in request.computation.instructions if i.opcode in ("dot", "convolution")]
            if len(found) == 1 and has_product_kernel(found[0]):
                return contraction_sources(request, self.machine, tf32=self.tf32, vectors=self.vectors)
            made = [plain_product_nest(request)]
        else:
            made = nests(request)
        return [self._launch(nest) for nest in made if nest.items]

    def _launch(self, nest: Nest) -> CudaLaunch:
        return launch_of_nest(nest, self.machine.multiprocessors, self.vectors)
