"""Operators, indexing and methods of arrays: `x + y` is `hnp.add(x, y)`, `x.sum(axis)` is `hnp.sum(x, axis)`.

Importing this module attaches them to `ArrayMethods`, the base of Array and Tracer, and to the type `hl.Array`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hloom import numpy as hnp
from hloom.arrays.array import Array as ConcreteArray
from hloom.arrays.base import ArrayMethods
from hloom.config import config
from hloom.ir.process.lazy import LazyModule
from hloom.ir.sizes.expressions import SizeExpression
from hloom.lax.transfer import device_put
from hloom.numpy.foreign import OF_ARRAYS, OF_TRACERS, answer, without_foreign
from hloom.tracing.trace import Tracer
from hloom.typing import Array

# Operators with a reflected form: name without the underscores -> function of hloom.numpy.
BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "divmod": "divmod",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}
# Methods that are the function of that name, with the array as its first argument.
METHODS = (
    "all any argmax argmin argpartition argsort astype byteswap choose clip conj conjugate copy cumsum cumprod "
    "diagonal dot max mean min nonzero partition prod ptp ravel repeat round searchsorted sort squeeze std sum "
    "swapaxes take trace var"
).split()
PROPERTIES = {"T": "transpose", "mT": "matrix_transpose", "real": "real", "imag": "imag"}
_updates, _subscripts = LazyModule("hloom.numpy.indexing.updates"), LazyModule("hloom.numpy.indexing.subscripts")
_manipulation = LazyModule("hloom.numpy.shaping.manipulation")
_OPERANDS = (ArrayMethods, int, float, complex, bool, np.ndarray, np.generic, SizeExpression)


class _Deferred:
    """An attribute of arrays that replaces itself on first use by the method made from a function.

    Programs do not import the modules of methods that they do not call.
    """

    def __init__(self, attribute: str, module, function: str, make: Callable[[Any], Any] | None = None):
        self._attribute, self._module, self._function, self._make = attribute, module, function, make

    def __get__(self, instance, owner):
        value = getattr(self._module, self._function)
        if self._make is not None:
            value = self._make(value)
        for each in (ArrayMethods, Array):
            setattr(each, self._attribute, value)
        return value.__get__(instance, owner)


def _operator(function):
    def operator(self, other):
        return function(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    return operator


def _reflected(function):
    def operator(self, other):
        return function(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    return operator


def _compress(self, condition, axis=None, **options):
    """The slices along an axis where the condition is true: `hnp.compress(condition, x, axis)`."""
    return hnp.compress(condition, self, axis, **options)


def _flatten(self, order: str = "C"):
    """The elements as a vector, which is never a view."""
    result = _manipulation.ravel(self, order)
    return hnp.copy(result) if config.item_assignment and result is self else result


def _reshape(self, *shape, order: str = "C", copy=None):
    """The same elements with another shape, given as integers or as a tuple; one of them may be -1."""
    return hnp.reshape(self, shape[0] if len(shape) == 1 else shape, order=order)


def _transpose(self, *axes):
    """The axes in another order, given as integers or as a tuple; reversed by default."""
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
        return hnp.transpose(self, axes[0])
    return hnp.transpose(self, axes or None)


def _view(self, dtype=None, type=None):
    """The same bits as another dtype; the last dimension follows from the sizes of the elements."""
    return hnp.view(self, self.dtype if dtype is None else dtype)


def _to_device(self, device, stream=None):
    """The array on a device: `hl.device_put`."""
    return device_put(self, device)


def _namespace(self, *, api_version=None):
    """`hloom.numpy`, which implements the Array API standard."""
    return hnp


def _dir(self):
    return without_foreign(self, object.__dir__(self))


_PRINT = "hl.debug.print('{x:.3f}', x=x) prints it when the function runs; f'{x}' without a format shows its type"


def _format(self, specification: str) -> str:
    """Formats a traced value; without a format specification its repr, otherwise raises TracerConversionError."""
    if not specification:
        return str(self)
    return format(ConcreteArray(self._concrete("a formatted number of a traced value", _PRINT)), specification)


def _round(self, digits=None):
    """round(x) of a traced value would be a Python integer: raises TracerConversionError. round(x, digits) is
    traced."""
    return self._number(round) if digits is None else self.round(digits)


def _attach() -> None:
    deferred: dict[str, tuple] = {
        **{f"__{name}__": (hnp, function, _operator) for name, function in (BINARY | COMPARISONS).items()},
        **{f"__r{name}__": (hnp, function, _reflected) for name, function in BINARY.items()},
        **{f"__{name}__": (hnp, function) for name, function in UNARY.items()},
        **{name: (hnp, name) for name in METHODS},
        **{name: (hnp, function, property) for name, function in PROPERTIES.items()},
        "at": (_updates, "IndexUpdates", property),
        "__getitem__": (_subscripts, "index_array"),
    }
    own = {
        "__dir__": _dir,
        "__format__": _format,
        "__round__": _round,
        "__array_namespace__": _namespace,
        "compress": _compress,
        "flatten": _flatten,
        "reshape": _reshape,
        "to_device": _to_device,
        "transpose": _transpose,
        "view": _view,
    }
    for name, value in {**{name: _Deferred(name, *how) for name, how in deferred.items()}, **own}.items():
        setattr(ArrayMethods, name, value)
    for name, value in vars(ArrayMethods).items():
        if name not in ("__slots__", "__dict__", "__weakref__", "__doc__", "__module__"):
            setattr(Array, name, value)


def _function(name: str, inputs: list):
    """A NumPy function of values that include sizes, which count as 64-bit NumPy integers, or, next to arrays, as
    Python integers."""
    if any(isinstance(one, np.ndarray) for one in inputs):
        return getattr(hnp, name)(*inputs)
    dtype = getattr(np, name)(*[np.int64(2) if isinstance(one, SizeExpression) else one for one in inputs]).dtype
    wide = "float64" if dtype.kind == "f" else "int64"
    return getattr(hnp, name)(
        *[one.as_array().astype(wide) if isinstance(one, SizeExpression) else one for one in inputs]
    )


_attach()
SizeExpression.to_function = _function
answer(ArrayMethods, OF_ARRAYS)
answer(Tracer, OF_TRACERS)
_assignment = LazyModule("hloom.numpy.assignment")


def _assigns(assigns: bool) -> None:
    """Views and in-place operators, while `hl.config.item_assignment` is set."""
    _assignment.use(assigns)


config.on_change("item_assignment", _assigns)
if config.item_assignment:
    _assigns(True)
