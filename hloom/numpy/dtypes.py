"""Element types: their names, their limits, and how they combine."""

from __future__ import annotations

import builtins
from typing import Any

import ml_dtypes
import numpy as np

from hloom.arrays.base import ArrayMethods
from hloom.arrays.keys import ExtendedDType, extended
from hloom.errors import ArgumentError, DTypeError
from hloom.ir.types import COMPLEX, DTYPES, FLOATS, INEXACT, INTEGERS, PRED, SIGNED, UNSIGNED, as_dtype, default_dtype
from hloom.lax.operands import dtype_of, promoted, read
from hloom.numpy.creation import array


class _ScalarMeta(type):
    """Makes the classes `hnp.float32` ... equal to the dtypes that they represent, and callable."""

    dtype: np.dtype

    def __new__(cls, name: str, dtype: np.dtype):
        made = super().__new__(cls, name, (), {"dtype": dtype, "__doc__": f"An array of {name}: {name}(x)."})
        made.__module__ = "hloom.numpy"
        return made

    def __init__(cls, name: str, dtype: np.dtype):
        super().__init__(name, (), {})

    def __call__(cls, x=0, /):
        return array(x, cls.dtype)

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)  # equal to that type, so it hashes as that type

    def __eq__(cls, other) -> builtins.bool:
        if other is None:  # which NumPy interprets as float64
            return False
        return other is cls or cls.dtype == (other if isinstance(other, type) else getattr(other, "dtype", other))

    def __ne__(cls, other) -> builtins.bool:
        return not cls == other

    def __repr__(cls) -> str:
        return f"<class 'hloom.numpy.{cls.__name__}'>"

    def __reduce__(cls) -> str:
        return cls.__name__

    @property
    def type(cls):
        """The NumPy scalar type."""
        return cls.dtype.type

    @property
    def name(cls) -> str:
        return cls.dtype.name

    @property
    def itemsize(cls) -> int:
        """Bytes of one element."""
        return cls.dtype.itemsize


SCALAR_TYPES = {dtype: _ScalarMeta(dtype.name, dtype) for dtype in DTYPES.values()}


def _scalar(name: str):
    return SCALAR_TYPES[DTYPES[name]]


bool_ = bool = _scalar("pred")
int4, uint4 = _scalar("s4"), _scalar("u4")
int8, int16, int32, int64 = (_scalar(n) for n in ("s8", "s16", "s32", "s64"))
uint8, uint16, uint32, uint64 = (_scalar(n) for n in ("u8", "u16", "u32", "u64"))
int2, uint2 = _scalar("s2"), _scalar("u2")
float4_e2m1fn, float8_e8m0fnu = _scalar("f4e2m1fn"), _scalar("f8e8m0fnu")
float8_e3m4, float8_e4m3, float8_e4m3fn = _scalar("f8e3m4"), _scalar("f8e4m3"), _scalar("f8e4m3fn")
float8_e4m3fnuz, float8_e4m3b11fnuz = _scalar("f8e4m3fnuz"), _scalar("f8e4m3b11fnuz")
float8_e5m2, float8_e5m2fnuz = _scalar("f8e5m2"), _scalar("f8e5m2fnuz")
float16, bfloat16, float32, float64 = (_scalar(n) for n in ("f16", "bf16", "f32", "f64"))
complex64, complex128 = _scalar("c64"), _scalar("c128")
half, single, double, csingle, cdouble = float16, float32, float64, complex64, complex128
generic, number, inexact = np.generic, np.number, np.inexact
integer, signedinteger, unsignedinteger = np.integer, np.signedinteger, np.unsignedinteger
floating, complexfloating = np.floating, np.complexfloating
character, flexible, object_ = np.character, np.flexible, np.object_


class _DtypeMeta(type):
    def __instancecheck__(cls, value) -> builtins.bool:
        return isinstance(value, np.dtype)


class dtype(metaclass=_DtypeMeta):
    """The NumPy dtype of a name (NumPy's or HLO's), a scalar type or a dtype: dtype("f32"). Raises DTypeError."""

    def __new__(cls, dtype, align=False, copy=False):
        return as_dtype(dtype)


def default_types() -> dict[str, type]:
    """The scalar types of Python scalars, `int_`, `uint`, `float_` and `complex_`: 64 bits with enable_x64."""
    wide = default_dtype(float).itemsize == 8
    return {
        "int_": int64 if wide else int32,
        "uint": uint64 if wide else uint32,
        "float_": float64 if wide else float32,
        "complex_": complex128 if wide else complex64,
    }


def _limits_of(value) -> np.dtype:
    return value.dtype if hasattr(value, "dtype") else as_dtype(value)


class finfo:
    """The limits of a float (or complex) dtype as Python numbers, as in the Array API.

    dtype: anything that names it, or an array. Attributes: bits, eps, epsneg, max, min, smallest_normal (tiny),
    smallest_subnormal, resolution, precision, nmant, nexp, iexp, maxexp, minexp, machep, negep, dtype.
    Raises DTypeError for another dtype.

    >>> hnp.finfo(hnp.float32).bits, float(hnp.finfo(hnp.float16).max)
    (32, 65504.0)
    """

    eps: Any
    epsneg: Any
    max: Any
    min: Any
    smallest_normal: Any
    tiny: Any
    smallest_subnormal: Any
    resolution: Any
    bits: int
    precision: int
    nmant: int
    nexp: int
    iexp: int
    maxexp: int
    minexp: int
    machep: int
    negep: int

    def __init__(self, dtype):
        found = _limits_of(dtype)
        if found not in INEXACT:
            raise DTypeError(f"finfo of {found}", "it is not a float dtype", "use hnp.iinfo for integers")
        limits = ml_dtypes.finfo(found)
        self.dtype = np.dtype(limits.dtype)
        for name in ("eps", "epsneg", "max", "min", "smallest_normal", "tiny", "smallest_subnormal", "resolution"):
            setattr(self, name, float(getattr(limits, name)))
        for name in "bits precision nmant nexp iexp maxexp minexp machep negep".split():
            setattr(self, name, int(getattr(limits, name)))
        self._text = repr(limits)

    def __repr__(self) -> str:
        return self._text


