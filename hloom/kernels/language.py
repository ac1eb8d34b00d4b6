"""The functions of hloom for users' kernels, as Python runs them: `hl.kernel` compiles the same names."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from hloom.errors import ArgumentError

__all__ = ["atomic_add", "atomic_max", "atomic_min", "parallel", "tile"]

# Elements of a tile along the last dimension, and of the whole tile, unless `tile=` sets them: one core computes them
# from its first-level cache.
TILE_ROW, TILE = 1024, 4096
TILES = 16  # along the first dimension at least, where there are as many elements, so that all cores have some


def parallel(*sizes):
    """The indices of a loop whose iterations may run at the same time, in any order: `for i in hl.parallel(n)`,
    `for i, j in hl.parallel(m, n)`.

    sizes: one for each index. An iteration may not read elements that another one writes; `hl.atomic_add` and similar
    functions combine the values that several of them write. In Python, outside of `hl.kernel`, the iterations run in
    order. Raises ArgumentError for sizes other than integers.
    """
    counts = [_size(n, "parallel") for n in _several(sizes)]
    return range(counts[0]) if len(counts) == 1 else itertools.product(*map(range, counts))


def tile(shape, tile=None) -> Iterator:
    """The parts of an index space, in order: `for t in hl.tile(x.shape): out[t] = x[t] * 2`.

    shape: a size, or a tuple of them. tile: the size of a part along each dimension; by default chosen for the
    processor. Each part is a slice, or a tuple of slices, one per size. The parts may be computed at the same time, in
    any order. Raises ArgumentError for sizes other than integers, or a tile that does not match the shape.
    """
    sizes = [_size(n, "tile") for n in _several((shape,))]
    steps = tile_of(sizes, None if tile is None else [_size(n, "tile") for n in _several((tile,))])
    parts = [
        [slice(start, min(start + step, size)) for start in range(0, size, step)]
        for size, step in zip(sizes, steps, strict=True)
    ]
    return iter(parts[0]) if not isinstance(shape, (tuple, list)) else itertools.product(*parts)


def tile_of(sizes: list[int], asked: list[int] | None = None) -> list[int]:
    """The size of a part along each dimension."""
    if asked is not None:
        if len(asked) != len(sizes) or any(step < 1 for step in asked):
            raise ArgumentError(
                f"hl.tile of {len(sizes)} sizes", f"tile={tuple(asked)}", "give a size of at least 1 for each of them"
            )
        return asked
    left, steps = TILE, []
    for k, size in reversed(list(enumerate(sizes))):
        most = size if k else -(-size // TILES)
        steps.append(max(1, min(most, left, TILE_ROW)))
        left //= steps[-1]
    return steps[::-1]


def atomic_add(array, index, value) -> None:
    """`array[index] += value`, by several iterations of a parallel loop as well. index: an integer or a tuple of them.

    The results do not depend on the number of threads: sums of floats are formed in a fixed order.
    """
    array[index] += value


def atomic_max(array, index, value) -> None:
    """`array[index] = max(array[index], value)`, by several iterations of a parallel loop as well."""
    array[index] = np.maximum(array[index], value)


def atomic_min(array, index, value) -> None:
    """`array[index] = min(array[index], value)`, by several iterations of a parallel loop as well."""
    array[index] = np.minimum(array[index], value)


def _several(given: tuple) -> tuple:
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given


def _size(value, name: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(f"hl.{name} takes integer sizes", f"{value!r:.60}", "pass integers")
    return value.__index__()
