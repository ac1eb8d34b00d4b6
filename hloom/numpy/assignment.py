"""Methods of arrays with `hl.config.item_assignment`: NumPy's views are views (`hloom.arrays.views`), and `x += y`
changes x."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom import numpy as hnp
from hloom.arrays import views
from hloom.arrays.array import Array
from hloom.arrays.base import ArrayMethods
from hloom.config import config
from hloom.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from hloom.ir.types import HLO_NAME, INTEGERS, PRED
from hloom.numpy import traced_views as traced
from hloom.tracing.trace import Tracer, current_trace

IN_PLACE = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
# Methods and properties that return views in NumPy, unless they move elements.
VIEWS = ("reshape", "ravel", "squeeze", "swapaxes", "transpose", "T", "mT", "real", "imag", "conj", "conjugate")


def _reshaped(result, order=None, **_) -> Callable:
    return lambda data: data.reshape(result, order="F" if order == "F" else "C")


def _transposed(result, axes=None, rest=(), **_) -> Callable:
    return lambda data: np.transpose(data, (axes, *rest) if rest else axes)


def _same(name: str) -> Callable:
    """NumPy's function of the name, with the arguments that hloom's was called with."""
    return lambda result, **arguments: lambda data: getattr(np, name)(data, **arguments)


# Functions whose results are views in NumPy: from the shape of the result and the arguments after the first one to the
# function of NumPy data that makes the view.
FUNCTIONS: dict[str, Callable] = {
    **dict.fromkeys(
        ("reshape", "ravel", "squeeze", "expand_dims", "atleast_1d", "atleast_2d", "atleast_3d"), _reshaped
    ),
    **dict.fromkeys(("transpose", "permute_dims"), _transposed),
    "matrix_transpose": lambda result: lambda data: data.mT,
    "real": lambda result: lambda data: data.real,
    "imag": lambda result: lambda data: data.imag,
    **{name: _same(name) for name in ("moveaxis", "rollaxis", "swapaxes", "flip", "fliplr", "flipud", "rot90")},
    **{name: _same(name) for name in ("split", "array_split", "hsplit", "vsplit", "dsplit", "unstack")},
}
# Functions that may give their operand itself, where NumPy gives a new array: `conj(x)`, `sum(x, axis=())`, `x ** 1`.
# `diff(x, n=0)` and `einsum("ij", x)` give the operand, or a view of it, in NumPy too.
OWN = (
    "ceil clip column_stack concat concatenate conj conjugate cumprod cumsum cumulative_prod cumulative_sum ediff1d "
    "fix floor full_like hstack max meshgrid min nan_to_num nancumprod nancumsum nanmax nanmin nanprod nansum pad "
    "positive pow power prod repeat roll round sum tile trunc unwrap vstack"
).split()
OWN_METHODS = "__pos__ __pow__ clip cumprod cumsum max min prod repeat round sum".split()
_MISSING = object()
_plain: dict[str, object] = {}  # Array's attributes of these names without the setting
_functions: dict[str, Callable] = {}  # functions of hloom.numpy without the setting


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
        traced.use(_traced_methods())
        for name in OWN_METHODS:
            _plain[name] = vars(Array).get(name, _MISSING)
            setattr(Array, name, _owned(getattr(Array, name)))
        for name in OWN:
            _functions[name] = getattr(hnp, name)
            setattr(hnp, name, _owned(_functions[name]))
    elif not assigns:
        traced.stop()
        for name, value in _plain.items():
            if value is _MISSING:
                delattr(Array, name)
            else:
                setattr(Array, name, value)
        _plain.clear()
        for name, function in _functions.items():
            setattr(hnp, name, function)
        _functions.clear()


def viewing(name: str, function: Callable) -> Callable:
    """A function of FUNCTIONS with NumPy's views. It is what users call: hloom's own modules call the plain one."""
    signature = functools.cache(lambda: inspect.signature(function))

    @functools.wraps(function)
    def viewed(*args, **options):
        result = function(*args, **options)
        if not config.item_assignment:
            return result
        arguments = dict(signature().bind(*args, **options).arguments)
        x = arguments.pop(next(iter(arguments)))
        if arguments.get("copy"):
            return _apart(result, x)
        if isinstance(x, tuple):  # atleast_1d(x, y)
            several = [_view(one, r, FUNCTIONS[name](r.shape)) for one, r in zip(x, _listed(result), strict=True)]
            return type(result)(several) if isinstance(result, (tuple, list)) else several[0]
        if isinstance(result, (tuple, list)):
            parts = FUNCTIONS[name](None, **arguments)
            return type(result)(_view(x, one, _element(parts, k)) for k, one in enumerate(result))
        return _view(x, result, FUNCTIONS[name](result.shape, **arguments))

    return viewed


def into(function: Callable, out, args: tuple, kwargs: dict):
    """The result of a function, written to `out`, which it returns. Raises UnsupportedError without the setting."""
    name = function.__name__
    if not config.item_assignment:
        raise UnsupportedError(
            f"{name}(..., out=y)", "arrays are immutable", f"y = {name}(...), or set hl.config.item_assignment"
        )
    if not isinstance(out, ArrayMethods):
        raise ArgumentError(f"{name}(..., out=y)", f"y is {type(out).__name__}", "pass an array of hloom")
    result = function(*args, **kwargs)
    _require_fit(f"{name}(..., out=x)", out, result)
    result = result if result.dtype == out.dtype else result.astype(out.dtype)
    if isinstance(out, Array) and not isinstance(result, Tracer):
        out.take_over(result)
    else:
        traced.write(out, result, f"{name}(..., out=x)")
    return out


def _owned(function: Callable) -> Callable:
    """The function with a result that is no operand: a write to one would change the other."""

    @functools.wraps(function)
    def owned(*args, **options):
        result = function(*args, **options)
        given = [y for x in args for y in (x if isinstance(x, (tuple, list)) else (x,))]
        given += options.values()

        def own(one):
            if not isinstance(one, ArrayMethods) or not any(one is x for x in given):
                return one
            return traced.apart(one) if isinstance(one, Tracer) else hnp.copy(one)

        return type(result)(own(one) for one in result) if type(result) in (tuple, list) else own(result)

    return owned


def _listed(result) -> list:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _apart(result, x):
    """The result as another array than x."""
    if isinstance(result, Tracer):
        return traced.apart(result) if result is x else result
    return Array(x._held(), x.weak, x._device, x._shape) if result is x else result


def _element(whole: Callable, k: int) -> Callable:
    return lambda data: whole(data)[k]


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


def _traced_methods() -> dict[str, Any]:
    """Methods of traced arrays: views, and changes in place."""
    return (
        {name: _traced_view(name) for name in ("__getitem__", *VIEWS)}
        | {f"__i{name}__": _traced_in_place(name) for name in IN_PLACE}
        | {name: _owned(getattr(Tracer, name)) for name in OWN_METHODS}
    )


def _traced_view(name: str):
    plain = getattr(Tracer, name)
    if isinstance(plain, property):
        take = plain.fget
        assert take is not None

        def get(self):
            result = take(self)
            return traced.view(self, result, lambda data: getattr(data, name)) if traced.by_user() else result

        return property(get)

    def method(self, *args, **options):
        result = plain(self, *args, **options)
        if not traced.by_user():
            return result
        if name == "__getitem__":
            return traced.view(self, result, _part(*args))
        return traced.view(self, result, lambda data: getattr(data, name)(*args, **options))

    return method


def _traced_in_place(name: str) -> Callable:
    compute = getattr(operator, f"{name}_" if name in ("and", "or") else name)

    def assign(self, other):
        result = compute(self, other)
        if not self._shape.dims or not isinstance(result, Tracer) or not traced.by_user():
            return result
        _require_fit(f"x {name}= y", self, result)
        traced.write(self, result if result.dtype == self.dtype else result.astype(self.dtype), f"x {name}= y")
        return self

    return assign


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
    if isinstance(x, Tracer):
        return traced.view(x, result, part)
    if type(x) is not Array or type(result) is not Array or not result._shape.dims:
        return result
    if part is None or current_trace() is not None:
        return result
    root, chain = views.origin(x)
    chain = (*chain, part)
    data = root._value()
    if data.size and not np.may_share_memory(views.taken(data, chain), data):
        return result
    if result is x:
        result = _apart(result, x)
    views.join(result, root, chain)
    return result


def _in_place(name: str):
    compute = getattr(operator, f"{name}_" if name in ("and", "or") else name)

    def assign(self, other):
        result = compute(self, other)
        if not self._shape.dims:
            return result  # numbers are other objects, as in NumPy
        if isinstance(result, Tracer) and traced.by_user():
            traced.write(self, result, f"x {name}= y")  # is refused
        if type(result) is not Array or current_trace() is not None:
            return result
        _require_fit(f"x {name}= y", self, result)
        views.write(self, result._value() if result.dtype == self.dtype else result._value().astype(self.dtype))
        return self

    return assign


def _require_fit(what: str, x, result) -> None:
    """Raises ShapeError, DTypeError where the result of an operator does not fit into x."""
    if result.shape != x.shape:
        raise ShapeError(
            f"{what} keeps the shape of x", f"{x._shape!r}, and {result.shape} as the result",
            "assign the result to a new name",
        )  # fmt: skip
    own, made = x.dtype, result.dtype
    fits = made == own or (own != PRED and made in INTEGERS and own not in INTEGERS) or own.kind == made.kind
    if not fits and not (own.kind in "fcV" and made.kind in "fV") and not np.can_cast(made, own, "same_kind"):
        raise DTypeError(
            f"{what} keeps the dtype of x", f"{HLO_NAME[own]}, and {HLO_NAME[made]} as the result",
            "convert x with astype first, or write x = x + y",
        )  # fmt: skip
