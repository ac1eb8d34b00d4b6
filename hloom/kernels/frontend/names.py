"""Names of a user's kernel: their values after an assignment, and the known facts about the numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from hloom.compiler.kernel_ir.nodes import Assign, Binary, Const, Expr, Load, Logic, Stmt, Unary, Var
from hloom.errors import DTypeError, UnsupportedError
from hloom.ir.records import replace
from hloom.ir.types import PRED
from hloom.kernels.frontend import ranges
from hloom.kernels.frontend.arithmetic import register
from hloom.kernels.frontend.expressions import Expressions
from hloom.kernels.frontend.values import S64, UNKNOWN, Lazy, Listed, Number, Range, Static, Value, View

__all__ = ["Again", "Names", "Widen"]

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "!=": "==", "==": "!="}


class Again(Exception):
    """Something was assumed of the function that does not hold, and is no more."""


class Widen(Exception):
    """A variable has values of several dtypes: it has their common one from its first assignment on."""

    def __init__(self, key: str, dtype: np.dtype, weak: bool):
        self.key, self.dtype, self.weak = key, dtype, weak


class Names(Expressions):
    """Assignments to names.

    declared: dtypes of variables that are assigned several times. cells: these variables. carried: names reassigned in
    loops or branches. stack: the calls of the user's functions being compiled.
    """

    declared: dict[str, tuple[np.dtype, bool]]
    cells: dict[str, Var]
    carried: set[str]
    stack: list[str]

    # --- names

    bound_in: dict[str, list[Stmt]]  # the block in which a name was assigned

    def key(self, name: str) -> str:
        """A name of the function being compiled, distinct from the names of inlined functions."""
        return ".".join((*self.stack, name))

    def bind(self, name: str, value: Value) -> None:
        """Gives a name a value."""
        self.unset.discard(name)
        if isinstance(value, Static) and isinstance(value.value, (bool, int, float, np.generic)):
            value = self.number(value.value)
        if isinstance(value, Number) and name in self.carried:
            self._set(name, value)
            return
        old, key = self.names.get(name), self.key(name)
        if old is not None and self.bound_in.get(key) is not self.block and name in self.carried:
            self._same_kind(name, old, value)
            return
        self.bound_in[key] = self.block
        if isinstance(value, Number) and not isinstance(value.expr, (Var, Const)):
            var = self.named(value.expr, name)
            self.loops.definitions[var] = value.expr
            value = Number(var, value.dtype, value.weak, value.span, value.known)
        else:
            value = self.fixed(value, name)
        if isinstance(value, View):
            self.owners.setdefault(value.pointer, set()).add(key)
        self.names[name] = value

    def fixed(self, value: Value, hint: str = "held") -> Value:
        """A value unaffected by later assignments: a copy of numbers and elements, an array for an expression."""
        match value:
            case Number():
                return self._fixed_number(value, hint)
            case Lazy():
                return self.kept(value, hint)
            case View():
                return replace(
                    value, start=self._fixed_number(value.start), dims=tuple(map(self._fixed_number, value.dims)),
                    strides=tuple(map(self._fixed_number, value.strides)),
                )  # fmt: skip
            case Static(value=tuple(parts)):
                kind = Listed if isinstance(parts, Listed) else tuple
                return Static(kind([self.fixed(p) if isinstance(p, Value) else p for p in parts]))
            case Static(value=slice(start=start, stop=stop, step=step)):
                first, last = [self.fixed(p) if isinstance(p, Value) else p for p in (start, stop)]
                return Static(slice(first, last, step))
        return value

    def _fixed_number(self, value: Number, hint: str = "held") -> Number:
        variables = self.cells.values()
        if not any(isinstance(e, Load) or e in variables for e in value.expr.walk()):
            return value
        span = ranges.meet(value.span, self.span_of(value.expr)) if value.is_integer else value.span
        return Number(self.named(value.expr, hint), value.dtype, value.weak, span, value.known)

    owners: dict[Var, set[str]]  # of memory: the names that hold it or a part of it

    def _same_kind(self, name: str, old: Value, value: Value) -> None:
        """An array that a loop computes anew goes into the memory of the first one, which nothing else may hold."""
        if isinstance(old, View) and old.local and self.owners.get(old.pointer) == {self.key(name)}:
            fresh = isinstance(value, Lazy) or (isinstance(value, View) and not self.owners.get(value.pointer))
            if (
                isinstance(value, (View, Lazy))
                and fresh
                and self._is_whole(old)
                and old.dtype == value.dtype
                and self._are_alike(old.dims, value.dims)
            ):
                self.assign(old, value)
                return
        self.refuse(
            UnsupportedError, f"'{name}' becomes another object in a loop or a branch",
            "what it holds has to be known while compiling",
            "use another name, or write into an array of the same shape and dtype: x[...] = y",
        )  # fmt: skip

    def _is_whole(self, view: View) -> bool:
        return any(s.var is view.pointer for s in self.scratches) and view.start.known == 0

    @staticmethod
    def _are_alike(sizes: Sequence[Number], others: Sequence[Number]) -> bool:
        """Whether shapes are the same for certain."""
        return len(sizes) == len(others) and all(
            a.expr == b.expr or (a.known is not None and a.known == b.known) for a, b in zip(sizes, others, strict=True)
        )

    def _set(self, name: str, value: Number) -> None:
        """Assigns to a variable of numbers."""
        key = self.key(name)
        if isinstance(self.names.get(name), (View, Lazy)):
            self.refuse(DTypeError, f"'{name}' is an array, then a number", "a name is one of them in a kernel",
                        "use another name")  # fmt: skip
        dtype, weak = self.declared.get(key, (value.dtype, value.weak))
        (_, _), joined, still_weak = self.promoted(
            Number(value.expr, dtype, weak), Number(value.expr, value.dtype, value.weak)
        )
        if weak is not value.weak and (value.dtype if weak else dtype) == PRED:
            still_weak = True  # a number of Python; the truth value is one too
        if value.weak and not still_weak and joined.kind in "iu" and not self.holds(joined, value):
            joined = S64  # a Python integer that need not fit into the dtype of other assignments
        if (joined, still_weak) != (dtype, weak):
            raise Widen(key, joined, still_weak)
        self.declared[key] = (dtype, weak)
        var = self.cells.get(key)
        if var is None or var.type != register(dtype):
            var = self.cells[key] = Var(register(dtype), self.fresh(name), True)
        self.require_own(var, name)
        self.block.append(Assign(var, self.cast(value, dtype, weak).expr))
        self.spans.pop(var, None)
        if value.is_integer and dtype == S64:
            self.spans[var] = value.span
        self.names[name] = Number(var, dtype, weak)

    def require_own(self, var: Var, name: str) -> None:
        """Refuses an assignment to a variable from outside of the parallel loop."""

    # --- known facts about numbers

    @contextmanager
    def refined(self, test: Number | None, negated: bool = False) -> Iterator[None]:
        """Within it, a test is true, or false; afterwards the facts about numbers are restored."""
        before, alternatives = dict(self.spans), self.alternatives
        self.learn(test, negated)
        self.conditions += 1
        yield
        self.conditions -= 1
        self.spans, self.alternatives = before, alternatives

    def learn(self, test: Number | None, negated: bool = False) -> None:
        """From here on, a test is true, or false."""
        if test is not None:
            self._learn(test.expr, negated)

    def _learn(self, test: Expr, negated: bool) -> None:
        for var, span in self._facts(test, negated):
            self.spans[var] = ranges.meet(self.spans.get(var, UNKNOWN), span)
        if isinstance(test, Logic):
            if (test.op == "or") is not negated and all(map(_is_lasting, test.operands)):
                self.alternatives = (*self.alternatives, (test.operands, negated))
            return
        for operands, are_negated in self.alternatives:
            left = [one for one in operands if one != test or are_negated is negated]
            if len(left) == 1 < len(operands):
                self._learn(left[0], are_negated)

    alternatives: tuple[tuple[tuple[Expr, ...], bool], ...] = ()  # tests of which one is true, or if negated false

    def _facts(self, test: Expr, negated: bool) -> Iterator[tuple[Var, Range]]:
        match test:
            case Logic(op=op, operands=operands) if (op == "or") is negated:
                for one in operands:
                    yield from self._facts(one, negated)
            case Var() if value_of_test(self.implied.get(test), negated):
                yield from self._facts(self.implied[test], negated)
            case Unary(op="not", operand=operand):
                yield from self._facts(operand, not negated)
            case Binary(op=op, left=left, right=right) if op in _TURNED:
                op = _OPPOSITE[op] if negated else op
                if left.type == "s64":
                    yield from self._bounded(left, op, self.span_of(right))
                    yield from self._bounded(right, _TURNED[op], self.span_of(left))

    def _bounded(self, value: Expr, op: str, other: Range) -> Iterator[tuple[Var, Range]]:
        span = ranges.other_than(self.span_of(value), other) if op == "!=" else ranges.after(op, other)
        match value:
            case Var():
                yield value, span
            case Binary(op="+" | "-" as sign, left=Var() as var, right=Const(value=int(offset))):
                # What is known of a sum says something of its parts where the sum does not wrap around.
                low, high = ranges.of_operation(sign, self.spans.get(var, UNKNOWN), (offset, offset))
                if (high if (offset > 0) == (sign == "+") else low) is not None:
                    yield var, ranges.of_operation("-" if sign == "+" else "+", span, (offset, offset))

    def span_of(self, value: Expr) -> Range:
        """The known facts about a number of s64."""
        match value:
            case Const(value=bool()):
                return UNKNOWN
            case Const(value=int(number)):
                return (number, number)
            case Var():
                return self.spans.get(value, UNKNOWN)
            case Binary(op=op, left=left, right=right) if value.type == "s64":
                return ranges.of_operation(op, self.span_of(left), self.span_of(right))
        return UNKNOWN

    def of_name(self, node: ast.Name) -> Value:
        found = super().of_name(node)
        if isinstance(found, Number) and isinstance(found.expr, Var) and found.is_integer and found.known is None:
            span = ranges.meet(found.span, self.span_of(found.expr))
            if span != found.span:
                return Number(found.expr, found.dtype, found.weak, span)
        return found


def _is_lasting(test: Expr) -> bool:
    """Whether a test is a comparison of what does not change: of variables of loops, sizes and numbers."""
    parts = (test.left, test.right) if isinstance(test, Binary) else (test,)
    return all(isinstance(part, Const) or (isinstance(part, Var) and not part.varies) for part in parts)


def value_of_test(found: Logic | None, negated: bool) -> bool:
    """Whether a truth value says something of each of its parts."""
    return found is not None and (found.op == "or") is negated
