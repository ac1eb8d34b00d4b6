"""The op table by family. Importing this package declares every op."""

from hloom.ir.op_table import OPS, No, Op
from hloom.ir.ops.elementwise import (
    arithmetic,
    bits,
    host_special,
    normalization,
    random,
    selection,
    special,
    transcendental,
)
from hloom.ir.ops.indexing import gather, movement, scatter, sort
from hloom.ir.ops.linalg import convolution, decompositions, dot, fft, linear_systems, matrix_functions
from hloom.ir.ops.programs import collective, control, kernel, sizes, spmd, structure, transfer
from hloom.ir.ops.reductions import reduce, window

__all__ = ["OPS", "No", "Op"]
