"""expand-target-ops: ops that the target has no kernels for, as ops that it has."""

from __future__ import annotations

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.targets.base import Target
from hloom.ir.module import Module


@module_pass("expand-target-ops")
def expand_target_ops(module: Module, target: Target) -> Module:
    """Replaces ops that the target has no kernels for by ops that it has, such as calls of a library."""
    return target.expand(module)
