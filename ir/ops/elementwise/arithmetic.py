"""Element-wise ops of one and two operands, by subject.

Source: HLO operation semantics, openxla.org/xla/operation_semantics.
"""

from __future__ import annotations

import math

import numpy as np

from hloom.ir.op_table import No, op
from hloom.ir.ops.rules import (
    conjugate,
    elementwise,
    in_float32,
    linear_jvp,
    partials,
    to_pred,
    to_real,
    zero_jvp,
)
from hloom.ir.types import COMPLEX, DTYPES, SIGNED, kind

ARITHMETIC = ("signed", "unsigned", "float", "complex")
ORDERED = ("pred", "signed", "unsigned", "float")
ANALYTIC = ("float", "complex")
FLOAT = ("float",)
INTEGER = ("signed", "unsigned")
BITS = ("pred", "signed", "unsigned")
NOT_LINEAR = No("not linear in any operand")
NO_TANGENT = No("its operands have no tangents")


def unary(name, kinds, reference, code, jvp, transpose=NOT_LINEAR, flops=1.0, result=None, **facts):
    """Declares an element-wise op of one operand."""
    op(
        name,
        family="elementwise",
        infer=elementwise(name, 1, kinds, result),
        reference=in_float32(reference),
        code=code if isinstance(code, dict) or not isinstance(code, str) else {"any": code},
        jvp=jvp,
        transpose=transpose,
        flops=flops,
        **facts,
    )


def binary(name, kinds, reference, code, jvp, transpose=NOT_LINEAR, flops=1.0, result=None, **facts):
    """Declares an element-wise op of two operands of one dtype."""
    op(
        name,
        family="elementwise",
        infer=elementwise(name, 2, kinds, result),
        reference=in_float32(reference),
        code=code if isinstance(code, dict) or not isinstance(code, str) else {"any": code},
        jvp=jvp,
        transpose=transpose,
        flops=flops,
        **facts,
    )


def math_function(name, kernel, reference, derivative, flops, kinds=ANALYTIC, **facts):
    """Declares a unary function whose kernel is `kernel_DTYPE`; derivative(g, y, x)."""
    jvp = partials(derivative) if derivative else zero_jvp
    unary(name, kinds, reference, kernel + "_{t}({0})", jvp, flops=flops, **facts)


# --- arithmetic ---------------------------------------------------------------------------------------------------


def _wrapped(template: str) -> dict[str, str]:
    """Integers are cast back because Numba widens the results of their arithmetic."""
    return {"integer": "{r}(" + template + ")", "any": template}


def _add_transpose(build, instruction, cotangent, operands):
    return [cotangent if o is None else None for o in operands]


def _subtract_jvp(build, instruction, primals, tangents):
    left, right = tangents
    if right is None:
        return left
    return -right if left is None else left - right


def _subtract_transpose(build, instruction, cotangent, operands):
    left, right = operands
    return [cotangent if left is None else None, -cotangent if right is None else None]


def _multiply_transpose(build, instruction, cotangent, operands):
    left, right = operands
    return [cotangent * right, None] if left is None else [None, cotangent * left]


def _divide_transpose(build, instruction, cotangent, operands):
    return [cotangent / operands[1], None]


