"""Exponentials, logarithms, roots, trigonometric and hyperbolic functions.

Source: HLO operation semantics, openxla.org/xla/operation_semantics.
"""

from __future__ import annotations

import math

import numpy as np

from hloom.ir.op_table import NumPy
from hloom.ir.ops.elementwise.declare import (
    FLOAT,
    binary,
    math_function,
)
from hloom.ir.ops.rules import partials

# --- exponentials, logarithms, powers ---------------------------------------------------------------------------------


def _erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x


def _logistic(x):
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    # Both branches have an argument of exp that is not positive, so neither overflows.
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), np.where(np.isnan(x), x, e / (1 + e)))


def _complex_or(real_function, complex_function):
    return lambda x: complex_function(x) if x.dtype.kind == "c" else real_function(x)


math_function(
    "exponential",
    "exp",
    np.exp,
    lambda g, y, x: g * y,
    15,
    dialects="hlo stablehlo",
    doc="e to the power {0}.",
    lax="exp",
    numpy="exp",
    takes_accuracy=True,
    ulp=(1.06, 1.01),
)
math_function(
    "exponential-minus-one",
    "expm1",
    np.expm1,
    lambda g, y, x: g * (y + 1),
    20,
    dialects="hlo stablehlo",
    doc="exp({0}) - 1, exact near 0.",
    lax="expm1",
    takes_accuracy=True,
    ulp=(1.64, 0.98),
)
math_function(
    "log",
    "log",
    np.log,
    lambda g, y, x: g / x,
    15,
    dialects="hlo stablehlo",
    doc="The natural logarithm; -inf at 0, NaN for negative floats.",
    lax="log",
    numpy="log",
    takes_accuracy=True,
    ulp=(0.93, 0.83),
)
math_function(
    "log-plus-one",
    "log1p",
    np.log1p,
    lambda g, y, x: g / (x + 1),
    20,
    dialects="hlo stablehlo",
    doc="log(1 + {0}), exact near 0; -inf at -1, NaN for floats below.",
    lax="log1p",
    numpy="log1p",
    takes_accuracy=True,
    ulp=(0.98, 0.86),
)
math_function(
    "logistic",
    "logistic",
    _logistic,
    lambda g, y, x: g * y * (1 - y),
    20,
    dialects="hlo stablehlo",
    doc="The logistic function, 1 / (1 + exp(-{0})).",
    lax="logistic",
    takes_accuracy=True,
    ulp=(1.0, 0.93),
)
math_function(
    "sqrt",
    "sqrt",
    np.sqrt,
    lambda g, y, x: g * 0.5 / y,
    4,
    dialects="hlo stablehlo",
    doc="The square root; NaN for negative floats.",
    lax="sqrt",
    numpy="sqrt",
    takes_accuracy=True,
)
math_function(
    "rsqrt",
    "rsqrt",
    lambda x: 1 / np.sqrt(x),
    lambda g, y, x: g * -0.5 * y / x,
    5,
    dialects="hlo stablehlo",
    doc="The reciprocal square root, 1 / sqrt({0}); NaN for negative floats.",
    lax="rsqrt",
    takes_accuracy=True,
    ulp=(0.501, 0.501),
)
math_function(
    "cbrt",
    "cbrt",
    _complex_or(np.cbrt, lambda x: np.power(x, 1 / 3)),
    lambda g, y, x: g / (y * y * 3),
    20,
    dialects="hlo stablehlo",
    doc="The cube root; negative for negative floats.",
    lax="cbrt",
    numpy=NumPy("cbrt", refused=("complex",)),
    takes_accuracy=True,
    ulp=(0.501, 0.501),
)
math_function(
    "erf",
    "erf",
    _erf,
    lambda g, y, x: g * (2 / math.sqrt(math.pi)) * (-(x * x)).op("exponential"),
    25,
    kinds=FLOAT,
    dialects="hlo chlo",
    doc="The error function.",
    lax="erf",
    ulp=(1.71, 0.85),
)


# --- trigonometric and hyperbolic -------------------------------------------------------------------------------------


def _off_unit(x):
    """1 - x^2, without the cancellation near 1."""
    return (1 - x) * (1 + x)


