"""Variants of a program that serve every size of a range.

A box of sizes is served by a variant whose guards hold in all of it, by interval arithmetic. If they hold in only a
part of the box it is halved; for a size for which the guards of all variants fail another one is compiled. A box of one
size is decided exactly, so nothing is assumed about sizes that were not examined.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hloom.backends.cpu.open_sizes import Variant
from hloom.errors import ExportError
from hloom.export.nodes import Nodes, Row, intervals
from hloom.ir.sizes.expressions import Comparison, Dim
from hloom.ir.sizes.policy import SMALLEST

__all__ = ["MOST_VARIANTS", "covering"]

MOST_VARIANTS = 128  # of a function
MOST_BOXES = 1 << 20  # that are not decided
TOGETHER = 1 << 14  # boxes whose intervals are computed in one go


class _Cover:
    """The boxes of sizes that no variant is known to serve. Sizes are counted in units of a dimension's `multiple_of`.

    candidates: what may settle a box: nodes, the indices of the deciding ones, and the value required of all of them.
    maybe: for each box and candidate, whether that may hold in a part of the box.
    """

    def __init__(self, dims: Sequence[Dim]):
        self.dims, self.numbers = dims, {dim.name: k for k, dim in enumerate(dims)}
        self.factors = np.array([[dim.multiple_of] for dim in dims], float)
        boxes = np.array([*itertools.product(*map(_parts, dims))], float)  # boxes, dimensions, ends
        self.low, self.high = boxes[:, :, 0].T.copy(), boxes[:, :, 1].T.copy()
        self.candidates: list[tuple[list[Row], list[int], bool]] = []
        self.maybe = np.ones((len(boxes), 0), bool)

    def __len__(self) -> int:
        return len(self.maybe)

    def add(self, guards: Sequence[Comparison], hold: bool = True) -> None:
        """Takes out the boxes in which all guards hold, or all fail, and notes where that is open."""
        nodes = Nodes(self.numbers)
        numbers = [nodes.guard(guard) for guard in guards]
        self.candidates.append((nodes.table, numbers, hold))
        self.maybe = np.concatenate([self.maybe, np.ones((len(self), 1), bool)], 1)
        self.look(len(self.candidates) - 1)

    def look(self, number: int) -> None:
        """Compares the boxes with a candidate."""
        rows, deciding, hold = self.candidates[number]
        settled = np.zeros(len(self), bool)
        open_boxes = np.flatnonzero(self.maybe[:, number])
        for start in range(0, len(open_boxes), TOGETHER):
            which = open_boxes[start : start + TOGETHER]
            lows, highs = intervals(rows, self.low[:, which] * self.factors, self.high[:, which] * self.factors)
            always = [lows[k] == 1 if hold else highs[k] == 0 for k in deciding]
            never = [highs[k] == 0 if hold else lows[k] == 1 for k in deciding]
            settled[which] = np.logical_and.reduce([np.ones(len(which), bool), *always])
            self.maybe[which, number] = ~np.logical_or.reduce([np.zeros(len(which), bool), *never])
        self.keep(~settled)

    def keep(self, which: np.ndarray) -> None:
        self.low, self.high, self.maybe = self.low[:, which], self.high[:, which], self.maybe[which]

    def unserved(self) -> dict[str, int] | None:
        """Sizes in the largest box in which no candidate may be right, rather large ones; None if there is none."""
        alone = np.flatnonzero(~self.maybe.any(1))
        if not len(alone):
            return None
        low, high = self.low[:, alone], self.high[:, alone]
        box = np.argmax(np.log(high - low + 1).sum(0))
        typical = np.floor(np.cbrt(low[:, box]) * np.cbrt(high[:, box]) ** 2)
        sizes = np.clip(typical, low[:, box], high[:, box]) * self.factors[:, 0]
        return {dim.name: int(size) for dim, size in zip(self.dims, sizes, strict=True)}

    def halve(self) -> bool:
        """Halves each box where it is longest, and compares the parts; False if one is a single size."""
        axis, every = np.argmax(self.high - self.low, 0), np.arange(len(self))
        low, high = self.low[axis, every], self.high[axis, every]
        if (low == high).any():
            return False
        middle = np.floor((low + high) / 2)
        lower, upper = self.high.copy(), self.low.copy()
        lower[axis, every], upper[axis, every] = middle, middle + 1
        self.low, self.high = np.concatenate([self.low, upper], 1), np.concatenate([lower, self.high], 1)
        self.maybe = np.concatenate([self.maybe, self.maybe])
        for number in range(len(self.candidates)):
            self.look(number)
        return True


def _parts(dim: Dim) -> list[tuple[int, int]]:
    """The ranges of a dimension's sizes, in multiples: one for each of the small ones, which are constants in their
    variants."""
    small = [(size, size) for size in range(dim.min, min(dim.most + 1, SMALLEST)) if dim.takes(size)]
    low, high = -(-max(dim.min, SMALLEST) // dim.multiple_of), dim.most // dim.multiple_of
    return [*small, (low, high)] if low <= high else small


def covering(
    name: str,
    dims: Sequence[Dim],
    facts: Sequence[Comparison],
    compiled: Callable[[Mapping[str, int]], Variant],
) -> list[Variant]:
    """Variants of a function of which at least one serves each size of the dimensions for which the facts hold.

    compiled: makes the variant for sizes. Raises ExportError if there would be too many, or if it cannot be decided.
    """
    cover, variants = _Cover(dims), list[Variant]()
    for fact in facts:
        cover.add([fact], hold=False)
    while len(cover):
        sizes = cover.unserved()
        if sizes is not None:
            if len(variants) == MOST_VARIANTS:
                raise _refused(name, dims, f"it needs more than {MOST_VARIANTS} variants of its kernels")
            variants.append(compiled(sizes))
            cover.add(variants[-1].conditions({dim.name: dim for dim in dims}))
        elif len(cover) > MOST_BOXES or not cover.halve():
            raise _refused(name, dims, "its variants divide the sizes in too many parts to tell that all are served")
    return variants


def _refused(name: str, dims: Sequence[Dim], found: str) -> ExportError:
    return ExportError(
        f"export of {name!r} for {', '.join([dim.declaration() for dim in dims])}",
        found,
        "narrow the range of the Dim, or state a divisor of its sizes: Dim('n', 8, 4096, multiple_of=8)",
        source="",
    )
