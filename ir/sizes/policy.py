"""Which sizes are numbers of a program, and from when on a program of dimensions is made: the policy of every door.

`hl.jit` and `hl.export` make what their user names dimensions for, jax and torch what their programs do. Sessions,
`fit` and ONNX models were written without dimensions: their first sizes have programs of their own, which compile in
about half the time and run a little faster, and most runs have no others.
"""

from __future__ import annotations

__all__ = ["ALONE", "ALONE_OF_MODELS", "MOST_PROGRAMS", "SMALLEST", "USUAL"]

# The smallest size of a dimension while a program is traced and compiled. Smaller ones are numbers, in programs of
# their own: axes that broadcast, and empty arrays.
SMALLEST = 2
# Sets of sizes of a session's feeds, and of the batches of `fit`, that have programs of their own: most batches are of
# one size, and the last one of another, for which an open program would be a loss.
ALONE = 2
# The same of an ONNX model: a prompt, or one batch.
ALONE_OF_MODELS = 1
# Variants of one program (`OpenExecutable`) whose number is not asked after. With more of them it has to serve two
# sizes by each to be worth its time.
USUAL = 6
# Programs of one ONNX model whose decisions differ by the sizes for which they were traced.
MOST_PROGRAMS = 32
