"""Which loops LLVM's vectorizer interleaves: how many vectors an innermost loop processes per iteration.

Element-wise kernels are chains of dependent operations of some four cycles each. LLVM interleaves only the shortest
loops; two independent chains take hardly longer than one.
"""

from __future__ import annotations

from collections.abc import Iterable

# LLVM chooses the number of accumulators of a reduction well.
_ACCUMULATORS = ("sum_", "prod_", "max_", "min_", "tile_")
# Loops with this many operations process four vectors per iteration.
_LONG = 24
OPTION = "llvm.loop.interleave.count"


def is_interleaved(names: Iterable[str]) -> bool:
    """Whether the innermost loops of a kernel that calls these names are interleaved."""
    return not any(name.startswith(_ACCUMULATORS) for name in names)


def interleave_count(operations: int) -> int:
    """Vectors per iteration of an innermost loop with so many additions, products and quotients of floats."""
    return 4 if operations >= _LONG else 2
