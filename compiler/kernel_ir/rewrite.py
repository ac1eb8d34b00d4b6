"""Rewrites of nodes: other expressions in the place of some, other statements, copies with variables of their own.

Expressions are immutable, so what does not change is shared; statements are made anew where something in them changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Expr,
    For,
    Kernel,
    Load,
    Scratch,
    Stmt,
    Store,
    Together,
    Var,
)
from hloom.ir.records import replace

__all__ = [
    "assigned",
    "copied",
    "mapped",
    "read",
    "replaced",
    "substituted",
    "variables_of",
    "with_arrays",
    "with_expressions",
    "with_distinct_variables",
    "with_own_variables",
    "with_variables",
]

Rewrite = Callable[[Stmt], "Stmt | list[Stmt] | None"]


def replaced(expression: Expr, function: Callable[[Expr], Expr | None]) -> Expr:
    """An expression in which `function` is asked for each part, the outermost first: what stands in its place, or None
    where the part stays and its own parts are asked for."""
    found = function(expression)
    return expression.mapped(lambda part: replaced(part, function)) if found is None else found


def substituted(expression: Expr, values: Mapping[Var, Expr]) -> Expr:
    """An expression with other expressions in the place of variables."""
    if isinstance(expression, Var):
        return values.get(expression, expression)
    return expression.mapped(lambda part: substituted(part, values)) if expression.PARTS else expression


def with_expressions(statement: Stmt, function: Callable[[Expr], Expr]) -> Stmt:
    """A statement with other expressions, those of the statements within it too."""
    changed: dict[str, Any] = {}
    for name in statement.PARTS:
        part = getattr(statement, name)
        changed[name] = tuple([function(one) for one in part]) if isinstance(part, tuple) else function(part)
    for name in statement.BLOCKS:
        changed[name] = [with_expressions(inner, function) for inner in getattr(statement, name)]
    if isinstance(statement, Together):
        changed["parts"] = [with_expressions(one, function) for one in statement.parts]
    return replace(statement, **changed) if changed else statement


def with_variables(statement: Stmt, variables: Mapping[Var, Var]) -> Stmt:
    """A statement with other variables, in what it reads and in what it assigns."""
    made = with_expressions(statement, lambda expression: substituted(expression, variables))
    return _bound_to(made, variables)


def _bound_to(statement: Stmt, variables: Mapping[Var, Var]) -> Stmt:
    """A statement, made for this call, that assigns other variables."""
    if isinstance(statement, (Assign, Scratch, For)) and statement.var in variables:
        statement = replace(statement, var=variables[statement.var])
    if isinstance(statement, Together):
        statement.parts = [_bound_to(one, variables) for one in statement.parts]  # type: ignore[misc]
    for name in statement.BLOCKS:
        setattr(statement, name, [_bound_to(inner, variables) for inner in getattr(statement, name)])
    return statement


def mapped(statements: Iterable[Stmt], function: Rewrite) -> list[Stmt]:
    """Statements, each of which is what `function` makes of it: another one, several, or None where it stays. Those
    within a statement come before it."""
    made: list[Stmt] = []
    for statement in statements:
        blocks = {name: mapped(getattr(statement, name), function) for name in statement.BLOCKS}
        if any(_differ(block, getattr(statement, name)) for name, block in blocks.items()):
            statement = replace(statement, **blocks)
        found = function(statement)
        made += [statement] if found is None else found if isinstance(found, list) else [found]
    return made


def _differ(made: list[Stmt], given: list[Stmt]) -> bool:
    return len(made) != len(given) or any(one is not other for one, other in zip(made, given, strict=True))


def assigned(statements: Iterable[Stmt]) -> dict[Var, None]:
    """The variables that statements give values to, and those of their loops, in the order of the text."""
    found: dict[Var, None] = {}
    for statement in statements:
        for one in statement.walk():
            for target in one.parts if isinstance(one, Together) else [one]:
                if isinstance(target, (Assign, Scratch, For)):
                    found[target.var] = None
    return found


def read(statements: Iterable[Stmt]) -> Iterator[Var]:
    """The variables that statements read, as often as they do: of a store its pointer too."""
    for statement in statements:
        for one in statement.walk():
            for expression in _evaluated(one):
                yield from (part for part in expression.walk() if isinstance(part, Var))


def _evaluated(statement: Stmt) -> list[Expr]:
    """What a statement evaluates, without the statements within it: of stores the places too."""
    parts = [*statement.expressions()]
    if isinstance(statement, Together):
        parts += [e for p in statement.parts if isinstance(p, Store) for e in (p.pointer, p.index)]
    return parts


def variables_of(statements: Iterable[Stmt]) -> set[Var]:
    """The variables that statements read: those of `read`, in less time."""
    found: set[Var] = set()
    blocks: list[Iterable[Stmt]] = [statements]
    for block in blocks:
        for statement in block:
            parts = _evaluated(statement)
            for part in parts:
                if isinstance(part, Var):
                    found.add(part)
                else:
                    for name in part.PARTS:
                        inner = getattr(part, name)
                        if isinstance(inner, tuple):
                            parts += inner
                        else:
                            parts.append(inner)
            if statement.BLOCKS:
                blocks += [getattr(statement, name) for name in statement.BLOCKS]
    return found


def copied(statements: Iterable[Stmt], rename: Callable[[str], str], more: Iterable[Var] = ()) -> list[Stmt]:
    """A copy with variables of its own for those that the statements assign, and for `more`. rename: their names."""
    originals = list(statements)
    own = {var: Var(var.type, rename(var.name), var.varies) for var in (*assigned(originals), *more)}
    return [with_variables(statement, own) for statement in originals]


def with_own_variables(kernel: Kernel) -> Kernel:
    """A copy whose variables no other kernel has: of those that vary here some may not vary there."""
    own = {var: Var(var.type, var.name) for var in (*kernel.params, *assigned(kernel.body))}
    params = tuple([own[param] for param in kernel.params])
    return Kernel(kernel.name, params, [with_variables(statement, own) for statement in kernel.body])


def with_distinct_variables(kernel: Kernel) -> Kernel:
    """A kernel whose variables of one name have one type: the same one, or a copy. Its parts may have been written
    apart from each other."""
    first: dict[str, str] = {}
    own: dict[Var, Var] = {}
    taken = {var.name for var in (*kernel.params, *assigned(kernel.body))}
    for var in assigned(kernel.body):
        if first.setdefault(var.name, var.type) != var.type and var not in own:
            name = next(n for k in count(1) if (n := f"{var.name}_{k}") not in taken)
            taken.add(name)
            own[var] = Var(var.type, name, var.varies)
    if not own:
        return kernel
    return Kernel(kernel.name, kernel.params, [with_variables(statement, own) for statement in kernel.body])


def with_arrays(statements: Iterable[Stmt], places: Mapping[Var, tuple[Var, Expr]]) -> list[Stmt]:
    """Statements with other memory in the place of some arrays. places: by pointer, the other one and where in it the
    array begins."""

    def load(expression: Expr) -> Expr | None:
        if isinstance(expression, Load) and isinstance(expression.pointer, Var) and expression.pointer in places:
            pointer, start = places[expression.pointer]
            return Load(expression.type, pointer, Binary("s64", "+", start, replaced(expression.index, load)))
        return None

    def store(statement: Stmt) -> Stmt | None:
        assert not isinstance(statement, Together)
        if isinstance(statement, Store) and isinstance(statement.pointer, Var) and statement.pointer in places:
            pointer, start = places[statement.pointer]
            return replace(statement, pointer=pointer, index=Binary("s64", "+", start, statement.index))
        return None

    return mapped([with_expressions(s, lambda e: replaced(e, load)) for s in statements], store)
