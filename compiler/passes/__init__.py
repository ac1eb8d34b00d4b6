"""The passes, one file each. Importing this package registers them in `registry.PASSES`."""

from hloom.compiler.passes import (  # noqa: F401  (each registers its passes)
    canonicalize_convolutions,
    canonicalize_dots,
    cse,
    dce,
    expand_normalizations,
    expand_random,
    fold_constants,
    fuse,
    fuse_attention,
    inline_calls,
    lower_scans,
    move_reshapes,
    simplify,
    simplify_loops,
    sum_after_scans,
)
from hloom.compiler.passes.registry import PASSES, Pass, module_pass

__all__ = ["PASSES", "Pass", "module_pass"]
