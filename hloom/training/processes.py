"""A run of `fit` in several processes: which one keeps the records, and their joint decisions.

The processes go through the same steps. When one of them is told to stop, by a signal or a callback, all stop after the
same step; otherwise the remaining ones would wait for it forever.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom import distributed
from hloom.arrays.array import Array
from hloom.errors import DistributedError
from hloom.platforms.processes import processes
from hloom.tree import pytrees as tree


class Members:
    """The processes of a run, or this one alone.

    They train together if the state has arrays over devices of several processes, or if the step's attribute `together`
    is true. index: of this process. count: of those that train together.
    """

    def __init__(self, state: Any, step: Any):
        found = processes()
        together = found.count > 1 and (getattr(step, "together", False) or any(map(_is_shared, tree.leaves(state))))
        self.index, self.count = (found.index, found.count) if together else (0, 1)

    @property
    def first(self) -> bool:
        """Whether this process prints and writes the run's shared output."""
        return self.index == 0

    def agree(self, step: int, signal: int | None, stops: bool) -> tuple[int | None, int | None]:
        """The signal that one of the processes received, and one that stops, after the same step in all of them.

        Raises DistributedError if they are at different steps, or one does not arrive in time.
        """
        if self.count == 1:
            return signal, 0 if stops else None
        own = np.array([step, -step, signal or 0, self.count - self.index if stops else 0])
        last, first, found, stopping = distributed.group().largest(own, f"step {step} of fit").tolist()
        if last != -first:
            raise DistributedError(
                f"all processes of fit after step {step}",
                f"they have done {-first} to {last} steps",
                "give all processes the same number of batches",
            )
        return found or None, self.count - stopping if stopping else None


def _is_shared(leaf: Any) -> bool:
    return isinstance(leaf, Array) and not leaf.is_fully_addressable


__all__ = ["Members"]
