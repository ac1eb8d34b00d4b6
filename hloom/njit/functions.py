"""Functions that a NumPy program calls: NumPy's own become hloom's, in NumPy's dtypes."""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom import lax
from hloom import numpy as hnp
from hloom.errors import UnsupportedError
from hloom.njit.drawing import of_random
from hloom.njit.operators import elementwise, of_operator, python_of
from hloom.njit.plain import of_math
from hloom.njit.values import (
    KINDS,
    PYTHON,
    Array,
    Number,
    Value,
    as_value,
    converted,
    dtype_of,
    traced,
)  # fmt: skip

__all__ = ["ATTRIBUTES", "builtin_call", "chosen", "is_of_numpy", "joined", "kind", "method", "np_where", "numpy_call"]

# Functions that make arrays of numbers: they are computed when the program runs, not in its text.
_MAKERS = frozenset(("arange", "linspace", "eye", "identity", "tri", "logspace", "geomspace"))
_MODULES = {"numpy": "hloom.numpy", "numpy.linalg": "hloom.numpy.linalg", "numpy.fft": "hloom.numpy.fft",
            "scipy.special": "hloom.scipy.special"}  # fmt: skip
# Integers and truth values that these sum up are 64 bits wide.
_SUMS = frozenset(("sum", "prod", "cumsum", "cumprod", "nansum", "nanprod", "trace"))
_MEANS = frozenset(("mean", "var", "std", "average", "median", "nanmean"))
# Functions whose reductions have the dtype of their elements.
_ORDERED = frozenset(("maximum", "minimum", "fmax", "fmin", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and",
                      "logical_or", "logical_xor"))  # fmt: skip
# Functions whose results are integers of 64 bits.
_POSITIONS = frozenset(("argmax", "argmin", "argsort", "searchsorted", "count_nonzero", "digitize", "bincount"))
_BUILTINS: dict[Any, np.ufunc] = {abs: np.absolute, min: np.minimum, max: np.maximum, pow: np.power, divmod: np.divmod}
# Methods of arrays that are functions of NumPy by the same name.
ATTRIBUTES = frozenset(
    ("all", "any", "argmax", "argmin", "argsort", "clip", "conj", "conjugate", "cumprod", "cumsum", "diagonal", "dot",
     "max", "mean", "min", "nonzero",
     "prod", "ptp", "repeat", "round", "squeeze", "std", "sum", "swapaxes", "take", "trace",
     "var", "view", "copy", "astype", "fill", "flatten", "ravel", "item", "sort", "searchsorted")
)  # fmt: skip


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
    if module in ("math", "cmath"):
        return of_math(function, args)
    special = (
        _SPECIAL if module in ("numpy", "numpy.lib.stride_tricks") else _LINEAR if module == "numpy.linalg" else {}
    ).get(name)
    if special is not None:
        return special(*args, **kwargs)
    if name not in _MAKERS and not any(map(_has_value, [*args, *kwargs.values()])):
        result = function(*args, **kwargs)
        return as_value(result) if isinstance(result, np.ndarray) else result
    if isinstance(function, np.ufunc) and function.signature is None:
        return _ufunc(function, args, kwargs)
    return _function(name, module, *_with_out(function, args, kwargs))


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
            return _function(known, "numpy", args, kwargs)
        own = getattr(getattr(hnp, ufunc.__name__, None), name, None)
        if own is not None and (ufunc.__name__ in _ORDERED or as_value(args[0]).dtype.kind in "fc"):
            return _result(own(*map(_argument, args), **{k: _argument(v) for k, v in kwargs.items()}))
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


def np_where(condition: Any, *choices: Any) -> Any:
    if not choices:
        return _nonzero(condition)
    dtype = np.result_type(*[kind(c) for c in choices])
    yes, no = [converted(c, dtype) for c in choices]
    found = hnp.where(traced(as_value(condition)), yes, no)
    return Array.of(found) if found.shape else Number(found)


def chosen(test: Any, yes: Any, no: Any) -> Any:
    """One of two numbers."""
    if not all(isinstance(v, (Number, int, float, complex, np.generic)) for v in (yes, no)):
        raise UnsupportedError("a conditional expression of arrays", f"{yes!r} and {no!r}", "use np.where")
    python = [python_of(v) for v in (yes, no)]
    found = np_where(test, yes, no)
    return found if None in python else Number(found.traced, KINDS[found.dtype.kind])


def _where(condition: Any, *choices: Any) -> Any:
    found = np_where(condition, *choices)
    return Array.of(found.traced) if isinstance(found, Number) else found  # NumPy returns an array without dimensions


