"""Checks of indices in one comparison: 0 <= i < n of s64 is i < n of u64 where n is not negative.

Of

    index = i + n if i < 0 else i
    if index < 0 or index >= n:
        (the fault)

becomes

    index = i
    if u64(index) >= u64(n):
        index = i + n if i < 0 else i
        if u64(index) >= u64(n):
            (the fault)

An index that counts from the end takes the branch, which a processor predicts; any other one waits for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hloom.compiler.kernel_ir.affine.dependences import Range
from hloom.compiler.kernel_ir.nodes import Assign, Binary, Cast, Choice, Const, Expr, If, Jump, Kernel, Logic, Stmt, Var
from hloom.compiler.kernel_ir.rewrite import with_variables
from hloom.ir.records import replace

__all__ = ["with_short_checks"]


def with_short_checks(kernel: Kernel, ranges: Mapping[str, Range]) -> Kernel:
    """A kernel with the checks of its indices in one comparison. ranges: of its integer parameters, by name."""
    sizes = {var for var in kernel.params if (least := _least(ranges.get(var.name))) is not None and least >= 0}
    moved: dict[Var, Var] = {}
    body = _shortened(kernel.body, sizes, moved, {})
    return replace(kernel, body=[with_variables(s, moved) for s in body]) if body is not kernel.body else kernel


def _least(known: Range | None) -> int | None:
    return known[0] if isinstance(known, tuple) else known


# The index, the size, and whether the index may count from the end -> the variable that has passed the check.
_Known = dict[tuple[Expr, Expr, bool], Var]


def _shortened(statements: list[Stmt], sizes: set[Var], moved: dict[Var, Var], outer: _Known) -> list[Stmt]:
    """moved: variables that are now assigned twice, or not at all, and what stands in their place. outer: the checks
    before these statements, which are not repeated: LLVM does not find out that the branches meet in one index."""
    made: list[Stmt] = []
    known = dict(outer)
    for statement in statements:
        blocks = {name: _shortened(getattr(statement, name), sizes, moved, known) for name in statement.BLOCKS}
        if any(block is not getattr(statement, name) for name, block in blocks.items()):
            statement = replace(statement, **blocks)
        checked = _checked(statement, sizes)
        if checked is None:
            made.append(statement)
            continue
        assert isinstance(statement, If)
        index, size = checked
        held = _counted(made[-1:], index, size)
        key = (index if held is None else held, size, held is not None)
        earlier = known.get((*key[:2], False), known.get(key))
        if earlier is not None:
            if held is not None:
                made.pop()
                moved[index] = moved.get(earlier, earlier)
            continue
        if isinstance(key[0], Var) and not key[0].varies:
            known[key] = index
        beyond = Binary("pred", ">=", Cast("u64", index), Cast("u64", size))
        statement = replace(statement, test=beyond)
        if held is not None:
            moved[index] = Var(index.type, index.name, True)
            statement = If(beyond, [made.pop(), statement], [])
            made.append(Assign(index, held))
        made.append(statement)
    same = len(made) == len(statements) and all(one is other for one, other in zip(made, statements, strict=True))
    return statements if same else made


def _checked(statement: Stmt, sizes: set[Var]) -> tuple[Var, Expr] | None:
    """(the index, the size) of a check that leaves the kernel where the index is out of range."""
    if not isinstance(statement, If) or statement.other or not statement.then:
        return None
    match statement.test, statement.then[-1]:
        case (
            Logic(
                op="or",
                operands=(
                    Binary(op="<", left=Var(type="s64") as index, right=Const(value=0)),
                    Binary(op=">=", left=again, right=size),
                ),
            ),
            Jump(how="return"),
        ) if again is index and _is_size(size, sizes):
            return index, size
    return None


def _is_size(value: Expr, sizes: set[Var]) -> bool:
    """Whether a number is not negative for certain."""
    match value:
        case Const(value=int(number)):
            return number >= 0
        case Var():
            return value in sizes
        case Binary(op="+", left=left, right=right):
            return _is_size(left, sizes) and _is_size(right, sizes)
    return False


def _counted(before: Sequence[Stmt], index: Var, size: Expr) -> Expr | None:
    """The number that the last statement makes an index of: itself, or its place from the end."""
    match before:
        case [
            Assign(
                var=var,
                value=Choice(
                    test=Binary(op="<", left=held, right=Const(value=0)),
                    yes=Binary(op="+", left=moved, right=added),
                    no=no,
                ),
            )
        ] if var is index and not var.varies and held == no == moved and added == size:
            return held
    return None
