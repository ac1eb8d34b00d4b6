"""Loops as transformations see them: the kernel around them, what their bodies may be, and new names."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence

from hloom.compiler.kernel_ir.affine.dependences import Access, Nest, Range
from hloom.compiler.kernel_ir.affine.sums import Affine, linear, multiple
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Call,
    Const,
    Expr,
    For,
    If,
    Kernel,
    Load,
    Scratch,
    Stmt,
    Store,
    Var,
    While,
)
from hloom.compiler.kernel_ir.rewrite import assigned, read
from hloom.compiler.kernel_ir.scopes import varying_variables
from hloom.compiler.kernel_ir.types import is_integer, is_pointer

__all__ = [
    "NESTED",
    "Around",
    "Path",
    "has_fixed_bounds",
    "innermost",
    "is_straight",
    "is_within",
    "read_first",
    "step_of",
]

NESTED = (For, If)
Path = tuple[For, ...]  # a loop and those around it, the outermost first


class Around:
    """A kernel whose loops are transformed. ranges: of its integer parameters what is known, by name."""

    def __init__(self, kernel: Kernel, ranges: Mapping[str, Range]):
        self.kernel = kernel
        self.params = frozenset(kernel.params)
        statements = [*kernel.walk()]
        # A pointer that an expression gives a value to leads into some array.
        self.arrays = {var for var in kernel.params if is_pointer(var.type)}
        self.arrays |= {s.var for s in statements if isinstance(s, Scratch)}
        self.arrays -= {s.var for s in statements if isinstance(s, Assign)}
        self.ranges: dict[Var, Range] = {var: ranges[var.name] for var in kernel.params if var.name in ranges}
        self.reads = Counter(read(kernel.body))
        self.varying = varying_variables(kernel.body, kernel.params)
        self._names = {var.name for var in (*kernel.params, *assigned(kernel.body), *self.reads)}

    def nest(self, statements: Sequence[Stmt]) -> Nest:
        """Statements of the kernel, with all loops around those that are asked for."""
        return Nest(statements, self.arrays, self.ranges)

    def is_of_items(self, loop: For) -> bool:
        """Whether a loop is that over the work items of a call, of which other calls do others."""
        return (loop.start, loop.stop) == self.kernel.params[-2:]

    def fresh(self, kind: str, hint: str) -> Var:
        """A new variable."""
        number, name = 1, hint
        while name in self._names:
            number += 1
            name = f"{hint}_{number}"
        self._names.add(name)
        return Var(kind, name)

    def renamed(self, name: str) -> str:
        return self.fresh("s64", name).name

    def is_private(self, body: Sequence[Stmt]) -> bool:
        """Whether each iteration of a loop of this body gives its variables their values itself, and nothing behind the
        loop reads them."""
        own = assigned(body)
        changing = [var for var in own if var in self.varying]
        if not changing:
            return True
        inside = Counter(read(body))
        if any(inside[var] != self.reads[var] for var in changing):
            return False
        return not read_first(body, set(changing))

    def index(self, value: Expr, nest: Nest, changing: Container[Var]) -> Affine | None:
        """An index as a sum of variables that are one value in an iteration. changing: those that are assigned in the
        loop."""

        def meaning(var: Var) -> Affine | Expr | None:
            known = self.ranges.get(var)
            if isinstance(known, int):
                return Affine(known)
            if var in nest.definitions:
                return nest.definitions[var]
            one_value = var not in nest.varying or var not in changing
            return multiple(var) if is_integer(var.type) and one_value else None

        return linear(value, meaning, nest.numbers.fits)


def read_first(body: Sequence[Stmt], wanted: set[Var]) -> bool:
    """Whether some of these variables may be read before an iteration assigned them."""
    given: set[Var] = set()
    for statement in body:
        # What a block within assigns is not certain, but nothing is read that was not given before or inside of it.
        for var in _exposed(statement, wanted - given):
            if var in wanted:
                return True
        if isinstance(statement, Assign):
            given.add(statement.var)
    return False


def _exposed(statement: Stmt, wanted: set[Var]) -> Iterator[Var]:
    """The variables of some that a statement reads before it assigns them, as far as is certain."""
    for expression in statement.expressions():
        yield from (one for one in expression.walk() if isinstance(one, Var) and one in wanted)
    for block in statement.blocks():
        rest = set(wanted)
        for inner in block:
            yield from _exposed(inner, rest)
            if isinstance(inner, Assign):
                rest.discard(inner.var)


def innermost(statements: Sequence[Stmt], path: Path = ()) -> Iterator[Path]:
    """The loops without loops in them, each with those around it, the outermost first."""
    for statement in statements:
        inner = (*path, statement) if isinstance(statement, For) else path
        if isinstance(statement, For) and not any(isinstance(one, (For, While)) for one in _within(statement)):
            yield inner
        for block in statement.blocks():
            yield from innermost(block, inner)


def _within(loop: For) -> Iterator[Stmt]:
    for statement in loop.body:
        yield from statement.walk()


def is_within(access: Access, path: Path) -> bool:
    """Whether an access is in the last loop of a path."""
    return len(access.loops) >= len(path) and all(map(operator.is_, access.loops, path))


def step_of(loop: For) -> int | None:
    """The step of a loop where it is a number other than 0."""
    return loop.step.value or None if isinstance(loop.step, Const) else None


def has_fixed_bounds(loop: For, changing: Container[Var]) -> bool:
    """Whether the bounds of a loop are of numbers and of variables other than these."""
    parts = [one for bound in (loop.start, loop.stop, loop.step) for one in bound.walk()]
    return not any(isinstance(one, Load) or (isinstance(one, Var) and one in changing) for one in parts)


def is_straight(statements: Sequence[Stmt], *kinds: type) -> bool:
    """Whether statements are assignments, stores, and of these kinds, and call only functions of numbers."""
    for statement in statements:
        for one in statement.walk():
            if not isinstance(one, (Assign, Store, *kinds)):
                return False
            if isinstance(one, Assign) and is_pointer(one.var.type):
                return False
            for expression in one.expressions():
                for part in expression.walk():
                    if isinstance(part, Call) and any(is_pointer(a.type) for a in part.arguments):
                        return False
                    if isinstance(part, Load) and not isinstance(part.pointer, Var):
                        return False
    return True
