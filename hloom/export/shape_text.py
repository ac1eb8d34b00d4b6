"""Texts of symbolic shapes, as `jax.export` has them: "b, 2*b + 1, ...", and constraints such as "b >= 2*c"."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hloom.arrays.dimensions import Dim, dims_of, size_at
from hloom.errors import ArgumentError, ExportError
from hloom.ir.records import record

__all__ = ["Constraint", "constraints_of", "parsed_shape", "sizes_that_hold", "solved"]

UNBOUNDED = 1 << 40
_BINARY: dict[type, Callable] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_CALLS = {"floordiv": operator.floordiv, "mod": operator.mod}
_COMPARISONS: dict[type, tuple[Callable, str]] = {
    ast.GtE: (operator.ge, ">="), ast.Gt: (operator.gt, ">"), ast.LtE: (operator.le, "<="), ast.Lt: (operator.lt, "<"),
    ast.Eq: (operator.eq, "=="),
}  # fmt: skip
_TURNED = {">=": "<=", ">": "<", "<=": ">=", "<": ">", "==": "=="}


@record(frozen=True)
class Constraint:
    """What has to hold between sizes. left, right: integers, Dims, or expressions of them."""

    text: str
    left: Any
    how: str
    right: Any

    def holds(self, sizes: Mapping[str, int]) -> bool:
        compare = next(function for function, how in _COMPARISONS.values() if how == self.how)
        return bool(compare(size_at(self.left, sizes), size_at(self.right, sizes)))

    @property
    def names(self) -> set[str]:
        return {*dims_of(self.left), *dims_of(self.right)}


def _size(node: ast.AST, text: str, dim: Callable[[str], Dim]) -> Any:
    """The size that an expression of Python means: nothing is executed but arithmetic."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.Name):
        return dim(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -1 * _size(node.operand, text, dim)
    if isinstance(node, ast.BinOp):
        left, right = _size(node.left, text, dim), _size(node.right, text, dim)
        if type(node.op) in _BINARY:
            return _BINARY[type(node.op)](left, right)
        if isinstance(node.op, ast.Pow) and isinstance(right, int) and 0 < right < 9:
            made = left
            for _ in range(right - 1):
                made = made * left
            return made
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _CALLS
        and len(node.args) == 2
    ):
        return _CALLS[node.func.id](*[_size(one, text, dim) for one in node.args])
    raise ArgumentError(
        f"the symbolic shape {text!r}", f"{ast.unparse(node)!r} is no size", "write numbers, names, +, -, *, // and %"
    )


