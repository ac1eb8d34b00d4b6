"""Element types, shapes and type promotion.

An element type is a NumPy dtype; its HLO name (`f32`, `bf16`, `pred`, ...) is how text and kernels spell it.
A `Shape` is an element type with dimensions. Shapes are interned: equal shapes are the same object, which makes them
cheap dictionary keys. Unused ones are removed when there are many.
"""

from __future__ import annotations

import difflib
import math
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from sys import getrefcount
from typing import Any

import ml_dtypes
import numpy as np

from hloom.ir.errors import DTypeError, ShapeError, UndecidedSizeError
from hloom.ir.process import forking, memory
from hloom.ir.sizes.expressions import SizeExpression, assuming, dims_of
from hloom.ir.sizes.guards import size_key

DTYPES: dict[str, np.dtype] = {
    "pred": np.dtype(np.bool_),
    "s2": np.dtype(ml_dtypes.int2),
    "s4": np.dtype(ml_dtypes.int4),
    "s8": np.dtype(np.int8),
    "s16": np.dtype(np.int16),
    "s32": np.dtype(np.int32),
    "s64": np.dtype(np.int64),
    "u2": np.dtype(ml_dtypes.uint2),
    "u4": np.dtype(ml_dtypes.uint4),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "f4e2m1fn": np.dtype(ml_dtypes.float4_e2m1fn),
    "f8e3m4": np.dtype(ml_dtypes.float8_e3m4),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3),
    "f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e4m3b11fnuz": np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    "f8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "f8e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
}
HLO_NAME: dict[np.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}

PRED = DTYPES["pred"]
SIGNED = frozenset(DTYPES[n] for n in ("s2", "s4", "s8", "s16", "s32", "s64"))
UNSIGNED = frozenset(DTYPES[n] for n in ("u2", "u4", "u8", "u16", "u32", "u64"))
INTEGERS = SIGNED | UNSIGNED
FLOATS8 = frozenset(dtype for name, dtype in DTYPES.items() if name.startswith(("f4", "f8")))  # 8 bits and less
FLOATS = FLOATS8 | {DTYPES[n] for n in ("f16", "bf16", "f32", "f64")}
NARROW_FLOATS = FLOATS - {DTYPES["f32"], DTYPES["f64"]}  # computed in float32
COMPLEX = frozenset(DTYPES[n] for n in ("c64", "c128"))
INEXACT = FLOATS | COMPLEX
# Elements with fewer than 8 bits occupy a byte each.
BITS: dict[np.dtype, int] = {DTYPES[n]: int(n[1]) for n in ("s2", "u2", "s4", "u4", "f4e2m1fn")}
# Dtypes without kernel support: ops on them run on the host.
HOST_DTYPES = FLOATS8 | frozenset(BITS)


def bit_width(dtype: np.dtype) -> int:
    """The number of bits of an element; fewer than 8 are the low bits of a byte."""
    return BITS.get(dtype, 8 * dtype.itemsize)


def kind(dtype: np.dtype) -> str:
    """'pred', 'signed', 'unsigned', 'float' or 'complex'."""
    if dtype in FLOATS:
        return "float"
    if dtype in SIGNED:
        return "signed"
    if dtype in UNSIGNED:
        return "unsigned"
    return "complex" if dtype in COMPLEX else "pred"


# The dtypes of Python scalars: 32 bits wide, or 64 on request (`set_default_width`).
DEFAULTS: dict[type, np.dtype] = {bool: PRED}


# Replacements of NumPy's 64-bit dtypes, and of promotions of narrower operands to 64 bits: empty unless `narrow` was
# called.
NARROWED: dict[np.dtype, np.dtype] = {}
_RULES = {"strict": False}


def strict_promotion(strict: bool) -> None:
    """Makes `promote` reject operands of different dtypes, except weak ones, or accept them again."""
    _RULES["strict"] = strict


def narrow_scalars(narrow: bool) -> None:
    """Converts NumPy's 64-bit dtypes and promotions to 64 bits to 32 bits, or restores them."""
    NARROWED.clear()
    if narrow:
        pairs = (("f64", "f32"), ("s64", "s32"), ("u64", "u32"), ("c128", "c64"))
        NARROWED.update((DTYPES[wide], DTYPES[slim]) for wide, slim in pairs)


def set_default_width(bits: int) -> None:
    """Sets the default width (32 or 64) of Python's integers, floats and complex numbers."""
    names = {32: ("s32", "f32", "c64"), 64: ("s64", "f64", "c128")}[bits]
    DEFAULTS.update(zip((int, float, complex), (DTYPES[n] for n in names), strict=True))
    as_dtype.cache_clear()


