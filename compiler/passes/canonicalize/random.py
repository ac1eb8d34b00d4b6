"""expand-random: expands rng-bit-generator to element-wise generators, whose bits fuse into their consumers."""

from __future__ import annotations

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.walk import change_computations, replaced
from hloom.ir.build import Builder, Value
from hloom.ir.module import Instruction, Module
from hloom.ir.ops.elementwise.random import expand

NAME = "expand-random"


@module_pass(NAME, "rng-bit-generator")
def expand_random(module: Module) -> Module:
    """Replaces every rng-bit-generator by counters, element-wise generators, and the layout of their words."""
    return change_computations(module, lambda computation: replaced(computation, NAME, _is_wanted, _expand))


def _is_wanted(instruction: Instruction) -> bool:
    return instruction.opcode == "rng-bit-generator"


def _expand(builder: Builder, instruction: Instruction, _) -> list[Instruction]:
    algorithm = instruction.attributes.get("algorithm", "rng_default")
    results = expand(Value(builder, instruction.operands[0]), instruction.shape, algorithm)
    return [r.instruction for r in results]
