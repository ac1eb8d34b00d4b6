"""fold-constants: evaluates ops on constants at compile time."""

from __future__ import annotations

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.rules.structure import FOLD_ARRAYS
from hloom.compiler.passes.walk import change_computations
from hloom.ir.module import Module
from hloom.ir.rewrite import rewrite


@module_pass("fold-constants")
def fold_constants(module: Module) -> Module:
    """Evaluates ops on constants with the reference interpreter, unless the literal would be larger.

    A result has at most as many elements as its largest array operand, or 1024; broadcasts and iotas are kept, because
    a kernel computes them from its index.
    """
    return change_computations(module, lambda computation: rewrite(computation, FOLD_ARRAYS))
