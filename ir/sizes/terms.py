"""Polynomials with integer coefficients over atoms, the representation of sizes.

`Terms` are a sum of products of atoms in canonical order: polynomials that are equal by the ring axioms are equal
tuples. Atoms are symbols (named dimensions), floor quotients, and the minimum or maximum of several polynomials. A
number is a term without atoms; the empty sum is 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from hloom.ir.errors import ShapeError

__all__ = ["Atom", "Extremum", "Monomial", "Quotient", "Symbol", "Terms"]


class Symbol:
    """A named dimension in units of its multiple: a dimension that is a multiple of 8 is 8 times its symbol.

    low, high: bounds of the symbol, not of the dimension. scope: additional facts, an object with `facts`, or None.
    Symbols of different scopes are distinct.
    """

    __slots__ = ("_hash", "high", "key", "low", "multiple", "name", "scope")

    def __init__(self, name: str, low: int, high: int, multiple: int, scope: Any = None):
        self.name, self.low, self.high, self.multiple, self.scope = name, low, high, multiple, scope
        self.key = (0, name, low, high, multiple, id(scope))
        self._hash = hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and self.key == other.key

    def __hash__(self) -> int:
        return self._hash

    def at(self, sizes: Mapping[str, int]) -> int:
        return sizes[self.name] // self.multiple

    def parts(self) -> tuple[Terms, ...]:
        return ()


class Quotient:
    """A floor quotient that no rule simplifies."""

    __slots__ = ("_hash", "divisor", "key", "numerator")

    def __init__(self, numerator: Terms, divisor: Terms):
        self.numerator, self.divisor = numerator, divisor
        self.key = (1, key(numerator), key(divisor))
        self._hash = hash((1, hash_of(numerator), hash_of(divisor)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quotient) and self.key == other.key

    def __hash__(self) -> int:
        return self._hash

    def at(self, sizes: Mapping[str, int]) -> int:
        divisor = at(self.divisor, sizes)
        if divisor == 0:
            raise ShapeError("a size that is a quotient", "its divisor is 0", "pass arrays that are not empty")
        return at(self.numerator, sizes) // divisor

    def parts(self) -> tuple[Terms, ...]:
        return self.numerator, self.divisor


class Extremum:
    """The minimum (`min`) or maximum (`max`) of several polynomials, in canonical order."""

    __slots__ = ("_hash", "key", "kind", "operands")

    def __init__(self, kind: str, operands: Iterable[Terms]):
        self.kind, self.operands = kind, tuple(sorted(operands, key=key))
        self.key = (2, kind, tuple(map(key, self.operands)))
        self._hash = hash((2, kind, tuple(map(hash_of, self.operands))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extremum) and self.key == other.key

    def __hash__(self) -> int:
        return self._hash

    def at(self, sizes: Mapping[str, int]) -> int:
        return (min if self.kind == "min" else max)(at(one, sizes) for one in self.operands)

    def parts(self) -> tuple[Terms, ...]:
        return self.operands


Atom: TypeAlias = Symbol | Quotient | Extremum
Monomial: TypeAlias = tuple[Atom, ...]  # ordered by key
Terms: TypeAlias = tuple[tuple[Monomial, int], ...]  # products of more atoms first; no coefficient is 0
ZERO: Terms = ()


def key(terms: Terms) -> tuple:
    """A sort key of polynomials; its elements are numbers, strings and tuples at the same positions."""
    return tuple([(-len(monomial), tuple([atom.key for atom in monomial]), factor) for monomial, factor in terms])


def hash_of(terms: Terms) -> int:
    """The hash of a polynomial. A dict compares sizes with equal hashes, which may be undecided; since hash(-1) is
    hash(-2), doubled factors are hashed."""
    return hash(tuple([(monomial, 2 * factor) for monomial, factor in terms]))


def number(value: int) -> Terms:
    return (((), value),) if value else ZERO


def of(atom: Atom, factor: int = 1) -> Terms:
    return (((atom,), factor),)


def value_of(terms: Terms) -> int | None:
    """The number of a constant polynomial; None if it has atoms."""
    if not terms:
        return 0
    return terms[0][1] if not terms[0][0] else None


def constant_of(terms: Terms) -> int:
    """The term without atoms."""
    return terms[-1][1] if terms and not terms[-1][0] else 0


def ordered(found: Mapping[Monomial, int]) -> Terms:
    kept = [(monomial, factor) for monomial, factor in found.items() if factor]
    if len(kept) > 1:
        kept.sort(key=lambda term: (-len(term[0]), [atom.key for atom in term[0]]))
    return tuple(kept)


def plus(left: Terms, right: Terms, factor: int = 1) -> Terms:
    """left + factor * right."""
    found = dict(left)
    for monomial, amount in right:
        found[monomial] = found.get(monomial, 0) + factor * amount
    return ordered(found)


def minus(left: Terms, right: Terms) -> Terms:
    return plus(left, right, -1)


def scaled(terms: Terms, factor: int) -> Terms:
    return tuple([(monomial, amount * factor) for monomial, amount in terms]) if factor else ZERO


def times(left: Terms, right: Terms) -> Terms:
    found: dict[Monomial, int] = {}
    for first, one in left:
        for second, two in right:
            monomial = tuple(sorted(first + second, key=_order))
            found[monomial] = found.get(monomial, 0) + one * two
    return ordered(found)


def _order(atom: Atom) -> tuple:
    return atom.key


def without(monomial: Monomial, other: Monomial) -> Monomial | None:
    """A product divided by another; None if it is not divisible."""
    left = list(monomial)
    for atom in other:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def at(terms: Terms, sizes: Mapping[str, int]) -> int:
    """The value for sizes of the dimensions, by name. Raises ShapeError for a quotient by 0."""
    return sum([factor * math.prod([atom.at(sizes) for atom in monomial]) for monomial, factor in terms])


def atoms(terms: Terms) -> Iterator[Atom]:
    """All atoms, including nested ones."""
    for monomial, _ in terms:
        for atom in monomial:
            yield atom
            for part in atom.parts():
                yield from atoms(part)


def symbols(terms: Terms) -> dict[str, Symbol]:
    """The named dimensions."""
    return {atom.name: atom for atom in atoms(terms) if isinstance(atom, Symbol)}
