"""Peeling: the first iteration of a loop by itself, where the others leave branches out that only it takes.

    for j in range(m):                      if 0 < m:
        if j == 0:                              x[0] = y[0]
            x[j] = y[j]                     for j in range(1, m):
        else:                                   x[j] = x[j - 1] + y[j]
            x[j] = x[j - 1] + y[j]

What is left has no branches, so that other transformations take it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Const,
    Expr,
    For,
    If,
    Jump,
    Logic,
    Stmt,
    Var,
    While,
)
from hloom.compiler.kernel_ir.rewrite import assigned, replaced, with_expressions, with_variables
from hloom.compiler.kernel_ir.transforms.nests import Around, has_fixed_bounds, innermost, step_of
from hloom.ir.records import replace

__all__ = ["peeled"]

MOST_NODES = 300  # of the expressions of a body that is repeated
_TRUE, _FALSE = Const("pred", True), Const("pred", False)
# What comparisons of a loop's variable with its first value are in that iteration, and in the others.
_FIRST = {"==": True, "!=": False, "<=": True, ">": False}


def peeled(around: Around, statements: Sequence[Stmt]) -> list[Stmt]:
    """Statements with the first iterations of loops by themselves, where the others then have no branches."""
    made: list[Stmt] = []
    for statement in statements:
        found = _peeled(around, statement) if isinstance(statement, For) else None
        if found is None:
            blocks = {name: peeled(around, getattr(statement, name)) for name in statement.BLOCKS}
            same = all(_are_same(block, getattr(statement, name)) for name, block in blocks.items())
            made.append(statement if same else replace(statement, **blocks))
        else:
            made += found
    return made


def _are_same(made: list[Stmt], given: list[Stmt]) -> bool:
    return len(made) == len(given) and all(one is other for one, other in zip(made, given, strict=True))


def _peeled(around: Around, loop: For) -> list[Stmt] | None:
    start = loop.start
    if step_of(loop) != 1 or not isinstance(start, Const) or loop.var in around.varying or not _is_simple(loop):
        return None
    rest = _decided(loop.body, _comparisons(loop, first=False))
    if _branches(rest) >= _branches(loop.body):
        return None
    others = replace(loop, start=Const("s64", start.value + 1), body=peeled(around, rest))
    if any(_branches(path[-1].body) for path in innermost([others])):
        return None
    body = _decided(loop.body, _comparisons(loop, first=True))
    own = {
        var: Var(var.type, around.renamed(var.name), var.varies)
        for var in (loop.var, *assigned(body))
        if var not in around.varying
    }
    once: list[Stmt] = [Assign(own[loop.var], start), *[with_variables(s, own) for s in body]]
    if isinstance(loop.stop, Const) and start.value < loop.stop.value:
        return [*once, others]
    return [If(Binary("pred", "<", start, loop.stop), once), others]


def _branches(statements: Sequence[Stmt]) -> int:
    return sum(isinstance(one, If) for s in statements for one in s.walk())


def _is_simple(loop: For) -> bool:
    if not has_fixed_bounds(loop, {loop.var, *assigned(loop.body)}):
        return False
    inner = [s for s in loop.walk() if s is not loop]
    nodes = sum(1 for s in inner for e in s.expressions() for _ in e.walk())
    return nodes <= MOST_NODES and not any(isinstance(s, (Jump, While)) for s in inner)


def _comparisons(loop: For, first: bool) -> Callable[[Expr], Expr | None]:
    def known(expression: Expr) -> Expr | None:
        if isinstance(expression, Binary) and expression.left is loop.var and expression.right == loop.start:
            found = _FIRST.get(expression.op)
            return None if found is None else _TRUE if found is first else _FALSE
        return None

    return known


def _decided(statements: Sequence[Stmt], known: Callable[[Expr], Expr | None]) -> list[Stmt]:
    """Statements with known comparisons, and without the branches that these leave out."""
    made: list[Stmt] = []
    for statement in statements:
        if isinstance(statement, If):
            test = _folded(replaced(statement.test, known))
            then, other = (_decided(block, known) for block in (statement.then, statement.other))
            if test in (_TRUE, _FALSE):
                made += then if test == _TRUE else other
            else:
                made.append(If(test, then, other))
        elif statement.BLOCKS:
            blocks = {name: _decided(getattr(statement, name), known) for name in statement.BLOCKS}
            made.append(with_expressions(replace(statement, **blocks), lambda e: replaced(e, known)))
        else:
            made.append(with_expressions(statement, lambda e: replaced(e, known)))
    return made


def _folded(test: Expr) -> Expr:
    """`and` and `or` without known operands."""
    if not isinstance(test, Logic):
        return test
    neutral, other = (_TRUE, _FALSE) if test.op == "and" else (_FALSE, _TRUE)
    operands = [e for e in map(_folded, test.operands) if e != neutral]
    if other in operands:
        operands = operands[: operands.index(other) + 1]
        return other if len(operands) == 1 else Logic(test.op, tuple(operands))
    return neutral if not operands else operands[0] if len(operands) == 1 else Logic(test.op, tuple(operands))
