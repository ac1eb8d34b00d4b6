"""inline-calls: the instructions of called computations stand in their callers."""

from __future__ import annotations

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.walk import change_computations
from hloom.ir.module import Computation, Instruction, Module


@module_pass("inline-calls")
def inline_calls(module: Module) -> Module:
    """Replaces every call by the instructions of the computation it calls.

    Callees come first, so one copy a call is enough; instructions keep the lines of the user's that they came from.
    """
    return change_computations(module, _inline)


def _inline(computation: Computation) -> Computation:
    if not any(i.opcode == "call" for i in computation.instructions):
        return computation
    mapped: dict[Instruction, Instruction] = {}
    instructions: list[Instruction] = []

    def add(instruction: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        copy = instruction if operands == instruction.operands else instruction.with_operands(operands)
        instructions.append(copy)
        return copy

    for instruction in computation.instructions:
        operands = tuple(mapped[o] for o in instruction.operands)
        if instruction.opcode != "call":
            mapped[instruction] = add(instruction, operands)
            continue
        callee: Computation = instruction["to_apply"]
        inner = dict(zip(callee.parameters, operands, strict=True))
        for inlined in callee.instructions:
            if inlined not in inner:
                # Two calls of one computation need two copies, also of instructions without operands: an instruction
                # stands in a computation once.
                copy = inlined.with_operands(tuple(inner[o] for o in inlined.operands))
                instructions.append(copy)
                inner[inlined] = copy
        result = inner[callee.root]
        if instruction.hint and not result.hint and callee.root not in callee.parameters:
            result.hint = instruction.hint
        mapped[instruction] = result
    parameters = [mapped[p] for p in computation.parameters]
    return Computation(computation.name, parameters, instructions, mapped[computation.root])
