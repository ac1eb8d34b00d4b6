"""The math library: everything that a kernel source may call by name, one element at a time.

`FUNCTIONS` is the table. Plain functions call only other names of the table and the constants of their own module, so
each can be compiled by itself. Importing this package compiles nothing.

Accuracy is stated in the table, in units in the last place (ulp) against a much more precise reference; special
values are NumPy's. Two conventions: f16 and bf16 values live in float32 registers, and a helper that gives a number as
a sum of two (high + low) returns them as real and imaginary part of a complex number.
"""

from __future__ import annotations

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


def callees(name: str) -> set[str]:
    """Names of the table that the plain function `name` calls; empty for an intrinsic."""
    entry = FUNCTIONS[name]
    if entry.kind != "function":
        return set()
    return {used for used in entry.python.__code__.co_names if used in FUNCTIONS}


__all__ = ["CASTS", "FUNCTIONS", "Function", "callees"]
