"""Functions and methods that a user's kernel may call: the op of the table, or the loop, for each.

Functions are recognized by identity, not by their name in the user's file: `np.exp`, `hnp.exp`,
`math.exp` and a name imported from any of these modules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from hloom.ir.op_table import OPS, No
from hloom.ir.types import as_dtype

__all__ = [
    "DIRECT",
    "LOGICAL",
    "MADE",
    "METHODS",
    "OPERATIONS",
    "OPERATORS",
    "REDUCTIONS",
    "Elementwise",
    "dtype_of",
    "inline",
    "inlined",
    "is_prange",
    "known_name",
    "of_numba",
]

# NumPy's names of single ops of numbers in a common dtype: {"exp": "exponential"}.
OPERATIONS: dict[str, str] = {
    name: entry.name
    for entry in OPS.values()
    if entry.family == "elementwise" and entry.numpy is not None and not isinstance(entry.code, No)
    and entry.arity in (1, 2)
    for name in entry.numpy.names.split()
} | {
    "fabs": "abs", "abs": "abs", "absolute": "abs", "fmod": "remainder", "pow": "power", "rsqrt": "rsqrt",
    "expm1": "exponential-minus-one", "floor": "floor", "ceil": "ceil", "sign": "sign", "rint": "round-nearest-even",
    "logical_and": "and", "logical_or": "or", "logical_xor": "xor", "logical_not": "not", "popcount": "popcnt",
    "logistic": "logistic", "erf": "erf", "erfc": "erfc", "lgamma": "lgamma", "isfinite": "is-finite",
}  # fmt: skip
# Functions of floats that the kernel language has by these names.
DIRECT = frozenset(("exp2", "log2", "log10", "copysign", "trunc", "library_exp", "library_log1p"))
LOGICAL = frozenset(("logical_and", "logical_or", "logical_xor", "logical_not"))
# Names of operators: {"add": "+"}.
OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/", "floor_divide": "//", "mod": "%",
    "remainder": "%", "power": "**", "maximum": "max", "minimum": "min", "less": "<", "less_equal": "<=",
    "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
}  # fmt: skip
REDUCTIONS = {"sum": "sum", "prod": "prod", "max": "max", "amax": "max", "min": "min", "amin": "min", "all": "and",
              "any": "or"}  # fmt: skip
METHODS = frozenset(
    (*REDUCTIONS, "mean", "argmax", "argmin", "astype", "copy", "dot", "item", "fill", "flatten",
     "ravel", "sort")
)  # fmt: skip
MADE = frozenset(("empty", "ndarray", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like", "full_like"))
_BUILTINS = frozenset(
    (abs, min, max, len, range, int, float, bool, sum, pow, round, complex, tuple, zip, enumerate, reversed)
)


class Elementwise:
    """A function of elements that is called with arrays. written: the user's function."""

    written: Callable

    def loop(self, dtypes: Sequence[np.dtype]) -> tuple[Sequence[np.dtype], np.dtype | None]:
        """The dtypes that operands of some dtypes are converted to, and the result's; None: what it computes."""
        return dtypes, None


_inline: set[Callable] = set()  # functions of hloom's own


def inline(function: Callable) -> Callable:
    """Marks a function of hloom's as one that kernels inline like the user's."""
    _inline.add(function)
    return function


def known_name(function: Any) -> str | None:
    """NumPy's name of a function of NumPy, hloom.numpy, math or Python; None for other objects."""
    if isinstance(function, np.ufunc):
        return function.__name__
    try:
        if function in _BUILTINS:
            return function.__name__
    except TypeError:
        return None
    module = getattr(function, "__module__", None) or ""
    name = getattr(function, "__name__", None)
    if function in _inline or module.startswith("numpy.random"):  # draws named as functions: `rng.power`
        return None
    if name and (module == "math" or module.split(".")[0] in ("numpy", "hloom", "scipy", "jax", "_operator")):
        return name
    return None


def of_numba(function: Any) -> tuple[Any, bool]:
    """(the Python function of one that Numba compiles, whether it is called for each element of arrays).

    Other objects are themselves. Numba is not imported: where the user has not, there are no such functions.
    """
    if isinstance(function, Elementwise):
        return function.written, True
    numba: Any = sys.modules.get("numba")
    if numba is None:
        return function, False
    if isinstance(function, numba.core.dispatcher.Dispatcher):  # numba.njit
        return function.py_func, False
    if isinstance(function, numba.np.ufunc.dufunc.DUFunc):  # numba.vectorize
        return function._dispatcher.py_func, True
    return function, False


def is_prange(function: Any) -> bool:
    """Whether a function is `numba.prange`."""
    numba: Any = sys.modules.get("numba")
    return numba is not None and function is numba.prange


def inlined(function: Any) -> bool:
    """Whether a function is the user's own, whose statements are inlined at its call."""
    return isinstance(function, FunctionType) and known_name(function) is None


def dtype_of(value: Any) -> np.dtype | None:
    """The dtype that a type stands for, such as np.float32 or hnp.bfloat16; None for other objects."""
    if isinstance(value, str):
        return as_dtype(value)
    if isinstance(value, np.dtype):
        return value
    if isinstance(value, type) and issubclass(value, np.generic):
        return as_dtype(np.dtype(value))
    found = getattr(value, "dtype", None)
    return found if isinstance(found, np.dtype) and not hasattr(value, "shape") else None
