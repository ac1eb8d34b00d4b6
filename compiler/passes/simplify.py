"""simplify: the algebraic rules, all tables together."""

from __future__ import annotations

from hloom.compiler.passes.canonicalize.dots import TRANSPOSED_DOTS
from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.rules.arithmetic import ARITHMETIC
from hloom.compiler.passes.rules.logic import LOGIC
from hloom.compiler.passes.rules.masked_updates import MASKED_UPDATES
from hloom.compiler.passes.rules.movement import MOVEMENT
from hloom.compiler.passes.rules.reductions import REDUCTIONS
from hloom.compiler.passes.rules.structure import FOLD_SCALARS, STRUCTURE
from hloom.compiler.passes.rules.types import TYPES
from hloom.compiler.passes.walk import change_computations
from hloom.ir.module import Module
from hloom.ir.rewrite import Rules, rewrite

# A product absorbs its transpose before a reduction does, which would leave the product with two readers.
SIMPLIFY: Rules = (
    TRANSPOSED_DOTS + STRUCTURE + ARITHMETIC + LOGIC + MASKED_UPDATES + TYPES + MOVEMENT + REDUCTIONS + FOLD_SCALARS
)


@module_pass("simplify")
def simplify(module: Module) -> Module:
    """Applies the algebraic rules that are exact, or within the specified accuracy of the ops; folds scalars."""
    return change_computations(module, lambda computation: rewrite(computation, SIMPLIFY))


@module_pass("simplify-inexact")
def simplify_inexact(module: Module) -> Module:
    """simplify, with the rules that change last bits, signed zeros or the propagation of NaN and infinities."""
    return change_computations(module, lambda computation: rewrite(computation, SIMPLIFY, inexact=True))
