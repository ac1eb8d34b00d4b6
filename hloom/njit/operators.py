"""Operators of numbers and arrays in a NumPy program: NumPy's ufuncs, and Python's where all are numbers of Python."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom import lax
from hloom import numpy as hnp
from hloom.errors import ArgumentError, DTypeError, UnsupportedError
from hloom.njit.values import KINDS, PYTHON, Array, Number, Undecided, Value, as_value, between, converted, dtype_of
from hloom.scipy import special

__all__ = ["elementwise", "of_operator", "python_of"]


def kind_of(value: Any) -> Any:
    """The argument of `resolve_dtypes` for an operand: a dtype, or the type of a Python number (bool has a dtype)."""
    python = value.python if isinstance(value, Number) else type(value) if type(value) in PYTHON else None
    return python if python not in (None, bool) else dtype_of(value)


def elementwise(ufunc: np.ufunc, values: Sequence[Any]) -> Any:
    """A ufunc of numbers and arrays, in the dtypes that NumPy computes it in."""
    values = [as_value(v) for v in values]
    if not any(isinstance(v, Value) for v in values):
        return ufunc(*values)
    if ufunc in _TESTS and (found := _tested(ufunc, values)) is not None:
        return found
    kinds = [kind_of(v) for v in values]
    python = all(isinstance(k, type) for k in kinds)
    try:
        dtypes = ufunc.resolve_dtypes((*([PYTHON[k] for k in kinds] if python else kinds), *[None] * ufunc.nout))
    except TypeError as error:
        raise DTypeError(f"np.{ufunc.__name__}", str(error), "convert the operands") from None
    computed = _function_of(ufunc)(*[converted(v, d) for v, d in zip(values, dtypes, strict=False)])
    results = computed if isinstance(computed, tuple) else (computed,)
    many = any(isinstance(v, Array) and v.ndim for v in values)
    made = [_made(r, np.dtype(d), many, python) for r, d in zip(results, dtypes[len(values) :], strict=True)]
    return made[0] if len(made) == 1 else tuple(made)


def _made(result: Any, dtype: np.dtype, many: bool, python: bool) -> Any:
    """A result of a ufunc, as an array or a number. many: of arrays; python: of numbers of Python alone."""
    result = result if result.dtype == dtype else result.astype(dtype)
    if result.shape or many:
        return Array.of(result)
    return Number(result, KINDS[dtype.kind] if python and dtype.kind != "b" else None)


@functools.cache
def _function_of(ufunc: np.ufunc) -> Callable:
    """hloom's function for a ufunc of NumPy or of `scipy.special`."""
    name = ufunc.__name__
    is_special = getattr(np, name, None) is not ufunc and getattr(sys.modules.get("scipy.special"), name, None) is ufunc
    found = _LOGARITHMS.get(ufunc) or getattr(special if is_special else hnp, name, None)
    if found is None:
        raise UnsupportedError(f"{name} in a compiled NumPy program", "hloom has no such function", "write it out")
    return found


def _whole_at_powers(logarithm: Callable) -> Callable:
    """A logarithm that is whole for powers of its base, as NumPy's: in single precision hloom's is a quotient of two
    logarithms, whose last bit is not that of a whole number."""

    def compute(x: Any) -> Any:
        found = logarithm(x)
        if found.dtype != np.float32:
            return found
        whole = hnp.round(found)
        near = hnp.abs(found - whole) <= np.finfo(found.dtype).eps * hnp.abs(whole)
        return found + lax.stop_gradient(hnp.where(near & hnp.isfinite(found), whole - found, 0))

    return compute


_LOGARITHMS: dict[np.ufunc, Callable] = {np.log2: _whole_at_powers(hnp.log2), np.log10: _whole_at_powers(hnp.log10)}


def _tested(ufunc: np.ufunc, values: Sequence[Any]) -> Any:
    """A comparison of integers of NumPy with an integer of Python, which their dtype may not hold; None for others."""
    first, second = values
    if python_of(first) is int and dtype_of(second).kind in "iu" and python_of(second) is None:
        return _tested(_SWAPPED[ufunc], (second, first))
    if python_of(second) is not int or dtype_of(first).kind not in "iu" or python_of(first) is not None:
        return None
    wide = dtype_of(first) == np.uint64
    dtype = np.dtype(np.uint64 if wide else np.int64)
    constant = None if isinstance(second, Value) else second
    if constant is not None and not -(1 << 63) <= constant < 1 << (64 if wide else 63):
        found = hnp.full(first.shape, ufunc(0, np.sign(float(constant))))
        return Array.of(found) if found.shape else Number(found)
    whole = converted(second, dtype if constant is not None and constant >= 0 else PYTHON[int])
    found = _function_of(ufunc)(converted(first, dtype), whole.astype(dtype))
    if wide and (constant is None or constant < 0):  # all of its numbers are greater than a negative one
        below = converted(second, PYTHON[int]) < 0
        found = hnp.where(below, ufunc in (np.greater, np.greater_equal, np.not_equal), found)
    return Array.of(found) if found.shape else Number(found)


