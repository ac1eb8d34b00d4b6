"""From a module to an executable for one CPU device."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Mapping

from hloom.backends.compile import PlannedExecutable, optimized_plan, stage_timings
from hloom.backends.cpu.background_compile import compile_async
from hloom.backends.cpu.driver import Kernel, driver
from hloom.backends.cpu.memory_limit import check_memory
from hloom.backends.cpu.program import Layout, program_of
from hloom.backends.listing import kernel_listing
from hloom.backends.unrolled import warn_of_unrolled_loop
from hloom.compiler.compile_timings import collecting
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.passes.fusion.fuse import explain
from hloom.compiler.pipeline import UNFUSED, run_passes
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.targets.cpu.target import CpuTarget, host_target
from hloom.config import config
from hloom.ir.module import Module
from hloom.ir.process.floats import default_floats
from hloom.ir.records import field, record
from hloom.runtime import program as runtime


@record
class CpuExecutable(PlannedExecutable):
    """A module compiled for a CPU device. plan: launches and buffers."""

    module: Module
    plan: Plan
    runner: runtime.Executable
    timings: dict[str, float] = field(default_factory=dict)
    kernels_compiled: int = 0
    kernels_pending: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        # What a Python function of the program raises may be a TypeError too, and it is not to run twice.
        self.rejects_none = not self.runner.runs_python

    def for_one_output(self):
        return self.runner.for_one_output()


@default_floats()
def compile_module(
    module: Module,
    *,
    fusion: bool | None = None,
    donated: frozenset[int] = frozenset(),
    target: CpuTarget | None = None,
    device: int = 0,
    fallbacks: bool = True,
    updates: Mapping[int, int] | None = None,
    steady: frozenset[int] = frozenset(),
) -> CpuExecutable:
    """Compiles a module for the CPU. fusion: None means `hl.config.fusion`. donated: parameters that may be reused.
    target: this machine with other sizes (`autotune`). device: index of the CPU device. fallbacks: whether fallback
    kernels may run while others are compiled in the background, if `hl.config.background_compilation` allows it.
    updates: output -> the parameter in whose memory it is computed where it can be; `CpuExecutable.donated` says so.
    steady: as of `CompileOptions`."""
    with collecting() as stages:
        optimized, plan, times = optimized_plan(
            module, fusion=fusion, donated=donated, target=target, updates=updates, steady=steady
        )
        check_memory(plan, f"cpu:{device}")
        made = time.perf_counter()
        pending: dict[KernelSource, list[int]] = {}
        program = program_of(plan, Layout(), pending if fallbacks and config.background_compilation else None)
        runner = runtime.Executable(program, driver(device))
    timings = stage_timings(stages, times, time.perf_counter() - made)
    compiled = stages.counts.get("kernels compiled", 0)
    _report(module, target or host_target(), plan, timings, compiled, len(pending))
    warn_of_unrolled_loop(module, times["passes"] + times["plan"] + timings["kernels"])
    for kernel, steps in pending.items():
        compile_async(kernel, _exchange(runner, steps))
    return CpuExecutable(optimized, plan, runner, timings, compiled, len(pending))


def _exchange(runner: runtime.Executable, steps: list[int]) -> Callable[[Kernel], None]:
    """Puts a kernel into a program. It does not keep an unused program alive."""
    reference = weakref.ref(runner)

    def install(kernel: Kernel) -> None:
        found = reference()
        if found is not None:
            found.exchange(steps, kernel.address, kernel)

    return install


def _report(
    module: Module, target: CpuTarget, plan: Plan, timings: dict[str, float], compiled: int, pending: int
) -> None:
    level = config.debug
    if level >= 1:
        times = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in timings.items())
        print(
            f"hloom: compiled {module.name}: {len(plan.kernels())} kernels, {compiled} of them new"
            + (f", {pending} to be compiled in the background" if pending else "")
            + (f"; {times}" if level >= 2 else ""),
            file=sys.stderr,
        )
    if level >= 3:
        before = run_passes(module, UNFUSED, target=target)
        for line in explain(before.entry, target):
            print(f"hloom: {line}", file=sys.stderr)
    if level >= 4:
        print(kernel_listing(plan), file=sys.stderr)
