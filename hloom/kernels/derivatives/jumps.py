"""Loops in which each statement runs or not by the branches around it: what a jump passes over becomes the other side
of the branch that jumps."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.compiler.kernel_ir.nodes import For, If, Jump, Stmt, While
from hloom.ir.records import replace
from hloom.kernels.programs import Draft

__all__ = ["has_break", "structured"]


def structured(draft: Draft) -> Draft:
    """The same loop, without `continue`, and with each `break` at the end of a branch after which nothing else of the
    iteration runs."""
    return replace(draft, prologue=_block(draft.prologue, ()), body=_block(draft.body, ()))


def has_break(loop: For) -> bool:
    """Whether an iteration may be the last one by a `break`."""
    return any(_jumps(s, ("break",)) for s in loop.body)


def _jumps(statement: Stmt, how: Sequence[str] = ("break", "continue")) -> bool:
    """Whether a statement may end the iteration of the loop around it."""
    if isinstance(statement, Jump):
        return statement.how in how
    return isinstance(statement, If) and any(_jumps(s, how) for s in (*statement.then, *statement.other))


def _block(block: Sequence[Stmt], rest: Sequence[Stmt]) -> list[Stmt]:
    """A block and the statements that follow it in its iteration. They follow each branch that reaches them, so that
    only a branch within a branch makes copies."""
    made: list[Stmt] = []
    for k, statement in enumerate(block):
        if isinstance(statement, (For, While)):
            made.append(replace(statement, body=_block(statement.body, ())))
        elif isinstance(statement, Jump) and _jumps(statement):
            return [*made, statement] if statement.how == "break" else made
        elif isinstance(statement, If):
            jumps = _jumps(statement)
            after = _block(block[k + 1 :], rest) if jumps else ()
            then, other = _block(statement.then, after), _block(statement.other, after)
            made.append(replace(statement, then=then, other=other))
            if jumps:
                return made
        else:
            made.append(statement)
    return [*made, *rest]
