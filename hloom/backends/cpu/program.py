"""A schedule as a program of the runtime: kernels as addresses, steps as the driver's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hloom.backends.cpu.driver import Kernel, load_or_fall_back
from hloom.backends.cpu.host_callbacks import host_function
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import (
    ArriveStep,
    AwaitStep,
    BranchStep,
    CopyStep,
    FreeStep,
    HostStep,
    JumpStep,
    KernelStep,
    MessagesStep,
    Place,
    ReceiveStep,
    RenewStep,
    SendStep,
    SwapStep,
    SwitchStep,
)
from hloom.config import config
from hloom.ir.ops.programs.structure import native_function
from hloom.ir.process.floats import default_floats
from hloom.ir.types import Shape, result_shapes
from hloom.runtime.steps import (
    Arrive,
    Await,
    Branch,
    Call,
    Copy,
    Exchange,
    Host,
    Jump,
    Native,
    Program,
    Ref,
    Step,
    Swap,
    Switch,
)

LOOP_WORK = 1e6  # a loop's trip count is unknown: other Python threads should not wait for it


class Layout:
    """Where a plan's values are in a program that runs alone.

    whole: shapes of the inputs and outputs of the whole program, where this is a part of one.
    """

    whole: tuple[Sequence[Shape], Sequence[Shape]] | None = None
    channels = 0

    def ref(self, place: Place) -> Ref:
        return Ref(place.kind, place.number, place.swap, place.peer, place.offsets)

    def count(self, item) -> Step:
        """The counting step of a send or receive."""
        raise ValueError(f"a program that runs alone has no channels: {item}")


@default_floats()
def program_of(plan: Plan, layout: Layout, pending: dict[KernelSource, list[int]] | None = None) -> Program:
    """Compiles (or finds) the kernels and returns the program that calls them.

    pending: where it is given, kernels that are not compiled yet but have a fallback are added to it, with the numbers
    of the steps that call the fallback.
    """
    checked = config.check_bounds != "0"
    if checked:
        from hloom.backends.cpu.bounds import with_checks  # imports LLVM, which a warm process does without

        plan, pending = with_checks(plan, config.check_bounds), None
    kernels, missing = _kernels(plan, pending is not None)
    addresses = {source: kernel.address for source, kernel in kernels.items()}
    if pending is not None:
        for number, item in enumerate(plan.steps):
            if isinstance(item, KernelStep) and item.launch.source in missing:
                pending.setdefault(item.launch.source, []).append(number)

    def step(item) -> Step:
        return _call(item, layout, addresses) if isinstance(item, KernelStep) else _STEPS[type(item)](item, layout)

    steps, prepared = [step(item) for item in plan.steps], [step(item) for item in plan.prepared]
    inputs, outputs = layout.whole or (plan.input_shapes, plan.output_shapes)
    donated = {} if layout.whole else dict(plan.donated)  # the whole program has the outputs of its parts
    return Program(
        steps, plan.constants, plan.arena_bytes, inputs, outputs, donated, _work(plan), layout.channels,
        code=list(kernels.values()), barriers=plan.barriers, shared_bytes=plan.shared_bytes, guards=plan.guards,
        prepared=prepared, kept_bytes=plan.kept_bytes, steady=_read_by(prepared), nodes=plan.nodes,
        checked=checked,
    )  # fmt: skip


def _kernels(plan: Plan, may_fall_back: bool) -> tuple[dict[KernelSource, Kernel], frozenset[KernelSource]]:
    """A plan's kernels, and which of them are fallbacks."""
    sources: dict[KernelSource, None] = {}
    fallbacks: dict[KernelSource, Callable[[], list[KernelSource]]] = {}
    for item in plan.kernels():
        launch = item.launch
        sources |= dict.fromkeys([launch.source, *(a for a in launch.arguments if isinstance(a, KernelSource))])
        if launch.fallbacks is not None and may_fall_back:
            fallbacks[launch.source] = launch.fallbacks
    found, missing = load_or_fall_back(list(sources), fallbacks)
    return dict(zip(sources, found, strict=True)), missing


