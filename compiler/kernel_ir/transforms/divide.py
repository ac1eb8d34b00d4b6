"""Loop distribution: functions that a loop need not wait for, as a loop of their own, which LLVM vectorizes.

    for i in range(n):                      for first in range(0, n, 128):
        total = total + log(v)                  for i in range(first, min(first + 128, n)):
        v = a + b * v                               v_then[i - first] = v
                                                    v = a + b * v
                                                for i in range(first, min(first + 128, n)):
                                                    value[i - first] = log(v_then[i - first])
                                                for i in range(first, min(first + 128, n)):
                                                    total = total + value[i - first]

Iterations that wait for each other keep a loop from being vectorized, though what they wait for may be an addition, and
most of their time a logarithm. Statements that depend on the function's value, in this iteration or a later one, come
after it, all others before; what these change and the later ones read is kept for each iteration. Every value is
computed by the same operations as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hloom.compiler.kernel_ir.builder import ONE, call, constant, minus, plus, times
from hloom.compiler.kernel_ir.functions import by_name, is_slow
from hloom.compiler.kernel_ir.nodes import Assign, Binary, Call, Expr, For, If, Load, Scratch, Stmt, Store, Var
from hloom.compiler.kernel_ir.rewrite import assigned, replaced, substituted, variables_of, with_expressions
from hloom.compiler.kernel_ir.transforms.nests import (
    Around,
    has_fixed_bounds,
    is_straight,
    read_first,
    step_of,
)
from hloom.ir.records import record

__all__ = ["divided"]

BLOCK = 128  # iterations whose values are kept: some arrays of them stay in the first cache
LANES = 8  # a loop over kept numbers alone goes on to a multiple of these, so that no iterations are left over
MOST_KEPT = 8  # arrays of a block
MOST_NODES = 60  # of a value that is computed apart
_KEPT = ("f32", "f64", "s32", "s64", "u32", "u64")


def divided(around: Around, loop: For) -> list[Stmt] | None:
    """An innermost loop in three; None where it has no such functions, or does not wait for anything else."""
    own = {loop.var, *assigned(loop.body)}
    if step_of(loop) != 1 or not is_straight(loop.body, If) or not has_fixed_bounds(loop, own):
        return None
    if not any(map(is_slow, loop.called())) or loop.var in around.varying:
        return None
    made = _Division(around, loop, own)
    return made.loops() if made.find() else None


@record(eq=False)
class _Part:
    """A statement of the loop. reads, writes: variables. loads, stores: pointers of arrays. slow: whether what it
    evaluates may be computed apart."""

    statement: Stmt
    reads: frozenset[Var]
    loads: frozenset[Var]
    writes: frozenset[Var]
    stores: frozenset[Var]
    slow: bool


def _part(statement: Stmt) -> _Part:
    inner = [*statement.walk()]
    loads = {
        e.pointer
        for s in inner
        for x in s.expressions()
        for e in x.walk()
        if isinstance(e, Load) and isinstance(e.pointer, Var)
    }
    stores = {s.pointer for s in inner if isinstance(s, Store) and isinstance(s.pointer, Var)}
    slow = isinstance(statement, (Assign, Store)) and any(map(is_slow, statement.called()))
    return _Part(
        statement, frozenset(variables_of([statement]) - stores), frozenset(loads), frozenset(assigned([statement])),
        frozenset(stores), slow,
    )  # fmt: skip


class _Division:
    """parts: the loop's statements. after: numbers of those that come after the functions. simple: variables that the
    loop's variable and invariants determine, with their values. apart: values that are computed apart, by the number of
    the statement that they are part of."""

    def __init__(self, around: Around, loop: For, own: set[Var]):
        self.around, self.loop, self.own = around, loop, own
        self.parts = [_part(s) for s in loop.body]
        self.stored: frozenset[Var] = frozenset().union(*[p.stores for p in self.parts])
        self.simple: dict[Var, Expr] = {}
        self.after: set[int] = set()
        self.tainted: set[Var] = set()  # variables and arrays that these write
        self.apart: dict[int, list[Expr]] = {}
        self.scratches: list[Scratch] = []

    def find(self) -> bool:
        """Whether there is something to compute apart, and what the loop waits for is not that."""
        arrays = frozenset().union(*[p.loads | p.stores for p in self.parts])
        if not arrays <= self.around.arrays or not self._waits():
            return False
        self._find_simple()
        slow = {k for k, p in enumerate(self.parts) if p.slow}
        while slow:
            self._find_after(slow)
            self.apart = {k: [*self._largest(self._value(k))] for k in slow}
            missing = {k for k in slow if not self.apart[k]}
            if not missing:
                return True
            slow -= missing
        return False

    def _waits(self) -> bool:
        """Whether iterations hand on numbers other than counters and sums whose order is free."""
        counts = Counter(s.var for p in self.parts for s in p.statement.walk() if isinstance(s, Assign))
        handed = [var for var in counts if read_first(self.loop.body, {var})]
        for part in self.parts:
            for s in part.statement.walk():
                if isinstance(s, Assign) and s.var in handed and not _is_free(s):
                    if s.var.type in ("f32", "f64") or isinstance(part.statement, If):
                        return True
        return False

    def _find_simple(self) -> None:
        counts = Counter(s.var for p in self.parts for s in p.statement.walk() if isinstance(s, Assign))
        for part in self.parts:
            s = part.statement
            if not isinstance(s, Assign) or counts[s.var] > 1 or part.slow or read_first(self.loop.body, {s.var}):
                continue
            if part.loads & self.stored or any(
                v in self.own and v not in self.simple and v is not self.loop.var for v in part.reads - part.loads
            ):
                continue
            value = substituted(s.value, self.simple)
            if sum(1 for _ in value.walk()) <= MOST_NODES:
                self.simple[s.var] = value

    def _value(self, number: int) -> Expr:
        statement = self.parts[number].statement
        assert isinstance(statement, (Assign, Store))
        return substituted(statement.value, self.simple)

    def _find_after(self, slow: set[int]) -> None:
        """All that depends on slow statements, and what has to stay in order with it."""
        self.after, self.tainted = set(slow), set()
        before = -1
        while before != len(self.after):
            before = len(self.after)
            chosen = [self.parts[k] for k in self.after]
            self.tainted = set().union(*[p.writes | p.stores for p in chosen])
            loaded = frozenset().union(*[p.loads for p in chosen])
            for k, p in enumerate(self.parts):
                if (p.reads | p.writes | p.stores) & self.tainted or p.stores & loaded:
                    self.after.add(k)

    def _largest(self, value: Expr) -> Iterator[Expr]:
        """The largest parts of a value with a slow function that nothing before them waits for."""
        nodes = [*value.walk()]
        if not any(isinstance(e, Call) and is_slow(e.function) for e in nodes):
            return
        free = not any(e in self.tainted for e in nodes if isinstance(e, Var)) and len(nodes) <= MOST_NODES
        if (
            free
            and value.type in ("f32", "f64")
            and not any(isinstance(e, Load) and e.pointer in self.stored for e in nodes)
        ):
            yield value
            return
        for part in value.children():
            yield from self._largest(part)

    # --- the loops

    def loops(self) -> list[Stmt] | None:
        around, loop = self.around, self.loop
        first, end = around.fresh("s64", "first"), around.fresh("s64", "end")
        early, now = around.fresh("s64", loop.var.name), around.fresh("s64", loop.var.name)
        self.changing = self.own | {first, now}
        kept: dict[tuple[Var, int], Var] = {}  # by variable, and how many statements before assigned it
        times_assigned: Counter[Var] = Counter()
        body: list[Stmt] = []  # of the first loop
        late: list[Stmt] = []  # of the last one
        apart: list[tuple[Var, Expr]] = []

        def keep(var: Var) -> Var:
            key = (var, times_assigned[var])
            if key not in kept:
                kept[key] = self._array(var.type, f"{var.name}_then")
                body.append(Store(kept[key], minus(early, first), var, var.type))
            return kept[key]

        def of_then(value: Expr, index: Expr) -> Expr:
            """A value with what is kept in the place of variables of statements before."""
            places = {
                var: Load(var.type, keep(var), index)
                for var in variables_of([Assign(first, value)])
                if var in self.own and var not in self.tainted and var not in self.simple and var is not loop.var
            }
            return substituted(value, places)

        for k, part in enumerate(self.parts):
            statement = part.statement
            if k in self.after:
                places: dict[Expr, Expr] = {}
                if k in self.apart:
                    assert isinstance(statement, (Assign, Store))
                    for value in self.apart[k]:
                        if value not in places:
                            array = self._array(value.type, "value")
                            apart.append((array, substituted(of_then(value, minus(now, first)), {loop.var: now})))
                            places[value] = Load(value.type, array, minus(loop.var, first))
                    made = replaced(substituted(statement.value, self.simple), places.get)
                    statement = _with_value(statement, made)
                late.append(with_expressions(statement, lambda e: of_then(e, minus(loop.var, first))))
            elif isinstance(statement, Assign) and statement.var in self.simple:
                late.append(statement)
            else:
                body.append(with_expressions(statement, lambda e: substituted(e, self.simple)))
                times_assigned.update(part.writes)
        if len(self.scratches) > MOST_KEPT or any(s.var.type[1:] not in _KEPT for s in self.scratches):
            return None
        body = [with_expressions(s, lambda e: substituted(e, {loop.var: early})) for s in body]
        inside: list[Stmt] = [Assign(end, call("min", [plus(first, constant(BLOCK)), loop.stop], by_name))]
        if body:
            inside.append(For(early, first, end, ONE, body))
        inside += [
            For(now, first, self._end(value, first, end), ONE, [Store(a, minus(now, first), value, value.type)])
            for a, value in apart
        ]
        inside.append(For(loop.var, first, end, ONE, late))
        return [*self.scratches, For(first, loop.start, loop.stop, constant(BLOCK), inside)]

    def _end(self, value: Expr, first: Var, end: Var) -> Expr:
        """Where the loop of a value ends: arrays that it reads along the loop do not go on."""
        arrays = {s.var for s in self.scratches}
        for e in value.walk():
            if isinstance(e, Load) and e.pointer not in arrays:
                if any(isinstance(v, Var) and v in self.changing for v in e.index.walk()):
                    return end
        vectors = Binary("s64", "//", plus(minus(end, first), constant(LANES - 1)), constant(LANES))
        return plus(first, times(vectors, constant(LANES)))

    def _array(self, kind: str, hint: str) -> Var:
        var = self.around.fresh(f"*{kind}", hint)
        self.scratches.append(Scratch(var, BLOCK))
        return var


def _with_value(statement: Assign | Store, value: Expr) -> Stmt:
    if isinstance(statement, Assign):
        return Assign(statement.var, value)
    return Store(statement.pointer, statement.index, value, statement.stored, statement.streamed)


def _is_free(statement: Assign) -> bool:
    """Whether a number is a sum or a product whose order is free, which are computed in vectors."""
    value = statement.value
    return isinstance(value, Call) and value.function.partition("_")[0] in ("sum", "prod")
