"""What loops of a NumPy program go over: ranges of traced numbers, and several arrays at once."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from hloom import lax
from hloom import numpy as hnp
from hloom.ir.records import record
from hloom.ir.sizes.expressions import highest
from hloom.njit.values import Array, Number, Undecided, converted

__all__ = ["Counted", "Items", "Range", "counted", "has_count", "range_of"]


@record(frozen=True, eq=False)
class Range:
    """`range` of numbers of which some are traced."""

    start: Any
    stop: Any
    step: Any

    def _known(self, *_: Any) -> NoReturn:
        raise Undecided("the bounds of a range")

    __iter__ = __len__ = __contains__ = __getitem__ = __reversed__ = _known


def range_of(args: tuple) -> Range:
    """`range(...)` of such numbers."""
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    return Range(start, stop, step)


@record(frozen=True, eq=False)
class Counted:
    """The first `count` rows of an array: one whose size the program computes, in memory of a known size."""

    array: Array
    count: Number


def counted(items: Any) -> Any:
    """What a loop goes over, with arrays of computed sizes as such."""
    if not isinstance(items, Array) or items.layout is not None or isinstance(items.shape[0], int):
        return items
    value = items.traced
    most = highest(value.shape[0])
    assert isinstance(most, int)
    ones = hnp.ones_like(value[(slice(None), *[0] * (value.ndim - 1))], dtype=np.int64)
    at = lax.broadcasted_iota(np.int32, value.shape[:1], 0)
    padded = hnp.zeros((most, *value.shape[1:]), value.dtype).at[at].set(value)
    return Counted(Array.of(padded), Number(hnp.sum(ones), int, (0, most)))


class Items:
    """What a loop goes over: `enumerate`, `zip` or `reversed` of arrays, `np.ndindex`, `np.ndenumerate`. Each element
    is taken when it is asked for.

    function, args: the call; a start of `enumerate` is always among them, and so are the sizes of `np.ndenumerate`.
    count: how many there are, of at most `length`, if the program computes it; or None.
    """

    count: Any = None

    def __init__(self, function: Any, args: tuple, kwargs: Mapping[str, Any]):
        if function in (np.ndindex, np.ndenumerate):
            dims = args if function is np.ndindex else args[0].shape
            self.function, self.dims, self.length = function, dims, math.prod(dims)
            self.args = args if function is np.ndindex else (args[0], *dims)
            return
        parts = args[: 1 if function is enumerate else None]
        lengths = [len(a.array if isinstance(a, Counted) else a) for a in parts]
        counts = [a.count for a in parts if isinstance(a, (Counted, Items)) and a.count is not None]
        if counts:
            known = [np.int64(min(lengths)), *[converted(n, np.dtype(np.int64)) for n in counts]]
            self.count = Number(functools.reduce(hnp.minimum, known), int, (0, min(lengths)))
        if kwargs.get("strict") and len(set(lengths)) > 1:
            raise ValueError("zip() arguments have different lengths")
        if function is enumerate and len(args) == 1:
            args = (*args, kwargs.get("start", 0))
        self.function, self.args, self.length = function, args, min(lengths, default=0)

    def take(self, k: Any) -> Any:
        """The element at an index, which may be traced."""
        if self.function in (np.ndindex, np.ndenumerate):
            index = tuple([int(i) for i in np.unravel_index(k, self.dims)]) if self.dims else ()
            return index if self.function is np.ndindex else (index, self.args[0][index])
        if self.function is zip:
            return tuple([_element(a, k) for a in self.args])
        if self.function is reversed:
            return _element(self.args[0], (self.length if self.count is None else self.count) - 1 - k)
        return self.args[1] + k, _element(self.args[0], k)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, k: int) -> Any:
        if not -self.length <= k < self.length:
            raise IndexError(k)
        return self.take(k % self.length)

    def __iter__(self):
        return (self.take(k) for k in range(self.length))


def has_count(items: Any) -> bool:
    """Whether the program computes how many elements a loop goes over, of which some exist."""
    return isinstance(items, Counted) or (isinstance(items, Items) and items.count is not None)


def _element(items: Any, k: Any) -> Any:
    if isinstance(items, Counted):
        return items.array[k]
    if isinstance(items, Items):
        return items.take(k)
    return items.start + items.step * k if isinstance(items, range) else items[k]
