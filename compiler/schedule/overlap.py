"""Collectives that begin early and end late, so that devices compute while they wait for each other.

A device tells its group that the operands are there as soon as they are (`arrivals`). It waits for the others, and
reads their memory, only where nothing else is left to do before the next collective: what needs the result comes behind
what does not. In between is only work that runs on the device alone. What the collective writes lives from the arrival
on, as other devices may write it then.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.compiler.fusibility import FREE
from hloom.compiler.passes.walk import change_computations
from hloom.ir.module import Computation, Instruction, Module


def with_late_ends(module: Module, exchanges: Callable[[Instruction], bool], alone: Callable) -> Module:
    """The module whose collectives, and what needs their results, stand behind the work up to the next collective.

    exchanges(instruction): whether it is a collective that may move. alone(instruction): whether it is work of a device
    alone, with which a collective may overlap.
    """
    return change_computations(module, lambda c: _with_late_ends(c, exchanges, alone))


def _with_late_ends(computation: Computation, exchanges, alone) -> Computation:
    if not any(map(exchanges, computation.instructions)):
        return computation
    order: list[Instruction] = []
    held: dict[Instruction, None] = {}  # a collective, and what needs its result, which comes behind other work
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
    """For each collective that may begin before its place the instruction after which its operands are there, and from
    which on there is only work of the device alone."""
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
        # `at`: the first instruction of its own work between; the arrival is after the one before it.
        before = (
            next((i for i in reversed(instructions[:at]) if i.opcode not in FREE), None) if at is not None else None
        )
        if before is not None and (alone(before) or exchanges(before)):
            found[instruction] = before
    return found


__all__ = ["arrivals", "with_late_ends"]
