"""The values of names in a user's kernel during compilation: Python values, numbers, arrays in memory, array
expressions.

Sizes and indices are numbers of s64 whose range is known as far as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from hloom.compiler.kernel_ir.nodes import Const, Expr, Var
from hloom.ir.records import record
from hloom.ir.types import DTYPES

__all__ = ["S64", "Lazy", "Listed", "Number", "Range", "Static", "Value", "View", "integer"]

S64 = DTYPES["s64"]
Range: TypeAlias = tuple[int | None, int | None]  # the least and the greatest value; None: not known
UNKNOWN: Range = (None, None)


@record(frozen=True, eq=False)
class Static:
    """A Python value that is known: a module, a function, a dtype, a string, a slice, a tuple of values."""

    value: Any


class Listed(tuple):
    """The values of a list, which is an index of its own: `x[[0, 1]]` is not `x[0, 1]`."""

    __slots__ = ()


@record(frozen=True, eq=False)
class Number:
    """A number of one element.

    expr: in its register. dtype: f16 and bf16 are computed in float32. weak: of a Python number, which takes the dtype
    of the other operand. span: of an integer. known: the Python number, if it is a compile-time constant.
    """

    expr: Expr
    dtype: np.dtype
    weak: bool = False
    span: Range = UNKNOWN
    known: Any = None

    @property
    def is_integer(self) -> bool:
        return self.dtype.kind in "iu"


@record(frozen=True, eq=False)
class View:
    """Elements of memory: an argument, an array created by the kernel, or a slice of either.

    pointer: of its memory. name: the user's. start: the offset of the first element. writable: not an argument's.
    local: of one iteration of a parallel loop.
    """

    pointer: Var
    dtype: np.dtype
    dims: tuple[Number, ...]
    strides: tuple[Number, ...]
    start: Number
    name: str
    writable: bool = False
    local: bool = False


@record(frozen=True, eq=False)
class Lazy:
    """An array whose elements are computed on demand.

    element: of indices. reads: its operands. cheap: an element costs no more than a load.
    """

    dims: tuple[Number, ...]
    dtype: np.dtype
    weak: bool
    element: Callable[[Sequence[Number]], Number]
    reads: tuple[View, ...] = ()
    cheap: bool = False


Value: TypeAlias = Static | Number | View | Lazy


def integer(value: int) -> Number:
    """A Python integer."""
    return Number(Const("s64", value), S64, True, (value, value), value)
