"""The op table by family. Importing this package declares every op."""

from hloom.ir.ops import contraction, control, elementwise, index, reduction, selection, structure  # noqa: F401  (each declares its ops)
from hloom.ir.ops.table import OPS, No, Op

__all__ = ["OPS", "No", "Op"]
