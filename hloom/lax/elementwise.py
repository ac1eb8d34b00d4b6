"""Element-wise functions of `hloom.lax`: one op each, or a short composition of ops.

As in `jax.lax` nothing is promoted: array operands have one dtype, and one shape but for scalars and dimensions of
extent 1, which are stretched. Python numbers take the dtype of the arrays beside them.
"""

from __future__ import annotations

import builtins
import math

from hloom.arrays.operators import ArrayMethods
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.types import COMPLEX, INTEGERS, Shape, as_dtype
from hloom.lax.operands import (
    NUMBERS,
    as_operand,
    broadcast_dims_to,
    broadcast_shapes,
    conform,
    constant,
    convert,
    full,
    promoted,
    read,
    scalar_dtype,
)
from hloom.tracing.trace import bind


def _document(function, name: str, text: str):
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


# Functions that take accuracy=, a lax.Tolerance or AccuracyMode. There is one implementation of each, the exact one.
_WITH_ACCURACY = frozenset("cbrt cos exp expm1 log log1p logistic rsqrt sin sqrt tan tanh".split())


def _unary(name: str, opcode: str, text: str):
    def function(x):
        if not isinstance(x, ArrayMethods):
            x = as_operand(x, name)
        return bind(opcode, x, weak=x.weak)

    if name in _WITH_ACCURACY:
        plain = function

        def function(x, accuracy=None):
            return plain(x)

    return _document(function, name, f"{text}\n\n    Element-wise (HLO {opcode}). Raises DTypeError.\n    ")


def like_arrays(name: str, values) -> tuple[list, bool]:
    """Python numbers made arrays of the dtype and shape of the arrays beside them; whether all are weak."""
    if all(isinstance(v, ArrayMethods) for v in values):
        return values, all(v.weak for v in values)
    values = read(values, name)
    first = next((v for v in values if isinstance(v, ArrayMethods)), None)
    if first is None:
        dtype, weak = promoted(*[scalar_dtype(v) for v in values])
        return [constant(v, dtype) for v in values], weak
    dtype, dims = first._shape.dtype, first._shape.dims
    for value in values:
        if not isinstance(value, ArrayMethods) and promoted((dtype, False), scalar_dtype(value))[0] != dtype:
            raise DTypeError(
                f"{name} takes operands of one dtype",
                f"{first._shape!r} and the Python number {value!r}",
                "convert the array with astype, or use hloom.numpy, which promotes",
            )
    arrays = [v for v in values if isinstance(v, ArrayMethods)]
    weak = all(v.weak for v in arrays)
    return [v if isinstance(v, ArrayMethods) else conform(v, dtype, dims) for v in values], weak


def _stretched(name: str, arrays) -> list:
    """Arrays of one rank, or scalars, stretched along the dimensions where they have extent 1."""
    rank = builtins.max(x.ndim for x in arrays)
    if any(x.ndim not in (0, rank) for x in arrays):
        raise ShapeError(
            f"{name} takes arrays of one rank, or scalars",
            " and ".join(f"{x._shape!r}" for x in arrays),
            "use hloom.numpy, which broadcasts, or lax.broadcast_in_dim",
        )
    dims = broadcast_shapes(name, [x.shape for x in arrays])
    return [broadcast_dims_to(x, dims) for x in arrays]


def _binary(name: str, opcode: str, text: str):
    def function(x, y):
        (x, y), weak = like_arrays(name, (x, y))
        if x._shape.dims != y._shape.dims:
            x, y = _stretched(name, (x, y))
        return bind(opcode, x, y, weak=weak)

    return _document(function, name, f"{text}\n\n    Element-wise (HLO {opcode}). Raises ShapeError, DTypeError.\n    ")


def _comparison(name: str, direction: str, sign: str):
    def function(x, y):
        (x, y), _ = like_arrays(name, (x, y))
        if x._shape.dims != y._shape.dims:
            x, y = _stretched(name, (x, y))
        return bind("compare", x, y, direction=direction)

    text = f"x {sign} y, pred.\n\n    Element-wise (HLO compare). Raises ShapeError, DTypeError.\n    "
    return _document(function, name, text)


# --- one op each --------------------------------------------------------------------------------------------------

