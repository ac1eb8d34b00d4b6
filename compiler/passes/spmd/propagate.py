"""Sharding propagation: derives a sharding for every value of a program from the user's.

Works on `DeviceMesh.atomic()`. User annotations (parameters, results, constraints, the boundaries of manual
computations) are fixed, except for open dimensions. The factors of each op propagate axes between its operands and
results, forwards and backwards, to a fixed point. Layouts only grow, so the first one found wins. Conflicts are
resolved by the order:

1. Element-wise ops and data movement, and values that cross the boundary of a loop, branch, call or manual
   computation; of broadcasts, from the result to the operand.
2. Products of arrays: dot, convolution, gather, scatter.
3. Reductions; and for all ops the factors along which they need remote elements: windows, shifts, sorts.
4. Broadcasts, from the operand to the result: a small array does not determine the layout of a large one.

Within a group, ops are processed in program order. Within an op, the array with more bytes wins, then the first one.
Values computed only from constants, counters and scalars follow their readers and do not propagate. Unreached values
are replicated.

At a boundary (the state of a loop, an argument of a branch or of a manual computation, an annotated result in the root
tuple of the entry), both sides have separate shardings.

Source: Shardy's propagation, openxla.org/shardy/propagation; GSPMD, arxiv.org/abs/2105.04663, section 3.5.
"""

from __future__ import annotations

from typing import Any

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.spmd.meshes import CommonMesh, programs
from hloom.compiler.passes.spmd.regions import Region, Regions, Tree
from hloom.compiler.passes.spmd.steps import Draft, Propagation
from hloom.ir.errors import ReplicationWarning
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.op_table import factor_rule
from hloom.ir.ops.programs.structure import CUSTOM_CALLS
from hloom.ir.spmd.sharding import Sharding


@module_pass("propagate-shardings")
def propagate(module: Module) -> Module:
    """Assigns every value a layout over the program's mesh, derived from the user's.

    For a tuple it is a tuple of layouts. Other changes: a computation that is called with different layouts is
    duplicated, and a manual computation's `in_shardings`, `out_shardings` and `manual_axes` are the propagated ones,
    over the same mesh. Scalar computations (combiners, comparators) are unchanged.
    """
    if module.partitions == 1:
        return module
    meshes = CommonMesh(module)
    mesh = meshes.mesh
    assert mesh is not None
    propagation = Propagation(mesh)
    regions = Regions(propagation, meshes, sum(len(c.instructions) for c in programs(module)))
    entry = regions.entry(module.entry)
    propagation.run()
    _warn(regions)
    return module.with_entry(_Emission(meshes).computation(entry))


class _Emission:
    """The module with the propagated layouts."""

    def __init__(self, meshes: CommonMesh):
        assert meshes.mesh is not None
        self.mesh = meshes.mesh
        self.meshes = meshes
        self.shardings: dict[tuple, Sharding] = {}
        self.tuples: dict[tuple, tuple] = {}
        self.made: dict[tuple, Computation] = {}
        self.done: dict[int, Computation] = {}  # by id of the region

    def sharding(self, tree: Tree) -> Any:
        """The same object for equal shardings."""
        if isinstance(tree, list):
            found = tuple([self.sharding(element) for element in tree])
            return self.tuples.setdefault(tuple(map(id, found)), found)
        key = (*tree.dims, tree.unreduced)
        known = self.shardings.get(key)
        if known is None:
            known = self.shardings[key] = Sharding(self.mesh, tuple(tree.dims), tree.unreduced)
        return known

    def computation(self, region: Region) -> Computation:
        known = self.done.get(id(region))
        if known is None:
            known = self.done[id(region)] = self._computation(region)
        return known

    def _computation(self, region: Region) -> Computation:
        old = region.computation
        called = {
            instruction: {key: self.computation(callee) for key, callee in callees.items()}
            for instruction, callees in region.called.items()
        }
        shardings = [self.sharding(region.trees[i]) for i in old.instructions]
        key = (
            id(old), *map(id, shardings), *(id(c) for callees in called.values() for c in callees.values()),
        )  # fmt: skip
        if key in self.made:
            return self.made[key]
        mapped: dict[Instruction, Instruction] = {}
        for instruction, sharding in zip(old.instructions, shardings, strict=True):
            attributes = instruction.attributes
            if instruction in called:
                attributes = instruction.replaced({}, called[instruction]).attributes
            if instruction in region.boundaries:
                attributes = {**attributes, **self._boundaries(instruction, *region.boundaries[instruction])}
            new = mapped[instruction] = Instruction(
                instruction.opcode,
                tuple([mapped[o] for o in instruction.operands]),
                instruction.shape,
                attributes,
                instruction.hint,
                instruction.source,
                instruction.made_by,
            )
            new.sharding = sharding
        parameters = [mapped[p] for p in old.parameters]
        made = Computation(old.name, parameters, list(mapped.values()), mapped[old.root])
        self.made[key] = made
        return made

    def _boundaries(self, instruction: Instruction, arguments: list[Tree], results: list[Tree]) -> dict[str, Any]:
        into, out = (tuple(self.sharding(tree) for tree in trees) for trees in (arguments, results))
        names = self.meshes.axes_named(
            instruction["manual_axes"], (*instruction["in_shardings"], *instruction["out_shardings"])
        )
        return {"in_shardings": into, "out_shardings": out, "manual_axes": tuple(names)}


# --- warnings -----------------------------------------------------------------------------------------------------


def _warn(regions: Regions) -> None:
    """Warns about each op without a rule that reads a sharded value, or whose result is annotated as sharded."""
    for instruction, region in regions.unknown:
        operands = [region.trees[o] for o in instruction.operands]
        gathered = sum(layout.bytes for tree in operands for layout in _layouts(tree) if layout.sharded)
        if not gathered:
            continue
        reason = getattr(factor_rule(instruction), "reason", "")
        target = instruction.attributes.get("custom_call_target")
        if getattr(CUSTOM_CALLS.get(str(target)), "takes_whole_arrays", False):  # its inputs are specified
            continue
        ReplicationWarning.warn(
            f"{instruction.opcode}{f' of {target!s}' if target else ''}", reason, gathered,
            "give it replicated operands, or run it in shard_map, where each device sees its own part",
            instruction.source,
        )  # fmt: skip


def _layouts(tree: Tree) -> list[Draft]:
    return [layout for element in tree for layout in _layouts(element)] if isinstance(tree, list) else [tree]
