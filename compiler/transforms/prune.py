"""Instructions that nothing needs removed: transforms make more than they use."""

from __future__ import annotations

from hloom.ir.module import Computation, reachable
from hloom.ir.ops.table import OPS


def prune(computation: Computation) -> Computation:
    """The computation without the instructions that neither the root nor an effect depends on. Parameters stay."""
    effects = [i for i in computation.instructions if i.opcode == "custom-call" or OPS[i.opcode].effects]
    kept = reachable([computation.root, *effects])
    kept.update(computation.parameters)
    instructions = [i for i in computation.instructions if i in kept]
    return Computation(computation.name, computation.parameters, instructions, computation.root)
