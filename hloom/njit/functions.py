"""Functions that a NumPy program calls: NumPy's own become hloom's, in NumPy's dtypes."""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom import numpy as hnp
from hloom.errors import UnsupportedError
from hloom.njit.drawing import of_random
from hloom.njit.library.called import argument, kind, of_hloom, result
from hloom.njit.library.numeric import NUMERIC
from hloom.njit.library.own import (
    LINEAR,
    SPECIAL,
    clipped,
    copied,
    matmul,
    nonzero,
    np_where,
    sorted_array,
    taken,
)
from hloom.njit.library.plain import of_math
from hloom.njit.library.selected import SELECTED, sorted_list
from hloom.njit.library.views import VIEWS, ravel, reshaped, viewed
from hloom.njit.operators import elementwise, of_operator, python_of
from hloom.njit.values import (
    KINDS,
    PYTHON,
    Array,
    Number,
    Value,
    as_value,
    converted,
    traced,
)  # fmt: skip

__all__ = ["ATTRIBUTES", "builtin_call", "chosen", "is_of_numpy", "joined", "method", "numpy_call"]

# Functions that make arrays of numbers: they are computed when the program runs, not in its text.
_MAKERS = frozenset(
    ("arange", "linspace", "eye", "identity", "tri", "logspace", "geomspace", "nan_to_num", "put", "place", "putmask",
     "put_along_axis")
)  # fmt: skip
_BUILTINS: dict[Any, np.ufunc] = {abs: np.absolute, min: np.minimum, max: np.maximum, pow: np.power, divmod: np.divmod}
# Functions whose reductions have the dtype of their elements.
_ORDERED = frozenset(("maximum", "minimum", "fmax", "fmin", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and",
                      "logical_or", "logical_xor"))  # fmt: skip
# Methods of arrays that are functions of NumPy by the same name.
ATTRIBUTES = frozenset(
    ("all", "any", "argmax", "argmin", "argsort", "clip", "conj", "conjugate", "cumprod", "cumsum", "diagonal", "dot",
     "max", "mean", "min", "nonzero",
     "prod", "ptp", "repeat", "round", "squeeze", "std", "sum", "swapaxes", "take", "trace",
     "var", "view", "copy", "astype", "fill", "flatten", "ravel", "item", "sort", "searchsorted", "reshape",
     "partition", "argpartition")
)  # fmt: skip
_OWN: dict[str, dict[str, Callable]] = {"numpy": SPECIAL | VIEWS | NUMERIC | SELECTED, "numpy.linalg": LINEAR}
# NumPy computes these itself where it knows their arguments.
_PURE = VIEWS.keys() | NUMERIC.keys() | SELECTED.keys()


def is_of_numpy(function: Any) -> bool:
    """Whether a function is NumPy's, or of `math` or `scipy.special`."""
    if isinstance(function, np.ufunc):
        return True
    module = getattr(function, "__module__", None) or ""
    if isinstance(function, type):
        return issubclass(function, np.generic) or function is np.ndarray
    owner = getattr(function, "__self__", None)
    return isinstance(owner, np.ufunc) or module.split(".")[0] in ("numpy", "math", "cmath", "scipy")


def numpy_call(function: Any, args: tuple, kwargs: dict) -> Any:
    """A call of a function of NumPy, of `math`, or of Python's own functions of numbers."""
    if (found := _BUILTINS.get(function)) is not None and any(map(_has_value, args)):
        return _builtin(found, args)
    if isinstance(function, type) and issubclass(function, np.generic):
        return _of_dtype(np.dtype(function), args)
    if isinstance(getattr(function, "__self__", None), np.ufunc):
        return _method(function, args, kwargs)
    name = function.__name__
    module = "numpy" if isinstance(function, np.ufunc) else function.__module__ or "numpy"
    if module.startswith("numpy.random"):
        return of_random(function, args, kwargs)
    if module == "numpy.lib.stride_tricks":
        module = "numpy"
    if module in ("math", "cmath"):
        return of_math(function, args)
    special = _OWN.get(module, {}).get(name)
    known = name not in _MAKERS and not any(map(_has_value, [*args, *kwargs.values()]))
    if special is not None and not (known and name in _PURE):
        return special(*args, **kwargs)
    if known:
        result = function(*args, **kwargs)
        return as_value(result) if isinstance(result, np.ndarray) else result
    if isinstance(function, np.ufunc) and function.signature is None:
        return _ufunc(function, args, kwargs)
    return of_hloom(name, module, *_with_out(function, args, kwargs))


def _with_out(function: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments of a function of NumPy, with out= by name."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return args, kwargs
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values()):
        return args, kwargs
    names = list(parameters)
    first = names.index("out") if "out" in names else len(args)
    return args[:first], {**dict(zip(names[first:], args[first:], strict=False)), **kwargs}