class iinfo:
    """The limits of an integer dtype: bits, min and max, Python integers. Raises DTypeError for another dtype.

    >>> hnp.iinfo(hnp.int8).min, hnp.iinfo(hnp.int8).max
    (-128, 127)
    """

    def __init__(self, int_type):
        found = _limits_of(int_type)
        if found not in INTEGERS:
            raise DTypeError(f"iinfo of {found}", "it is not an integer dtype", "use hnp.finfo for floats")
        limits = ml_dtypes.iinfo(found)
        self.dtype, self.bits = found, int(limits.bits)
        self.min, self.max, self.kind = int(limits.min), int(limits.max), found.kind

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype.name})"


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


def _is_extended(value) -> builtins.bool:
    return isinstance(value, type) and issubclass(value, extended)


def is_category(value) -> builtins.bool:
    """Whether value is an abstract type such as `hnp.floating`."""
    return isinstance(value, type) and value in _CATEGORIES


def issubdtype(arg1, arg2) -> builtins.bool:
    """Whether a dtype (or category) belongs to a category such as `hnp.floating`, or is that dtype. Raises DTypeError.

    >>> hnp.issubdtype(hnp.bfloat16, hnp.floating)
    True
    """
    if isinstance(arg1, ExtendedDType):
        if arg1 == arg2:
            return True
        arg1 = arg1.type
    if _is_extended(arg1) or _is_extended(arg2):
        return _is_extended(arg1) and isinstance(arg2, type) and issubclass(arg1, arg2)
    if is_category(arg1):
        return is_category(arg2) and issubclass(arg1, arg2)
    if is_category(arg2):
        return as_dtype(arg1) in _CATEGORIES[arg2]
    return as_dtype(arg1) == as_dtype(arg2)


def isdtype(dtype, kind) -> builtins.bool:
    """Whether dtype is of a kind: a dtype, 'bool', 'integral', 'real floating', ..., or a tuple of these.

    The kinds are those of the Array API standard. Raises ArgumentError.

    >>> hnp.isdtype(hnp.float32, "real floating"), hnp.isdtype(hnp.int8, ("integral", "bool"))
    (True, True)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return as_dtype(dtype) in _KINDS[kind]
    try:
        return as_dtype(dtype) == as_dtype(kind)
    except DTypeError:
        raise ArgumentError("isdtype takes a dtype or a kind", f"{kind!r}", f"one of {', '.join(_KINDS)}") from None


def _is_dtype(value) -> builtins.bool:
    return isinstance(value, (type, np.dtype, str))


def result_type(*arrays_and_dtypes):
    """The dtype to which arrays, Python scalars and dtypes promote (JAX's lattice). Raises DTypeError.

    >>> hnp.result_type(hnp.array([1, 2]), 0.5)
    dtype('float32')
    """
    if not arrays_and_dtypes:
        raise ArgumentError("result_type takes at least one array or dtype", "none", "pass the operands")
    special = [d for v in arrays_and_dtypes if isinstance(d := getattr(v, "dtype", v), ExtendedDType)]
    if special and len(special) == len(arrays_and_dtypes) and all(d == special[0] for d in special):
        return special[0]
    pairs = []
    for value in arrays_and_dtypes:
        if _is_dtype(value):
            # The types float, int, ... represent Python scalars.
            pairs.append((as_dtype(value), value is int or value is float or value is complex))
        elif hasattr(value, "weak_type") and not isinstance(value, ArrayMethods):  # a shape without an array
            pairs.append((as_dtype(value.dtype), value.weak_type))
        else:
            pairs.append(dtype_of(read((value,), "result_type")[0]))
    return promoted(*pairs)[0]


def promote_types(a, b):
    """The least dtype to which both promote (JAX's lattice). Raises DTypeError.

    >>> hnp.promote_types(hnp.int32, hnp.float16)
    dtype('float16')
    """
    return result_type(*(t if t in (int, float, complex) else as_dtype(t) for t in (a, b)))


def can_cast(from_, to, casting: str = "safe") -> builtins.bool:
    """Whether a conversion is allowed, as in NumPy, except that 'safe' means that promotion with `to` returns `to`.

    from_: an array, a Python number or a dtype.

    >>> hnp.can_cast(hnp.int32, hnp.float32), hnp.can_cast(hnp.float32, hnp.int32)
    (False, False)
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
        raise ArgumentError("can_cast takes a rule by name", f"{casting!r}", "'no', 'safe', 'same_kind' or 'unsafe'")
    if source in INTEGERS and target in INEXACT:
        # The lattice promotes every integer with every float; a safe cast preserves values.
        bits = finfo(target).nmant + 1
        return bits >= iinfo(source).bits - (source in SIGNED)
    return promoted((source, False), (target, False))[0] == target
