"""Affine expressions: a constant plus integer multiples of variables.

A variable is anything that can be hashed: a dimension of a loop nest (kernels/codegen/affine), a variable of the kernel
language (`linear`), a symbol whose bounds are known (`facts`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from hloom.compiler.kernel_ir.nodes import Binary, Call, Cast, Const, Expr, Unary, Var
from hloom.compiler.kernel_ir.types import is_integer

__all__ = ["Affine", "linear", "multiple"]


class Affine:
    """constant + the sum of factor * variable. terms: factors by variable, without zeros. Immutable and hashable.

    The constant of an index of a loop nest may be a size that its dimensions decide.
    """

    __slots__ = ("_hash", "constant", "terms")

    def __init__(self, constant: int = 0, terms: Mapping[Any, int] | None = None):
        self.constant = constant
        self.terms: dict[Any, int] = {v: factor for v, factor in terms.items() if factor} if terms else {}
        self._hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.constant, frozenset(self.terms.items())))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Affine) and self.constant == other.constant and self.terms == other.terms

    def __repr__(self) -> str:
        parts = [f"{factor} * {v}" if factor != 1 else str(v) for v, factor in self.terms.items()]
        return " + ".join([*parts, str(self.constant)] if self.constant or not parts else parts)

    @property
    def number(self) -> int | None:
        """Its value, where it has no variable."""
        return None if self.terms else self.constant

    def __add__(self, other: Affine | int) -> Affine:
        if not isinstance(other, Affine):
            return Affine(self.constant + other, self.terms)
        terms = dict(self.terms)
        for variable, factor in other.terms.items():
            terms[variable] = terms.get(variable, 0) + factor
        return Affine(self.constant + other.constant, terms)

    def __mul__(self, factor: int) -> Affine:
        return Affine(self.constant * factor, {v: own * factor for v, own in self.terms.items()})

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Affine | int) -> Affine:
        return self + (-other)

    def without(self, variable: Any) -> Affine:
        return Affine(self.constant, {v: factor for v, factor in self.terms.items() if v is not variable})


def multiple(variable: Any, factor: int = 1) -> Affine:
    """A variable times a number."""
    return Affine(0, {variable: factor})


def linear(
    value: Expr, of_variable: Callable[[Var], Affine | Expr | None],
    fits: Callable[[Affine, str], bool] = lambda form, kind: False,
) -> Affine | None:  # fmt: skip
    """An expression as a sum of variables; None where it is something else.

    of_variable: what a variable is: a sum, an expression in its place, or None where nothing is known of it. fits:
    whether a sum always fits into a narrower type that it is converted to.
    """
    match value:
        case Const(type=kind) if is_integer(kind):
            return Affine(value.value)
        case Var():
            found = of_variable(value)
            return linear(found, of_variable, fits) if isinstance(found, Expr) else found
        case Binary(type="s64", op=op) if op in _OPERATIONS:
            left, right = linear(value.left, of_variable, fits), linear(value.right, of_variable, fits)
            return None if left is None or right is None else _OPERATIONS[op](left, right)
        case Unary(type="s64", op="-", operand=operand):
            form = linear(operand, of_variable, fits)
            return None if form is None else -form
        case Cast(type=kind, operand=operand) if is_integer(kind) and is_integer(operand.type):
            form = linear(operand, of_variable, fits)
            same = kind == operand.type or (kind == "s64" and operand.type != "u64")
            return form if form is None or same or fits(form, kind) else None
        case Call(function="min" | "max" as name):
            parts = [linear(argument, of_variable, fits) for argument in value.arguments]
            numbers = [part.number for part in parts if part is not None and part.number is not None]
            return Affine(_EXTREMA[name](numbers)) if len(numbers) == len(parts) else None
    return None


def _product(left: Affine, right: Affine) -> Affine | None:
    if left.number is not None:
        return right * left.number
    return None if right.number is None else left * right.number


def _quotient(left: Affine, right: Affine) -> Affine | None:
    return Affine(left.number // right.number) if left.number is not None and right.number else None


_OPERATIONS: dict[str, Callable[[Affine, Affine], Affine | None]] = {
    "+": operator.add, "-": operator.sub, "*": _product, "//": _quotient,
}  # fmt: skip
_EXTREMA: dict[str, Callable[[list[int]], int]] = {"min": min, "max": max}
