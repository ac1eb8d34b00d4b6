"""Outputs whose layout the compiler may choose: they keep the dimension order in which they are computed.

Around convolutions the passes change the order of dimensions, and change it back at the end. If an output is read only
by a program compiled later, that program may read it in the computed order.
"""

from __future__ import annotations

from collections.abc import Collection

from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.targets.base import Target
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.rewrite import sweep
from hloom.ir.types import TupleShape

MOVES = "move-image-transposes"
SETTLED: tuple[str, ...] = PIPELINE[: PIPELINE.index(MOVES) + 1]


def with_free_layouts(
    module: Module, outputs: Collection[int], target: Target | None = None
) -> tuple[Module, dict[int, tuple[int, ...]]]:
    """(the module with some of `outputs` before their last transpose, the permutation of that by output).

    The original output is transpose(the new one, dimensions=permutation). A module without convolutions is returned
    unchanged. target: as for `run_passes`.
    """
    if not outputs or all(i.opcode != "convolution" for i in module.instructions()):
        return module, {}
    settled = run_passes(module, SETTLED, target=target)
    entry = settled.entry
    several = entry.root.opcode == "tuple"
    results = list(entry.root.operands) if several else [entry.root]
    found = {k: tuple(results[k]["dimensions"]) for k in outputs if results[k].opcode == "transpose"}
    if not found:
        return settled, {}
    for k in found:
        results[k] = results[k].operands[0]
    instructions = list(entry.instructions)
    root = results[0]
    if several:
        root = Instruction("tuple", tuple(results), TupleShape(r.shape for r in results))
        instructions.append(root)
    changed = sweep(Computation(entry.name, entry.parameters, instructions, root))
    return settled.with_entry(changed), found
