"""A plan for CUDA as a program of the CUDA runtime: machine code in place of texts, loops and branches as structure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hloom.backends.cpu.host_callbacks import host_function
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import BranchStep, CopyStep, HostStep, JumpStep, KernelStep, Place, SwitchStep
from hloom.compiler.targets.cuda.codegen.compile import CudaCode
from hloom.compiler.targets.cuda.codegen.source import CudaSource
from hloom.compiler.targets.cuda.launches import CudaLaunch
from hloom.compiler.targets.cuda.libraries.linear_algebra import Routine, routine_of
from hloom.ir.module import Instruction
from hloom.ir.types import result_shapes
from hloom.runtime.cuda.libraries.cusolver import RoutineCall
from hloom.runtime.cuda.programs.program import Alternatives, Copy, CudaProgram, Host, Kernel, Launch, Ref, Step
from hloom.runtime.cuda.programs.structure import Jumps, structured


def cuda_program(plan: Plan, codes: Mapping[CudaSource, CudaCode], name: str) -> CudaProgram:
    """The program of a plan (of `make_plan` with a CudaTarget). codes: of each text of its launches."""
    kernels: dict[KernelSource, Kernel] = {source: Kernel(code.cubin, code.name) for source, code in codes.items()}
    groups = _groups(plan.steps)

    def leaf(step) -> list[Step]:
        group = groups.get(id(step))
        if group is None:
            return [_plain(step, kernels)]
        return [_alternatives(group, kernels, plan.constants)] if group else []

    steps = structured(plan.steps, _JUMPS, leaf)
    labels = [output.hint or f"result {k} of {name}" for k, output in enumerate(plan.module.entry.outputs())]
    return CudaProgram(
        name, steps, plan.constants, plan.arena_bytes, plan.input_shapes, plan.output_shapes, dict(plan.donated),
        labels if len(labels) == len(plan.output_shapes) else (),
    )  # fmt: skip


_JUMPS = Jumps(
    lambda step: step.target if isinstance(step, JumpStep) else None,
    lambda step: (_ref(step.pred), step.target) if isinstance(step, BranchStep) else None,
    lambda step: (_ref(step.index), step.targets) if isinstance(step, SwitchStep) else None,
)


def _plain(step, kernels: Mapping[KernelSource, Kernel]) -> Step:
    if isinstance(step, KernelStep):
        launch = _launch(step)
        words = tuple(_word(step, argument) for argument in launch.arguments)
        grid, block = (launch.blocks, 1, 1), (launch.threads, 1, 1)
        return Launch(kernels[launch.source], grid, block, words, launch.shared_bytes, _where(step.instruction))
    if isinstance(step, CopyStep):
        return Copy(_ref(step.target), _ref(step.source), step.bytes, _where(step.instruction))
    if isinstance(step, HostStep):
        routine = routine_of(step.instruction)
        return _host(step) if routine is None else _routine(step, routine)
    raise TypeError(f"{type(step).__name__} is not a step of a program for a GPU")


def _launch(step: KernelStep) -> CudaLaunch:
    assert isinstance(step.launch, CudaLaunch)  # of a plan for a CudaTarget
    return step.launch


def _word(step: KernelStep, argument: str | int | KernelSource) -> int | Ref:
    assert not isinstance(argument, KernelSource)  # kernels for GPUs call no others
    return _ref(step.pointers[argument]) if isinstance(argument, str) else int(argument)


def _routine(step: HostStep, routine: Routine) -> Alternatives:
    """A routine of linear algebra; its own way is that on the host."""
    host = _host(step)
    order = {id(o): place for o, place in zip(dict.fromkeys(step.instruction.operands), host.inputs, strict=True)}
    operands = [order[id(o)] for o in step.instruction.operands]
    shapes = tuple(tuple(shape for _, shape in part) for part in (operands, host.outputs))
    places = tuple(ref for ref, _ in (*operands, *host.outputs))
    return Alternatives(RoutineCall(routine.name, routine.options, *shapes), places, (host,), (), host.where)


def _groups(steps: Sequence) -> dict[int, list[KernelStep]]:
    """By the id of a step: the launches of one instruction that share a choice, and [] for all but the first."""
    groups: dict[int, list[KernelStep]] = {}
    group: list[KernelStep] = []
    for step in steps:
        choice = _launch(step).choice if isinstance(step, KernelStep) else None
        if group and choice is _launch(group[0]).choice and step.instruction is group[0].instruction:
            group.append(step)
            groups[id(step)] = []
        else:
            group = [step] if choice is not None else []
            if group:
                groups[id(step)] = group
    return groups


def _alternatives(group: Sequence[KernelStep], kernels, constants: Sequence[np.ndarray]) -> Alternatives:
    """The step of launches that share a choice. constants: the plan's."""
    choice = _launch(group[0]).choice
    assert choice is not None
    places = {name: _ref(place) for step in group for name, place in step.pointers.items()}
    scratch: dict[str, int] = {}
    for step in group:
        for name, size in step.launch.temporaries.items():
            scratch[name] = max(size, scratch.get(name, 0))
    tables = dict.fromkeys(_ref(step.pointers[name]) for step in group for name in step.launch.tables)
    own, other = (tuple(_plain(s, kernels) for s in group if _launch(s).way == way) for way in (0, 1))
    return Alternatives(
        choice, tuple(places[name] for name in choice.pointers()), own,
        tuple((places[name], size) for name, size in scratch.items()), _where(group[0].instruction),
        tuple((ref, constants[ref.number]) for ref in tables), other,
    )  # fmt: skip


def _ref(place: Place) -> Ref:
    return Ref(place.kind, place.number)


def _where(instruction: Instruction) -> str:
    return str(instruction.source) if instruction.source else ""


def _host(step: HostStep) -> Host:
    instruction = step.instruction
    shapes = result_shapes(instruction.shape)
    distinct = list(dict.fromkeys(instruction.operands))
    function = host_function(instruction, [distinct.index(o) for o in instruction.operands])
    inputs = tuple((_ref(p), o.shape) for p, o in zip(step.inputs, distinct, strict=True))
    outputs = tuple((_ref(p), s) for p, s in zip(step.outputs, shapes, strict=True))
    return Host(function, inputs, outputs, instruction.opcode, _where(instruction))
