"""What a loop keeps of the variables that it changes (`bounds`).

A variable that each iteration changes by the same number is that multiple of the iteration's number. Of others the
bounds are tried that the kernel's text suggests: where the variable starts, what it is compared with, and what it was
after one iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hloom.compiler.kernel_ir.affine.arithmetic import Arithmetic, Value, limits
from hloom.compiler.kernel_ir.affine.sums import Affine, multiple
from hloom.compiler.kernel_ir.bounds.accesses import assigned
from hloom.compiler.kernel_ir.nodes import Binary, Call, Expr, For, Load, Stmt, Var, While
from hloom.compiler.kernel_ir.types import is_integer

__all__ = ["LONGEST", "Loop"]

LONGEST = 1 << 58  # iterations of a loop: at one a nanosecond, nine years
_PROBE = 1 << 40  # how far from 0 a variable is while its changes are looked for; what is found is proved afterwards
_MOST = 12  # bounds that are tried of one variable


class Carried:
    """A variable that a loop changes. base: the address of the array that it points into, or 0; start: its value behind
    that before the loop. step: its change in each iteration; None: `lowers` and `uppers` are its bounds. follows:
    another one, and by how much it changes where that one changes by 1."""

    def __init__(self, var: Var, value: Affine, lowers: list[Affine], uppers: list[Affine]):
        self.var = var
        found = Arithmetic.base_of(value)
        self.base = multiple(found[0]) if found else Affine(0)
        self.start = found[1] if found else value
        self.lowers, self.uppers = lowers, uppers
        self.step: int | None = None
        self.known = True  # whether its array is
        self.head = self.start
        self.follows: tuple[Carried, int] | None = None
        self.changes: list[Affine | None] = []
        self.after_one: list[tuple[int, int]] = []
        self.at_breaks: list[tuple[int, int] | None] = []

    def behind(self, value: Value) -> Affine | None:
        """A later value, without its array; None where it has another one."""
        if not isinstance(value, Affine):
            return None
        if not self.base.terms:
            return None if Arithmetic.base_of(value) else value
        rest = value - self.base
        return None if any([symbol.points for symbol in rest.terms]) else rest


class Loop:
    """The passes over one loop. evaluate: the value of an expression. broke: whether a `break` may end it."""

    def __init__(self, run: Arithmetic, evaluate: Callable[[Expr], Value], node: For | While, before: dict[Var, Value]):
        self._evaluate = evaluate
        self.assigned = {one.var for one in assigned(node.body)}
        for inner in node.body:
            self.assigned |= {one.var for one in inner.walk() if isinstance(one, For)}
        own = node.var if isinstance(node, For) else None
        self.carried = []
        for var, value in before.items():
            if var in self.assigned and var is not own and isinstance(value, Affine) and is_integer(var.type):
                self.carried.append(Carried(var, value, *self._suggested(run, node, var, value)))
        if own is not None:
            self.assigned.add(own)
        self.broke, self._probes, self._holds = False, False, True

    def _suggested(self, run: Arithmetic, node: For | While, var: Var, value: Affine) -> tuple[list[Affine], ...]:
        """Bounds of a variable at the head of an iteration that hold at the first one."""
        found = Arithmetic.base_of(value)
        start = found[1] if found else value
        lowers, uppers = [start, Affine(0)], [start]
        for expression in dict.fromkeys(_compared(node, var)):
            if any([one in self.assigned for one in _variables(expression)]):
                continue
            if any([isinstance(one, Load) for one in expression.walk()]):
                continue
            bound = run.number(self._evaluate(expression))
            lowers.append(bound)
            uppers += [bound, bound - 1]
        facts = run.facts
        return (
            [one for one in dict.fromkeys(lowers[:_MOST]) if facts.is_at_least(start - one)],
            [one for one in dict.fromkeys(uppers[:_MOST]) if facts.is_at_least(one - start)],
        )

    # --- one pass

    def begin(self, probes: bool) -> None:
        self._probes, self._holds, self.broke = probes and bool(self.carried), True, False
        for one in self.carried:
            one.changes, one.after_one, one.at_breaks = [], [], []

    def forget(self) -> None:
        """Nothing is assumed of the variables from here on."""
        for one in self.carried:
            one.step, one.follows, one.lowers, one.uppers, one.known = None, None, [], [], False

    def heads(self, run: Arithmetic, count: Affine) -> dict[Var, Value]:
        """The values of the variables at the head of the iteration of a number."""
        made: dict[Var, Value] = {}
        for one in self.carried:
            if self._probes:
                one.head = multiple(run.facts.symbol(one.var.name, -_PROBE, _PROBE))
            elif one.step is not None:
                one.head = one.start + count * one.step
            elif one.follows is None:
                one.head = self._bounded(run, one)
        for one in self.carried:
            if one.follows is not None:
                one.head = self._following(one, one.follows[0].head)
            made[one.var] = one.base + one.head if one.known else one.head
        return made

    @staticmethod
    def _following(one: Carried, other: Affine) -> Affine:
        assert one.follows is not None
        return one.start + (other - one.follows[0].start) * one.follows[1]

    def _bounded(self, run: Arithmetic, one: Carried) -> Affine:
        facts = run.facts
        lo, hi = limits(one.var.type)
        lo = max([lo, *map(facts.inf, one.lowers)])
        hi = min([hi, *map(facts.sup, one.uppers)])
        lowers, uppers = [((x,), 1) for x in one.lowers], [((x,), 1) for x in one.uppers]
        return multiple(facts.symbol(one.var.name, lo, hi, lowers, uppers))

    def ends(self, run: Arithmetic) -> None:
        """An iteration ends, here."""
        facts = run.facts
        for one in self.carried:
            value = one.behind(run.environment.get(one.var))
            if self._probes:
                one.changes.append(None if value is None else value - one.head)
                if value is None:
                    one.known = False
                else:
                    one.after_one.append(facts.interval(value))
            elif not one.known:
                continue
            elif value is None:
                one.known = self._holds = False
                one.step, one.follows, one.lowers, one.uppers = None, None, [], []
            elif one.follows is not None:
                other = one.follows[0].behind(run.environment.get(one.follows[0].var))
                if other is None or value != self._following(one, other):
                    one.follows, self._holds = None, False
            elif one.step is not None:
                if value != one.head + one.step:
                    one.step, self._holds = None, False
            else:
                lowers = [x for x in one.lowers if facts.is_at_least(value - x)]
                uppers = [x for x in one.uppers if facts.is_at_least(x - value)]
                if len(lowers) + len(uppers) < len(one.lowers) + len(one.uppers):
                    one.lowers, one.uppers, self._holds = lowers, uppers, False

    def breaks(self, run: Arithmetic) -> None:
        """The loop is left, here."""
        self.broke = True
        for one in self.carried:
            value = one.behind(run.environment.get(one.var))
            one.at_breaks.append(None if value is None else run.facts.interval(value))

    def settled(self, run: Arithmetic) -> bool:
        """Whether the pass was on what the loop keeps."""
        if not self._probes:
            return self._holds
        for one in self.carried:
            steps = {None if change is None else change.number for change in one.changes}
            if not one.known:
                one.step, one.lowers, one.uppers = None, [], []
            elif len(steps) == 1 and None not in steps:
                (one.step,) = steps
            else:
                one.follows = self._leader(one)
            if one.known and one.step is None and one.after_one:
                lo, hi = run.facts.interval(one.start)
                lo, hi = min([lo, *(x for x, _ in one.after_one)]), max([hi, *(x for _, x in one.after_one)])
                one.lowers += [Affine(lo)] * (lo > -_PROBE // 2)
                one.uppers += [Affine(hi)] * (hi < _PROBE // 2)
        return False

    def _leader(self, one: Carried) -> tuple[Carried, int] | None:
        """Another variable whose changes times a number are those of a variable."""
        for other in self.carried:
            if other is one or other.follows is not None or not other.known or not one.changes:
                continue
            if len(other.changes) != len(one.changes) or other.base.terms:
                continue
            factors = {_ratio(x, y) for x, y in zip(one.changes, other.changes, strict=True)}
            if len(factors) == 1 and (factor := factors.pop()) is not None:
                return other, factor
        return None

    # --- afterwards

    def after(self, run: Arithmetic, trips: Callable[[], Affine], endless: bool) -> dict[Var, Value]:
        """The values of the variables after the loop. trips: the number of its iterations."""
        made: dict[Var, Value] = {}
        values: dict[Var, Affine] = {}
        count = None
        for one in sorted(self.carried, key=lambda one: one.follows is not None):
            if not one.known:
                made[one.var] = run.unknown(one.var.name, one.var.type)
                continue
            if one.step is not None:
                count = trips() if count is None else count
                value = one.start + count * one.step
            elif one.follows is None or one.follows[0].var not in made:
                value = self._bounded(run, one)
            else:
                value = self._following(one, values[one.follows[0].var])
            values[one.var] = value
            if self.broke:
                ends = [*one.at_breaks, *([] if endless else [run.facts.interval(value)])]
                if None in ends:
                    made[one.var] = run.unknown(one.var.name, one.var.type)
                    continue
                known = [end for end in ends if end is not None]
                lo, hi = min([lo for lo, _ in known]), max([hi for _, hi in known])
                value = multiple(run.facts.symbol(one.var.name, lo, hi))
            made[one.var] = one.base + value
        return made


def _ratio(value: Affine | None, by: Affine | None) -> int | None:
    """The number that one sum is a multiple of another by."""
    if value is None or by is None or not by.terms or not value.terms:
        return None
    variable, step = next(iter(by.terms.items()))
    factor, rest = divmod(value.terms.get(variable, 0), step)
    return factor if rest == 0 and value == by * factor else None


def _compared(node: For | While, var: Var) -> Iterator[Expr]:
    """What a loop compares a variable with, subtracts it from, or takes the least or greatest of together."""
    roots: list[Stmt] = [node]
    for statement in [inner for root in roots for inner in root.walk()]:
        for expression in statement.expressions():
            for one in expression.walk():
                match one:
                    case Binary(op="<" | "<=" | ">" | ">=" | "==" | "!=", left=left, right=right):
                        if left is var:
                            yield right
                        if right is var:
                            yield left
                    case Binary(op="-", left=left, right=right) if right is var:
                        yield left
                    case Call(function="min" | "max", arguments=arguments) if var in arguments:
                        yield from (other for other in arguments if other is not var)


def _variables(expression: Expr) -> Iterator[Var]:
    return (one for one in expression.walk() if isinstance(one, Var))
