"""Comparison, logic, bits and selection."""

from __future__ import annotations

import math

import numpy as np

from hloom import lax
from hloom.arrays.base import ArrayMethods
from hloom.arrays.keys import KeyArray
from hloom.errors import ArgumentError, DTypeError
from hloom.ir.types import COMPLEX, DTYPES, FLOATS, INEXACT, INTEGERS, PRED
from hloom.lax.elementwise import is_nan
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    broadcast_shapes,
    conform,
    convert,
    full,
    inexact_dtype,
    limits,
    promote_operands,
    with_weakness,
)
from hloom.lax.table import docstring, documented
from hloom.numpy.elementwise.table import binary, refuse
from hloom.numpy.elementwise.ufuncs import in_order
from hloom.tracing.concrete import at_once, in_pieces
from hloom.tracing.trace import bind

# --- comparison ---------------------------------------------------------------------------------------------------


_MIRRORED = {"EQ": "EQ", "NE": "NE", "LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}


def _beyond(x1, x2, direction: str):
    """A comparison with a Python integer that is out of range for the other operand's dtype; None for other cases."""
    if type(x1) is int:
        x1, x2, direction = x2, x1, _MIRRORED[direction]
    if not hasattr(x1, "dtype") or x1.dtype not in INTEGERS:
        return None
    lowest, highest = limits(x1.dtype)
    if lowest <= x2 <= highest:
        return None
    return full(direction in (("NE", "GT", "GE") if x2 < lowest else ("NE", "LT", "LE")), PRED, tuple(x1.shape))


def _comparison(name: str, direction: str, sign: str, printed: str):
    ordered = direction not in ("EQ", "NE")

    def function(x1, x2, /):
        if isinstance(x1, ArrayMethods) and isinstance(x2, ArrayMethods) and x1._shape is x2._shape:
            weak = x1.weak and x2.weak
        elif isinstance(x1, KeyArray) and not ordered:
            return x1 == x2 if direction == "EQ" else x1 != x2
        else:
            if type(x1) is int or type(x2) is int:
                found = _beyond(x1, x2, direction)
                if found is not None:
                    return found
            (x1, x2), weak = promote_operands(name, (x1, x2))
        if ordered and x1._shape.dtype in COMPLEX:
            return in_order(x1, x2, direction)
        return bind("compare", x1, x2, weak=weak, direction=direction)

    text = f"x1 {sign} x2, pred.\n\nPromotes and broadcasts"
    text += "; complex numbers by their real parts, then by their imaginary ones" * ordered
    text += ". Raises ShapeError, DTypeError, ArgumentError."
    example = "{f}(hnp.array([1, 2, 3]), 2)", f"Array({printed}, dtype=bool)"
    return documented(function, name, docstring(text, example, f"hnp.{name}"))


equal = _comparison("equal", "EQ", "==", "[False,  True, False]")
not_equal = _comparison("not_equal", "NE", "!=", "[ True, False,  True]")
less = _comparison("less", "LT", "<", "[ True, False, False]")
less_equal = _comparison("less_equal", "LE", "<=", "[ True,  True, False]")
greater = _comparison("greater", "GT", ">", "[False, False,  True]")
greater_equal = _comparison("greater_equal", "GE", ">=", "[False,  True,  True]")


_REAL = (float, int, bool)


def _closeness(rtol, atol, equal_nan: bool):
    """The ops of `isclose` on NumPy arrays."""

    def is_close(a, b):
        tolerance = np.asarray(np.abs(b))
        tolerance *= tolerance.dtype.type(rtol)
        tolerance += tolerance.dtype.type(atol)
        close = np.abs(a - b) <= tolerance
        finite = np.isfinite(a) & np.isfinite(b)
        if rtol < 0 or atol < 0 or not finite.all():
            close = (finite & close) | (a == b)
        return close | (np.isnan(a) & np.isnan(b)) if equal_nan else close

    return is_close


def isclose(a, b, rtol=1e-5, atol=1e-8, equal_nan: bool = False):
    """|a - b| <= atol + rtol |b|, pred; equal values are close, including infinities. Raises ShapeError, DTypeError.

    >>> hnp.isclose(hnp.array([1.0, 2.0]), hnp.array([1.0, 2.1]))
    Array([ True, False], dtype=bool)
    """
    (a, b), _ = promote_operands("isclose", (a, b), inexact_dtype)
    if type(rtol) in _REAL and type(atol) in _REAL:
        found = at_once("isclose", lambda a, b: in_pieces(_closeness(rtol, atol, equal_nan), a, b), a, b)
        if found is not None:
            return found
    for tolerance in (rtol, atol):
        if (given := as_operand(tolerance, "isclose")).dtype in COMPLEX:
            raise DTypeError("isclose takes real tolerances", f"{given._shape!r}", "take the absolute value")
    real = lax.abs(b).dtype
    tolerance = lax.add(lax.mul(lax.abs(b), conform(rtol, real, b.shape)), conform(atol, real, b.shape))
    close = lax.le(lax.abs(lax.sub(a, b)), tolerance)
    finite = lax.bitwise_and(isfinite(a), isfinite(b))
    result = lax.bitwise_or(lax.bitwise_and(finite, close), lax.eq(a, b))
    if equal_nan:
        result = lax.bitwise_or(result, lax.bitwise_and(is_nan(a), is_nan(b)))
    return result


def allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan: bool = False):
    """Whether all elements are close (`isclose`), a pred scalar. Raises ShapeError, DTypeError.

    >>> hnp.allclose(hnp.array([1.0, 2.0]), hnp.array([1.0, 2.0 + 1e-7]))
    Array(True, dtype=bool)
    """
    return lax.reduce_and(isclose(a, b, rtol, atol, equal_nan), None)


