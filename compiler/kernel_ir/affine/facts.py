"""What is known of integers that a kernel computes: sums of symbols with integer factors, and the bounds of symbols.

A symbol stands for one value: a parameter, a loop's variable, a quotient, a minimum, an element of memory. Its bounds
are numbers and sums of symbols that are older than it, so that a bound of a sum is found by replacing its youngest
symbol, again and again. What a branch knows is assumed when it begins and taken back when it ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hloom.compiler.kernel_ir.affine.sums import Affine, multiple

__all__ = ["Bound", "Facts", "Symbol", "above", "below", "youngest"]

EFFORT = 1500  # replacements for one question; what is not found by then is answered by the numbers alone

# A bound of a symbol: one of some sums, whichever is the worst, over a positive number.
Bound = tuple[tuple[Affine, ...], int]
_Terms = tuple[tuple["Symbol", int], ...]  # the youngest symbol first


class Symbol:
    """One value. order: its age; lo, hi: least and greatest; lowers, uppers: bounds by older symbols.

    region: of the address of an array its bytes, or None where nobody knows; `is_base` says whether it is one, `points`
    whether it is that or an address within some array. choices: sums of which it is one. implied: facts that hold where
    it is at least 1. exact: whether it takes each number from lo to hi, whatever the others are.
    """

    __slots__ = (
        "choices",
        "exact",
        "hi",
        "implied",
        "is_base",
        "lo",
        "lowers",
        "name",
        "order",
        "points",
        "region",
        "uppers",
    )

    def __init__(self, order: int, name: str, lo: int, hi: int):
        self.order, self.name, self.lo, self.hi = order, name, lo, hi
        self.lowers: list[Bound] = []
        self.uppers: list[Bound] = []
        self.choices: tuple[Affine, ...] = ()
        self.implied: tuple[Affine, ...] = ()
        self.exact = self.is_base = self.points = False
        self.region: Affine | None = None

    def __repr__(self) -> str:
        return self.name


def _age(symbol: Symbol) -> int:
    return symbol.order


def _older(term: tuple[Symbol, int]) -> int:
    return -term[0].order


def _sorted(value: Affine) -> _Terms:
    return tuple(sorted(value.terms.items(), key=_older))


def youngest(value: Affine) -> Symbol:
    """The youngest symbol of a sum that has one."""
    return max(value.terms, key=_age)


def reduced(value: Affine, over: int = 0) -> tuple[Affine, int]:
    """A sum that is at least 0, or the numerator of an upper bound of an integer, and the denominator, in lowest terms:
    what is left of its number is rounded down."""
    divisor = math.gcd(over, *value.terms.values())
    if divisor <= 1:
        return value, over
    terms = {symbol: factor // divisor for symbol, factor in value.terms.items()}
    return Affine(value.constant // divisor, terms), over // divisor


def below(value: Affine, over: int = 1) -> Bound:
    """The upper bound `value / over` of an integer."""
    made, divisor = reduced(value, over)
    return (made,), divisor


def above(value: Affine, over: int = 1) -> Bound:
    """The lower bound `value / over` of an integer."""
    made, divisor = reduced(-value, over)
    return (-made,), divisor


class Facts:
    """The symbols of one kernel, and what is assumed of them now."""

    def __init__(self) -> None:
        self._count = 0
        # What is taken back: the bounds of a symbol as they were, and the key of a value that was computed.
        self._trail: list[tuple[Symbol, int, int, int, int] | None] = []
        self._noted: list[tuple[object, ...]] = []  # a key for each None
        self._memo: dict[_Terms, int] = {}
        self._made: dict[tuple[object, ...], Affine] = {}  # values that were computed before
        self._effort = 0

    # --- symbols

    def symbol(self, name: str, lo: int, hi: int, lowers: Sequence[Bound] = (), uppers: Sequence[Bound] = ()) -> Symbol:
        self._count += 1
        made = Symbol(self._count, name, lo, hi)
        made.lowers += lowers
        made.uppers += uppers
        return made

    def known(self, *key: object) -> Affine | None:
        """What was computed before, where that still holds."""
        return self._made.get(key)

    def note(self, value: Affine, *key: object) -> Affine:
        """Notes a value whose bounds hold as long as what is assumed now."""
        self._made[key] = value
        self._trail.append(None)
        self._noted.append(key)
        return value

    # --- bounds

    def sup(self, value: Affine, goal: int | None = None) -> int:
        """A number that a sum is never above. goal: one that is low enough."""
        self._effort = 0
        return self._sup(_sorted(value), None if goal is None else goal - value.constant) + value.constant

    def inf(self, value: Affine, goal: int | None = None) -> int:
        """A number that a sum is never below. goal: one that is high enough."""
        return -self.sup(-value, None if goal is None else -goal)

    def is_at_least(self, value: Affine, number: int = 0) -> bool:
        return self.inf(value, number) >= number

    def is_at_most(self, value: Affine, number: int = 0) -> bool:
        return self.sup(value, number) <= number

    def _sup(self, terms: _Terms, goal: int | None) -> int:
        if not terms:
            return 0
        if len(terms) == 1 and not (terms[0][0].uppers if terms[0][1] > 0 else terms[0][0].lowers):
            symbol, factor = terms[0]
            return factor * (symbol.hi if factor > 0 else symbol.lo)
        found = self._memo.get(terms)
        if found is not None:
            return found
        symbol, factor = terms[0]
        rest = terms[1:]
        end = symbol.hi if factor > 0 else symbol.lo
        if self._effort > EFFORT:
            return sum([f * (s.hi if f > 0 else s.lo) for s, f in terms])
        self._effort += 1
        best = factor * end + self._sup(rest, None if goal is None else goal - factor * end)
        if symbol.lo != symbol.hi:
            bounds = symbol.uppers if factor > 0 else symbol.lowers
            others = Affine(0, dict(rest) if bounds else None)
            for alternatives, over in bounds:
                if goal is not None and best <= goal:
                    return best
                worst = None
                for one in alternatives:
                    both = others * over + one * factor
                    wanted = None if goal is None else goal * over - both.constant
                    bound = (self._sup(_sorted(both), wanted) + both.constant) // over
                    worst = bound if worst is None else max(worst, bound)
                    if worst >= best:
                        break
                if worst is not None:
                    best = min(best, worst)
        if self._effort <= EFFORT and (goal is None or best > goal):  # else a better one was not looked for
            self._memo[terms] = best
        return best

    # --- assumptions

    def mark(self) -> int:
        return len(self._trail)

    def undo(self, mark: int) -> None:
        """Takes back what was assumed since."""
        if len(self._trail) == mark:
            return
        while len(self._trail) > mark:
            entry = self._trail.pop()
            if entry is None:
                self._made.pop(self._noted.pop(), None)
                continue
            symbol, lo, hi, lowers, uppers = entry
            symbol.lo, symbol.hi = lo, hi
            del symbol.lowers[lowers:]
            del symbol.uppers[uppers:]
        self._memo.clear()

    def assume(self, value: Affine) -> bool:
        """From here on a sum is at least 0. False where that cannot be."""
        if not value.terms:
            return value.constant >= 0
        if self.sup(value, -1) < 0:
            return False
        possible = True
        value, _ = reduced(value)
        last = youngest(value)
        for symbol, factor in _sorted(value):
            rest = value.without(symbol)
            is_youngest = symbol is last
            most = self.sup(rest)
            lo, hi = symbol.lo, symbol.hi
            if factor > 0:
                lo = max(lo, -(most // factor))  # symbol >= -rest / factor
            else:
                hi = min(hi, most // -factor)
            if not is_youngest and (lo, hi) == (symbol.lo, symbol.hi):
                continue
            first = symbol.lo < 1
            self._trail.append((symbol, symbol.lo, symbol.hi, len(symbol.lowers), len(symbol.uppers)))
            symbol.lo, symbol.hi = lo, hi
            if is_youngest and rest.terms:
                if factor > 0:
                    symbol.lowers.append(above(-rest, factor))
                else:
                    symbol.uppers.append(below(rest, -factor))
            self._memo.clear()
            if lo > hi:
                return False
            if first and lo >= 1:
                for fact in symbol.implied:
                    possible = possible and self.assume(fact)
        return possible

    def assume_differs(self, value: Affine) -> bool:
        """From here on a sum is not 0, where it cannot be on one side of it."""
        if not value.terms:
            return value.constant != 0
        if self.is_at_least(value, 0):
            return self.assume(value - 1)
        if self.is_at_most(value, 0):
            return self.assume(-value - 1)
        return True

    # --- arithmetic

    def interval(self, value: Affine) -> tuple[int, int]:
        return self.inf(value), self.sup(value)

    def one_of(self, name: str, values: Sequence[Affine], lo: int | None = None, hi: int | None = None) -> Affine:
        """A value that is one of some."""
        if all([value == values[0] for value in values]):
            return values[0]
        lo = min(map(self.inf, values)) if lo is None else lo
        hi = max(map(self.sup, values)) if hi is None else hi
        bound = (tuple(values), 1)
        made = self.symbol(name, lo, hi, [bound], [bound])
        made.choices = tuple(values)
        made.points = all([any([symbol.points for symbol in value.terms]) for value in values])
        return multiple(made)

    def minimum(self, values: Sequence[Affine]) -> Affine:
        kept: list[Affine] = []
        for value in values:
            if any([self.is_at_most(other - value) for other in kept]):
                continue
            kept = [other for other in kept if not self.is_at_most(value - other)] + [value]
        if len(kept) == 1:
            return kept[0]
        key = ("min", *kept)
        if (found := self.known(*key)) is not None:
            return found
        made = self.symbol(
            "min", min(map(self.inf, kept)), min(map(self.sup, kept)), [(tuple(kept), 1)], [((v,), 1) for v in kept]
        )
        return self.note(multiple(made), *key)

    def maximum(self, values: Sequence[Affine]) -> Affine:
        return -self.minimum([-value for value in values])

    def quotient(self, value: Affine, by: Affine) -> Affine | None:
        """`value // by`, rounded down; None where the divisor may not be positive."""
        number = by.number
        if number is None:
            least, most = self.interval(by)
            if least < 1 or not self.is_at_least(value):
                return None
            made = self.symbol("quotient", self.inf(value) // most, self.sup(value) // least, (), [((value,), 1)])
            return multiple(made)
        if number < 1:
            return None
        whole = {symbol: factor // number for symbol, factor in value.terms.items() if factor % number == 0}
        outside = Affine(value.constant // number, whole)
        rest = Affine(value.constant % number, {s: factor for s, factor in value.terms.items() if factor % number})
        lo, hi = self.inf(rest) // number, self.sup(rest) // number
        if lo == hi:
            return outside + lo
        key = ("quotient", value, number)
        if (found := self.known(*key)) is not None:
            return found
        lo, hi = self.inf(value) // number, self.sup(value) // number
        made = self.symbol("quotient", lo, hi, [above(value - (number - 1), number)], [below(value, number)])
        return self.note(multiple(made), *key)

    def product(self, left: Affine, right: Affine) -> Affine:
        if left.number is not None:
            return right * left.number
        if right.number is not None:
            return left * right.number
        total = left * right.constant + right * left.constant - left.constant * right.constant
        total = total + 0
        for a, f in left.terms.items():
            for b, g in right.terms.items():
                total = total + self._product(a, b) * (f * g)
        return total

    def _product(self, a: Symbol, b: Symbol) -> Affine:
        if a.order > b.order:
            a, b = b, a
        if a.lo == a.hi:
            return multiple(b, a.lo)
        if b.lo == b.hi:
            return multiple(a, b.lo)
        if (found := self.known("product", a, b)) is not None:
            return found
        corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
        made = self.symbol("product", min(corners), max(corners))
        for x, y in ((a, b), (b, a)):
            if y.lo >= 0:  # x.lo * y <= x * y <= x.hi * y
                made.uppers.append(((multiple(y, x.hi),), 1))
                made.lowers.append(((multiple(y, x.lo),), 1))
        if a.lo >= 0 and b.lo >= 0:
            made.implied = (multiple(a) - 1, multiple(b) - 1)
        return self.note(multiple(made), "product", a, b)
