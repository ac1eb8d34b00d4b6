"""The passes, one file each. Importing this package registers them in `registry.PASSES`."""

from hloom.compiler.passes import cse, dce, fold_constants, inline_calls, move_reshapes, simplify
from hloom.compiler.passes.canonicalize import convolutions, dots, normalizations, random, target_ops
from hloom.compiler.passes.fusion import attention, fuse
from hloom.compiler.passes.loops import lower_scans, simplify_loops, sum_after_scans
from hloom.compiler.passes.registry import PASSES, Pass, module_pass

__all__ = ["PASSES", "Pass", "module_pass"]
