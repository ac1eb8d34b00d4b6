"""Arithmetic, exponentials and trigonometry that take more than one op (`hloom.numpy.elementwise.table` has the
others)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hloom import lax
from hloom.arrays.base import ArrayMethods
from hloom.ir.types import COMPLEX, DTYPES, FLOATS, INEXACT, INTEGERS, PRED, bit_width
from hloom.lax.elementwise import is_nan
from hloom.lax.operands import as_operand, convert, default_int, full, inexact_dtype, promote_operands, to_inexact
from hloom.numpy.elementwise.table import binary, refuse, unary, weakly
from hloom.tracing.concrete import at_once, in_pieces
from hloom.tracing.trace import bind
from hloom.transforms.custom_derivatives import custom_jvp

# --- arithmetic ---------------------------------------------------------------------------------------------------

true_divide = binary(
    "true_divide",
    "divide",
    "x1 / x2; integers become floats.",
    inexact_dtype,
    example=("{f}(hnp.array([7, 9]), 2)", "Array([3.5, 4.5], dtype=float32)"),
)
divide = true_divide


def in_order(x, y, direction: str):
    """x < y ('LT', or 'LE', 'GT', 'GE') of complex numbers: by real parts, then by imaginary ones, as in NumPy."""
    parts = lax.real(x), lax.real(y), lax.imag(x), lax.imag(y)
    strict = bind("compare", *parts[:2], direction=direction[0] + "T")
    tied = bind("compare", *parts[2:], direction=direction)
    return lax.bitwise_or(strict, lax.bitwise_and(lax.eq(*parts[:2]), tied))


def _complex_extreme(direction: str):
    def extreme(x1, x2):
        first = lax.bitwise_or(in_order(x1, x2, direction), lax.ne(x1, x1))
        return lax.select(lax.bitwise_and(first, lax.eq(x2, x2)), x1, x2)

    return extreme


def _extreme(name: str, which: str, direction: str, printed: str):
    text = f"The {which} of x1 and x2; NaN where one is NaN. Complex numbers are in the order of `less`."
    example = "{f}(hnp.array([1, 5, 3]), 2)", printed
    instead = _complex_extreme(direction)
    return binary(name, name, text, refused=COMPLEX, instead=instead, example=example)


maximum = _extreme("maximum", "larger", "GE", "Array([2, 5, 3], dtype=int32)")
minimum = _extreme("minimum", "smaller", "LE", "Array([1, 2, 2], dtype=int32)")

_abs = unary("absolute", "abs", "The absolute value; real for complex x.", inexact=False)


def positive(x, /):
    """+x: x itself. Raises ArgumentError."""
    return as_operand(x, "positive")


def absolute(x, /):
    """The absolute value, element-wise; real for complex x, booleans as they are. Raises ArgumentError.

    >>> hnp.abs(hnp.array([-1.5, 2.0]))
    Array([1.5, 2. ], dtype=float32)
    >>> hnp.abs(hnp.array([3 + 4j]))
    Array([5.], dtype=float32)
    """
    x = as_operand(x, "absolute")
    return x if x.dtype == PRED or x.dtype.kind == "u" else _abs(x)


abs = absolute


def fabs(x, /):
    """The absolute value as a float, element-wise. Raises DTypeError for complex x.

    >>> hnp.fabs(hnp.array([-2, 3]))
    Array([2., 3.], dtype=float32)
    """
    return real_function("fabs", x, absolute)


def sign(x, /):
    """-1, 0 or 1 by the sign, element-wise; x / |x| for complex x; NaN for NaN. Raises DTypeError for booleans.

    >>> hnp.sign(hnp.array([-2.0, 0.0, 3.0]))
    Array([-1.,  0.,  1.], dtype=float32)
    """
    x = as_operand(x, "sign")
    if x.dtype == PRED:
        raise refuse("sign", x, "convert the operand with astype")
    if x.dtype not in INEXACT:
        return lax.sign(x)
    if x.dtype not in COMPLEX and (found := at_once("sign", np.sign, x, weak=x.weak)) is not None:
        return found
    # The sign of -0.0 is 0.0, as in NumPy.
    zero = full(0, x.dtype, x.shape)
    result = _complex_sign(x) if x.dtype in COMPLEX else lax.sign(x)
    return weakly(lax.select(lax.eq(x, zero), zero, result), x.weak)


def _complex_sign(x):
    """x / |x|; the unit along the infinite part where one part is infinite."""
    parts = [lax.real(x), lax.imag(x)]
    infinite = [lax.eq(lax.abs(p), math.inf) for p in parts]
    one = lax.bitwise_xor(*infinite)
    zero = full(0, parts[0].dtype, x.shape)
    units = [lax.select(unbounded, lax.sign(p), zero) for p, unbounded in zip(parts, infinite, strict=True)]
    return lax.select(one, lax.complex(*units), lax.sign(x))


def square(x, /):
    """x * x, element-wise; booleans count as integers.

    >>> hnp.square(hnp.array([-3, 2]))
    Array([9, 4], dtype=int32)
    """
    x = as_operand(x, "square")
    if x.dtype == PRED:
        x = convert(x, default_int())
    return bind("multiply", x, x, weak=x.weak)


def reciprocal(x, /):
    """1 / x as a float, element-wise.

    >>> hnp.reciprocal(hnp.array([4.0, 0.5]))
    Array([0.25, 2.  ], dtype=float32)
    """
    return true_divide(1, x)


def _root(x):
    """x to the power 0.5: not the square root for -inf and -0."""
    root = at_once("power", lambda v: in_pieces(_eager_root, v), x)
    if root is not None:
        return root
    root = lax.add(lax.sqrt(x), 0.0)
    return lax.select(lax.eq(x, -math.inf), full(math.inf, x.dtype, x.shape), root)


def _eager_root(x: np.ndarray) -> np.ndarray:
    root = np.asarray(np.sqrt(x))
    root += 0
    np.copyto(root, np.inf, where=x == -np.inf)
    return root


def power(x1, x2, /):
    """x1 to the power x2, element-wise.

    A small Python integer x2 uses multiplications, whose derivative is simple, and 0.5 a square root. Integer powers of
    integers are integers; negative static exponents are rejected for them. Raises ShapeError, DTypeError.

    >>> hnp.power(hnp.array([2, 3]), 3)
    Array([ 8, 27], dtype=int32)
    """
    if type(x2) is int and not isinstance(x1, (bool, int, float, complex)) and -64 <= x2 <= 64:
        x1 = as_operand(x1, "power")
        if x1.dtype == PRED:
            x1 = convert(x1, DTYPES["s32"])
        return lax.integer_pow(x1, x2)
    if type(x2) is float and isinstance(x1, ArrayMethods) and x1.dtype in FLOATS and not x1.weak:
        if x2 == 0.5:
            return _root(x1)
        if x2 in (2.0, -1.0):
            return lax.integer_pow(x1, int(x2))
    (x1, x2), weak = promote_operands("power", (x1, x2), lambda d: DTYPES["s32"] if d == PRED else d)
    return bind("power", x1, x2, weak=weak)


pow = power


def float_power(x1, x2, /):
    """x1 to the power x2 as floats, element-wise. Raises ShapeError, DTypeError.

    >>> hnp.float_power(hnp.array([2, 4]), 2)
    Array([ 4., 16.], dtype=float32)
    """
    (x1, x2), weak = promote_operands("float_power", (x1, x2), inexact_dtype)
    return bind("power", x1, x2, weak=weak)


def signbit(x, /):
    """Whether the sign bit is set (true for -0.0), pred, element-wise. Raises DTypeError for complex x.

    >>> hnp.signbit(hnp.array([-0.0, 1.0]))
    Array([ True, False], dtype=bool)
    """
    x = as_operand(x, "signbit")
    if x.dtype in COMPLEX:
        raise refuse("signbit", x, "take the real part")
    if x.dtype in FLOATS:
        if (found := at_once("signbit", np.signbit, x)) is not None:
            return found
        x = lax.bitcast_convert_type(x, f"s{bit_width(x.dtype)}")
    elif x.dtype == PRED or x.dtype.kind == "u":
        return full(False, PRED, x.shape)
    return lax.lt(x, 0)


def with_sign(x, y):
    if (found := at_once("copysign", np.copysign, x, y)) is not None:
        return found
    size = lax.abs(x)
    return lax.select(signbit(y), lax.neg(size), size)


def _nonzero_divisor(y):
    """(y with zeros replaced by one, mask of the zeros)."""
    zero = lax.eq(y, 0)
    return lax.select(zero, full(1, y.dtype, y.shape), y), zero


def _opposite(a, b):
    return lax.ne(lax.lt(a, 0), lax.lt(b, 0))


def _integer_divmod(x, y):
    """Python's quotient and remainder, each 0 where y is 0, as in NumPy."""
    safe, zero = _nonzero_divisor(y)
    quotient, rest = lax.div(x, safe), lax.rem(x, safe)
    if x.dtype.kind == "i" or x.dtype == DTYPES["s4"]:
        adjust = lax.bitwise_and(lax.ne(rest, 0), _opposite(rest, y))
        quotient = lax.select(adjust, lax.sub(quotient, 1), quotient)
        rest = lax.select(adjust, lax.add(rest, y), rest)
    nothing = full(0, x.dtype, x.shape)
    return lax.select(zero, nothing, quotient), lax.select(zero, nothing, rest)