add = _binary("add", "add", "x + y; `or` of pred.")
sub = _binary("sub", "subtract", "x - y.")
mul = _binary("mul", "multiply", "x * y; `and` of pred.")
div = _binary("div", "divide", "x / y. Integers truncate toward zero; a division by zero has all bits set.")
rem = _binary("rem", "remainder", "The remainder of x / y with the sign of x.")
pow = _binary("pow", "power", "x to the power y, of one dtype.")
max = _binary("max", "maximum", "The larger of x and y; NaN where one is NaN.")
min = _binary("min", "minimum", "The smaller of x and y; NaN where one is NaN.")
atan2 = _binary("atan2", "atan2", "The angle of the point (y, x): atan2(x, y) is the arc tangent of x / y.")
bitwise_and = _binary("bitwise_and", "and", "x & y of integers or pred.")
bitwise_or = _binary("bitwise_or", "or", "x | y of integers or pred.")
bitwise_xor = _binary("bitwise_xor", "xor", "x ^ y of integers or pred.")
shift_left = _binary("shift_left", "shift-left", "x << y; 0 for a y of the width of x and more.")
shift_right_logical = _binary("shift_right_logical", "shift-right-logical", "x >> y, zeros shifted in.")
shift_right_arithmetic = _binary("shift_right_arithmetic", "shift-right-arithmetic", "x >> y, the sign shifted in.")
complex = _binary("complex", "complex", "The complex number x + i y of two float arrays.")

neg = _unary("neg", "negate", "-x.")
abs = _unary("abs", "abs", "The absolute value, real for complex x.")
sign = _unary("sign", "sign", "-1, 0 or 1; x / |x| for complex x; NaN for NaN.")
exp = _unary("exp", "exponential", "e to the power x.")
expm1 = _unary("expm1", "exponential-minus-one", "exp(x) - 1, exact near 0.")
log = _unary("log", "log", "The natural logarithm.")
log1p = _unary("log1p", "log-plus-one", "log(1 + x), exact near 0.")
tanh = _unary("tanh", "tanh", "The hyperbolic tangent.")
logistic = _unary("logistic", "logistic", "1 / (1 + exp(-x)).")
sin = _unary("sin", "sine", "The sine of x radians.")
cos = _unary("cos", "cosine", "The cosine of x radians.")
tan = _unary("tan", "tan", "The tangent of x radians.")
asin = _unary("asin", "asin", "The arc sine, radians.")
acos = _unary("acos", "acos", "The arc cosine, radians.")
sinh = _unary("sinh", "sinh", "The hyperbolic sine.")
cosh = _unary("cosh", "cosh", "The hyperbolic cosine.")
asinh = _unary("asinh", "asinh", "The inverse hyperbolic sine.")
acosh = _unary("acosh", "acosh", "The inverse hyperbolic cosine.")
atanh = _unary("atanh", "atanh", "The inverse hyperbolic tangent.")
erf = _unary("erf", "erf", "The error function of a float.")
sqrt = _unary("sqrt", "sqrt", "The square root.")
rsqrt = _unary("rsqrt", "rsqrt", "1 / sqrt(x).")
cbrt = _unary("cbrt", "cbrt", "The cube root; of a negative float it is negative.")
floor = _unary("floor", "floor", "The largest whole number that is not above x.")
ceil = _unary("ceil", "ceil", "The smallest whole number that is not below x.")
is_finite = _unary("is_finite", "is-finite", "Neither infinite nor NaN, pred.")
bitwise_not = _unary("bitwise_not", "not", "~x of integers, `not` of pred.")
population_count = _unary("population_count", "popcnt", "The number of bits set, in the dtype of x.")
clz = _unary("clz", "count-leading-zeros", "The number of leading zero bits, in the dtype of x.")
real = _unary("real", "real", "The real part.")
imag = _unary("imag", "imag", "The imaginary part.")

eq = _comparison("eq", "EQ", "==")
ne = _comparison("ne", "NE", "!=")
lt = _comparison("lt", "LT", "<")
le = _comparison("le", "LE", "<=")
gt = _comparison("gt", "GT", ">")
ge = _comparison("ge", "GE", ">=")

# --- short compositions -------------------------------------------------------------------------------------------


