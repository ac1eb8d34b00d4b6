"""The windows of gather and scatter: `Windows` holds their common dimension numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hloom.ir.ops.bounding import is_open, is_same_size, refused
from hloom.ir.records import record


@record(frozen=True)
class Windows:
    """The positions of windows in an operand, in terms of HLO's gather.

    operand: the operand's shape. indices: the shape of the start indices. offset: the dimensions of the windows' array
    (gather's result, scatter's updates) within a window, in the order of the operand's dimensions that are neither
    collapsed nor batching.
    mapped: component k of a start index is along operand dimension mapped[k].
    vector: the dimension of `indices` that holds the components; its rank if each start has one component.
    """

    operand: tuple[int, ...]
    indices: tuple[int, ...]
    offset: tuple[int, ...]
    collapsed: tuple[int, ...]
    mapped: tuple[int, ...]
    operand_batching: tuple[int, ...]
    indices_batching: tuple[int, ...]
    vector: int
    sizes: tuple[int, ...]

    @property
    def window_dimensions(self) -> tuple[int, ...]:
        """The operand's dimensions that are also dimensions of the windows' array."""
        left_out = {*self.collapsed, *self.operand_batching}
        return tuple(d for d in range(len(self.operand)) if d not in left_out)

    @property
    def index_dimensions(self) -> tuple[int, ...]:
        """The dimensions of `indices` without the component dimension."""
        return tuple(d for d in range(len(self.indices)) if d != self.vector)

    @property
    def rank(self) -> int:
        """The rank of the windows' array."""
        return len(self.offset) + len(self.index_dimensions)

    @property
    def places(self) -> tuple[int, ...]:
        """The dimensions of the windows' array that index the windows, in the order of `index_dimensions`."""
        return tuple(k for k in range(self.rank) if k not in self.offset)

    def dims(self) -> tuple[int, ...]:
        """The shape of the windows' array."""
        sizes = [0] * self.rank
        for place, d in zip(self.places, self.index_dimensions, strict=True):
            sizes[place] = self.indices[d]
        for place, d in zip(self.offset, self.window_dimensions, strict=True):
            sizes[place] = self.sizes[d]
        return tuple(sizes)

    def limits(self) -> list[int]:
        """The largest start of each component for which the window is within bounds."""
        return [self.operand[d] - self.sizes[d] for d in self.mapped]

    # --- positions, with NumPy ---

    def starts(self, indices: np.ndarray) -> list[np.ndarray]:
        """An int64 array of the shape of `index_dimensions` for each component of the starts."""
        if indices.dtype.itemsize == 8 and indices.dtype.kind == "u":
            indices = np.minimum(indices, np.uint64(2**62))
        indices = indices.astype(np.int64)
        if self.vector == indices.ndim:
            return [indices]
        indices = np.moveaxis(indices, self.vector, 0)
        return list(indices)

    def inside(self, starts: list[np.ndarray]) -> np.ndarray:
        """Whether the entire window is within the operand; an array of the shape of `index_dimensions`."""
        result = np.ones(tuple(self.indices[d] for d in self.index_dimensions), bool)
        for start, limit in zip(starts, self.limits(), strict=True):
            result &= (start >= 0) & (start <= limit)
        return result

    def trailing(self) -> int:
        """The number of the operand's trailing dimensions that windows cover entirely; these need no position."""
        count, rank = 0, len(self.operand)
        window = set(self.window_dimensions)
        while count < rank:
            d = rank - 1 - count
            if d not in window or self.sizes[d] != self.operand[d]:
                break
            count += 1
        return count

    def positions(self, starts: list[np.ndarray]) -> np.ndarray:
        """Row-major positions in the operand without its `trailing` dimensions, for starts within bounds.

        Shape: that of `index_dimensions`, then the windows' sizes in the non-trailing dimensions.
        """
        lead = len(self.operand) - self.trailing()
        inner = [d for d in self.window_dimensions if d < lead]
        batch = [self.indices[d] for d in self.index_dimensions]
        rank = len(batch) + len(inner)
        total = np.zeros((1,) * rank, np.int64)
        component = {d: k for k, d in enumerate(self.mapped)}
        for d in range(lead):
            stride = math.prod(self.operand[d + 1 : lead])
            if d in component:
                start = starts[component[d]]
                total = total + start.reshape(start.shape + (1,) * len(inner)) * stride
            elif d in self.operand_batching:
                k = self.index_dimensions.index(self.indices_batching[self.operand_batching.index(d)])
                total = total + _line(self.operand[d], k, rank) * stride
            if d in inner and self.sizes[d] > 1:
                total = total + _line(self.sizes[d], len(batch) + inner.index(d), rank) * stride
        return np.broadcast_to(total, (*batch, *(self.sizes[d] for d in inner)))

    def order(self) -> tuple[int, ...]:
        """The position in the windows' array of each of (index dimensions, window dimensions)."""
        return (*self.places, *self.offset)


def _line(size: int, dimension: int, rank: int) -> np.ndarray:
    return np.arange(size).reshape([size if k == dimension else 1 for k in range(rank)])


# --- windows in arrays of computed sizes ---


def computed_places(w: Windows) -> list[int]:
    """The dimensions of the indices with a computed size, which excludes the component dimension."""
    return [d for d in w.index_dimensions if is_open(w.indices[d])]


def window_sizes(instruction, w: Windows, stored: Sequence[int]) -> tuple[int, ...]:
    """The stored sizes of windows: of a whole axis, or a static number."""
    sizes = []
    for d, size in enumerate(w.sizes):
        if is_open(size) and not is_same_size(size, w.operand[d]):
            raise refused(instruction, f"windows of {size} elements in an axis of {w.operand[d]}")
        if is_open(w.operand[d]) and d in w.mapped:
            raise refused(instruction, f"indices into an axis of {w.operand[d]} elements, which may be empty")
        sizes.append(stored[d] if is_open(size) else size)
    return tuple(sizes)
