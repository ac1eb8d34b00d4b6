"""The CPU as a target: machine facts, and how kinds of kernels become launches and nests text."""

from __future__ import annotations

from hloom.compiler.kernels.attention.structure import attention_of
from hloom.compiler.kernels.codegen.description import Nest
from hloom.compiler.kernels.codegen.elements import fallbacks, with_stores
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.contractions.product import product_launches
from hloom.compiler.kernels.emit import nests
from hloom.compiler.kernels.host import runs_on_host
from hloom.compiler.kernels.launch import Launch, launch_by_work
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.topk import topk_launches
from hloom.compiler.kernels.windows.launches import window_launches
from hloom.compiler.targets.cpu.attention import attention_launches
from hloom.compiler.targets.cpu.fft.launches import fft_launches
from hloom.compiler.targets.cpu.machine import Machine, host
from hloom.compiler.targets.cpu.render import render
from hloom.ir.module import Instruction
from hloom.ir.records import record


def _attention(request: KernelRequest, machine: Machine) -> list[Launch]:
    attention = attention_of(request.computation)
    if attention is None:
        raise ValueError(f"{request.computation.name}: no kernel has two contractions but attention")
    return attention_launches(request, attention, machine)


# Kinds whose kernels are texts of their own, by (request, machine). All others are nests.
_KINDS = {
    "product": product_launches,
    "attention": _attention,
    "fft": fft_launches,
    "window": lambda request, machine: window_launches(request),
    "topk": lambda request, machine: topk_launches(request),
}


@record(frozen=True)
class CpuTarget:
    """`machine`: vector width, registers and caches that the contraction is tiled for."""

    machine: Machine

    attention_pass = "fuse-attention"
    cuts_loops = True  # a work item walks its innermost loop alone, so the loop may have several bodies
    joins_loops = True  # a loop of small kernels may become one kernel
    exchanges_places = True  # two buffers of a loop may change their roles: addresses are exchanged, nothing is copied

    @property
    def streams_from(self) -> int:
        """From how many bytes on a kernel stores its results past the caches; 0: never, for want of such stores."""
        return self.machine.l3_bytes * 5 // 4 if self.machine.arch == "x86_64" else 0

    @property
    def streams_leaving_from(self) -> int:
        """The same for results that nothing in the program reads again: earlier, as other work of the program would
        rather find what it reads in the cache."""
        return min(self.streams_from, self.machine.l3_bytes * 7 // 8)

    @property
    def whole(self) -> int:
        """Of so many bytes are the stores past the caches, at addresses that are multiples of it."""
        return self.machine.vector_bytes

    def runs_on_host(self, instruction: Instruction) -> bool:
        """Whether an instruction is a Python function that the driver calls, and no kernel."""
        return runs_on_host(instruction)

    def launches(self, request: KernelRequest, kind: str) -> list[Launch]:
        """The launches of a fused computation of a kind (`emit.nest_kind`)."""
        if kind in _KINDS:
            return _KINDS[kind](request, self.machine)
        return [self._launch(nest) for nest in nests(request) if nest.items]

    def _launch(self, nest: Nest) -> Launch:
        arguments = [name for name, _ in nest.pointers] + list(nest.integers.values())
        text = self.render(nest)
        source = with_stores(text, nest.past_caches)
        launch = launch_by_work(source, arguments, nest.items, nest.inner_work, nest.temporaries, moved=nest.moved)
        if nest.kind == "row" and nest.items >= 256:
            launch.grain = -(-launch.grain // 4) * 4  # a processor may do so many rows at once
        # Of what the last cache does not hold, nothing stays in a core's own: then it is memory that counts, and it is
        # faster where threads read near each other (a step of Adam on 4M parameters by a fifth).
        launch.side_by_side = nest.moved > self.machine.l3_bytes
        launch.fallbacks = fallbacks(text, nest.leaving)
        return launch

    def render(self, nest: Nest) -> KernelSource:
        return render(nest, self.machine.vector_bytes)


def host_target() -> CpuTarget:
    """The target that describes the current machine."""
    return CpuTarget(host())
