"""The op table by family. Importing this package declares every op."""

from hloom.ir.ops import (  # noqa: F401  (each declares its ops)
    contraction,
    control,
    convolution,
    elementwise,
    gather,
    index,
    normalization,
    reduction,
    scatter,
    selection,
    sort,
    special,
    structure,
    window,
)
from hloom.ir.ops.table import OPS, No, Op

__all__ = ["OPS", "No", "Op"]
