"""Typed nodes from typed parts: the one place that says what type an operation makes, and which it refuses.

Each raises TypeMismatch for operands that the operation does not take.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from hloom.compiler.kernel_ir.functions import EFFECTS, Signature, UnknownFunction, by_name, returned
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Choice,
    Const,
    Do,
    Expr,
    Load,
    Logic,
    Stmt,
    Store,
    Unary,
    Var,
    compared,
)
from hloom.compiler.kernel_ir.types import (
    FLOATS,
    INTEGERS,
    PART,
    REGISTER,
    STORED,
    TypeMismatch,
    arithmetic,
    is_integer,
    is_pointer,
    joined,
    negated,
)

__all__ = [
    "ONE", "ZERO", "address", "assign", "both", "call", "cast", "chosen", "compared", "constant", "do", "element",
    "floor_divided", "greatest", "increased", "least", "load", "minus", "operation", "part", "plus", "quotient",
    "store", "terms_of", "times", "truth", "unary",
]  # fmt: skip

ZERO, ONE = Const("s64", 0), Const("s64", 1)
CASTS = frozenset((*INTEGERS, *FLOATS, *PART))
NARROW = ("pred", "f16", "bf16")
_COMPARISONS = frozenset(("<", "<=", ">", ">=", "==", "!="))
_CLOSED = frozenset(("+", "-", "*"))
_LEAST = 1 << 63


def constant(value: bool | int | float) -> Const:
    """A number as Python writes it: s64, u64 where it is too large for that, f64, pred."""
    if isinstance(value, bool):
        return Const("pred", value)
    if isinstance(value, float):
        return Const("f64", value)
    value = operator.index(value)  # of a size that its dimensions decide; others are arguments of the kernel
    if not -_LEAST <= value < 2 * _LEAST:
        raise TypeMismatch(f"the constant {value}")
    return Const("s64" if value < _LEAST else "u64", value)


def number(value: bool | int | float | complex, kind: str) -> Expr:
    """A number of a type; one that Python does not write is converted from one that it does."""
    if isinstance(value, complex):
        parts = [number(part, PART[kind]) for part in (value.real, value.imag)]
        return Call(kind, f"complex_{PART[kind]}", tuple(parts))
    if kind == "pred":
        return Const("pred", bool(value))
    exact = constant(float(value) if kind in FLOATS else value)
    return exact if exact.type == kind else Cast(kind, exact)


def operation(op: str, left: Expr, right: Expr) -> Binary:
    """Arithmetic, or a comparison."""
    if left.type == "s64" == right.type and op in _CLOSED:  # most are indexes
        return Binary("s64", op, left, right)
    if op in _COMPARISONS:
        return compared(op, left, right)
    return Binary(arithmetic(op, left.type, right.type), op, left, right)


def plus(first: Expr, *others: Expr) -> Expr:
    """A sum, added from the left."""
    for other in others:
        first = operation("+", first, other)
    return first


def terms_of(total: Expr) -> list[Expr]:
    """The terms of a sum that is added from the left."""
    if isinstance(total, Binary) and total.op == "+":
        return [*terms_of(total.left), total.right]
    return [total]


def minus(left: Expr, right: Expr) -> Binary:
    return operation("-", left, right)


def times(left: Expr, right: Expr) -> Binary:
    return operation("*", left, right)


def floor_divided(left: Expr, right: Expr) -> Binary:
    return operation("//", left, right)


def least(*values: Expr) -> Expr:
    """`min(a, b)` of numbers of one kind."""
    return call("min", values, by_name)


def greatest(*values: Expr) -> Expr:
    """`max(a, b)` of numbers of one kind."""
    return call("max", values, by_name)


def quotient(x: Expr, y: Expr) -> Expr:
    """`quotient(x, y)` of integers that are not negative."""
    return call("quotient", (x, y), by_name)


def address(pointer: Expr) -> Expr:
    """`address(p)`, in bytes."""
    return call("address", (pointer,), by_name)


def unary(op: str, operand: Expr) -> Expr:
    """`-x`, `~x`, `not x`."""
    if op == "-" and operand == Const("u64", _LEAST):  # Python has no negative literals
        return Const("s64", -_LEAST)
    return Unary(negated(op, operand.type), op, operand)


def part(operand: Expr, name: str) -> Unary:
    """`x.real`, `x.imag`."""
    if name not in ("real", "imag") or operand.type not in PART:
        raise TypeMismatch(f".{name} of {operand.type}")
    return Unary(PART[operand.type], f".{name}", operand)


def truth(value: Expr) -> Expr:
    """What a branch, a loop or a choice asks."""
    if value.type != "pred" and not is_integer(value.type):
        raise TypeMismatch(f"the truth of {value.type}")
    return value


def both(op: str, operands: Sequence[Expr]) -> Logic:
    """`and`, `or`."""
    if any(operand.type != "pred" for operand in operands):
        raise TypeMismatch("and, or of numbers")
    return Logic(op, tuple(operands))


def chosen(test: Expr, yes: Expr, no: Expr) -> Choice:
    return Choice(yes.type if yes.type == no.type else joined(yes.type, no.type), truth(test), yes, no)


def cast(kind: str, operand: Expr) -> Cast:
    if is_pointer(operand.type):
        raise TypeMismatch(f"{kind} of a pointer")
    return Cast(kind, operand)


def element(pointer: Expr, index: Expr) -> Load:
    """`p[i]`: of narrow dtypes the bits that are stored."""
    _indexed(pointer, index)
    kind = pointer.type[1:]
    return Load(STORED.get(kind, kind), pointer, index)


def load(pointer: Expr, index: Expr) -> Load:
    """An element as a register: f16 and bf16 as f32, pred as a truth value."""
    _indexed(pointer, index)
    kind = pointer.type[1:]
    return Load(REGISTER.get(kind, kind), pointer, index)


def call(name: str, arguments: Sequence[Expr], signature: Signature) -> Expr:
    """A call of a function of the language by its name, a conversion too. Raises UnknownFunction."""
    if name in EFFECTS:
        raise UnknownFunction(name)
    if name in CASTS and len(arguments) == 1:
        return Cast(name, arguments[0])
    kind, _, dtype = name.partition("_")
    if kind == "load" and dtype in NARROW and len(arguments) == 2:
        return Load("pred" if dtype == "pred" else "f32", *arguments)
    return Call(returned(name, [argument.type for argument in arguments], signature), name, tuple(arguments))


def assign(var: Var, value: Expr) -> Assign:
    if var.type != value.type and not (is_pointer(var.type) and is_pointer(value.type)):
        # One that holds integers of several types is s64.
        if not is_integer(value.type) or var.type != "s64" or value.type == "u64":
            raise TypeMismatch(f"{var.name} holds {var.type} and {value.type}")
    return Assign(var, value)


def increased(var: Var, by: Expr | int) -> Assign:
    """`var += by`."""
    return Assign(var, var + by, augmented=True)


def store(pointer: Expr, index: Expr, value: Expr, streamed: bool = False) -> Store:
    """An element's register to memory, as what the pointer points to; streamed: non-temporal."""
    _indexed(pointer, index)
    return Store(pointer, index, value, pointer.type[1:], streamed)


def do(name: str, arguments: Sequence[Expr]) -> Stmt:
    """A call for its effect; stores are statements of their own."""
    kind, _, dtype = name.partition("_")
    if kind in ("store", "stream") and len(arguments) == 3:
        pointer, index, value = arguments
        return Store(pointer, index, value, dtype, kind == "stream")
    return Do(name, tuple(arguments))


def _indexed(pointer: Expr, index: Expr) -> None:
    if not is_pointer(pointer.type) or not is_integer(index.type):
        raise TypeMismatch(f"an index of {index.type} of {pointer.type}")
