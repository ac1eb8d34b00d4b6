"""Element by element: each op computes in the dtype that PyTorch promotes its operands to, narrow floats in f32."""

from __future__ import annotations

import math

import numpy as np
import torch

import hloom.numpy as hnp
import hloom.scipy.special as special
from hloom import lax
from hloom.bridges.torch.dtypes import (
    PRED,
    TO_HLOOM,
    TO_TORCH,
    computed_in,
    convert,
    in_floats,
    natural,
    operand,
    result_type,
)
from hloom.bridges.torch.table import RULES, overload, rule
from hloom.errors import UnsupportedError
from hloom.ir.types import COMPLEX, INEXACT


def _same(dtype: torch.dtype) -> torch.dtype:
    return dtype


def pointwise(names: str, function, kind=_same, to_bool: bool = False):
    """Registers function(*arrays) for some overloads. kind: the dtype computed in, of the promoted one. to_bool: the
    result is a pred, of operands in their own precision."""

    def build(*values, result):
        dtype = kind(result_type(*values))
        computed = TO_HLOOM[dtype] if to_bool else computed_in(dtype)
        found = function(*[operand(v, computed) for v in values])
        return found if to_bool else convert(found, dtype)

    rule(*names.split(), result=True)(build)
    return build


# --- functions of one operand ---


def _sigmoid(x):
    return lax.logistic(x)


def _sign(x):
    if x.dtype in COMPLEX:
        return hnp.where(hnp.equal(x, 0), hnp.zeros_like(x), x / hnp.abs(x))
    if x.dtype == PRED:
        return x
    one = lax.full_like(x, 1)
    below = one if x.dtype.kind == "u" else hnp.where(x < 0, -one, one * 0)
    return hnp.where(x > 0, one, below if x.dtype.kind != "u" else one * 0)


def _rounded(function):
    return lambda x: function(x) if x.dtype in INEXACT else x


def _abs(x):
    return x if x.dtype == PRED or x.dtype.kind == "u" else hnp.abs(x)


def _negative(x):
    return lax.neg(x)


def _reciprocal(x):
    return lax.div(lax.full_like(x, 1), x)


for _name, _function in {
    "acos": hnp.arccos, "acosh": hnp.arccosh, "asin": hnp.arcsin, "asinh": hnp.arcsinh, "atan": hnp.arctan,
    "atanh": hnp.arctanh, "cos": hnp.cos, "cosh": hnp.cosh, "erf": lax.erf, "erfc": lax.erfc, "exp": hnp.exp,
    "exp2": hnp.exp2, "expm1": hnp.expm1, "log": hnp.log, "log10": hnp.log10, "log1p": hnp.log1p, "log2": hnp.log2,
    "reciprocal": _reciprocal, "rsqrt": lax.rsqrt, "sigmoid": _sigmoid, "sin": hnp.sin, "sinh": hnp.sinh,
    "sqrt": hnp.sqrt, "tan": hnp.tan, "tanh": hnp.tanh, "lgamma": lax.lgamma, "digamma": special.digamma,
    "erfinv": lax.erf_inv,
}.items():  # fmt: skip
    pointwise(f"{_name}.default", _function, in_floats)
for _names, _function in {
    "i0.default prims::bessel_i0.default": special.i0,
    "special_i0e.default prims::bessel_i0e.default": special.i0e,
    "special_i1.default prims::bessel_i1.default": special.i1,
    "special_i1e.default prims::bessel_i1e.default": special.i1e,
    "special_erfcx.default prims::erfcx.default": special.erfcx,
    "special_ndtri.default prims::ndtri.default": special.ndtri,
    "special_log_ndtr.default": special.log_ndtr,
    "igamma.default prims::igamma.default": special.gammainc,
    "igammac.default prims::igammac.default": special.gammaincc,
    "special_zeta.default special_zeta.other_scalar special_zeta.self_scalar prims::zeta.default": special.zeta,
}.items():
    pointwise(_names, _function, in_floats)
for _name, _function in {
    "_neg_view": _negative, "abs": _abs, "ceil": _rounded(hnp.ceil), "floor": _rounded(hnp.floor), "neg": _negative,
    "round": _rounded(hnp.round), "sign": _sign, "trunc": _rounded(hnp.trunc), "sgn": _sign,
    "bitwise_not": lax.bitwise_not, "relu": lambda x: hnp.maximum(x, lax.full_like(x, 0)),
}.items():  # fmt: skip
    pointwise(f"{_name}.default", _function)
for _name, _function in {
    "isinf": lambda x: hnp.isinf(x) if x.dtype in INEXACT else lax.full(x.shape, False, PRED),
    "isnan": lambda x: lax.ne(x, x),
    "logical_not": lambda x: lax.bitwise_not(convert(x, PRED)),
    "signbit": lambda x: hnp.signbit(x) if x.dtype in INEXACT else (x < 0 if x.dtype != PRED else x ^ x),
}.items():
    pointwise(f"{_name}.default", _function, to_bool=True)


