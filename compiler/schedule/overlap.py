"""Overlap of collectives with computation: they begin early and end late.

A device signals its group as soon as its operands are ready (`arrivals`). It waits for the others, and reads their
memory, only when there is no other work before the next collective: dependent work is moved after independent work. In
between there is only device-local work. The collective's output is live from the arrival, as other devices may write it
from then on.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.compiler.fusibility import FREE
from hloom.compiler.passes.walk import change_computations
from hloom.ir.module import Computation, Instruction, Module


def with_late_ends(module: Module, exchanges: Callable[[Instruction], bool], alone: Callable) -> Module:
    """The module with collectives and their dependents moved after the independent work up to the next collective.

    exchanges(instruction): whether it is a collective that may move. alone(instruction): whether it is device-local
    work, with which a collective may overlap.
    """
    return change_computations(module, lambda c: _with_late_ends(c, exchanges, alone))


def _with_late_ends(computation: Computation, exchanges, alone) -> Computation:
    if not any(map(exchanges, computation.instructions)):
        return computation
    order: list[Instruction] = []
    held: dict[Instruction, None] = {}  # a collective and its dependents, which are moved after other work
    for instruction in computation.instructions:
        movable = alone(instruction) or instruction.opcode in FREE
        if held and movable and any(o in held for o in instruction.operands):
            held[instruction] = None
            continue
        if held and not movable:
            order += held
            held = {}
        if exchanges(instruction):
            held[instruction] = None
        else:
            order.append(instruction)
    order += held
    if computation.instructions[-1] is computation.root and order[-1] is not computation.root:
        order.remove(computation.root)
        order.append(computation.root)
    if order == computation.instructions:
        return computation
    return Computation(computation.name, computation.parameters, order, computation.root)


def arrivals(computation: Computation, exchanges, alone) -> dict[Instruction, Instruction]:
    """For each collective that may begin early, the instruction after which its operands are ready and only
    device-local work follows."""
    found: dict[Instruction, Instruction] = {}
    instructions = computation.instructions
    for number, instruction in enumerate(instructions):
        if not exchanges(instruction):
            continue
        needed, stack = set(), list(instruction.operands)
        while stack:
            operand = stack.pop()
            if operand.opcode in FREE:
                stack += operand.operands
            needed.add(operand)
        at, k = None, number - 1
        while k >= 0 and instructions[k] not in needed and (alone(instructions[k]) or instructions[k].opcode in FREE):
            at = k if alone(instructions[k]) else at
            k -= 1
        # `at`: the first local instruction in between; the arrival is before it.
        before = (
            next((i for i in reversed(instructions[:at]) if i.opcode not in FREE), None) if at is not None else None
        )
        if before is not None and (alone(before) or exchanges(before)):
            found[instruction] = before
    return found


__all__ = ["arrivals", "with_late_ends"]
