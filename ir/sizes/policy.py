"""The policy of all entry points: which sizes are static in a program, and when a program with dimensions is compiled.

`hl.jit` and `hl.export` use the dimensions named by the user, jax and torch those of their programs. Sessions, `fit`
and ONNX models do not name dimensions: their first sizes have static programs, which compile in about half the time and
run slightly faster, and most runs need no others.
"""

from __future__ import annotations

__all__ = ["ALONE", "ALONE_OF_MODELS", "MOST_PROGRAMS", "SMALLEST", "USUAL"]

# The smallest size of a dimension while a program is traced and compiled. Smaller ones (broadcast axes, empty arrays)
# are static, in separate programs.
SMALLEST = 2
# Number of static programs for sizes of a session's feeds, and of the batches of `fit`: most batches have one size, and
# the last one another, for which an open program would not pay off.
ALONE = 2
# The same for an ONNX model: a prompt, or one batch.
ALONE_OF_MODELS = 1
# Variants of one program (`OpenExecutable`) that are always allowed. Beyond these, it must serve two sizes per variant
# to be worthwhile.
USUAL = 6
# Programs of one ONNX model with different decisions for the sizes they were traced for.
MOST_PROGRAMS = 32