def array_equal(a1, a2, equal_nan: bool = False):
    """Whether both have equal shapes and elements, a pred scalar.

    >>> hnp.array_equal(hnp.array([1, 2]), hnp.array([1, 3]))
    Array(False, dtype=bool)
    """
    a1, a2 = as_operand(a1, "array_equal"), as_operand(a2, "array_equal")
    if a1.shape != a2.shape:
        return full(False, PRED, ())
    same = equal(a1, a2)
    if equal_nan:
        same = lax.bitwise_or(same, lax.bitwise_and(isnan(a1), isnan(a2)))
    return lax.reduce_and(same, None)


def array_equiv(a1, a2):
    """Whether both broadcast to one shape and are equal there, a pred scalar.

    >>> hnp.array_equiv(hnp.array([1, 2]), hnp.array([[1, 2], [1, 2]]))
    Array(True, dtype=bool)
    """
    a1, a2 = as_operand(a1, "array_equiv"), as_operand(a2, "array_equiv")
    try:
        broadcast_shapes("array_equiv", [a1.shape, a2.shape])
    except ValueError:
        if a1._shape.is_open or a2._shape.is_open:  # one of the sizes may be 1
            raise
        return full(False, PRED, ())
    return lax.reduce_and(equal(a1, a2), None)


# --- classification -----------------------------------------------------------------------------------------------


def _on_parts(name: str, text: str, function, others: bool, join, eager, printed: str):
    """A test of floats; for complex numbers the tests of both parts are combined, for other dtypes the result is
    `others`."""

    def test(x, /):
        x = as_operand(x, name)
        if (x.dtype in COMPLEX or x.dtype in FLOATS) and (found := at_once(name, eager, x, weak=x.weak)) is not None:
            return found
        if x.dtype in COMPLEX:
            result = join(function(lax.real(x)), function(lax.imag(x)))
        else:
            result = function(x) if x.dtype in FLOATS else full(others, PRED, x.shape)
        return with_weakness(result, True) if x.weak and name == "isnan" else result

    example = "{f}(hnp.array([1.0, hnp.nan, hnp.inf]))", f"Array({printed}, dtype=bool)"
    return documented(test, name, docstring(f"{text} pred, element-wise.", example, f"hnp.{name}"))


isfinite = _on_parts(
    "isfinite", "Neither infinite nor NaN,", lax.is_finite, True, lax.bitwise_and, np.isfinite, "[ True, False, False]"
)
isnan = _on_parts("isnan", "NaN,", is_nan, False, lax.bitwise_or, np.isnan, "[False,  True, False]")
isinf = _on_parts(
    "isinf",
    "Infinite,",
    lambda x: lax.eq(lax.abs(x), math.inf),
    False,
    lax.bitwise_or,
    np.isinf,
    "[False, False,  True]",
)


def isposinf(x, /):
    """Positive infinity, pred, element-wise. Raises DTypeError for complex x.

    >>> hnp.isposinf(hnp.array([hnp.inf, -hnp.inf]))
    Array([ True, False], dtype=bool)
    """
    return _is_infinity("isposinf", x, math.inf)


def isneginf(x, /):
    """Negative infinity, pred, element-wise. Raises DTypeError for complex x.

    >>> hnp.isneginf(hnp.array([1.0, -hnp.inf]))
    Array([False,  True], dtype=bool)
    """
    return _is_infinity("isneginf", x, -math.inf)


def _is_infinity(name, x, value):
    x = as_operand(x, name)
    if x.dtype in COMPLEX:
        raise refuse(name, x, "take the real or the imaginary part")
    return lax.eq(x, value) if x.dtype in FLOATS else full(False, PRED, x.shape)


def isreal(x):
    """No imaginary part, pred, element-wise.

    >>> hnp.isreal(hnp.array([1 + 0j, 1 + 2j]))
    Array([ True, False], dtype=bool)
    """
    x = as_operand(x, "isreal")
    return lax.eq(lax.imag(x), 0.0) if x.dtype in COMPLEX else full(True, PRED, x.shape)


def iscomplex(x):
    """An imaginary part other than 0, pred, element-wise.

    >>> hnp.iscomplex(hnp.array([1 + 0j, 1 + 2j]))
    Array([False,  True], dtype=bool)
    """
    return lax.bitwise_not(isreal(x))


