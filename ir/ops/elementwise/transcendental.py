"""Exponentials, logarithms, roots, trigonometric and hyperbolic functions.

Source: HLO operation semantics, openxla.org/xla/operation_semantics.
"""

from __future__ import annotations

import math

import numpy as np

from hloom.ir.op_table import NumPy
from hloom.ir.ops.elementwise import complex_references
from hloom.ir.ops.elementwise.declare import (
    FLOAT,
    chlo_function,
    hlo_binary,
    hlo_function,
    unary,
)
from hloom.ir.ops.rules import partials

# --- exponentials, logarithms, powers ---------------------------------------------------------------------------------


def _erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x


def _logistic(x):
    # exp has a non-positive argument in both branches, so neither overflows.
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), np.where(np.isnan(x), x, e / (1 + e)))


def _complex_or(real_function, complex_function):
    return lambda x: complex_function(x) if x.dtype.kind == "c" else real_function(x)


hlo_function(
    "exponential",
    np.exp,
    lambda g, y, x: g * y,
    15,
    kernel="exp",
    doc="e to the power {0}.",
    lax="exp",
    example=("{f}(hnp.array([0.0, 1.0])).round(3)", "Array([1.   , 2.718], dtype=float32)"),
    numpy="exp",
    ulp=(1.06, 1.01),
)
hlo_function(
    "exponential-minus-one",
    _complex_or(np.expm1, complex_references.expm1),
    lambda g, y, x: g * (y + 1),
    20,
    kernel="expm1",
    doc="exp({0}) - 1, exact near 0.",
    lax="expm1",
    example=("{f}(hnp.array([0.0, 1.0])).round(3)", "Array([0.   , 1.718], dtype=float32)"),
    ulp=(1.64, 0.98),
)
hlo_function(
    "log",
    np.log,
    lambda g, y, x: g / x,
    15,
    doc="The natural logarithm; -inf at 0, NaN for negative floats.",
    lax="log",
    example=("{f}(hnp.array([1.0, 10.0])).round(3)", "Array([0.   , 2.303], dtype=float32)"),
    numpy="log",
    ulp=(0.93, 0.83),
)
for _base in (2, 10):
    unary(
        f"log{_base}",
        FLOAT,
        getattr(np, f"log{_base}"),
        f"log{_base}_{{t}}({{0}})",
        partials(lambda g, y, x, base=_base: g / (x * math.log(base))),
        flops=15,
        transcendental=True,
        ulp=(0.501, 0.91),
    )
hlo_function(
    "log-plus-one",
    _complex_or(np.log1p, complex_references.log1p),
    lambda g, y, x: g / (x + 1),
    20,
    kernel="log1p",
    doc="log(1 + {0}), exact near 0; -inf at -1, NaN for floats below.",
    lax="log1p",
    example=("{f}(hnp.array([0.0, 1.0])).round(3)", "Array([0.   , 0.693], dtype=float32)"),
    numpy="log1p",
    ulp=(0.98, 0.86),
)
hlo_function(
    "logistic",
    _complex_or(_logistic, complex_references.logistic),
    lambda g, y, x: g * y * (1 - y),
    20,
    doc="The logistic function, 1 / (1 + exp(-{0})).",
    lax="logistic",
    example=("{f}(hnp.array([0.0, 2.0])).round(3)", "Array([0.5  , 0.881], dtype=float32)"),
    ulp=(1.0, 0.93),
)
hlo_function(
    "sqrt",
    np.sqrt,
    lambda g, y, x: g * 0.5 / y,
    4,
    doc="The square root; NaN for negative floats.",
    lax="sqrt",
    example=("{f}(hnp.array([9.0, 2.25]))", "Array([3. , 1.5], dtype=float32)"),
    numpy="sqrt",
)
hlo_function(
    "rsqrt",
    _complex_or(lambda x: 1 / np.sqrt(x), complex_references.rsqrt),
    lambda g, y, x: g * -0.5 * y / x,
    5,
    doc="The reciprocal square root, 1 / sqrt({0}); NaN for negative floats.",
    lax="rsqrt",
    example=("{f}(hnp.array([4.0, 0.25]))", "Array([0.5, 2. ], dtype=float32)"),
    ulp=(0.501, 0.501),
)
hlo_function(
    "cbrt",
    _complex_or(np.cbrt, complex_references.cbrt),
    lambda g, y, x: g / (y * y * 3),
    20,
    doc="The cube root; negative for negative floats.",
    lax="cbrt",
    example=("{f}(hnp.array([8.0, -27.0])).round(3)", "Array([ 2., -3.], dtype=float32)"),
    numpy=NumPy("cbrt", refused=("complex",)),
    ulp=(0.501, 0.501),
)
chlo_function(
    "erf",
    _erf,
    lambda g, y, x: g * (2 / math.sqrt(math.pi)) * (-(x * x)).op("exponential"),
    25,
    kinds=FLOAT,
    doc="The error function.",
    lax="erf",
    example=("{f}(hnp.array([0.0, 1.0])).round(3)", "Array([0.   , 0.843], dtype=float32)"),
    ulp=(1.71, 0.85),
)


# --- trigonometric and hyperbolic -------------------------------------------------------------------------------------


def _off_unit(x):
    """1 - x^2, without the cancellation near 1."""
    return (1 - x) * (1 + x)


