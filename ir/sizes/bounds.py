"""Interval arithmetic: bounds of a polynomial's values from the bounds of its symbols alone."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TypeAlias

from hloom.ir.sizes.terms import Atom, Extremum, Monomial, Symbol, Terms

__all__ = ["Interval", "bounds", "of_monomial"]

Bound: TypeAlias = int | float  # an integer, or an infinity
Interval: TypeAlias = tuple[Bound, Bound]
EVERYTHING: Interval = (-math.inf, math.inf)


@lru_cache(maxsize=4096)
def bounds(terms: Terms) -> Interval:
    """(minimum, maximum); infinite if unbounded. The interval contains all values, but may be larger than their
    range."""
    if len(terms) > 1 and (common := _common(terms)):
        rest = tuple([(_without(monomial, common), factor) for monomial, factor in terms])
        return _times(of_monomial((common,)), bounds(rest))
    low: Bound = 0
    high: Bound = 0
    for monomial, factor in terms:
        least, most = of_monomial(monomial)
        ends = (least * factor, most * factor)
        low, high = low + min(ends), high + max(ends)
    return low, high


def _common(terms: Terms) -> Atom | None:
    """An atom common to all terms: n*m - n is n times m - 1, which yields tighter bounds than the terms."""
    return next((atom for atom in terms[0][0] if all(atom in monomial for monomial, _ in terms)), None)


def _without(monomial: Monomial, atom: Atom) -> Monomial:
    k = monomial.index(atom)
    return monomial[:k] + monomial[k + 1 :]


@lru_cache(maxsize=4096)
def of_monomial(monomial: Monomial) -> Interval:
    found: Interval = (1, 1)
    k = 0
    while k < len(monomial):
        power = monomial.count(monomial[k])  # equal atoms are adjacent
        found = _times(found, _raised(_of_atom(monomial[k]), power))
        k += power
    return found


def _raised(interval: Interval, power: int) -> Interval:
    low, high = interval[0] ** power, interval[1] ** power
    if power % 2 == 0:
        return (0 if interval[0] <= 0 <= interval[1] else min(low, high)), max(low, high)
    return low, high


def _times(left: Interval, right: Interval) -> Interval:
    ends = [0 if a == 0 or b == 0 else a * b for a in left for b in right]  # 0 * inf is 0: no size is infinite
    return min(ends), max(ends)


@lru_cache(maxsize=4096)
def _of_atom(atom: Atom) -> Interval:
    if isinstance(atom, Symbol):
        return atom.low, atom.high
    parts = [bounds(part) for part in atom.parts()]
    if isinstance(atom, Extremum):
        choose = min if atom.kind == "min" else max
        return choose(low for low, _ in parts), choose(high for _, high in parts)
    (low, high), (least, most) = parts
    if least < 1:
        return EVERYTHING
    ends = [_floor(n, d) for n in (low, high) for d in (least, most)]
    return min(ends), max(ends)


def _floor(numerator: Bound, divisor: Bound) -> Bound:
    if divisor == math.inf:
        return 0 if numerator >= 0 else -1
    return numerator // divisor if abs(numerator) < math.inf else numerator
