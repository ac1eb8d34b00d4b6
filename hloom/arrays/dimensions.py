"""Sizes that are known later.

`hloom.ir.sizes` has the sizes that depend on named dimensions, `hl.Dim` among them; a `DimStruct` is the shape and
dtype of an argument with such sizes.

A `SizeNumber` is what `x.shape` has in the place of a None of `hloom.sessions`.

hloom's own code computes with the integer that stands for the size; the user's code gets a `SizeNumber`, which keeps
beside it what the same expression is at some sizes. So a number that is not recognized again is an error where it
enters a graph. It is no `int`: C code, such as `math.log`, would read the number that stands for the size.
"""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom.errors import ArgumentError, ShapeError
from hloom.ir import base_error
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.source import is_internal
from hloom.ir.types import as_dtype

__all__ = [
    "PROBES",
    "READERS",
    "SMALLEST",
    "DimStruct",
    "SizeNumber",
    "dims_for_user",
    "for_user",
    "is_unknown",
    "narrow_constant",
]


class DimStruct:
    """The shape and dtype of an argument with named dimensions: what `ShapeDtypeStruct` makes of a shape with a Dim."""

    __slots__ = ("dtype", "shape", "weak")

    def __init__(self, shape: Any, dtype: Any, weak: bool = False):
        sizes = []
        for size in shape:
            if not isinstance(size, SizeExpression):
                try:
                    size = int(size)
                except (TypeError, ValueError):
                    raise ArgumentError(
                        "ShapeDtypeStruct requires sizes", f"{shape!r}", "pass a tuple of integers and Dims"
                    ) from None
            sizes.append(size)
        self.shape, self.dtype, self.weak = tuple(sizes), as_dtype(dtype), weak

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name})"


# --- of programs whose sizes are not known ---

SMALLEST = 100_000  # smaller integers stand for no size
# Primes far from each other's multiples and from round numbers. In float32 they and their neighbours are exact, and so
# different that c / (p - 1) is another number than c / p.
PROBES = (1299709, 1523891, 1743397, 1181987, 1960879, 1412597, 1085419, 1867337)
_PASSING = ("numpy.", "hloom.arrays.arguments")  # modules that ask on behalf of their caller
_CHECKED = ("hloom.scipy", "hloom.jax")  # compute with sizes in more forms than the rest of hloom: as the user's code


class _Readers:
    """find: the unknown sizes of the program of an array or structure, an object with `number(n)` and `array(number)`;
    None where it has none."""

    find: Callable[[Any], Any] | None = None


READERS = _Readers()


def _asked_by_user(depth: int = 2) -> bool:
    """Whether the user's code asks, not hloom's, nor NumPy's on behalf of hloom. depth: of the frame that asks."""
    frame: Any = sys._getframe(depth)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_PASSING):
        frame = frame.f_back
    if frame is None:
        return False
    return not is_internal(frame.f_code.co_filename) or frame.f_globals.get("__name__", "").startswith(_CHECKED)


def is_unknown(n: int, owner: Any = None) -> bool:
    """Whether a size stands for one that is not known, or is made of such sizes."""
    if READERS.find is None or n < SMALLEST:
        return False
    sizes = READERS.find(owner)
    return sizes is not None and isinstance(sizes.number(n), SizeNumber)


def _shown(text: str) -> str:
    return re.sub(r"(?<![\d.])\d{7}(?![\d.])", lambda found: "?" if int(found[0]) in PROBES else found[0], text)


def narrow_constant(value: Any, dtype: np.dtype) -> Any:
    """A number of hloom's own code that is made of unknown sizes, in a dtype that does not hold it exactly: the node
    that converts it when the size is known. None where it is not made of sizes."""
    if not isinstance(value, (int, float)) or (sizes := READERS.find(None)) is None:  # type: ignore[misc]
        return None
    return sizes.narrow(value, dtype)


def for_user(n: int, owner: Any) -> Any:
    """A number made of the sizes of an array: a SizeNumber where the user's code asks for one that is not known."""
    if READERS.find is None or n < SMALLEST or not _asked_by_user(3):
        return n
    sizes = READERS.find(owner)
    return n if sizes is None else sizes.number(n)


def as_number(n: int, owner: Any) -> Any:
    """A size that hloom's own code computes a value with, such as a tolerance: a SizeNumber where it is not known."""
    sizes = None if READERS.find is None or n < SMALLEST else READERS.find(owner)
    return n if sizes is None else sizes.number(n)


def dims_for_user(dims: tuple[int, ...], owner: Any) -> tuple:
    """As `for_user`, of each size in a shape."""
    if READERS.find is None or max(dims, default=0) < SMALLEST or not _asked_by_user(3):
        return dims
    sizes = READERS.find(owner)
    if sizes is None:
        return dims
    return tuple([n if n < SMALLEST else sizes.number(n) for n in dims])


