"""The functions of `hloom.lax` that are one element-wise op each, made from the op table (`Op.lax`).

As in `jax.lax` nothing is promoted: array operands have equal dtypes and, except for scalars and dimensions of size 1,
which are broadcast, equal shapes. Python scalars take the dtype of the other operands.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hloom.arrays.base import ArrayMethods
from hloom.errors import DTypeError, ShapeError
from hloom.ir.op_table import OPS, Op
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    broadcast_shapes,
    conform,
    constant,
    promoted,
    read,
    scalar_dtype,
)
from hloom.tracing.trace import bind

_KINDS = {
    ("pred",): "booleans",
    ("signed", "unsigned"): "integers",
    ("signed",): "signed integers",
    ("float",): "floats",
    ("complex",): "complex numbers",
}


def documented(function: Callable, name: str, text: str) -> Callable:
    """The function with the given name and docstring."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


def first_line(entry: Op, *operands: str) -> str:
    """The first line of the docstring: the result in terms of the parameters."""
    return entry.doc.format(*operands) if "{" in entry.doc else entry.doc


def docstring(text: str, example: tuple[str, str] | None = None, function: str = "") -> str:
    """A docstring of paragraphs, the last of which is an interpreter example.

    example: a call of {f}, and its output (`Op.example`). function: the spelling of {f} in the example.
    """
    if example is not None:
        call, printed = example
        text += f"\n\n>>> {call.format(f=function)}\n{printed}"
    return text.replace("\n", "\n    ").replace("\n    \n", "\n\n") + "\n    "


def kinds_of_elements(kinds) -> str:
    """('signed', 'unsigned', 'float') as "integers and floats"."""
    words = [word for group, word in _KINDS.items() if set(group) <= set(kinds)]
    if "unsigned" in kinds:
        words = [word for word in words if word != "signed integers"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def like_arrays(name: str, values) -> tuple[list, bool]:
    """(operands with Python scalars converted to the dtype and shape of the other operands; whether all are weakly
    typed)."""
    if all(isinstance(v, ArrayMethods) for v in values):
        return values, all(v.weak for v in values)
    values = read(values, name)
    first = next((v for v in values if isinstance(v, ArrayMethods)), None)
    if first is None:
        dtype, weak = promoted(*[scalar_dtype(v) for v in values])
        return [constant(v, dtype) for v in values], weak
    dtype, dims = first._shape.dtype, first._shape.dims
    for value in values:
        if not isinstance(value, ArrayMethods) and promoted((dtype, False), scalar_dtype(value))[0] != dtype:
            raise DTypeError(
                f"{name} takes operands of one dtype",
                f"{first._shape!r} and the Python number {value!r}",
                "convert the array with astype, or use hloom.numpy, which promotes",
            )
    arrays = [v for v in values if isinstance(v, ArrayMethods)]
    weak = all(v.weak for v in arrays)
    return [v if isinstance(v, ArrayMethods) else conform(v, dtype, dims) for v in values], weak


def _stretched(name: str, arrays) -> list:
    """Arrays of equal rank, or scalars, broadcast along their dimensions of size 1."""
    rank = builtins.max(x.ndim for x in arrays)
    if any(x.ndim not in (0, rank) for x in arrays):
        raise ShapeError(
            f"{name} takes arrays of one rank, or scalars",
            " and ".join(f"{x._shape!r}" for x in arrays),
            "use hloom.numpy, which broadcasts, or lax.broadcast_in_dim",
        )
    dims = broadcast_shapes(name, [x.shape for x in arrays])
    return [broadcast_dims_to(x, dims) for x in arrays]


def _unary(name: str, opcode: str) -> Callable:
    def function(x):
        if not isinstance(x, ArrayMethods):
            x = as_operand(x, name)
        return bind(opcode, x, weak=x.weak)

    return function


def _with_accuracy(plain: Callable) -> Callable:
    def function(x, accuracy=None):
        return plain(x)

    return function


def binary(name: str, opcode: str, keeps_weak: bool = True, **attributes) -> Callable:
    """The binary function that is the op with these attributes.

    keeps_weak: whether the result of weakly typed operands is weakly typed, which that of a comparison is not.
    """

    def function(x, y):
        (x, y), weak = like_arrays(name, (x, y))
        if x._shape.dims != y._shape.dims:
            x, y = _stretched(name, (x, y))
        return bind(opcode, x, y, weak=weak and keeps_weak, **attributes)

    return function


def _ternary(name: str, opcode: str) -> Callable:
    def function(a, b, x):
        operands, weak = like_arrays(name, (a, b, x))
        return bind(opcode, *operands, weak=weak)

    return function


_ARITIES: dict[int, tuple[Callable, tuple[str, ...]]] = {
    1: (_unary, ("x",)),
    2: (binary, ("x", "y")),
    3: (_ternary, ("a", "b", "x")),
}


def _function(name: str, opcode: str, entry: Op) -> Callable:
    make, operands = _ARITIES[entry.arity]
    function = make(name, opcode)
    if entry.takes_accuracy:
        function = _with_accuracy(function)
    spelling = f" (HLO {opcode})" if "hlo" in entry.dialects.split() else ""
    errors = "DTypeError" if entry.arity == 1 else "ShapeError, DTypeError"
    text = f"Element-wise on {kinds_of_elements(entry.kinds)}{spelling}. Raises {errors}."
    text = docstring(f"{first_line(entry, *operands)}\n\n{text}", entry.example, f"hl.lax.{name}")
    return documented(function, name, text)


__all__: list[str] = []
for _opcode, _entry in OPS.items():
    if _names := _entry.lax.split():
        globals().update(dict.fromkeys(_names, _function(_names[0], _opcode, _entry)))
        __all__ += _names

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Any]: ...
