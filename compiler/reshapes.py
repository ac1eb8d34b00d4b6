"""How the dimensions of reshapes, broadcasts and transposes correspond."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def reshape_groups(
    source: tuple[int, ...], target: tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] | None:
    """The finest groups of consecutive dimensions between which a reshape moves elements.

    Returns ((source dimensions, target dimensions), ...) in order; both sides of a group have the same product of
    sizes, and the groups cover each dimension once. None for empty arrays, whose sizes determine nothing.

    >>> reshape_groups((6, 5, 4), (2, 3, 20))
    (((0,), (0, 1)), ((1, 2), (2,)))
    """
    if 0 in source or 0 in target:
        return None
    groups = []
    i = j = 0
    while i < len(source) or j < len(target):
        first_i, first_j = i, j
        left = right = 1
        if i < len(source):
            left *= source[i]
            i += 1
        if j < len(target):
            right *= target[j]
            j += 1
        while left != right:
            if left < right:
                left *= source[i]
                i += 1
            else:
                right *= target[j]
                j += 1
        groups.append((tuple(range(first_i, i)), tuple(range(first_j, j))))
    return tuple(groups)


def without_ones_groups(source: tuple[int, ...], target: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """The groups of `reshape_groups` without dimensions of size 1, also for empty arrays.

    >>> without_ones_groups((6, 1, 20), (2, 3, 20))
    [([0], [0, 1]), ([2], [2])]
    """
    source, target = tuple(source), tuple(target)
    found = reshape_groups(source, target)
    if found is None:
        pairs = zip(without_ones(source), without_ones(target), strict=False)
        return [([i], [j]) for i, j in pairs if source[i] == target[j]]
    groups = [([i for i in olds if source[i] != 1], [j for j in news if target[j] != 1]) for olds, news in found]
    return [group for group in groups if group[0]]


def reshape_of_broadcast(operand, dimensions, broadcast_dims, target):
    """Sizes and dimensions with which reshape(broadcast(x)) is broadcast(reshape(x)); None if impossible.

    operand: the sizes of x; dimensions: their positions in broadcast_dims; target: the sizes after the reshape.
    """
    groups = reshape_groups(tuple(broadcast_dims), tuple(target))
    if groups is None:
        return None
    mapped = set(dimensions)
    new_operand: list[int] = []
    new_dimensions: list[int] = []
    for old, new in groups:
        wide = [d for d in old if broadcast_dims[d] != 1]
        if all(d not in mapped for d in wide):
            continue
        if not all(d in mapped for d in wide):
            # A new dimension next to an existing one: only if the reshape preserves their boundary, up to sizes of 1.
            return None
        new_operand += [target[d] for d in new]
        new_dimensions += new
    return tuple(new_operand), tuple(new_dimensions)


def without_ones(dims) -> tuple[int, ...]:
    """The dimensions (not sizes) whose size is not 1."""
    return tuple(k for k, extent in enumerate(dims) if extent != 1)


def keeps_order(permutation, dims) -> bool:
    """Whether a transpose moves only dimensions of size 1, so that it is a reshape."""
    moved = [d for d in permutation if dims[d] != 1]
    return moved == sorted(moved)
