"""Which comprehensions of a program are loops, and the arrays that these fill."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom import numpy as hnp
from hloom.njit.items import Items, Range, has_count
from hloom.njit.values import Array, Number, Value, as_value, changes, dtype_of

__all__ = ["LONG", "first", "is_long", "room"]

LONG = 64  # elements up to which a comprehension is computed as Python does, one element after the other
_OF_NUMPY = frozenset(
    (np.array, np.asarray, np.stack, np.vstack, np.sum, np.prod, np.mean, np.std, np.var, np.median, np.max, np.min,
     np.amax, np.amin, np.any, np.all, np.argmax, np.argmin, np.cumsum, np.sort, np.argsort)
)  # fmt: skip
_FOLDS = frozenset((builtins.sum, builtins.any, builtins.all, builtins.max, builtins.min))
_NUMBERS = (bool, int, float, complex, np.generic)
_SIZED = (range, Array, np.ndarray, Items)


class _Empty(Exception):
    """There is no first element."""


def first(items: Any) -> list:
    """The first element, as what a loop goes over."""
    if not len(items):
        raise _Empty
    return [as_value(items)[0] if isinstance(items, np.ndarray) else items[0]]


def is_long(function: Any, items: Any, element: Callable[[], Any] | None) -> bool:
    """Whether a loop computes `function(... for ... in items)`: of many elements, or if it decides by traced numbers.
    element: the first one; None: a condition may leave it out."""
    if function not in _FOLDS or not isinstance(items, (Range, *_SIZED)):
        return False
    decides, may_be_empty = function is not builtins.sum, function not in (builtins.max, builtins.min)
    if isinstance(items, Range) or _is_counted(items) or element is None:
        return may_be_empty
    try:
        found = _tried(element)
    except _Empty:
        return may_be_empty and len(items) > 0
    if decides and isinstance(found, Value):
        return True
    return len(items) > LONG and isinstance(found, (Number, *_NUMBERS))


def room(function: Any, rows: Sequence[Sequence[Any]], element: Callable[[], Any]) -> Array | None:
    """The array that loops fill for `function([... for ... in ...])`; None: they do not. rows: for each of its
    dimensions, what is gone over."""
    every = [items for row in rows for items in row]
    if (
        not callable(function)
        or function not in _OF_NUMPY
        or not all(isinstance(items, _SIZED) and not _is_counted(items) for items in every)
    ):
        return None
    dims = [math.prod(map(len, row)) for row in rows]
    if math.prod(dims) <= LONG:
        return None
    found = _tried(element)
    own: tuple[int, ...] = ()
    if isinstance(found, (tuple, list)):
        if not all(isinstance(part, (Number, *_NUMBERS)) for part in found):
            return None
        parts = [as_value(part) for part in found]
        own, dtype = (len(parts),), np.result_type(*map(dtype_of, parts))
    else:
        if not isinstance(found, (Value, np.ndarray, *_NUMBERS)):
            return None
        value = as_value(found)
        own, dtype = value.shape if isinstance(value, Array) else (), dtype_of(value)
    return Array.of(hnp.zeros((*dims, *own), dtype))


def _is_counted(items: Any) -> bool:
    """Whether the program computes how many elements there are."""
    return has_count(items) or (isinstance(items, Array) and items.layout is None)


def _tried(element: Callable[[], Any]) -> Any:
    """The first element; None if it changes an array or draws a random number, which is taken back."""
    with changes() as found:
        value = element()
    if not found.changed:
        return value
    found.take_back()
    return None
