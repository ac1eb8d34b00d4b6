"""Combines collectives: small independent sums are merged, and loop invariants are resharded once.

Partitioning does the rest: an array is resharded to a layout once (`scope.Held`), sums that are read in parts are
reduce-scattered (`resharding.paths`), and unused values are removed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.spmd.resharding.layouts import Layout
from hloom.compiler.passes.spmd.scope import Held, Tree
from hloom.compiler.passes.walk import change_computations
from hloom.ir.build import combiner_opcode
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops.programs.collective import COLLECTIVES
from hloom.ir.rewrite import has_effects
from hloom.ir.sizes.guards import typical
from hloom.ir.types import Shape, TupleShape

SMALL = 1 << 20  # bytes from which a sum is sent separately
TOGETHER = 1 << 22  # maximum bytes of a message, so that the first sums are sent while later ones are computed


@module_pass("combine-collectives", "all-reduce")
def combine_collectives(module: Module) -> Module:
    """Merges small independent all-reduces among the same devices."""
    return change_computations(module, combined)


def combined(computation: Computation) -> Computation:
    """The computation with small independent all-reduces among the same devices merged; itself if there are fewer than
    two, or if there are effects, whose order must be preserved.

    The merged one is at the position of the last of them, and readers of the others move after it; nothing else is
    reordered.
    """
    small = {i: key for i in computation.instructions if (key := _key(i)) is not None}
    groups = _groups(computation, small) if len(small) > 1 else []
    if not any(len(g) > 1 for g in groups) or any(has_effects(i) for i in computation.instructions):
        return computation
    mapped: dict[Instruction, Instruction] = {}
    instructions = []
    for found in _ordered(computation, groups):
        if isinstance(found, list):
            instructions += _joined(found, mapped)
            continue
        made = found
        if any(o in mapped for o in found.operands):
            made = mapped[found] = found.with_operands(tuple([mapped.get(o, o) for o in found.operands]))
        instructions.append(made)
    root = mapped.get(computation.root, computation.root)
    return Computation(computation.name, computation.parameters, instructions, root)


def _key(instruction: Instruction) -> tuple | None:
    """The common key of all-reduces that can be merged; None for other instructions, and large ones."""
    if instruction.opcode != "all-reduce" or not isinstance(instruction.shape, Shape):
        return None
    opcode = combiner_opcode(instruction["to_apply"])
    if opcode is None or typical(instruction.shape.bytes) > SMALL or "why" not in instruction.attributes:
        return None
    return opcode, instruction.dtype, instruction["replica_groups"]


def _groups(computation: Computation, small: dict[Instruction, tuple]) -> list[list[Instruction]]:
    """The groups to merge: all-reduces with the same number of dependences on others, which are thus independent."""
    level: dict[Instruction, int] = {}
    open_groups: dict[tuple, list[Instruction]] = {}
    found = []
    for instruction in computation.instructions:
        before = 0
        for operand in instruction.operands:
            before = max(before, level[operand] + (operand in small))
        level[instruction] = before
        if instruction in small:
            key = (before, small[instruction])
            group = open_groups.get(key)
            if group is None or typical(sum([i.shape.bytes for i in (*group, instruction)])) > TOGETHER:
                group = open_groups[key] = []
                found.append(group)
            group.append(instruction)
    return sorted(found, key=lambda g: level[g[0]])


def _ordered(computation: Computation, groups: list[list[Instruction]]) -> list:
    """Instructions, and groups as lists, in topological order."""
    group_of = {i: k for k, group in enumerate(groups) if len(group) > 1 for i in group}
    waits = {k: len(groups[k]) for k in group_of.values()}
    users: dict[Instruction, list[Instruction]] = {}
    missing: dict[Instruction, int] = {}
    for instruction in computation.instructions:
        missing[instruction] = len(instruction.operands)
        for operand in instruction.operands:
            users.setdefault(operand, []).append(instruction)
    place = {i: n for n, i in enumerate(computation.instructions)}
    ready = [place[i] for i in computation.instructions if missing[i] == 0]
    heapq.heapify(ready)
    found: list = []
    while ready:
        number = heapq.heappop(ready)
        instruction = computation.instructions[number]
        done = [instruction]
        k = group_of.get(instruction)
        if k is not None:
            waits[k] -= 1
            if waits[k]:
                continue
            done = groups[k]
            found.append(done)
        else:
            found.append(instruction)
        for each in done:
            for user in users.get(each, ()):
                missing[user] -= 1
                if missing[user] == 0:
                    heapq.heappush(ready, place[user])
    return found


def _joined(group: list[Instruction], mapped: dict[Instruction, Instruction]) -> list[Instruction]:
    """One all-reduce for a group, and its elements, which replace the group's members."""
    first = group[0]
    reasons = list(dict.fromkeys(i["why"] for i in group))
    why = ", ".join(reasons[:3]) + (f" and {len(reasons) - 3} more" if len(reasons) > 3 else "")
    operands = tuple([mapped.get(i.operands[0], i.operands[0]) for i in group])
    shape, attributes = TupleShape([i.shape for i in group]), {**first.attributes, "why": why}
    made = Instruction("all-reduce", operands, shape, attributes, "", first.source, first.made_by)
    found = [made]
    for k, instruction in enumerate(group):
        element = Instruction(
            "get-tuple-element", (made,), instruction.shape, {"index": k}, instruction.hint, instruction.source,
            instruction.made_by,
        )  # fmt: skip
        element.sharding = instruction.sharding
        mapped[instruction] = element
        found.append(element)
    return found


# --- loops --------------------------------------------------------------------------------------------------------


def read_layouts(computation: Computation, tree: Tree, layouts):
    """The layouts in which a computation reads its parameters: the given ones, except for an array that it first
    reshards to another layout that can be reached outside as well. tree: the held versions of a parameter."""
    users: dict[Instruction, list[Instruction]] = {}
    for instruction in computation.instructions:
        for operand in instruction.operands:
            users.setdefault(operand, []).append(instruction)
    return _read(tree, layouts, users)


def _read(tree: Tree, layouts, users: dict[Instruction, list[Instruction]]):
    if isinstance(tree, list):
        return [_read(t, y, users) for t, y in zip(tree, layouts, strict=True)]
    return _last(tree, layouts, users)


def _last(held: Held, layout: Layout, users: dict[Instruction, list[Instruction]]) -> Layout:
    value, path = held.versions[layout], list(_path(held, layout))
    own = [u for u in users.get(value, ()) if u.opcode != "tuple"]
    if not path or len(own) != 1:
        return layout
    # Only collectives and data movement lie between the parameter and the layout that is read.
    reached = held.versions[path[-1]]
    walked, at = False, own[0]
    while at is not reached:
        walked = walked or at.opcode in COLLECTIVES
        following = users.get(at, [])
        if len(following) != 1 or at.opcode not in COLLECTIVES | {"slice", "reshape", "transpose", "pad"}:
            return layout
        at = following[0]
    return path[-1] if walked or at.opcode in COLLECTIVES else layout


def _path(held: Held, layout: Layout) -> Iterator[Layout]:
    yield from (y for y in held.versions if y is not layout and not y.unreduced)
