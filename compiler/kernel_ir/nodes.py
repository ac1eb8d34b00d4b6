"""Nodes of the kernel language (docs/reference/kernels.md).

Expressions are immutable trees that know their type; statements are lists. A type is an HLO dtype ("f32", "s64",
"pred") or a pointer to one ("*f32"). A variable is an object, not a name: two of one name are different variables.

Arithmetic of expressions, and of an expression and an integer, is written as such: `row * width + 1` is a node. So are
comparisons but for `==` and `!=`, which compare the nodes themselves (`builder.compared` compares their values).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from hloom.compiler.kernel_ir.types import STORED, arithmetic, is_integer, joined, negated
from hloom.ir.records import field, record, replace

# How strongly operations bind in the text of an expression.
CHOICE, OR, AND, NOT, COMPARISON = range(5)
PRECEDENCE = {
    "|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10,
} | dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), COMPARISON)  # fmt: skip
UNARY, ATOM = 11, 12
_BITWISE = frozenset(("|", "^", "&", "<<", ">>"))


class Expr:
    """An expression. type: an HLO dtype, or "*" and the dtype that a pointer points to. PARTS: the fields that hold
    expressions, one or a tuple of them."""

    type: str
    PARTS: ClassVar[tuple[str, ...]] = ()

    def text(self) -> tuple[str, int]:
        """(the text, how strongly it binds)."""
        raise TypeError(f"{type(self).__name__} is no expression of the kernel language")

    def __str__(self) -> str:
        return self.text()[0]

    def within(self, binds: int) -> str:
        """The text, in parentheses where it binds less."""
        text, own = self.text()
        return f"({text})" if own < binds else text

    def children(self) -> Iterator[Expr]:
        for name in self.PARTS:
            part = getattr(self, name)
            if isinstance(part, tuple):
                yield from part
            else:
                yield part

    def walk(self) -> Iterator[Expr]:
        """The expression and all within it, in the order in which they are written."""
        yield self
        for child in self.children():
            yield from child.walk()

    def mapped(self, function: Callable[[Expr], Expr]) -> Expr:
        """The same node of mapped children; itself where none of them changes."""
        changed: dict[str, Any] = {}
        for name in self.PARTS:
            part = getattr(self, name)
            new = tuple([function(one) for one in part]) if isinstance(part, tuple) else function(part)
            if new is not part and new != part:
                changed[name] = new
        return replace(self, **changed) if changed else self

    def __add__(self, other: Expr | int) -> Binary:
        return _arithmetic("+", self, other)

    def __radd__(self, other: int) -> Binary:
        return _arithmetic("+", other, self)

    def __sub__(self, other: Expr | int) -> Binary:
        return _arithmetic("-", self, other)

    def __rsub__(self, other: int) -> Binary:
        return _arithmetic("-", other, self)

    def __mul__(self, other: Expr | int) -> Binary:
        return _arithmetic("*", self, other)

    def __rmul__(self, other: int) -> Binary:
        return _arithmetic("*", other, self)

    def __floordiv__(self, other: Expr | int) -> Binary:
        return _arithmetic("//", self, other)

    def __mod__(self, other: Expr | int) -> Binary:
        return _arithmetic("%", self, other)

    def __and__(self, other: Expr | int) -> Binary:
        return _arithmetic("&", self, other)

    def __or__(self, other: Expr | int) -> Binary:
        return _arithmetic("|", self, other)

    def __xor__(self, other: Expr | int) -> Binary:
        return _arithmetic("^", self, other)

    def __lshift__(self, other: Expr | int) -> Binary:
        return _arithmetic("<<", self, other)

    def __rshift__(self, other: Expr | int) -> Binary:
        return _arithmetic(">>", self, other)

    def __neg__(self) -> Unary:
        return Unary(negated("-", self.type), "-", self)

    def __lt__(self, other: Expr | int) -> Binary:
        return compared("<", self, other)

    def __le__(self, other: Expr | int) -> Binary:
        return compared("<=", self, other)

    def __gt__(self, other: Expr | int) -> Binary:
        return compared(">", self, other)

    def __ge__(self, other: Expr | int) -> Binary:
        return compared(">=", self, other)


@record(frozen=True)
class Const(Expr):
    """A number: of s64, u64 and f64 as Python writes it, of pred True or False."""

    type: str
    value: Any

    def __eq__(self, other: object) -> bool:  # 0.0 and -0.0 differ, and nan is nan
        return isinstance(other, Const) and (self.type, repr(self.value)) == (other.type, repr(other.value))

    def text(self) -> tuple[str, int]:
        if self.type == "f64" and self.value in (float("inf"), float("-inf")):
            return ("inf", ATOM) if self.value > 0 else ("-inf", UNARY)
        text = "nan" if self.value != self.value else repr(self.value)
        return text, UNARY if text[0] == "-" else ATOM

    def __hash__(self) -> int:
        return hash((self.type, repr(self.value)))


@record(eq=False)
class Var(Expr):
    """A parameter, a loop's variable, or what statements assign.

    varies: whether it is more than one value on the way from its assignment to its uses (`scopes.settle`).
    """

    type: str
    name: str
    varies: bool = False

    def text(self) -> tuple[str, int]:
        return self.name, ATOM


@record(frozen=True)
class Load(Expr):
    """An element. Of f16, bf16 and pred the register that it is converted to, or its bits where `type` is what is
    stored (`STORED`)."""

    type: str
    pointer: Expr
    index: Expr

    PARTS = ("pointer", "index")

    def text(self) -> tuple[str, int]:
        narrow = self.pointer.type[1:]
        if narrow in STORED and self.type != STORED[narrow]:
            return f"load_{narrow}({self.pointer}, {self.index})", ATOM
        return f"{self.pointer.within(ATOM)}[{self.index}]", ATOM


@record(frozen=True)
class Binary(Expr):
    """Arithmetic, and comparisons, whose type is pred."""

    type: str
    op: str
    left: Expr
    right: Expr

    PARTS = ("left", "right")

    def text(self) -> tuple[str, int]:
        op, binds = self.op, PRECEDENCE[self.op]
        if op in _BITWISE:  # how strongly these bind few readers know
            other = isinstance(self.left, Binary) and self.left.op != op
            left = self.left.within(ATOM if other else binds)
            return f"{left} {op} {self.right.within(ATOM if isinstance(self.right, Binary) else binds + 1)}", binds
        left = self.left.within(binds + 1 if binds == COMPARISON else binds)
        return f"{left} {op} {self.right.within(binds + 1)}", binds


def _arithmetic(op: str, left: Expr | int, right: Expr | int) -> Binary:
    left, right = _lifted(left), _lifted(right)
    return Binary(arithmetic(op, left.type, right.type), op, left, right)


def compared(op: str, left: Expr, right: Expr | int) -> Binary:
    """A comparison of numbers. Raises TypeMismatch."""
    right = _lifted(right)
    if left.type != right.type or not is_integer(left.type):
        joined(left.type, right.type)
    return Binary("pred", op, left, right)


def _lifted(value: Expr | int) -> Expr:
    return Const("s64", value) if type(value) is int else value  # type: ignore[return-value]


@record(frozen=True)
class Unary(Expr):
    """`-x`, `~x`, `not x`, and the parts of complex numbers: `x.real`, `x.imag`."""

    type: str
    op: str
    operand: Expr

    PARTS = ("operand",)

    def text(self) -> tuple[str, int]:
        if self.op == "not":
            return f"not {self.operand.within(NOT)}", NOT
        if self.op[0] == ".":
            return f"{self.operand.within(ATOM)}{self.op}", ATOM
        return f"{self.op}{self.operand.within(UNARY)}", UNARY


@record(frozen=True)
class Logic(Expr):
    """`and`, `or`: later operands are evaluated only where they are needed."""

    op: str
    operands: tuple[Expr, ...]

    type = "pred"
    PARTS = ("operands",)

    def text(self) -> tuple[str, int]:
        binds = AND if self.op == "and" else OR
        return f" {self.op} ".join([one.within(NOT) for one in self.operands]), binds


@record(frozen=True)
class Cast(Expr):
    """A number as another type, as C converts."""

    type: str
    operand: Expr

    PARTS = ("operand",)

    def text(self) -> tuple[str, int]:
        return f"{self.type}({self.operand})", ATOM


@record(frozen=True)
class Choice(Expr):
    """`yes if test else no`: the other one is not evaluated."""

    type: str
    test: Expr
    yes: Expr
    no: Expr

    PARTS = ("yes", "test", "no")

    def text(self) -> tuple[str, int]:
        return f"{self.yes.within(OR)} if {self.test.within(OR)} else {self.no}", CHOICE


@record(frozen=True)
class Call(Expr):
    """A function of the math library or an intrinsic, without an effect."""

    type: str
    function: str
    arguments: tuple[Expr, ...]

    PARTS = ("arguments",)

    def text(self) -> tuple[str, int]:
        return f"{self.function}({', '.join(map(str, self.arguments))})", ATOM


class Stmt:
    """A statement. PARTS: the fields that hold expressions; BLOCKS: those that hold lists of statements."""

    PARTS: ClassVar[tuple[str, ...]] = ()
    BLOCKS: ClassVar[tuple[str, ...]] = ()

    def expressions(self) -> Iterator[Expr]:
        """What it evaluates, without the statements within it."""
        for name in self.PARTS:
            part = getattr(self, name)
            if isinstance(part, tuple):
                yield from part
            else:
                yield part

    def blocks(self) -> Iterator[list[Stmt]]:
        for name in self.BLOCKS:
            yield getattr(self, name)

    def walk(self) -> Iterator[Stmt]:
        """The statement and all within it, in their order."""
        yield self
        for block in self.blocks():
            for inner in block:
                yield from inner.walk()

    def called(self) -> Iterator[str]:
        """The names of the functions that it calls, and what is within it, as often as they are called."""
        for statement in self.walk():
            if isinstance(statement, Do):
                yield statement.function
            for expression in statement.expressions():
                yield from (one.function for one in expression.walk() if isinstance(one, Call))


@record
class Assign(Stmt):
    """`var = value`. augmented: written as `var += x`, where `value` is var + x."""

    var: Var
    value: Expr
    augmented: bool = False

    PARTS = ("value",)


@record
class Store(Stmt):
    """An element of memory. stored: what it is converted to; of a pointer to it, `p[i] = value`, if it is no narrow
    dtype. streamed: non-temporal, where the target has such stores. augmented: `p[i] += x`."""

    pointer: Expr
    index: Expr
    value: Expr
    stored: str
    streamed: bool = False
    augmented: bool = False

    PARTS = ("pointer", "index", "value")


@record
class Together(Stmt):
    """`a, b = x, y`: all values are computed before any is assigned."""

    parts: list[Assign | Store]

    def expressions(self) -> Iterator[Expr]:
        for part in self.parts:
            yield from part.expressions()


@record
class Scratch(Stmt):
    """Memory of so many elements that a call of the kernel has for itself; shared: that the threads of a block of a GPU
    have together."""

    var: Var
    size: int
    shared: bool = False


@record
class Do(Stmt):
    """A call for its effect: a register tile, a copy, a prefetch, a part of the kernel."""

    function: str
    arguments: tuple[Expr, ...]

    PARTS = ("arguments",)


@record
class For(Stmt):
    """`for var in range(start, stop, step)`."""

    var: Var
    start: Expr
    stop: Expr
    step: Expr
    body: list[Stmt]

    PARTS = ("start", "stop", "step")
    BLOCKS = ("body",)


@record
class While(Stmt):
    """A loop `while test:`."""

    test: Expr
    body: list[Stmt]

    PARTS = ("test",)
    BLOCKS = ("body",)


@record
class If(Stmt):
    """A branch `if test:`, and the statements of its `else:`."""

    test: Expr
    then: list[Stmt]
    other: list[Stmt] = field(default_factory=list)

    PARTS = ("test",)
    BLOCKS = ("then", "other")


@record
class Jump(Stmt):
    """how: 'break', 'continue' or 'return'."""

    how: str


@record
class Kernel:
    """A function without a result. params: of a kernel the last two are its work items, `lo` and `hi`."""

    name: str
    params: tuple[Var, ...]
    body: list[Stmt]

    def walk(self) -> Iterator[Stmt]:
        for statement in self.body:
            yield from statement.walk()

    def called(self) -> Iterator[str]:
        """The names of the functions that it calls, as often as they are called."""
        for statement in self.body:
            yield from statement.called()
