"""Complex numbers as pairs of real ones: the one place that says what operations on them are made of.

Kernel text has `complex_f32`, `.real` and `.imag`, sums and differences, and `mul_c64` and `div_c64`, products and
quotients with the bits that they have everywhere. Kernel functions have all operations, also with real numbers.
"""

from __future__ import annotations

from hloom.compiler.kernel_ir.nodes import Binary, Call, Cast, Const, Expr, Logic, Stmt, Unary
from hloom.compiler.kernel_ir.rewrite import with_expressions
from hloom.compiler.kernel_ir.types import PART

__all__ = ["lowered", "without_complex_operations"]


def without_complex_operations(statements: list[Stmt]) -> list[Stmt]:
    """The statements with what kernel text has for the operations of kernel functions."""
    return [with_expressions(statement, lowered) for statement in statements]


def lowered(e: Expr) -> Expr:
    """The expression of what kernel text has. Of real numbers too, which are their own real parts."""
    e = e.mapped(lowered)
    match e:
        case Binary(type="c64" | "c128"):
            return _arithmetic(e.type, e.op, e.left, e.right)
        case Cast(type="c64" | "c128"):
            return _cast(e.type, e.operand)
        case Unary(op=".real") if e.operand.type not in PART:
            return e.operand
        case Unary(op=".imag") if e.operand.type not in PART:
            return Cast(e.type, Const("f64", 0.0))
        case Call():
            return _call(e)
    return e


def _pair(kind: str, real: Expr, imag: Expr) -> Expr:
    return Call(kind, f"complex_{PART[kind]}", (real, imag))


def _part(of: str, e: Expr) -> Expr:
    return Unary(PART[e.type], of, e)


def _parts(e: Expr) -> tuple[Expr, Expr]:
    return _part(".real", e), _part(".imag", e)


def _widened(kind: str, e: Expr) -> Expr:
    return e if e.type in PART else _pair(kind, e, Cast(PART[kind], Const("f64", 0.0)))


def _cast(kind: str, e: Expr) -> Expr:
    """A number as a complex one; NaN has both parts NaN."""
    if e.type in PART:
        return e if e.type == kind else _pair(kind, *[Cast(PART[kind], part) for part in _parts(e)])
    number = Cast(PART[kind], e)
    return _pair(kind, number, number) if e == Const("f64", float("nan")) else _widened(kind, number)


def _arithmetic(kind: str, op: str, left: Expr, right: Expr) -> Expr:
    if op in "+-":
        return Binary(kind, op, _widened(kind, left), _widened(kind, right))
    if left.type in PART and right.type in PART:
        return Call(kind, f"{'mul' if op == '*' else 'div'}_{kind}", (left, right))
    if right.type in PART:
        if op == "/":
            return Call(kind, f"div_{kind}", (_widened(kind, left), right))
        left, right = right, left
    return _pair(kind, *[Binary(PART[kind], op, part, right) for part in _parts(left)])


def _call(e: Call) -> Expr:
    stem, _, kind = e.function.rpartition("_")
    if kind not in ("f32", "f64", *PART):
        return e
    x, real = e.arguments[0], kind not in PART
    match stem:
        case "conj":
            return x if real else _pair(kind, _part(".real", x), Unary(PART[kind], "-", _part(".imag", x)))
        case "abs_squared":
            squares = [Binary(e.type, "*", part, part) for part in ((x,) if real else _parts(x))]
            return squares[0] if real else Binary(e.type, "+", *squares)
        case "cabs1":
            sizes = [Call(e.type, f"abs_{e.type}", (part,)) for part in ((x,) if real else _parts(x))]
            return sizes[0] if real else Binary(e.type, "+", *sizes)
        case "is_finite" if not real:
            return Logic("and", tuple([Call("pred", f"is_finite_{PART[kind]}", (part,)) for part in _parts(x)]))
        case "sum" if not real:
            return Binary(kind, "+", *e.arguments)
    return e
