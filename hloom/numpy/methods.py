"""Operators, indexing and methods of arrays: `x + y` is `hnp.add(x, y)`, `x.sum(axis)` is `hnp.sum(x, axis)`.

Importing this module attaches them to `ArrayMethods`, the base of Array and Tracer, and to the type `hl.Array`.
"""

from __future__ import annotations

import numpy as np

from hloom import numpy as hnp
from hloom.arrays.operators import ArrayMethods
from hloom.lax.transfer import device_put
from hloom.numpy.indexing.subscripts import index_array
from hloom.numpy.indexing.updates import IndexUpdates
from hloom.typing import Array

# Operators with a reflected form: name without the underscores -> function of hloom.numpy.
BINARY = {
    "add": hnp.add,
    "sub": hnp.subtract,
    "mul": hnp.multiply,
    "truediv": hnp.true_divide,
    "floordiv": hnp.floor_divide,
    "mod": hnp.remainder,
    "divmod": hnp.divmod,
    "pow": hnp.power,
    "matmul": hnp.matmul,
    "and": hnp.bitwise_and,
    "or": hnp.bitwise_or,
    "xor": hnp.bitwise_xor,
    "lshift": hnp.left_shift,
    "rshift": hnp.right_shift,
}
COMPARISONS = {
    "eq": hnp.equal,
    "ne": hnp.not_equal,
    "lt": hnp.less,
    "le": hnp.less_equal,
    "gt": hnp.greater,
    "ge": hnp.greater_equal,
}
UNARY = {"neg": hnp.negative, "pos": hnp.positive, "abs": hnp.absolute, "invert": hnp.invert}
# Methods that are the function of that name, with the array as its first argument.
METHODS = (
    "all any argmax argmin argpartition argsort astype byteswap choose clip conj conjugate copy cumsum cumprod "
    "diagonal dot max mean min nonzero partition prod ptp ravel repeat round searchsorted sort squeeze std sum "
    "swapaxes take trace var"
).split()
PROPERTIES = {
    "T": hnp.transpose,
    "mT": hnp.matrix_transpose,
    "real": hnp.real,
    "imag": hnp.imag,
    "at": IndexUpdates,
}
_OPERANDS = (ArrayMethods, int, float, complex, bool, np.ndarray, np.generic)


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
    """The elements as a vector."""
    return hnp.ravel(self, order)


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


def _attach() -> None:
    table = {
        **{f"__{name}__": _operator(function) for name, function in (BINARY | COMPARISONS).items()},
        **{f"__r{name}__": _reflected(function) for name, function in BINARY.items()},
        **{f"__{name}__": function for name, function in UNARY.items()},
        **{name: getattr(hnp, name) for name in METHODS},
        **{name: property(function) for name, function in PROPERTIES.items()},
        "__array_namespace__": _namespace,
        "__getitem__": index_array,
        "compress": _compress,
        "flatten": _flatten,
        "reshape": _reshape,
        "to_device": _to_device,
        "transpose": _transpose,
        "view": _view,
    }
    for name, value in table.items():
        setattr(ArrayMethods, name, value)
    for name, value in vars(ArrayMethods).items():
        if name not in ("__slots__", "__dict__", "__weakref__", "__doc__", "__module__"):
            setattr(Array, name, value)


_attach()