def _has_value(argument: Any) -> bool:
    if isinstance(argument, (tuple, list)):
        return any(map(_has_value, argument))
    return isinstance(argument, Value)


def _builtin(ufunc: np.ufunc, args: tuple) -> Any:
    if ufunc not in (np.minimum, np.maximum):
        return of_operator(ufunc, args)
    values = list(args[0]) if len(args) == 1 else list(args)
    test = np.less if ufunc is np.minimum else np.greater  # NaN is neither
    return functools.reduce(lambda a, b: chosen(elementwise(test, (b, a)), b, a), values)


def _of_dtype(dtype: np.dtype, args: tuple) -> Any:
    if not args:
        return dtype.type()
    value = as_value(args[0])
    if not isinstance(value, Value):
        return dtype.type(value)
    return Array.of(converted(value, dtype)) if value.ndim else Number(converted(value, dtype))


def _method(function: Any, args: tuple, kwargs: dict) -> Any:
    """A method of a ufunc: `np.add.reduce`, `np.add.outer`, `np.add.at`."""
    ufunc, name = function.__self__, function.__name__
    if name == "at":
        target, index, *values = args
        return _at(ufunc, target, index, values)
    if name == "outer":
        first, second = [as_value(a) for a in args]
        wide = Array.of(hnp.asarray(traced(first)).reshape((*np.shape(traced(first)), *[1] * np.ndim(traced(second)))))
        return elementwise(ufunc, (wide, second))
    if name in ("reduce", "accumulate", "reduceat"):
        same = {("add", "reduce"): "sum", ("multiply", "reduce"): "prod", ("add", "accumulate"): "cumsum",
                ("multiply", "accumulate"): "cumprod", ("minimum", "reduce"): "min", ("maximum", "reduce"): "max",
                ("logical_and", "reduce"): "all", ("logical_or", "reduce"): "any"}  # fmt: skip
        if (known := same.get((ufunc.__name__, name))) is not None:
            kwargs = {"axis": 0, **kwargs} if len(args) < 2 else kwargs
            return of_hloom(known, "numpy", args, kwargs)
        own = getattr(getattr(hnp, ufunc.__name__, None), name, None)
        if own is not None and (ufunc.__name__ in _ORDERED or as_value(args[0]).dtype.kind in "fc"):
            return result(own(*map(argument, args), **{k: argument(v) for k, v in kwargs.items()}))
    raise UnsupportedError(f"np.{ufunc.__name__}.{name} in a compiled NumPy program", "it is not supported",
                           "write it as a loop")  # fmt: skip


def _at(ufunc: np.ufunc, target: Any, index: Any, values: list) -> None:
    if not isinstance(target, Array):
        raise UnsupportedError(f"np.{ufunc.__name__}.at", "its first argument is no array of the program", "use one")
    names = {"add": "add", "subtract": "add", "multiply": "multiply", "minimum": "min", "maximum": "max"}
    if ufunc.__name__ not in names:
        raise UnsupportedError(f"np.{ufunc.__name__}.at", "it is not supported", "write it as a loop")
    value = elementwise(np.negative, values) if ufunc is np.subtract else values[0]
    place = target.traced.at[tuple(map(traced, index)) if isinstance(index, tuple) else traced(index)]
    target.write(getattr(place, names[ufunc.__name__])(converted(value, target.dtype)))


def _ufunc(ufunc: np.ufunc, args: tuple, kwargs: dict) -> Any:
    out = kwargs.pop("out", None)
    if len(args) > ufunc.nin:
        args, out = args[: ufunc.nin], args[ufunc.nin :]
    where = kwargs.pop("where", True)
    dtype = kwargs.pop("dtype", None)
    if kwargs:
        raise UnsupportedError(f"np.{ufunc.__name__} with {next(iter(kwargs))}=", "it is not supported", "leave it out")
    result = elementwise(ufunc, args)
    if dtype is not None:
        result = _of_dtype(np.dtype(dtype), (result,))
    outs = out if isinstance(out, tuple) else (out,)
    if len(outs) > 1 and where is True:
        return tuple([r if o is None else _stored(r, o) for r, o in zip(result, outs, strict=True)])
    out = outs[0]
    if out is None:
        if where is not True:
            raise UnsupportedError(f"np.{ufunc.__name__} with where=", "without out= its values are undefined",
                                   "use np.where")  # fmt: skip
        return result
    if where is not True:
        result = np_where(where, result, out)
    return _stored(result, out)


def _stored(result: Any, out: Any) -> Any:
    out[...] = result
    return out


def chosen(test: Any, yes: Any, no: Any) -> Any:
    """One of two numbers."""
    if not all(isinstance(v, (Number, int, float, complex, np.generic)) for v in (yes, no)):
        raise UnsupportedError("a conditional expression of arrays", f"{yes!r} and {no!r}", "use np.where")
    python = [python_of(v) for v in (yes, no)]
    found = np_where(test, yes, no)
    return found if None in python else Number(found.traced, KINDS[found.dtype.kind])


