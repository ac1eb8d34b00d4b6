"""dce: dead code elimination."""

from __future__ import annotations

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.walk import change_computations
from hloom.ir.module import Module
from hloom.ir.rewrite import sweep


@module_pass("dce")
def eliminate_dead_code(module: Module) -> Module:
    """Removes the instructions that neither the result nor an effect needs. Parameters are kept."""
    return change_computations(module, sweep)
