"""The rules of ATen's ops, by subject. RULES, rule_of: the rules registered by
the modules of this package."""

from hloom.bridges.torch.rules import (
    attention,
    convolutions,
    creation,
    grids,
    indexing,
    linear_algebra,
    losses,
    normalization,
    pointwise,
    pooling,
    random,
    reductions,
    resampling,
    shapes,
    sorting,
    strided,
    transforms,
)
from hloom.bridges.torch.table import RULES, rule_of

__all__ = ["RULES", "rule_of"]
