"""A schedule as a program for the CPU: kernels to machine code, steps to the driver's."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence

from hloom.backends.compile import PlannedExecutable, optimized_plan, stage_timings
from hloom.backends.cpu.background_compile import compile_async
from hloom.backends.cpu.driver import driver, load_or_fall_back
from hloom.backends.cpu.host_callbacks import host_function
from hloom.backends.dump import kernel_listing
from hloom.compiler.compile_timings import collecting
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.pipeline import UNFUSED, run_passes
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import (
    BranchStep,
    CopyStep,
    FreeStep,
    HostStep,
    JumpStep,
    KernelStep,
    Place,
    ReceiveStep,
    RenewStep,
    SendStep,
    SwapStep,
    SwitchStep,
)
from hloom.compiler.targets.cpu.target import CpuTarget, host_target
from hloom.config import config
from hloom.ir.module import Module
from hloom.ir.records import field, record
from hloom.ir.types import Shape, TupleShape
from hloom.runtime import program as runtime
from hloom.runtime.program import Branch, Call, Copy, Count, Host, Jump, Program, Ref, Step, Swap, Switch

LOOP_WORK = 1e6  # nobody knows how long a loop runs: other Python threads need not wait for it


@record
class CpuExecutable(PlannedExecutable):
    """A module compiled for a CPU device. plan: launches and buffers."""

    module: Module
    plan: Plan
    runner: runtime.Executable
    timings: dict[str, float] = field(default_factory=dict)
    kernels_compiled: int = 0
    kernels_pending: int = 0

    @property
    def rejects_none(self) -> bool:
        # What a Python function of the program raises may be a TypeError too, and it is not to run twice.
        return not self.runner.runs_python

    def for_one_output(self):
        return self.runner.for_one_output()


def compile_module(
    module: Module,
    *,
    fusion: bool | None = None,
    donated: frozenset[int] = frozenset(),
    target: CpuTarget | None = None,
    device: int = 0,
    fallbacks: bool = True,
) -> CpuExecutable:
    """Compiles a module for the CPU. fusion: None means `hl.config.fusion`. donated: parameters that may be reused.
    target: this machine with other sizes (`autotune`). device: index of the CPU device. fallbacks: whether fallback
    kernels may run while others are compiled in the background, if `hl.config.background_compilation` allows it."""
    with collecting() as stages:
        optimized, plan, times = optimized_plan(module, fusion=fusion, donated=donated, target=target)
        if config.cpu_memory:
            from hloom.backends.cpu.memory_limit import check_budget

            check_budget(plan, f"cpu:{device}")
        made = time.perf_counter()
        pending: dict[KernelSource, list[int]] = {}
        program = program_of(plan, Layout(), pending if fallbacks and config.background_compilation else None)
        runner = runtime.Executable(program, driver(device))
    timings = stage_timings(stages, times, time.perf_counter() - made)
    compiled = stages.counts.get("kernels compiled", 0)
    _report(module, target or host_target(), plan, timings, compiled, len(pending))
    for kernel, steps in pending.items():
        compile_async(kernel, functools.partial(runner.exchange, steps))
    return CpuExecutable(optimized, plan, runner, timings, compiled, len(pending))


class Layout:
    """Where a plan's places are in its program: of a program that runs alone."""

    inputs: Sequence[Shape] | None = None  # of the whole program, where this is a part of one
    outputs: Sequence[Shape] | None = None
    channels = 0

    def ref(self, place: Place) -> Ref:
        return Ref(place.kind, place.number, place.swap)

    def count(self, item) -> Count:
        """The counting step of a send or receive."""
        raise ValueError(f"a program that runs alone has no channels: {item}")


def program_of(plan: Plan, layout: Layout, pending: dict[KernelSource, list[int]] | None = None) -> Program:
    """Compiles (or finds) the kernels and returns the program that calls them.

    pending: where it is given, kernels that are not compiled yet but have a fallback are added to it, with the numbers
    of the steps that call the fallback.
    """
    ref = layout.ref
    sources: dict[KernelSource, None] = {}
    fallbacks: dict[KernelSource, Callable[[], list[KernelSource]]] = {}
    for item in plan.kernels():
        sources[item.launch.source] = None
        if item.launch.fallbacks is not None and pending is not None:
            fallbacks[item.launch.source] = item.launch.fallbacks
        for argument in item.launch.arguments:
            if isinstance(argument, KernelSource):
                sources[argument] = None
    found, missing = load_or_fall_back(list(sources), fallbacks)
    addresses = dict(zip(sources, found, strict=True))
    steps: list[Step] = []
    work = 0.0
    for item in plan.steps:
        if isinstance(item, KernelStep):
            launch = item.launch
            words = []
            for argument in launch.arguments:
                if isinstance(argument, str):
                    argument = ref(item.pointers[argument])
                elif isinstance(argument, KernelSource):
                    argument = addresses[argument]
                words.append(argument)
            if launch.source in missing:
                pending.setdefault(launch.source, []).append(len(steps))
            chunks = launch.items, launch.grain, launch.side_by_side
            steps.append(Call(addresses[launch.source], tuple(words), *chunks, launch.nanoseconds))
            work += float(launch.items) * max(1.0, 65536.0 / launch.grain) if launch.items > launch.grain else 0.0
        elif isinstance(item, CopyStep):
            steps.append(Copy(ref(item.target), ref(item.source), item.bytes))
        elif isinstance(item, JumpStep):
            steps.append(Jump(item.target))
        elif isinstance(item, BranchStep):
            steps.append(Branch(ref(item.pred), item.target))
        elif isinstance(item, SwitchStep):
            steps.append(Switch(ref(item.index), tuple(item.targets)))
        elif isinstance(item, SwapStep):
            steps.append(Swap(ref(item.first), ref(item.second)))
        elif isinstance(item, (SendStep, ReceiveStep, RenewStep, FreeStep)):
            steps.append(layout.count(item))
        else:
            steps.append(_host(item, ref))
    if any(isinstance(s, JumpStep) or (isinstance(s, KernelStep) and s.launch.source.parts) for s in plan.steps):
        work += LOOP_WORK
    work += sum(s.bytes for s in plan.input_shapes) + sum(s.bytes for s in plan.output_shapes)
    if layout.outputs is not None:  # a part of a program, whose outputs the whole has
        return Program(
            steps, plan.constants, plan.arena_bytes, layout.inputs, layout.outputs, {}, work, layout.channels
        )
    return Program(
        steps, plan.constants, plan.arena_bytes, plan.input_shapes, plan.output_shapes, dict(plan.donated), work
    )


def _host(item: HostStep, ref) -> Host:
    instruction = item.instruction
    shapes = instruction.shape.elements if isinstance(instruction.shape, TupleShape) else (instruction.shape,)
    distinct = list(dict.fromkeys(instruction.operands))
    order = [distinct.index(o) for o in instruction.operands]

    return Host(
        host_function(instruction, order),
        tuple((ref(p), o.shape) for p, o in zip(item.inputs, distinct, strict=True)),
        tuple((ref(p), s) for p, s in zip(item.outputs, shapes, strict=True)),
        keeps=instruction.opcode == "custom-call",
    )


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
        from hloom.compiler.passes.fusion.fuse import explain

        before = run_passes(module, UNFUSED, target=target)
        for line in explain(before.entry, target):
            print(f"hloom: {line}", file=sys.stderr)
    if level >= 4:
        print(kernel_listing(plan), file=sys.stderr)
