"""Rounding, bits and booleans, parts of complex numbers.

Source: HLO operation semantics, openxla.org/xla/operation_semantics.
"""

from __future__ import annotations

import numpy as np

from hloom.ir.ops.elementwise.declare import (
    BITS,
    FLOAT,
    INTEGER,
    NO_TANGENT,
    hlo_binary,
    hlo_unary,
    wrapped,
)
from hloom.ir.ops.rules import linear_jvp, to_pred, to_real, zero_jvp
from hloom.ir.types import COMPLEX, DTYPES, SIGNED

# --- rounding ---------------------------------------------------------------------------------------------------------


def _half_away(x):
    whole = np.trunc(x)
    # copysign preserves the sign of a zero result.
    return np.copysign(np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole), x)


hlo_unary(
    "floor",
    FLOAT,
    np.floor,
    "floor_{t}({0})",
    zero_jvp,
    doc="The largest integer that is not above {0}, as a float.",
    lax="floor",
    example=("{f}(hnp.array([-1.5, 2.7]))", "Array([-2.,  2.], dtype=float32)"),
)
hlo_unary(
    "ceil",
    FLOAT,
    np.ceil,
    "ceil_{t}({0})",
    zero_jvp,
    doc="The smallest integer that is not below {0}, as a float.",
    lax="ceil",
    example=("{f}(hnp.array([-1.5, 2.2]))", "Array([-1.,  3.], dtype=float32)"),
)
hlo_unary(
    "round-nearest-even",
    FLOAT,
    np.rint,
    "round_even_{t}({0})",
    zero_jvp,
)
hlo_unary(
    "round-nearest-afz",
    FLOAT,
    _half_away,
    "round_afz_{t}({0})",
    zero_jvp,
)
hlo_unary(
    "is-finite",
    FLOAT,
    np.isfinite,
    "is_finite_{t}({0})",
    zero_jvp,
    result=to_pred,
    doc="Whether {0} is neither infinite nor NaN, pred.",
    lax="is_finite",
    example=("{f}(hnp.array([1.0, hnp.inf, hnp.nan]))", "Array([ True, False, False], dtype=bool)"),
)


# --- bits and booleans ------------------------------------------------------------------------------------------------


def _shift(function, fill):
    """HLO shifts: the amount is unsigned; at the width and beyond every bit is the fill."""

    def reference(x, amount):
        width = x.dtype.itemsize * 8
        unsigned = np.dtype(f"u{x.dtype.itemsize}")
        count = amount.astype(unsigned)
        inside = np.where(count < width, count, 0).astype(unsigned)
        return np.where(count < width, function(x, inside), fill(x)).astype(x.dtype)

    return reference


def _shift_right_logical(x, n):
    return (x.view(n.dtype) >> n).view(x.dtype)


def _shift_left(x, n):
    return (x.view(n.dtype) << n).view(x.dtype)


def _shift_right_arithmetic(x, n):
    signed = np.dtype(f"i{x.dtype.itemsize}")
    return (x.view(signed) >> n.view(signed)).view(x.dtype)


def _sign_fill(x):
    # In the same dtype: NumPy promotes uint64 and a signed integer to float64.
    signed = np.dtype(f"i{x.dtype.itemsize}")
    return (x.view(signed) >> (8 * x.dtype.itemsize - 1)).view(x.dtype)


