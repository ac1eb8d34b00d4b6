"""Attributes of the syntax tree as Python values."""

from __future__ import annotations

import numpy as np

from hloom.ir.stablehlo.assembly.attributes import Array, Dense, Dialect, Number
from hloom.ir.stablehlo.assembly.literals import dense_value
from hloom.ir.stablehlo.types import element_dtype
from hloom.ir.types import Shape


def ints(value) -> tuple[int, ...]:
    """Integers of `array<i64: ...>`, `dense<...>` or `[...]`. Raises ValueError."""
    if isinstance(value, Array):
        return tuple(int(v) for v in value.values)
    if isinstance(value, tuple):
        return tuple(int(number(v)) for v in value)
    if isinstance(value, Dense):
        return tuple(int(v) for v in dense_integers(value).reshape(-1))
    raise ValueError(f"expected a list of integers, found {value!r:.60}")


def dense_integers(value: Dense) -> np.ndarray:
    """The array of an attribute that is a constant of integers (or booleans)."""
    dtype = element_dtype(value.type.element) if isinstance(value.type.element, str) else None
    if dtype is None or dtype.kind not in "iub":
        raise ValueError(f"expected integers, found {value.type}")
    return dense_value(value, Shape(dtype, value.type.sizes))


def number(value):
    """The value of a Number (or of a bool)."""
    if isinstance(value, Number):
        return value.value
    if isinstance(value, bool):
        return value
    raise ValueError(f"expected a number, found {value!r:.60}")


def flag(value) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, Number):
        return bool(value.value)
    raise ValueError(f"expected true or false, found {value!r:.60}")


def word(value) -> str:
    """The word of an enumeration: RFFT of `#stablehlo<fft_type RFFT>`."""
    if isinstance(value, Dialect) and value.body:
        return value.body.split()[-1]
    if isinstance(value, str):
        return value
    raise ValueError(f"expected a word, found {value!r:.60}")


def fields(value) -> dict:
    if isinstance(value, Dialect) and value.fields is not None:
        return value.fields
    raise ValueError(f"expected fields, found {value!r:.60}")