def _float_remainder(x, y):
    rest = lax.rem(x, y)
    adjust = lax.bitwise_and(lax.ne(rest, 0), _opposite(rest, y))
    rest = lax.select(adjust, lax.add(rest, y), rest)
    # A zero remainder has the sign of y; NaN is not equal to 0 and is preserved.
    return lax.select(lax.eq(rest, 0), with_sign(full(0.0, x.dtype, x.shape), y), rest)


def _float_floor_divide(x, y):
    """As in NumPy: the quotient of x - x % y, which is nearly an integer, rounded; x / y where y is 0."""
    rest = lax.rem(x, y)
    quotient = lax.div(lax.sub(x, rest), y)
    adjust = lax.bitwise_and(lax.ne(rest, 0), _opposite(rest, y))
    quotient = lax.select(adjust, lax.sub(quotient, 1.0), quotient)
    whole = lax.floor(quotient)
    whole = lax.select(lax.gt(lax.sub(quotient, whole), 0.5), lax.add(whole, 1.0), whole)
    ratio = lax.div(x, y)
    whole = lax.select(lax.eq(quotient, 0), with_sign(full(0.0, x.dtype, x.shape), ratio), whole)
    return lax.select(lax.eq(y, 0), ratio, whole)


def _divided(name, x1, x2, eager: Callable, of_integers: Callable, of_floats: Callable):
    """A division, by a function of NumPy arrays, or by ops of integers or floats."""
    (x1, x2), weak = promote_operands(name, (x1, x2), lambda d: DTYPES["s32"] if d == PRED else d)
    if x1.dtype in COMPLEX:
        raise refuse(name, x1, "divide, and round the real and imaginary parts")
    if (found := at_once(name, eager, x1, x2, weak=weak)) is not None:
        return found
    result = of_integers(x1, x2) if x1.dtype in INTEGERS else of_floats(x1, x2)
    return tuple(weakly(r, weak) for r in result) if isinstance(result, tuple) else weakly(result, weak)


