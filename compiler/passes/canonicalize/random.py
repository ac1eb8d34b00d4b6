"""expand-random: rng-bit-generator as element-wise generators, whose bits fuse into what consumes them."""

from __future__ import annotations

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.walk import change_computations
from hloom.ir.build import Builder, Value
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops.elementwise.random import expand


@module_pass("expand-random", "rng-bit-generator")
def expand_random(module: Module) -> Module:
    """Replaces every rng-bit-generator by counters, generators of one element, and the layout of their words."""
    return change_computations(module, _expanded)


def _expanded(computation: Computation) -> Computation:
    if not any(i.opcode == "rng-bit-generator" for i in computation.instructions):
        return computation
    builder = Builder(computation.name)
    mapped: dict[Instruction, Instruction] = {}
    for instruction in computation.instructions:
        operands = tuple(mapped.get(o, o) for o in instruction.operands)
        if instruction.opcode == "rng-bit-generator":
            with builder.provenance(instruction, "expand-random"):
                algorithm = instruction.attributes.get("algorithm", "rng_default")
                results = expand(Value(builder, operands[0]), instruction.shape, algorithm)
                mapped[instruction] = builder.tuple([r.instruction for r in results])
            continue
        if operands != instruction.operands:
            mapped[instruction] = instruction = instruction.with_operands(operands)
        builder.add(instruction)
    return Computation(
        computation.name, computation.parameters, builder.instructions, mapped.get(computation.root, computation.root)
    )
