"""Element types under `jax.dtypes`' names."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from hloom.arrays.keys import ExtendedDType, extended, prng_key
from hloom.errors import ArgumentError, DTypeError
from hloom.ir.types import DTYPES, NARROWED, as_dtype, default_dtype
from hloom.numpy import finfo, iinfo, issubdtype, result_type

TypePromotionError = DTypeError

bfloat16 = ml_dtypes.bfloat16  # the scalar type: bfloat16(1) is a NumPy scalar

# The dtype of tangents of integers: it holds nothing.
float0 = np.dtype([("float0", np.void, 0)])


def canonicalize_dtype(dtype, allow_extended_dtype: bool = False) -> np.dtype:
    """The dtype itself, where `hl.config.narrow_numpy` is on that of 32 bits for one of 64. int, float and complex mean
    the default widths."""
    found = as_dtype(dtype)
    return NARROWED.get(found, found)


def scalar_type_of(x) -> type:
    """The Python type (bool, int, float or complex) of the kind of an array or number. Raises ArgumentError."""
    python_type: Any = type(x)
    dtype = as_dtype(getattr(x, "dtype", python_type))
    for category, kind in ((np.bool_, bool), (np.integer, int), (np.floating, float), (np.complexfloating, complex)):
        if dtype == as_dtype(bool) if category is np.bool_ else issubdtype(dtype, category):
            return kind
    raise ArgumentError("scalar_type_of takes an array or a number", f"{x!r:.60}", "pass a number")


def itemsize_bits(dtype) -> int:
    """The bits of one element: 4 of int4, 1 byte and more of the others."""
    found = as_dtype(dtype)
    name = next(n for n, d in DTYPES.items() if d == found)
    digits = name.lstrip("sufb")
    return int(digits) if name[0] in "su" and digits.isdigit() else 8 * found.itemsize


def default_types() -> dict[type, np.dtype]:
    """The dtypes of Python's numbers: 32 bits wide, 64 with enable_x64."""
    return {kind: default_dtype(kind) for kind in (bool, int, float, complex)}


DType = np.dtype | ExtendedDType


def supports_inf(dtype) -> bool:
    """Whether a float dtype has infinities."""
    return bool(np.isinf(np.array(np.inf).astype(as_dtype(dtype))))


__all__ = [
    "DType",
    "ExtendedDType",
    "TypePromotionError",
    "bfloat16",
    "canonicalize_dtype",
    "default_types",
    "extended",
    "finfo",
    "float0",
    "iinfo",
    "issubdtype",
    "itemsize_bits",
    "prng_key",
    "result_type",
    "scalar_type_of",
    "supports_inf",
]
__dir__ = __all__.copy
