"""Functions with custom partitioning rules: calls with the attribute `partition`.

A module with such calls is first propagated once to determine the layouts of their operands and results. The rule then
returns the computation that replaces the function, with a manual computation for the work of each device, from whose
boundaries the pipeline's propagation starts.

Calls that only inspect a layout have the attribute `observer`, which receives the final one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from hloom.compiler.passes.registry import Team, module_pass
from hloom.compiler.passes.spmd.meshes import over_axes
from hloom.compiler.passes.spmd.propagate import propagate
from hloom.ir.module import Computation, Instruction, Module, map_module
from hloom.ir.spmd.sharding import Sharding
from hloom.ir.types import TupleShape


class PartitionRule(Protocol):
    """The attribute `partition` of a call."""

    def partitioned(self, operands: list[Sharding], results: list[Sharding], devices: tuple[str, ...]) -> Computation:
        """The computation on whole arrays that replaces the function, for these layouts over these devices."""
        ...


class LayoutObserver(Protocol):
    """The attribute `observer` of a call, whose function returns its operand."""

    def laid_out(self, sharding: Sharding, devices: tuple[str, ...], is_manual: bool) -> None:
        """Called with the layout of the operand, when the program is compiled. is_manual: whether each device has a
        separate array there, as all axes of the mesh are manual."""
        ...

    def on_one_device(self, device: Any) -> None:
        """Called instead of `laid_out` for a program on one device."""
        ...


@module_pass("apply-partition-rules", "call")
def apply_partition_rules(module: Module, *, team: Team) -> Module:
    """Replaces calls with custom partitioning rules by the computations that these return for the layouts."""
    if not any("partition" in i.attributes for c in module.computations() for i in c.instructions):
        return module
    found: dict[Instruction, Instruction] = {}
    _find(module.entry, propagate(module).entry, found)
    known: dict[int, Computation] = {}

    def visit(computation: Computation) -> Computation:
        if id(computation) not in known:
            known[id(computation)] = _changed(computation, found, team, visit)
        return known[id(computation)]

    return module.with_entry(visit(module.entry))


def _find(before: Computation, after: Computation, found: dict[Instruction, Instruction]) -> None:
    """The first propagated instance of each call with a rule."""
    for old, new in zip(before.instructions, after.instructions, strict=True):
        if "partition" in old.attributes:
            found.setdefault(old, new)
        for one, other in zip(old.called(), new.called(), strict=True):
            _find(one, other, found)


def _changed(computation: Computation, found: dict, team: Team, visit) -> Computation:
    mapped: dict[Instruction, Instruction] = {}
    instructions = []
    for instruction in computation.instructions:
        new = instruction.replaced(mapped, {id(c): visit(c) for c in instruction.called()})
        laid_out = found.get(instruction)
        if laid_out is not None:
            results = laid_out.sharding if isinstance(laid_out.shape, TupleShape) else (laid_out.sharding,)
            callee = instruction["partition"].partitioned(
                [over_axes(o.sharding, team.mesh) for o in laid_out.operands],
                [over_axes(s, team.mesh) for s in results],
                team.devices,
            )
            attributes = {k: v for k, v in new.attributes.items() if k != "partition"} | {"to_apply": callee}
            new = Instruction(
                "call", new.operands, new.shape, attributes, new.hint, new.source, new.made_by
            )  # fmt: skip
            new.sharding = instruction.sharding
        if new is not instruction:
            mapped[instruction] = new
        instructions.append(new)
    if not mapped:
        return computation
    parameters = [mapped.get(p, p) for p in computation.parameters]
    return Computation(computation.name, parameters, instructions, mapped.get(computation.root, computation.root))


# --- observers ---


@module_pass("report-layouts", "call")
def report_layouts(module: Module, *, team: Team) -> Module:
    """Notifies observers, such as `inspect_array_sharding`, of the layouts of values."""
    calls = list(_observed(module.entry, False))
    if not calls:
        return module
    for call, is_manual in calls:
        call["observer"].laid_out(over_axes(call.operands[0].sharding, team.mesh), team.devices, is_manual)

    def without(instruction: Instruction) -> Instruction:
        if "observer" not in instruction.attributes:
            return instruction
        new = instruction.with_operands(instruction.operands)
        new.attributes = {k: v for k, v in instruction.attributes.items() if k != "observer"}
        return new

    return map_module(module, without)


def _observed(computation: Computation, is_manual: bool) -> Iterator[tuple[Instruction, bool]]:
    """(a call with an observer, whether all axes are manual there), in the order of the program."""
    for instruction in computation.instructions:
        if "observer" in instruction.attributes:
            yield instruction, is_manual
        axes = instruction.attributes.get("manual_axes")
        for callee in instruction.called():
            yield from _observed(callee, is_manual or (axes is not None and _are_all(axes, instruction)))


def _are_all(axes: tuple[str, ...], instruction: Instruction) -> bool:
    """Whether these are all axes of the mesh of a manual computation."""
    shardings = (*instruction["in_shardings"], *instruction["out_shardings"])
    return all(name in axes or mesh.axis_size(name) == 1 for mesh in (s.mesh for s in shardings) for name in mesh.names)


__all__ = ["LayoutObserver", "PartitionRule", "apply_partition_rules", "report_layouts"]