math_function(
    "sine",
    "sin",
    np.sin,
    lambda g, y, x: g * x.op("cosine"),
    20,
    dialects="hlo stablehlo",
    doc="The sine of {0} radians.",
    lax="sin",
    numpy="sin",
    takes_accuracy=True,
    ulp=(0.79, 0.72),
)
math_function(
    "cosine",
    "cos",
    np.cos,
    lambda g, y, x: -(g * x.op("sine")),
    20,
    dialects="hlo stablehlo",
    doc="The cosine of {0} radians.",
    lax="cos",
    numpy="cos",
    takes_accuracy=True,
    ulp=(0.79, 0.78),
)
math_function(
    "tan",
    "tan",
    np.tan,
    lambda g, y, x: g * (y * y + 1),
    30,
    dialects="hlo stablehlo chlo",
    doc="The tangent of {0} radians.",
    lax="tan",
    numpy="tan",
    takes_accuracy=True,
    ulp=(0.501, 0.8),
)
math_function(
    "tanh",
    "tanh",
    np.tanh,
    lambda g, y, x: g * (1 - y * y),
    20,
    dialects="hlo stablehlo",
    doc="The hyperbolic tangent.",
    lax="tanh",
    numpy="tanh",
    takes_accuracy=True,
    ulp=(1.63, 0.74),
)
math_function(
    "asin",
    "asin",
    np.arcsin,
    lambda g, y, x: g * _off_unit(x).op("rsqrt"),
    25,
    dialects="hlo chlo",
    doc="The arc sine in radians; NaN for floats outside of [-1, 1].",
    lax="asin",
    numpy="arcsin asin",
    ulp=(0.67, 0.72),
)
math_function(
    "acos",
    "acos",
    np.arccos,
    lambda g, y, x: -(g * _off_unit(x).op("rsqrt")),
    25,
    dialects="hlo chlo",
    doc="The arc cosine in radians; NaN for floats outside of [-1, 1].",
    lax="acos",
    numpy="arccos acos",
    ulp=(0.501, 0.69),
)
math_function(
    "sinh",
    "sinh",
    np.sinh,
    lambda g, y, x: g * x.op("cosh"),
    25,
    dialects="hlo chlo",
    doc="The hyperbolic sine.",
    lax="sinh",
    numpy="sinh",
    ulp=(0.501, 0.74),
)
math_function(
    "cosh",
    "cosh",
    np.cosh,
    lambda g, y, x: g * x.op("sinh"),
    25,
    dialects="hlo chlo",
    doc="The hyperbolic cosine.",
    lax="cosh",
    numpy="cosh",
    ulp=(0.501, 0.82),
)
math_function(
    "asinh",
    "asinh",
    np.arcsinh,
    lambda g, y, x: g * (x * x + 1).op("rsqrt"),
    25,
    dialects="hlo chlo",
    doc="The inverse hyperbolic sine.",
    lax="asinh",
    numpy="arcsinh asinh",
    ulp=(0.501, 0.52),
)
math_function(
    "acosh",
    "acosh",
    np.arccosh,
    lambda g, y, x: g * (x - 1).op("rsqrt") * (x + 1).op("rsqrt"),
    25,
    dialects="hlo chlo",
    doc="The inverse hyperbolic cosine; NaN for floats below 1.",
    lax="acosh",
    numpy="arccosh acosh",
    ulp=(0.501, 0.52),
)
math_function(
    "atanh",
    "atanh",
    np.arctanh,
    lambda g, y, x: g / _off_unit(x),
    25,
    dialects="hlo chlo",
    doc="The inverse hyperbolic tangent; infinite at -1 and 1, NaN for floats outside of [-1, 1].",
    lax="atanh",
    numpy="arctanh atanh",
    ulp=(0.501, 0.51),
)


def _atan2(y, x):
    """Of narrower floats by float64 and rounded: NumPy's float32 results depend on the processor and on strides."""
    if x.dtype == np.float64:
        return np.arctan2(y, x)
    return np.arctan2(y.astype(np.float64), x.astype(np.float64)).astype(x.dtype)


binary(
    "atan2",
    ("float",),
    _atan2,
    "atan2_{t}({0}, {1})",
    partials(
        lambda g, z, y, x: g * (x / (x * x + y * y)),
        lambda g, z, y, x: -(g * (y / (x * x + y * y))),
    ),
    flops=30,
    dialects="hlo stablehlo",
    doc="The angle of the point ({1}, {0}) in radians: the arc tangent of {0} / {1}, in [-pi, pi].",
    lax="atan2",
    numpy="arctan2 atan2",
    ulp=(0.501, 0.57),
)
