"""Sizes as the nodes that the exported driver evaluates (`native/driver.c`), and their intervals over boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hloom.ir.sizes import numbers
from hloom.ir.sizes.evaluation import number_of
from hloom.ir.sizes.expressions import Comparison, Size, SizeExpression, single
from hloom.ir.sizes.numbers import OPERATIONS, Number

__all__ = ["CONSTANT", "DIMENSION", "Nodes", "Row", "intervals"]

# What a node is besides an operation of `ir.sizes.numbers`.
CONSTANT, DIMENSION = len(OPERATIONS), len(OPERATIONS) + 1
EXACT = 2.0**53  # integers up to here are exact in float64

Row = tuple[int, int, int]


class Nodes(numbers.Nodes):
    """The nodes of `ir.sizes.numbers` whose inputs are dimensions. dimensions: their indices by name."""

    def __init__(self, dimensions: Mapping[str, int]):
        super().__init__(())
        made = {number: self._new(0) for number in sorted({*dimensions.values()})}
        self._dimensions = {node.index: number for number, node in made.items()}
        for name, number in dimensions.items():
            self.define(name, made[number])

    @property
    def table(self) -> list[Row]:
        """(operation, first, second) of each node in the order of evaluation: indices of nodes, or a constant, or the
        number of a dimension."""
        operations = {target: (operation, first, second) for operation, first, second, target in self.rows}
        return [
            operations.get(k)
            or ((DIMENSION, self._dimensions[k], 0) if k in self._dimensions else (CONSTANT, value, 0))
            for k, value in enumerate(self.values)
        ]

    def of(self, size: Size) -> Number:
        """The number of a size; of a dimension its own node, which arguments decide."""
        dim = single(size) if isinstance(size, SizeExpression) else None
        return number_of(self, size) if dim is None else self.given(dim.name)

    def number(self, size: Size) -> int:
        """The index of a size's node."""
        return self.node(self.of(size)).index

    def guard(self, comparison: Comparison) -> int:
        """The index of a node that is 1 where a comparison holds, and 0 elsewhere. It compares the difference, in which
        equal terms cancel, so that its interval is narrow."""
        low, high = comparison.left, comparison.right
        if comparison.how in (">=", ">"):
            low, high = high, low
        difference = self.of(high - low - int(comparison.how in ("<", ">")))
        if comparison.how not in ("==", "!="):
            return self.node(self.at_most(0, difference)).index
        same = self.equal(difference, 0)
        return self.node(same if comparison.how == "==" else 1 - same).index


def intervals(rows: Sequence[Row], low: np.ndarray, high: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The least and the greatest value of each node in boxes of sizes; no value lies outside.

    low, high: float64 of the shape (dimensions, boxes). A box of one size has its value, if that is exact.
    """
    lows: list[np.ndarray] = []
    highs: list[np.ndarray] = []
    with np.errstate(invalid="ignore"):  # 0 times an infinity
        for code, first, second in rows:
            if code == CONSTANT:
                least = most = np.full(low.shape[1], float(first))
            elif code == DIMENSION:
                least, most = low[first], high[first]
            else:
                least, most = _INTERVALS[code]((lows[first], highs[first]), (lows[second], highs[second]))
            lows.append(np.where(least < -EXACT, -np.inf, np.minimum(least, EXACT)))
            highs.append(np.where(most > EXACT, np.inf, np.maximum(most, -EXACT)))
    return lows, highs


Interval = tuple[np.ndarray, np.ndarray]


def _ends(values: list[np.ndarray]) -> Interval:
    return np.minimum.reduce(values), np.maximum.reduce(values)


def _quotient(a: Interval, b: Interval) -> Interval:
    """Of floor division; by 0 it is 0, as in the driver. Unknown for a divisor that may be both 0 and another."""
    divisors = [np.maximum(one, 1.0) for one in b]
    least, most = _ends([np.where(np.isinf(x), x, np.floor_divide(x, y)) for x in a for y in divisors])
    unknown = (b[0] < 1) & (b[1] > 0) | (b[0] < 0)
    zero = b[1] == 0
    return (
        np.where(unknown, -np.inf, np.where(zero, 0.0, least)), np.where(unknown, np.inf, np.where(zero, 0.0, most))
    )  # fmt: skip


def _product(a: Interval, b: Interval) -> Interval:
    return _ends([np.nan_to_num(x * y, nan=0.0, posinf=np.inf, neginf=-np.inf) for x in a for y in b])


def _equal(a: Interval, b: Interval) -> Interval:
    known = (a[0] == a[1]) & (b[0] == b[1]) & (a[0] == b[0])
    return known * 1.0, ((a[0] <= b[1]) & (b[0] <= a[1])) * 1.0


# By operation of `ir.sizes.numbers`.
_INTERVALS = {
    numbers.ADD: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    numbers.SUBTRACT: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    numbers.MULTIPLY: _product,
    numbers.DIVIDE: _quotient,
    numbers.LEAST: lambda a, b: (np.minimum(a[0], b[0]), np.minimum(a[1], b[1])),
    numbers.GREATEST: lambda a, b: (np.maximum(a[0], b[0]), np.maximum(a[1], b[1])),
    numbers.LESS_EQUAL: lambda a, b: ((a[1] <= b[0]) * 1.0, (a[0] <= b[1]) * 1.0),
    numbers.EQUAL: _equal,
}
