"""Partial derivatives of the kernel language's functions: for ops of the op table by their rules, as nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache

from hloom.compiler.kernel_ir.builder import number
from hloom.compiler.kernel_ir.nodes import Binary, Call, Choice, Expr, Unary, Var
from hloom.compiler.kernel_ir.of_ops import expression
from hloom.compiler.kernel_ir.rewrite import substituted
from hloom.compiler.transforms.jvp import jvp
from hloom.ir.build import Builder
from hloom.ir.errors import DifferentiationError
from hloom.ir.module import Instruction
from hloom.ir.op_table import OPS, No
from hloom.ir.types import DTYPES, HLO_NAME, Shape, compute_dtype

__all__ = ["FLAT", "has_partials", "partial", "scaled", "where_not_zero"]

_KINDS = ("f32", "f64")
# Functions whose derivative is zero wherever they have one.
FLAT = frozenset(("floor", "ceil", "trunc", "round_even", "round_afz", "sign"))


@cache
def _opcodes() -> dict[str, str]:
    """The op of each function: {"exp": "exponential"}."""
    found = {}
    for name, entry in OPS.items():
        if entry.family != "elementwise" or isinstance(entry.code, No) or "float" not in entry.kinds:
            continue
        params = [Var("f32", f"a{k}") for k in range(entry.arity)]
        dtype = DTYPES["f32"]
        if name == "is-finite":
            continue
        made = expression(name, [(dtype, p) for p in params], dtype, lambda e: e)
        if isinstance(made, Call) and list(made.arguments) == params and made.function.endswith("_f32"):
            found[made.function.removesuffix("_f32")] = name
    return found


def has_partials(function: str) -> bool:
    """Whether a function's derivatives are known."""
    base, _, kind = function.rpartition("_")
    return kind in _KINDS and (base in _opcodes() or base in _OWN or base in FLAT)


def partial(function: str, arguments: Sequence[Expr], which: int) -> Expr:
    """The derivative of a function of f32 or f64 by one of its arguments."""
    base, _, kind = function.rpartition("_")
    own = _OWN.get(base)
    if own is not None:
        return own(kind, arguments, which)
    params, made = _by_rule(_opcodes()[base], kind, len(arguments), which)
    return substituted(made, dict(zip(params, arguments, strict=True)))


def where_not_zero(value: Expr, function: Callable[[Expr], Expr]) -> Expr:
    """A linear function of a tangent or a cotangent. Where a test chooses zero, the result is zero, whatever factor the
    function has: an infinite one too."""
    zero = number(0.0, value.type)
    if value == zero:
        return value
    if isinstance(value, Choice) and zero in (value.yes, value.no):
        yes, no = where_not_zero(value.yes, function), where_not_zero(value.no, function)
        return Choice(yes.type, value.test, yes, no)
    return function(value)


def scaled(value: Expr, factor: Expr) -> Expr:
    """A tangent or a cotangent times a partial derivative."""
    one = number(1.0, value.type)

    def product(value: Expr) -> Expr:
        if factor == one:
            return value
        return where_not_zero(factor, lambda f: f if value == one else Binary(f.type, "*", value, f))

    return where_not_zero(value, product)


@lru_cache(512)
def _by_rule(opcode: str, kind: str, count: int, which: int) -> tuple[list[Var], Expr]:
    """An op's partial derivative, an expression of variables, by the op's rule."""
    builder = Builder("partial")
    shape = Shape(DTYPES[kind], ())
    given = [builder.parameter(shape) for _ in range(count)]
    try:
        made = jvp(builder.finish(builder.emit(opcode, *given)), [k == which for k in range(count)])
    except DifferentiationError:
        return [], number(0.0, kind)
    variables = [Var(kind, f"a{k}") for k in range(count)]
    values: dict[Instruction, Expr] = dict(zip(made.parameters, [*variables, number(1.0, kind)], strict=True))
    for instruction in made.instructions:
        if instruction not in values and instruction.opcode != "tuple":
            values[instruction] = _value(instruction, [values[o] for o in instruction.operands])
    return variables, _folded(values[made.root.operands[1]])


def _value(instruction: Instruction, operands: list[Expr]) -> Expr:
    """An instruction of numbers of one element."""
    dtype = instruction.dtype
    if instruction.opcode == "constant":
        return number(instruction["value"].item(), HLO_NAME[compute_dtype(dtype)])
    if instruction.opcode in ("broadcast", "reshape", "copy"):
        return operands[0]
    pairs = [(o.dtype, value) for o, value in zip(instruction.operands, operands, strict=True)]
    return expression(instruction.opcode, pairs, dtype, lambda e: e, **instruction.attributes)


def _folded(value: Expr) -> Expr:
    """Without factors of one, which tangents of 1 leave."""
    value = value.mapped(_folded)
    if isinstance(value, Binary) and value.op == "*" and value.type in _KINDS:
        one = number(1.0, value.type)
        if one in (value.left, value.right):
            return value.left if value.right == one else value.right
    return value


def _exp2(kind: str, arguments: Sequence[Expr], which: int) -> Expr:
    return Binary(kind, "*", Call(kind, f"exp2_{kind}", (arguments[0],)), number(math.log(2), kind))


def _logarithm(base: float) -> Callable[[str, Sequence[Expr], int], Expr]:
    def derivative(kind: str, arguments: Sequence[Expr], which: int) -> Expr:
        return Binary(kind, "/", number(1 / math.log(base), kind), arguments[0])

    return derivative


def _copysign(kind: str, arguments: Sequence[Expr], which: int) -> Expr:
    if which:
        return number(0.0, kind)
    zero = number(0.0, kind)
    same = Binary("pred", "<", Binary(kind, "*", arguments[0], arguments[1]), zero)
    return Choice(kind, same, Unary(kind, "-", number(1.0, kind)), number(1.0, kind))


_OWN: dict[str, Callable[[str, Sequence[Expr], int], Expr]] = {
    "exp2": _exp2, "log2": _logarithm(2.0), "log10": _logarithm(10.0), "copysign": _copysign,
}  # fmt: skip
