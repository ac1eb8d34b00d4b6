"""The op table by family. Importing this package declares every op."""

from hloom.ir.ops import (  # noqa: F401  (each declares its ops)
    collective,
    contraction,
    control,
    convolution,
    decompositions,
    elementwise,
    fft,
    gather,
    index,
    linalg,
    matrix_functions,
    normalization,
    random,
    reduction,
    scatter,
    selection,
    sort,
    special,
    special_host,
    structure,
    transfer,
    window,
)
from hloom.ir.ops.table import OPS, No, Op

__all__ = ["OPS", "No", "Op"]
