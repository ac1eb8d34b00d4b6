"""Linear equations of integers within bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["Unknown", "has_solution"]

Unknown = tuple[int, int, int]  # its factor, its least and its greatest value
TRIES = 300  # values of unknowns that are tried


def has_solution(unknowns: Sequence[Unknown], total: int) -> bool | None:
    """Whether factor * unknown summed up may be a number; None where it is not found out."""
    ordered = sorted([one for one in unknowns if one[0]], key=lambda one: -abs(one[0]))
    if any(low > high for _, low, high in unknowns):
        return False
    if total % math.gcd(*[factor for factor, _, _ in ordered]) if ordered else total:
        return False
    # What the unknowns from each on may sum up to.
    least, most = [0], [0]
    for factor, low, high in reversed(ordered):
        least.append(least[-1] + min(factor * low, factor * high))
        most.append(most[-1] + max(factor * low, factor * high))
    least.reverse()
    most.reverse()
    tries = TRIES

    def solve(k: int, rest: int) -> bool | None:
        nonlocal tries
        if not least[k] <= rest <= most[k]:
            return False
        if k == len(ordered):
            return True
        factor, low, high = ordered[k]
        if k + 1 == len(ordered):
            return rest % factor == 0
        # Those for which the others can make up the rest.
        ends = [(rest - most[k + 1]) / factor, (rest - least[k + 1]) / factor]
        first, last = max(low, math.floor(min(ends))), min(high, math.ceil(max(ends)))
        unknown = False
        for value in range(first, last + 1):
            tries -= 1
            if tries < 0:
                return None
            found = solve(k + 1, rest - factor * value)
            if found:
                return True
            unknown = unknown or found is None
        return None if unknown else False

    return solve(0, total)
