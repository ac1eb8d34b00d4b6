"""Tangents of expressions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from hloom.compiler.kernel_ir.builder import number
from hloom.compiler.kernel_ir.nodes import Binary, Call, Cast, Choice, Expr, Load, Unary, Var
from hloom.kernels.derivatives.activity import FLOATS, unsupported
from hloom.kernels.derivatives.partials import FLAT, has_partials, partial, scaled, where_not_zero

__all__ = ["Tangents"]


class Tangents:
    """active: variables and pointers that have tangents. shadow: the variable or the pointer of one's tangent."""

    def __init__(self, name: str, active: Collection[Var], shadow: Callable[[Var], Var]):
        self.name, self.active, self.shadow = name, active, shadow

    def of(self, e: Expr) -> Expr | None:
        """The tangent of a float; None where it is zero."""
        match e:
            case Var():
                return self.shadow(e) if e in self.active else None
            case Load(type=kind, pointer=Var() as pointer, index=index):
                return Load(kind, self.shadow(pointer), index) if pointer in self.active else None
            case Unary(type=kind, op="-", operand=operand):
                dot = self.of(operand)
                return None if dot is None else where_not_zero(dot, lambda d: Unary(kind, "-", d))
            case Cast(type=kind, operand=operand) if kind in FLOATS and operand.type in FLOATS:
                dot = self.of(operand)
                return None if dot is None else Cast(kind, dot)
            case Binary() if e.type in FLOATS:
                return self._binary(e)
            case Choice(type=kind, test=test, yes=yes, no=no) if kind in FLOATS:
                first, second = self.of(yes), self.of(no)
                if first is None and second is None:
                    return None
                zero = number(0.0, kind)
                return Choice(kind, test, first or zero, second or zero)
            case Call() if e.type in FLOATS:
                return self._call(e)
        return None

    def _binary(self, e: Binary) -> Expr | None:
        kind, left, right = e.type, self.of(e.left), self.of(e.right)
        if e.op in ("+", "-"):
            return _sum(kind, left, right, e.op)
        if e.op == "*":
            first = None if left is None else scaled(left, e.right)
            second = None if right is None else scaled(right, e.left)
            return _sum(kind, first, second)
        assert e.op == "/"
        top = _sum(kind, left, None if right is None else scaled(right, e), "-")
        return None if top is None else where_not_zero(top, lambda t: Binary(kind, "/", t, e.right))

    def _call(self, e: Call) -> Expr | None:
        dots = [self.of(argument) for argument in e.arguments]
        base = e.function.rpartition("_")[0]
        if all(dot is None for dot in dots) or base in FLAT:
            return None
        kind = e.type
        if base in ("sum", "accmax", "accmin", "prod"):
            return self._accumulated(base, e, dots)
        if e.function.startswith(("convert_", "round_")) and len(dots) == 1 and dots[0] is not None:
            return dots[0] if dots[0].type == kind else Cast(kind, dots[0])
        if not has_partials(e.function):
            raise unsupported(self.name, f"the function '{e.function}' has none")
        total: Expr | None = None
        for k, dot in enumerate(dots):
            if dot is not None:
                total = _sum(kind, total, scaled(dot, partial(e.function, e.arguments, k)))
        return total

    def _accumulated(self, base: str, e: Call, dots: Sequence[Expr | None]) -> Expr | None:
        kind, (old, value) = e.type, e.arguments
        if base == "sum":
            return _sum(kind, dots[0], dots[1])
        if base == "prod":
            return self._binary(Binary(kind, "*", old, value))
        zero = number(0.0, kind)
        test = Binary("pred", ">=" if base == "accmax" else "<=", old, value)
        return Choice(kind, test, dots[0] or zero, dots[1] or zero)


def _sum(kind: str, left: Expr | None, right: Expr | None, op: str = "+") -> Expr | None:
    if right is None:
        return left
    if left is None:
        return right if op == "+" else Unary(kind, "-", right)
    return Binary(kind, op, left, right)
