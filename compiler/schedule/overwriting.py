"""Which operands a kernel may overwrite with its results."""

from __future__ import annotations

from hloom.compiler.fusibility import IN_PLACE
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops import OPS

__all__ = ["is_of_kernel", "kernel_updates", "may_overwrite", "only_updated", "read_in_place"]


def only_updated(computation: Computation, update: Instruction, parameter: Instruction) -> bool:
    """Whether a parameter is the updated array, without other readers."""
    if update.operands[0] is not parameter or update.operands.count(parameter) != 1:
        return False
    return [i for i in computation.instructions if parameter in i.operands] == [update]


def is_of_kernel(value: Instruction) -> bool:
    """Whether a value is a result of a kernel that a user wrote."""
    return value.opcode == "get-tuple-element" and value.operands[0].opcode == "kernel"


def kernel_updates(value: Instruction, parameter: Instruction) -> bool:
    """Whether such a result is an operand with changes."""
    kernel = value.operands[0]
    if kernel.operands.count(parameter) != 1:
        return False
    return kernel["kernel"].program.updates(value["index"], kernel.operands.index(parameter))


def may_overwrite(computation: Computation) -> bool:
    """Whether a kernel of a computation may write a result over an operand."""
    if computation.outputs()[0].opcode in IN_PLACE:
        return True
    if is_of_kernel(computation.outputs()[0]):
        return any(kernel_updates(o, p) for o in computation.outputs() for p in computation.parameters)
    if not any(OPS[i.opcode].family == "elementwise" for i in computation.instructions):
        return False
    return any(read_in_place(computation, parameter) for parameter in computation.parameters)


def read_in_place(computation: Computation, parameter: Instruction) -> bool:
    """Whether a parameter is read only at the written index: everything computed from it is element-wise."""
    affected = {parameter}
    for instruction in computation.instructions:
        if affected.isdisjoint(instruction.operands):
            continue
        if instruction is computation.root and instruction.opcode == "tuple":
            continue
        if OPS[instruction.opcode].family != "elementwise" or instruction.dims != parameter.dims:
            return False
        affected.add(instruction)
    return len(affected) > 1
