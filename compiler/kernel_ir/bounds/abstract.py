"""A kernel run on what is known of its integers: what `bounds` proves accesses with.

A value is an `Affine` for an integer or an address, a `Truth` for a pred, None for a float.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hloom.compiler.kernel_ir.affine.arithmetic import Truth, Value
from hloom.compiler.kernel_ir.affine.evaluation import Evaluation
from hloom.compiler.kernel_ir.affine.facts import Symbol, below, youngest
from hloom.compiler.kernel_ir.affine.sums import Affine, multiple
from hloom.compiler.kernel_ir.bounds.accesses import Memory, Site, Sites, assigned, element_bytes
from hloom.compiler.kernel_ir.bounds.loops import LONGEST, Loop
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Const,
    Do,
    For,
    If,
    Jump,
    Kernel,
    Load,
    Scratch,
    Stmt,
    Store,
    Together,
    Var,
    While,
)
from hloom.compiler.kernel_ir.types import is_integer, is_pointer

__all__ = ["OUT", "PROVED", "UNPROVED", "Run", "TooLong"]

PROVED, UNPROVED, OUT = "proved", "unproved", "out of range"
_WORSE = (PROVED, UNPROVED, OUT)
STATEMENTS = 60_000  # statements that are run for one kernel, at most
PASSES = 6  # over the body of a loop, until what it is assumed to keep is what it keeps


class TooLong(Exception):
    """A kernel whose nested loops take too many passes."""


class Run(Evaluation):
    """One run. journal: the worst that was found of each access. certain: whether each call runs the statement, in
    every iteration."""

    def __init__(self, sites: Mapping[int, Sites], parts: Mapping[str, Kernel]):
        super().__init__()
        self.sites, self.parts = sites, parts
        self.kernels: dict[Symbol, Kernel] = {}  # by the parameter that holds a kernel's address
        self.journal: dict[Site, tuple[str, str]] = {}
        self.here = Sites(Kernel("", (), []), None)
        self.loops: list[Loop] = []
        self.left = False  # left: whether a return may have been run
        self.items: tuple[Affine, Affine] | None = None
        self.missed = False  # whether a call is of a kernel that is not known
        self._statement: Stmt | None = None
        self.loops_broke = False  # whether the last loop may have been left by a break
        self._run = 0

    # --- statements

    def kernel(self, kernel: Kernel) -> None:
        self.here = self.sites[id(kernel)]
        self.block(kernel.body)

    def called(self, kernel: Kernel, arguments: Sequence[Value]) -> None:
        """A call of another kernel, with all arguments."""
        here, environment, loops, statement = self.here, self.environment, self.loops, self._statement
        certain, left, mark = self.certain, self.left, self.facts.mark()
        self.environment, self.loops = {}, []
        for var, value in zip(kernel.params, arguments, strict=False):
            if is_integer(var.type) or is_pointer(var.type):
                known = isinstance(value, Affine)
                self.environment[var] = value if known else self.unknown(var.name, var.type)
        self.kernel(kernel)
        self.facts.undo(mark)
        self.here, self.environment, self.loops, self._statement = here, environment, loops, statement
        self.certain, self.left = certain, left

    def block(self, statements: Sequence[Stmt]) -> bool:
        """Runs statements. False where no path comes to their end."""
        for statement in statements:
            self._run += 1
            if self._run > STATEMENTS:
                raise TooLong
            self._statement = statement
            if not self.statement(statement):
                return False
        return True

    def statement(self, node: Stmt) -> bool:
        match node:
            case Assign():
                self.assign(node.var, self.value(node.value))
            case Store():
                self._store(node)
            case Together():
                made: list[tuple[Var, Value]] = []
                for part in node.parts:
                    if isinstance(part, Assign):
                        made.append((part.var, self.value(part.value)))
                    else:
                        self._store(part)
                for var, value in made:
                    self.assign(var, value)
            case Scratch():
                self.environment[node.var] = self.base(node.var.name, Affine(node.size * element_bytes(node.var.type)))
            case Do():
                self._do(node)
            case If():
                return self._if(node)
            case For():
                return self._for(node)
            case While():
                return self._while(node)
            case Jump():
                if node.how == "return":
                    self.left, self.certain = True, False
                elif node.how == "continue":
                    self.loops[-1].ends(self)
                else:
                    self.loops[-1].breaks(self)
                return False
        return True

    def assign(self, var: Var, value: Value) -> None:
        if is_integer(var.type) and isinstance(value, Truth):
            value = self.number(value)
        self.environment[var] = value

    def _store(self, node: Store) -> None:
        pointer, index = self.value(node.pointer), self.value(node.index)
        if node.augmented:
            assert isinstance(node.value, Binary)
            self.value(node.value.right)
        else:
            self.value(node.value)
        self.accessed(node, pointer, index)

    def _do(self, node: Do) -> None:
        values = [self.value(argument) for argument in node.arguments]
        if (part := self.parts.get(node.function)) is not None:
            self.called(part, values)
        elif node.function == "call_kernel":
            target = values[0]
            found = self.kernels.get(youngest(target)) if isinstance(target, Affine) and target.terms else None
            if found is None:
                self.missed = True
            else:
                self.called(found, [*values[3:], *values[1:3]])
        for site in self.here.of_call.get(id(node), ()):
            if site.memory is None:
                self.note(site, UNPROVED, f"what {node.function} accesses is not known")
            else:
                self._memory(site, site.memory)

    def _if(self, node: If) -> bool:
        test = self.truth(self.value(node.test))
        known = self.decided(test)
        if known is not None:
            return self.block(node.then if known else node.other)
        before, certain = self.environment, self.certain
        changed = {one.var for one in assigned([node])}
        ends: list[tuple[dict[Var, Value], dict[Var, tuple[int, int]]] | None] = []
        for given, body in ((test.yes, node.then), (test.no, node.other)):
            mark = self.facts.mark()
            self.environment, self.certain = dict(before), False
            alive = self.assume(given) and self.block(body)
            ends.append((self.environment, self._intervals(changed)) if alive else None)
            self.facts.undo(mark)
        first, second = ends
        self.certain = certain and first is not None and second is not None
        if first is None and second is None:
            self.environment = before
            return False
        if first is not None and second is not None:
            self._merge(first, second)
            return True
        self.environment = (first or second or ({}, {}))[0]
        return self.assume(test.yes if first is not None else test.no)

    def _intervals(self, changed: set[Var]) -> dict[Var, tuple[int, int]]:
        """The bounds, in a branch, of integers that one of the branches changes."""
        values = [(var, self.environment.get(var)) for var in changed]
        return {var: self.facts.interval(value) for var, value in values if isinstance(value, Affine)}

    def _merge(self, first: tuple[dict, dict], second: tuple[dict, dict]) -> None:
        merged: dict[Var, Value] = {}
        for var, one in first[0].items():
            if var not in second[0]:
                continue
            other = second[0][var]
            if one is other or (isinstance(one, Affine) and one == other):
                merged[var] = one
            elif isinstance(one, Affine) and isinstance(other, Affine):
                lo, hi = first[1].get(var) or self.facts.interval(one)
                least, most = second[1].get(var) or self.facts.interval(other)
                merged[var] = self.facts.one_of(var.name, [one, other], min(lo, least), max(hi, most))
        self.environment = merged

    # --- loops

    def _for(self, node: For) -> bool:
        start, stop, step = (self.number(self.value(bound)) for bound in (node.start, node.stop, node.step))
        by = step.number or None
        facts = self.facts
        rising = facts.interval(step)[0] >= 1 if by is None else by > 0
        span = None
        if by is not None or rising:
            span = stop - start if rising else start - stop  # at least 1 where there is an iteration
            if facts.is_at_most(span):
                return True
        all_items = self.items is not None and (start, stop) == self.items
        certain = self.certain and span is not None and (all_items or facts.is_at_least(span, 1))
        known = start.number is not None and stop.number is not None

        def enter() -> Affine | None:
            """The number of the iteration; None where there is none."""
            if span is None:
                self.environment[node.var] = self.unknown(node.var.name, "s64")
                return multiple(facts.symbol("iteration", 0, LONGEST))
            if by is None:
                count = self._enter_unknown_steps(node.var, start, stop)
            elif by == 1:
                count = self._enter_single_steps(node.var, start, stop, certain and (all_items or known))
            else:
                count = self._enter_steps(node.var, start, span, by, certain and known)
            return count if facts.assume(span - 1) else None

        return self._loop(node, node.body, enter, lambda: self._trips(span, by), certain)

    def _trips(self, span: Affine | None, by: int | None) -> Affine:
        """The number of iterations."""
        if span is None or by is None:
            return multiple(self.facts.symbol("iterations", 0, LONGEST))
        made = self.facts.quotient(span + (abs(by) - 1), Affine(abs(by)))
        assert made is not None
        return self.facts.maximum([Affine(0), made])

    def _enter_unknown_steps(self, var: Var, start: Affine, stop: Affine) -> Affine:
        """The iteration of a loop whose step is at least 1, and no number."""
        facts = self.facts
        lo, hi = facts.inf(start), facts.sup(stop) - 1
        made = facts.symbol(var.name, lo, hi, [((start,), 1)], [((stop - 1,), 1)])
        self.environment[var] = multiple(made)
        return multiple(facts.symbol("iteration", 0, max(0, hi - lo)))

    def _enter_single_steps(self, var: Var, start: Affine, stop: Affine, exact: bool) -> Affine:
        """The iteration of a loop by 1. exact: each value between is one of an iteration."""
        facts = self.facts
        made = facts.symbol(var.name, facts.inf(start), facts.sup(stop) - 1, [((start,), 1)], [((stop - 1,), 1)])
        made.exact = exact
        value = self.environment[var] = multiple(made)
        return value - start

    def _enter_steps(self, var: Var, start: Affine, span: Affine, by: int, exact: bool) -> Affine:
        """The iteration of a loop by a number other than 1."""
        facts = self.facts
        most = (facts.sup(span) - 1) // abs(by)
        made = facts.symbol("iteration", 0, most, (), [below(span - 1, abs(by))])
        made.exact = exact
        count = multiple(made)
        self.environment[var] = start + count * by
        return count

    def _while(self, node: While) -> bool:
        def enter() -> Affine | None:
            count = multiple(self.facts.symbol("iteration", 0, LONGEST))
            self._statement = node
            test = self.truth(self.value(node.test))
            if self.decided(test) is False or not self.assume(test.yes):
                return None
            return count

        def trips() -> Affine:
            return multiple(self.facts.symbol("iterations", 0, LONGEST))

        endless = node.test == Const("pred", True)
        if not self._loop(node, node.body, enter, trips, False, endless):
            return False
        if not self.loops_broke:
            self._statement = node
            test = self.truth(self.value(node.test))
            if not self.assume(test.no):
                return False
        self.certain = False
        return True

    def _loop(self, node: For | While, body: list[Stmt], enter, trips, certain: bool, endless: bool = False) -> bool:
        facts, before, outside = self.facts, dict(self.environment), self.certain
        loop = Loop(self, self.value, node, before)
        journal = dict(self.journal)
        for number in range(PASSES + 1):
            if number == PASSES:
                loop.forget()
            mark = facts.mark()
            self.environment = {v: x for v, x in before.items() if v not in loop.assigned}
            loop.begin(number == 0)
            self.certain = certain
            self.loops.append(loop)
            # The values of the variables at the head of an iteration need its number, which needs no variable.
            count = multiple(facts.symbol("count", 0, LONGEST))
            if isinstance(node, For):
                entered = enter()
                count = entered or count
                self.environment |= {v: x for v, x in loop.heads(self, count).items() if v is not node.var}
            else:
                self.environment |= loop.heads(self, count)
                entered = enter()
            if entered is not None and self.block(body):
                loop.ends(self)
            self.loops.pop()
            facts.undo(mark)
            if loop.settled(self):
                break
            self.journal = dict(journal)
        self.environment = {v: x for v, x in before.items() if v not in loop.assigned}
        self.environment |= loop.after(self, trips, endless)
        self.certain = outside and not self.left
        self.loops_broke = loop.broke
        return not endless or loop.broke

    # --- accesses

    def note(self, site: Site, status: str, reason: str = "") -> None:
        old = self.journal.get(site)
        if old is None or _WORSE.index(old[0]) < _WORSE.index(status):
            self.journal[site] = status, reason

    def accessed(self, node: Load | Store, pointer: Value, index: Value) -> None:
        site = self.here.of_access[id(self._statement), id(node)]
        if not isinstance(pointer, Affine) or not isinstance(index, Affine):
            self.note(site, UNPROVED, "its address is not known")
            return
        size = site.itemsize
        self._within(site, pointer + index * size, Affine(size), size)

    def _memory(self, site: Site, memory: Memory) -> None:
        facts, mark = self.facts, self.facts.mark()
        start = self.number(self.value(memory.start))
        before = after = Affine(0)
        some = True
        for count, stride in memory.strides:
            many, apart = self.number(self.value(count)), self.number(self.value(stride))
            some = some and facts.assume(many - 1)
            last = facts.product(many - 1, apart)
            if not facts.is_at_least(last):
                before = before + facts.minimum([Affine(0), last])
            if not facts.is_at_most(last):
                after = after + facts.maximum([Affine(0), last])
        if not some:
            pass
        elif memory.runs is not None and not facts.is_at_most(self.number(self.value(memory.runs[0])), 1):
            self.note(site, UNPROVED, "it reads runs whose distances are in memory")
        else:
            self._within(site, start + before, after - before + memory.nbytes, 1)
        facts.undo(mark)

    def _within(self, site: Site, word: Affine, nbytes: Affine, unit: int) -> None:
        """Notes whether so many bytes at an address are within an array. unit: bytes that its size is counted in."""
        bases = [symbol for symbol in word.terms if symbol.is_base]
        if len(bases) != 1 or word.terms[bases[0]] != 1:
            several = next((symbol for symbol in word.terms if symbol.choices), None)
            if several is None or bases:
                self.note(site, UNPROVED, "its address is of no array that is known")
                return
            factor = word.terms[several]
            certain, self.certain = self.certain, False
            for choice in several.choices:
                self._within(site, word.without(several) + choice * factor, nbytes, unit)
            self.certain = certain
            return
        base, facts = bases[0], self.facts
        offset = word.without(base)
        if base.region is None:
            self.note(site, UNPROVED, f"the size of {base.name} is not known")
            return
        room = base.region - nbytes - offset
        if facts.is_at_least(offset) and facts.is_at_least(room):
            self.note(site, PROVED)
            return
        (least, most), size = facts.interval(offset), facts.sup(base.region)
        what = f"{base.name} has {size // unit} elements" if unit > 1 else f"{base.name} has {size} bytes"
        reason = f"{what}, the index is from {least // unit} to {most // unit}" if unit > 1 else (
            f"{what}, those accessed are from {least} to {facts.sup(offset + nbytes) - 1}"
        )  # fmt: skip
        outside = facts.is_at_most(offset, -1) or facts.is_at_most(room, -1)
        if all([symbol.exact for symbol in offset.terms]) and nbytes.number is not None:
            outside = (
                outside or sum([f * (s.lo if f > 0 else s.hi) for s, f in offset.terms.items()]) + offset.constant < 0
            )
            highest = sum([f * (s.hi if f > 0 else s.lo) for s, f in offset.terms.items()]) + offset.constant
            outside = outside or facts.is_at_most(base.region - nbytes - highest, -1)
        self.note(site, OUT if outside and self.certain else UNPROVED, reason)
