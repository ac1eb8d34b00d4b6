"""The table of converters: StableHLO op -> function, filled by the modules of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

CONVERTERS: dict[str, Callable] = {}


class Item(NamedTuple):
    """A value during conversion: its instruction (None for a token), and its quantized element type."""

    instruction: Any  # an Instruction; None for a token
    quantized: Any = None  # a Quantized, or None for a plain element type

    @property
    def shape(self):
        return self.instruction.shape

    @property
    def dims(self):
        return self.instruction.shape.dims

    @property
    def dtype(self):
        return self.instruction.shape.dtype


def converts(*names: str):
    """Registers `function(scope, op, items) -> Item, list of Items` for ops of the syntax tree."""

    def register(function):
        for name in names:
            CONVERTERS[name] = function
        return function

    return register


__all__ = ["CONVERTERS", "Item", "converts"]
