"""inline-calls: inlines called computations into their callers."""

from __future__ import annotations

from functools import partial

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.walk import change_computations
from hloom.compiler.transforms import inline
from hloom.ir.module import Module


@module_pass("inline-calls", "call", "map")
def inline_calls(module: Module) -> Module:
    """Replaces every call by the instructions of the computation it calls; they keep the user's lines.

    Raises UnsupportedError if the result would have too many instructions.
    """
    inline.check_size(module.entry)
    return change_computations(module, partial(inline.inline_calls, rules=True))
