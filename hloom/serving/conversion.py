"""Elements of requests as arrays: exactly what was sent, or an error.

One conversion for every datatype and both protocols. JSON's numbers have no types, so the values that each datatype
accepts are fixed here: a boolean is not an integer, a number with a fraction part or an exponent is not an integer,
text is not a number, and no finite number becomes infinity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["ConversionError", "converted", "from_bytes"]

_TAKEN: dict[str, tuple[frozenset[type], str]] = {
    "b": (frozenset([bool]), "true or false"),
    "i": (frozenset([int]), "an integer"),
    "u": (frozenset([int]), "an integer"),
    "f": (frozenset([int, float]), "a number"),
}


class ConversionError(ValueError):
    """An element that the datatype does not have, or another number of elements than the shape."""


def converted(data: Any, dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
    """The elements as an array.

    data: a list of them in row-major order, a list nested as the shape is, or an array of the dtype (`from_bytes`).
    Raises ConversionError.
    """
    if isinstance(data, np.ndarray):
        return _counted(data, shape).reshape(shape)
    if not isinstance(data, list):
        raise ConversionError(f"{_shown(data)} is no list")
    flat = _counted(_flattened(data, shape), shape)
    types, what = _TAKEN[dtype.kind]
    if not types.issuperset(map(type, flat)):
        wrong = next(one for one in flat if type(one) not in types)
        raise ConversionError(f"{_shown(wrong)} is not {what}")
    try:
        with np.errstate(over="ignore"):
            made = np.array(flat, dtype)
    except OverflowError:
        wrong = next(one for one in flat if not _fits(one, dtype))
        raise ConversionError(f"{_shown(wrong)} is beyond the range of {dtype}") from None
    if dtype.kind == "f" and not np.isfinite(made).all():
        for one, element in zip(flat, made.tolist(), strict=True):
            if math.isinf(element) and not math.isinf(one):
                raise ConversionError(f"{_shown(one)} is beyond the range of {dtype}")
    return made.reshape(shape)


def from_bytes(data: bytes, dtype: np.dtype) -> np.ndarray:
    """The elements of gRPC's raw contents, which are little-endian. Raises ConversionError."""
    if len(data) % dtype.itemsize:
        raise ConversionError(f"{len(data)} bytes are not a whole number of elements of {dtype.itemsize} bytes")
    made = np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype, copy=False)
    if dtype.kind == "b" and (np.frombuffer(data, np.uint8) > 1).any():
        raise ConversionError("a boolean is a byte of 0 or 1")
    return made


def _flattened(data: list, shape: Sequence[int]) -> list:
    """The elements of a list that is nested as the shape is, or not at all."""
    if not data or type(data[0]) is not list:
        return data
    for size in shape[1:]:
        if any(type(one) is not list or len(one) != size for one in data):
            raise ConversionError(f"the data are nested, and not as the shape {list(shape)} is")
        data = [element for one in data for element in one]
    return data


def _counted(data: Any, shape: Sequence[int]) -> Any:
    if len(data) != math.prod(shape):
        raise ConversionError(f"it has {len(data)} elements, its shape {list(shape)} takes {math.prod(shape)}")
    return data


def _fits(value: int | float, dtype: np.dtype) -> bool:
    try:
        np.array([value], dtype)
    except OverflowError:
        return False
    return True


def _shown(value: Any) -> str:
    """A value of a request as text, cut off where it is long."""
    text = (
        repr(value)
        if not isinstance(value, int) or abs(value) < 1 << 128
        else f"an integer of {value.bit_length()} bits"
    )
    return text if len(text) <= 60 else f"{text[:57]}..."
