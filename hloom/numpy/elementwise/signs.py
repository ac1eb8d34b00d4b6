"""Rounding, signs, the parts of complex numbers, and limits, element-wise."""

from __future__ import annotations

import builtins
import math

import numpy as np

from hloom import lax
from hloom.arrays.base import ArrayMethods
from hloom.ir.types import COMPLEX, DTYPES, FLOATS, INEXACT, INTEGERS, PRED, SIGNED
from hloom.lax.elementwise import is_nan
from hloom.lax.operands import (
    NUMBERS,
    as_operand,
    conform,
    convert,
    full,
    inexact_dtype,
    limits,
    promote_operands,
    read,
    to_inexact,
    whole_number,
    with_weakness,
)
from hloom.lax.table import docstring, documented
from hloom.numpy.dtypes import finfo
from hloom.numpy.elementwise.table import refuse, weakly
from hloom.numpy.elementwise.ufuncs import maximum, minimum, rad2deg, real_function, with_sign
from hloom.tracing.concrete import at_once
from hloom.tracing.trace import bind

# --- rounding -----------------------------------------------------------------------------------------------------


def _rounding(name: str, function, text: str, printed: str):
    def rounded(x, /):
        x = as_operand(x, name)
        if x.dtype in INTEGERS or x.dtype == PRED:
            return x
        if x.dtype in COMPLEX:
            raise refuse(name, x, "round the real and imaginary parts")
        return function(x)

    text += " Element-wise; integers stay as they are. Raises DTypeError."
    example = "{f}(hnp.array([-1.5, 2.7]))", f"Array({printed}, dtype=float32)"
    return documented(rounded, name, docstring(text, example, f"hnp.{name}"))


def _truncate(x):
    if (found := at_once("trunc", np.trunc, x, weak=x.weak)) is not None:
        return found
    return lax.select(lax.lt(x, 0.0), lax.ceil(x), lax.floor(x))


floor = _rounding("floor", lax.floor, "The largest integer that is not above x.", "[-2.,  2.]")
ceil = _rounding("ceil", lax.ceil, "The smallest integer that is not below x.", "[-1.,  3.]")
trunc = fix = _rounding("trunc", _truncate, "x without its fraction.", "[-1.,  2.]")


def rint(x, /):
    """The nearest integer, halves to even, element-wise; integers become floats.

    >>> hnp.rint(hnp.array([0.5, 1.5, -1.2]))
    Array([ 0.,  2., -1.], dtype=float32)
    """
    return round(to_inexact(x, "rint"))


def round(a, decimals: int = 0, out=None):
    """a rounded to a number of decimals, halves to even, element-wise. Integers stay integers.

    >>> hnp.round(hnp.array([0.5, 1.5, 2.675]), 2)
    Array([0.5 , 1.5 , 2.68], dtype=float32)
    """
    x, decimals = as_operand(a, "round"), whole_number(decimals, "round", "decimals")
    if x.dtype in COMPLEX:
        return lax.complex(round(lax.real(x), decimals), round(lax.imag(x), decimals))
    even = lax.RoundingMethod.TO_NEAREST_EVEN
    if x.dtype in INTEGERS or x.dtype == PRED:
        if decimals >= 0:
            return x
        return convert(round(convert(x, DTYPES["f64"]), decimals), x.dtype, x.weak)
    if decimals == 0:
        return lax.round(x, even)
    found = at_once("round", lambda v: np.round(v, decimals), x, weak=x.weak)
    if found is not None:
        return found
    size = builtins.abs(decimals)
    scale = 10.0**size if size <= 308 else math.inf
    if decimals > 0:
        return lax.div(lax.round(lax.mul(x, scale), even), scale)
    return lax.mul(lax.round(lax.div(x, scale), even), scale)


around = round