def floor_divide(x1, x2, /):
    """The quotient rounded down, element-wise. Integer division by zero is 0, as in NumPy.

    Raises ShapeError, DTypeError for complex operands.

    >>> hnp.floor_divide(hnp.array([7, -7]), 2)
    Array([ 3, -4], dtype=int32)
    """
    return _divided("floor_divide", x1, x2, np.floor_divide, lambda x, y: _integer_divmod(x, y)[0], _float_floor_divide)


def remainder(x1, x2, /):
    """The remainder with the sign of x2 (Python's %), element-wise. Integers modulo zero are 0, as in NumPy.

    Raises ShapeError, DTypeError for complex operands.

    >>> hnp.mod(hnp.array([7, -7]), 3)
    Array([1, 2], dtype=int32)
    """
    return _divided("remainder", x1, x2, np.remainder, lambda x, y: _integer_divmod(x, y)[1], _float_remainder)


mod = remainder


def divmod(x1, x2, /):
    """(floor_divide(x1, x2), remainder(x1, x2)).

    >>> hnp.divmod(hnp.array([7, -7]), 3)
    (Array([ 2, -3], dtype=int32), Array([1, 2], dtype=int32))
    """
    return _divided(
        "divmod", x1, x2, np.divmod, _integer_divmod, lambda x, y: (_float_floor_divide(x, y), _float_remainder(x, y))
    )