def kind(value: Any) -> Any:
    """Arguments for `np.result_type`: Python numbers take the dtype of others."""
    value = as_value(value)
    if not isinstance(value, Value):
        return value
    if isinstance(value, Number) and value.python is not None:
        return value.python(1)
    return value.dtype


def _function(name: str, module: str, args: tuple, kwargs: dict) -> Any:
    """A function of NumPy by hloom's of the same name."""
    home = _MODULES.get("scipy.special" if module.startswith("scipy.special.") else module)
    found = None if home is None else getattr(importlib.import_module(home), name, None)
    if found is None:
        raise UnsupportedError(f"{module}.{name} in a compiled NumPy program", "hloom has no such function",
                               "write it as a loop, or compute it outside")  # fmt: skip
    out = kwargs.pop("out", None)
    args = tuple([_argument(a) for a in args])
    kwargs = {key: _argument(value) for key, value in kwargs.items()}
    first: Any = args[0] if args else None
    letter = getattr(getattr(first, "dtype", None), "kind", "")
    if letter in ("b", "i", "u") and "dtype" not in kwargs:
        if name in _SUMS and np.dtype(first.dtype).itemsize < 8:
            kwargs["dtype"] = np.uint64 if letter == "u" else np.int64
        elif name in _MEANS:
            args = (first.astype(np.float64), *args[1:])
    narrow = any(getattr(a, "dtype", None) == np.int32 for a in (*args, *kwargs.values()))
    return _result(found(*args, **kwargs), (narrow and name not in _POSITIONS) or "dtype" in kwargs, out)


def _argument(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)([_argument(v) for v in value]) if type(value) in (tuple, list) else value
    return value.traced if isinstance(value, Value) else value


def _result(found: Any, narrow: bool = True, out: Any = None) -> Any:
    """What hloom's function returned, as NumPy's does. narrow: whether integers may have 32 bits, as an argument's or
    as asked for; those that a function counts or finds have 64."""
    if isinstance(found, tuple) and hasattr(found, "_fields"):
        return type(found)(*[_result(f, narrow) for f in found])
    if isinstance(found, (tuple, list)):
        return type(found)([_result(f, narrow) for f in found])
    if not hasattr(found, "shape"):
        return found
    if found.dtype == np.int32 and not narrow:
        found = found.astype(np.int64)
    made = Array.of(found) if found.shape else Number(found.astype(found.dtype) if found.weak else found)
    if out is not None:
        out[...] = made
        return out
    return made


# --- functions with a meaning of their own


def _copy(x: Any, order: str = "K", subok: bool = False) -> Any:
    return Array.of(traced(as_value(x)))


def _array(x: Any, dtype: Any = None, copy: bool = True, **options: Any) -> Any:
    value = as_value(x)
    if not isinstance(value, Value):
        return np.array(value, dtype)
    made = value.traced if dtype is None else converted(value, np.dtype(dtype))
    return Array.of(made)


def _asarray(x: Any, dtype: Any = None, **options: Any) -> Any:
    if isinstance(x, Array) and (dtype is None or x.dtype == np.dtype(dtype)):
        return x
    return _array(x, dtype)


def _reshape(x: Any, shape: Any, order: str = "C", **options: Any) -> Any:
    return as_value(x).reshape(shape, order=order)


def _ravel(x: Any, order: str = "C") -> Any:
    return as_value(x).reshape(-1, order=order)


def _transpose(x: Any, axes: Any = None) -> Any:
    return as_value(x).transpose(*(() if axes is None else (tuple(axes),)))


def _flip(x: Any, axis: Any = None) -> Any:
    axes = range(x.ndim) if axis is None else [a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,))]
    return x[tuple([slice(None, None, -1) if k in axes else slice(None) for k in range(x.ndim)])]


def _full(shape: Any, fill_value: Any, dtype: Any = None, **options: Any) -> Any:
    made = np.dtype(dtype) if dtype is not None else dtype_of(as_value(fill_value))
    return Array.of(hnp.broadcast_to(converted(fill_value, made), _sizes(shape)))


def _like(value: Any) -> Callable:
    def like(x: Any, dtype: Any = None, shape: Any = None, **options: Any) -> Any:
        x = as_value(x)
        dims, made = x.shape if shape is None else shape, dtype_of(x) if dtype is None else np.dtype(dtype)
        return _full(dims, value, made)

    return like


def _full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, **options: Any) -> Any:
    return _like(fill_value)(x, dtype, shape)