class RoundingMethod:
    """How `round` treats halves, as in `jax.lax`."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(x, rounding_method: int = RoundingMethod.AWAY_FROM_ZERO):
    """x rounded to whole numbers, floats. Halves go away from zero, or to the even neighbour. Raises DTypeError."""
    x = as_operand(x, "round")
    opcode = "round-nearest-even" if rounding_method == RoundingMethod.TO_NEAREST_EVEN else "round-nearest-afz"
    return bind(opcode, x, weak=x.weak)


def square(x):
    """x * x, element-wise."""
    x = as_operand(x, "square")
    return bind("multiply", x, x, weak=x.weak)


def reciprocal(x):
    """1 / x, element-wise."""
    x = as_operand(x, "reciprocal")
    return bind("divide", full(1, x.dtype, x.shape), x, weak=x.weak)


def exp2(x, accuracy=None):
    """2 to the power x, floats and complex: exp(x log 2)."""
    x = as_operand(x, "exp2")
    return exp(mul(x, math.log(2.0)))


def conj(x):
    """The complex conjugate; floats become complex, as in `jax.lax.conj`. Raises DTypeError."""
    x = as_operand(x, "conj")
    if x.dtype not in COMPLEX:
        return complex(x, full(0.0, x.dtype, x.shape))
    return bind("complex", real(x), neg(imag(x)), weak=x.weak)


def integer_pow(x, y: int):
    """x to the power of a static integer y, by repeated squaring: at most 2 log2|y| multiplications.

    Raises ArgumentError where y is no Python integer, DTypeError for a negative power of integers.
    """
    x = as_operand(x, "integer_pow")
    if isinstance(y, bool) or not isinstance(y, int):
        raise ArgumentError("integer_pow takes a static integer y", f"{y!r:.80}", "use lax.pow for a computed exponent")
    if y < 0 and x.dtype in INTEGERS:
        raise DTypeError(
            "integers have no negative powers", f"{x._shape!r} to the power {y}", "convert to a float dtype first"
        )
    if y == 0:
        return full(1, x.dtype, x.shape)
    result, base, left = None, x, -y if y < 0 else y
    while True:
        if left & 1:
            result = base if result is None else mul(result, base)
        left >>= 1
        if not left:
            break
        base = mul(base, base)
    return reciprocal(result) if y < 0 else result


def select(pred, on_true, on_false):
    """on_true where pred, otherwise on_false. pred is a scalar or of their shape. Raises ShapeError, DTypeError."""
    pred = as_operand(pred, "select")
    (on_true, on_false), weak = like_arrays("select", (on_true, on_false))
    return bind("select", pred, on_true, on_false, weak=weak)


def clamp(min, x, max):
    """min(max(x, min), max). The bounds are scalars or of the shape of x, with its dtype. NaN stays.

    Raises ShapeError, DTypeError.
    """
    x = as_operand(x, "clamp")
    low, high = (constant(b, x.dtype) if type(b) in NUMBERS else as_operand(b, "clamp") for b in (min, max))
    return bind("clamp", low, x, high, weak=x.weak)


def convert_element_type(operand, new_dtype):
    """operand with another dtype. Floats to integers truncate and saturate, NaN gives 0. Raises DTypeError."""
    if isinstance(operand, NUMBERS):
        return constant(operand, as_dtype(new_dtype))
    return convert(as_operand(operand, "convert_element_type"), as_dtype(new_dtype))


def bitcast_convert_type(operand, new_dtype):
    """The bits of operand read as another dtype.

    A wider element becomes several along a new last dimension, and a last dimension of the right extent becomes one
    wider element. Raises ShapeError, DTypeError.
    """
    x, dtype = as_operand(operand, "bitcast_convert_type"), as_dtype(new_dtype)
    dims, old, new = x.shape, x.dtype.itemsize, dtype.itemsize
    if old > new:
        dims = (*dims, old // new)
    elif old < new:
        dims = dims[:-1]
    return bind("bitcast-convert", x, shape=Shape(dtype, dims))


def reduce_precision(operand, exponent_bits: int, mantissa_bits: int):
    """operand rounded to a float format of so many bits, in its own dtype. Raises AttributeValueError, DTypeError."""
    x = as_operand(operand, "reduce_precision")
    return bind("reduce-precision", x, weak=x.weak, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits)


def is_nan(x):
    """x is NaN, pred: the only value that differs from itself."""
    x = as_operand(x, "is_nan")
    return bind("compare", x, x, direction="NE")