def _truncated_divide(x, y):
    """HLO integer division: truncates toward zero; x / 0 has all bits set; the smallest / -1 is itself."""
    if x.dtype.kind not in "iu":
        return np.divide(x, y)
    zero = y == 0
    safe = np.where(zero, 1, y).astype(x.dtype)
    if x.dtype.kind == "u":
        return np.where(zero, np.iinfo(x.dtype).max, x // safe)
    overflow = (safe == -1) & (x == np.iinfo(x.dtype).min)
    safe = np.where(overflow, 1, safe).astype(x.dtype)
    quotient = x // safe
    quotient = quotient + ((quotient < 0) & (quotient * safe != x))
    return np.where(zero, -1, quotient)


def _remainder(x, y):
    """HLO remainder: the sign of the dividend; x rem 0 is x for integers, NaN for floats."""
    if x.dtype.kind not in "iu":
        return np.fmod(x, y)
    zero = y == 0
    safe = np.where(zero | (y == np.asarray(-1).astype(x.dtype)) if x.dtype.kind == "i" else zero, 1, y).astype(x.dtype)
    return np.where(zero, x, np.fmod(x, safe))


def _atan2(y, x):
    """Of narrower floats by float64 and rounded: NumPy's float32 results depend on the processor and on strides."""
    if x.dtype == np.float64:
        return np.arctan2(y, x)
    return np.arctan2(y.astype(np.float64), x.astype(np.float64)).astype(x.dtype)


def _power(x, y):
    """Integers: a negative exponent gives 0 unless the base is 1 or -1."""
    if x.dtype.kind == "f":
        # NumPy's results depend on strides: with AVX-512 it has another function for contiguous arrays, and an exponent
        # of 0.5 that is repeated is a square root, which differs at -0 and -inf from IEEE 754.
        x, y = np.asarray(x, order="C"), np.asarray(y, order="C")
        return np.where((y == 0.5) & ((x == 0) | (x == -np.inf)), np.abs(x), np.power(x, y))
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    if x.dtype.kind == "u":
        return np.power(x, y)
    negative = y < 0
    positive = np.power(x, np.where(negative, 0, y).astype(x.dtype))
    parity = np.where((y & 1) == 1, x, 1)
    return np.where(negative, np.where(x == 1, 1, np.where(x == -1, parity, 0)), positive)


binary(
    "add",
    ("pred", *ARITHMETIC),
    np.add,
    {"pred": "{0} | {1}", **_wrapped("{0} + {1}")},
    partials(lambda g, z, x, y: g, lambda g, z, x, y: g),
    _add_transpose,
    commutative=True,
    associative=True,
    identity=lambda dtype: 0,
)
binary(
    "subtract",
    ARITHMETIC,
    np.subtract,
    _wrapped("{0} - {1}"),
    _subtract_jvp,
    _subtract_transpose,
)
binary(
    "multiply",
    ("pred", *ARITHMETIC),
    np.multiply,
    {"pred": "{0} & {1}", "complex": "mul_{t}({0}, {1})", **_wrapped("{0} * {1}")},
    partials(lambda g, z, x, y: g * y, lambda g, z, x, y: g * x),
    _multiply_transpose,
    commutative=True,
    associative=True,
    identity=lambda dtype: 1,
)
binary(
    "divide",
    ARITHMETIC,
    _truncated_divide,
    {"integer": "div_{t}({0}, {1})", "complex": "div_{t}({0}, {1})", "float": "{0} / {1}"},
    partials(lambda g, z, x, y: g / y, lambda g, z, x, y: -(g * z) / y),
    _divide_transpose,
    flops=4,
)
binary(
    "remainder",
    ("signed", "unsigned", "float"),
    _remainder,
    "rem_{t}({0}, {1})",
    partials(
        lambda g, z, x, y: g,
        # x rem y = x - trunc(x / y) y
        lambda g, z, x, y: -g * ((x / y).op("sign") * (x / y).op("abs").op("floor")),
    ),
    flops=10,
)
binary(
    "power",
    ARITHMETIC,
    _power,
    "pow_{t}({0}, {1})",
    partials(
        # y x^(y-1); where y = 0 the derivative is 0 even at x = 0
        lambda g, z, x, y: g * y.compare("EQ", 0).where(x.like(0), y * x.op("power", y - 1)),
        # log(x) x^y; where x = 0 it is 0
        lambda g, z, x, y: g * z * x.compare("EQ", 0).where(x.like(1), x).op("log"),
    ),
    flops=40,
)
binary(
    "maximum",
    ("pred", "signed", "unsigned", "float", "complex"),
    np.maximum,
    {"pred": "{0} | {1}", "any": "max_{t}({0}, {1})"},
    partials(
        lambda g, z, x, y: g * _share(x, y, z),
        lambda g, z, x, y: g * _share(y, x, z),
    ),
    commutative=True,
    associative=True,
    idempotent=True,
    identity=lambda dtype: _lowest(dtype),
)
binary(
    "minimum",
    ("pred", "signed", "unsigned", "float", "complex"),
    np.minimum,
    {"pred": "{0} & {1}", "any": "min_{t}({0}, {1})"},
    partials(
        lambda g, z, x, y: g * _share(x, y, z),
        lambda g, z, x, y: g * _share(y, x, z),
    ),
    commutative=True,
    associative=True,
    idempotent=True,
    identity=lambda dtype: _highest(dtype),
)


def _share(x, other, extreme):
    """The derivative of max or min by x: 1 where x is the extreme, 0.5 where both are, else 0."""
    both = other.compare("EQ", extreme).where(x.like(0.5), x.like(1))
    return x.compare("EQ", extreme).where(both, x.like(0))


def _lowest(dtype):
    if kind(dtype) in ("float", "complex"):
        return -np.inf
    return False if kind(dtype) == "pred" else np.iinfo(dtype).min


def _highest(dtype):
    if kind(dtype) in ("float", "complex"):
        return np.inf
    return True if kind(dtype) == "pred" else np.iinfo(dtype).max


def _negate_transpose(build, instruction, cotangent, operands):
    return [-cotangent]


unary(
    "negate",
    ARITHMETIC,
    np.negative,
    {"integer": "{r}(-{0})", "any": "-{0}"},
    partials(lambda g, y, x: -g),
    _negate_transpose,
    involution=True,
)
unary(
    "abs",
    ARITHMETIC,
    np.abs,
    "abs_{t}({0})",
    partials(
        lambda g, y, x: (
            # Re(g conj(x)) / |x| for complex x, 0 at 0
            (g * conjugate(x)).op("real") / y.compare("EQ", 0).where(y.like(1), y)
            if x.dtype in COMPLEX
            else g * x.op("sign")
        )
    ),
    result=to_real,
)
unary(
    "sign",
    ARITHMETIC,
    # Zero keeps its sign, which NumPy drops.
    lambda x: np.where(x == 0, x, np.sign(x) if x.dtype.kind != "c" else x / np.where(x == 0, 1, np.abs(x))),
    "sign_{t}({0})",
    lambda build, instruction, primals, tangents: (
        _direction_jvp(primals[0], build.primal, tangents[0]) if instruction.dtype in COMPLEX else None
    ),
)


def _direction_jvp(x, y, g):
    """The tangent of y = x / |x|: what of g is across y, over |x|; 0 at 0."""
    size = x.op("abs")
    along = (g * conjugate(y)).op("real")
    across = g - y * along.op("complex", along.like(0))
    nonzero = size.compare("EQ", 0).where(size.like(1), size)
    return across / nonzero.op("complex", nonzero.like(0))


# --- exponentials, logarithms, powers -----------------------------------------------------------------------------


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


math_function("exponential", "exp", np.exp, lambda g, y, x: g * y, 15)
math_function("exponential-minus-one", "expm1", np.expm1, lambda g, y, x: g * (y + 1), 20)
math_function("log", "log", np.log, lambda g, y, x: g / x, 15)
math_function("log-plus-one", "log1p", np.log1p, lambda g, y, x: g / (x + 1), 20)
math_function("logistic", "logistic", _logistic, lambda g, y, x: g * y * (1 - y), 20)
math_function("sqrt", "sqrt", np.sqrt, lambda g, y, x: g * 0.5 / y, 4)
math_function("rsqrt", "rsqrt", lambda x: 1 / np.sqrt(x), lambda g, y, x: g * -0.5 * y / x, 5)
math_function(
    "cbrt",
    "cbrt",
    _complex_or(np.cbrt, lambda x: np.power(x, 1 / 3)),
    lambda g, y, x: g / (y * y * 3),
    20,
)
math_function(
    "erf",
    "erf",
    _erf,
    lambda g, y, x: g * (2 / math.sqrt(math.pi)) * (-(x * x)).op("exponential"),
    25,
    kinds=FLOAT,
)

# --- trigonometric and hyperbolic ---------------------------------------------------------------------------------


def _off_unit(x):
    """1 - x^2, without the cancellation near 1."""
    return (1 - x) * (1 + x)


math_function("sine", "sin", np.sin, lambda g, y, x: g * x.op("cosine"), 20)
math_function("cosine", "cos", np.cos, lambda g, y, x: -(g * x.op("sine")), 20)
math_function("tan", "tan", np.tan, lambda g, y, x: g * (y * y + 1), 30)
math_function("tanh", "tanh", np.tanh, lambda g, y, x: g * (1 - y * y), 20)
math_function("asin", "asin", np.arcsin, lambda g, y, x: g * _off_unit(x).op("rsqrt"), 25)
math_function("acos", "acos", np.arccos, lambda g, y, x: -(g * _off_unit(x).op("rsqrt")), 25)
math_function("sinh", "sinh", np.sinh, lambda g, y, x: g * x.op("cosh"), 25)
math_function("cosh", "cosh", np.cosh, lambda g, y, x: g * x.op("sinh"), 25)
math_function("asinh", "asinh", np.arcsinh, lambda g, y, x: g * (x * x + 1).op("rsqrt"), 25)
math_function("acosh", "acosh", np.arccosh, lambda g, y, x: g * (x - 1).op("rsqrt") * (x + 1).op("rsqrt"), 25)
math_function("atanh", "atanh", np.arctanh, lambda g, y, x: g / _off_unit(x), 25)
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
)

