"""Whether nodes are a kernel: types agree, and every variable has a value, of its own name, where it is read.

What the builder and the reader make is so; a rewrite that breaks it is found here and not in wrong results.
"""

from __future__ import annotations

from collections.abc import Iterable

from hloom.compiler.kernel_ir import builder
from hloom.compiler.kernel_ir.functions import Signature, UnknownFunction, returned
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Choice,
    Const,
    Do,
    Expr,
    For,
    If,
    Jump,
    Kernel,
    Load,
    Logic,
    Scratch,
    Stmt,
    Store,
    Together,
    Unary,
    Var,
    While,
)
from hloom.compiler.kernel_ir.types import STORED, TypeMismatch, is_integer, is_pointer

__all__ = ["InvalidKernel", "verify"]


class InvalidKernel(Exception):
    """Nodes that are no kernel."""


def verify(kernel: Kernel, signature: Signature, parts: Iterable[str] = ()) -> None:
    """Raises InvalidKernel, with the expression or the variable that is wrong. parts: kernels that it calls by name."""
    _Verifier(kernel, signature, frozenset(parts)).kernel()


class _Verifier:
    def __init__(self, kernel: Kernel, signature: Signature, parts: frozenset[str]):
        self.nodes, self.signature, self.parts = kernel, signature, parts
        self.names: dict[str, Var] = {}  # the variable that a name is for the reader of the text
        self.values: frozenset[Var] = frozenset()  # the variables that have values here, whichever way led here
        self.loops = 0
        self.seen: set[int] = set()

    def wrong(self, message: str) -> InvalidKernel:
        return InvalidKernel(f"{self.nodes.name}: {message}")

    def kernel(self) -> None:
        for var in self.nodes.params:
            if var.name in self.names:
                raise self.wrong(f"two parameters {var.name}")
            self.names[var.name] = var
        self.values = frozenset(self.nodes.params)
        self.block(self.nodes.body)

    # --- statements

    def block(self, statements: list[Stmt], *bound: Var) -> None:
        """Statements of a block, whose variables end with it where they do not vary."""
        names = dict(self.names)
        for var in bound:
            self.binds(var)
        for statement in statements:
            self.statement(statement)
        self.names = names | {name: var for name, var in self.names.items() if var.varies}

    def statement(self, s: Stmt) -> None:
        if id(s) in self.seen:
            raise self.wrong("a statement at two places")
        self.seen.add(id(s))
        for expression in s.expressions():
            self.value(expression)
        match s:
            case Assign() | Store():
                self.target(s)
            case Together():
                for part in s.parts:
                    self.target(part)
            case Scratch():
                self.binds(s.var)
            case Do():
                if not s.function.isidentifier():
                    raise self.wrong(f"a call of {s.function}")
            case For():
                for bound in (s.start, s.stop, s.step):
                    if not is_integer(bound.type):
                        raise self.wrong(f"the bound {str(bound)} of {bound.type}")
                if s.var.type != "s64":
                    raise self.wrong(f"the loop variable {s.var.name} of {s.var.type}")
                self.loop(s.body, s.var)
            case While():
                self.truth(s.test)
                self.loop(s.body)
            case If():
                self.truth(s.test)
                before = self.values
                self.block(s.then)
                after, self.values = self.values, before
                self.block(s.other)
                self.values = _both(after, s.then, self.values, s.other)
            case Jump():
                if s.how != "return" and not self.loops:
                    raise self.wrong(f"{s.how} outside of a loop")
            case _:
                raise self.wrong(f"a statement {type(s).__name__}")

    def loop(self, body: list[Stmt], *bound: Var) -> None:
        before = self.values
        self.loops += 1
        self.block(body, *bound)
        self.loops -= 1
        self.values = before  # it may have no iteration

    def target(self, s: Assign | Store) -> None:
        if isinstance(s, Assign):
            try:
                builder.assign(s.var, s.value)
            except TypeMismatch as error:
                raise self.wrong(str(error)) from None
            self.binds(s.var)
            return
        self.value(s.pointer)
        self.value(s.index)
        kind = s.pointer.type
        if not is_pointer(kind) or not is_integer(s.index.type):
            raise self.wrong(f"a store at {s.index.type} of {kind}")
        if s.stored not in (kind[1:], STORED.get(kind[1:])):
            raise self.wrong(f"a store of {s.stored} to {kind}")
        if is_pointer(s.value.type):
            raise self.wrong(f"a store of the pointer {str(s.value)}")

    def binds(self, var: Var) -> None:
        other = self.names.get(var.name)
        if other is not None and other is not var:
            raise self.wrong(f"two variables {var.name} where one has a value")
        if other is var and not var.varies:
            raise self.wrong(f"{var.name} is assigned again, and does not vary")
        self.names[var.name] = var
        self.values |= {var}

    def truth(self, test: Expr) -> None:
        try:
            builder.truth(test)
        except TypeMismatch as error:
            raise self.wrong(str(error)) from None

    # --- expressions

    def value(self, e: Expr) -> None:
        for part in e.children():
            self.value(part)
        if isinstance(e, Var):
            if self.names.get(e.name) is not e:
                raise self.wrong(f"{e.name} is read where it has no value")
            if e not in self.values:
                raise self.wrong(f"{e.name} is read where it may have no value")
            return
        try:
            kind = self.kind(e)
        except TypeMismatch as error:
            raise self.wrong(str(error)) from None
        except UnknownFunction as error:
            raise self.wrong(f"the function {error}") from None
        if kind != e.type:
            raise self.wrong(f"{str(e)} is {kind}, not {e.type}")

    def kind(self, e: Expr) -> str:
        """The type that an expression has by its parts."""
        match e:
            case Const():
                return builder.constant(e.value).type if e.value == e.value else "f64"
            case Load():
                found = builder.load(e.pointer, e.index).type, builder.element(e.pointer, e.index).type
                return e.type if e.type in found else found[0]
            case Binary():
                return builder.operation(e.op, e.left, e.right).type
            case Unary(op="-" | "~" | "not"):
                return builder.unary(e.op, e.operand).type
            case Unary():
                return builder.part(e.operand, e.op[1:]).type
            case Logic():
                return builder.both(e.op, e.operands).type
            case Cast():
                return builder.cast(e.type, e.operand).type
            case Choice():
                return builder.chosen(e.test, e.yes, e.no).type
            case Call():
                if e.function in self.parts:
                    raise UnknownFunction(f"{e.function}, which has no result")
                return returned(e.function, [argument.type for argument in e.arguments], self.signature)
        raise self.wrong(f"an expression {type(e).__name__}")


def _both(then: frozenset[Var], yes: list[Stmt], other: frozenset[Var], no: list[Stmt]) -> frozenset[Var]:
    """The variables that have values after a branch: where one side leaves the block, those of the other."""
    if yes and isinstance(yes[-1], Jump):
        return other
    if no and isinstance(no[-1], Jump):
        return then
    return then & other