bitwise = {"commutative": True, "associative": True}
ones = lambda dtype: True if dtype == DTYPES["pred"] else -1 if dtype in SIGNED else np.iinfo(dtype).max  # noqa: E731
hlo_binary(
    "and",
    BITS,
    np.bitwise_and,
    wrapped("{0} & {1}"),
    zero_jvp,
    NO_TANGENT,
    idempotent=True,
    identity=ones,
    **bitwise,
    doc="{0} & {1}.",
    lax="bitwise_and",
    example=("{f}(hnp.array([12, 7]), hnp.array([10, 2]))", "Array([8, 2], dtype=int32)"),
    numpy="bitwise_and",
)
hlo_binary(
    "or",
    BITS,
    np.bitwise_or,
    wrapped("{0} | {1}"),
    zero_jvp,
    NO_TANGENT,
    idempotent=True,
    identity=lambda dtype: 0,
    **bitwise,
    doc="{0} | {1}.",
    lax="bitwise_or",
    example=("{f}(hnp.array([12, 7]), hnp.array([10, 8]))", "Array([14, 15], dtype=int32)"),
    numpy="bitwise_or",
)
hlo_binary(
    "xor",
    BITS,
    np.bitwise_xor,
    wrapped("{0} ^ {1}"),
    zero_jvp,
    NO_TANGENT,
    identity=lambda dtype: 0,
    **bitwise,
    doc="{0} ^ {1}.",
    lax="bitwise_xor",
    example=("{f}(hnp.array([12, 7]), hnp.array([10, 7]))", "Array([6, 0], dtype=int32)"),
    numpy="bitwise_xor",
)
hlo_unary(
    "not",
    BITS,
    lambda x: np.logical_not(x) if x.dtype == bool else np.invert(x),
    {"pred": "not {0}", "any": "{r}(~{0})"},
    zero_jvp,
    NO_TANGENT,
    involution=True,
    doc="~{0} of integers, `not` of booleans.",
    lax="bitwise_not",
    example=("{f}(hnp.array([0, 5]))", "Array([-1, -6], dtype=int32)"),
    numpy="bitwise_not invert bitwise_invert",
)
shift_left = _shift(_shift_left, lambda x: 0)
hlo_binary(
    "shift-left",
    INTEGER,
    shift_left,
    "shl_{t}({0}, {1})",
    zero_jvp,
    NO_TANGENT,
    doc="{0} << {1}; 0 where {1} is at least the width of {0}.",
    lax="shift_left",
    example=("{f}(hnp.array([1, 3]), hnp.array([4, 1]))", "Array([16,  6], dtype=int32)"),
)
hlo_binary(
    "shift-right-logical",
    INTEGER,
    _shift(_shift_right_logical, lambda x: 0),
    "shr_logical_{t}({0}, {1})",
    zero_jvp,
    NO_TANGENT,
    doc="{0} >> {1}, with zeros shifted in.",
    lax="shift_right_logical",
    example=("{f}(hnp.array([16, -1]), hnp.array([2, 28]))", "Array([ 4, 15], dtype=int32)"),
)
hlo_binary(
    "shift-right-arithmetic",
    INTEGER,
    _shift(_shift_right_arithmetic, _sign_fill),
    "shr_arithmetic_{t}({0}, {1})",
    zero_jvp,
    NO_TANGENT,
    doc="{0} >> {1}, with copies of the sign bit shifted in.",
    lax="shift_right_arithmetic",
    example=("{f}(hnp.array([16, -16]), hnp.array([2, 2]))", "Array([ 4, -4], dtype=int32)"),
)
# NumPy counts the bits of the absolute value; HLO those of the two's complement.
hlo_unary(
    "popcnt",
    INTEGER,
    lambda x: np.bitwise_count(x.view(f"u{x.dtype.itemsize}")),
    "popcnt_{t}({0})",
    zero_jvp,
    NO_TANGENT,
    doc="The number of bits set, in the dtype of {0}.",
    lax="population_count",
    example=("{f}(hnp.array([7, 8]))", "Array([3, 1], dtype=int32)"),
)


def _leading_zeros(x):
    width = x.dtype.itemsize * 8
    unsigned = x.view(f"u{x.dtype.itemsize}")
    count = np.full(x.shape, width, np.int64)
    for bit in range(width):
        count = np.where(unsigned >> np.asarray(bit, unsigned.dtype) != 0, width - 1 - bit, count)
    return count


hlo_unary(
    "count-leading-zeros",
    INTEGER,
    _leading_zeros,
    "clz_{t}({0})",
    zero_jvp,
    NO_TANGENT,
    doc="The number of leading zero bits, in the dtype of {0}.",
    lax="clz",
    example=("{f}(hnp.array([1, 255]))", "Array([31, 24], dtype=int32)"),
)


# --- complex numbers --------------------------------------------------------------------------------------------------


def _complex_dtype(dtype):
    return DTYPES["c128"] if dtype == DTYPES["f64"] else DTYPES["c64"]


def _make_complex(re, im):
    result = np.empty(re.shape, _complex_dtype(re.dtype))
    result.real, result.imag = re, im
    return result


def _zero(cotangent):
    return cotangent.like(0)


hlo_binary(
    "complex",
    ("float",),
    _make_complex,
    "complex_{t}({0}, {1})",
    linear_jvp,
    lambda build, instruction, g, operands: [
        g.op("real") if operands[0] is None else None,
        -g.op("imag") if operands[1] is None else None,
    ],
    result=_complex_dtype,
    doc="The complex number {0} + i {1}.",
    lax="complex",
    example=("{f}(hnp.array([1.0, 2.0]), hnp.array([0.0, -3.0]))", "Array([1.+0.j, 2.-3.j], dtype=complex64)"),
)
hlo_unary(
    "real",
    ("float", "complex"),
    np.real,
    {"float": "{0}", "complex": "{0}.real"},
    linear_jvp,
    lambda build, instruction, g, operands: [
        g.op("complex", _zero(g)) if instruction.operands[0].dtype in COMPLEX else g
    ],
    result=to_real,
    doc="The real part.",
    lax="real",
    example=("{f}(hnp.array([1 + 2j, 3j]))", "Array([1., 0.], dtype=float32)"),
)
hlo_unary(
    "imag",
    ("float", "complex"),
    np.imag,
    {"float": "{t}(0)", "complex": "{0}.imag"},
    linear_jvp,
    lambda build, instruction, g, operands: [
        _zero(g).op("complex", -g) if instruction.operands[0].dtype in COMPLEX else _zero(g)
    ],
    result=to_real,
    doc="The imaginary part.",
    lax="imag",
    example=("{f}(hnp.array([1 + 2j, 3j]))", "Array([2., 3.], dtype=float32)"),
)