# --- rounding -----------------------------------------------------------------------------------------------------


def _half_away(x):
    whole = np.trunc(x)
    # copysign keeps the sign of a zero result.
    return np.copysign(np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole), x)


unary("floor", FLOAT, np.floor, "floor_{t}({0})", zero_jvp)
unary("ceil", FLOAT, np.ceil, "ceil_{t}({0})", zero_jvp)
unary("round-nearest-even", FLOAT, np.rint, "round_even_{t}({0})", zero_jvp)
unary("round-nearest-afz", FLOAT, _half_away, "round_afz_{t}({0})", zero_jvp)
unary("is-finite", FLOAT, np.isfinite, "is_finite_{t}({0})", zero_jvp, result=to_pred)

# --- bits and booleans --------------------------------------------------------------------------------------------


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
    # In the dtype itself: NumPy's common type of uint64 and a signed integer is float64.
    signed = np.dtype(f"i{x.dtype.itemsize}")
    return (x.view(signed) >> (8 * x.dtype.itemsize - 1)).view(x.dtype)


bitwise = {"commutative": True, "associative": True}
ones = lambda dtype: True if dtype == DTYPES["pred"] else -1 if dtype in SIGNED else np.iinfo(dtype).max  # noqa: E731
binary(
    "and", BITS, np.bitwise_and, _wrapped("{0} & {1}"), zero_jvp, NO_TANGENT, idempotent=True, identity=ones, **bitwise
)
binary(
    "or",
    BITS,
    np.bitwise_or,
    _wrapped("{0} | {1}"),
    zero_jvp,
    NO_TANGENT,
    idempotent=True,
    identity=lambda dtype: 0,
    **bitwise,
)
binary(
    "xor",
    BITS,
    np.bitwise_xor,
    _wrapped("{0} ^ {1}"),
    zero_jvp,
    NO_TANGENT,
    identity=lambda dtype: 0,
    **bitwise,
)
unary(
    "not",
    BITS,
    lambda x: np.logical_not(x) if x.dtype == bool else np.invert(x),
    {"pred": "not {0}", "any": "{r}(~{0})"},
    zero_jvp,
    NO_TANGENT,
    involution=True,
)
shift_left = _shift(_shift_left, lambda x: 0)
binary("shift-left", INTEGER, shift_left, "shl_{t}({0}, {1})", zero_jvp, NO_TANGENT)
binary(
    "shift-right-logical",
    INTEGER,
    _shift(_shift_right_logical, lambda x: 0),
    "shr_logical_{t}({0}, {1})",
    zero_jvp,
    NO_TANGENT,
)
binary(
    "shift-right-arithmetic",
    INTEGER,
    _shift(_shift_right_arithmetic, _sign_fill),
    "shr_arithmetic_{t}({0}, {1})",
    zero_jvp,
    NO_TANGENT,
)
# NumPy counts the bits of the absolute value; HLO those of the two's complement.
unary(
    "popcnt",
    INTEGER,
    lambda x: np.bitwise_count(x.view(f"u{x.dtype.itemsize}")),
    "popcnt_{t}({0})",
    zero_jvp,
    NO_TANGENT,
)


