"""Elementwise ops, casts, comparisons, products of matrices."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

import hloom.numpy as hnp
from hloom import lax, nn
from hloom.errors import DTypeError
from hloom.onnx.reader import dtype_of
from hloom.onnx.rules.integers import dequantized_product
from hloom.onnx.table import op
from hloom.scipy import special

FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
WIDER = {"int2": np.int8, "int4": np.int8, "uint2": np.uint8, "uint4": np.uint8}

UNARY: dict[str, Any] = {
    "Abs": hnp.abs, "Neg": hnp.negative, "Ceil": hnp.ceil, "Floor": hnp.floor, "Sqrt": hnp.sqrt, "Exp": hnp.exp,
    "Log": hnp.log, "Sin": hnp.sin, "Cos": hnp.cos, "Tan": hnp.tan, "Asin": hnp.arcsin, "Acos": hnp.arccos,
    "Atan": hnp.arctan, "Sinh": hnp.sinh, "Cosh": hnp.cosh, "Tanh": hnp.tanh, "Asinh": hnp.arcsinh,
    "Acosh": hnp.arccosh, "Atanh": hnp.arctanh, "Erf": special.erf, "Sigmoid": nn.sigmoid, "Softplus": nn.softplus,
    "Softsign": nn.soft_sign, "Sign": hnp.sign, "Round": hnp.round, "Reciprocal": hnp.reciprocal,
    "Not": hnp.logical_not, "BitwiseNot": hnp.bitwise_not, "IsNaN": hnp.isnan, "Mish": nn.mish,
    "Det": hnp.linalg.det,
}  # fmt: skip


def _declare_unary(name: str, function) -> None:
    @op(name)
    def rule(x):
        return function(x)

    # Before opset 6 these had an attribute that let them overwrite their input; it has no meaning here.
    @op(name, since=0)
    def old(x, *, consumed_inputs=()):
        return function(x)


for _name, _function in UNARY.items():
    _declare_unary(_name, _function)


@op("Identity Optional")
def identity(x, *, type=None):
    return x


@op("Relu")
def relu(x, *, consumed_inputs=()):
    return hnp.maximum(x, hnp.zeros((), x.dtype))


# --- two operands ----------------------------------------------------------------------------------------------------


def divide(a, b):
    """Quotients; of integers, truncated toward zero."""
    return lax.div(*hnp.broadcast_arrays(a, b)) if np.dtype(a.dtype).kind in "iu" else hnp.divide(a, b)


def power(x, y):
    """x to the power y, in x's dtype."""
    dtype = np.dtype(x.dtype)
    if dtype.kind in "iu" and np.dtype(y.dtype).kind == "f":
        return hnp.power(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
    return hnp.power(x, y.astype(dtype))


def equal(a, b):
    if isinstance(a, np.ndarray) and a.dtype.kind in "OSU":
        return np.equal(a, b).astype(bool)
    return hnp.equal(a, b)


BINARY: dict[str, Any] = {
    "Add": hnp.add, "Sub": hnp.subtract, "Mul": hnp.multiply, "Div": divide, "Pow": power, "And": hnp.logical_and,
    "Or": hnp.logical_or, "Xor": hnp.logical_xor, "Equal": equal, "Greater": hnp.greater, "Less": hnp.less,
    "GreaterOrEqual": hnp.greater_equal, "LessOrEqual": hnp.less_equal, "BitwiseAnd": hnp.bitwise_and,
    "BitwiseOr": hnp.bitwise_or, "BitwiseXor": hnp.bitwise_xor,
}  # fmt: skip


def _declare_binary(name: str, function) -> None:
    @op(name, since=7)
    def rule(a, b):
        return function(a, b)

    # Before opset 7 the second operand was aligned with an axis of the first.
    @op(name, since=1)
    def old(a, b, *, axis=None, broadcast=0, consumed_inputs=()):
        if broadcast and axis is not None and b.ndim:
            b = hnp.reshape(b, (*b.shape, *[1] * (a.ndim - axis - b.ndim)))
        return function(a, b)


for _name, _function in BINARY.items():
    _declare_binary(_name, _function)


@op("Mod")
def modulo(a, b, *, fmod=0):
    return hnp.fmod(a, b) if fmod else hnp.remainder(a, b)


@op("BitShift")
def shift(a, b, *, direction="LEFT"):
    a, b = hnp.broadcast_arrays(a, b)
    bits = np.dtype(a.dtype).itemsize * 8
    moved = lax.shift_left(a, b) if direction == "LEFT" else lax.shift_right_logical(a, b)
    if np.dtype(a.dtype).kind == "i" and direction != "LEFT":
        return lax.shift_right_arithmetic(a, hnp.minimum(b, hnp.asarray(bits - 1, a.dtype)))
    return hnp.where(b >= bits, hnp.zeros((), a.dtype), moved)


@op("PRelu")
def prelu(x, slope, *, consumed_inputs=()):
    return hnp.where(x < 0, slope * x, x)


@op("PRelu", since=6)
def prelu6(x, slope):
    if slope.ndim == 1 and x.ndim > 2 and slope.shape[0] == x.shape[1] != x.shape[-1]:
        slope = hnp.reshape(slope, (-1, *[1] * (x.ndim - 2)))
    return hnp.where(x < 0, slope * x, x)


@op("Where")
def where(condition, a, b):
    if isinstance(a, np.ndarray) and a.dtype.kind in "OSU":
        return np.where(condition, a, b)
    return hnp.where(condition, a, b)


@op("Sum")
def total(*values, consumed_inputs=()):
    return functools.reduce(hnp.add, values)


@op("Mean")
def mean(*values, consumed_inputs=()):
    return functools.reduce(hnp.add, values) / hnp.asarray(len(values), values[0].dtype)


@op("Max")
def largest(*values, consumed_inputs=()):
    return functools.reduce(hnp.maximum, values)


@op("Min")
def smallest(*values, consumed_inputs=()):
    return functools.reduce(hnp.minimum, values)


# --- activations -----------------------------------------------------------------------------------------------------


def _scalar(value: float, x):
    return hnp.asarray(value, x.dtype)


@op("LeakyRelu")
def leaky_relu(x, *, alpha=0.01, consumed_inputs=()):
    return hnp.where(x < 0, _scalar(alpha, x) * x, x)


@op("Elu")
def elu(x, *, alpha=1.0, consumed_inputs=()):
    return hnp.where(x < 0, _scalar(alpha, x) * hnp.expm1(hnp.minimum(x, 0)), x)


@op("Selu")
def selu(x, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875, consumed_inputs=()):
    return _scalar(gamma, x) * hnp.where(x > 0, x, _scalar(alpha, x) * hnp.expm1(hnp.minimum(x, 0)))


@op("Celu")
def celu(x, *, alpha=1.0):
    a = _scalar(alpha, x)
    return hnp.maximum(x, 0) + hnp.minimum(a * hnp.expm1(hnp.minimum(x, 0) / a), 0)


@op("ThresholdedRelu")
def thresholded_relu(x, *, alpha=1.0):
    return hnp.where(x > _scalar(alpha, x), x, _scalar(0, x))


@op("HardSigmoid")
def hard_sigmoid(x, *, alpha=0.2, beta=0.5, consumed_inputs=()):
    return hnp.clip(_scalar(alpha, x) * x + _scalar(beta, x), 0, 1).astype(x.dtype)


@op("HardSwish")
def hard_swish(x):
    return x * hnp.clip(x / _scalar(6, x) + _scalar(0.5, x), 0, 1).astype(x.dtype)


@op("Shrink")
def shrink(x, *, lambd=0.5, bias=0.0):
    low, high = (x.astype(np.float32) + bias).astype(x.dtype), (x.astype(np.float32) - bias).astype(x.dtype)
    return hnp.where(x < -lambd, low, hnp.where(x > lambd, high, _scalar(0, x)))


@op("Gelu")
def gelu(x, *, approximate="none"):
    return nn.gelu(x, approximate=approximate == "tanh")


@op("Swish")
def swish(x, *, alpha=1.0):
    return x * nn.sigmoid(_scalar(alpha, x) * x)


@op("Clip")
def clip(x, *, min=None, max=None, consumed_inputs=()):
    x = x if min is None else hnp.maximum(x, _scalar(min, x))
    return x if max is None else hnp.minimum(x, _scalar(max, x))


@op("Clip", since=11)
def clip11(x, low=None, high=None):
    x = x if low is None else hnp.maximum(x, low)
    return x if high is None else hnp.minimum(x, high)


@op("IsInf")
def is_infinite(x, *, detect_negative=1, detect_positive=1):
    if np.dtype(x.dtype).name.startswith("float8"):
        x = x.astype(np.float32)
    infinite = hnp.isinf(x)
    if not detect_negative:
        infinite = infinite & (x > 0)
    return infinite if detect_positive else infinite & (x < 0)


# --- casts -----------------------------------------------------------------------------------------------------------


def cast(x, dtype: np.dtype, saturate: bool = True, round_mode: str = "up"):
    """x in another dtype, by ONNX's rules: 8-bit floats saturate on request; 4-bit ones always do."""
    source = np.dtype(x.dtype)
    if source.kind in "OSU" or dtype.kind in "OSU":
        return _cast_text(x, dtype)
    if source == dtype:
        return x
    if dtype.name in WIDER and source.name not in WIDER:
        low, high = ml_dtypes.iinfo(dtype).min, ml_dtypes.iinfo(dtype).max
        wide = x.astype(np.int64) if source.kind == "b" or source.kind in "iu" else hnp.trunc(x.astype(np.float32))
        bits = 2 if dtype.name.endswith("2") else 4
        wrapped = hnp.remainder(wide.astype(np.int64) - low, 1 << bits) + low
        return wrapped.astype(WIDER[dtype.name]).astype(dtype) if low <= high else wrapped
    if dtype.name == "float8_e8m0fnu":
        return _cast_e8m0(x, saturate, round_mode)
    if dtype.name in FLOAT8 and saturate and source.name != "float8_e8m0fnu":
        top = float(ml_dtypes.finfo(dtype).max)
        wide = x if source.name in ("float64", "float32") else x.astype(np.float32)
        x = hnp.where(hnp.isnan(wide), wide, hnp.clip(wide, -top, top))
    if source.name in WIDER:
        x = x.astype(WIDER[source.name])
    if source.name.startswith("float4") and dtype.name != "float32":
        x = x.astype(np.float32)
    if dtype.kind == "b":
        return hnp.not_equal(x if source.kind in "fiub" and source.itemsize > 1 else x.astype(np.float32), 0)
    return x.astype(dtype)


def _cast_e8m0(x, saturate: bool, round_mode: str):
    """Powers of two: the exponent of x's magnitude, rounded up, down or to the nearest."""
    bits = lax.bitcast_convert_type(x.astype(np.float32), np.uint32)
    exponent = ((bits >> 23) & 0xFF).astype(np.int32)
    fraction = bits & 0x7FFFFF
    if round_mode == "up":
        more = (fraction > 0) & ((exponent > 0) | (fraction > 0x400000))
    elif round_mode == "nearest":
        more = (fraction >= 0x400000) & ((exponent > 0) | (fraction > 0x400000))
    else:
        more = fraction > 0xFFFFFF
    nan = exponent == 0xFF
    raised = exponent + more.astype(np.int32)
    top = 0xFE if saturate else 0xFF
    code = hnp.where(nan, hnp.where(fraction == 0, top, 0xFF), hnp.minimum(raised, top))
    return lax.bitcast_convert_type(code.astype(np.uint8), ml_dtypes.float8_e8m0fnu)


def _cast_text(x, dtype: np.dtype):
    """Casts from and to strings, which are always known."""
    if np.dtype(dtype).kind in "OSU":
        source = x.dtype
        write = (lambda v: repr(float(v))) if source.kind not in "OSUbiu" else str
        if source.kind == "f":
            write = lambda v: np.format_float_positional(v, trim="0") if 1e-4 <= abs(v) < 1e6 or v == 0 else str(v)  # noqa: E731
        return np.array([write(v) for v in np.asarray(x).ravel()], object).reshape(x.shape)
    try:
        if dtype.kind in "iu":
            return np.array([int(float(v)) if not v.lstrip("+-").isdigit() else int(v) for v in x.ravel()],
                            dtype).reshape(x.shape)  # fmt: skip
        return np.array([float(v) for v in x.ravel()], np.float64).reshape(x.shape).astype(dtype)
    except ValueError as error:
        raise DTypeError(f"a cast of strings to {dtype.name}", str(error), "pass strings of numbers") from None


@op("Cast")
def cast_named(x, *, to):
    """Types had names before opset 6."""
    return cast(x, dtype_of({"FLOAT": 1, "DOUBLE": 11, "INT32": 6, "INT64": 7, "BOOL": 9}.get(to, 1)))


@op("Cast", since=6)
def cast_to(x, *, to, saturate=1, round_mode="up"):
    return cast(x, dtype_of(to), bool(saturate), round_mode)


@op("CastLike")
def cast_like(x, like, *, saturate=1, round_mode="up"):
    return cast(x, np.dtype(like.dtype), bool(saturate), round_mode)


@op("BitCast")
def bit_cast(x, *, to):
    dtype = dtype_of(to)
    if np.dtype(x.dtype).itemsize != dtype.itemsize:
        raise DTypeError(
            f"BitCast of {np.dtype(x.dtype).name} to {dtype.name}",
            "types of different sizes",
            "cast to one of x's size",
        )
    if np.dtype(x.dtype).kind == "b":
        x = x.astype(np.uint8)
    return x.astype(dtype) if dtype == x.dtype else lax.bitcast_convert_type(x, dtype)


# --- products --------------------------------------------------------------------------------------------------------


@op("MatMul")
def matmul(node, a, b):
    made = dequantized_product(node.origin(0, a), node.origin(1, b))
    return hnp.matmul(a, b) if made is None else made


@op("Gemm")
def gemm(node, a, b, c=None, *, alpha=1.0, beta=1.0, transA=0, transB=0, broadcast=0):
    sides = [origin.turned if origin and turn else origin for origin, turn in
             ((node.origin(0, a), transA), (node.origin(1, b), transB))]  # fmt: skip
    product = dequantized_product(*sides)
    if product is None:
        product = hnp.matmul(a.T if transA else a, b.T if transB else b)
    if alpha != 1:
        product = product * _scalar(alpha, product)
    if c is None:
        return product
    return product + (c if beta == 1 else c * _scalar(beta, c))


@op("Einsum")
def einsum(*operands, equation):
    return hnp.einsum(equation.replace(" ", ""), *operands)
