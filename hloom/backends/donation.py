"""Memory of donated arguments: shared memory is copied before a program overwrites it, and a warning names the
arguments that no result reuses."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import numpy as np

from hloom.errors import DonationWarning
from hloom.ir.module import Instruction
from hloom.ir.source import current_source, warn_while_compiling
from hloom.runtime.buffer import allocate, is_exclusive, references

_SHARED_OUT = 4 << 20  # bytes from which threads share a copy
_THREADS = 4  # more do not move more bytes


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
            arrays[k] = _copied(arrays[k]) if isinstance(arrays[k], np.ndarray) else arrays[k].copy()


def warn_of_unused(name: str, parameters: Sequence[Instruction], unused: Iterable[int]) -> None:
    """Warns of donated arguments, by number, whose memory no result of a program takes. Scalars, such as step counts,
    are ignored."""
    named = [f"{parameters[k].hint} {parameters[k].shape!r}" for k in sorted(unused) if parameters[k].shape.dims]
    if named:
        warn_while_compiling(
            f"Some donated buffers were not usable: arguments of '{name}' that no result could reuse: "
            f"{', '.join(named)}",
            DonationWarning,
            current_source(),
        )


def _copied(array: np.ndarray) -> np.ndarray:
    """A copy in recycled memory: pages that the system has to find first take several times as long as the copy."""
    fresh = allocate(array.shape, array.dtype)
    if array.nbytes < _SHARED_OUT or array.ndim == 0:
        np.copyto(fresh, array)
        return fresh
    size = -(-len(array) // _THREADS)
    parts = [slice(start, start + size) for start in range(0, len(array), size)]
    others = [threading.Thread(target=np.copyto, args=(fresh[part], array[part])) for part in parts[1:]]
    for thread in others:
        thread.start()
    np.copyto(fresh[parts[0]], array[parts[0]])
    for thread in others:
        thread.join()
    return fresh
