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

    def render(self, nest: Nest) -> KernelSource:
        return render(nest)


def host_target() -> CpuTarget:
    """This machine."""
    return CpuTarget(host())
