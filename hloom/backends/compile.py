"""From a traced module to its schedule: passes, then the plan, with dumps and timings. Backends make the rest."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from hloom.backends.donation import copy_shared
from hloom.backends.listing import kernel_listing
from hloom.backends.text import program_text
from hloom.compiler.analysis import cost_analysis, memory_analysis
from hloom.compiler.compile_timings import Stages
from hloom.compiler.pipeline import PIPELINE, UNFUSED, PassRecord, run_passes
from hloom.compiler.schedule.scheduler import Plan, make_plan
from hloom.compiler.targets.base import Target
from hloom.compiler.targets.cpu.target import host_target
from hloom.config import config
from hloom.ir.module import Module
from hloom.ir.process.floats import default_floats
from hloom.platforms.backend import Executable


class Observer(Protocol):
    """Who looks on while a program is compiled."""

    def on_pass(self, record: PassRecord) -> None:
        """After each pass."""

    def on_plan(self, plan: Plan) -> None:
        """Once the program is planned."""


def observer_of(module: Module) -> Observer | None:
    """The observer of a module's compilation: the dump of `hl.config.dump_to`, or a no-op."""
    if not config.dump_to:
        return None
    from hloom.backends.dump import Dump  # saves start-up time: texts are written for those who ask

    return Dump(module)


class Planned:
    """Shows the `module` after all passes and its `plan`."""

    module: Module
    plan: Plan

    def as_text(self, dialect: str = "hlo", *, export: bool = False) -> str:
        """The optimized module as HLO text, or as StableHLO (dialect="stablehlo"); `program_text` explains export."""
        return program_text(self.module, dialect, export=export)

    def source(self) -> str:
        """The kernels as Python text, each with the values that it computes and reads."""
        return kernel_listing(self.plan)

    def cost_analysis(self) -> Mapping[str, object]:
        return cost_analysis(self.plan)

    def memory_analysis(self) -> dict[str, int]:
        return memory_analysis(self.plan)


class PlannedExecutable(Planned, Executable):
    """An executable with one plan, which says what it returns."""

    def __post_init__(self) -> None:
        self.donated, self.output_shapes = self.plan.donated, self.plan.output_shapes

    def call_donating(self, arrays: list, release) -> list:
        release()
        copy_shared(arrays, self.donated.values())
        return self.runner(arrays)


@default_floats()
def optimized_plan(
    module: Module,
    *,
    fusion: bool | None = None,
    donated: frozenset[int] = frozenset(),
    target: Target | None = None,
    updates: Mapping[int, int] | None = None,
    processes: Sequence[int] = (),
    steady: frozenset[int] = frozenset(),
    observer: Observer | None = None,
) -> tuple[Module, Plan, dict[str, float]]:
    """The module after all passes, its plan, and the seconds of both.

    updates, processes, steady: as of `make_plan`. observer: of the passes
    that ran before."""
    target = target or host_target(self_contained=not config.library_calls)
    fused = config.fusion if fusion is None else fusion
    names = PIPELINE if fused else UNFUSED
    observer = observer or observer_of(module)
    started = time.perf_counter()
    on_pass = observer.on_pass if observer else None
    optimized = run_passes(module, names, target=target, verify=config.verify, on_pass=on_pass)
    passed = time.perf_counter()
    plan = make_plan(optimized, target, donated, updates=updates, whole=fused, processes=processes, steady=steady)
    planned = time.perf_counter()
    if observer:
        observer.on_plan(plan)
    return optimized, plan, {"passes": passed - started, "plan": planned - passed}


def stage_timings(stages: Stages, times: dict[str, float], kernels: float) -> dict[str, float]:
    """Seconds by stage. 'kernels' is the caller's wait for machine code, including front end and LLVM; these two run in
    several threads, so their times may add up to more."""
    within = {name: stages.seconds.get(name, 0.0) for name in ("front end", "llvm", "load")}
    source = stages.seconds.get("source", 0.0)
    return times | {"plan": times["plan"] - source, "source": source, "kernels": kernels, **within}