def fmod(x1, x2, /):
    """The remainder with the sign of x1 (C's), element-wise. Integers modulo zero are 0, as in NumPy.

    Raises ShapeError, DTypeError for complex operands.

    >>> hnp.fmod(hnp.array([7.5, -7.5]), 2.0)
    Array([ 1.5, -1.5], dtype=float32)
    """
    return _divided("fmod", x1, x2, np.fmod, _integer_fmod, lax.rem)


def _integer_fmod(x, y):
    safe, zero = _nonzero_divisor(y)
    return lax.select(zero, full(0, x.dtype, x.shape), lax.rem(x, safe))


# --- exponentials, logarithms, roots ------------------------------------------------------------------------------

_expm1 = unary("expm1", "exponential-minus-one", "exp(x) - 1, exact near 0.")


def expm1(x, /):
    """exp(x) - 1, exact near 0, element-wise. Integers become floats.

    >>> hnp.expm1(hnp.array([0.0, 1.0])).round(3)
    Array([0.   , 1.718], dtype=float32)
    """
    if isinstance(x, ArrayMethods) and x._shape.dtype in COMPLEX:
        return weakly(_complex_expm1(x), x.weak)
    return _expm1(x)


def _complex_expm1(x):
    """exp(a + ib) - 1 = (expm1(a) cos b - 2 sin(b/2)^2) + i exp(a) sin b, with the limits of the Array API standard."""
    a, b = lax.real(x), lax.imag(x)
    half = lax.sin(lax.mul(b, 0.5))
    one = lax.expm1(a)
    real = lax.sub(lax.mul(one, lax.cos(b)), lax.mul(lax.mul(half, half), 2.0))
    imaginary = lax.mul(lax.exp(a), lax.sin(b))
    constants = {v: full(v, a.dtype, a.shape) for v in (-1.0, math.inf, math.nan)}
    zero = full(0.0, a.dtype, a.shape)
    unbounded = lax.bitwise_not(lax.is_finite(b))
    high, low = (lax.bitwise_and(unbounded, lax.eq(a, v)) for v in (math.inf, -math.inf))
    plain = lax.eq(b, 0.0)
    exact = lax.select(lax.eq(a, 0.0), zero, one)  # 0 for -0 too
    real = lax.select(high, constants[math.inf], lax.select(low, constants[-1.0], lax.select(plain, exact, real)))
    imaginary = lax.select(high, constants[math.nan], lax.select(low, zero, lax.select(plain, b, imaginary)))
    return lax.complex(real, imaginary)


def exp2(x, /):
    """2 to the power x, element-wise: power(2, x), exact for integer x. Integers become floats.

    >>> hnp.exp2(hnp.array([0.0, 3.0, -1.0]))
    Array([1. , 8. , 0.5], dtype=float32)
    """
    x = to_inexact(x, "exp2")
    if x.dtype in COMPLEX:
        return weakly(_complex_exp2(x), x.weak)
    return bind("power", full(2, x.dtype, x.shape), x, weak=x.weak)


def _complex_exp2(x):
    """2^a (cos(b log 2) + i sin(b log 2)); for infinite parts as `exp`."""
    a, b = lax.real(x), lax.imag(x)
    size, angle, plain = exp2(a), lax.mul(b, math.log(2.0)), lax.eq(b, 0.0)
    high = lax.bitwise_and(lax.eq(a, math.inf), lax.bitwise_not(lax.is_finite(b)))
    real = lax.select(lax.bitwise_or(plain, high), size, lax.mul(size, lax.cos(angle)))
    return lax.complex(real, lax.select(plain, b, lax.mul(size, lax.sin(angle))))


