"""Parses sizes: expressions of numbers and names, as printed by `text` and jax. Nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Callable

from hloom.ir.errors import ArgumentError
from hloom.ir.sizes import forms
from hloom.ir.sizes import terms as t
from hloom.ir.sizes.terms import Terms

__all__ = ["parsed", "parsed_node", "parsed_several", "terms_of"]

MOST_POWER = 16
_QUOTIENTS = ("floordiv", "mod")
_EXTREMA = ("min", "max")


def parsed(text: str, named: Callable[[str], Terms]) -> Terms:
    """The polynomial of a text. named: the polynomial of a name. Raises ArgumentError, as `named` may."""
    return terms_of(parsed_node(text), text, named)


def parsed_several(text: str, named: Callable[[str], Terms]) -> list[Terms]:
    """The polynomials of a comma-separated text. Raises ArgumentError, as `named` may."""
    node = parsed_node(text)
    return [terms_of(one, text, named) for one in (node.elts if isinstance(node, ast.Tuple) else [node])]


def parsed_node(text: str, what: str = "the size", repair: str = "write a size such as '2*b + 1'") -> ast.expr:
    """The expression of a text. Raises ArgumentError, which quotes the text."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ArgumentError(f"{what} {text!r}", "it cannot be read", repair) from None


def terms_of(node: ast.AST, text: str, named: Callable[[str], Terms]) -> Terms:
    """The polynomial of a parsed Python expression."""

    def inner(one: ast.AST) -> Terms:
        return terms_of(one, text, named)

    if isinstance(node, ast.Constant) and type(node.value) is int:
        return t.number(node.value)
    if isinstance(node, ast.Name):
        return named(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return t.scaled(inner(node.operand), -1)
    if isinstance(node, ast.BinOp):
        made = _binary(node.op, inner(node.left), inner(node.right))
        if made is not None:
            return made
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        operands = [inner(one) for one in node.args]
        if node.func.id in _QUOTIENTS and len(operands) == 2:
            return _binary(ast.FloorDiv() if node.func.id == "floordiv" else ast.Mod(), *operands) or t.ZERO
        if node.func.id in _EXTREMA and operands:
            return forms.extremum(node.func.id, operands)
    raise ArgumentError(
        f"the size {text!r}", f"{ast.unparse(node)!r} is no size", "write numbers, names, +, -, *, //, %, min and max"
    )


def _binary(operation: ast.operator, left: Terms, right: Terms) -> Terms | None:
    if isinstance(operation, ast.Add):
        return t.plus(left, right)
    if isinstance(operation, ast.Sub):
        return t.minus(left, right)
    if isinstance(operation, ast.Mult):
        return t.times(left, right)
    if isinstance(operation, ast.FloorDiv):
        return forms.quotient(left, right)
    if isinstance(operation, ast.Mod):
        return t.minus(left, t.times(right, forms.quotient(left, right)))
    power = t.value_of(right)
    if isinstance(operation, ast.Pow) and power is not None and 0 <= power <= MOST_POWER:
        made = t.number(1)
        for _ in range(power):
            made = t.times(made, left)
        return made
    return None