def default_dtype(kind: type) -> np.dtype:
    """The default dtype of Python's int, float or complex numbers."""
    return DEFAULTS[kind]


@lru_cache(maxsize=1024)
def as_dtype(dtype) -> np.dtype:
    """The NumPy dtype of an HLO name, a NumPy or Python type or a dtype.

    Raises DTypeError for unsupported element types (strings, objects, float128, dates).
    """
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype]
    if isinstance(dtype, type) and dtype in DEFAULTS:
        return DEFAULTS[dtype]
    try:
        found = np.dtype(dtype).newbyteorder("=")
    except TypeError:
        found = None
    if found in HLO_NAME:
        return DTYPES[HLO_NAME[found]]  # one object per dtype, as NumPy's own
    raise DTypeError(
        f"{dtype!r} is not an element type of hloom",
        f"hloom has {', '.join(DTYPES)}",
        _nearest_dtype(dtype) or "convert the array first, for example with x.astype(numpy.float32)",
    )


def _nearest_dtype(name) -> str:
    if isinstance(name, int):
        return "pass a shape as one tuple, such as zeros((2, 3)): what follows it is the dtype"
    if not isinstance(name, str):
        return ""
    names = [*DTYPES, *(dtype.name for dtype in DTYPES.values())]
    # Part of a name: 'float8', 'fp8', 'e4m3', 'uint'.
    part = name.lower().replace("fp", "float").replace("_", "")
    family = [n for n in dict.fromkeys(names) if n not in DTYPES and part in n.replace("_", "")]
    family = family if len(part) > 2 else []
    if len(family) > 1:
        return f"name one of {', '.join(family)}"
    if family:
        return f"did you mean {family[0]!r}?"
    found = difflib.get_close_matches(name.lower(), sorted(names, key=len, reverse=True), 1, 0.5)
    return f"did you mean {found[0]!r}?" if found else ""


set_default_width(32)


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the real part of a complex dtype; any other dtype itself."""
    return {"c64": DTYPES["f32"], "c128": DTYPES["f64"]}.get(HLO_NAME[dtype], dtype)


def compute_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in which kernels compute: float32 for the narrow floats, the dtype itself otherwise."""
    return DTYPES["f32"] if dtype in NARROW_FLOATS else dtype


def wide_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the references' sums and products, one step wider for floats, for correctly rounded results."""
    if dtype in NARROW_FLOATS or dtype == DTYPES["f32"]:
        return DTYPES["f64"]
    return DTYPES["c128"] if dtype == DTYPES["c64"] else dtype


MOST_DIMENSIONS = 64


class OpenDims(tuple):
    """Dimensions with dynamic sizes. Equal to others if each is known to be equal. The hash is that of their tuple,
    which a size may reject."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple) or len(self) != len(other):
            return False
        found = [True if one is another else one == another for one, another in zip(self, other, strict=True)]
        return all(answer is not False for answer in found) and all(found)  # decided before it is undecided

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


def canonical_dims(dims) -> tuple[Any, ...]:
    """Sizes as a tuple with the same comparison."""
    if any([isinstance(d, SizeExpression) for d in dims]):
        return OpenDims([d if isinstance(d, SizeExpression) else int(d) for d in dims])
    return tuple([int(d) for d in dims])


def in_general(shapes) -> AbstractContextManager[None]:
    """A block in which open sizes of shapes are assumed to be at least 2, as for arrays in general: decisions on sizes
    of 0 or 1 (a broadcast axis, an empty array) assume larger ones. Does not apply to sizes computed by the program."""
    if not any([shape.is_open for shape in shapes]):
        return nullcontext()
    dims = {name: dim for shape in shapes for size in shape.dims for name, dim in dims_of(size).items()}
    return assuming(*[dim >= 2 for dim in dims.values() if dim.scope is None or dim.scope.in_general])


class Shape:
    """An array's element type and dimensions, interned (`Shape(f32, (2, 3)) is Shape(f32, (2, 3))`)."""

    __slots__ = ("dtype", "dims", "size")
    _interned: dict[tuple, Shape] = {}
    dtype: np.dtype
    dims: tuple[int, ...]
    size: int  # or an expression, like sizes

    def __new__(cls, dtype, dims: tuple[Any, ...] = ()) -> Shape:
        try:
            found = cls._interned.get((dtype, dims))
        except UndecidedSizeError:  # sizes that cannot be keys
            found = None
        if found is None:
            canonical = (as_dtype(dtype), canonical_dims(dims))
            key = canonical if canonical[1].__class__ is tuple else (canonical[0], tuple(map(size_key, canonical[1])))
            found = cls._interned.get(key)
            if found is None:
                if len(dims) > MOST_DIMENSIONS:
                    raise ShapeError(
                        f"an array of {len(dims)} dimensions",
                        f"arrays have at most {MOST_DIMENSIONS}, as NumPy's",
                        "join dimensions with reshape",
                    )
                made = object.__new__(cls)
                object.__setattr__(made, "dtype", canonical[0])
                object.__setattr__(made, "dims", canonical[1])
                object.__setattr__(made, "size", math.prod(canonical[1]))
                found = _intern(cls, key, made)
        return found

    def __setattr__(self, name, value):
        raise AttributeError("a Shape cannot be changed")

    def __reduce__(self):
        return Shape, (HLO_NAME[self.dtype], self.dims)

    @property
    def is_open(self) -> bool:
        """Whether it has dynamic sizes."""
        return self.dims.__class__ is OpenDims

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.itemsize

    def with_dtype(self, dtype) -> Shape:
        return Shape(as_dtype(dtype), self.dims)

    def with_dims(self, dims) -> Shape:
        return Shape(self.dtype, tuple(dims))

    def __repr__(self) -> str:
        return f"{HLO_NAME[self.dtype]}[{','.join(map(str, self.dims))}]"


