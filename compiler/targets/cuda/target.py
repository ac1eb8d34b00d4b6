"""CUDA as a target: which instructions have a kernel, and how kinds of kernels become launches."""

from __future__ import annotations

from collections.abc import Callable

from hloom.compiler.fusibility import CONTRACTIONS, has_expression
from hloom.compiler.kernels.accepts import accepts_contraction
from hloom.compiler.kernels.attention.structure import attention_of
from hloom.compiler.kernels.codegen.description import Nest
from hloom.compiler.kernels.kinds import LOOP, REDUCE, ROW, SCATTER, contains, is_contraction, launches_of
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.topk import has_topk_kernel
from hloom.compiler.kernels.windows.window_kernels import has_window_kernel, is_inlined
from hloom.compiler.targets.base import KernelKind, Target, has_host_dtype
from hloom.compiler.targets.cuda.attention import attention_sources, has_attention_kernel
from hloom.compiler.targets.cuda.contractions.launches import contraction_sources, has_product_kernel
from hloom.compiler.targets.cuda.contractions.naive import plain_product_nest
from hloom.compiler.targets.cuda.fft import accepts_transform, fft_launches, has_fft_kernel
from hloom.compiler.targets.cuda.launches import CudaLaunch, launch_of_nest
from hloom.compiler.targets.cuda.libraries.linear_algebra import routines
from hloom.compiler.targets.cuda.machine import CudaMachine, machine_of
from hloom.compiler.targets.cuda.scatter import scatter_launches
from hloom.compiler.targets.cuda.sorting.choice import sort_launches
from hloom.compiler.targets.cuda.sorting.topk import topk_launches
from hloom.compiler.targets.cuda.user import user_launches
from hloom.compiler.targets.cuda.windows import window_launches
from hloom.ir.errors import HloomError
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops import OPS
from hloom.ir.records import record, replace


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
        mixed = {i.opcode for i in members} & {*CONTRACTIONS, "reduce"}
        if len(mixed) > 1 and attention_of(instruction["calls"]) is None:
            return False
        return all(has_cuda_kernel(i) for i in members)
    if opcode in ("while", "conditional", "call"):
        return all(has_cuda_kernel(i) for c in instruction.called() for i in c.instructions)
    if opcode == "custom-call":
        return False
    if family in ("structure", "control"):
        return True
    if has_host_dtype(instruction):
        return opcode == "bitcast-convert"
    kind = CudaTarget.kind_of_opcode(opcode)
    if kind is not None:
        return kind.supports(instruction)
    return opcode == "bitcast-convert" or has_expression(instruction)


def _has_sort_kernel(sort: Instruction) -> bool:
    comparator: Computation = sort["to_apply"]
    return is_inlined(comparator) and sort.operands[0].dims[sort["dimensions"][0]] < 2**30


def _attention(request: KernelRequest, target: CudaTarget) -> list[CudaLaunch]:
    attention = attention_of(request.computation)
    assert attention is not None  # the kind matches
    return attention_sources(request, attention, target.machine, vectors=target.vectors)


def _product(request: KernelRequest, target: CudaTarget) -> list[CudaLaunch]:
    (contraction,) = [i for i in request.computation.instructions if i.opcode in CONTRACTIONS]
    if has_product_kernel(contraction):
        return contraction_sources(request, target.machine, tf32=target.tf32, vectors=target.vectors)
    return launches_of(lambda request: [plain_product_nest(request)])(request, target)


def _by_multiprocessors(launches: Callable) -> Callable:
    """The `launches` of a kind that depends on the number of multiprocessors only."""
    return lambda request, target: launches(request, target.machine.multiprocessors)


def _kind(name: str, launches: Callable, supports: Callable, *opcodes: str, **fields) -> KernelKind:
    """A kind for certain opcodes, whose launches depend on the number of multiprocessors only."""
    return KernelKind(name, contains(*opcodes), _by_multiprocessors(launches), frozenset(opcodes), supports, **fields)


KINDS = (
    _kind("kernel", user_launches, lambda instruction: True, "kernel"),
    _kind("sort", sort_launches, _has_sort_kernel, "sort"),
    _kind("topk", topk_launches, has_topk_kernel, "topk"),
    _kind("fft", fft_launches, has_fft_kernel, "fft", accepts=accepts_transform),
    replace(SCATTER, launches=_by_multiprocessors(scatter_launches)),
    _kind("window", window_launches, has_window_kernel, "reduce-window", "select-and-scatter"),
    KernelKind("attention", lambda computation: attention_of(computation) is not None, _attention),
    KernelKind(
        "product",
        is_contraction,
        _product,
        frozenset(CONTRACTIONS),
        accepts=accepts_contraction,
        fusion_kind="kOutput",
    ),
    replace(ROW, supports=lambda reduce: is_inlined(reduce["to_apply"])),
    REDUCE,
    LOOP,
)


@record(frozen=True)
class CudaTarget(Target):
    """A GPU of an architecture. Needs neither the card nor the extra `cuda` to plan a program.

    arch: 'sm_80', 'sm_90', ... (`machine.MACHINES`). vectors: whether element-wise kernels load and store 16 bytes at
    a time, for which all arrays have to begin at multiples of 16. tf32: whether factors of float32 products may be
    rounded to 11 bits for tensor cores.
    """

    arch: str = "sm_90"
    vectors: bool = True
    tf32: bool = False

    kinds = KINDS

    def __post_init__(self):
        machine_of(self.arch)

    @property
    def machine(self) -> CudaMachine:
        return machine_of(self.arch)

    def has_kernel(self, instruction: Instruction) -> bool:
        return has_cuda_kernel(instruction)

    def can_fuse(self, computation: Computation) -> bool:
        attention = attention_of(computation)
        return super().can_fuse(computation) if attention is None else has_attention_kernel(attention, self.machine)

    def expand(self, module: Module) -> Module:
        return routines(module)

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

    def launch_of(self, nest: Nest) -> CudaLaunch:
        """The launch of a nest."""
        return launch_of_nest(nest, self.machine.multiprocessors, self.vectors)
