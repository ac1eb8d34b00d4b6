"""Memory of donated arguments: what others refer to too is copied before a program writes over it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hloom.runtime.buffer import is_exclusive, references


def is_shared(arrays: Sequence, position: int, holders: int) -> bool:
    """Whether something else than `holders` references, the list's included, leads to the memory of an element of a
    list: a view, another array or another library. The element is a NumPy array or an array on a device."""
    if isinstance(arrays[position], np.ndarray):
        return not is_exclusive(arrays[position], holders)
    return arrays[position].is_lent() or references(arrays, position) > holders


def copy_shared(arrays: list, donated: Iterable[int]) -> None:
    """Replaces the donated elements of a list by copies where something besides the list refers to their memory."""
    for k in donated:
        if is_shared(arrays, k, 1):
            arrays[k] = arrays[k].copy()
