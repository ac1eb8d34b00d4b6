"""Propagates the cotangent of an expression to its variables and elements."""

from __future__ import annotations

from collections.abc import Callable

from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Choice,
    Const,
    Expr,
    If,
    Load,
    Stmt,
    Store,
    Unary,
    Var,
)
from hloom.compiler.kernel_ir.types import STORED
from hloom.kernels.derivatives.activity import FLOATS, unsupported
from hloom.kernels.derivatives.partials import FLAT, has_partials, partial, scaled
from hloom.kernels.programs import Names

__all__ = ["Cotangents"]


class Cotangents:
    """block: where statements go. shadow: the variable or pointer of an active one's cotangent."""

    def __init__(self, name: str, active: set[Var], shadow: Callable[[Var], Var], names: Names):
        self.name, self.active, self.shadow, self.names = name, active, shadow, names
        self.block: list[Stmt] = []

    def of(self, expression: Expr, bar: Expr) -> list[Stmt]:
        """The statements for an expression with a cotangent."""
        self.block = []
        self._give(expression, bar)
        return self.block

    def depends(self, e: Expr) -> bool:
        match e:
            case Var():
                return e in self.active
            case Load(pointer=Var() as pointer):
                return pointer in self.active
        return e.type in FLOATS and any(self.depends(part) for part in e.children())

    def _held(self, value: Expr) -> Expr:
        if isinstance(value, (Var, Const)):
            return value
        var = Var(value.type, self.names.fresh("bar"))
        self.block.append(Assign(var, value))
        return var

    def _give(self, e: Expr, bar: Expr) -> None:
        if not self.depends(e):
            return
        kind = e.type
        match e:
            case Var():
                self.block.append(Assign(self.shadow(e), Binary(kind, "+", self.shadow(e), bar)))
            case Load(pointer=Var() as pointer, index=index):
                old = Load(kind, self.shadow(pointer), index)
                stored = pointer.type[1:]
                assert STORED.get(stored) is None or stored in ("f16", "bf16")
                self.block.append(Store(self.shadow(pointer), index, Binary(kind, "+", old, bar), stored))
            case Unary(op="-", operand=operand):
                self._give(operand, Unary(kind, "-", bar))
            case Cast(operand=operand) if operand.type in FLOATS:
                self._give(operand, bar if operand.type == kind else Cast(operand.type, bar))
            case Binary():
                self._binary(e, self._held(bar))
            case Choice(test=test, yes=yes, no=no):
                self._either(test, lambda: self._give(yes, bar), lambda: self._give(no, bar))
            case Call():
                self._call(e, self._held(bar))
            case _:
                raise unsupported(self.name, f"an expression {type(e).__name__} has none")

    def _binary(self, e: Binary, bar: Expr) -> None:
        kind = e.type
        if e.op in ("+", "-"):
            self._give(e.left, bar)
            self._give(e.right, bar if e.op == "+" else Unary(kind, "-", bar))
        elif e.op == "*":
            self._give(e.left, Binary(kind, "*", bar, e.right))
            self._give(e.right, Binary(kind, "*", bar, e.left))
        else:
            part = self._held(Binary(kind, "/", bar, e.right))
            self._give(e.left, part)
            self._give(e.right, Unary(kind, "-", Binary(kind, "*", part, Binary(kind, "/", e.left, e.right))))

    def _either(self, test: Expr, yes: Callable[[], None], no: Callable[[], None]) -> None:
        outer, blocks = self.block, list[list[Stmt]]()
        for branch in (yes, no):
            self.block = []
            branch()
            blocks.append(self.block)
        self.block = outer
        if any(blocks):
            self.block.append(If(test, *blocks))

    def _call(self, e: Call, bar: Expr) -> None:
        base = e.function.rpartition("_")[0]
        if base in FLAT:
            return
        if base == "sum":
            for argument in e.arguments:
                self._give(argument, bar)
        elif base == "prod":
            self._binary(Binary(e.type, "*", *e.arguments), bar)
        elif base in ("accmax", "accmin"):
            old, value = e.arguments
            test = Binary("pred", ">=" if base == "accmax" else "<=", old, value)
            self._either(test, lambda: self._give(old, bar), lambda: self._give(value, bar))
        elif e.function.startswith(("convert_", "round_")) and len(e.arguments) == 1:
            (operand,) = e.arguments
            self._give(operand, bar if operand.type == e.type else Cast(operand.type, bar))
        elif has_partials(e.function):
            for k, argument in enumerate(e.arguments):
                if self.depends(argument):
                    self._give(argument, scaled(bar, partial(e.function, e.arguments, k)))
        else:
            raise unsupported(self.name, f"the function '{e.function}' has none")