def _take(x: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    x, indices = as_value(x), as_value(indices)
    if mode != "raise":
        return _function("take", "numpy", (x, indices, axis), {"mode": mode, "out": out})
    if isinstance(indices, Value) and indices.dtype.kind == "b":
        indices = Array.of(indices.traced.astype(np.int64)) if indices.ndim else Number(indices.traced.astype(np.int64))
    if axis is None:
        found = Array.of(x.traced.reshape(-1))[indices]
    else:
        found = x[(*[slice(None)] * (operator.index(axis) % x.ndim), indices)]
    found = found if isinstance(found, Number) else Array.of(found.traced)
    if out is None:
        return found
    out[...] = found
    return out


def _clip(x: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **options: Any) -> Any:
    low, high = options.get("min", a_min), options.get("max", a_max)
    found = as_value(x)
    if low is not None:
        found = elementwise(np.maximum, (found, low))
    if high is not None:
        found = elementwise(np.minimum, (found, high))
    if found is x:
        found = _copy(x)
    if out is None:
        return found
    out[...] = found
    return out


def _nonzero(x: Any) -> tuple:
    """The positions of elements that are not zero; their number is computed by the program."""
    x = as_value(x)
    if not x.ndim:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead.")
    mask = elementwise(np.not_equal, (x, 0)).traced
    grids = np.indices(x.shape, sparse=True) if all(isinstance(n, int) for n in x.shape) else None
    if grids is None:
        raise UnsupportedError("np.nonzero of an array whose size the program computes", f"{x!r}", "use a loop")
    return tuple([Array.of(hnp.broadcast_to(hnp.asarray(g), x.shape)[mask]) for g in grids])


def _sizes(shape: Any) -> tuple[int, ...]:
    return tuple(map(operator.index, shape)) if isinstance(shape, (tuple, list)) else (operator.index(shape),)


def _copyto(target: Any, source: Any, where: Any = True, **options: Any) -> None:
    target[...] = source if where is True else np_where(where, source, target)


def _fill_diagonal(x: Any, value: Any, wrap: bool = False) -> None:
    n = min(x.shape)
    at = np.arange(n)
    x.write(x.traced.at[tuple([at] * x.ndim)].set(converted(value, x.dtype)))


def _matmul(a: Any, b: Any, out: Any = None) -> Any:
    a, b = as_value(a), as_value(b)
    dtype = np.result_type(kind(a), kind(b))
    return _result(hnp.matmul(converted(a, dtype), converted(b, dtype)), out=out)


def _dot(a: Any, b: Any, out: Any = None) -> Any:
    a, b = as_value(a), as_value(b)
    dtype = np.result_type(kind(a), kind(b))
    return _result(hnp.dot(converted(a, dtype), converted(b, dtype)), out=out)


def _sort(x: Any, axis: int = -1, **options: Any) -> Any:
    return _result(hnp.sort(traced(as_value(x)), axis=axis))


def _shape(x: Any) -> tuple[int, ...]:
    return as_value(x).shape


def _histogram(x: Any, *args: Any, **kwargs: Any) -> Any:
    counts, edges = _function("histogram", "numpy", (x, *args), dict(kwargs))
    whole = kwargs.get("weights") is None and not kwargs.get("density")
    return (Array.of(counts.traced.astype(np.int64)) if whole else counts), edges


def _histogram2d(x: Any, *args: Any, **kwargs: Any) -> Any:
    counts, *edges = _function("histogram2d", "numpy", (x, *args), dict(kwargs))
    return (Array.of(counts.traced.astype(np.float64)), *edges)


def _windows(x: Any, window_shape: Any, axis: Any = None, **options: Any) -> Any:
    """`sliding_window_view`, of the elements now: NumPy's view cannot be written either."""
    array = as_value(x)
    sizes = window_shape if isinstance(window_shape, tuple) else (window_shape,)
    axes = range(array.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if options or len(sizes) != len(axes):
        raise UnsupportedError(
            "sliding_window_view", f"a window of {sizes} and the axes {tuple(axes)}", "give a size for each axis"
        )
    found = array.traced
    for size, k in zip(sizes, axes, strict=True):
        places = np.arange(array.shape[k] - size + 1)[:, None] + np.arange(size)
        found = hnp.moveaxis(hnp.take(found, places, axis=k % array.ndim), k % array.ndim + 1, -1)
    made = Array.of(found)
    made.fixed = "it is a view by sliding_window_view"
    return made


def joined(owner: Any, index: Any) -> Any:
    """`np.r_[...]` and `np.c_[...]`."""
    parts = index if isinstance(index, tuple) else (index,)
    if not any(map(_has_value, parts)):
        return owner[index]
    parts = tuple([np.r_[part] if isinstance(part, slice) else part for part in parts])
    dtype = np.result_type(*[kind(part) for part in parts if not isinstance(part, str)])
    arrays = tuple([part if isinstance(part, str) else converted(part, dtype) for part in parts])
    return Array.of((hnp.r_ if owner is np.r_ else hnp.c_)[arrays])


def _result_type(*values: Any) -> np.dtype:
    return np.result_type(*[v if isinstance(v, (type, np.dtype, str)) else kind(v) for v in values])


def _ndarray(shape: Any, dtype: Any = float, *others: Any, order: Any = None, **options: Any) -> Any:
    if others or options or order not in (None, "C"):
        raise UnsupportedError(
            "np.ndarray(shape, dtype) with a buffer, strides or an order",
            "arrays of a compiled program are new memory in C order", "take np.empty, or a view of an array",
        )  # fmt: skip
    return _full(shape, 0, dtype)


_SPECIAL: dict[str, Callable] = {
    "result_type": _result_type, "sliding_window_view": _windows, "histogram2d": _histogram2d,
    "histogram": _histogram,
    "ndarray": _ndarray, "copy": _copy, "array": _array, "reshape": _reshape,
    **dict.fromkeys(("asarray", "asanyarray", "ascontiguousarray"), _asarray),
    "ravel": _ravel, "transpose": _transpose, "flip": _flip, "full": _full,
    **dict.fromkeys(("empty", "zeros"), lambda shape, dtype=float, **o: _full(shape, 0, dtype)),
    "ones": lambda shape, dtype=float, **o: _full(shape, 1, dtype),
    "zeros_like": _like(0), "ones_like": _like(1), "empty_like": _like(0), "full_like": _full_like,
    "take": _take, "clip": _clip, "nonzero": _nonzero,
    "copyto": _copyto, "fill_diagonal": _fill_diagonal, "where": _where, "matmul": _matmul, "dot": _dot,
    "row_stack": lambda parts, **o: _function("vstack", "numpy", (parts,), o),
    "sort": _sort, "shape": _shape, "ndim": lambda x: as_value(x).ndim, "size": lambda x: as_value(x).size,
}  # fmt: skip


def _of_symmetric(name: str, lower: bool) -> Callable:
    """A function of `np.linalg` that reads one triangle of a matrix, whatever the other one has."""

    def compute(a: Any, UPLO: str = "L", *, upper: bool = False) -> Any:  # noqa: N803  (NumPy's name)
        a = as_value(a)
        whole = a.traced
        kept = lower and UPLO.upper() == "L" and not upper
        half = hnp.tril(whole, -1) if kept else hnp.triu(whole, 1)
        diagonal = hnp.eye(a.shape[-1], dtype=bool)
        full = half + hnp.where(diagonal, whole.real, 0) + hnp.swapaxes(half, -1, -2).conj()
        options = {"upper": True} if upper else {}
        return _function(name, "numpy.linalg", (Array.of(full.astype(whole.dtype)),), options)

    return compute


_LINEAR: dict[str, Callable] = {name: _of_symmetric(name, True) for name in ("eigh", "eigvalsh", "cholesky")} | {
    name: _SPECIAL[name] for name in ("matmul",)
}
_BY_MODULE = {"numpy": _SPECIAL, "numpy.lib.stride_tricks": _SPECIAL, "numpy.linalg": _LINEAR}


setattr(Value, "__matmul__", lambda self, other: _matmul(self, other))  # noqa: B010  (products need functions of this file)
setattr(Value, "__rmatmul__", lambda self, other: _matmul(other, self))  # noqa: B010


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
    x[...] = _sort(x, axis)


def _view(x: Any, dtype: Any) -> Any:
    """The same bits in another dtype. An array is a copy, which is read as long as the array is not changed."""
    dtype = np.dtype(dtype)
    if dtype.itemsize != x.itemsize or "b" in (dtype.kind, x.dtype.kind):
        raise UnsupportedError(f"x.view({dtype}) in a compiled NumPy program", f"{x!r}", "use a dtype of the same size")
    found = lax.bitcast_convert_type(x.traced, dtype)
    if isinstance(x, Number):
        return Number(found)
    return Array.one_of(found, "it is a view of an array in another dtype", [x.ref])


def _item(x: Any, *index: int) -> Any:
    if not index and x.size != 1:
        raise ValueError("can only convert an array of size 1 to a Python scalar")
    found = x[index if len(index) > 1 else index[0]] if index else x.reshape(-1)[0] if x.ndim else x
    return Number(found.traced, KINDS[found.dtype.kind])


_METHODS: dict[str, Callable] = {
    "take": _take, "clip": _clip, "nonzero": _nonzero, "view": _view,
    "astype": _astype, "fill": _fill, "sort": _sort_in_place, "item": _item, "copy": _copy,
    "flatten": lambda x, order="C": Array.of(x.traced.reshape(-1)),
    "ravel": _ravel,
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