class TupleShape:
    """The shape of a tuple, interned as `Shape` is."""

    __slots__ = ("elements",)
    _interned: dict[tuple, TupleShape] = {}
    elements: tuple[Shape | TupleShape, ...]

    def __new__(cls, elements) -> TupleShape:
        elements = tuple(elements)
        found = cls._interned.get(elements)
        if found is None:
            made = object.__new__(cls)
            object.__setattr__(made, "elements", elements)
            found = _intern(cls, elements, made)
        return found

    def __setattr__(self, name, value):
        raise AttributeError("a TupleShape cannot be changed")

    def __reduce__(self):
        return TupleShape, (self.elements,)

    @property
    def bytes(self) -> int:
        return sum(e.bytes for e in self.elements)

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.elements))})"


def result_shapes(shape: Any) -> tuple[Any, ...]:
    """The shapes of an op's results: its shape, or those of a tuple's elements."""
    return shape.elements if isinstance(shape, TupleShape) else (shape,)


def are_equal(first: Shape | TupleShape, second: Shape | TupleShape) -> bool:
    """Whether two shapes are equal: equal open sizes may be written differently."""
    if first is second:
        return True
    if isinstance(first, TupleShape) or isinstance(second, TupleShape):
        parts = getattr(first, "elements", ()), getattr(second, "elements", ())
        return type(first) is type(second) and len(parts[0]) == len(parts[1]) and all(map(are_equal, *parts))
    alike = first.dtype == second.dtype and first.rank == second.rank
    return alike and (first.is_open or second.is_open) and first.dims == second.dims


# Without the GIL it is unknown which shapes are unused, so they are kept.
_SWEPT_FROM = 8192 if getattr(sys, "_is_gil_enabled", lambda: True)() else sys.maxsize
_swept_at = {Shape: _SWEPT_FROM, TupleShape: _SWEPT_FROM}  # the number of shapes from which unused ones are removed
_interning = forking.lock()


def _intern(cls, key, made):
    """The one shape of this key: `made`, unless another thread was first."""
    if len(cls._interned) >= _swept_at[cls]:
        _sweep(cls)
    with _interning:
        return cls._interned.setdefault(key, made)


def _sweep(cls) -> None:
    """Removes unused shapes. A concurrent lookup finds a shape either before its removal, and counts as a use, or after
    its return, as that thread waits for the lock."""
    interned = cls._interned
    with forking.no_fork(), _interning:
        for key in list(interned):
            found = interned.pop(key)
            if getrefcount(found) > _UNUSED:
                interned[key] = found
    _swept_at[cls] = max(_SWEPT_FROM, 2 * len(interned))


def _count_of_unused() -> int:
    found = object()
    return getrefcount(found)


_UNUSED = _count_of_unused()


@memory.on_release
def _sweep_shapes(everything: bool) -> None:
    for cls in (TupleShape, Shape):
        if everything and _SWEPT_FROM < sys.maxsize:
            _sweep(cls)


# Promotion: the least upper bound in JAX's lattice (docs.jax.dev, "Type promotion semantics"). The starred nodes are
# the weak types of Python scalars.
_EDGES = {
    "pred": ["i*"],
    "i*": ["u8", "s8"],
    "u8": ["u16", "s16"],
    "u16": ["u32", "s32"],
    "u32": ["u64", "s64"],
    "u64": ["f*"],
    "s8": ["s16"],
    "s16": ["s32"],
    "s32": ["s64"],
    "s64": ["f*"],
    "f*": ["f16", "bf16", "c*"],
    "f16": ["f32"],
    "bf16": ["f32"],
    "f32": ["f64", "c64"],
    "f64": ["c128"],
    "c*": ["c64"],
    "c64": ["c128"],
    "c128": [],
}
_WEAK_TYPES = {"i*": int, "f*": float, "c*": complex}


