"""Programs that several CPU devices run together on arrays of many sizes.

A variant is partitioned and compiled for the sizes for which its guards hold, as on one device. A program of numbers is
made from it for each set of sizes, which compiles nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from hloom.backends.compile import observer_of, optimized_plan
from hloom.backends.cpu.open_sizes import OpenExecutable
from hloom.backends.processes import placement_of
from hloom.backends.spmd.program import SpmdExecutable, program_of_each, runner_of, shardings_of
from hloom.compiler.passes.registry import Team
from hloom.compiler.passes.spmd.meshes import mesh_of
from hloom.compiler.schedule.at_sizes import plan_at
from hloom.compiler.schedule.scheduler import Plan
from hloom.ir.module import Module
from hloom.ir.sizes.guards import inner
from hloom.platforms.backend import CompileOptions, OpenSpmd

__all__ = ["OpenSpmdExecutable"]


class OpenSpmdExecutable(OpenExecutable, OpenSpmd):
    """A module whose parameters have open sizes, for several CPU devices of this process. `at` returns what runs."""

    def __init__(self, module: Module, options: CompileOptions, devices: tuple[str, ...]):
        super().__init__(module, options)
        self.devices, self.mesh = devices, mesh_of(module)
        self._where = placement_of(self.devices)
        self._shardings: dict[int, list[list]] = {}  # of arguments and results, by the identity of a variant's plan

    def at(self, sizes: Mapping[str, int]) -> SpmdExecutable:
        """The program for the sizes of the dimensions, by name."""
        variant = self.variant(sizes)
        plan = plan_at(variant.plan, {inner(name): size for name, size in sizes.items()})
        runner = runner_of(plan, self.module.partitions, self._where)
        inputs, outputs = self._shardings[id(variant.plan)]
        return SpmdExecutable(variant.module, plan, runner, self.devices, self.mesh, inputs, outputs, self.timings)

    def _planned(self, module: Module) -> tuple[Module, Plan, dict[str, float]]:
        started = time.perf_counter()
        observer = observer_of(module)
        divided = program_of_each(module, Team(self.devices, mesh=self.mesh), observer=observer)
        seconds = {"partition": time.perf_counter() - started}
        optimized, plan, times = optimized_plan(
            divided, fusion=self._options.fusion, donated=self._options.donated, observer=observer
        )
        self._shardings[id(plan)] = shardings_of(divided, self.mesh)
        return optimized, plan, seconds | times
