"""NumPy's functions by hloom's of the same name, with NumPy's dtypes in and out."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from typing import Any

import numpy as np

from hloom.errors import UnsupportedError
from hloom.njit.values import Array, Number, Value, as_value

__all__ = ["argument", "kind", "of_hloom", "result"]

_MODULES = {"numpy": "hloom.numpy", "numpy.linalg": "hloom.numpy.linalg", "numpy.fft": "hloom.numpy.fft",
            "scipy.special": "hloom.scipy.special"}  # fmt: skip
# Integers and truth values that these sum up are 64 bits wide.
_SUMS = frozenset(("sum", "prod", "cumsum", "cumprod", "nansum", "nanprod", "nancumsum", "nancumprod", "trace"))
_MEANS = frozenset(("mean", "var", "std", "average", "median", "nanmean"))
# Functions whose results are integers of 64 bits.
_POSITIONS = frozenset(("argmax", "argmin", "argsort", "searchsorted", "count_nonzero", "digitize", "bincount"))


def kind(value: Any) -> Any:
    """Arguments for `np.result_type`: Python numbers take the dtype of others."""
    value = as_value(value)
    if not isinstance(value, Value):
        return value
    if isinstance(value, Number) and value.python is not None:
        return value.python(1)
    return value.dtype


def of_hloom(name: str, module: str, args: tuple, kwargs: dict) -> Any:
    """A function of NumPy by hloom's of the same name."""
    home = _MODULES.get("scipy.special" if module.startswith("scipy.special.") else module)
    found = None if home is None else getattr(importlib.import_module(home), name, None)
    if found is None:
        raise UnsupportedError(f"{module}.{name} in a compiled NumPy program", "hloom has no such function",
                               "write it as a loop, or compute it outside")  # fmt: skip
    out = kwargs.pop("out", None)
    of_numpy = getattr(sys.modules.get(module), name, None)
    if (at := _alike(of_numpy, found)) is not None:
        kwargs = dict(zip(_positional(of_numpy)[at:], args[at:], strict=False)) | kwargs
        args = args[:at]
    args = tuple([argument(a) for a in args])
    kwargs = {key: argument(value) for key, value in kwargs.items()}
    first: Any = args[0] if args else None
    letter = getattr(getattr(first, "dtype", None), "kind", "")
    if letter in ("b", "i", "u") and "dtype" not in kwargs:
        if name in _SUMS and np.dtype(first.dtype).itemsize < 8:
            kwargs["dtype"] = np.uint64 if letter == "u" else np.int64
        elif name in _MEANS:
            args = (first.astype(np.float64), *args[1:])
    narrow = any(getattr(a, "dtype", None) == np.int32 for a in (*args, *kwargs.values()))
    return result(found(*args, **kwargs), (narrow and name not in _POSITIONS) or "dtype" in kwargs, out)


@functools.cache
def _positional(function: Any) -> tuple[str, ...]:
    """The names of parameters that may be given by their place."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple([p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])


@functools.cache
def _alike(function: Any, other: Any) -> int | None:
    """The number of arguments that two functions have at the same places; those behind go by their names. None: all."""
    own, others = _positional(function), _positional(other)
    pairs = list(zip(own, others, strict=False))
    # The first one has other names in both, and is the same array.
    differs = [k for k, (a, b) in enumerate(pairs) if k and a != b and a in others]
    return differs[0] if differs else None


def argument(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)([argument(v) for v in value]) if type(value) in (tuple, list) else value
    return value.traced if isinstance(value, Value) else value


def result(found: Any, narrow: bool = True, out: Any = None) -> Any:
    """What hloom's function returned, as NumPy's does. narrow: whether integers may have 32 bits, as an argument's or
    as asked for; those that a function counts or finds have 64."""
    if isinstance(found, tuple) and hasattr(found, "_fields"):
        return type(found)(*[result(f, narrow) for f in found])
    if isinstance(found, (tuple, list)):
        return type(found)([result(f, narrow) for f in found])
    if not hasattr(found, "shape"):
        return found
    if found.dtype == np.int32 and not narrow:
        found = found.astype(np.int64)
    made = Array.of(found) if found.shape else Number(found.astype(found.dtype) if found.weak else found)
    if out is not None:
        out[...] = made
        return out
    return made
