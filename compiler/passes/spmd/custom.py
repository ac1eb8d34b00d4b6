"""Functions that say themselves how devices share their work: the rules of calls with the attribute `partition`.

A module is propagated once to learn how the operands and results of such calls are laid out. The rule then returns the
computation that takes the place of the function, with a manual computation for what each device does, and the module is
propagated again with its boundaries.
"""

from __future__ import annotations

from typing import Protocol

from hloom.compiler.passes.spmd.propagate import propagate
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.spmd.sharding import Sharding
from hloom.ir.types import TupleShape


class PartitionRule(Protocol):
    """What the attribute `partition` of a call is."""

    def partitioned(self, operands: list[Sharding], results: list[Sharding], devices: tuple[str, ...]) -> Computation:
        """The computation of whole arrays to call in place of the function, for these layouts over these devices."""
        ...


def apply_partition_rules(module: Module, by_axes, devices: tuple[str, ...]) -> Module:
    """The module whose calls with rules call what these return.

    by_axes(sharding): the sharding over the user's axes. devices: their names, by partition.
    """
    if not any("partition" in i.attributes for c in module.computations() for i in c.instructions):
        return module
    found: dict[Instruction, Instruction] = {}
    _find(module.entry, propagate(module).entry, found)
    known: dict[int, Computation] = {}

    def visit(computation: Computation) -> Computation:
        if id(computation) not in known:
            known[id(computation)] = _changed(computation, found, by_axes, devices, visit)
        return known[id(computation)]

    return module.with_entry(visit(module.entry))


def _find(before: Computation, after: Computation, found: dict[Instruction, Instruction]) -> None:
    """The first propagated instruction of each call with a rule."""
    for old, new in zip(before.instructions, after.instructions, strict=True):
        if "partition" in old.attributes:
            found.setdefault(old, new)
        for one, other in zip(old.called(), new.called(), strict=True):
            _find(one, other, found)


def _changed(computation: Computation, found: dict, by_axes, devices: tuple[str, ...], visit) -> Computation:
    mapped: dict[Instruction, Instruction] = {}
    instructions = []
    for instruction in computation.instructions:
        new = instruction.replaced(mapped, {id(c): visit(c) for c in instruction.called()})
        laid_out = found.get(instruction)
        if laid_out is not None:
            results = laid_out.sharding if isinstance(laid_out.shape, TupleShape) else (laid_out.sharding,)
            callee = instruction["partition"].partitioned(
                [by_axes(o.sharding) for o in laid_out.operands], [by_axes(s) for s in results], devices
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


__all__ = ["PartitionRule", "apply_partition_rules"]
