"""The CPU as a target: machine facts and how nests become text."""

from __future__ import annotations

from dataclasses import dataclass

from hloom.compiler.kernels.description import Nest
from hloom.compiler.kernels.source import KernelSource
from hloom.compiler.targets.cpu.machine import Machine, host
from hloom.compiler.targets.cpu.render import render


@dataclass(frozen=True)
class CpuTarget:
    """`machine`: vector width, registers and caches that the contraction is tiled for."""

    machine: Machine

    has_attention = True
    cuts_loops = True  # a work item walks its innermost loop alone, so the loop may have several bodies

    @property
    def streams_from(self) -> int:
        """From how many bytes on a kernel stores its results past the caches; 0: never, for want of such stores."""
        return self.machine.l3_bytes * 5 // 4 if self.machine.arch == "x86_64" else 0

    def render(self, nest: Nest) -> KernelSource:
        return render(nest, self.machine.vector_bytes)


def host_target() -> CpuTarget:
    """This machine."""
    return CpuTarget(host())