hlo_function(
    "sine",
    np.sin,
    lambda g, y, x: g * x.op("cosine"),
    20,
    kernel="sin",
    doc="The sine of {0} radians.",
    lax="sin",
    example=("{f}(hnp.array([0.0, hnp.pi / 2])).round(3)", "Array([0., 1.], dtype=float32)"),
    numpy="sin",
    ulp=(0.79, 0.72),
)
hlo_function(
    "cosine",
    np.cos,
    lambda g, y, x: -(g * x.op("sine")),
    20,
    kernel="cos",
    doc="The cosine of {0} radians.",
    lax="cos",
    example=("{f}(hnp.array([0.0, hnp.pi])).round(3)", "Array([ 1., -1.], dtype=float32)"),
    numpy="cos",
    ulp=(0.79, 0.78),
)
hlo_function(
    "tan",
    np.tan,
    lambda g, y, x: g * (y * y + 1),
    30,
    dialects="hlo stablehlo chlo",
    doc="The tangent of {0} radians.",
    lax="tan",
    example=("{f}(hnp.array([0.0, hnp.pi / 4])).round(3)", "Array([0., 1.], dtype=float32)"),
    numpy="tan",
    ulp=(0.501, 0.8),
)
hlo_function(
    "tanh",
    np.tanh,
    lambda g, y, x: g * (1 - y * y),
    20,
    doc="The hyperbolic tangent.",
    lax="tanh",
    example=("{f}(hnp.array([0.0, 1.0])).round(3)", "Array([0.   , 0.762], dtype=float32)"),
    numpy="tanh",
    ulp=(1.63, 0.74),
)
chlo_function(
    "asin",
    np.arcsin,
    lambda g, y, x: g * _off_unit(x).op("rsqrt"),
    25,
    doc="The arc sine in radians; NaN for floats outside of [-1, 1].",
    lax="asin",
    example=("{f}(hnp.array([0.0, 1.0])).round(3)", "Array([0.   , 1.571], dtype=float32)"),
    numpy="arcsin asin",
    ulp=(0.67, 0.72),
)
chlo_function(
    "acos",
    np.arccos,
    lambda g, y, x: -(g * _off_unit(x).op("rsqrt")),
    25,
    doc="The arc cosine in radians; NaN for floats outside of [-1, 1].",
    lax="acos",
    example=("{f}(hnp.array([1.0, 0.0])).round(3)", "Array([0.   , 1.571], dtype=float32)"),
    numpy="arccos acos",
    ulp=(0.501, 0.69),
)
chlo_function(
    "sinh",
    np.sinh,
    lambda g, y, x: g * x.op("cosh"),
    25,
    doc="The hyperbolic sine.",
    lax="sinh",
    example=("{f}(hnp.array([0.0, 1.0])).round(3)", "Array([0.   , 1.175], dtype=float32)"),
    numpy="sinh",
    ulp=(0.501, 0.74),
)
chlo_function(
    "cosh",
    np.cosh,
    lambda g, y, x: g * x.op("sinh"),
    25,
    doc="The hyperbolic cosine.",
    lax="cosh",
    example=("{f}(hnp.array([0.0, 1.0])).round(3)", "Array([1.   , 1.543], dtype=float32)"),
    numpy="cosh",
    ulp=(0.501, 0.82),
)
chlo_function(
    "asinh",
    np.arcsinh,
    lambda g, y, x: g * (x * x + 1).op("rsqrt"),
    25,
    doc="The inverse hyperbolic sine.",
    lax="asinh",
    example=("{f}(hnp.array([0.0, 1.0])).round(3)", "Array([0.   , 0.881], dtype=float32)"),
    numpy="arcsinh asinh",
    ulp=(0.501, 0.52),
)
chlo_function(
    "acosh",
    np.arccosh,
    lambda g, y, x: g * (x - 1).op("rsqrt") * (x + 1).op("rsqrt"),
    25,
    doc="The inverse hyperbolic cosine; NaN for floats below 1.",
    lax="acosh",
    example=("{f}(hnp.array([1.0, 2.0])).round(3)", "Array([0.   , 1.317], dtype=float32)"),
    numpy="arccosh acosh",
    ulp=(0.501, 0.52),
)
chlo_function(
    "atanh",
    np.arctanh,
    lambda g, y, x: g / _off_unit(x),
    25,
    doc="The inverse hyperbolic tangent; infinite at -1 and 1, NaN for floats outside of [-1, 1].",
    lax="atanh",
    example=("{f}(hnp.array([0.0, 0.5])).round(3)", "Array([0.   , 0.549], dtype=float32)"),
    numpy="arctanh atanh",
    ulp=(0.501, 0.51),
)


def _atan2(y, x):
    """Computed in float64 and rounded, as NumPy's float32 results depend on the processor and on strides."""
    if x.dtype == np.float64:
        return np.arctan2(y, x)
    return np.arctan2(y.astype(np.float64), x.astype(np.float64)).astype(x.dtype)


hlo_binary(
    "atan2",
    ("float",),
    _atan2,
    "atan2_{t}({0}, {1})",
    partials(
        lambda g, z, y, x: g * (x / (x * x + y * y)),
        lambda g, z, y, x: -(g * (y / (x * x + y * y))),
    ),
    flops=30,
    transcendental=True,
    doc="The angle of the point ({1}, {0}) in radians: the arc tangent of {0} / {1}, in [-pi, pi].",
    lax="atan2",
    example=("{f}(hnp.array([1.0, 0.0]), hnp.array([1.0, -1.0])).round(3)", "Array([0.785, 3.142], dtype=float32)"),
    numpy="arctan2 atan2",
    ulp=(0.501, 0.57),
)
