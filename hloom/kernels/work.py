"""The work of a kernel's statements, from which the chunks of its iterations come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hloom.compiler.kernel_ir.nodes import Call, Const, Do, Expr, For, If, Stmt, Store, Var, While

__all__ = ["work_of"]

_CALL, _UNKNOWN = 12.0, 8.0  # element operations of a function; iterations of a loop of unknown length


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
        total += _CALL if isinstance(one, Call) else 1.0
    return total
