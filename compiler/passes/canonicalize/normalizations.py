"""expand-normalizations: expands batch-norm-training, -inference and -grad to sums and element-wise ops, which fuse."""

from __future__ import annotations

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.walk import change_computations, replaced
from hloom.ir.build import Builder
from hloom.ir.module import Instruction, Module
from hloom.ir.ops.elementwise.normalization import OPCODES, expanded
from hloom.ir.types import TupleShape

NAME = "expand-normalizations"


@module_pass(NAME, *OPCODES)
def expand_normalizations(module: Module) -> Module:
    """Expands batch normalizations to sums and element-wise ops."""
    return change_computations(module, lambda computation: replaced(computation, NAME, _is_wanted, _expand))


def _is_wanted(instruction: Instruction) -> bool:
    return instruction.opcode in OPCODES


def _expand(builder: Builder, instruction: Instruction, _) -> Instruction | list[Instruction]:
    results = expanded(builder, instruction, instruction.operands)
    return results if isinstance(instruction.shape, TupleShape) else results[0]