def modf(x, /):
    """(the fraction, the whole part), both with the sign of x; floats. Raises DTypeError for complex x.

    >>> hnp.modf(hnp.array([3.5, -1.25]))
    (Array([ 0.5 , -0.25], dtype=float32), Array([ 3., -1.], dtype=float32))
    """

    def parts(x):
        if (found := at_once("modf", np.modf, x, weak=x.weak)) is not None:
            return found
        whole = _truncate(x)
        infinite = lax.eq(lax.abs(x), math.inf)
        fraction = lax.select(infinite, full(0.0, x.dtype, x.shape), lax.sub(x, whole))
        return with_weakness(with_sign(fraction, x), x.weak), whole

    return real_function("modf", x, parts)


# --- signs, complex parts, numbers --------------------------------------------------------------------------------


def copysign(x1, x2, /):
    """|x1| with the sign of x2, element-wise; floats. Raises ShapeError, DTypeError.

    >>> hnp.copysign(hnp.array([1.0, 2.0]), hnp.array([-0.0, 3.0]))
    Array([-1.,  2.], dtype=float32)
    """
    (x1, x2), weak = promote_operands("copysign", (x1, x2), inexact_dtype)
    return weakly(with_sign(x1, x2), weak)


def real(x, /):
    """The real part, element-wise; x itself where it is not complex.

    >>> hnp.real(hnp.array([1 + 2j, 3.0]))
    Array([1., 3.], dtype=float32)
    """
    x = as_operand(x, "real")
    return lax.real(x) if x.dtype in COMPLEX else x


def imag(x, /):
    """The imaginary part, element-wise; zeros where x is not complex.

    >>> hnp.imag(hnp.array([1 + 2j, 3.0]))
    Array([2., 0.], dtype=float32)
    """
    x = as_operand(x, "imag")
    return lax.imag(x) if x.dtype in COMPLEX else with_weakness(full(0, x.dtype, x.shape), x.weak)


def conjugate(x, /):
    """The complex conjugate, element-wise; x itself where it is not complex.

    >>> hnp.conj(hnp.array([1 + 2j]))
    Array([1.-2.j], dtype=complex64)
    """
    x = as_operand(x, "conj")
    return lax.conj(x) if x.dtype in COMPLEX else x


conj = conjugate


def angle(z, deg: bool = False):
    """The angle of complex numbers, radians (degrees if deg), element-wise; 0 or pi of real ones.

    >>> hnp.angle(hnp.array([1.0, -1.0]), deg=True)
    Array([  0., 180.], dtype=float32)
    """
    z = to_inexact(z, "angle")
    result = lax.atan2(imag(z), real(z))
    return rad2deg(result) if deg else result


def ldexp(x1, x2, /):
    """x1 * 2**x2 for integer x2, element-wise; floats. Raises ShapeError, DTypeError.

    >>> hnp.ldexp(hnp.array([0.5, 3.0]), hnp.array([2, 1]))
    Array([2., 6.], dtype=float32)
    """
    x1, x2 = read((x1, x2), "ldexp")
    x1 = to_inexact(x1, "ldexp")
    if type(x2) is int and abs(x2) < 2**31:
        found = at_once("ldexp", lambda v: np.ldexp(v, x2), x1, weak=x1.weak)
    elif isinstance(x2, ArrayMethods) and x2.dtype in SIGNED:
        found = at_once("ldexp", np.ldexp, x1, x2, weak=x1.weak)
    else:
        found = None
    if found is not None:
        return found
    (x1, x2), weak = promote_operands("ldexp", (x1, x2))
    # Three factors, each a finite power of two, cover the range from the smallest subnormal to beyond the largest
    # number.
    most = finfo(x1.dtype).maxexp - 2
    exponent = lax.clamp(-3.0 * most, x2, 3.0 * most)
    third = lax.floor(lax.mul(exponent, 1 / 3))
    two, result = full(2, x1.dtype, x1.shape), x1
    for power in (third, third, lax.sub(exponent, lax.mul(third, 2.0))):
        result = lax.mul(result, lax.pow(two, power))
    return weakly(result, weak)