@rule("polygamma.default")
def polygamma(n, x):
    dtype = in_floats(TO_TORCH[x.dtype])
    x = convert(x, computed_in(dtype))
    return convert(special.polygamma(n, x), dtype)


@rule("nextafter.default", "prims::nextafter.default")
def nextafter(x, y):
    return hnp.nextafter(x, y)


@rule("angle.default")
def angle(x):
    """Of a real number 0 or pi; NaN of NaN."""
    if x.dtype in COMPLEX:
        return hnp.angle(x)
    x = convert(x, computed_in(in_floats(TO_TORCH[x.dtype])))
    found = hnp.where(x < 0, operand(math.pi, x.dtype), operand(0, x.dtype))
    return hnp.where(hnp.isnan(x), x, found)


@rule("round.decimals")
def round_decimals(x, decimals=0):
    if x.dtype not in INEXACT:
        return x
    wide = convert(x, computed_in(torch.float32) if x.dtype.itemsize < 8 else x.dtype)
    scale = lax.full_like(wide, 10.0 ** abs(decimals))
    return lax.div(hnp.round(wide * scale), scale) if decimals >= 0 else hnp.round(wide / scale) * scale


@rule("alias.default", "detach.default", "clone.default", "lift_fresh_copy.default", "lift_fresh.default",
      "positive.default", "resolve_conj.default", "resolve_neg.default")  # fmt: skip
def alias(x):
    return x


@rule("_conj_physical.default", "conj_physical.default", "_conj.default")
def conj(x):
    return hnp.conj(x)


@rule("view_as_real.default")
def view_as_real(x):
    return hnp.stack([hnp.real(x), hnp.imag(x)], axis=-1)


@rule("view_as_complex.default")
def view_as_complex(x):
    return lax.complex(*(lax.index_in_dim(x, k, x.ndim - 1, keepdims=False) for k in (0, 1)))


@rule("polar.default")
def polar(size, angle):
    return lax.complex(size * hnp.cos(angle), size * hnp.sin(angle))


@rule("complex.default")
def complex_(real, imag):
    return lax.complex(*hnp.broadcast_arrays(real, imag))


# --- functions of two ---


def _scaled(function):
    """a + alpha b, and a - alpha b."""

    def build(a, b, alpha=1, *, result):
        dtype = result_type(a, b)
        x, y = (operand(v, computed_in(dtype)) for v in (a, b))
        if alpha != 1:
            y = hnp.multiply(y, operand(alpha, y.dtype))
        return convert(function(x, y), dtype)

    return build


rule("add.Tensor", "add.Scalar", result=True)(_scaled(lambda x, y: x | y if x.dtype == PRED else hnp.add(x, y)))
rule("sub.Tensor", "sub.Scalar", result=True)(_scaled(hnp.subtract))


@rule("rsub.Tensor", "rsub.Scalar")
def rsub(a, b, alpha=1):
    dtype = result_type(a, b)
    x, y = (operand(v, computed_in(dtype)) for v in (a, b))
    return convert(hnp.subtract(y, x if alpha == 1 else hnp.multiply(x, operand(alpha, x.dtype))), dtype)


@rule("prims::fma.default")
def fma(x, y, z):
    """x y + z."""
    dtype = result_type(x, y, z)
    x, y, z = (operand(v, computed_in(dtype)) for v in (x, y, z))
    return convert(hnp.add(hnp.multiply(x, y), z), dtype)


def _multiply(x, y):
    return hnp.logical_and(x, y) if x.dtype == PRED else hnp.multiply(x, y)


def _remainder(x, y):
    """The remainder with the sign of the divisor. For floats as PyTorch computes it: an infinite divisor yields NaN if
    signs differ."""
    if x.dtype not in INEXACT:
        return hnp.remainder(x, y)
    rest = hnp.fmod(x, y)
    return hnp.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def _power(x, y):
    return hnp.power(x, y)


for _names, _function in {
    "mul.Tensor mul.Scalar": _multiply,
    "maximum.default": hnp.maximum,
    "minimum.default": hnp.minimum,
    "fmax.default prims::fmax.default": hnp.fmax,
    "fmin.default prims::fmin.default": hnp.fmin,
    "bitwise_and.Tensor bitwise_and.Scalar bitwise_and.Scalar_Tensor": hnp.bitwise_and,
    "bitwise_or.Tensor bitwise_or.Scalar bitwise_or.Scalar_Tensor": hnp.bitwise_or,
    "bitwise_xor.Tensor bitwise_xor.Scalar bitwise_xor.Scalar_Tensor": hnp.bitwise_xor,
}.items():
    pointwise(_names, _function)
