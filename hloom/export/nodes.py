"""Sizes as the nodes that the exported driver evaluates (`native/driver.c`), and their intervals over boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hloom.ir.sizes.expressions import Comparison, Size, SizeExpression, single
from hloom.ir.sizes.terms import Atom, Quotient, Symbol, Terms

__all__ = ["Nodes", "Row", "intervals"]

# In the order of native/driver.c.
OPERATIONS = "constant dimension add multiply floordiv min max ge eq ne".split()
_CODES = {name: code for code, name in enumerate(OPERATIONS)}
EXACT = 2.0**53  # integers up to here are exact in float64

Row = tuple[int, int, int]


class Nodes:
    """Nodes in the order of evaluation, without duplicates. dimensions: their indices by name."""

    def __init__(self, dimensions: Mapping[str, int]):
        self.dimensions = dimensions
        self.rows: list[Row] = []
        self._known: dict[Row, int] = {}

    def row(self, operation: str, first: int, second: int = 0) -> int:
        """The index of an operation's node; first, second: indices of nodes, or a constant, or a dimension."""
        row = (_CODES[operation], first, second)
        if row not in self._known:
            self._known[row] = len(self.rows)
            self.rows.append(row)
        return self._known[row]

    def number(self, size: Size) -> int:
        """The number of a size's node."""
        if not isinstance(size, SizeExpression):
            return self.row("constant", int(size))
        dim = single(size)
        return self._terms(size.terms) if dim is None else self.row("dimension", self.dimensions[dim.name])

    def guard(self, comparison: Comparison) -> int:
        """The number of a node that is 1 where a comparison holds, and 0 elsewhere."""
        low, high = comparison.left, comparison.right
        if comparison.how in (">=", ">"):
            low, high = high, low
        difference = self.number(high - low - int(comparison.how in ("<", ">")))
        return self.row({"==": "eq", "!=": "ne"}.get(comparison.how, "ge"), difference)

    def _terms(self, terms: Terms) -> int:
        total: int | None = None
        for monomial, factor in terms:
            made = None if monomial and factor == 1 else self.row("constant", factor)
            for atom in monomial:
                one = self._atom(atom)
                made = one if made is None else self.row("multiply", made, one)
            assert made is not None
            total = made if total is None else self.row("add", total, made)
        return self.row("constant", 0) if total is None else total

    def _atom(self, atom: Atom) -> int:
        if isinstance(atom, Symbol):
            dimension = self.row("dimension", self.dimensions[atom.name])
            return dimension if atom.multiple == 1 else self.row("floordiv", dimension, self.number(atom.multiple))
        first, *rest = [self._terms(part) for part in atom.parts()]
        for one in rest:
            first = self.row("floordiv" if isinstance(atom, Quotient) else atom.kind, first, one)
        return first


def intervals(rows: Sequence[Row], low: np.ndarray, high: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The least and the greatest value of each node in boxes of sizes; no value lies outside.

    low, high: float64 of the shape (dimensions, boxes). A box of one size has its value, if that is exact.
    """
    lows: list[np.ndarray] = []
    highs: list[np.ndarray] = []
    with np.errstate(invalid="ignore"):  # 0 times an infinity
        for code, first, second in rows:
            least, most = _interval(OPERATIONS[code], first, second, low, high, lows, highs)
            lows.append(np.where(least < -EXACT, -np.inf, np.minimum(least, EXACT)))
            highs.append(np.where(most > EXACT, np.inf, np.maximum(most, -EXACT)))
    return lows, highs


def _interval(operation: str, first: int, second: int, low, high, lows, highs) -> tuple[np.ndarray, np.ndarray]:
    if operation == "constant":
        constant = np.full(low.shape[1], float(first))
        return constant, constant
    if operation == "dimension":
        return low[first], high[first]
    a, b = (lows[first], highs[first]), (lows[second], highs[second])
    if operation == "add":
        return a[0] + b[0], a[1] + b[1]
    if operation in ("min", "max"):
        choose = np.minimum if operation == "min" else np.maximum
        return choose(a[0], b[0]), choose(a[1], b[1])
    if operation == "multiply":
        return _ends([np.nan_to_num(x * y, nan=0.0, posinf=np.inf, neginf=-np.inf) for x in a for y in b])
    if operation == "floordiv":
        return _quotient(a, b)
    is_zero, may_be = (a[0] == 0) & (a[1] == 0), (a[0] <= 0) & (a[1] >= 0)
    if operation == "ge":
        return (a[0] >= 0) * 1.0, (a[1] >= 0) * 1.0
    return (is_zero * 1.0, may_be * 1.0) if operation == "eq" else (~may_be * 1.0, ~is_zero * 1.0)


def _ends(values: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.minimum.reduce(values), np.maximum.reduce(values)


def _quotient(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Of floor division; by 0 it is 0, as in the driver. Unknown for a divisor that may be both 0 and another."""
    divisors = [np.maximum(one, 1.0) for one in b]
    least, most = _ends([np.where(np.isinf(x), x, np.floor_divide(x, y)) for x in a for y in divisors])
    unknown = (b[0] < 1) & (b[1] > 0) | (b[0] < 0)
    zero = b[1] == 0
    return (
        np.where(unknown, -np.inf, np.where(zero, 0.0, least)), np.where(unknown, np.inf, np.where(zero, 0.0, most))
    )  # fmt: skip
