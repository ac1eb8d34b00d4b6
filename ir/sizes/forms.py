"""Quotients, extrema and substitution, in canonical form.

The rules are exact, for a positive number k:

    (k*x + r) // k = x + r // k            multiples of the divisor leave the quotient
    (g*x + c) // (g*k) = (x + c//g) // k   a factor of all terms but the constant is cancelled
    (x // j) // k = x // (j*k)             for a positive number j
    p*q // q = p                           for polynomials
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from hloom.ir.errors import ShapeError
from hloom.ir.sizes import facts
from hloom.ir.sizes import terms as t
from hloom.ir.sizes.bounds import bounds
from hloom.ir.sizes.terms import Atom, Extremum, Monomial, Quotient, Symbol, Terms

__all__ = ["extremum", "quotient", "replaced", "with_sizes"]


def quotient(numerator: Terms, divisor: Terms) -> Terms:
    """The floor quotient. Raises ShapeError for the divisor 0."""
    by = t.value_of(divisor)
    if by is None:
        return _by_polynomial(numerator, divisor)
    if by == 0:
        raise ShapeError("a size divided by 0", "the divisor of // and % is 0", "divide by a size of at least 1")
    return _by_number(numerator, by) if by > 0 else _by_number(t.scaled(numerator, -1), -by)


def _by_number(numerator: Terms, divisor: int) -> Terms:
    whole = t.ordered({monomial: factor // divisor for monomial, factor in numerator})
    rest = t.ordered({monomial: factor % divisor for monomial, factor in numerator})
    if t.value_of(rest) is not None:
        return whole  # the remainder is less than the divisor
    common = math.gcd(divisor, *[factor for monomial, factor in rest if monomial])
    if common > 1:
        rest = t.ordered({monomial: factor // common for monomial, factor in rest})  # rounds the constant down
        return t.plus(whole, _by_number(rest, divisor // common))
    if len(rest) == 1 and rest[0][1] == 1 and len(rest[0][0]) == 1:
        inner = rest[0][0][0]
        if isinstance(inner, Quotient) and (t.value_of(inner.divisor) or 0) > 0:
            return t.plus(whole, quotient(inner.numerator, t.scaled(inner.divisor, divisor)))
    low, high = bounds(rest)
    if abs(low) < math.inf and abs(high) < math.inf and low // divisor == high // divisor:
        return t.plus(whole, t.number(int(low // divisor)))
    return t.plus(whole, t.of(Quotient(rest, t.number(divisor))))


def _by_polynomial(numerator: Terms, divisor: Terms) -> Terms:
    if not numerator:
        return t.ZERO
    exact = _exact(numerator, divisor)
    if exact is not None:
        return exact
    if len(divisor) == 1 and divisor[0][1] > 0:  # a product: its multiples leave the quotient
        product, factor = divisor[0]
        whole: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, amount in numerator:
            left = t.without(monomial, product)
            if left is None:
                rest[monomial] = amount
            else:
                whole[left] = amount // factor
                rest[monomial] = amount % factor
        if any(whole.values()):
            return t.plus(t.ordered(whole), quotient(t.ordered(rest), divisor))
    if bounds(numerator)[0] >= 0 and bounds(t.minus(divisor, numerator))[0] > 0:
        return t.ZERO
    made = t.of(Quotient(numerator, divisor))
    low, high = bounds(made)
    return t.number(int(low)) if low == high else made


def _exact(numerator: Terms, divisor: Terms) -> Terms | None:
    """The exact quotient of numerator and divisor; None if there is none. Long division: the order of terms is graded
    lexicographic, so each step lowers the leading term."""
    lead, factor = divisor[0]
    result = t.ZERO
    while numerator:
        monomial, amount = numerator[0]
        left = t.without(monomial, lead)
        if left is None or amount % factor:
            return None
        part: Terms = ((left, amount // factor),)
        result, numerator = t.plus(result, part), t.minus(numerator, t.times(part, divisor))
    return result


def extremum(kind: str, operands: Iterable[Terms]) -> Terms:
    """The minimum ('min') or maximum ('max') of polynomials, without those that are never less (greater) than
    another."""
    flat: dict[Terms, None] = {}
    for one in operands:
        inner = _single(one)
        within = inner.operands if isinstance(inner, Extremum) and inner.kind == kind else (one,)
        flat |= dict.fromkeys(within)
    kept = list(flat)
    for one in list(flat):
        rest = [other for other in kept if other != one]
        beyond = [t.minus(one, other) if kind == "min" else t.minus(other, one) for other in rest]
        if any(facts.NONE.is_nonnegative(difference) for difference in beyond):
            kept = rest
    return kept[0] if len(kept) == 1 else t.of(Extremum(kind, kept))


def _single(terms: Terms) -> Atom | None:
    """The atom that a polynomial consists of; None if it is more."""
    if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1:
        return terms[0][0][0]
    return None


def with_sizes(terms: Terms, sizes: Mapping[str, Terms]) -> Terms:
    """The polynomial with named dimensions substituted, by name."""
    symbols = [symbol for symbol in t.symbols(terms).values() if symbol.name in sizes]
    return replaced(terms, {s: quotient(sizes[s.name], t.number(s.multiple)) for s in symbols})


def replaced(terms: Terms, mapping: Mapping[Symbol, Terms]) -> Terms:
    """The polynomial with symbols substituted."""
    if not mapping:
        return terms
    total = t.ZERO
    for monomial, factor in terms:
        product = t.number(factor)
        for atom in monomial:
            product = t.times(product, _replaced_atom(atom, mapping))
        total = t.plus(total, product)
    return total


def _replaced_atom(atom: Atom, mapping: Mapping[Symbol, Terms]) -> Terms:
    if isinstance(atom, Symbol):
        return mapping.get(atom, t.of(atom))
    parts = [replaced(part, mapping) for part in atom.parts()]
    return quotient(*parts) if isinstance(atom, Quotient) else extremum(atom.kind, parts)