def _call(item: KernelStep, layout: Layout, addresses: dict[KernelSource, int]) -> Call:
    launch, words = item.launch, list[int | Ref]()
    for argument in launch.arguments:
        if isinstance(argument, str):
            words.append(layout.ref(item.pointers[argument]))
        else:
            words.append(addresses[argument] if isinstance(argument, KernelSource) else argument)
    chunks = launch.items, launch.grain, launch.side_by_side
    return Call(addresses[launch.source], tuple(words), *chunks, launch.nanoseconds, item.devices)


def _host(item: HostStep, layout: Layout) -> Host:
    instruction = item.instruction
    shapes = result_shapes(instruction.shape)
    distinct = list(dict.fromkeys(instruction.operands))
    order = [distinct.index(o) for o in instruction.operands]
    inputs = [(layout.ref(p), o.shape) for p, o in zip(item.inputs, distinct, strict=True)]
    device = instruction.attributes.get("device")
    target = native_function(instruction)
    native = None
    if target is not None:  # its words are one for each operand
        inputs, order = [inputs[k] for k in order], list(range(len(order)))
        items = math.prod(target.sizes(instruction.shape))
        native = Native(target.address, target.numbers(instruction), items, items if target.whole else 1)
    return Host(
        host_function(instruction, order),
        tuple(inputs),
        tuple((layout.ref(p), s) for p, s in zip(item.outputs, shapes, strict=True)),
        keeps=instruction.opcode == "custom-call",
        devices=None if device is None else (device,),
        native=native,
    )


def _is_native(item) -> bool:
    """Whether a step calls a function of the user's without Python, which takes the GIL where it prints or fails."""
    return isinstance(item, HostStep) and native_function(item.instruction) is not None


def _read_by(steps: list[Step]) -> tuple[int, ...]:
    """The numbers of the inputs that these calls and copies read."""
    refs = [r for s in steps for r in (s.words if isinstance(s, Call) else [s.source] if isinstance(s, Copy) else ())]
    return tuple(sorted({r.number for r in refs if isinstance(r, Ref) and r.kind == "input"}))


def _count(item, layout: Layout) -> Step:
    return layout.count(item)


# The runtime's step for each step of a schedule but the launches of kernels.
_STEPS: dict[type, Callable[[Any, Layout], Step]] = {
    CopyStep: lambda item, layout: Copy(layout.ref(item.target), layout.ref(item.source), item.bytes, item.devices),
    JumpStep: lambda item, layout: Jump(item.target),
    BranchStep: lambda item, layout: Branch(layout.ref(item.pred), item.target),
    SwitchStep: lambda item, layout: Switch(layout.ref(item.index), tuple(item.targets)),
    SwapStep: lambda item, layout: Swap(layout.ref(item.first), layout.ref(item.second)),
    HostStep: _host,
    ArriveStep: lambda item, layout: Arrive(item.number, item.groups),
    AwaitStep: lambda item, layout: Await(item.number, item.groups),
    MessagesStep: lambda item, layout: Exchange(
        item.number, tuple((m.receives, layout.ref(m.place), m.bytes, m.peer) for m in item.messages)
    ),
    SendStep: _count,
    ReceiveStep: _count,
    RenewStep: _count,
    FreeStep: _count,
}


def _work(plan: Plan) -> float:
    """About how much a call does, by which the runtime decides whether other Python threads may run meanwhile; they may
    where it depends on sizes."""
    if plan.nodes is not None:
        return LOOP_WORK
    launches = [item.launch for item in plan.steps if isinstance(item, KernelStep)]
    work = sum(float(one.items) * max(1.0, 65536.0 / one.grain) for one in launches if one.items > one.grain)
    long = any(isinstance(item, JumpStep) or _is_native(item) for item in plan.steps)
    if long or any(one.source.parts for one in launches):
        work += LOOP_WORK
    return work + sum(shape.bytes for shape in (*plan.input_shapes, *plan.output_shapes))
