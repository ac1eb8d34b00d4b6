"""Vector math for kernels: everything a kernel text may call by name, one element at a time.

`FUNCTIONS` is the table. Plain functions call only other names of the table and the constants of their own module, so
each can be compiled by itself; `namespace` gives all names ready to be globals of a text that Numba compiles. Importing
this package compiles nothing.

Accuracy is stated in the table, in units in the last place (ulp) against a much more precise reference; special
values are NumPy's. Two conventions: f16 and bf16 values live in float32 registers, and a helper that gives a number as
a sum of two (high + low) returns them as real and imaginary part of a complex number.
"""

from __future__ import annotations

import types as python_types
from collections.abc import Iterable

from numba import njit

from hloom.compiler.kernels.math import (
    accumulators,
    bits,
    casts,
    integer,
    keys,
    memory,
    precision,
    random_bits,
    rounding,
)
from hloom.compiler.kernels.math.complex import arithmetic, functions, single_precision
from hloom.compiler.kernels.math.elementary import (
    exponential,
    hyperbolic,
    logarithm,
    power,
    range_reduction,
    trigonometry,
)
from hloom.compiler.kernels.math.registry import FUNCTIONS, REGISTER, Function
from hloom.compiler.kernels.math.special import bessel_zeta, error_function, gamma

# Casts of kernel sources: f32(x), s64(x), ... C's conversion, undefined where the value does not fit; see `casts`.
CASTS = {name: kind for name, kind in REGISTER.items() if name not in ("pred", "f16", "bf16")}

_OPTIONS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "error_model": "numpy", "forceinline": True}
_compiled: dict[str, object] = {}


def callees(name: str) -> set[str]:
    """Names of the table that the plain function `name` calls; empty for an intrinsic."""
    entry = FUNCTIONS[name]
    if entry.kind != "function":
        return set()
    return {used for used in entry.python.__code__.co_names if used in FUNCTIONS}


def _resolve(name: str) -> object:
    """The object that stands for `name` in a text that Numba compiles."""
    if name in _compiled:
        return _compiled[name]
    entry = FUNCTIONS[name]
    if entry.kind == "intrinsic":
        result = entry.python
    else:
        scope = dict(entry.python.__globals__)
        scope |= {used: _resolve(used) for used in callees(name)}
        function = python_types.FunctionType(entry.python.__code__, scope, name)
        result = njit(**_OPTIONS)(function)
    _compiled[name] = result
    return result


def namespace(names: Iterable[str] | None = None) -> dict[str, object]:
    """Globals for a kernel text: the casts and the functions called `names` (all of the table when None).

    Plain functions come wrapped so that Numba inlines them. Raises KeyError for a name that is not in the table.
    """
    chosen = FUNCTIONS if names is None else [name for name in names if name not in CASTS]
    return CASTS | {name: _resolve(name) for name in chosen}


__all__ = ["CASTS", "FUNCTIONS", "Function", "callees", "namespace"]
