"""Dependences between accesses of a loop nest: whether two of them can be of one element.

    nest = Nest(loops, ranges)
    nest.may_meet(first, second, ((0, 0), (1, None)))

Two accesses of one array, one of them a store, depend on each other where iterations exist in which their indices are
equal. The second access is made `distance` iterations after the first one, of each loop that is around both; what is
asked is whether their difference can be 0 for distances within bounds. It cannot where the greatest common divisor of
its factors does not divide its constant (the GCD test), nor where its least value is above 0 or its greatest below
(Banerjee's inequalities). The bounds of loops may be expressions of outer variables and of parameters, because that is
what `facts` proves; where nothing is known, the answer is that they may meet.

Sources: U. Banerjee, Dependence Analysis for Supercomputing (1988); G. Goff, K. Kennedy, C.-W. Tseng, Practical
Dependence Testing (PLDI 1991).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Mapping, Sequence

from hloom.compiler.kernel_ir.affine.arithmetic import limits
from hloom.compiler.kernel_ir.affine.equations import Unknown, has_solution
from hloom.compiler.kernel_ir.affine.evaluation import Evaluation
from hloom.compiler.kernel_ir.affine.facts import below
from hloom.compiler.kernel_ir.affine.sums import Affine, linear, multiple
from hloom.compiler.kernel_ir.nodes import Assign, Const, Expr, For, Load, Stmt, Store, Together, Var
from hloom.compiler.kernel_ir.rewrite import assigned, read
from hloom.compiler.kernel_ir.scopes import varying_variables
from hloom.compiler.kernel_ir.types import is_integer
from hloom.ir.records import record

__all__ = ["ANY", "LATER", "SAME", "Access", "Distance", "Nest", "accesses"]

Distance = tuple[int | None, int | None]  # the least and the greatest number of iterations; None: not bounded
SAME: Distance = (0, 0)
LATER: Distance = (1, None)
ANY: Distance = (None, None)
EARLIER: Distance = (None, -1)
_NEIGHBOURS: dict[Distance, tuple[Distance, ...]] = {LATER: ((1, 1), (2, None)), EARLIER: ((-1, -1), (None, -2))}
LONGEST = 1 << 58  # iterations of a loop
LARGE = 1 << 62  # of integers of s64, beyond which they might wrap around

Range = int | tuple[int | None, int | None]


@record(frozen=True, eq=False)
class Access:
    """A load or a store. pointer: None of what is no variable, which may be any array. loops: those around it, the
    outermost first. number: its place in the order of the text; the loads of a store come before it."""

    pointer: Var | None
    index: Expr
    written: bool
    loops: tuple[For, ...]
    number: int
    statement: Stmt


def accesses(statements: Sequence[Stmt], loops: tuple[For, ...] = ()) -> list[Access]:
    """All accesses of statements, in their order. loops: those around the statements."""
    found: list[Access] = []
    _collect(statements, loops, found)
    return found


def _collect(statements: Sequence[Stmt], loops: tuple[For, ...], found: list[Access]) -> None:
    for statement in statements:
        for expression in statement.expressions():
            for one in expression.walk():
                if isinstance(one, Load):
                    _add(found, one.pointer, one.index, False, loops, statement)
        parts = statement.parts if isinstance(statement, Together) else [statement]
        for part in parts:
            if isinstance(part, Store):
                if isinstance(statement, Together):
                    for one in [*part.pointer.walk(), *part.index.walk()]:
                        if isinstance(one, Load):
                            _add(found, one.pointer, one.index, False, loops, statement)
                _add(found, part.pointer, part.index, True, loops, statement)
        inner = (*loops, statement) if isinstance(statement, For) else loops
        for block in statement.blocks():
            _collect(block, inner, found)


def _add(found: list[Access], pointer: Expr, index: Expr, written: bool, loops: tuple[For, ...], s: Stmt) -> None:
    known = pointer if isinstance(pointer, Var) else None
    found.append(Access(known, index, written, loops, len(found), s))


class Nest:
    """Statements, loops among them, and their accesses.

    arrays: pointers to arrays that do not overlap; others may point into any of them. ranges: of integer variables that
    are not assigned within, such as sizes.
    """

    def __init__(self, statements: Sequence[Stmt], arrays: Container[Var], ranges: Mapping[Var, Range] | None = None):
        self.statements = list(statements)
        self.arrays = arrays
        self.ranges = dict(ranges or {})
        self.accesses = accesses(self.statements)
        self.changed = set(assigned(self.statements))
        self.varying = varying_variables(self.statements, {*read(self.statements)} - self.changed)
        self.definitions = dict(self._definitions())
        self.numbers = _Numbers(self)

    def _definitions(self) -> Iterator[tuple[Var, Expr]]:
        """Integers that have one value on the way from their assignment to their uses."""
        for statement in self.statements:
            for one in statement.walk():
                for part in one.parts if isinstance(one, Together) else [one]:
                    if isinstance(part, Assign) and part.var not in self.varying and is_integer(part.var.type):
                        yield part.var, part.value

    def of_one_array(self, first: Access, second: Access) -> bool:
        """Whether they may be of one array."""
        one, other = first.pointer, second.pointer
        return one is other or one not in self.arrays or other not in self.arrays

    def pairs(self, among: Sequence[Access] | None = None) -> Iterator[tuple[Access, Access]]:
        """All ordered pairs of accesses that might be of one array, where one at least is a store."""
        found = self.accesses if among is None else among
        for first in found:
            for second in found:
                if (first.written or second.written) and self.of_one_array(first, second):
                    yield first, second

    def may_meet(self, first: Access, second: Access, distances: Sequence[Distance]) -> bool:
        """Whether the second access may be of the same element as the first one, where it is made so many iterations
        later. distances: of the first loops around both; of further ones they are any."""
        if not self.of_one_array(first, second):
            return False
        known = self.numbers.may_meet(first, second, distances)
        if known is not None:
            return known
        # Neighbours first: a row of unknown size is told from the next one, and from all further ones.
        parts = [_NEIGHBOURS.get(one, (one,)) for one in distances]
        return any(_Pair(self, first, second, part).may_meet() for part in itertools.product(*parts))

    def distances(self, first: Access, second: Access, distances: Sequence[Distance] = ()) -> list[Distance] | None:
        """Bounds of the distances at which they may meet, of all loops around both; None where they never do."""
        return _Pair(self, first, second, distances).bounds() if self.of_one_array(first, second) else None

    def directions(self, first: Access, second: Access) -> list[tuple[Distance, ...]]:
        """The direction vectors of the pairs of iterations in which they may meet: the second one's is the same, later
        or earlier, of each loop around both."""
        found: list[tuple[Distance, ...]] = []
        depth = len(_common(first, second))

        def extend(known: tuple[Distance, ...]) -> None:
            if not self.may_meet(first, second, known):
                return
            if len(known) == depth:
                found.append(known)
                return
            for one in (SAME, LATER, EARLIER):
                extend((*known, one))

        extend(())
        return found

    def trips(self, loop: For) -> int | None:
        """The greatest number of iterations of a loop; None where it is not known."""
        span = self.numbers.span(loop.var) if loop.var in self.numbers.loops else None
        return None if span is None else span.high + 1

    def carries(self, loop: For, first: Access, second: Access) -> bool:
        """Whether an iteration of a loop may access an element that an earlier one accesses, of the same iterations of
        the loops around it."""
        common = _common(first, second)
        if not any(loop is one for one in common):
            return False
        return self.may_meet(first, second, [*[SAME] * next(k for k, one in enumerate(common) if one is loop), LATER])


def _common(first: Access, second: Access) -> list[For]:
    """The loops around both."""
    found = []
    for one, other in zip(first.loops, second.loops, strict=False):
        if one is not other:
            break
        found.append(one)
    return found


@record(frozen=True)
class _Span:
    """The least and the greatest value of an integer. exact: whether both are always reached."""

    low: int
    high: int
    exact: bool = True


class _Numbers:
    """The test where all bounds are numbers: an equation of few integers, which gives most answers at once.

    A loop's variable is its start and a multiple of the number of its iteration, so forms are sums of these numbers.
    """

    def __init__(self, nest: Nest):
        self.nest = nest
        self.loops: dict[Var, For] = {}
        for statement in nest.statements:
            for one in statement.walk():
                if isinstance(one, For) and one.var not in nest.varying:
                    self.loops[one.var] = one
        self._forms: dict[Access, Affine | None] = {}
        self._values: dict[Var, Affine | None] = {}
        self._spans: dict[Var, _Span | None] = {}

    def may_meet(self, first: Access, second: Access, distances: Sequence[Distance]) -> bool | None:
        """None where it is not found out."""
        if first.pointer is not second.pointer:
            return None
        one, other = self.form(first), self.form(second)
        if one is None or other is None:
            return None
        unknowns: list[Unknown] = []
        common = _common(first, second)
        exact = len(common) == len(first.loops) == len(second.loops)
        shared = {loop.var for loop in common}
        for k, loop in enumerate(common):
            span = self.span(loop.var)
            if span is None:
                return None
            a, b = one.terms.get(loop.var, 0), other.terms.get(loop.var, 0)
            low, high = distances[k] if k < len(distances) else ANY
            low = -span.high if low is None else max(low, -span.high)
            high = span.high if high is None else min(high, span.high)
            unknowns += [(b, low, high), (b - a, 0, span.high)]
            exact = exact and a == b and (span.exact or low == high == 0)
        for form, sign in ((one, -1), (other, 1)):
            for var, factor in form.terms.items():
                if var in shared or (one.terms.get(var) == other.terms.get(var) and var not in self.nest.changed):
                    continue
                span = self.span(var)
                if span is None:
                    return None
                exact = False
                unknowns.append((sign * factor, span.low, span.high))
        found = has_solution(unknowns, one.constant - other.constant)
        return found if exact or found is False else None

    def form(self, access: Access) -> Affine | None:
        """An index whose values all fit into its type, as a sum; None of others."""
        if access not in self._forms:
            found = linear(access.index, self._meaning, self.fits)
            self._forms[access] = None if found is None or self._interval(found) is None else found
        return self._forms[access]

    def _meaning(self, var: Var) -> Affine | Expr | None:
        nest = self.nest
        if var in nest.definitions:
            return nest.definitions[var]
        if var in self.loops:
            return self._of_loop(var)
        known = nest.ranges.get(var)
        if isinstance(known, int) and var not in nest.changed:
            return Affine(known)
        return multiple(var) if is_integer(var.type) and var not in nest.changed else None

    def _of_loop(self, var: Var) -> Affine | None:
        """The value of a loop's variable."""
        if var not in self._values:
            self._values[var] = None
            loop = self.loops[var]
            step = loop.step.value if isinstance(loop.step, Const) else 0
            start = linear(loop.start, self._meaning, self.fits)
            self._values[var] = None if start is None or not step else start + multiple(var, step)
        return self._values[var]

    def span(self, var: Var) -> _Span | None:
        """The values of a parameter, or the numbers of a loop's iterations; None where they are not known."""
        if var not in self._spans:
            self._spans[var] = self._iterations(self.loops[var]) if var in self.loops else self._of_parameter(var)
        return self._spans[var]

    def _of_parameter(self, var: Var) -> _Span | None:
        known = self.nest.ranges.get(var)
        if not isinstance(known, tuple) or known[0] is None or known[1] is None:
            return None
        return _Span(known[0], known[1])

    def _iterations(self, loop: For) -> _Span | None:
        step = loop.step.value if isinstance(loop.step, Const) else 0
        start, stop = linear(loop.start, self._meaning, self.fits), linear(loop.stop, self._meaning, self.fits)
        if not step or start is None or stop is None:
            return None
        way = (stop - start) * (1 if step > 0 else -1)
        many = self._interval(way)
        if many is None or self._interval(start) is None:
            return None
        return _Span(0, -(-many[1] // abs(step)) - 1, way.number is not None)

    def fits(self, form: Affine, kind: str) -> bool:
        found, (least, most) = self._interval(form), limits(kind)
        return found is not None and least <= found[0] and found[1] <= most

    def _interval(self, form: Affine) -> tuple[int, int] | None:
        """The least and the greatest value of a sum; None where they are not known, or large."""
        low = high = form.constant
        for var, factor in form.terms.items():
            span = self.span(var)
            if span is None:
                return None
            ends = factor * span.low, factor * span.high
            low, high = low + min(ends), high + max(ends)
        return (low, high) if -LARGE < low and high < LARGE else None


class _Pair(Evaluation):
    """Two accesses, each in an iteration of its own."""

    def __init__(self, nest: Nest, first: Access, second: Access, distances: Sequence[Distance]):
        super().__init__()
        self.nest, self.first, self.second = nest, first, second
        self.shared: dict[Var, Affine] = {}
        self.apart: list[Affine] = []  # the distances
        self.possible = True
        one, other = _Side(self), _Side(self)
        common = _common(first, second)
        given = [*distances, *[ANY] * (len(common) - len(distances))]
        for loop, distance in zip(common, given, strict=False):
            self._enter_both(loop, one, other, distance)
        for side, access in ((one, first), (other, second)):
            for loop in access.loops[len(common) :]:
                self._enter(loop, side)
        self.difference = other.integer(second.index) - one.integer(first.index)

    def may_meet(self) -> bool:
        if not self.possible:
            return False
        if self.first.pointer is not self.second.pointer:
            return True
        value = self.difference
        if not value.terms:
            return value.constant == 0
        if value.constant % math.gcd(*value.terms.values()):
            return False
        facts = self.facts
        if facts.is_at_least(value, 1) or facts.is_at_most(value, -1):
            return False
        # Each time it narrows what the next one begins with.
        return all(facts.assume(value) and facts.assume(-value) for _ in range(3))

    def bounds(self) -> list[Distance] | None:
        if not self.may_meet():
            return None
        return [self.facts.interval(value) for value in self.apart]

    # --- loops

    def _enter_both(self, loop: For, one: _Side, other: _Side, distance: Distance) -> None:
        """One iteration of a loop for each side, `distance` apart."""
        facts, step = self.facts, loop.step.value if isinstance(loop.step, Const) else None
        if not step:
            self.apart.append(multiple(facts.symbol("distance", -LONGEST, LONGEST)))
            return
        spans = [side.span(loop) for side in (one, other)]  # at least 1 where there is an iteration
        last = [self._last(span, step) for span in spans]
        most = [facts.sup(value) for value in last]
        low = -most[0] if distance[0] is None else max(-most[0], distance[0])
        high = most[1] if distance[1] is None else min(most[1], distance[1])
        if min(most) < 0 or low > high:
            self.possible = False
        apart = Affine(low)
        if low < high:
            symbol = facts.symbol("distance", low, high, [((-last[0],), 1)], [((last[1],), 1)])
            apart = multiple(symbol)
        count = facts.symbol(
            loop.var.name, max(0, -high), max(0, min(most[0], most[1] - low)), [((-apart,), 1)],
            [below(spans[0] - 1, abs(step)), below(spans[1] - 1 - apart * abs(step), abs(step))],
        )  # fmt: skip
        self.apart.append(apart)
        for side, number in ((one, multiple(count)), (other, multiple(count) + apart)):
            side.enter(loop, side.integer(loop.start) + number * step)

    def _last(self, span: Affine, step: int) -> Affine:
        """The number of the last iteration."""
        made = self.facts.quotient(span - 1, Affine(abs(step)))
        assert made is not None
        return made

    def _enter(self, loop: For, side: _Side) -> None:
        """An iteration of a loop that is around one access only."""
        facts, step = self.facts, loop.step.value if isinstance(loop.step, Const) else None
        if not step:
            return
        span = side.span(loop)
        most = facts.sup(self._last(span, step))
        self.possible = self.possible and most >= 0
        count = facts.symbol(loop.var.name, 0, max(0, most), (), [below(span - 1, abs(step))])
        side.enter(loop, side.integer(loop.start) + multiple(count) * step)


class _Side:
    """What is known of variables in the iteration of one access."""

    def __init__(self, pair: _Pair):
        self.pair = pair
        self.environment: dict[Var, Affine] = {}

    def enter(self, loop: For, value: Affine) -> None:
        if loop.var not in self.pair.nest.varying:
            self.environment[loop.var] = value

    def span(self, loop: For) -> Affine:
        start, stop = self.integer(loop.start), self.integer(loop.stop)
        assert isinstance(loop.step, Const)
        return stop - start if loop.step.value > 0 else start - stop

    def integer(self, value: Expr) -> Affine:
        for var in value.walk():
            if isinstance(var, Var) and is_integer(var.type):
                self._resolve(var)
        self.pair.environment = dict(self.environment)  # what is missing is a new symbol wherever it is read
        return self.pair.number(self.pair.value(value))

    def _resolve(self, var: Var) -> None:
        """Sees to it that a variable which is one value in an iteration has it here."""
        nest, pair = self.pair.nest, self.pair
        if var in self.environment or var in nest.varying:
            return
        if var not in nest.changed:
            if var not in pair.shared:
                given = nest.ranges.get(var)
                low, high = given if isinstance(given, tuple) else (given, given)
                made = Affine(given) if isinstance(given, int) else pair.unknown(var.name, var.type, low, high)
                assert isinstance(made, Affine)
                pair.shared[var] = made
            self.environment[var] = pair.shared[var]
        elif var in nest.definitions:
            self.environment[var] = self.integer(nest.definitions[var])