def _log_of_base(x, base: int):
    """In double precision exact for powers of the base; others are log(x) / log(base). A complex quotient would turn
    parts next to an infinite one into NaN."""
    if x.dtype == np.float64:
        return bind(f"log{base}", x, weak=x.weak)
    y, scale = lax.log(x), math.log(base)
    if x.dtype in COMPLEX:
        return lax.complex(lax.div(lax.real(y), scale), lax.div(lax.imag(y), scale))
    return lax.div(y, scale)


def log2(x, /):
    """The logarithm of base 2, element-wise. Integers become floats.

    >>> hnp.log2(hnp.array([1.0, 8.0]))
    Array([0., 3.], dtype=float32)
    """
    x = to_inexact(x, "log2")
    return _log_of_base(x, 2)


def log10(x, /):
    """The logarithm of base 10, element-wise. Integers become floats.

    >>> hnp.log10(hnp.array([1.0, 100.0])).round(3)
    Array([0., 2.], dtype=float32)
    """
    x = to_inexact(x, "log10")
    return _log_of_base(x, 10)


def logaddexp(x1, x2, /):
    """log(exp(x1) + exp(x2)) without overflow, element-wise; floats. Raises ShapeError, DTypeError.

    >>> hnp.logaddexp(hnp.array([-1000.0, -500.0]), hnp.array([-1000.0, 0.0])).round(2)
    Array([-999.31,    0.  ], dtype=float32)
    """
    (a, b), weak = promote_operands("logaddexp", (x1, x2), inexact_dtype)
    if a.dtype in COMPLEX:
        raise refuse("logaddexp", a, "take the real parts, or write log(exp(x1) + exp(x2))")
    return weakly(_log_add_exp(a, b), weak)


def logaddexp2(x1, x2, /):
    """log2(2**x1 + 2**x2) without overflow, element-wise; floats. Raises ShapeError, DTypeError.

    >>> hnp.logaddexp2(hnp.array([3.0]), hnp.array([3.0]))
    Array([4.], dtype=float32)
    """
    (a, b), weak = promote_operands("logaddexp2", (x1, x2), inexact_dtype)
    if a.dtype in COMPLEX:
        raise refuse("logaddexp2", a, "take the real parts")
    return weakly(_log_add_exp2(a, b), weak)


def _log_add(base: float, exp, log1p):
    """log_base(base^a + base^b) with an explicit derivative, the logistic function of the difference.

    The formula with |a - b| would lose the second derivative where the operands are equal.
    """

    @custom_jvp
    def log_add(a, b):
        difference = lax.sub(a, b)
        larger = lax.max(a, b)
        # The difference of equal infinities is NaN; their sum is the result.
        ordinary = lax.add(larger, log1p(exp(lax.neg(lax.abs(difference)))))
        return lax.select(is_nan(difference), lax.add(a, b), ordinary)

    @log_add.defjvp
    def tangent(primals, tangents):
        a, b = primals
        difference = lax.sub(a, b)
        difference = lax.select(is_nan(difference), lax.full_like(difference, 0), difference)
        share = lax.logistic(lax.mul(difference, math.log(base)))
        rest = lax.logistic(lax.mul(difference, -math.log(base)))
        return log_add(a, b), lax.add(lax.mul(tangents[0], share), lax.mul(tangents[1], rest))

    return log_add


_log_add_exp = _log_add(math.e, lax.exp, lax.log1p)
_log_add_exp2 = _log_add(2.0, lax.exp2, lambda t: lax.div(lax.log1p(t), math.log(2.0)))


# --- trigonometry -------------------------------------------------------------------------------------------------


def real_function(name: str, x, function):
    x = to_inexact(x, name)
    if x.dtype in COMPLEX:
        raise refuse(name, x, "take the real or the imaginary part")
    return function(x)


def deg2rad(x, /):
    """Degrees to radians, element-wise; floats.

    >>> hnp.deg2rad(hnp.array([0.0, 180.0])).round(3)
    Array([0.   , 3.142], dtype=float32)
    """
    return lax.mul(to_inexact(x, "deg2rad"), math.pi / 180)


