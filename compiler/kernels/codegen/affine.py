"""Affine index expressions: a constant plus integer multiples of index variables.

A variable is a domain dimension (an int, 0 the outermost) or the name of an index that the kernel computes (a str).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Variable = int | str


class Affine:
    """constant + sum of coefficient * variable. Immutable and hashable."""

    __slots__ = ("constant", "terms", "_hash")

    def __init__(self, constant: int = 0, terms: Mapping[Variable, int] | None = None):
        self.constant = constant
        self.terms = {v: c for v, c in (terms or {}).items() if c}
        self._hash = hash((constant, frozenset(self.terms.items())))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other) -> bool:
        return isinstance(other, Affine) and self.constant == other.constant and self.terms == other.terms

    def __add__(self, other: Affine | int) -> Affine:
        if not isinstance(other, Affine):
            return Affine(self.constant + other, self.terms)
        terms = dict(self.terms)
        for variable, coefficient in other.terms.items():
            terms[variable] = terms.get(variable, 0) + coefficient
        return Affine(self.constant + other.constant, terms)

    def __mul__(self, factor: int) -> Affine:
        return Affine(self.constant * factor, {v: c * factor for v, c in self.terms.items()})

    def __repr__(self) -> str:
        return " + ".join([str(self.constant), *(f"{c}*{v}" for v, c in self.terms.items())])


Index = tuple[Affine, ...]
ZERO = Affine()


def variables(dims: Sequence[int]) -> Index:
    """The index of a domain: one variable per dimension, 0 where its size is 1."""
    return tuple(Affine(0, {k: 1}) if extent != 1 else ZERO for k, extent in enumerate(dims))


def row_major_strides(dims: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a contiguous array."""
    return tuple(math.prod(dims[k + 1 :]) for k in range(len(dims)))


def linear(index: Index, dims: Sequence[int]) -> Affine:
    """The position of an index in a contiguous array of these dimensions."""
    total = ZERO
    for affine, stride in zip(index, row_major_strides(dims), strict=True):
        total = total + affine * stride
    return total


def merge_groups(dims: Sequence[int], used: Sequence[Affine], barriers: Sequence[int] = ()) -> list[list[int]]:
    """Neighbouring dimensions that every affine expression walks through as if they were one.

    Dimensions of size 1 are left out. `barriers`: dimensions that, as all after them, must not be merged with those
    before them.
    """
    groups: list[list[int]] = []
    for k, extent in enumerate(dims):
        if extent == 1:
            continue
        if (
            groups
            and not any(groups[-1][-1] < b <= k for b in barriers)
            and all(a.terms.get(groups[-1][-1], 0) == a.terms.get(k, 0) * extent for a in used)
        ):
            groups[-1].append(k)
        else:
            groups.append([k])
    return groups
