"""Ops that preserve partial sums: f(a + b) = f(a) + f(b) in one operand, or in several jointly."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hloom.compiler.passes.spmd.resharding.layouts import Axes
from hloom.compiler.passes.spmd.scope import Held, Scope
from hloom.ir.build import combiner_opcode
from hloom.ir.module import Instruction
from hloom.ir.types import INEXACT, PRED, TupleShape

# Jointly linear in all operands.
TOGETHER = frozenset(("add", "subtract", "negate", "copy", "transpose", "reshape", "broadcast", "reverse", "slice",
                      "concatenate", "real", "imag", "complex"))  # fmt: skip
# Jointly linear in the first n operands, the others fixed.
FIRST = {"dynamic-update-slice": 2}
# Linear in each of the first n operands, the others fixed.
EACH = {"multiply": 2, "dot": 2, "convolution": 2, "divide": 1, "dynamic-slice": 1, "gather": 1, "reduce": 1, "pad": 1}


def linear_operands(
    scope: Scope, instruction: Instruction, given: list[Held], sums: list[Axes]
) -> Iterator[tuple[tuple[int, ...], Axes]]:
    """(operands, axes) for the ways in which an op may keep partial sums; other operands' partial sums are reduced.

    Only values without other readers remain partial, so that no sum is computed twice, and only if the result is no
    larger than they are.
    """
    shape = instruction.shape
    partial = [k for k, axes in enumerate(sums) if axes]
    if isinstance(shape, TupleShape) or shape.dtype == PRED or any(given[k].readers > 1 for k in partial):
        return
    for operands in _ways(scope, instruction, given, sums, partial):
        if shape.size <= sum(given[k].shape.size for k in operands):
            yield operands, sums[operands[0]]


def _ways(
    scope: Scope, instruction: Instruction, given: list[Held], sums: list[Axes], partial: list[int]
) -> list[tuple[int, ...]]:
    """The operands that may remain partial, by family of linear ops. partial: those with partial sums."""
    opcode, dtype = instruction.opcode, instruction.dtype
    one_layout = len({sums[k] for k in partial}) == 1
    if opcode in TOGETHER:
        # If partial sums are requested, an ordinary value is a sum held by one device.
        wanted = one_layout and sums[partial[0]] == scope.sums.get(instruction)
        return [tuple(range(len(given)))] if wanted or (one_layout and len(partial) == len(given)) else []
    if opcode in FIRST:
        return [tuple(partial)] if one_layout and partial == [*range(FIRST[opcode])] else []
    if opcode == "convert":
        return [(0,)] if widens(given[0].shape.dtype, dtype) else []
    if opcode not in EACH or not _allowed(scope, instruction):
        return []
    return [(k,) for k in partial if k < EACH[opcode] and given[k].shape.dtype == dtype]


def widens(source, target) -> bool:
    """Whether a numeric conversion is exact, so that it commutes with sums."""
    return source in INEXACT and target in INEXACT and np.can_cast(source, target)


def _allowed(scope: Scope, instruction: Instruction) -> bool:
    opcode = instruction.opcode
    if opcode == "divide":
        return instruction.shape.dtype in INEXACT
    if opcode == "reduce":
        return combiner_opcode(instruction["to_apply"]) == "add" and _is_zero(instruction.operands[1])
    if opcode == "pad":
        return _is_zero(instruction.operands[1])
    return True


def _is_zero(instruction: Instruction) -> bool:
    return instruction.opcode == "constant" and bool((np.asarray(instruction["value"]) == 0).all())