_OF_TRUTH = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)  # of Python's truth values, these are truth values
_SWAPPED: dict[np.ufunc, np.ufunc] = {
    np.less: np.greater, np.less_equal: np.greater_equal, np.greater: np.less, np.greater_equal: np.less_equal,
    np.equal: np.equal, np.not_equal: np.not_equal,
}  # fmt: skip
_TESTS = tuple(_SWAPPED)


def python_of(value: Any) -> type | None:
    """The type of a number of Python; None for NumPy's."""
    return value.python if isinstance(value, Number) else type(value) if type(value) in PYTHON else None


def of_operator(ufunc: np.ufunc, values: Sequence[Any]) -> Any:
    """An operator: Python's, where all operands are numbers of Python. Truth values are integers in its arithmetic."""
    kinds = [python_of(v) for v in values]
    if None in kinds:
        return elementwise(ufunc, values)
    if ufunc in _TESTS:
        return Number(elementwise(ufunc, values).traced, bool)
    if bool in kinds and not (ufunc in _OF_TRUTH and set(kinds) == {bool}):
        whole = [Number(converted(v, PYTHON[int]), int) if k is bool else v for v, k in zip(values, kinds, strict=True)]
        values = whole
    found = elementwise(ufunc, values)
    if isinstance(found, Number) and found.python is int:
        found.between = _between(ufunc, [between(v) for v in values])
    return Number(found.traced, bool) if isinstance(found, Number) and found.dtype == bool else found


def _between(ufunc: np.ufunc, ranges: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    """The least and the greatest result for two integers between others; None where it is not known."""
    if ufunc is np.negative:
        ufunc, ranges = np.subtract, [(0, 0), *ranges]
    first, second = ranges if len(ranges) == 2 else (None, None)
    if second is None or ufunc not in _MONOTONOUS:
        return None
    if ufunc is np.remainder:
        return (0, second[1] - 1) if second[0] > 0 else None
    if first is None or (ufunc is np.floor_divide and second[0] <= 0):
        return None
    ends = [_MONOTONOUS[ufunc](a, b) for a in first for b in second]
    lowest, highest = min(ends), max(ends)
    return (lowest, highest) if -(1 << 63) <= lowest and highest < 1 << 63 else None


# Whose results for operands between others are between those for their ends.
_MONOTONOUS: dict[np.ufunc, Callable[[int, int], int]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
}  # fmt: skip


def _operator(ufunc: np.ufunc, swapped: bool = False) -> Callable:
    def compute(self, other):
        if isinstance(other, (str, type(None), dict, set)):
            return NotImplemented
        if isinstance(other, (list, tuple)) and isinstance(self, Number) and self.dtype.kind in "iu":
            if ufunc is np.multiply:  # [0] * n
                raise Undecided("the length of a list")
            if self.python is not None:
                raise TypeError(f"an operator takes no {type(other).__name__} and int")
        return of_operator(ufunc, (other, self) if swapped else (self, other))

    return compute


def _in_place(ufunc: np.ufunc) -> Callable:
    def assign(self, other):
        other = as_value(other)
        if not isinstance(self, Array):
            return of_operator(ufunc, (self, other))
        result = elementwise(ufunc, (self, other))
        if result.shape != self.shape:
            raise ArgumentError(
                f"an array of {list(self.shape)} is changed in place", f"the result has the shape {list(result.shape)}",
                "assign the result to a new name",
            )  # fmt: skip
        if not np.can_cast(result.dtype, self.dtype, "same_kind"):
            raise DTypeError(
                f"an array of {self.dtype} is changed in place", f"the result is {result.dtype}",
                "write x = x + y, or convert with astype",
            )  # fmt: skip
        self.write(converted(result, self.dtype))
        return self

    return assign


_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lshift": np.left_shift, "rshift": np.right_shift,
}  # fmt: skip
_COMPARE = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
            "ne": np.not_equal}  # fmt: skip
for _name, _ufunc in _BINARY.items():
    setattr(Value, f"__{_name}__", _operator(_ufunc))
    setattr(Value, f"__r{_name}__", _operator(_ufunc, swapped=True))
    setattr(Value, f"__i{_name}__", _in_place(_ufunc))
for _name, _ufunc in _COMPARE.items():
    setattr(Value, f"__{_name}__", _operator(_ufunc))
for _name, _unary in {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}.items():
    setattr(Value, f"__{_name}__", lambda self, u=_unary: of_operator(u, (self,)))
