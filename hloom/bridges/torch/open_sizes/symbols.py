"""Sizes that torch left open (SymInts) as sizes of hloom: integers for one call, or expressions of dimensions.

numbers_of(graph_module, arguments)   the values of torch's symbols in one call
open_symbols(numbers, ranges)         dimensions in their place, and the scope that records decisions made by them
Sizes(symbols).of(value)              the size for a SymInt
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions
from torch.utils._sympy.numbers import int_oo

from hloom.bridges.torch.dtypes import TO_HLOOM
from hloom.bridges.torch.graphs import placeholders
from hloom.errors import UnsupportedError
from hloom.ir.sizes.expressions import LARGEST, Dim, Size, greatest, least
from hloom.ir.sizes.guards import SampledScope
from hloom.ir.sizes.policy import SMALLEST
from hloom.ir.types import Shape

__all__ = ["Sizes", "numbers_of", "open_symbols", "ranges_of"]


def numbers_of(graph_module, arguments, known: Mapping[Any, int] | None = None) -> dict[Any, int]:
    """The values of torch's symbols for the arguments of one call. known: values known before."""
    numbers = dict(known or {})

    def note(declared, found) -> None:
        if isinstance(declared, torch.SymInt) and declared.node.expr.is_Symbol and not isinstance(found, torch.SymInt):
            numbers.setdefault(declared.node.expr, int(found))

    for node, argument in zip(placeholders(graph_module), arguments, strict=True):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            note(value, argument)
        elif isinstance(value, torch.Tensor) and isinstance(argument, torch.Tensor):
            for declared, found in zip(value.shape, argument.shape, strict=True):
                note(declared, found)
    return numbers


def open_symbols(
    numbers: Mapping[Any, int], ranges: Mapping[Any, tuple[int, int | None]], pinned: Collection[str] = ()
) -> tuple[dict[Any, Size], SampledScope]:
    """A dimension with torch's bounds for each symbol whose value is valid for one, the value for others; and the scope
    of the dimensions, which decides by these values and records it. ranges: torch's bounds. pinned: the names of
    symbols that stay fixed."""
    scope = SampledScope({symbol.name: number for symbol, number in numbers.items()})
    symbols: dict[Any, Size] = {}
    for symbol, number in numbers.items():
        low, high = ranges.get(symbol, (SMALLEST, None))
        if not max(low, SMALLEST) <= number <= (LARGEST if high is None else high):
            low, high = SMALLEST, None  # the value violates torch's bounds: drop them
        if SMALLEST <= number <= LARGEST and symbol.name not in pinned:
            symbols[symbol] = Dim(symbol.name, max(low, SMALLEST), high, scope=scope)
        else:
            symbols[symbol] = number
    return symbols, scope


def ranges_of(graph_module) -> dict[Any, tuple[int, int | None]]:
    """The least and greatest number of torch's symbols; None for no bound."""
    found: dict[Any, tuple[int, int | None]] = {}
    for node in placeholders(graph_module):
        for declared in _declared(node.meta.get("val")):
            environment = declared.node.shape_env
            for symbol in declared.node.expr.free_symbols:
                known = environment.var_to_range.get(symbol)
                if known is not None:
                    low = int(known.lower) if known.lower.is_Integer else 0
                    open_ended = known.upper in (int_oo, sympy.oo) or int(known.upper) > LARGEST
                    found[symbol] = low, None if open_ended else int(known.upper)
    return found


def _declared(value) -> list:
    """The SymInts that declare an argument."""
    if isinstance(value, torch.SymInt):
        return [value]
    if isinstance(value, torch.Tensor):
        return [n for n in (*value.shape, *value.stride()) if isinstance(n, torch.SymInt)]
    return []


class Sizes:
    """The sizes of hloom for torch's symbols."""

    def __init__(self, symbols: Mapping[Any, Size]):
        self.symbols = dict(symbols)
        self._known: dict[Any, Size] = {}

    def knows(self, value) -> bool:
        """Whether a declared value is an integer or a SymInt of these symbols."""
        if isinstance(value, torch.SymInt):
            return value.node.expr.free_symbols <= self.symbols.keys()
        return type(value) is int

    def of(self, value) -> Size:
        """The size that an integer or a SymInt is. Raises UnsupportedError for one that depends on data."""
        if not isinstance(value, torch.SymInt):
            return int(value)
        expression = value.node.expr
        found = self._known.get(expression)
        if found is None:
            found = self._known[expression] = self._size(expression)
        return found

    def _size(self, expression) -> Size:
        unknown = [str(symbol) for symbol in expression.free_symbols if symbol not in self.symbols]
        if unknown:
            raise UnsupportedError(
                "a size that is known only when the program runs",
                str(expression),
                "use functions that keep the shape, such as torch.where, or let torch break the graph here",
                "",
            )
        found = self._computed(expression)
        return self._number(expression) if found is None else found

    def _number(self, expression) -> int:
        """An expression of a kind that sizes lack: its value, for the values of its symbols."""
        return int(expression.xreplace({symbol: int(self.symbols[symbol]) for symbol in expression.free_symbols}))

    def _computed(self, expression) -> Any:
        """The size that an expression is; None for one that sizes can't express."""
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol:
            return self.symbols[expression]
        function = _FUNCTIONS.get(expression.func)
        if function is None:
            return None
        operands = [self._computed(one) for one in expression.args]
        return None if any([one is None for one in operands]) else function(operands)

    def each(self, values) -> tuple[Size, ...]:
        return tuple([self.of(v) for v in values])

    def shape(self, value: torch.Tensor) -> Shape:
        return Shape(TO_HLOOM[value.dtype], self.each(value.shape))

    def strides(self, value: torch.Tensor) -> tuple[Size, ...]:
        return self.each(value.stride())


def _product(operands: Sequence[Any]) -> Any:
    found = 1
    for one in operands:
        found = found * one
    return found


def _power(operands: Sequence[Any]) -> Any:
    base, exponent = operands
    return base**exponent if isinstance(exponent, int) and exponent >= 0 else None


# For non-negative integers such as sizes, torch's remainders and quotients equal Python's.
_FUNCTIONS: dict[Any, Callable[[Sequence[Any]], Any]] = {
    sympy.Add: sum,
    sympy.Mul: _product,
    sympy.Pow: _power,
    functions.PowByNatural: _power,
    functions.FloorDiv: lambda operands: operands[0] // operands[1],
    functions.CleanDiv: lambda operands: operands[0] // operands[1],
    functions.Mod: lambda operands: operands[0] % operands[1],
    functions.PythonMod: lambda operands: operands[0] % operands[1],
    functions.ModularIndexing: lambda operands: operands[0] // operands[1] % operands[2],
    functions.Max: lambda operands: greatest(*operands),
    functions.Min: lambda operands: least(*operands),
}
