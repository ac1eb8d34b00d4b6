"""Conditions that a program checks when it runs: indices within arrays, masks that select as many elements as are
stored."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from hloom import numpy as hnp
from hloom.ir.source import Source, current_source
from hloom.kernels.faults import watch
from hloom.kernels.frontend.memory import FAULT_BITS, Check

__all__ = ["checked", "require", "stored_where", "watching"]

# Called with a name, a key, checks and their fault: see `hloom.kernels.faults.watch`.
watching: ContextVar[Callable] = ContextVar("watching", default=watch)


def checked(index: Any, axis: int, size: Any, between: tuple[int, int] | None = None) -> Any:
    """Indices from 0 on. Where one is out of range, the program raises an error at the user's line.

    between: the least and the greatest.
    """
    index = index.astype(np.int64)
    if between is not None and isinstance(size, int) and -size <= between[0] and between[1] < size:
        return index if between[0] >= 0 else hnp.where(index < 0, index + size, index)
    found = hnp.where(index < 0, index + size, index)
    if not isinstance(size, int) or 0 in index.shape:
        return found
    flat = index.reshape(-1)
    outside = (flat < -size) | (flat >= size)
    first = flat[hnp.argmax(outside)] if len(flat) > 1 else flat[0]
    number = (first & np.int64((1 << FAULT_BITS) - 1)) | np.int64(1 << FAULT_BITS)
    fault = hnp.where(outside.any(), number, np.int64(0)).reshape(1)
    source = current_source() or Source("", 0, "")
    checks = (Check(f"index of axis {axis}", size, source),)
    watching.get()(source.function, f"index.{axis}.{size}.{source}", checks, fault)
    return found


def stored_where(whole: Any, index: Any, value: Any) -> Any:
    """`whole[index] = value`, where the index has one mask and the value an element for each that it selects: the k-th
    selected element becomes the k-th of the value. None for other indices and values."""
    entries = list(index) if isinstance(index, tuple) else [index]
    at = next((k for k, e in enumerate(entries) if getattr(e, "ndim", 0) and e.dtype == bool), None)
    if at is None or not all(k == at or e is Ellipsis or isinstance(e, (slice, int)) for k, e in enumerate(entries)):
        return None
    mask = hnp.asarray(entries[at])
    entries, at = _without_ellipsis(entries, at, whole.ndim - mask.ndim + 1)
    # The elements that the rest of the index leaves: the axes of the mask begin at `first`. Those that it selects are
    # an axis at its place, or in front where slices stand between it and numbers.
    rest = (*entries[:at], *[slice(None)] * mask.ndim, *entries[at + 1 :])
    first = sum(isinstance(e, slice) for e in entries[:at])
    advanced = [k for k, e in enumerate(entries) if not isinstance(e, slice)]
    place = first if advanced[-1] - advanced[0] == len(advanced) - 1 else 0
    part = whole[rest]
    rank = part.ndim - mask.ndim + 1
    own = value.ndim - rank + place  # the axis of the value
    if not 0 <= own or value.ndim > rank or part.shape[first : first + mask.ndim] != mask.shape:
        return None
    if not isinstance(count := value.shape[own], int):
        return None
    if count != 1:
        require(mask.sum() == count, "x[mask] = y with an element for each that the mask selects",
                f"the mask does not select {count}", "store as many elements as the mask selects")  # fmt: skip
    if not count:
        return whole
    axes, front = tuple(range(first, first + mask.ndim)), tuple(range(mask.ndim))
    moved = hnp.moveaxis(part, axes, front)
    wide = hnp.moveaxis(value.reshape((*[1] * (rank - value.ndim), *value.shape)), place, 0)
    ordinal = hnp.clip(hnp.cumsum(mask.reshape(-1).astype(np.int64)) - 1, 0, count - 1)
    stored = wide[ordinal].reshape((*mask.shape, *wide.shape[1:]))
    made = hnp.where(mask.reshape((*mask.shape, *[1] * (moved.ndim - mask.ndim))), stored, moved)
    return whole.at[rest].set(hnp.moveaxis(made, front, axes))


def _without_ellipsis(entries: list, at: int, count: int) -> tuple[list, int]:
    """(`count` entries of an index, the place of the one that is at `at`)."""
    k = next((k for k, e in enumerate(entries) if e is Ellipsis), len(entries))
    behind = entries[k + 1 :]
    full = [slice(None)] * (count - k - len(behind))
    return [*entries[:k], *full, *behind], at if at < k else at + len(full) - 1


def require(holds: Any, asked: str, found: str, repair: str) -> None:
    """Has the program raise ArgumentError at the user's line where a traced truth value is false."""
    source = current_source() or Source("", 0, "")
    fault = hnp.where(holds, np.int64(0), np.int64(1 << FAULT_BITS)).reshape(1)
    checks = (Check(found, None, source, asked, repair),)
    watching.get()(source.function, f"required.{asked}.{found}.{source}", checks, fault)
