"""What loops of a NumPy program go over: ranges of traced numbers, and several arrays at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hloom.ir.records import record

__all__ = ["Items", "Range", "range_of"]


@record(frozen=True, eq=False)
class Range:
    """`range` of numbers of which some are traced."""

    start: Any
    stop: Any
    step: Any


def range_of(args: tuple) -> Range:
    """`range(...)` of such numbers."""
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    return Range(start, stop, step)


class Items:
    """What a loop goes over: `enumerate`, `zip` or `reversed` of arrays. Each element is taken when it is asked for."""

    def __init__(self, length: int, take: Callable[[int], Any]):
        self.length, self.take = length, take

    @classmethod
    def of(cls, function: Any, args: tuple, kwargs: Mapping[str, Any]) -> Items:
        """A call of one of these functions of Python."""
        lengths = [len(a) for a in args[: 1 if function is enumerate else None]]
        length = min(lengths, default=0)
        if function is zip:
            if kwargs.get("strict") and len(set(lengths)) > 1:
                raise ValueError("zip() arguments have different lengths")
            return cls(length, lambda k: tuple([a[k] for a in args]))
        if function is reversed:
            return cls(length, lambda k: args[0][length - 1 - k])
        start = args[1] if len(args) > 1 else kwargs.get("start", 0)
        return cls(length, lambda k: (start + k, args[0][k]))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, k: int) -> Any:
        if not -self.length <= k < self.length:
            raise IndexError(k)
        return self.take(k % self.length)

    def __iter__(self):
        return (self.take(k) for k in range(self.length))
