"""Types for annotations and `isinstance`: any array, in and outside of traces, and what functions take as one."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.arrays.operators import ArrayMethods


class _ArrayMeta(type):
    def __instancecheck__(cls, value) -> bool:
        return isinstance(value, ArrayMethods) or hasattr(type(value), "key_type")  # and arrays of random keys

    def __subclasscheck__(cls, other) -> bool:
        return issubclass(other, ArrayMethods)


class Array(metaclass=_ArrayMeta):
    """Any array of hloom: `isinstance(x, hl.Array)` holds outside of traces and, for traced values, inside of them.

    Arrays are made by the functions of `hloom.numpy`, `hl.device_put` and compiled functions. They do not change.
    """


# Its methods are those of every array.
for _name, _value in vars(ArrayMethods).items():
    if _name not in ("__slots__", "__dict__", "__weakref__", "__doc__", "__module__"):
        setattr(Array, _name, _value)

ArrayLike = Array | np.ndarray | np.generic | bool | int | float | complex
DTypeLike = Any
