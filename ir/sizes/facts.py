"""Assumptions about sizes, and inference from them.

A proof that a polynomial is nonnegative writes it as a combination, with positive factors, of expressions known to be
nonnegative and of terms with nonnegative intervals. Known inequalities are assumptions, or properties of an atom: for q
= a // b, b*q <= a <= b*q + b - 1. Each step adds one such inequality to cancel a term that could be negative, as in
Fourier-Motzkin elimination. The number of steps is limited: if they do not suffice, the question is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from hloom.ir.sizes import terms as t
from hloom.ir.sizes.bounds import bounds, of_monomial
from hloom.ir.sizes.terms import Atom, Extremum, Monomial, Quotient, Symbol, Terms

__all__ = ["INTERVALS", "NONE", "Facts"]

DEPTH = 4  # inequalities in a proof
TRIED = 128  # steps of one proof


class Facts:
    """Nonnegative polynomials, and nonzero polynomials. Immutable."""

    __slots__ = ("_known", "nonnegative", "nonzero")

    def __init__(self, nonnegative: Iterable[Terms] = (), nonzero: Iterable[Terms] = ()):
        self.nonnegative = tuple(dict.fromkeys(nonnegative))
        self.nonzero = tuple(dict.fromkeys(nonzero))
        self._known: dict[Terms, bool] = {}

    def __bool__(self) -> bool:
        return bool(self.nonnegative or self.nonzero)

    def with_nonnegative(self, *more: Terms) -> Facts:
        return Facts((*self.nonnegative, *more), self.nonzero)

    def with_nonzero(self, *more: Terms) -> Facts:
        return Facts(self.nonnegative, (*self.nonzero, *more))

    def joined(self, other: Facts) -> Facts:
        """The union; one of them itself if the other is empty."""
        if self is other or not other:
            return self
        return other if not self else Facts(self.nonnegative + other.nonnegative, self.nonzero + other.nonzero)

    def lows(self) -> dict[Symbol, int]:
        """Lower bounds of symbols that are assumed directly."""
        found: dict[Symbol, int] = {}
        for terms in self.nonnegative:
            (monomial, factor), *rest = terms
            if len(monomial) == 1 and isinstance(monomial[0], Symbol) and factor > 0 and not any(m for m, _ in rest):
                low = -(t.constant_of(tuple(rest)) // factor)
                found[monomial[0]] = max(low, found.get(monomial[0], monomial[0].low))
        return {symbol: low for symbol, low in found.items() if low > symbol.low}

    def is_nonnegative(self, terms: Terms) -> bool | None:
        """Whether a polynomial is at least 0 for all sizes (True), for none (False), or it is not known (None)."""
        if self._proves(terms):
            return True
        return False if self._proves(t.minus(t.number(-1), terms)) else None

    def is_zero(self, terms: Terms) -> bool | None:
        """Whether a polynomial is 0 for all sizes (True), for none (False), or it is not known (None)."""
        if not terms:
            return True
        factors = math.gcd(*[factor for monomial, factor in terms if monomial])
        if factors == 0 or t.constant_of(terms) % factors:
            return False  # a number, or all terms but the constant have a factor that the constant lacks
        if any(terms in (one, t.scaled(one, -1)) for one in self.nonzero):
            return False
        above, below = self.is_nonnegative(terms), self.is_nonnegative(t.scaled(terms, -1))
        if above is False or below is False:
            return False
        if above and below:
            return True
        if above or below:  # not 0, so at least 1
            beyond = t.plus(t.scaled(terms, 1 if above else -1), t.number(-1))
            return False if self._proves(beyond) else None
        return None

    def _proves(self, terms: Terms) -> bool:
        if bounds(terms)[0] >= 0:
            return True
        known = self._known.get(terms)
        if known is None:
            known = self._known[terms] = _Proof(self.nonnegative).holds(terms, DEPTH)
        return known


class _Proof:
    def __init__(self, nonnegative: tuple[Terms, ...]):
        self.nonnegative = nonnegative
        self.left = TRIED

    def holds(self, terms: Terms, depth: int) -> bool:
        if bounds(terms)[0] >= 0:
            return True
        if depth == 0 or self.left <= 0:
            return False
        self.left -= 1
        shared = [atom for atom in (terms[0][0] if len(terms) > 1 else ()) if all(atom in m for m, _ in terms)]
        for atom in shared:
            if bounds(t.of(atom))[0] >= 0 and self.holds(_over(terms, atom), depth):
                return True
        for atom in [m[0] for m, _ in terms if len(m) == 1 and isinstance(m[0], Extremum)]:
            if all(self._case(terms, atom, operand, depth - 1) for operand in atom.operands):  # it is one of them
                return True
        for monomial, factor in _to_cancel(terms):
            for one in self._about(terms):
                amount = dict(one).get(monomial, 0)
                if amount * factor > 0:
                    common = math.gcd(amount, factor)
                    times = abs(amount) // common
                    rest = t.plus(t.scaled(terms, times), one, -abs(factor) // common)
                    # An integer x is nonnegative if k*x > -k.
                    if self.holds(_divided(t.plus(rest, t.number(times - 1))), depth - 1):
                        return True
        return False

    def _case(self, terms: Terms, atom: Extremum, operand: Terms, depth: int) -> bool:
        """Whether it holds if an extremum is this one of its operands, with the others not beyond it."""
        others = [other for other in atom.operands if other != operand]
        known = [t.minus(other, operand) if atom.kind == "min" else t.minus(operand, other) for other in others]
        inner = _Proof((*self.nonnegative, *known))
        inner.left = self.left
        found = inner.holds(_replaced(terms, atom, operand), depth)
        self.left = inner.left
        return found

    def _about(self, terms: Terms) -> list[Terms]:
        found = list(self.nonnegative)
        for atom in dict.fromkeys(t.atoms(terms)):
            found += _of_atom(atom)
        return found


def _to_cancel(terms: Terms) -> list[tuple[Monomial, int]]:
    """The terms that an inequality may cancel: an unbounded one must be cancelled; for others an inequality may be
    tighter than the bounds."""
    found = [(monomial, factor) for monomial, factor in terms if monomial]
    for monomial, factor in found:
        if min(end * factor for end in of_monomial(monomial)) == -math.inf:
            return [(monomial, factor)]
    return found


def _over(terms: Terms, atom: Atom) -> Terms:
    """The polynomial divided by an atom common to all its terms."""
    return t.ordered({t.without(monomial, (atom,)) or (): factor for monomial, factor in terms})


def _replaced(terms: Terms, atom: Extremum, operand: Terms) -> Terms:
    """The polynomial with an extremum that is a separate term replaced by an operand."""
    factor = dict(terms)[(atom,)]
    return t.plus(t.plus(terms, t.of(atom), -factor), operand, factor)


def _divided(terms: Terms) -> Terms:
    """The polynomial divided by the common factor of all its terms but the constant, which is rounded down: equivalent
    for integers."""
    common = math.gcd(*[factor for monomial, factor in terms if monomial])
    if common < 2:
        return terms
    return tuple([(m, factor // common) for m, factor in terms if factor // common])


@lru_cache(maxsize=1024)
def _of_atom(atom: Atom) -> list[Terms]:
    """The nonnegative expressions that follow from the definition of an atom."""
    one = t.of(atom)
    if isinstance(atom, Quotient) and bounds(atom.divisor)[0] >= 1:
        rest = t.minus(atom.numerator, t.times(atom.divisor, one))
        return [rest, t.plus(t.minus(atom.divisor, rest), t.number(-1))]
    if isinstance(atom, Extremum):
        pairs = [(operand, one) if atom.kind == "min" else (one, operand) for operand in atom.operands]
        return [t.minus(*pair) for pair in pairs]
    return []


NONE = Facts()


class _Intervals(Facts):
    """Decision by intervals, without a proof."""

    __slots__ = ()

    def _proves(self, terms: Terms) -> bool:
        return bounds(terms)[0] >= 0


INTERVALS = _Intervals()