@cache
def _above(node: str) -> frozenset[str]:
    return frozenset([node]).union(*(_above(n) for n in _EDGES[node]))


@lru_cache(maxsize=4096)
def _join(nodes: frozenset[str]) -> str:
    common = frozenset.intersection(*(_above(n) for n in nodes))
    least = [n for n in common if common <= _above(n)]
    if len(least) != 1:
        raise DTypeError(
            "the operands have a common dtype",
            f"{', '.join(sorted(nodes))}, which have no common dtype",
            "convert one of them with astype",
        )
    return least[0]


def _node(dtype: np.dtype, weak: bool) -> str:
    if weak:
        return {"float": "f*", "complex": "c*", "pred": "pred"}.get(kind(dtype), "i*")
    name = HLO_NAME[dtype]
    if name not in _EDGES:
        raise DTypeError(
            "operands are promoted to a common dtype",
            f"{name}, which takes no part in promotion",
            "convert it explicitly, for example with astype('f32')",
        )
    return name


_WIDE_DEFAULT = {"i*": "s64", "f*": "f64", "c*": "c128"}


def _is_wide(operands) -> bool:
    return any(kind(dtype) in ("signed", "unsigned") and dtype.itemsize == 8 for dtype, _ in operands)


def _default(node: str, operands) -> np.dtype:
    """The dtype of a weak node: 32 bits wide, or 64 where a 64-bit integer takes part, as in NumPy and JAX with x64."""
    wide = _is_wide(operands)
    return DTYPES[_WIDE_DEFAULT[node]] if wide else DEFAULTS[_WEAK_TYPES[node]]


def promote(*operands: tuple[np.dtype, bool]) -> tuple[np.dtype, bool]:
    """The common dtype of (dtype, weak) pairs, and whether it is weak itself.

    Weak types are those of Python scalars: they take the dtype of the other operand if its kind suffices.
    """
    first = operands[0]
    if all(o == first for o in operands):
        return first
    strong = [o for o in operands if not o[1]]
    if _RULES["strict"]:
        _check_strict(operands, strong)
    node = _join(frozenset(_node(*o) for o in operands))
    if node in _WEAK_TYPES:
        # As in JAX the result of an integer array and a Python float is weak, unless 64 bits were requested.
        weak = not strong or not _is_wide(strong) or _default(node, ()) == DTYPES[_WIDE_DEFAULT[node]]
        return _default(node, operands), weak
    dtype = DTYPES[node]
    if dtype in NARROWED and all(o[0] not in NARROWED for o in operands):
        dtype = NARROWED[dtype]  # u32 with a signed integer
    return dtype, not strong


_CATEGORY = {"pred": 0, "signed": 1, "unsigned": 1, "float": 2, "complex": 3}


def _check_strict(operands, strong) -> None:
    """Strict promotion: a single dtype, and weak scalars that it can represent. Raises DTypeError."""
    dtypes = {dtype for dtype, _ in strong}
    if not dtypes:
        return
    rank = _CATEGORY[kind(strong[0][0])]
    if len(dtypes) > 1 or any(weak and _CATEGORY[kind(d)] > rank for d, weak in operands):
        names = sorted({HLO_NAME[dtype] + " of a Python number" * weak for dtype, weak in operands})
        raise DTypeError(
            "the operands have one dtype, as numpy_dtype_promotion is 'strict'",
            ", ".join(names),
            "convert one of them with astype",
        )


def scalar_dtype(value) -> tuple[np.dtype, bool]:
    """(dtype, weak) of a Python or NumPy scalar."""
    if isinstance(value, (bool, np.bool_)):
        return PRED, False
    if isinstance(value, (np.generic, np.ndarray)):
        dtype = as_dtype(value.dtype)
        return NARROWED.get(dtype, dtype), False
    if isinstance(value, int):
        # A Python int that does not fit in 32 bits keeps its value rather than wrapping silently.
        return DEFAULTS[int] if -(2**31) <= value < 2**31 else DTYPES["s64" if value < 2**63 else "u64"], True
    if isinstance(value, float):
        return DEFAULTS[float], True
    if isinstance(value, complex):
        return DEFAULTS[complex], True
    raise DTypeError(
        "a scalar was asked for",
        f"{type(value).__name__} {value!r:.60}",
        "pass a number or an array",
    )