pointwise("atan2.default atan2.out", hnp.arctan2, in_floats)
pointwise("div.Tensor div.Scalar true_divide.Tensor", hnp.true_divide, in_floats)
pointwise("hypot.default", hnp.hypot)
pointwise("copysign.Tensor copysign.Scalar", hnp.copysign, in_floats)
for _name, _function in {
    "eq": hnp.equal, "ne": hnp.not_equal, "lt": hnp.less, "le": hnp.less_equal, "gt": hnp.greater,
    "ge": hnp.greater_equal,
}.items():  # fmt: skip
    pointwise(f"{_name}.Tensor {_name}.Scalar", _function, to_bool=True)
for _name in ("and", "or", "xor"):
    _function = getattr(hnp, f"logical_{_name}")
    rule(f"logical_{_name}.default")(lambda a, b, _f=_function: _f(convert(a, PRED), convert(b, PRED)))


@rule("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def power(base, exponent):
    dtype = result_type(base, exponent)
    computed = computed_in(dtype)
    if not hasattr(exponent, "dtype"):
        x = operand(base, computed)
        if exponent in (1, 2, 3) and computed != PRED:
            return convert({1: x, 2: x * x, 3: x * x * x}[exponent], dtype)
        if exponent == 0.5 and dtype.is_floating_point:
            return convert(hnp.sqrt(x), dtype)
        if not dtype.is_floating_point and not dtype.is_complex and isinstance(exponent, int) and exponent >= 0:
            return convert(lax.integer_pow(x, exponent), dtype)
    return convert(_power(operand(base, computed), operand(exponent, computed)), dtype)


for _names, _function in {
    "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor": _remainder,
    "fmod.Tensor fmod.Scalar": hnp.fmod,
}.items():

    def _rest(a, b, *, bounds, function=_function):
        dtype = result_type(a, b)
        x, y = (operand(v, computed_in(dtype)) for v in (a, b))
        _bound_divisor(x, y, bounds)
        return convert(function(x, y), dtype)

    rule(*_names.split(), bounds=True)(_rest)


def _bound_divisor(x, y, bounds) -> None:
    if 0 not in (*x.shape, *y.shape):
        bounds.divisor(y)


@rule("div.Tensor_mode", "div.Scalar_mode", bounds=True)
def div_mode(a, b, rounding_mode=None, *, bounds):
    dtype = result_type(a, b)
    if rounding_mode is None:
        dtype = in_floats(dtype)
    x, y = (operand(v, computed_in(dtype)) for v in (a, b))
    if rounding_mode is None:
        return convert(hnp.true_divide(x, y), dtype)
    _bound_divisor(x, y, bounds)
    if rounding_mode == "floor":
        return convert(hnp.floor_divide(x, y), dtype)
    if x.dtype in INEXACT:
        return convert(hnp.trunc(hnp.true_divide(x, y)), dtype)
    dims = np.broadcast_shapes(x.shape, y.shape)
    return convert(lax.div(hnp.broadcast_to(x, dims), hnp.broadcast_to(y, dims)), dtype)


@rule("floor_divide.default", bounds=True)
def floor_divide(a, b, *, bounds):
    return div_mode(a, b, rounding_mode="floor", bounds=bounds)


# --- assertions ---


@rule("_assert_async.msg", bounds=True)
def assert_async(x, text, *, bounds):
    """Of `assert`, one_hot and others: x, one element, has to differ from 0."""
    text = text.replace("{", "{{").replace("}", "}}")
    bounds.holds(x, lambda: hnp.any(hnp.equal(x, operand(0, x.dtype))), RuntimeError, text)


# --- selection and bounds ---


@rule("where.self")
def where(condition, x, y):
    dtype = TO_HLOOM[result_type(x, y)]
    return hnp.where(convert(condition, PRED), operand(x, dtype), operand(y, dtype))


@rule("clamp.default", "clamp.Tensor", "clamp_min.default")
def clamp(x, low=None, high=None):
    """Where a bound is NaN, so is the result; the upper bound decides where the bounds are the wrong way round."""
    dtype = result_type(x, low, high)
    found = operand(x, computed_in(dtype))
    if low is not None:
        found = hnp.maximum(found, operand(low, found.dtype))
    if high is not None:
        found = hnp.minimum(found, operand(high, found.dtype))
    return convert(found, dtype)


@rule("hardtanh.default")
def hardtanh(x, low=-1, high=1):
    found = convert(x, computed_in(result_type(x)))
    return hnp.minimum(hnp.maximum(found, operand(low, found.dtype)), operand(high, found.dtype))


@rule("clamp_max.default")
def clamp_max(x, high):
    return clamp(x, None, high)


# --- activations ---


def _computed(x):
    return convert(x, computed_in(in_floats(result_type(x))))


@rule("leaky_relu.default")
def leaky_relu(x, negative_slope=0.01):
    x = _computed(x)
    return hnp.where(x > 0, x, x * operand(negative_slope, x.dtype))


@rule("elu.default")
def elu(x, alpha=1, scale=1, input_scale=1):
    x = _computed(x)
    below, above, inner = (operand(v, x.dtype) for v in (alpha * scale, scale, input_scale))
    return hnp.where(x > 0, x * above, hnp.expm1(x * inner) * below)


@rule("gelu.default")
def gelu(x, approximate="none"):
    x = _computed(x)
    one, half = operand(1.0, x.dtype), operand(0.5, x.dtype)
    if approximate == "tanh":
        inner = operand(0.7978845608028654, x.dtype) * (x + operand(0.044715, x.dtype) * x * x * x)
        return half * x * (one + hnp.tanh(inner))
    return x * half * (one + lax.erf(x * operand(0.7071067811865476, x.dtype)))


@rule("silu.default")
def silu(x):
    x = _computed(x)
    return x * lax.logistic(x)


# --- dtypes ---


@rule("_to_copy.default", "prims::convert_element_type.default")
def to_copy(x, dtype=None):
    if dtype is None:
        return x
    if x.dtype in COMPLEX and not dtype.is_complex:
        x = hnp.real(x)
    return convert(x, dtype)


@rule("copy.default")
def copy(x, source, non_blocking=False):
    return hnp.broadcast_to(convert(source, x.dtype), x.shape)


@rule("fill.Scalar", "fill.Tensor")
def fill(x, value):
    return hnp.broadcast_to(operand(value, x.dtype), x.shape)


@rule("scalar_tensor.default")
def scalar_tensor(value, dtype=None):
    return operand(value, TO_HLOOM[dtype or (natural(value) if isinstance(value, bool) else torch.get_default_dtype())])


# --- bits and integers ---


def _counted(function):
    """Shifts by a count converted to the dtype of the shifted operand, so that 300 does not wrap."""

    def build(x, count, *, result):
        dtype = TO_HLOOM[result_type(x, count)]
        if dtype.kind not in "iu":
            raise UnsupportedError("a shift of non-integers", f"{dtype}", "multiply by a power of 2", "")
        x, count = (hnp.broadcast_to(operand(v, dtype), result.dims) for v in (x, count))
        return function(x, count)

    return build


def _shifted_right(x, count):
    return lax.shift_right_logical(x, count) if x.dtype.kind == "u" else lax.shift_right_arithmetic(x, count)


rule("bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar", "bitwise_left_shift.Scalar_Tensor",
     "__lshift__.Scalar", "__lshift__.Tensor", "prims::shift_left.default",
     result=True)(_counted(lax.shift_left))  # fmt: skip
rule("bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar", "bitwise_right_shift.Scalar_Tensor",
     "__rshift__.Scalar", "__rshift__.Tensor", "prims::shift_right_arithmetic.default",
     result=True)(_counted(_shifted_right))  # fmt: skip
pointwise("gcd.default prims::gcd.default", hnp.gcd)
pointwise("lcm.default", hnp.lcm)


@rule("frexp.Tensor", "prims::frexp.default", result=True)
def frexp(x, *, result):
    """(mantissas from 0.5 to 1, exponents)."""
    fraction, exponent = hnp.frexp(convert(x, computed_in(TO_TORCH[x.dtype])))
    return fraction, exponent


# --- torch's prims, which its decompositions are made of ---


@rule("prims::div.default", result=True, bounds=True)
def prim_div(a, b, *, result, bounds):
    """The quotient in the dtype of the operands: truncated for integers."""
    return div_mode(a, b, rounding_mode=None if result.dtype in INEXACT else "trunc", bounds=bounds)


for _name in (
    "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil conj_physical "
    "copysign cos cosh digamma eq erf erfc exp exp2 expm1 floor fmod ge gt hypot isinf isnan le lgamma log log10 log1p "
    "log2 lt maximum minimum mul ne neg pow reciprocal remainder round rsqrt sign signbit sin sinh sqrt sub tan tanh "
    "trunc where"
).split():  # prims equivalent to the ATen op of this name, for operands of one dtype
    _prim = overload(f"prims::{_name}.default")
    _known = [overload(f"{_name}.{kind}") for kind in ("default", "Tensor", "self", "Tensor_Tensor")]
    _same_op = next((RULES[op] for op in _known if op in RULES), None)
    if _prim is not None and _same_op is not None:
        RULES.setdefault(_prim, _same_op)


__all__ = ["pointwise"]
