"""Replacing single instructions by several, op by op."""

from __future__ import annotations

from collections.abc import Callable

from hloom.ir.build import Builder
from hloom.ir.module import Computation, Instruction
from hloom.ir.rewrite import sweep


def replace(
    computation: Computation,
    wanted: Callable[[Instruction], bool],
    make: Callable[[Builder, Instruction], Instruction | list[Instruction]],
    made_by: str,
) -> Computation:
    """The computation with each wanted instruction replaced by what `make` emits for it; itself where there is none.

    make(builder, instruction) -> the new instruction, or the elements of a tuple. The instruction has its new operands.
    """
    if not any(wanted(i) for i in computation.instructions):
        return computation
    builder = Builder(computation.name)
    builder.parameters = list(computation.parameters)
    mapped: dict[Instruction, Instruction] = {}
    elements: dict[Instruction, list[Instruction]] = {}

    def operand(instruction: Instruction) -> Instruction:
        if instruction not in mapped:  # a tuple that is used as one
            mapped[instruction] = builder.tuple(elements[instruction])
        return mapped[instruction]

    for instruction in computation.instructions:
        if instruction.opcode == "get-tuple-element" and instruction.operands[0] in elements:
            mapped[instruction] = elements[instruction.operands[0]][instruction["index"]]
            continue
        operands = tuple([operand(o) for o in instruction.operands])
        same = all(a is b for a, b in zip(operands, instruction.operands, strict=True))
        copy = instruction if same else instruction.with_operands(operands)
        if not wanted(instruction):
            mapped[instruction] = builder.add(copy)
            continue
        with builder.provenance(instruction, made_by):
            made = make(builder, copy)
        if isinstance(made, list):
            elements[instruction] = made
        else:
            mapped[instruction] = made
            if not made.hint and made.opcode not in ("parameter", "constant"):
                made.hint = instruction.hint
    return sweep(builder.finish(operand(computation.root)))
