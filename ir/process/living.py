"""Registry of the live objects of one kind."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

__all__ = ["Living"]


class Living(Generic[T]):
    """Weakly referenced objects. Threads may add objects while others iterate, for which `weakref.WeakSet` raises "Set
    changed size during iteration": iteration covers the objects alive at its start.
    """

    __slots__ = ("_references",)

    def __init__(self):
        self._references: dict[int, weakref.ref[T]] = {}

    def add(self, one: T) -> None:
        """Adds an object. It is removed before its memory is freed, so its id can serve as a key."""
        key, references = id(one), self._references
        references[key] = weakref.ref(one, lambda _: references.pop(key, None))

    def __iter__(self) -> Iterator[T]:
        for reference in list(self._references.values()):
            one = reference()
            if one is not None:
                yield one

    def __len__(self) -> int:
        return len(self._references)
