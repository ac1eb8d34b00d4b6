"""How tensors lie in memory: dense ones, in any order of their dimensions, are read and written as they are.

A program's parameter is the memory in the order in which it lies; a transposition, which costs nothing where it meets
another op, makes the tensor of it. Channels-last images are one case.
"""

from __future__ import annotations

from collections.abc import Sequence


def order_of(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The dimensions in the order in which they lie, the outermost first; None where the memory has gaps or is shared
    by elements. The identity for a contiguous tensor."""
    identity = tuple(range(len(sizes)))
    if 0 in sizes:
        return identity
    wide = [k for k in identity if sizes[k] > 1]
    wide.sort(key=lambda k: -strides[k])
    expected = 1
    for k in reversed(wide):
        if strides[k] != expected:
            return None
        expected *= sizes[k]
    if wide == sorted(wide):
        return identity
    return (*wide, *(k for k in identity if sizes[k] <= 1))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def is_identity(order: Sequence[int]) -> bool:
    return all(k == place for place, k in enumerate(order))


def contiguous_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor, in elements."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