_LIMITS = (*NUMBERS, type(None))


def nan_to_num(x, copy: bool = True, nan=0.0, posinf=None, neginf=None):
    """x with NaN, inf and -inf replaced, the infinities by the largest and smallest finite numbers if not given.

    >>> hnp.nan_to_num(hnp.array([1.0, hnp.nan, hnp.inf]), posinf=9.0)
    Array([1., 0., 9.], dtype=float32)
    """
    x = as_operand(x, "nan_to_num")
    if x.dtype in COMPLEX:
        parts = (nan_to_num(p, copy, nan, posinf, neginf) for p in (lax.real(x), lax.imag(x)))
        return lax.complex(*parts)
    if x.dtype not in FLOATS:
        return x

    if type(nan) in NUMBERS and type(posinf) in _LIMITS and type(neginf) in _LIMITS:
        found = at_once("nan_to_num", lambda v: np.nan_to_num(v, nan=nan, posinf=posinf, neginf=neginf), x, weak=x.weak)
        if found is not None:
            return found
    limits = finfo(x.dtype)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    for found, value in (
        (is_nan(x), nan),
        (lax.eq(x, math.inf), high),
        (lax.eq(x, -math.inf), low),
    ):
        x = lax.select(found, conform(value, x.dtype, x.shape), x)
    return x


def fmax(x1, x2, /):
    """The larger of x1 and x2; where one is NaN the other. Raises ShapeError, DTypeError.

    >>> hnp.fmax(hnp.array([1.0, hnp.nan]), 0.0)
    Array([1., 0.], dtype=float32)
    """
    return _ignoring_nan("fmax", x1, x2, maximum, np.fmax)


def fmin(x1, x2, /):
    """The smaller of x1 and x2; where one is NaN the other. Raises ShapeError, DTypeError.

    >>> hnp.fmin(hnp.array([1.0, hnp.nan]), 0.0)
    Array([0., 0.], dtype=float32)
    """
    return _ignoring_nan("fmin", x1, x2, minimum, np.fmin)


def _ignoring_nan(name, x1, x2, function, eager):
    (x1, x2), weak = promote_operands(name, (x1, x2))
    if x1.dtype in FLOATS and (found := at_once(name, eager, x1, x2, weak=weak)) is not None:
        return found
    if x1.dtype not in INEXACT:
        return weakly(function(x1, x2), weak)
    result = lax.select(is_nan(x1), x2, lax.select(is_nan(x2), x1, function(x1, x2)))
    return weakly(result, weak)


def held(value: int, dtype) -> int:
    """The integer of a dtype that is nearest to a Python integer."""
    lowest, highest = limits(dtype)
    return builtins.min(builtins.max(value, lowest), highest)


def clip(x=None, /, min=None, max=None, *, a=None, a_min=None, a_max=None):
    """x clipped to [min, max], which broadcast; None is unbounded. NaN is preserved. Raises ShapeError, DTypeError.

    >>> hnp.clip(hnp.array([-2, 0, 7]), 0, 5)
    Array([0, 0, 5], dtype=int32)
    """
    x = as_operand(a if x is None else x, "clip")
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    if x.dtype in COMPLEX:
        raise refuse("clip", x, "clip the real and imaginary parts")
    given = [v for v in (low, high) if v is not None]
    if not given:
        return x
    # A Python integer out of range for x's dtype is no tighter than the dtype's own limit.
    given = [held(v, x.dtype) if type(v) is int and x.dtype in INTEGERS else v for v in read(given, "clip")]
    (x, *given), weak = promote_operands("clip", (x, *given))
    if low is not None and high is not None:
        if x.dtype in FLOATS:  # as a minimum and a maximum, which share derivatives at ties
            return bind("minimum", bind("maximum", x, given[0], weak=weak), given[1], weak=weak)
        return bind("clamp", given[0], x, given[1], weak=weak)
    return bind("minimum" if low is None else "maximum", x, given[0], weak=weak)