def _parsed(text: str, what: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ArgumentError(f"{what} {text!r}", "it cannot be read", "write sizes and commas: 'b, 2*b, 3'") from None


def constraints_of(texts: Iterable[str]) -> tuple[list[Constraint], dict[str, tuple[int, int]]]:
    """Constraints, and (least, most) of the names that are compared with numbers. Raises ArgumentError."""
    found: list[Constraint] = []
    limits: dict[str, tuple[int, int]] = {}

    def free(name: str) -> Dim:
        return Dim(name, 1, UNBOUNDED)

    for text in texts:
        node = _parsed(text, "the constraint")
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or type(node.ops[0]) not in _COMPARISONS:
            raise ArgumentError(f"the constraint {text!r}", "it compares no two sizes", "write 'b >= 2' or 'b <= 2*c'")
        how = _COMPARISONS[type(node.ops[0])][1]
        left, right = _size(node.left, text, free), _size(node.comparators[0], text, free)
        found.append(Constraint(text, left, how, right))
        if isinstance(left, int):
            left, right, how = right, left, _TURNED[how]
        if isinstance(left, Dim) and isinstance(right, int):
            least, most = limits.get(left.name, (1, UNBOUNDED))
            bounds = {">=": (right, most), ">": (right + 1, most), "<=": (least, right), "<": (least, right - 1)}
            low, high = bounds.get(how, (right, right))
            limits[left.name] = max(least, low), min(most, high)
    return found, limits


def parsed_shape(
    text: str, limits: Mapping[str, tuple[int, int]], like: Sequence | None, rules: Sequence[Constraint] = ()
) -> tuple:
    """The sizes of a text. like: sizes for "_" and "...". rules: kept by the dimensions. Raises ArgumentError."""
    inner = text.strip()
    if inner in ("", "()"):
        return ()
    if inner == "...":
        inner = "...,"
    node = _parsed(inner, "the symbolic shape")
    parts = list(node.elts) if isinstance(node, ast.Tuple) else [node]
    holes = [k for k, one in enumerate(parts) if isinstance(one, ast.Constant) and one.value is Ellipsis]
    if (holes or any(isinstance(p, ast.Name) and p.id == "_" for p in parts)) and like is None:
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

    def dim(name: str) -> Dim:
        made = Dim(name, *limits.get(name, (1, UNBOUNDED)))
        made.rules = tuple([one for one in rules if name in one.names])
        return made

    def size(k: int, part: ast.AST) -> Any:
        assert like is not None or not (isinstance(part, ast.Name) and part.id == "_")
        return like[k] if like is not None and isinstance(part, ast.Name) and part.id == "_" else _size(part, text, dim)

    return tuple([size(k, part) for k, part in enumerate(parts)])


def solved(shapes: Sequence[tuple[Sequence, Sequence[int]]]) -> dict[str, int] | None:
    """The sizes of dimensions for which shapes (wanted, given) agree; None where there are none or they are not told:
    each has to stand alone in a shape, or be the only unknown one of an expression that grows with it."""
    sizes: dict[str, int] = {}
    pairs = [(w, g) for wanted, given in shapes for w, g in zip(wanted, given, strict=True)]
    left = [pair for pair in pairs if dims_of(pair[0])]
    while left:
        rest = []
        for wanted, given in left:
            unknown = [d for name, d in dims_of(wanted).items() if name not in sizes]
            if len(unknown) == 1:
                sizes[unknown[0].name] = _solution(wanted, int(given), unknown[0], sizes)
            elif unknown:
                rest.append((wanted, given))
        if len(rest) == len(left):
            return None
        left = rest
    return sizes if all(size_at(w, sizes) == g for w, g in pairs) else None


def _solution(wanted: Any, given: int, dim: Dim, sizes: Mapping[str, int]) -> int:
    """The least size of a dimension with which an expression is not less than a number."""
    low, high = dim.least, min(dim.most, max(2 * abs(given) + 2, dim.least))
    while low < high:
        middle = (low + high) // 2
        if size_at(wanted, {**sizes, dim.name: middle}) < given:
            low = middle + 1
        else:
            high = middle
    return low


def sizes_that_hold(dims: Sequence[Dim], constraints: Sequence[Constraint], most: int) -> list[dict[str, int]]:
    """Sizes of the dimensions, not more than `most` of them, for which all constraints hold: from the least, but for 1,
    which is special to broadcasting. Raises ExportError where there are none."""
    reach = max(2, round(20000 ** (1 / max(1, len(dims)))))
    found = []
    starts = [min(max(d.least, 2), d.most) for d in dims]
    ranges = [range(s, min(s + reach, d.most + 1)) for s, d in zip(starts, dims, strict=True)]
    for sizes in itertools.product(*ranges):
        named = {d.name: size for d, size in zip(dims, sizes, strict=True)}
        if all(one.holds(named) for one in constraints if one.names <= set(named)):
            found.append(named)
    if not found:
        raise ExportError(
            "export with symbolic shapes",
            "no sizes were found for which all constraints hold",
            "loosen the constraints",
        )
    # Far from each other, so that a size is taken for what it is.
    apart = sorted(found, key=lambda one: (len(set(one.values())) < len(one), sum(one.values())))
    return apart[:: max(1, len(apart) // most)][:most]