def _leading_zeros(x):
    width = x.dtype.itemsize * 8
    unsigned = x.view(f"u{x.dtype.itemsize}")
    count = np.full(x.shape, width, np.int64)
    for bit in range(width):
        count = np.where(unsigned >> np.asarray(bit, unsigned.dtype) != 0, width - 1 - bit, count)
    return count


unary("count-leading-zeros", INTEGER, _leading_zeros, "clz_{t}({0})", zero_jvp, NO_TANGENT)

# --- complex numbers ----------------------------------------------------------------------------------------------


def _complex_dtype(dtype):
    return DTYPES["c128"] if dtype == DTYPES["f64"] else DTYPES["c64"]


def _make_complex(re, im):
    result = np.empty(re.shape, _complex_dtype(re.dtype))
    result.real, result.imag = re, im
    return result


def _zero(cotangent):
    return cotangent.like(0)


binary(
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
)
unary(
    "real",
    ("float", "complex"),
    np.real,
    {"float": "{0}", "complex": "{0}.real"},
    linear_jvp,
    lambda build, instruction, g, operands: [
        g.op("complex", _zero(g)) if instruction.operands[0].dtype in COMPLEX else g
    ],
    result=to_real,
)
unary(
    "imag",
    ("float", "complex"),
    np.imag,
    {"float": "{t}(0)", "complex": "{0}.imag"},
    linear_jvp,
    lambda build, instruction, g, operands: [
        _zero(g).op("complex", -g) if instruction.operands[0].dtype in COMPLEX else _zero(g)
    ],
    result=to_real,
)
