"""expand-target-ops: expands ops without a kernel on the target."""

from __future__ import annotations

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.targets.base import Target
from hloom.ir.module import Module


@module_pass("expand-target-ops")
def expand_target_ops(module: Module, target: Target) -> Module:
    """Replaces ops without a kernel on the target by supported ones, such as library calls."""
    return target.expand(module)
