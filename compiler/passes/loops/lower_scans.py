"""lower-scans: lowers scan, which preserves the structure of a loop for transforms, to HLO's while."""

from __future__ import annotations

from hloom.compiler.passes.registry import module_pass
from hloom.ir import loops
from hloom.ir.module import Module


@module_pass("lower-scans", "scan")
def lower_scans(module: Module) -> Module:
    """Replaces every scan by a while loop that slices its inputs and updates its outputs in place."""
    return loops.lower_scans(module)
