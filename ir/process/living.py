"""The objects of one kind that are alive, for what concerns all of them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

__all__ = ["Living"]


class Living(Generic[T]):
    """Objects, as long as others keep them. Threads may add some while others iterate, which `weakref.WeakSet` answers
    with "Set changed size during iteration": iterating is over those that were alive when it began.
    """

    __slots__ = ("_references",)

    def __init__(self):
        self._references: dict[int, weakref.ref[T]] = {}

    def add(self, one: T) -> None:
        """Notes an object. It is forgotten before its memory is given back, so its id is a key."""
        key, references = id(one), self._references
        references[key] = weakref.ref(one, lambda _: references.pop(key, None))

    def __iter__(self) -> Iterator[T]:
        for reference in list(self._references.values()):
            one = reference()
            if one is not None:
                yield one

    def __len__(self) -> int:
        return len(self._references)