setattr(Value, "__matmul__", lambda self, other: matmul(self, other))  # noqa: B010  (products need functions of this file)
setattr(Value, "__rmatmul__", lambda self, other: matmul(other, self))  # noqa: B010


def joined(owner: Any, index: Any) -> Any:
    """`np.r_[...]` and `np.c_[...]`."""
    parts = index if isinstance(index, tuple) else (index,)
    if not any(map(_has_value, parts)):
        return owner[index]
    parts = tuple([np.r_[part] if isinstance(part, slice) else part for part in parts])
    dtype = np.result_type(*[kind(part) for part in parts if not isinstance(part, str)])
    arrays = tuple([part if isinstance(part, str) else converted(part, dtype) for part in parts])
    return Array.of((hnp.r_ if owner is np.r_ else hnp.c_)[arrays])


def method(value: Value, name: str) -> Any:
    """A method of a number or array, as `x.sum`."""
    own = _METHODS.get(name)
    if own is not None:
        return functools.partial(own, value)
    if name in ATTRIBUTES:
        function = getattr(np, name)
        return lambda *args, **kwargs: numpy_call(function, (value, *args), kwargs)
    raise AttributeError(name)


def _astype(x: Any, dtype: Any, **options: Any) -> Any:
    return _of_dtype(np.dtype(dtype), (x,)) if not x.ndim else Array.of(converted(x, np.dtype(dtype)))


def _fill(x: Any, value: Any) -> None:
    x[...] = value


def _sort_in_place(x: Any, axis: int = -1, **options: Any) -> None:
    x[...] = sorted_array(x, axis)


def _item(x: Any, *index: int) -> Any:
    if not index and x.size != 1:
        raise ValueError("can only convert an array of size 1 to a Python scalar")
    found = x[index if len(index) > 1 else index[0]] if index else x.reshape(-1)[0] if x.ndim else x
    return Number(found.traced, KINDS[found.dtype.kind])


_METHODS: dict[str, Callable] = {
    "take": taken, "clip": clipped, "nonzero": nonzero, "view": viewed,
    "astype": _astype, "fill": _fill, "sort": _sort_in_place, "item": _item, "copy": copied,
    "flatten": lambda x, order="C": Array.of(ravel(x, order).traced),
    "reshape": lambda x, *shape, order="C": reshaped(x, shape[0] if len(shape) == 1 else shape, order),
}  # fmt: skip


_TEXTS = frozenset((str, repr, ascii, format, hash, id, bin, hex, oct, chr, bytes, bytearray))


def type_of(value: Value) -> type:
    """The type that a traced value has in NumPy."""
    if isinstance(value, Number):
        return value.python or value.dtype.type
    return np.ndarray


def builtin_call(function: Any, args: tuple, kwargs: dict) -> Any:
    """Python's functions of traced numbers; NotImplemented for others."""
    value: Any = args[0] if args else None
    if function in _BUILTINS and any(map(_has_value, args)):
        return numpy_call(function, args, kwargs)
    if function is builtins.sum and _has_value(value):
        return functools.reduce(lambda a, b: a + b, list(value), *args[1:] or (0,))
    if function is sorted and _has_value(value):
        return sorted_list(*args, **kwargs)
    if not isinstance(value, Value):
        return NotImplemented
    if function in (int, float, complex) and len(args) == 1:
        return Number(converted(value, PYTHON[function]), function)
    if function in _TEXTS:
        raise UnsupportedError(f"{function.__name__} in a compiled NumPy program", f"its argument is {value!r}",
                               "return it, and call the function outside")  # fmt: skip
    found = _OF_VALUES.get(function)
    return NotImplemented if found is None else found(*args, **kwargs)


def _rounded(value: Any, digits: Any = None) -> Any:
    found = numpy_call(np.round, (value,) if digits is None else (value, digits), {})
    whole = isinstance(found, Number) and digits is None
    return Number(converted(found, PYTHON[int]), int) if whole else found


def _attribute(value: Any, name: str, *default: Any) -> Any:
    return method(value, name) if name in ATTRIBUTES else getattr(value, name, *default)


def _printed(*_: Any, **__: Any) -> Any:
    raise UnsupportedError("print in a compiled NumPy program", "it would print once, not in each call",
                           "use hl.debug.print")  # fmt: skip


_OF_VALUES: dict[Any, Callable] = {
    bool: lambda value: Number(elementwise(np.not_equal, (value, 0)).traced, bool),
    round: _rounded, getattr: _attribute, print: _printed, type: type_of,
    isinstance: lambda value, kinds: issubclass(type_of(value), kinds),
}  # fmt: skip