def isrealobj(x) -> bool:
    """Whether the dtype is not complex."""
    dtype = getattr(x, "dtype", None)
    return (as_operand(x, "isrealobj").dtype if dtype is None else dtype) not in COMPLEX


def iscomplexobj(x) -> bool:
    """Whether the dtype is complex.

    >>> hnp.iscomplexobj(hnp.array([1 + 0j]))
    True
    """
    return not isrealobj(x)


def isscalar(element) -> bool:
    """Whether element is a number or an array of rank 0.

    >>> hnp.isscalar(3.0), hnp.isscalar(hnp.array([3.0]))
    (True, False)
    """
    return element.ndim == 0 if hasattr(element, "ndim") else isinstance(element, (bool, int, float, complex))


# --- truth --------------------------------------------------------------------------------------------------------


def truth(x):
    """x as pred: other than 0. NaN is true, as in NumPy."""
    return x if x.dtype == PRED else lax.ne(x, 0)


def _logical(name: str, opcode: str, text: str, printed: str):
    def function(x1, x2, /):
        x1, x2 = (truth(as_operand(x, name)) for x in (x1, x2))
        (x1, x2), _ = promote_operands(name, (x1, x2))
        return bind(opcode, x1, x2)

    text = f"{text} of truth values, pred. Broadcasts. Raises ShapeError."
    example = "{f}(hnp.array([0, 1, 2]), hnp.array([1, 0, 3]))", f"Array({printed}, dtype=bool)"
    return documented(function, name, docstring(text, example, f"hnp.{name}"))


logical_and = _logical("logical_and", "and", "`and`", "[False, False,  True]")
logical_or = _logical("logical_or", "or", "`or`", "[ True,  True,  True]")
logical_xor = _logical("logical_xor", "xor", "Exclusive `or`", "[ True,  True, False]")


def logical_not(x, /):
    """`not` of truth values, pred, element-wise.

    >>> hnp.logical_not(hnp.array([0, 2]))
    Array([ True, False], dtype=bool)
    """
    return lax.bitwise_not(truth(as_operand(x, "logical_not")))


# --- bits ---------------------------------------------------------------------------------------------------------


def _number(dtype):
    return DTYPES["s32"] if dtype == PRED else dtype


left_shift = binary("left_shift", "shift-left", "x1 << x2 of integers.", _number, INEXACT)


def right_shift(x1, x2, /):
    """x1 >> x2 of integers; the sign is shifted in for signed x1. Promotes and broadcasts.

    Raises ShapeError, DTypeError.
    """
    (x1, x2), weak = promote_operands("right_shift", (x1, x2), _number)
    if x1.dtype not in INTEGERS:
        raise refuse("right_shift", x1, "convert the operands to integers")
    opcode = "shift-right-logical" if x1.dtype.kind == "u" else "shift-right-arithmetic"
    return bind(opcode, x1, x2, weak=weak)


def bitwise_count(x, /):
    """The number of bits set in |x|, u8, element-wise. Raises DTypeError.

    >>> hnp.bitwise_count(hnp.array([7, 8]))
    Array([3, 1], dtype=uint8)
    """
    x = as_operand(x, "bitwise_count")
    if x.dtype == PRED:
        return convert(x, DTYPES["u8"])
    if x.dtype not in INTEGERS:
        raise refuse("bitwise_count", x, "convert the operand to integers")
    return convert(lax.population_count(lax.abs(x) if x.dtype.kind == "i" else x), DTYPES["u8"])


bitwise_left_shift, bitwise_right_shift = left_shift, right_shift

# --- selection ----------------------------------------------------------------------------------------------------


def where(condition, x, y):
    """x where condition is true (not 0), otherwise y. All three broadcast, x and y promote. Raises ShapeError,
    DTypeError, ArgumentError. `hnp.where` accepts a condition alone too."""
    if not (isinstance(condition, ArrayMethods) and condition._shape.dtype == PRED):
        condition = truth(as_operand(condition, "where"))
    (x, y), weak = promote_operands("where", (x, y), broadcast=False)
    dims = x._shape.dims
    if y._shape.dims != dims or (condition._shape.dims != dims and condition._shape.dims):
        dims = broadcast_shapes("where", [condition.shape, x.shape, y.shape])
        x, y = broadcast_dims_to(x, dims), broadcast_dims_to(y, dims)
    if condition._shape.dims:
        condition = broadcast_dims_to(condition, dims)
    return bind("select", condition, x, y, weak=weak)


def select(condlist, choicelist, default=0):
    """For each element the choice of the first true condition, or default. Raises ShapeError, DTypeError.

    >>> x = hnp.arange(6)
    >>> hnp.select([x < 2, x > 3], [x, 10 * x], default=-1)
    Array([ 0,  1, -1, -1, 40, 50], dtype=int32)
    """
    if not condlist or len(condlist) != len(choicelist):
        raise ArgumentError(
            "select takes as many choices as conditions, at least one",
            f"{len(condlist)} conditions and {len(choicelist)} choices",
            "pass lists of one length",
        )
    result = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        result = where(condition, choice, result)
    return result
