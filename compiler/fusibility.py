"""Facts about instructions on which passes, the scheduler and the writers of kernels have to agree."""

from __future__ import annotations

import math

from hloom.ir.module import Instruction
from hloom.ir.ops import OPS
from hloom.ir.types import Shape

IN_PLACE = ("dynamic-update-slice", "scatter")  # their result overwrites the first operand, or a copy of it
CONTRACTIONS = ("dot", "convolution")
EXPENSIVE = 4.0  # flops from which computing an element several times costs more than writing and reading it
ROWS = 16  # so many rows keep every core busy; fewer long rows are reduced in chunks
SHORT_ROW = 8192  # elements up to which a row is reduced as a whole
MASKED = 32  # elements of a row from which on masks for what it reads are less work than branches


ALIASES = {"reshape", "bitcast-convert"}  # on their own: the operand's bytes with other dimensions
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "optimization-barrier"} | ALIASES  # no kernel's work


def is_control(instruction: Instruction) -> bool:
    return OPS[instruction.opcode].family == "control"


def has_expression(instruction: Instruction) -> bool:
    """Whether an element of an instruction is an expression of elements of its operands."""
    if instruction.opcode == "constant":
        return instruction.shape.size == 1 and isinstance(instruction.shape, Shape)
    if instruction.opcode == "bitcast-convert" and instruction.dims != instruction.operands[0].dims:
        return False
    return OPS[instruction.opcode].family in ("elementwise", "index")


def is_row_reduction(reduce: Instruction) -> bool:
    """Whether a reduction is done row by row: over trailing dimensions, with enough rows or short ones."""
    dims, reduced = reduce.operands[0].dims, set(reduce["dimensions"])
    kept = len(dims) - len(reduced)
    if reduced != set(range(kept, len(dims))):
        return False
    return math.prod(dims[:kept]) >= ROWS or math.prod(dims[kept:]) <= SHORT_ROW
