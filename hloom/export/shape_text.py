"""Texts of symbolic shapes, as `jax.export` has them: "b, 2*b + 1, ...", and constraints such as "b >= 2*c"."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from hloom.errors import ArgumentError
from hloom.ir.sizes import reading
from hloom.ir.sizes.expressions import (
    LARGEST,
    Comparison,
    Dim,
    Scope,
    Size,
    single,
    size_of_terms,
)

__all__ = ["Names", "constraints_of", "parsed_shape", "scope_of"]

_HOW: dict[type, str] = {ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.Lt: "<", ast.Eq: "=="}
_TURNED = {">=": "<=", ">": "<", "<=": ">=", "<": ">", "==": "=="}


def _parsed(text: str, what: str) -> ast.expr:
    return reading.parsed_node(text, what, "write sizes and commas: 'b, 2*b, 3'")


class Names:
    """The dimensions of texts by their names, in the bounds and with the constraints of a scope."""

    def __init__(self, limits: dict[str, tuple[int, int]], scope: Scope | None = None):
        self.limits, self.scope = limits, scope
        self.dims: dict[str, Dim] = {}

    def dim(self, name: str) -> Dim:
        if name not in self.dims:
            low, high = self.limits.get(name, (1, LARGEST))
            self.dims[name] = Dim(name, low, None if high == LARGEST else high, scope=self.scope)
        return self.dims[name]

    def size(self, node: ast.AST, text: str) -> Size:
        if isinstance(node, ast.Name):
            return self.dim(node.id)
        return size_of_terms(reading.terms_of(node, text, lambda name: self.dim(name).terms))


def scope_of(texts: Iterable[str]) -> Names:
    """The names and bounds of constraints, which their scope keeps. Raises ArgumentError."""
    parsed = []
    limits: dict[str, tuple[int, int]] = {}
    for text in texts:
        node = _parsed(text, "the constraint")
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or type(node.ops[0]) not in _HOW:
            raise ArgumentError(f"the constraint {text!r}", "it compares no two sizes", "write 'b >= 2' or 'b <= 2*c'")
        how, free = _HOW[type(node.ops[0])], Names({})
        left, right = free.size(node.left, text), free.size(node.comparators[0], text)
        parsed.append((text, node, how))
        if isinstance(left, int):
            left, right, how = right, left, _TURNED[how]
        if isinstance(right, int) and (dim := single(left)) is not None:
            least, most = limits.get(dim.name, (1, LARGEST))
            bounds = {">=": (right, most), ">": (right + 1, most), "<=": (least, right), "<": (least, right - 1)}
            low, high = bounds.get(how, (right, right))
            limits[dim.name] = max(least, low), min(most, high)
    for name, (least, most) in limits.items():
        if least > most:
            raise ArgumentError(
                f"the constraints {[text for text, *_ in parsed]}",
                f"no size of {name!r} is possible",
                "loosen the constraints",
            )
    scope = Scope()
    names = Names(limits, scope if parsed else None)  # without one, equal names are one dimension everywhere
    for text, node, how in parsed:
        scope.add(text, Comparison(names.size(node.left, text), how, names.size(node.comparators[0], text)))
    return names


def parsed_shape(text: str, names: Names, like: Sequence | None) -> tuple[Size, ...]:
    """The sizes of a text. like: sizes for "_" and "...". Raises ArgumentError."""
    inner = text.strip()
    if inner in ("", "()"):
        return ()
    if inner == "...":
        inner = "...,"
    node = _parsed(inner, "the symbolic shape")
    parts = list(node.elts) if isinstance(node, ast.Tuple) else [node]
    holes = [k for k, one in enumerate(parts) if isinstance(one, ast.Constant) and one.value is Ellipsis]
    if (holes or any(_is_open(part) for part in parts)) and like is None:
        raise ArgumentError(f"symbolic_shape({text!r})", "'_' and '...' need a shape to take sizes from", "pass like=")
    if holes:
        count = len(like or ()) - len(parts) + 1
        if len(holes) > 1 or count < 0:
            raise ArgumentError(
                f"symbolic_shape({text!r})",
                f"it does not fit the shape {tuple(like or ())}",
                "write one '...', and no more sizes than the shape has",
            )
        at = holes[0]
        parts[at : at + 1] = [ast.Name("_") for _ in range(count)]
    if like is not None and len(parts) != len(like):
        raise ArgumentError(
            f"symbolic_shape({text!r})", f"{len(parts)} sizes for the shape {tuple(like)}", "write '...'"
        )
    return tuple([like[k] if like and _is_open(part) else names.size(part, text) for k, part in enumerate(parts)])


def _is_open(part: ast.AST) -> bool:
    return isinstance(part, ast.Name) and part.id == "_"


def constraints_of(dims: Iterable[Dim]) -> list[tuple[str, Comparison]]:
    """The scopes of the dimensions, each once, with its text."""
    found: dict[str, Comparison] = {}
    for dim in dims:
        found |= dict(dim.scope.comparisons) if dim.scope is not None else {}
    return list(found.items())
