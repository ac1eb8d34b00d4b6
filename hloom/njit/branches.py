"""What the two sides of a branch of a NumPy program make, and what names hold after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hloom.errors import UnsupportedError
from hloom.njit.arguments.instances import Packed, instance_of, node_of
from hloom.njit.library.called import kind
from hloom.njit.rewriting import Loop
from hloom.njit.values import KINDS, Array, Memory, Number, Unbound, Value, as_value, converted, dtype_of

__all__ = ["LEAF", "Join", "Leaves", "common_dtypes", "other_kinds"]


class Leaves:
    """The numbers and arrays in the results of a branch. tree: with None in their place; Python values stay."""

    def __init__(self, tree: Any, values: list[Any]):
        self.tree, self.values = tree, values

    @classmethod
    def of(cls, found: Any) -> Leaves:
        values: list[Any] = []

        def walk(part: Any) -> Any:
            if isinstance(part := node_of(part), Packed):
                return part.map(walk)
            if isinstance(part, (tuple, list)):
                return type(part)([walk(p) for p in part])
            if isinstance(part, (Value, np.ndarray, np.generic, bool, int, float, complex)):
                values.append(as_value(part))
                return LEAF
            return part

        return cls(walk(found), values)

    def traced(self, dtypes: list[np.dtype] | None) -> list[Any]:
        asked = dtypes or [dtype_of(v) for v in self.values]
        return [converted(v, dtype) for v, dtype in zip(self.values, asked, strict=False)]


LEAF = object()


def common_dtypes(first: Leaves | None, second: Leaves | None) -> list[np.dtype] | None:
    """The common dtypes of the results of two branches."""
    if first is None or second is None or len(first.values) != len(second.values):
        return None
    return [np.result_type(kind(a), kind(b)) for a, b in zip(first.values, second.values, strict=True)]


def other_kinds(loop: Loop, wanted: Sequence[str], sides: Iterable[Leaves]) -> UnsupportedError:
    """The error for a name, or the result, that is a number or an array on one side of a branch only."""
    results = [side.tree[0] for side in sides]  # beside the contents of containers
    trees = [found if isinstance(found, (tuple, list)) else () for found in results]
    names = [f"'{n}'" for n, *p in zip(wanted, *trees, strict=False) if len({part is LEAF for part in p}) > 1]
    error = UnsupportedError(
        "a branch on a value that the program computes",
        f"{names[0] if names else 'its result'} is a number or an array on one side, and something else, such as None, "
        "on the other", "use numbers or arrays on both sides",
    )  # fmt: skip
    error.source = loop.source
    return error


class Join:
    """The values of the names after a branch. results: of the leaves. shared: Refs of arrays from before it."""

    def __init__(self, first: Leaves, second: Leaves, results: list[Any], loop: Loop, shared: dict[int, Memory]):
        self.pairs = iter(zip(first.values, second.values, results, strict=True))
        self.loop, self.shared = loop, shared
        self.refs = [Counter(id(v.ref) for v in side.values if isinstance(v, Array)) for side in (first, second)]
        self.found = self.of(first.tree, second.tree)

    def of(self, one: Any, other: Any) -> Any:
        if one is LEAF and other is LEAF:
            return self._leaf(*next(self.pairs))
        for value in (one, other):
            if isinstance(value, Unbound):
                return value
        if isinstance(one, Packed) and one.is_like(other):
            return instance_of(one.map(self.of, other))
        if isinstance(one, (tuple, list)) and type(one) is type(other) and len(one) == len(other):
            return type(one)([self.of(a, b) for a, b in zip(one, other, strict=True)])
        if one is other or (LEAF not in (one, other) and one == other):
            return one
        raise UnsupportedError("a branch on a traced value", f"its sides make {one!r} and {other!r}",
                               "make numbers or arrays of one shape in both", self.loop.source)  # fmt: skip

    def _leaf(self, a: Any, b: Any, value: Any) -> Value:
        if not isinstance(a, Array) and not isinstance(b, Array):
            python = {v.python if isinstance(v, Number) else type(v) for v in (a, b)}
            return Number(value, None if None in python else KINDS[np.dtype(value.dtype).kind])
        if isinstance(a, Array) and isinstance(b, Array) and a.is_same(b):
            return a
        refs = [id(v.ref) for v in (a, b) if isinstance(v, Array)]
        origins = [self.shared[ref] for ref in refs if ref in self.shared]
        if origins or any(counts[ref] > 1 for counts in self.refs for ref in refs):
            return Array.one_of(value, "a branch decides which array it is", origins)
        return Array.of(value)