def _at(function: Callable, arguments: list) -> Any:
    try:
        with np.errstate(all="ignore"):
            return function(*arguments)
    except (ArithmeticError, ValueError):
        return math.nan


class SizeNumber:
    """value: with the integer that stands for each size. samples: at other sizes, the first with each size 1; NaN where
    it is not known. sizes: of the program. made: the function and its operands that it is the value of, if any."""

    __slots__ = ("made", "samples", "sizes", "value")

    def __init__(self, value: Any, samples: tuple, sizes: Any, made: tuple[Callable, tuple] | None = None):
        self.value, self.samples, self.sizes, self.made = value, samples, sizes, made

    def _with(self, function: Callable, *operands: Any) -> Any:
        if not all([isinstance(o, (int, float, np.number, SizeNumber)) for o in operands]):
            return NotImplemented
        value = function(*[o.value if isinstance(o, SizeNumber) else o for o in operands])
        samples = tuple(
            [
                _at(function, [o.samples[k] if isinstance(o, SizeNumber) else o for o in operands])
                for k in range(len(self.samples))
            ]
        )
        if all(sample == value for sample in samples):
            return value
        return SizeNumber(value, samples, self.sizes, (function, operands))

    # --- comparisons: decided only where the sizes do not matter ---

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SizeNumber):
            return bool(self.value == other.value)
        return bool(self.value == other)

    def __hash__(self) -> int:
        return hash(self.value)

    def _compared(self, function: Callable, other: Any) -> Any:
        found = self._with(function, self, other)
        if isinstance(found, SizeNumber):
            if not _asked_by_user(3):
                return found.value
            raise self._error("Python control flow on", "compare arrays: hnp.where(condition, a, b)")
        return found

    def __lt__(self, other: Any) -> Any:
        return self._compared(operator.lt, other)

    def __le__(self, other: Any) -> Any:
        return self._compared(operator.le, other)

    def __gt__(self, other: Any) -> Any:
        return self._compared(operator.gt, other)

    def __ge__(self, other: Any) -> Any:
        return self._compared(operator.ge, other)

    def __bool__(self) -> bool:
        return bool(self._compared(operator.ne, 0))

    # --- as a plain number: for hloom only ---

    def _error(self, asked: str, repair: str = "") -> ShapeError:
        names = self.sizes.called()
        return ShapeError(
            f"{asked} an unknown size",
            f"a number made of {names}, which is known when it is fed",
            repair or "compute with hloom.numpy on arrays, or feed a fixed size: placeholder('x', [100, 32])",
        )

    def __index__(self) -> int:
        if not isinstance(self.value, (int, np.integer)) or _asked_by_user():
            raise self._error("a Python integer of", "use the size itself: hnp.zeros((x.shape[0], 3)), lax.fori_loop")
        self.sizes.check_integer(self)
        return int(self.value)

    def __int__(self) -> int:
        if not isinstance(self.value, (int, np.integer)) or _asked_by_user():
            raise self._error("int() of", "use the size itself: n, 2 * n")
        self.sizes.check_integer(self)
        return int(self.value)

    def __float__(self) -> float:
        if not isinstance(self.value, (int, np.integer)) or _asked_by_user():
            raise self._error(
                "a Python floating-point number of", "use the size itself: 1 / n, n ** 0.5; others of arrays"
            )
        return float(self.value)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        found = NotImplemented if method != "__call__" or options else self._with(ufunc, *inputs)
        if found is NotImplemented:
            raise self._error(f"numpy.{ufunc.__name__} of", "use the function of hloom.numpy instead of numpy's")
        return found

    def __repr__(self) -> str:
        return "?"

    def __format__(self, spec: str) -> str:
        return "?"


def _operator(name: str) -> None:
    function = divmod if name == "divmod" else getattr(operator, f"{name}")
    if name in ("neg", "pos", "abs"):
        setattr(SizeNumber, f"__{name}__", lambda self: self._with(function, self))
        return
    setattr(SizeNumber, f"__{name}__", lambda self, other: self._with(function, self, other))
    setattr(SizeNumber, f"__r{name}__", lambda self, other: self._with(function, other, self))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs"):
    _operator(_name)
for _name, _function in (("ceil", math.ceil), ("floor", math.floor), ("trunc", math.trunc), ("round", round)):
    setattr(SizeNumber, f"__{_name}__", lambda self, *digits, _f=_function: self._with(_f, self, *digits))


base_error.shown = _shown  # no message has the integer that stands for a size
