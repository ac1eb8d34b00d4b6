"""The rules of ATen's ops, by subject. RULES: what the modules of this package have put into the table."""

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
from hloom.bridges.torch.table import RULES

__all__ = ["RULES"]
