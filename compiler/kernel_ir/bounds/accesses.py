"""The accesses of a kernel: each load and store, and what block functions read and write.

They are numbered in the order in which they are written, so that the verifier (`bounds`) and what compiles checks
(`checks`) mean the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Call,
    Choice,
    Const,
    Do,
    Expr,
    If,
    Kernel,
    Load,
    Stmt,
    Store,
    Together,
)
from hloom.ir.records import record
from hloom.ir.types import DTYPES

__all__ = ["Blocks", "Memory", "Site", "Sites", "element_bytes", "integer"]


@record(frozen=True)
class Memory:
    """Bytes that a block function reads or writes: `nbytes` at `start`, and as many at each sum of multiples of the
    strides.

    strides: (count, bytes apart); where a count is not positive there is nothing. runs: (count, address of the int64
    distances of those but the first), where all that is done several times.
    """

    start: Expr
    nbytes: int
    strides: tuple[tuple[Expr, Expr], ...] = ()
    runs: tuple[Expr, Expr] | None = None


# The memory that a function called for its effect reads and writes, of its name and its arguments; None where nobody
# knows.
Blocks = Callable[[str, tuple[Expr, ...]], tuple[Memory, ...] | None]


@record(frozen=True, eq=False)
class Site:
    """One access. number: among those of its kernel; line: of the printed kernel. memory: of a block function, None
    where nobody knows what it accesses; `access` is the load or store of others."""

    kernel: str
    number: int
    line: int
    statement: Stmt
    access: Load | Store | None
    memory: Memory | None = None

    @property
    def text(self) -> str:
        """What is accessed, as it is printed."""
        if self.access is not None:
            return f"{self.access.pointer}[{self.access.index}]"
        assert isinstance(self.statement, Do)
        return self.statement.function

    @property
    def itemsize(self) -> int:
        assert self.access is not None
        return element_bytes(self.access.pointer.type)


class Sites:
    """The accesses of a kernel, and those of each expression and statement.

    parts: names of kernels that it calls, whose accesses are theirs.
    """

    def __init__(self, kernel: Kernel, blocks: Blocks | None, parts: frozenset[str] = frozenset()):
        self.kernel, self._blocks, self._parts = kernel, blocks, parts
        self.all: list[Site] = []
        self.of_access: dict[tuple[int, int], Site] = {}  # by the ids of the statement and the load or store
        self.of_call: dict[int, list[Site]] = {}  # by the id of the statement
        self._line = 1
        self._block(kernel.body)

    def _block(self, statements: list[Stmt]) -> None:
        if not statements:
            self._line += 1  # pass
        for statement in statements:
            self._statement(statement)

    def _statement(self, statement: Stmt) -> None:
        self._line += 1
        line = self._line
        for part in statement.parts if isinstance(statement, Together) else [statement]:
            for expression in values(part):
                for load in loads(expression):
                    self._note(statement, load, line)
            if isinstance(part, Store):
                self._note(statement, part, line)
        if isinstance(statement, Do) and statement.function not in self._parts:
            self._call(statement, line)
        if isinstance(statement, If):
            self._block(statement.then)
            match statement.other:
                case [If() as other]:
                    self._statement(other)  # elif
                case [_, *_]:
                    self._line += 1  # else:
                    self._block(statement.other)
        else:
            for block in statement.blocks():
                self._block(block)

    def _note(self, statement: Stmt, access: Load | Store, line: int) -> None:
        site = Site(self.kernel.name, len(self.all), line, statement, access)
        if self.of_access.setdefault((id(statement), id(access)), site) is site:
            self.all.append(site)

    def _call(self, statement: Do, line: int) -> None:
        if statement.function in ("call_kernel", "prefetch"):
            return
        found = None if self._blocks is None else self._blocks(statement.function, statement.arguments)
        made = self.of_call[id(statement)] = []
        for memory in (None,) if found is None else found:
            made.append(Site(self.kernel.name, len(self.all), line, statement, None, memory))
            self.all.append(made[-1])


def values(statement: Stmt) -> Iterator[Expr]:
    """The expressions that a statement evaluates, but for the element that `p[i] += x` reads where it writes."""
    if isinstance(statement, Store) and statement.augmented:
        assert isinstance(statement.value, Binary)
        yield from (statement.pointer, statement.index, statement.value.right)
    elif not isinstance(statement, Together):
        yield from statement.expressions()


def loads(expression: Expr) -> Iterator[Load]:
    for one in expression.walk():
        if isinstance(one, Load):
            yield one


def element_bytes(pointer: str) -> int:
    """The size of what a pointer of a type points at."""
    return DTYPES[pointer[1:]].itemsize


def integer(value: int) -> Const:
    return Const("s64", value)


def plus(*values: Expr) -> Expr:
    """A sum of int64, without zeros."""
    number, total = 0, None
    for value in values:
        if isinstance(value, Const):
            number += value.value
        else:
            total = value if total is None else Binary("s64", "+", total, value)
    if total is None:
        return integer(number)
    return Binary("s64", "+", total, integer(number)) if number else total


def times(left: Expr, right: Expr) -> Expr:
    match left, right:
        case Const(), Const():
            return integer(left.value * right.value)
        case (Const(value=0), _) | (_, Const(value=0)):
            return integer(0)
        case (Const(value=1), other) | (other, Const(value=1)):
            return other
    return Binary("s64", "*", left, right)


def hull(memory: Memory) -> tuple[Expr, Expr]:
    """(its first byte, how many bytes lie between that and its last one), 0 of them where a count is not positive."""
    low, size, some = [memory.start], list[Expr]([integer(memory.nbytes)]), list[Expr]()
    for count, stride in memory.strides:
        if not isinstance(count, Const):
            some.append(count)
        last = times(plus(count, integer(-1)), stride)
        if isinstance(stride, Const):
            if stride.value < 0:
                low.append(last)
                last = times(last, integer(-1))
            size.append(last)
        else:
            before = Call("s64", "min", (integer(0), last))
            low.append(before)
            size += [Call("s64", "max", (integer(0), last)), times(before, integer(-1))]
    total = plus(*size)
    for count in some:
        total = Choice("s64", Binary("pred", ">", count, integer(0)), total, integer(0))
    return plus(*low), total


def assigned(statements: list[Stmt]) -> Iterator[Assign]:
    for statement in statements:
        for one in statement.walk():
            for part in one.parts if isinstance(one, Together) else [one]:
                if isinstance(part, Assign):
                    yield part
