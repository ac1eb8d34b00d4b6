"""Checks that torch makes at run time: indices in range, integer divisors that are not 0.

A rule records its conditions (`bounds=True` in `hloom.bridges.torch.table`). The program has one more output, the
number of the first violated condition, or 0, and the offending value; the bridge reads it after each call.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import S64, convert, operand
from hloom.bridges.torch.errors import source_of
from hloom.ir.records import record
from hloom.ir.sizes.expressions import Size, SizeExpression
from hloom.ir.types import INEXACT
from hloom.tracing.trace import as_array

__all__ = ["Bounds", "Condition", "Conditions", "Flag"]

_U64 = np.dtype(np.uint64)


@record(frozen=True)
class Condition:
    """kind: the exception that torch raises if it is violated. text: torch's message, with `{}` for the value, and
    `{size}`."""

    kind: type[Exception]
    text: str
    op: str
    source: Any
    size: Size = 0

    def error(self, value: int) -> Exception:
        where = f"\n  where:  {self.source}" if self.source else ""
        return self.kind(f"{self.text.format(value, size=self.size)}\n  op:     {self.op}{where}")


class Conditions:
    """The conditions of one graph, in the order of its nodes."""

    def __init__(self) -> None:
        self.found: list[Condition] = []
        self._traced: list[tuple[Any, Any]] = []  # (whether it fails, the value it fails for)
        self._known: dict[tuple, Any] = {}

    def note(self, condition: Condition, key: tuple, operand, trace) -> None:
        """Records a condition on `operand` once for each key. trace(): (whether it fails, the value it fails for)."""
        if (id(operand), *key) not in self._known:
            self._known[id(operand), *key] = operand  # kept, so that its id stays unique
            self.found.append(condition)
            self._traced.append(trace())

    def flag(self):
        """s64[2]: the number of the first condition that fails, from 1, or 0; its value."""
        number, value = _s64(0), _s64(0)
        for k in reversed(range(len(self._traced))):
            fails, found = self._traced[k]
            number, value = hnp.where(fails, _s64(k + 1), number), hnp.where(fails, found, value)
        return hnp.stack([number, value])


class Bounds:
    """Records the conditions of a rule, for one node."""

    def __init__(self, conditions: Conditions, node, op):
        self._conditions, self._node, self._op = conditions, node, op

    def indices(self, index, size: Size, dim: int = 0, *, wraps: bool = False, kind: type[Exception] = IndexError,
                text: str = "index {{}} is out of bounds for dimension {dim} with size {size}") -> None:  # fmt: skip
        """Each index has to be in 0 <= index < size; where it wraps, in -size <= index."""
        if not index.size:
            return

        def trace():
            numbers, limit = convert(index, S64), size
            if wraps:
                numbers, limit = numbers + _s64(size), 2 * size
            # As unsigned integers, negative ones are the largest.
            worst = hnp.max(lax.bitcast_convert_type(numbers, _U64))
            value = lax.bitcast_convert_type(worst, S64)
            return worst >= convert(_s64(limit), _U64), value - _s64(size) if wraps else value

        text = text.format(dim=dim, size="{size}")
        self._note(Condition(kind, text, str(self._op), source_of(self._node), size),
                   (size, wraps, kind, text), index, trace)  # fmt: skip

    def divisor(self, y) -> None:
        """An integer divisor must not be 0."""
        if y.size and y.dtype not in INEXACT:
            zero = np.zeros((), y.dtype)
            condition = Condition(RuntimeError, "ZeroDivisionError", str(self._op), source_of(self._node))
            self._note(condition, ("divisor",), y, lambda: (hnp.any(hnp.equal(y, as_array(zero))), _s64(0)))

    def holds(self, operand, fails, kind: type[Exception], text: str) -> None:
        """An operand must meet torch's requirements. fails(): whether it is not."""
        condition = Condition(kind, text, str(self._op), source_of(self._node))
        self._note(condition, (kind, text), operand, lambda: (fails(), _s64(0)))

    def _note(self, *arguments) -> None:
        self._conditions.note(*arguments)


class Flag:
    """The memory that a call writes its flag to."""

    __slots__ = ("address", "values")

    def __init__(self) -> None:
        self.values = (ctypes.c_int64 * 2)()
        self.address = ctypes.addressof(self.values)


def _s64(number: Size):
    return operand(number, S64) if isinstance(number, SizeExpression) else as_array(np.int64(number))
