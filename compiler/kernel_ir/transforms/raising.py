"""Loops of HLO as loops of the language: parts of a kernel become its statements, memory of one element a variable.

    raised(kernel, parts, ranges) -> Kernel

What is decided by the ranges of integers is decided: clamps of indices that are in range, the tests around a scatter. A
variable that each iteration changes by a number is written as a multiple of the iteration's number, so that the
dependence test knows it (`optimize.transformed`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hloom.compiler.kernel_ir.affine.dependences import Range
from hloom.compiler.kernel_ir.affine.evaluation import Evaluation
from hloom.compiler.kernel_ir.affine.sums import Affine, linear, multiple
from hloom.compiler.kernel_ir.builder import ONE, ZERO, assign, constant, plus, times
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Choice,
    Const,
    Do,
    Expr,
    For,
    If,
    Jump,
    Kernel,
    Load,
    Logic,
    Scratch,
    Stmt,
    Store,
    Together,
    Unary,
    Var,
    While,
)
from hloom.compiler.kernel_ir.rewrite import (
    assigned,
    mapped,
    read,
    replaced,
    substituted,
    with_expressions,
    with_variables,
)
from hloom.compiler.kernel_ir.transforms.nests import Around
from hloom.compiler.kernel_ir.types import STORED, is_integer
from hloom.ir.records import replace

__all__ = ["CannotBeRaisedError", "raised"]


class CannotBeRaisedError(Exception):
    """A kernel with parts that are more than the computation of an element. LLVM optimizes these better by themselves,
    where it knows that none of their arrays overlap."""


def raised(kernel: Kernel, parts: Mapping[str, Kernel], ranges: Mapping[str, Range]) -> Kernel:
    """A kernel of parts that compute one element each, without parts. Raises CannotBeRaisedError."""
    around = Around(kernel, ranges)
    made = replace(kernel, body=mapped(kernel.body, lambda s: _statements_of(around, s, parts)))
    scalars = _scalars(made)
    made = replace(made, body=_with_scalars(made.body, scalars))
    made = replace(made, body=_Resolved(around, made, set(scalars.values())).block(made.body))
    return replace(made, body=_without_unread(made.body))


def _without(statements: list[Stmt], reads: set[Var]) -> list[Stmt]:
    return mapped(statements, lambda s: [] if isinstance(s, Assign) and s.var not in reads else None)


def _without_unread(statements: list[Stmt]) -> list[Stmt]:
    """Statements without assignments of what nothing reads."""
    while True:
        made = _without(statements, {*read(statements)})
        if all(one is other for one, other in zip(made, statements, strict=False)) and len(made) == len(statements):
            return made
        statements = made


# --- parts


def _statements_of(around: Around, statement: Stmt, parts: Mapping[str, Kernel]) -> list[Stmt] | None:
    """The statements of a part in the place of its call."""
    if not isinstance(statement, Do) or statement.function not in parts:
        return None
    part = parts[statement.function]
    if any(isinstance(s, Jump) and s.how == "return" for s in part.walk()):
        raise CannotBeRaisedError
    own = {var: Var(var.type, around.renamed(var.name), var.varies) for var in assigned(part.body)}
    given = dict(zip(part.params, statement.arguments, strict=True))
    if not given.keys().isdisjoint(own):
        raise CannotBeRaisedError
    body = [with_variables(s, own) for s in part.body]
    made = mapped([with_expressions(s, lambda e: substituted(e, given)) for s in body], _once)
    if any(isinstance(one, (For, While, Scratch)) for s in made for one in s.walk()):
        raise CannotBeRaisedError
    return made


def _once(statement: Stmt) -> list[Stmt] | None:
    """The body of a loop of one iteration."""
    match statement:
        case For(start=Const(value=int(start)), stop=Const(value=int(stop)), step=Const(value=1), body=body):
            leaves = any(isinstance(s, Jump) and s.how != "return" for s in statement.walk())
            if stop - start == 1 and not leaves and statement.var not in assigned(body):
                return [with_expressions(s, lambda e: substituted(e, {statement.var: constant(start)})) for s in body]
    return None


# --- memory of one element


def _scalars(kernel: Kernel) -> dict[Var, Var]:
    """Scratch memory of one element that is only read and written at 0, with the variable that it becomes."""
    scratch = [s.var for s in kernel.walk() if isinstance(s, Scratch) and s.size == 1]
    found = {p: Var(p.type[1:], p.name, True) for p in scratch if p.type[1:] == "pred" or p.type[1:] not in STORED}
    uses, elements = Counter(var for var in read(kernel.body) if var in found), Counter[Expr]()
    for statement in kernel.walk():
        if isinstance(statement, Together):
            raise CannotBeRaisedError
        if isinstance(statement, Store) and statement.index == ZERO and not statement.augmented:
            elements[statement.pointer] += statement.stored == statement.pointer.type[1:]
        for expression in statement.expressions():
            for one in expression.walk():
                if isinstance(one, Load) and one.index == ZERO:
                    elements[one.pointer] += 1
    return {p: var for p, var in found.items() if uses[p] == elements[p]}


def _with_scalars(statements: Sequence[Stmt], scalars: Mapping[Var, Var]) -> list[Stmt]:
    def value(expression: Expr) -> Expr | None:
        match expression:
            case Binary(op="==" | "!=" as op, left=Load(type="u8", pointer=Var() as pointer), right=Const(value=0)):
                if pointer in scalars:
                    return Unary("pred", "not", scalars[pointer]) if op == "==" else scalars[pointer]
            case Load(type=kind, pointer=Var() as pointer) if pointer in scalars:
                var = scalars[pointer]
                return var if kind == var.type else Choice(kind, var, Cast(kind, ONE), Cast(kind, ZERO))
        return None

    def statement(one: Stmt) -> Stmt | list[Stmt] | None:
        if isinstance(one, Scratch) and one.var in scalars:
            return []
        if isinstance(one, Store) and isinstance(one.pointer, Var) and one.pointer in scalars:
            var = scalars[one.pointer]
            return Assign(var, one.value if one.value.type == var.type else Cast(var.type, one.value))
        return None

    return mapped([with_expressions(s, lambda e: replaced(e, value)) for s in statements], statement)


# --- what is decided


class _Resolved(Evaluation):
    """The walk over a kernel's statements. current: what variables that change are now."""

    def __init__(self, around: Around, kernel: Kernel, scalars: set[Var]):
        super().__init__()
        self.around = around
        self.changing = scalars
        self.current: dict[Var, Expr] = {}
        for var in kernel.params:
            known = around.ranges.get(var)
            if is_integer(var.type):
                low, high = known if isinstance(known, tuple) else (known, known)
                self.environment[var] = self.unknown(var.name, var.type, low, high)

    def block(self, statements: Sequence[Stmt]) -> list[Stmt]:
        made: list[Stmt] = []
        for statement in statements:
            made += self.statement(statement)
        return made

    def statement(self, node: Stmt) -> list[Stmt]:
        match node:
            case Assign() if node.var in self.changing:
                return self.change(node.var, self.simple(node.value))
            case Assign():
                value = self.simple(node.value)
                if not node.var.varies and value.type == node.var.type and _is_settled(value):
                    self.current[node.var] = value
                    return []
                if not node.var.varies and (is_integer(node.var.type) or node.var.type == "pred"):
                    self.environment[node.var] = self.value(value)
                return [replace(node, value=value, augmented=False)]
            case If():
                return self.branch(node)
            case For():
                return self.loop(node)
            case While():
                return self.endless(node)
        return [with_expressions(node, self.simple)]

    def change(self, var: Var, value: Expr) -> list[Stmt]:
        """A variable that changes gets a value, under a name that does not."""
        if value.type == var.type and _is_settled(value):
            self.current[var] = value
            return [Assign(var, value)]
        now = self.around.fresh(var.type, f"{var.name}_now")
        self.environment[now] = self.value(value)
        self.current[var] = now
        return [Assign(now, value), Assign(var, now)]

    def branch(self, node: If) -> list[Stmt]:
        test = self.simple(node.test)
        found = self.truth(self.value(test))
        known = self.decided(found)
        if known is not None:
            return self.block(node.then if known else node.other)
        before, blocks = dict(self.current), []
        for given, body in ((found.yes, node.then), (found.no, node.other)):
            mark, self.current = self.facts.mark(), dict(before)
            blocks.append(self.block(body) if self.assume(given) else list(body))
            self.facts.undo(mark)
        self.current = {v: e for v, e in before.items() if v not in assigned([node])}
        return [If(test, *blocks)]

    def endless(self, node: While) -> list[Stmt]:
        own = assigned([node])
        kept = {v: e for v, e in self.current.items() if v not in own}
        self.current = dict(kept)
        made = While(self.simple(node.test), self.block(node.body))
        self.current = kept
        return [made]

    def loop(self, node: For) -> list[Stmt]:
        bounds = {name: self.simple(getattr(node, name)) for name in node.PARTS}
        start, stop = (self.number(self.value(bounds[name])) for name in ("start", "stop"))
        own, facts = assigned(node.body), self.facts
        leaves = any(isinstance(s, Jump) for s in node.walk())
        first = self.current
        outside = {v: e for v, e in first.items() if v not in own}
        if leaves or node.step != ONE or node.var in own or not facts.is_at_least(stop - start):
            self.current = dict(outside)
            self.environment.pop(node.var, None)
            made = replace(node, **bounds, body=self.block(node.body))
            self.current = outside
            return [made]
        symbol = facts.symbol(node.var.name, facts.inf(start), facts.sup(stop) - 1, [((start,), 1)], [((stop - 1,), 1)])
        self.environment[node.var] = multiple(symbol)
        steps = {
            v: self.step_of(v, node.body, first[v], stop - start) for v in own if v in self.changing & first.keys()
        }
        starts = {v: (first[v], step) for v, step in steps.items() if step is not None}
        self.current = dict(outside)
        body = [*self.advanced(starts, node.var, bounds["start"], "at"), *self.block(node.body)]
        self.current = outside
        return [replace(node, **bounds, body=body), *self.advanced(starts, bounds["stop"], bounds["start"], "after")]

    def advanced(self, starts: Mapping[Var, tuple[Expr, int]], end: Expr, start: Expr, hint: str) -> list[Stmt]:
        """Variables that a loop changes by a number each time, in the iteration `end`: start + count * number."""
        count = end if start == ZERO else Binary("s64", "-", end, start)
        made: list[Stmt] = []
        for var, (first, step) in starts.items():
            now = self.around.fresh("s64", f"{var.name}_{hint}")
            value = _moved(first, count, step)
            made.append(assign(now, value))
            self.environment[now] = self.value(value)
            self.current[var] = now if var.type == "s64" else Cast(var.type, now)
        return made

    def step_of(self, var: Var, body: Sequence[Stmt], first: Expr, trips: Affine) -> int | None:
        """What each iteration of a loop adds to a variable; None where that is not always the same."""
        changes = [s for root in body for s in root.walk() if isinstance(s, Assign) and s.var is var]
        if not is_integer(var.type) or len(changes) != 1 or not any(s is changes[0] for s in body):
            return None
        local = {s.var: s.value for s in body if isinstance(s, Assign) and not s.var.varies}

        def meaning(one: Var) -> Affine | Expr | None:
            return multiple(one) if one is var else local.get(one)

        between: list[int | None] = []  # what was added where it is converted to a narrower type

        def fits(form: Affine, kind: str) -> bool:
            if form.number is not None:
                return self.fitting(form, kind) == form
            between.append((form - multiple(var)).number)
            return kind == var.type

        form = linear(changes[0].value, meaning, fits)
        step = None if form is None else (form - multiple(var)).number
        if step is None or not all(part is not None and 0 <= part * step <= step * step for part in between):
            return None
        start = self.number(self.value(first))
        ends = [start, start + trips * step]
        least, most = min(map(self.facts.inf, ends)), max(map(self.facts.sup, ends))
        return step if self.fitting(Affine(least), var.type).number == least and self.fitting(
            Affine(most), var.type).number == most else None  # fmt: skip

    # --- expressions

    def simple(self, expression: Expr) -> Expr:
        """An expression of what variables are now, without what is decided."""
        if isinstance(expression, Var):
            return self.current.get(expression, expression)
        made = expression.mapped(self.simple)
        match made:
            case Cast(type=kind, operand=operand) if operand.type == kind:
                return operand
            case Call(function="min" | "max" as name, arguments=(left, right)) if is_integer(made.type):
                return self.extremum(made, name, left, right)
            case Choice(test=test, yes=yes, no=no):
                known = self.decided(self.truth(self.value(test)))
                chosen = made if known is None else yes if known else no
                return chosen if chosen.type == made.type else made
            case Binary(type="pred") | Logic() | Unary(type="pred", op="not"):
                known = self.decided(self.truth(self.value(made)))
                return made if known is None else Const("pred", known)
        return made

    def extremum(self, made: Call, name: str, left: Expr, right: Expr) -> Expr:
        apart = self.number(self.value(left)) - self.number(self.value(right))
        if name == "max":
            apart = -apart
        if left.type == made.type and self.facts.is_at_most(apart):
            return left
        return right if right.type == made.type and self.facts.is_at_least(apart) else made


def _is_settled(value: Expr) -> bool:
    """Whether an expression is a number or a variable that does not change."""
    operand = value.operand if isinstance(value, Cast) else value
    return isinstance(operand, Const) or (isinstance(operand, Var) and not operand.varies)


def _moved(first: Expr, count: Expr, step: int) -> Expr:
    """first + count * step."""
    moved = count if step == 1 else times(count, constant(step))
    return moved if isinstance(first, Const) and first.value == 0 else plus(first, moved)
