"""Statements of a user's kernel within one phase: assignments, loops over ranges, branches, calls."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from hloom.compiler.kernel_ir.nodes import (
    Const,
    Expr,
    For,
    If,
    Jump,
    Stmt,
    Unary,
    Var,
    While,
)
from hloom.errors import ArgumentError, UnsupportedError
from hloom.ir.source import Source
from hloom.kernels import language
from hloom.kernels.frontend import functions, ranges
from hloom.kernels.frontend.expressions import BINARY
from hloom.kernels.frontend.lists import axis_of_list
from hloom.kernels.frontend.names import Names
from hloom.kernels.frontend.syntax import assigned_names, carried_names, definition_of, direction, jumps, outside_names
from hloom.kernels.frontend.values import S64, UNKNOWN, Lazy, Number, Range, Static, Value, View, integer

__all__ = ["Statements"]

_DEEPEST = 16  # of calls of the user's functions within each other


class Statements(Names):
    """Expressions, and statements that make nodes."""

    file: str
    above: int  # lines of the file before the function's first

    # --- where we are

    @contextmanager
    def at(self, node: ast.stmt | ast.expr) -> Iterator[None]:
        outer = self.source
        self.source = Source(self.file, self.above + node.lineno, self.function)
        yield
        self.source = outer

    def block_of(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            with self.at(statement):
                method = getattr(self, f"do_{type(statement).__name__.lower()}", None)
                if method is None:
                    self.unsupported(f"a statement {type(statement).__name__}", "use assignments, for, while and if")
                method(statement)

    def apart(self, statements: Iterable[ast.stmt], test: Number | None = None, negated: bool = False) -> list[Stmt]:
        """The statements as a separate block."""
        outer, self.block = self.block, []
        self.depth += 1
        self.conditions += 1
        self.learn(test, negated)
        self.block_of(statements)
        self.conditions -= 1
        self.depth -= 1
        made, self.block = self.block, outer
        return made

    depth: int = 0  # of loops and branches around the current statement
    serial: int = 0  # of loops that are not parallel

    # --- assignments

    def do_assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        if len(node.targets) > 1:
            value = self.fixed(value)
        for target in node.targets:
            self._assign_to(target, value, ast.unparse(node.value))

    def do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign_to(node.target, self.value(node.value), ast.unparse(node.value))

    def _assign_to(self, target: ast.expr, value: Value, text: str) -> None:
        match target:
            case ast.Name(id=name):
                self.bind(name, value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                self._unpack(targets, value, text)
            case ast.Subscript():
                array = self.value(target.value)
                if not isinstance(array, View):
                    self.unsupported(f"an assignment to {ast.unparse(target):.60}", "assign to elements of an array")
                self._store(array, target, self.as_operand(value, text))
            case _:
                self.unsupported(f"an assignment to {ast.unparse(target):.60}", "assign to names and to elements")

    def _unpack(self, targets: list[ast.expr], value: Value, text: str) -> None:
        parts = value.value if isinstance(value, Static) else self._rows(value)
        if not isinstance(parts, tuple) or len(parts) != len(targets):
            found = f"{len(parts)} values" if isinstance(parts, tuple) else "something else than a tuple"
            self.refuse(
                ArgumentError, f"{len(targets)} names are assigned {text:.60}", found, "give one value for each"
            )
        numbers = [self.as_number(part) for part in parts]
        # All are computed before one is assigned: a, b = b, a + b.
        held = [
            Number(self.named(p.expr, "held"), p.dtype, p.weak, p.span)
            if isinstance(p, Number) and p.known is None and len(parts) > 1 and not _is_fixed(p.expr)
            else self.fixed(p)
            if len(parts) > 1
            else p
            for p in numbers
        ]
        for target, part in zip(targets, held, strict=True):
            self._assign_to(target, part, text)

    def _rows(self, value: Value) -> tuple[Value, ...] | None:
        """The elements of a vector, or the rows of an array, if their number is known."""
        if not isinstance(value, (View, Lazy)) or not value.dims or value.dims[0].known is None:
            return None
        array = self.kept(value, "values") if isinstance(value, Lazy) else value
        return tuple([self._element(self.taken_from(array, [integer(k)], "")) for k in range(value.dims[0].known)])

    def _store(self, array: View, target: ast.Subscript, value, index: Value | None = None) -> None:
        index = self.value(target.slice) if index is None else index
        entries = list(index.value) if isinstance(index, Static) and type(index.value) is tuple else [index]
        if (listed := axis_of_list(entries)) is not None:
            self.writes += bool(self.stack)
            self.assign_listed(array, entries, listed, value, ast.unparse(target))
            return
        place = self.place(array, target, index)
        self.writes += bool(self.stack)
        if not isinstance(place, View) or place.pointer is not array.pointer:
            self.unsupported(f"an assignment to {ast.unparse(target):.60}", "write a loop over the indices")
        if not place.dims and isinstance(value, Number):
            self.require_writable(place)
            self.store(place, (), value)
        else:
            self.assign(place, value)

    def do_augassign(self, node: ast.AugAssign) -> None:
        if type(node.op) is ast.MatMult:
            self.unsupported("@=", "write it as an assignment")
        op = BINARY[type(node.op)]
        self.writes += bool(self.stack)
        if isinstance(node.target, ast.Subscript):
            array = self.value(node.target.value)
            if not isinstance(array, View):
                self.unsupported(f"an assignment to {ast.unparse(node.target):.60}", "assign to elements of an array")
            place = self.place(array, node.target)
            if not isinstance(place, View) or place.pointer is not array.pointer:  # a copy
                self.unsupported(f"an assignment to {ast.unparse(node.target):.60}", "write a loop over the indices")
            self.require_writable(place)
            read = lambda: place if place.dims else self.load(place, ())  # noqa: E731
            old, right = self.in_order(read, lambda: self.value(node.value))
            value = self.combined(op, old, right, ast.unparse(node))
            made = self.as_operand(value, ast.unparse(node))
            if place.dims or not isinstance(made, Number):
                self.assign(place, made)
            else:
                self.store(place, (), made)
            return
        if not isinstance(node.target, ast.Name):
            self.unsupported(f"a change of {ast.unparse(node.target):.60}", "change elements of an array")
        value = self.combined(op, self.of_name(node.target), self.value(node.value), ast.unparse(node))
        current = self.names[node.target.id]
        if isinstance(current, View):  # in place, as NumPy
            self.assign(current, self.as_operand(value, ast.unparse(node)))
        else:
            self.bind(node.target.id, value)

    # --- control flow

    def do_pass(self, node: ast.Pass) -> None:
        pass

    def do_expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        if not isinstance(node.value, ast.Call):
            self.unsupported(f"a statement without effect: {ast.unparse(node):.60}", "assign it to something")
        call = node.value
        if not isinstance(call.func, ast.Attribute) or isinstance(self.value(call.func.value), Static):
            function = self.static(self.value(call.func))
            if (op := _ATOMIC.get(getattr(function, "__name__", ""))) and getattr(
                language, function.__name__
            ) is function:
                self.atomic(op, call)
                return
        self.value(call)

    def atomic(self, op: str, call: ast.Call) -> None:
        """`hl.atomic_add(array, index, value)` and its like."""
        if len(call.args) != 3 or call.keywords:
            self.refuse(ArgumentError, f"{ast.unparse(call):.60}", "it takes an array, an index and a value",
                        "pass the three of them")  # fmt: skip
        array = self.value(call.args[0])
        if not isinstance(array, View):
            self.unsupported(f"{ast.unparse(call.args[0]):.60} is no array", "pass an array that the kernel makes")
        entries = self.value(call.args[1])
        indices = list(entries.value) if isinstance(entries, Static) and isinstance(entries.value, tuple) else [entries]
        place = self.taken_from(self.combining(array, op), indices, ast.unparse(call))
        assert isinstance(place, View)
        value = self.scalar(call.args[2])
        if place.dims:
            self.unsupported(f"{ast.unparse(call):.60}: the index takes a part of the array", "index one element")
        self.require_writable(place)
        self.combine(place, op, value)

    def combine(self, place: View, op: str, value: Number) -> None:
        """Combines an element with a value, which no other iteration does at the same time."""
        local = View(
            place.pointer, place.dtype, (), (), Number(self._held(place.start.expr), S64), place.name, True, True
        )
        self.writes += bool(self.stack)
        old = self.load(local, ())
        self.store(local, (), self.binary(op, old, value))

    def combining(self, array: View, op: str) -> View:
        """The memory in which the values written by iterations are combined."""
        return array

    def do_if(self, node: ast.If) -> None:
        test = self.truth(self.scalar(node.test, "a condition"))
        if test.known is not None:
            self.block_of(node.body if test.known else node.orelse)
            return
        before, missing, spans, alternatives = dict(self.names), set(self.unset), dict(self.spans), self.alternatives
        then = self.apart(node.body, test)
        first, first_missing, first_spans = self.names, self.unset, self.spans
        self.names, self.unset, self.spans, self.alternatives = dict(before), set(missing), spans, alternatives
        other = self.apart(node.orelse, test, negated=True)
        self.alternatives = alternatives
        second = self.names
        leaves, ends = _leaves(then), _leaves(other)
        if ends:
            self.spans = first_spans
        elif not leaves:
            both = first_spans.keys() & self.spans.keys()
            self.spans = {var: ranges.union(first_spans[var], self.spans[var]) for var in both}
        merged = {}
        for name in {*first, *second}:
            if leaves or ends:
                found = (second if leaves else first).get(name)
                if found is not None:
                    merged[name] = found
            elif name in first and name in second:
                merged[name] = first[name] if first[name] is second[name] else self._merged(name, first, second)
        self.unset |= first_missing | ({*first, *second} - set(merged))
        self.names = merged
        self.block.append(If(test.expr, then, other))

    def _merged(self, name: str, first: dict[str, Value], second: dict[str, Value]) -> Value:
        a, b = first[name], second[name]
        if isinstance(a, Number) and isinstance(b, Number) and a.expr is b.expr:
            return a
        self.refuse(
            UnsupportedError, f"'{name}' is another object in each branch",
            "what it holds has to be known while compiling", "use another name, or assign numbers to it",
        )  # fmt: skip

    def do_while(self, node: ast.While) -> None:
        if node.orelse:
            self.unsupported("while ... else", "use a variable that says whether the loop was left")
        before = self._enter(node)
        outer, self.block = self.block, []
        test = self.truth(self.scalar(node.test, "a condition"))
        tested, self.block = self.block, outer
        if test.known is False:
            return
        names = dict(self.names)
        self.serial += 1
        body = self.apart(node.body, test)
        self.serial -= 1
        self._after_loop(names)
        self._leave(node, before)
        if not jumps(node):
            self.learn(test, negated=True)
        if tested:
            leave = If(Unary("pred", "not", test.expr), [Jump("break")])
            self.block.append(While(Const("pred", True), [*tested, leave, *body]))
        else:
            self.block.append(While(test.expr, body))

    def _cells_of(self, node: ast.stmt) -> dict[Var, str]:
        """The variables of numbers that a loop assigns, with their names."""
        found = {self.cells.get(".".join((*self.stack, name))): name for name in assigned_names([node])}
        return {var: name for var, name in found.items() if var is not None}

    def _enter(self, node: ast.For | ast.While) -> dict[Var, Range]:
        """The facts known before a loop. For variables that it assigns, those that hold in all iterations are kept."""
        before = dict(self.spans)
        for var, name in self._cells_of(node).items():
            low, high = self.spans.pop(var, UNKNOWN)
            if way := direction(node, name):
                self.spans[var] = (low, None) if way > 0 else (None, high)
        return before

    def _leave(self, node: ast.For | ast.While, before: dict[Var, Range]) -> None:
        """The facts known after a loop: those before it, joined with those after its last iteration."""
        after, self.spans = self.spans, dict(before)
        for var, name in self._cells_of(node).items():
            low, high = self.spans.pop(var, UNKNOWN)
            way = direction(node, name)
            kept: Range = UNKNOWN if not way else (low, None) if way > 0 else (None, high)
            if not jumps(node):
                kept = ranges.meet(kept, ranges.union((low, high), after.get(var, UNKNOWN)))
            self.spans[var] = kept

    def _after_loop(self, names: dict[str, Value]) -> None:
        """A loop may not have run: names first assigned in it may be unassigned."""
        self.unset |= set(self.names) - set(names)
        self.names = {name: self.names[name] if isinstance(self.names.get(name), Number) and isinstance(value, Number)
                      and name in self.carried else value for name, value in names.items()}  # fmt: skip

    def do_for(self, node: ast.For) -> None:
        if node.orelse:
            self.unsupported("for ... else", "use a variable that says whether the loop was left")
        match node.iter:
            case ast.Call(func=function, args=args, keywords=[]):
                called = self.static(self.value(function))
            case _:
                called, args = None, []
        if called in (language.parallel, language.tile):
            self.parallel_inside(node)
        elif called is range or functions.is_prange(called):
            self._range(node, [self.whole(self.scalar(a, "a bound of a range")) for a in args])
        else:
            self._over_values(node)

    def parallel_inside(self, node: ast.For) -> None:
        self.unsupported("a parallel loop inside of another loop or a branch", "use range in place of it")

    def _over_values(self, node: ast.For) -> None:
        """Over the elements of a tuple, once for each; over the elements or rows of an array."""
        given = self.value(node.iter)
        if isinstance(given, Static) and isinstance(given.value, tuple):
            if any(isinstance(s, (ast.Break, ast.Continue)) for s in ast.walk(node)):
                self.unsupported("break or continue in a loop over a tuple", "use if")
            for part in given.value:
                self._assign_to(node.target, part if isinstance(part, (Static, Number, View, Lazy))
                                else self._from_outside("", part), "")  # fmt: skip
                self.block_of(node.body)
            return
        if isinstance(given, (View, Lazy)) and given.dims:
            array = self.kept(given, "values") if isinstance(given, Lazy) else given
            row = lambda index: self.taken_from(array, [index], "")  # noqa: E731
            self._counted(node, integer(0), array.dims[0], 1, lambda index: self._element(row(index)))
            return
        self.unsupported(f"a loop over {ast.unparse(node.iter):.60}", "go over range(...), a tuple or an array")

    def _element(self, row) -> Value:
        return row if row.dims else self.load(row, ())

    def _range(self, node: ast.For, bounds: list[Number]) -> None:
        if not 1 <= len(bounds) <= 3:
            self.unsupported(f"{ast.unparse(node.iter):.60}", "range takes one to three integers")
        start, stop = (integer(0), bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2].known if len(bounds) == 3 else 1
        if not isinstance(step, int) or step == 0:
            self.unsupported(f"the step of {ast.unparse(node.iter):.60}", "use a step of a known number")
        self._counted(node, start, stop, step, self.counter)

    def counter(self, index: Number) -> Number:
        """What `range` yields."""
        return index

    def _counted(self, node: ast.For, start: Number, stop: Number, step: int, made) -> None:
        before = self._enter(node)
        hint = node.target.id if isinstance(node.target, ast.Name) else "k"
        var = Var("s64", self.fresh(hint))
        if step > 0:
            span: Range = (start.span[0], None if stop.span[1] is None else stop.span[1] - 1)
        else:
            span = (None if stop.span[0] is None else stop.span[0] + 1, start.span[1])
        if self._depends_on_parallel(start.expr) or self._depends_on_parallel(stop.expr):
            self.loops.ragged.add(var)
        names = dict(self.names)
        outer, self.block = self.block, []
        self.depth += 1
        self.serial += 1
        self.spans[var] = span
        self.loops.serial.add(var)
        self.loop_spans[var] = span
        low, high = span
        if low is not None and high is not None:
            self.trips[var] = max(0, (high - low) // abs(step) + 1)
        if step > 0:
            self.limits[var] = stop.expr
        self._assign_to(node.target, made(Number(var, S64, span=span)), "")
        self.block_of(node.body)
        self.serial -= 1
        self.depth -= 1
        body, self.block = self.block, outer
        self._after_loop(names)
        self._leave(node, before)
        self.block.append(For(var, start.expr, stop.expr, Const("s64", step), body))

    def _depends_on_parallel(self, value: Expr) -> bool:
        seen = [value]
        while seen:
            for one in seen.pop().walk():
                if isinstance(one, Var):
                    if one in self.loops.parallel or one in self.loops.ragged or one.varies:
                        return True
                    if one in self.loops.definitions:
                        seen.append(self.loops.definitions[one])
        return False

    def do_break(self, node: ast.Break) -> None:
        if not self.serial:
            self.unsupported("break in a parallel loop", "its iterations run in any order: use range in place of it")
        self.block.append(Jump("break"))

    def do_continue(self, node: ast.Continue) -> None:
        self.block.append(Jump("continue"))

    def do_return(self, node: ast.Return) -> None:
        self.unsupported("return in a loop or a branch", "return at the end of the kernel; leave loops with break")

    # --- functions

    def inlined(self, function, given: list[Value], named: dict[str, Value], text: str) -> Value:
        """Inlines the user's function at its call: statements, and one return at the end."""
        if len(self.stack) > _DEEPEST:
            self.unsupported(f"a recursive function: {text:.60}", "write it as a loop")
        definition, file, above = self.definition(function)
        try:
            bound = inspect.signature(function).bind(*given, **named)
        except TypeError as error:
            self.refuse(ArgumentError, f"{text:.60}", str(error), "pass the arguments that the function has")
        bound.apply_defaults()
        arguments = {
            name: value if isinstance(value, (Static, Number, View, Lazy)) else self._from_outside(name, value)
            for name, value in bound.arguments.items()
        }
        *statements, last = definition.body
        result = last.value if isinstance(last, ast.Return) else None
        if result is None:
            statements.append(last)
        kept = (self.names, self.outside, self.file, self.above, self.function, self.carried, self.unset, self.stack,
                self.own)  # fmt: skip
        self.outside, self.file, self.above, self.function = outside_names(function), file, above, function.__name__
        self.names, self.unset, self.own = {}, set(), {*assigned_names(definition.body), *arguments}
        self.carried = carried_names(definition.body, list(arguments))
        self.calls_inlined += 1
        self.stack = [*self.stack, f"{function.__name__}@{self.calls_inlined}"]
        for name, value in arguments.items():
            self.bind(name, value)
        writes = self.writes
        self.block_of(statements)
        made: Value = Static(None) if result is None else self.value(result)
        if self.writes > writes and isinstance(made, Number):
            made = self._fixed_number(made)
        left = self.key("")
        for names in self.owners.values():
            names -= {name for name in names if name.startswith(left)}
        (self.names, self.outside, self.file, self.above, self.function, self.carried, self.unset, self.stack,
         self.own) = kept  # fmt: skip
        return made

    calls_inlined: int = 0

    def definition(self, function) -> tuple[ast.FunctionDef, str, int]:
        """The source of the user's function, with one return at its end."""
        return definition_of(function)

    def of_elements(self, function, values: Sequence[Number], named: dict[str, Value], text: str) -> Number:
        python, result = functions.of_numba(function)[0], None
        given: list[Value] = [*values]
        if isinstance(function, functions.Elementwise):
            dtypes, result = function.loop([v.dtype for v in values])
            given = [self.cast(v, dtype) for v, dtype in zip(values, dtypes, strict=True)]
        made = self.as_number(self.inlined(python, given, named, text))
        if not isinstance(made, Number):
            self.unsupported(f"{text:.60} returns no number", "return one number from a function of elements")
        return made if result is None else self.cast(made, result)


_ATOMIC = {"atomic_add": "+", "atomic_max": "max", "atomic_min": "min"}


def _is_fixed(value: Expr) -> bool:
    """Whether a value is a variable that never changes."""
    return isinstance(value, Var) and not value.varies


def _leaves(block: list[Stmt]) -> bool:
    return bool(block) and isinstance(block[-1], Jump)
