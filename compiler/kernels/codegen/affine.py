"""Indices of a kernel's domain, as affine expressions.

A variable is a dimension of the domain (an int, 0 the outermost) or the name of an index that the kernel computes (a
str).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hloom.compiler.kernel_ir.affine.sums import Affine

__all__ = ["ZERO", "Affine", "Index", "Variable", "linear", "merge_groups", "row_major_strides", "variables"]

Variable = int | str
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
