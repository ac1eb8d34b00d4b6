"""The CPU as a target: machine facts, and how kinds of kernels become launches and nests text."""

from __future__ import annotations

from hloom.compiler.fusibility import CONTRACTIONS
from hloom.compiler.kernels.accepts import accepts_contraction
from hloom.compiler.kernels.attention.structure import attention_of
from hloom.compiler.kernels.codegen.description import Nest
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.codegen.streamed_stores import fallbacks, with_stores
from hloom.compiler.kernels.contractions.product import product_launches
from hloom.compiler.kernels.kinds import LOOP, REDUCE, ROW, SCATTER, contains, is_contraction
from hloom.compiler.kernels.launch import Launch, launch_by_work
from hloom.compiler.kernels.loops.pieces import is_pieces, is_wide, pieces_launches
from hloom.compiler.kernels.topk import has_topk_kernel, topk_launches
from hloom.compiler.kernels.user import user_launches
from hloom.compiler.kernels.windows.window_kernels import has_window_kernel, window_launches
from hloom.compiler.normal_forms import is_normal_convolution
from hloom.compiler.targets.base import KernelKind, Target, has_host_dtype
from hloom.compiler.targets.cpu.attention import attention_launches
from hloom.compiler.targets.cpu.fft.launches import accepts_transform, fft_launches, has_fft_kernel
from hloom.compiler.targets.cpu.linear_algebra import LIBRARY_KINDS, library_is_faster
from hloom.compiler.targets.cpu.llvm_emitter.scratch import guarded
from hloom.compiler.targets.cpu.machine import Machine, host
from hloom.compiler.targets.cpu.render import render
from hloom.ir.module import Instruction
from hloom.ir.records import record
from hloom.ir.sizes.guards import typical


def is_supported_contraction(contraction: Instruction) -> bool:
    """Whether the contraction kernels compute a dot or a convolution."""
    if contraction.opcode == "convolution":
        return is_normal_convolution(contraction)
    return not has_host_dtype(contraction)


KINDS = (
    KernelKind("kernel", contains("kernel"), lambda request, target: user_launches(request), frozenset(["kernel"])),
    KernelKind(
        "topk", contains("topk"), lambda request, target: topk_launches(request), frozenset(["topk"]), has_topk_kernel
    ),
    KernelKind(
        "fft",
        contains("fft"),
        lambda request, target: fft_launches(request, target.machine),
        frozenset(["fft"]),
        has_fft_kernel,
        accepts_transform,
    ),
    *LIBRARY_KINDS,
    SCATTER,
    KernelKind(
        "pieces",
        is_pieces,
        lambda request, target: pieces_launches(request),
        frozenset(["concatenate"]),
        takes=is_wide,
    ),
    KernelKind(
        "window",
        contains("reduce-window", "select-and-scatter"),
        lambda request, target: window_launches(request),
        frozenset(["reduce-window", "select-and-scatter"]),
        has_window_kernel,
    ),
    KernelKind(
        "attention",
        lambda computation: attention_of(computation) is not None,
        lambda request, target: attention_launches(request, target.machine),
    ),
    KernelKind(
        "product",
        is_contraction,
        lambda request, target: product_launches(request, target.machine),
        frozenset(CONTRACTIONS),
        is_supported_contraction,
        accepts_contraction,
        "kOutput",
    ),
    ROW,
    REDUCE,
    LOOP,
)


@record(frozen=True)
class CpuTarget(Target):
    """machine: vector width, registers and caches that the contraction is tiled for.

    self_contained: programs run without Python, so no step may be a library's where a kernel could compute it.
    """

    machine: Machine
    self_contained: bool = False

    kinds = KINDS
    supports_loop_splitting = True
    supports_loop_fusion = True
    supports_pointer_swap = True
    supports_integer_words = True

    def has_kernel(self, instruction: Instruction) -> bool:
        return super().has_kernel(instruction) and (self.self_contained or not library_is_faster(instruction))

    @property
    def nontemporal_threshold(self) -> int:
        # Some processors have no such stores.
        return self.machine.l3_bytes * 5 // 4 if self.machine.arch == "x86_64" else 0

    @property
    def nontemporal_result_threshold(self) -> int:
        # Lower than for results with readers: other work of the program profits from the space in the cache.
        return min(self.nontemporal_threshold, self.machine.l3_bytes * 7 // 8)

    @property
    def nontemporal_bytes(self) -> int:
        return self.machine.vector_bytes

    @property
    def guards_memory(self) -> bool:  # type: ignore[override]
        return guarded()

    @property
    def cores(self) -> int:
        return self.machine.cores

    def launch_of(self, nest: Nest) -> Launch:
        """The launch of a nest."""
        arguments = [name for name, _ in nest.pointers] + list(nest.integers.values())
        text = self.render(nest)
        source = with_stores(text, nest.past_caches)
        rows = 4 if nest.kind == "row" and typical(nest.items) >= 256 else 1  # that a processor may do at once
        launch = launch_by_work(
            source, arguments, nest.items, nest.inner_work, nest.temporaries, moved=nest.moved, multiple=rows
        )
        # What the last-level cache does not hold comes from memory, which is faster where threads read adjacent chunks.
        launch.side_by_side = typical(nest.moved) > self.machine.l3_bytes
        launch.fallbacks = fallbacks(text, nest.leaving)
        return launch

    def render(self, nest: Nest) -> KernelSource:
        return render(nest, self.machine.vector_bytes)


def host_target(self_contained: bool = False) -> CpuTarget:
    """The target that describes the current machine."""
    return CpuTarget(host(), self_contained)
