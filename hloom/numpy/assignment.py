"""Methods of arrays with `hl.config.item_assignment`: NumPy's views are views (`hloom.arrays.views`), and `x += y`
changes x."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from hloom.arrays import views
from hloom.arrays.array import Array
from hloom.arrays.base import ArrayMethods
from hloom.errors import DTypeError, ShapeError
from hloom.ir.types import HLO_NAME, INTEGERS, PRED
from hloom.tracing.trace import current_trace

IN_PLACE = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
# Methods and properties that return views in NumPy, unless they move elements.
VIEWS = ("reshape", "ravel", "squeeze", "swapaxes", "transpose", "T", "mT", "real", "imag")

_MISSING = object()
_plain: dict[str, object] = {}  # Array's attributes of these names without the setting


def use(assigns: bool) -> None:
    """Installs the methods that support views and in-place operators on Array, or removes them."""
    if assigns and not _plain:
        for name in ("__getitem__", *VIEWS):
            plain = getattr(Array, name)
            _plain[name] = vars(Array).get(name, _MISSING)
            setattr(Array, name, _viewing(name, plain))
        for name in IN_PLACE:
            _plain[f"__i{name}__"] = _MISSING
            setattr(Array, f"__i{name}__", _in_place(name))
    elif not assigns:
        for name, value in _plain.items():
            if value is _MISSING:
                delattr(Array, name)
            else:
                setattr(Array, name, value)
        _plain.clear()


def _viewing(name: str, plain):
    if isinstance(plain, property):
        assert plain.fget is not None
        take = plain.fget
        return property(lambda self: _view(self, take(self), lambda data: getattr(data, name)))
    if name == "__getitem__":
        return lambda self, index: _view(self, plain(self, index), None if current_trace() else _part(index))
    return lambda self, *args, **options: _view(
        self, plain(self, *args, **options), lambda data: getattr(data, name)(*args, **options)
    )


def _part(index) -> Callable | None:
    """The function that applies a basic index to NumPy data; None for an index with arrays, whose result is a copy."""
    entries = []
    for entry in index if isinstance(index, tuple) else (index,):
        if isinstance(entry, ArrayMethods):
            if type(entry) is not Array or entry.ndim or entry.dtype not in INTEGERS:
                return None
            entry = int(entry)
        elif not (entry is None or entry is Ellipsis or isinstance(entry, slice)):
            if isinstance(entry, (bool, np.bool_)) or not hasattr(entry, "__index__") or np.ndim(entry):
                return None
            entry = operator.index(entry)
        entries.append(entry)
    basic = tuple(entries)
    return lambda data: data[basic]


def _view(x: Array, result, part: Callable | None):
    """The result as a view of x, if NumPy's is a view: a single element is a scalar instead."""
    if part is None or current_trace() is not None or type(result) is not Array or not result._shape.dims:
        return result
    root, chain = views.origin(x)
    chain = (*chain, part)
    data = root._value()
    if data.size and not np.may_share_memory(views.taken(data, chain), data):
        return result
    if result is x:
        result = Array(x._held(), x.weak, x._device, x._shape)
    views.join(result, root, chain)
    return result


def _in_place(name: str):
    compute = getattr(operator, f"{name}_" if name in ("and", "or") else name)

    def assign(self, other):
        result = compute(self, other)
        if not self._shape.dims or type(result) is not Array or current_trace() is not None:
            return result  # numbers and traced values are other objects, as in NumPy and JAX
        if result.shape != self.shape:
            raise ShapeError(
                f"x {name}= y keeps the shape of x", f"{self._shape!r}, and {result.shape} as the result",
                "assign the result to a new name",
            )  # fmt: skip
        own, made = self.dtype, result.dtype
        fits = made == own or (own != PRED and made in INTEGERS and own not in INTEGERS) or own.kind == made.kind
        if not fits and not (own.kind in "fcV" and made.kind in "fV") and not np.can_cast(made, own, "same_kind"):
            raise DTypeError(
                f"x {name}= y keeps the dtype of x", f"{HLO_NAME[own]}, and {HLO_NAME[made]} as the result",
                "convert x with astype first, or write x = x + y",
            )  # fmt: skip
        views.write(self, result._value() if made == own else result._value().astype(own))
        return self

    return assign
