"""Types for annotations and `isinstance`: any array, in and outside of traces, and what functions accept as one."""

from __future__ import annotations

from abc import ABC

import numpy as np

from hloom.ir.errors import ArgumentError


class Array(ABC):  # noqa: B024  (classes of arrays register with it)
    """Any array of hloom: `isinstance(x, hl.Array)` holds outside of traces and, for traced values, inside of them.

    The functions of `hloom.numpy`, `hl.device_put` and compiled functions return arrays. They are immutable.
    """

    def __new__(cls, *args: object, **options: object):
        raise ArgumentError("hnp.ndarray(...) or hl.Array(...)", "the type of arrays, which makes none",
                            "make an array with hnp.empty(shape, dtype)")  # fmt: skip


ArrayLike = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
"""What functions accept as an array."""
DTypeLike = str | type | np.dtype
"""What functions accept as a dtype: "f32", "float32", `hnp.float32`, `np.dtype`, `float`."""

__all__ = ["Array", "ArrayLike", "DTypeLike"]
__dir__ = __all__.copy
