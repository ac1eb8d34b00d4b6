"""The functions of `hloom.numpy` that are one op on promoted operands, made from the op table (`Op.numpy`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hloom.arrays.base import ArrayMethods
from hloom.errors import DTypeError
from hloom.ir.op_table import OPS, Op
from hloom.ir.types import DTYPES, HLO_NAME, INEXACT, kind
from hloom.lax.operands import as_operand, inexact_dtype, promote_operands, to_inexact, with_weakness
from hloom.lax.table import docstring, documented, first_line
from hloom.tracing.trace import bind


def refuse(name: str, x, repair: str) -> DTypeError:
    """The error for an element type for which a function is not defined."""
    return DTypeError(f"{name} is not defined for {HLO_NAME[x.dtype]}", f"{x._shape!r}", repair)


def weakly(x, weak: bool):
    """x, weakly typed where `weak`."""
    return with_weakness(x, True) if weak else x


def binary(name: str, opcode: str, text: str, change=None, refused=frozenset(), instead=None, example=None) -> Callable:
    """A function of two operands that is one op on promoted operands.

    change: the promoted dtype -> the one to compute in. refused: dtypes for which the function is not defined;
    `instead`, if given, is applied to their promoted operands. example: as `Op.example`.
    """

    def function(x1, x2, /):
        # The common case first: two arrays of one shape and dtype.
        if isinstance(x1, ArrayMethods) and isinstance(x2, ArrayMethods) and x1._shape is x2._shape:
            weak = x1.weak and x2.weak
            dtype = x1._shape.dtype
            if change is not None and change(dtype) != dtype:
                (x1, x2), weak = promote_operands(name, (x1, x2), change)
        else:
            (x1, x2), weak = promote_operands(name, (x1, x2), change)
        if x1._shape.dtype in refused:
            if instead is not None:
                return weakly(instead(x1, x2), weak)
            raise refuse(name, x1, "convert the operands with astype")
        return bind(opcode, x1, x2, weak=weak)

    text = f"{text}\n\nPromotes and broadcasts. Raises ShapeError, DTypeError, ArgumentError."
    return documented(function, name, docstring(text, example, f"hnp.{name}"))


def unary(name: str, opcode: str, text: str, inexact: bool = True, refused=frozenset(), example=None) -> Callable:
    """A function of one operand that is one op; integers are converted first where `inexact`.

    example: as `Op.example`.
    """

    def function(x, /):
        if inexact:
            if not isinstance(x, ArrayMethods) or x._shape.dtype not in INEXACT:
                x = to_inexact(x, name)
        elif not isinstance(x, ArrayMethods):
            x = as_operand(x, name)
        if x._shape.dtype in refused:
            raise refuse(name, x, "convert the operand with astype")
        return bind(opcode, x, weak=x.weak)

    kinds = "Integers become floats. " if inexact else ""
    text = f"{text}\n\nElement-wise. {kinds}Raises DTypeError, ArgumentError."
    return documented(function, name, docstring(text, example, f"hnp.{name}"))


def _function(name: str, opcode: str, entry: Op, refused_kinds: tuple[str, ...]) -> Callable:
    kinds = set(entry.kinds) - set(refused_kinds)
    inexact = kinds <= {"float", "complex"}
    refused = frozenset(dtype for dtype in DTYPES.values() if kind(dtype) not in kinds)
    if entry.arity == 1:
        return unary(name, opcode, first_line(entry, "x"), inexact, refused, entry.example)
    change = inexact_dtype if inexact else None
    return binary(name, opcode, first_line(entry, "x1", "x2"), change, refused, example=entry.example)


__all__: list[str] = []
for _opcode, _entry in OPS.items():
    if _entry.numpy:
        _names = _entry.numpy.names.split()
        globals().update(dict.fromkeys(_names, _function(_names[0], _opcode, _entry, _entry.numpy.refused)))
        __all__ += _names

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Any]: ...
