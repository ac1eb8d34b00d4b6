"""Fewer collectives: small sums that nobody waits for yet become one, and what a loop never changes is resharded once.

What else there is to do the partition does as it goes: an array is brought to a layout once (`scope.Held`), sums that
are read in parts are reduce-scattered (`resharding.paths`), and what nobody reads is swept out.
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

SMALL = 1 << 20  # bytes from which a sum is worth a message of its own
TOGETHER = 1 << 22  # bytes of one message: the first sums are on their way while later ones are computed


@module_pass("combine-collectives", "all-reduce")
def combine_collectives(module: Module) -> Module:
    """Small all-reduces among the same devices, none of which needs another one's result, as one."""
    return change_computations(module, combined)


def combined(computation: Computation) -> Computation:
    """The computation with small all-reduces among the same devices, none of which needs another one's result, as one;
    itself where there are not two such, or where something has effects, whose order stays.

    It stands where the last of them stood, and what reads the others waits for it; nothing else changes its place.
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
    """What all-reduces have in common that can be one; None for other instructions, and large ones."""
    if instruction.opcode != "all-reduce" or not isinstance(instruction.shape, Shape):
        return None
    opcode = combiner_opcode(instruction["to_apply"])
    if opcode is None or typical(instruction.shape.bytes) > SMALL or "why" not in instruction.attributes:
        return None
    return opcode, instruction.dtype, instruction["replica_groups"]


def _groups(computation: Computation, small: dict[Instruction, tuple]) -> list[list[Instruction]]:
    """Those that become one: as many results of others lie before each of them, so that none needs another."""
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
    """Instructions, and groups as lists, in an order in which each comes behind what it needs."""
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
    """One all-reduce for a group, and its elements, which stand for the group's members then."""
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
    """The layouts in which a computation reads its parameters: the given ones, but for an array that it first brings to
    another one that can be reached outside as well. tree: what is held of a parameter."""
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
    # From the parameter to the layout that is read there are only collectives, and ops that move elements.
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
