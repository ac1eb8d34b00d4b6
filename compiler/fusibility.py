"""Facts about instructions shared by passes, the scheduler and kernel writers."""

from __future__ import annotations

import math

from hloom.ir.module import Instruction
from hloom.ir.ops import OPS
from hloom.ir.types import Shape, TupleShape

IN_PLACE = ("dynamic-update-slice", "scatter")  # their result overwrites the first operand, or a copy of it
CONTRACTIONS = ("dot", "convolution")
EXPENSIVE = 4.0  # flops above which recomputing an element costs more than writing and reading it
ROWS = 16  # number of rows that keep all cores busy; fewer long rows are reduced in chunks
SHORT_ROW = 8192  # maximum row length that is reduced as a whole
MASKED = 32  # row length from which masked reads are cheaper than branches


ALIASES = {"reshape", "bitcast-convert"}  # on their own: the operand's bytes with other dimensions
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "optimization-barrier"} | ALIASES  # no kernel's work


def is_control(instruction: Instruction) -> bool:
    return OPS[instruction.opcode].family == "control"


def has_expression(instruction: Instruction) -> bool:
    """Whether an element of an instruction is an expression over elements of its operands."""
    if instruction.opcode == "constant":
        return instruction.shape.size == 1 and isinstance(instruction.shape, Shape)
    if instruction.opcode == "bitcast-convert" and instruction.dims != instruction.operands[0].dims:
        return False
    return OPS[instruction.opcode].family in ("elementwise", "index")


def updated_operand(instruction: Instruction) -> Instruction | None:
    """The array that an instruction, or its kernel, updates in place if nothing else needs it; None for others."""
    if instruction.opcode in IN_PLACE:
        return instruction.operands[0]
    if instruction.opcode == "fusion":
        called = instruction["calls"]
        if called.root.opcode in IN_PLACE and called.root.operands[0] in called.parameters:
            return instruction.operands[called.parameters.index(called.root.operands[0])]
    return None


def earlier_version(instruction: Instruction) -> Instruction | None:
    """The array before an update, or before a loop or branch that updates it; None for other instructions."""
    if instruction.opcode in ALIASES:
        return instruction.operands[0]
    if instruction.opcode != "get-tuple-element":
        return updated_operand(instruction)
    control, number = instruction.operands[0], instruction["index"]
    if control.opcode == "while":
        (given,) = control.operands
        return given.operands[number] if given.opcode == "tuple" else None
    if control.opcode != "conditional":
        return None
    for branch, given in zip(control["branch_computations"], control.operands[1:], strict=True):
        value: Instruction | None = branch.root.operands[number] if branch.root.opcode == "tuple" else branch.root
        while value is not None and value.opcode != "parameter":
            if value.opcode == "get-tuple-element" and value.operands[0].opcode == "parameter":
                return given.operands[value["index"]] if given.opcode == "tuple" else None
            value = earlier_version(value)
        if value is not None and not isinstance(value.shape, TupleShape):
            return given
    return None


def is_row_reduction(reduce: Instruction) -> bool:
    """Whether a reduction is done row by row: over trailing dimensions, with enough rows or short ones."""
    dims, reduced = reduce.operands[0].dims, set(reduce["dimensions"])
    kept = len(dims) - len(reduced)
    if reduced != set(range(kept, len(dims))):
        return False
    return math.prod(dims[:kept]) >= ROWS or math.prod(dims[kept:]) <= SHORT_ROW
