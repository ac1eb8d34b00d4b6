"""Expressions of named dimensions as the nodes that the exported driver evaluates.

An expression is an int, a float, or a tuple (operation, operand, ...) of expressions; ("dimension", k) is the size of
the dimension number k.
"""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["OPERATIONS", "Nodes", "value_of"]

# In the order of native/driver.c.
OPERATIONS = (
    "constant dimension add subtract multiply floordiv mod min max lt le eq ne neg real fadd fsub fmul fdiv flt fle "
    "feq floor ceil trunc real_constant fneg shl shr and or xor single"
).split()
_CODES = {name: code for code, name in enumerate(OPERATIONS)}


class Nodes:
    """Nodes in the order of evaluation, equal ones once."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int]] = []
        self._known: dict[tuple[int, int, int], int] = {}
        self._expressions: dict[Any, int] = {}

    def number(self, expression: Any) -> int:
        """The number of an expression's node."""
        key = (type(expression), expression)
        if key not in self._expressions:
            self._expressions[key] = self._add(expression)
        return self._expressions[key]

    def _add(self, expression: Any) -> int:
        if isinstance(expression, float):
            word = struct.unpack("<q", struct.pack("<d", expression))[0]
            return self._row(_CODES["real_constant"], word, 0)
        if not isinstance(expression, tuple):
            return self._row(_CODES["constant"], int(expression), 0)
        name, *operands = expression
        if name == "dimension":
            return self._row(_CODES[name], operands[0], 0)
        numbers = [self.number(operand) for operand in operands]
        return self._row(_CODES[name], numbers[0], numbers[1] if len(numbers) > 1 else numbers[0])

    def _row(self, *row: int) -> int:
        if row not in self._known:
            self._known[row] = len(self.rows)  # type: ignore[index]
            self.rows.append(row)  # type: ignore[arg-type]
        return self._known[row]  # type: ignore[index]


def value_of(expression: Any, sizes: tuple[int, ...]) -> Any:
    """The value of an expression for sizes of the dimensions, as the driver computes it."""
    if not isinstance(expression, tuple):
        return expression
    name, *operands = expression
    if name == "dimension":
        return sizes[operands[0]]
    return _PYTHON[name](*[value_of(operand, sizes) for operand in operands])


def _floor(x: float) -> int:
    return int(x // 1)


_PYTHON: dict[str, Any] = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "min": min, "max": max, "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b), "eq": lambda a, b: int(a == b), "ne": lambda a, b: int(a != b),
    "neg": lambda a: -a, "real": float, "fadd": lambda a, b: a + b, "fsub": lambda a, b: a - b,
    "fmul": lambda a, b: a * b, "fdiv": lambda a, b: a / b, "flt": lambda a, b: int(a < b),
    "fle": lambda a, b: int(a <= b), "feq": lambda a, b: int(a == b), "floor": _floor,
    "ceil": lambda a: -_floor(-a), "trunc": int, "fneg": lambda a: -a, "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b, "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "single": float,
}  # fmt: skip
