"""Reorders a computation so that values are read before they are overwritten, wherever possible.

An update of an array (scatter, dynamic-update-slice, a loop that changes it) is in place if nothing reads the old array
later. Therefore readers precede the update; in a loop body, readers of a state element precede the producer of its next
value.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from hloom.compiler.fusibility import ALIASES, FREE, updated_operand
from hloom.ir.module import Computation, Instruction
from hloom.ir.rewrite import has_effects
from hloom.ir.types import Shape, TupleShape

VISITED = 100_000  # maximum number of instructions visited by dependence searches in one computation
Needs = dict[Instruction, set[Instruction]]


def read_before_written(computation: Computation, is_body: bool = False) -> Computation:
    """The reordered computation; itself if nothing moves. is_body: of a loop."""
    writers = list(_updates(computation))
    if is_body and computation.root.opcode == "tuple":
        makers = enumerate(elements(computation))
        writers += [(maker, ("state", k)) for k, maker in makers if maker is not None]
    if not writers:
        return computation
    order = {i: k for k, i in enumerate(computation.instructions)}
    readers = _readers(computation, {value for _, value in writers})
    late = [(w, r) for w, value in writers for r in readers.get(value, ()) if order[r] > order[w]]
    if not late:
        return computation
    before: Needs = {i: set(i.operands) for i in computation.instructions}
    last_effect = None
    for instruction in computation.instructions:
        if has_effects(instruction):
            if last_effect is not None:
                before[instruction].add(last_effect)
            last_effect = instruction
    for writer, value in writers:
        before[writer].update(r for r in readers.get(value, ()) if order[r] < order[writer])
    left = VISITED
    moved = False
    for writer, reader in late:
        depends, visited = _depends(reader, writer, before, order, left)
        left -= visited
        if left <= 0:
            break
        if not depends:
            before[writer].add(reader)
            moved = True
    return _sorted(computation, before, order) if moved else computation


def elements(computation: Computation) -> list[Instruction | None]:
    """The producer of each element of a body's result, looking through elements of multi-output kernels; None if there
    is no work."""
    outputs = computation.root.operands if computation.root.opcode == "tuple" else (computation.root,)
    makers: list[Instruction | None] = []
    for output in outputs:
        while output.opcode in ALIASES or (output.opcode == "get-tuple-element"):
            output = output.operands[0]
        makers.append(None if output.opcode in FREE else output)
    return makers


def _updates(computation: Computation) -> Iterator[tuple[Instruction, object]]:
    """Pairs of an instruction and the value that it updates, in place if possible."""
    for instruction in computation.instructions:
        updated = updated_operand(instruction)
        if updated is not None:
            yield instruction, _value(updated)
        elif instruction.opcode == "while" and instruction.operands[0].opcode == "tuple":
            (parameter,), root = instruction["body"].parameters, instruction["body"].root
            for k, operand in enumerate(instruction.operands[0].operands):
                if root.opcode != "tuple" or _value(root.operands[k]) != (parameter, k):
                    yield instruction, _value(operand)
        elif instruction.opcode == "conditional":
            for given in instruction.operands[1:]:
                for operand in given.operands if given.opcode == "tuple" else (given,):
                    if isinstance(operand.shape, Shape) and operand.dims:
                        yield instruction, _value(operand)


def _value(instruction: Instruction) -> object:
    """A common key for an instruction and its aliases: an element of a parameter is that element."""
    while instruction.opcode in ALIASES:
        instruction = instruction.operands[0]
    if instruction.opcode == "get-tuple-element" and instruction.operands[0].opcode == "parameter":
        return instruction.operands[0], instruction["index"]
    return instruction


def _readers(computation: Computation, wanted: set[object]) -> dict[object, list[Instruction]]:
    """The readers of each of these values, through reshapes and tuples."""
    users = computation.users()
    found: dict[object, list[Instruction]] = {}
    elements_of = computation.parameters[0] if len(computation.parameters) == 1 else None
    for instruction in computation.instructions:
        if isinstance(instruction.shape, TupleShape) or instruction.opcode in ALIASES:
            continue
        value = _value(instruction)
        names = [value]
        if isinstance(value, tuple) and value[0] is elements_of:
            names.append(("state", value[1]))
        for name in names:
            if name in wanted:
                found.setdefault(name, []).extend(_work(instruction, users))
    return found


def _work(value: Instruction, users) -> list[Instruction]:
    found: dict[Instruction, None] = {}
    stack, seen = [value], set()
    while stack:
        for user in users[stack.pop()]:
            if user in seen:
                continue
            seen.add(user)
            if user.opcode in ALIASES or user.opcode in ("tuple", "optimization-barrier"):
                stack.append(user)
            elif user.opcode not in FREE:
                found[user] = None
    return list(found)


def _depends(instruction: Instruction, other: Instruction, before: Needs, order, left: int) -> tuple[bool, int]:
    """(whether `instruction` must follow `other`, the number of visited instructions); instructions before both are
    skipped, and a resulting cycle is found by `_sorted`."""
    first = order[other]
    stack, seen = [instruction], {instruction}
    while stack and len(seen) < left:
        current = stack.pop()
        if current is other:
            return True, len(seen)
        for earlier in before[current]:
            if earlier not in seen and order[earlier] >= first:
                seen.add(earlier)
                stack.append(earlier)
    return False, len(seen)


def _sorted(computation: Computation, before: Needs, order) -> Computation:
    """A topological order that otherwise preserves the original one; the computation itself if the constraints are
    cyclic."""
    waiting = {i: len(needs) for i, needs in before.items()}
    after: dict[Instruction, list[Instruction]] = {i: [] for i in before}
    for instruction, needs in before.items():
        for need in needs:
            after[need].append(instruction)
    ready = [order[i] for i, count in waiting.items() if not count]
    heapq.heapify(ready)
    instructions: list[Instruction] = []
    while ready:
        instruction = computation.instructions[heapq.heappop(ready)]
        instructions.append(instruction)
        for following in after[instruction]:
            waiting[following] -= 1
            if not waiting[following]:
                heapq.heappush(ready, order[following])
    if len(instructions) < len(computation.instructions):
        return computation
    return Computation(computation.name, computation.parameters, instructions, computation.root)
