"""Element types: their names, their limits, and how they combine."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from hloom.errors import ArgumentError, DTypeError
from hloom.ir.types import COMPLEX, DTYPES, FLOATS, INEXACT, INTEGERS, PRED, SIGNED, UNSIGNED, as_dtype
from hloom.operands import dtype_of, promoted, read
from hloom.operators import ArrayMethods

bool_ = np.bool_
int4, uint4 = ml_dtypes.int4, ml_dtypes.uint4
int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
float8_e4m3fn, float8_e5m2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
float16, bfloat16, float32, float64 = np.float16, ml_dtypes.bfloat16, np.float32, np.float64
complex64, complex128 = np.complex64, np.complex128
# The dtypes of Python numbers.
int_, uint, float_, complex_ = np.int32, np.uint32, np.float32, np.complex64
half, single, double, csingle, cdouble = np.float16, np.float32, np.float64, np.complex64, np.complex128
generic, number, inexact = np.generic, np.number, np.inexact
integer, signedinteger, unsignedinteger = np.integer, np.signedinteger, np.unsignedinteger
floating, complexfloating = np.floating, np.complexfloating

dtype = np.dtype
finfo = ml_dtypes.finfo
iinfo = ml_dtypes.iinfo

_ALL = frozenset(DTYPES.values())
_NUMBERS = INTEGERS | INEXACT
# NumPy's abstract types do not know the dtypes of ml_dtypes.
_CATEGORIES = {
    np.generic: _ALL,
    np.number: _NUMBERS,
    np.inexact: INEXACT,
    np.integer: INTEGERS,
    np.signedinteger: SIGNED,
    np.unsignedinteger: UNSIGNED,
    np.floating: FLOATS,
    np.complexfloating: COMPLEX,
}
_KINDS = {
    "bool": frozenset((PRED,)),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": INTEGERS,
    "real floating": FLOATS,
    "complex floating": COMPLEX,
    "numeric": _NUMBERS,
}


def is_category(value) -> bool:
    """Whether value is an abstract type such as `hnp.floating`."""
    return isinstance(value, type) and value in _CATEGORIES


def issubdtype(arg1, arg2) -> bool:
    """Whether a dtype (or category) lies in a category such as `hnp.floating`, or is that dtype. Raises DTypeError."""
    if is_category(arg1):
        return is_category(arg2) and issubclass(arg1, arg2)
    if is_category(arg2):
        return as_dtype(arg1) in _CATEGORIES[arg2]
    return as_dtype(arg1) == as_dtype(arg2)


def isdtype(dtype, kind) -> bool:
    """Whether dtype is of a kind: a dtype, 'bool', 'integral', 'real floating', ..., or a tuple of these.

    The kinds are those of the Array API standard. Raises ArgumentError.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return as_dtype(dtype) in _KINDS[kind]
    try:
        return as_dtype(dtype) == as_dtype(kind)
    except DTypeError:
        raise ArgumentError("isdtype takes a dtype or a kind", f"{kind!r}", f"one of {', '.join(_KINDS)}") from None


def _is_dtype(value) -> bool:
    return isinstance(value, (type, np.dtype, str))


def result_type(*arrays_and_dtypes):
    """The dtype to which arrays, Python numbers and dtypes promote together (JAX's lattice). Raises DTypeError."""
    if not arrays_and_dtypes:
        raise ArgumentError("result_type takes at least one array or dtype", "none", "pass the operands")
    pairs = []
    for value in arrays_and_dtypes:
        if _is_dtype(value):
            # The types float, int, ... stand for Python numbers.
            pairs.append((as_dtype(value), value is int or value is float or value is complex))
        else:
            pairs.append(dtype_of(read((value,), "result_type")[0]))
    return promoted(*pairs)[0]


def promote_types(a, b):
    """The least dtype to which both promote (JAX's lattice). Raises DTypeError."""
    return result_type(as_dtype(a), as_dtype(b))


def can_cast(from_, to, casting: str = "safe") -> bool:
    """Whether a conversion is allowed: as NumPy's, but 'safe' means that promotion with `to` gives `to`.

    from_: an array, a Python number or a dtype.
    """
    if isinstance(from_, ArrayMethods):
        source = from_.dtype
    else:
        source = as_dtype(from_) if _is_dtype(from_) else dtype_of(from_)[0]
    target = as_dtype(to)
    if casting in ("no", "equiv"):
        return source == target
    if casting == "unsafe":
        return True
    if casting == "same_kind":
        order = [frozenset((PRED,)), UNSIGNED, SIGNED, FLOATS, COMPLEX]
        ranks = [next(k for k, members in enumerate(order) if d in members) for d in (source, target)]
        return ranks[0] <= ranks[1]
    if casting != "safe":
        raise ArgumentError("can_cast knows its rules by name", f"{casting!r}", "'no', 'safe', 'same_kind' or 'unsafe'")
    if source in INTEGERS and target in INEXACT:
        # The lattice lets every integer meet every float; a safe cast keeps the values.
        bits = finfo(target).nmant + 1
        return bits >= iinfo(source).bits - (source in SIGNED)
    return promoted((source, False), (target, False))[0] == target