def rad2deg(x, /):
    """Radians to degrees, element-wise; floats.

    >>> hnp.rad2deg(hnp.array([0.0, hnp.pi])).round(3)
    Array([  0., 180.], dtype=float32)
    """
    return lax.mul(to_inexact(x, "rad2deg"), 180 / math.pi)


radians, degrees = deg2rad, rad2deg


def hypot(x1, x2, /):
    """sqrt(x1^2 + x2^2) without overflow, element-wise; floats. Infinite where one is infinite.

    Raises ShapeError, DTypeError.

    >>> hnp.hypot(hnp.array([3.0, 5.0]), hnp.array([4.0, 12.0]))
    Array([ 5., 13.], dtype=float32)
    """
    (a, b), weak = promote_operands("hypot", (x1, x2), inexact_dtype)
    if a.dtype in COMPLEX:
        raise refuse("hypot", a, "take absolute values first")
    if (found := at_once("hypot", lambda a, b: in_pieces(_hypot, a, b), a, b, weak=weak)) is not None:
        return found
    a, b = lax.abs(a), lax.abs(b)
    larger, smaller = lax.max(a, b), lax.min(a, b)
    none = lax.eq(larger, 0)
    ratio = lax.div(smaller, lax.select(none, full(1, a.dtype, a.shape), larger))
    result = lax.mul(larger, lax.sqrt(lax.add(lax.mul(ratio, ratio), 1.0)))
    result = lax.select(none, larger, result)
    infinite = lax.bitwise_or(lax.eq(a, math.inf), lax.eq(b, math.inf))
    return weakly(lax.select(infinite, full(math.inf, a.dtype, a.shape), result), weak)


def _hypot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The ops of `hypot` on NumPy arrays."""
    a, b = np.abs(a), np.abs(b)
    larger, smaller = np.maximum(a, b), np.minimum(a, b)
    ratio = np.asarray(smaller / np.where(larger == 0, 1, larger))
    ratio *= ratio
    ratio += 1
    result = np.sqrt(ratio, out=ratio)
    result *= larger
    np.copyto(result, np.inf, where=np.isinf(a) | np.isinf(b))
    return result


def sinc(x, /):
    """sin(pi x) / (pi x), 1 at 0, element-wise; floats and complex numbers.

    >>> hnp.sinc(hnp.array([0.0, 0.5])).round(3)
    Array([1.   , 0.637], dtype=float32)
    """

    def quotient(x):
        zero = lax.eq(x, 0)
        angle = lax.mul(lax.select(zero, lax.full_like(x, 1), x), math.pi)
        # At 0 the series, which has the derivatives of the function there.
        square = lax.mul(lax.mul(x, math.pi), lax.mul(x, math.pi))
        series = lax.full_like(x, 1 / 6227020800)
        for divisor in (-39916800, 362880, -5040, 120, -6, 1):
            series = lax.add(lax.mul(series, square), 1 / divisor)
        return lax.select(zero, series, lax.div(lax.sin(angle), angle))

    return quotient(to_inexact(x, "sinc"))


def heaviside(x1, x2, /):
    """0 where x1 < 0, x2 where x1 == 0, 1 where x1 > 0, NaN where it is NaN; floats. Raises ShapeError, DTypeError.

    >>> hnp.heaviside(hnp.array([-1.0, 0.0, 2.0]), 0.5)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    (x, at_zero), _ = promote_operands("heaviside", (x1, x2), inexact_dtype)
    if x.dtype in COMPLEX:
        raise refuse("heaviside", x, "take the real part")
    if (found := at_once("heaviside", np.heaviside, x, at_zero)) is not None:
        return found
    step = lax.select(lax.gt(x, 0.0), full(1, x.dtype, x.shape), full(0, x.dtype, x.shape))
    return lax.select(lax.eq(x, 0.0), at_zero, lax.select(is_nan(x), x, step))


def i0(x, /):
    """The modified Bessel function of order 0, element-wise; floats. Raises DTypeError for complex x.

    >>> hnp.i0(hnp.array([0.0, 1.0])).round(3)
    Array([1.   , 1.266], dtype=float32)
    """
    return real_function("i0", x, lambda x: lax.mul(lax.exp(lax.abs(x)), lax.bessel_i0e(x)))
