"""Element-wise work, four elements a thread: which accesses of statements can be those of 16 bytes.

An index counts as aligned where it is the innermost variable plus multiples of four: rows that are a multiple of four
long begin at such places, and so does every fourth element of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hloom.compiler.kernel_ir.builder import terms_of
from hloom.compiler.kernel_ir.nodes import Binary, Const, Expr, Load, Stmt, Store, Var
from hloom.compiler.kernel_ir.rewrite import read, replaced, with_expressions
from hloom.ir.records import replace

VECTOR = 4
Aligned = Callable[[Expr], bool]


class Wide:
    """The statements of an element, for element `k` of four.

    aligned: whether an access at an index is one of those that vectors make. statements: None where one needs more than
    these. reads, writes: (pointer, index) -> the array of four that stands for it.
    """

    def __init__(self, body: Sequence[object], variable: Var, aligned: Aligned):
        self.aligned = aligned
        self.reads: dict[tuple[Var, Expr], Var] = {}
        self.writes: dict[tuple[Var, Expr], Var] = {}
        self.element = Var("s64", "k")
        self.statements: list[Stmt] | None = []
        for node in body:
            made = self._statement(node) if isinstance(node, Stmt) and not node.BLOCKS else None
            if made is None or any(one is variable for one in read([made])):
                self.statements = None
                return
            self.statements.append(made)

    def _statement(self, statement: Stmt) -> Stmt:
        if isinstance(statement, Store):
            array = self._array(self.writes, "y", statement.pointer, statement.index)
            statement = statement if array is None else replace(statement, pointer=array, index=self.element)
        return with_expressions(statement, lambda expression: replaced(expression, self._load))

    def _load(self, e: Expr) -> Expr | None:
        array = self._array(self.reads, "x", e.pointer, e.index) if isinstance(e, Load) else None
        return None if array is None else replace(e, pointer=array, index=self.element)

    def _array(self, arrays: dict[tuple[Var, Expr], Var], letter: str, pointer: Expr, index: Expr) -> Var | None:
        """The array for an access; None for one that is not by vectors."""
        if not isinstance(pointer, Var) or not self.aligned(index):
            return None
        if (pointer, index) not in arrays:
            arrays[pointer, index] = Var(pointer.type, f"{letter}{len(arrays)}")
        return arrays[pointer, index]


def is_variable(variable: Var) -> Aligned:
    """Elements of arrays that are walked in their order."""
    return lambda index: index is variable


def in_rows(variable: Var, integers: Mapping[str, int]) -> Aligned:
    """Elements of rows, which are multiples of four long. integers: values of the names in indexes."""

    def is_multiple(term: Expr) -> bool:
        match term:
            case Binary(op="*", left=left, right=right):
                return is_multiple(left) or is_multiple(right)
            case Var(name=name):
                return integers.get(name, 1) % VECTOR == 0
            case Const(value=int() as value):
                return value % VECTOR == 0
        return False

    def aligned(index: Expr) -> bool:
        parts = terms_of(index)
        others = [part for part in parts if part is not variable]
        return len(others) == len(parts) - 1 and all(map(is_multiple, others))

    return aligned
