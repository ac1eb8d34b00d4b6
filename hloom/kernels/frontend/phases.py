"""Phases of a user's kernel: what is computed in one parallel loop, as a kernel of nodes with its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hloom.compiler.kernel_ir.nodes import (
    Const,
    Do,
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
from hloom.compiler.kernel_ir.rewrite import read
from hloom.compiler.kernels.user import Phase
from hloom.ir.records import field, record

__all__ = ["Draft", "finished", "work_of"]

_CALL, _UNKNOWN = 12.0, 8.0  # element operations of a function; iterations of a loop of unknown length


@record(eq=False)
class Draft:
    """A phase whose parameters are not known yet.

    body: statements of one item, `item` its variable; of a phase without one they run once. prologue: before the loop.
    whole: one thread runs all items. once: statements between loops. begins: statements that compute the number of the
    call, at the head of the body.
    """

    body: list[Stmt]
    item: Var | None
    items: Any
    scratches: list[Scratch] = field(default_factory=list)
    prologue: list[Stmt] = field(default_factory=list)
    whole: bool = False
    once: bool = False
    begins: int = 0


def finished(draft: Draft, name: str, arguments: dict[Var, Any]) -> Phase:
    """The phase. arguments: what each variable that may be a parameter is given, in the order of parameters."""
    low, high = Var("s64", "lo"), Var("s64", "hi")
    item = draft.item or Var("s64", "item")
    loop = For(item, low, high, Const("s64", 1), draft.body)
    body = [*draft.prologue, *draft.scratches, loop]
    reads = set(read(body))
    params = [var for var in arguments if var in reads]
    kernel = Kernel(name, (*params, low, high), body)
    sizes = {var: given for var, given in arguments.items() if isinstance(given, int)}
    work = max(1.0, work_of(draft.body, sizes))
    return Phase(kernel, tuple([arguments[var] for var in params]), draft.items, work, draft.whole)


def work_of(statements: Sequence[Stmt], sizes: Mapping[Var, int]) -> float:
    """Element operations of statements, roughly."""
    total = 0.0
    for statement in statements:
        total += sum(_operations(e) for e in statement.expressions())
        match statement:
            case For():
                total += _trips(statement, sizes) * (1.0 + work_of(statement.body, sizes))
            case While():
                total += _UNKNOWN * (1.0 + work_of(statement.body, sizes))
            case If():
                total += 1.0 + (work_of(statement.then, sizes) + work_of(statement.other, sizes)) / 2
            case Store() | Do():
                total += 1.0
    return total


def _trips(loop: For, sizes: Mapping[Var, int]) -> float:
    match loop.stop:
        case Const(value=int(stop)):
            return float(stop)
        case Var() as var:
            return float(sizes.get(var, _UNKNOWN))
    return _UNKNOWN


def _operations(expression: Expr) -> float:
    total = 0.0
    for one in expression.walk():
        if isinstance(one, (Var, Const)):
            continue
        total += 1.0 if isinstance(one, Load) or type(one).__name__ != "Call" else _CALL
    return total
