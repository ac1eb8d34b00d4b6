"""From a traced module to something that runs: passes, plan, kernels, program; with dumps and timings on the way."""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from hloom.behind import compile_behind
from hloom.compiler.analysis import cost_analysis, memory_analysis
from hloom.compiler.kernels.constants import shown_arguments
from hloom.compiler.kernels.source import KernelSource
from hloom.compiler.pipeline import PIPELINE, UNFUSED, PassRecord, passes_for, run_passes
from hloom.compiler.plan import Plan, make_plan
from hloom.compiler.plan_steps import (
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
from hloom.compiler.stages import Stages, collecting
from hloom.compiler.targets.cpu.target import CpuTarget, host_target
from hloom.config import config
from hloom.errors import AttributeValueError, SettingError
from hloom.host_calls import host_function
from hloom.ir.module import Module
from hloom.ir.records import field, record
from hloom.ir.types import Shape, TupleShape
from hloom.native_setup import driver, load_or_stand_in
from hloom.runtime.program import Branch, Call, Copy, Count, Executable, Host, Jump, Program, Ref, Step, Swap, Switch

_counter = itertools.count()
LOOP_WORK = 1e6  # nobody knows how long a loop runs: other Python threads need not wait for it


class Planned:
    """What there is to see of a `module` after all passes and its `plan`."""

    module: Module
    plan: Plan

    def as_text(self, dialect: str = "hlo") -> str:
        """The optimized module as HLO text, or as StableHLO (dialect="stablehlo")."""
        return program_text(self.module, dialect)

    def source(self) -> str:
        """The kernels as Python text, each with the values that it computes and reads."""
        return kernel_listing(self.plan)

    def cost_analysis(self) -> dict[str, float]:
        return cost_analysis(self.plan)

    def memory_analysis(self) -> dict[str, int]:
        return memory_analysis(self.plan)


class PlannedModule(Planned):
    """A module with an `executable`, which is called with NumPy arrays in the order of the parameters."""

    executable: Callable

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self.executable(arrays)

    @property
    def donated(self) -> dict[int, int]:
        """Output number -> number of the argument in whose memory it is computed."""
        return self.plan.donated

    @property
    def output_shapes(self) -> list[Shape]:
        return self.plan.output_shapes


@record
class CompiledModule(PlannedModule):
    """A module compiled for the CPU.

    module: after all passes. plan: launches and buffers. timings: seconds by stage. kernels_compiled: how many
    kernels were neither in the process nor in the disk cache. kernels_behind: how many others run in the place of
    kernels that are still being compiled (`hloom.behind`).
    """

    module: Module
    plan: Plan
    executable: Executable
    timings: dict[str, float] = field(default_factory=dict)
    kernels_compiled: int = 0
    kernels_behind: int = 0


def program_text(module: Module, dialect: str = "hlo", *, metadata: bool = False) -> str:
    """A module as text of a dialect, "hlo" or "stablehlo", in ops that other compilers have where they can say what it
    computes. Raises AttributeValueError, UnsupportedError."""
    from hloom.ir.portable import portable  # (no first call needs it, nor the texts)

    if dialect == "stablehlo":
        from hloom.ir.stablehlo import stablehlo_text

        return stablehlo_text(portable(module, dialect))
    if dialect != "hlo":
        raise AttributeValueError(
            f"the text of a program in the dialect {dialect!r}",
            "hloom writes 'hlo' and 'stablehlo'",
            "pass one of them",
        )
    from hloom.ir.text import print_module

    return print_module(portable(module), metadata=metadata)


def compile_module(
    module: Module,
    *,
    fusion: bool | None = None,
    donated: frozenset[int] = frozenset(),
    target: CpuTarget | None = None,
    device: int = 0,
    stand_ins: bool = True,
) -> CompiledModule:
    """Compiles a module for the CPU. fusion: None takes `hl.config.fusion`. donated: parameters that may be reused.
    target: this machine, described otherwise (`hloom.autotune`). device: number of the CPU device. stand_ins: whether
    kernels may run in the place of others that are still being compiled, if `hl.config.compile_behind` allows it."""
    with collecting() as stages:
        optimized, plan, times = optimized_plan(module, fusion=fusion, donated=donated, target=target)
        if config.cpu_memory:
            from hloom.memory_budget import check_budget

            check_budget(plan, f"cpu:{device}")
        made = time.perf_counter()
        behind: dict[KernelSource, list[int]] = {}
        program = program_of(plan, Layout(), behind if stand_ins and config.compile_behind else None)
        executable = Executable(program, driver(device))
    timings = stage_timings(stages, times, time.perf_counter() - made)
    compiled = stages.counts.get("kernels compiled", 0)
    _report(module, plan, timings, compiled, len(behind))
    for kernel, steps in behind.items():
        compile_behind(kernel, functools.partial(executable.exchange, steps))
    return CompiledModule(optimized, plan, executable, timings, compiled, len(behind))


def optimized_plan(
    module: Module,
    *,
    fusion: bool | None = None,
    donated: frozenset[int] = frozenset(),
    target: CpuTarget | None = None,
) -> tuple[Module, Plan, dict[str, float]]:
    """The module after all passes, its plan, and the seconds of both. Dumps where `hl.config.dump_to` says so."""
    target = target or host_target()
    fused = config.fusion if fusion is None else fusion
    names = passes_for(target, PIPELINE if fused else UNFUSED)
    dump = _Dump(module) if config.dump_to else None
    started = time.perf_counter()
    if dump:
        dump.module("traced", module)
    records: list[PassRecord] = []

    def on_pass(record: PassRecord) -> None:
        records.append(record)
        if dump:
            dump.module(record.name, record.after)

    optimized = run_passes(module, names, verify=config.verify, on_pass=on_pass)
    passed = time.perf_counter()
    plan = make_plan(optimized, target, donated, whole=fused)
    planned = time.perf_counter()
    if dump:
        dump.kernels(plan)
    return optimized, plan, {"passes": passed - started, "plan": planned - passed}


def stage_timings(stages: Stages, times: dict[str, float], kernels: float) -> dict[str, float]:
    """Seconds by stage. 'kernels' is what the caller waited for the machine code, front end and LLVM among it; these
    two work in several threads at once, so their times may add up to more."""
    within = {name: stages.seconds.get(name, 0.0) for name in ("front end", "llvm", "load")}
    source = stages.seconds.get("source", 0.0)
    return times | {"plan": times["plan"] - source, "source": source, "kernels": kernels, **within}


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


def program_of(plan: Plan, layout: Layout, behind: dict[KernelSource, list[int]] | None = None) -> Program:
    """Compiles (or finds) the kernels and makes the program that calls them.

    behind: where it is given, kernels that have yet to be compiled but for which others can stand in are put there,
    with the numbers of the steps that call what stands in.
    """
    ref = layout.ref
    sources: dict[KernelSource, None] = {}
    stand_ins: dict[KernelSource, Callable[[], list[KernelSource]]] = {}
    for item in plan.kernels():
        sources[item.launch.source] = None
        if item.launch.stand_ins is not None and behind is not None:
            stand_ins[item.launch.source] = item.launch.stand_ins
        for argument in item.launch.arguments:
            if isinstance(argument, KernelSource):
                sources[argument] = None
    found, missing = load_or_stand_in(list(sources), stand_ins)
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
                behind.setdefault(launch.source, []).append(len(steps))
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


def kernel_listing(plan: Plan) -> str:
    """Every distinct kernel once, with a comment for each launch."""
    launches: dict[KernelSource, list[KernelStep]] = {}
    for item in plan.kernels():
        launches.setdefault(item.launch.source, []).append(item)
        for argument in item.launch.arguments:
            if isinstance(argument, KernelSource):
                launches.setdefault(argument, [])
    parts = []
    for source, items in launches.items():
        lines = []
        for item in items:
            instruction = item.instruction
            name = instruction.hint or instruction.opcode
            operands = ", ".join(f"{o.hint or o.opcode} {o.shape!r}" for o in dict.fromkeys(instruction.operands))
            lines.append(f"# {name} {instruction.shape!r} from {operands or 'nothing'}")
            lines.append(f"#   {item.launch.grid()}")
            if shown := shown_arguments(source.text, item.launch.arguments):
                lines.append(f"#   {shown}")
            if instruction.source:
                lines.append(f"#   {instruction.source}")
        if not items:
            lines.append("# called by other kernels")
        for name, part in source.parts:
            parts.append(f"# {name}\n" + part.text)
        parts.append("\n".join(lines) + "\n" + source.text)
    return "\n\n".join(parts)


class _Dump:
    """Writes modules and kernels into `hl.config.dump_to`, numbered in the order of their making."""

    def __init__(self, module: Module):
        self.folder = Path(config.dump_to)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(error) from None
        self.prefix = f"module_{next(_counter):04d}_{module.name}"
        self.number = 0

    def module(self, name: str, module: Module) -> None:
        self._write(f"{self.prefix}.{self.number:02d}_{name}.hlo", program_text(module, metadata=True))
        self.number += 1

    def kernels(self, plan: Plan) -> None:
        self._write(f"{self.prefix}.kernels.py", kernel_listing(plan))

    def _write(self, name: str, text: str) -> None:
        # A half-written dump would be read as a wrong one.
        target = self.folder / name
        partial = target.with_name(target.name + ".partial")
        try:
            partial.write_text(text)
            partial.replace(target)
        except OSError as error:
            raise _unwritable(error) from None


def _unwritable(error: OSError) -> SettingError:
    return SettingError(
        f"graphs and kernels were to be written into {config.dump_to!r} (HLOOM_DUMP_TO)",
        str(error),
        "name a folder that can be made and written",
    )


def _report(module: Module, plan: Plan, timings: dict[str, float], compiled: int, behind: int) -> None:
    level = config.debug
    if level >= 1:
        times = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in timings.items())
        print(
            f"hloom: compiled {module.name}: {len(plan.kernels())} kernels, {compiled} of them new"
            + (f", {behind} to be compiled behind" if behind else "")
            + (f"; {times}" if level >= 2 else ""),
            file=sys.stderr,
        )
    if level >= 3:
        from hloom.compiler.passes.fuse import explain

        before = run_passes(module, UNFUSED)
        for line in explain(before.entry):
            print(f"hloom: {line}", file=sys.stderr)
    if level >= 4:
        print(kernel_listing(plan), file=sys.stderr)
