"""Element-wise functions as objects: reductions, running results, outer products and updates by any of them.

`hnp.add` and the other element-wise functions are plain functions that carry these as attributes (`hnp.add.reduce`), so
calling them has no extra cost; `frompyfunc` makes a `ufunc` from any function of scalars.
"""

from __future__ import annotations

from hloom import lax
from hloom import numpy as hnp
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import as_dtype
from hloom.lax.operands import as_operand, broadcast_dims_to, canonical_axis, convert, full, product, reshape_to
from hloom.numpy.elementwise.logic import where as choose
from hloom.numpy.shaping.manipulation import moveaxis

_METHODS = ("reduce", "accumulate", "outer", "at", "reduceat")


class _UfuncMeta(type):
    def __instancecheck__(cls, value) -> bool:
        return type.__instancecheck__(cls, value) or hasattr(value, "reduceat")


class ufunc(metaclass=_UfuncMeta):
    """An element-wise function of nin arrays with nout results; nin, nout, nargs and identity are attributes.

    Made by `frompyfunc`. Element-wise functions of hloom.numpy count as ufuncs (`isinstance(hnp.add, hnp.ufunc)`).
    """

    def __init__(self, function, nin: int, nout: int, identity=None, name: str | None = None, methods=None):
        self._function = function
        self.nin, self.nout, self.nargs, self.identity = nin, nout, nin + nout, identity
        self.__name__: str = name or str(getattr(function, "__name__", "ufunc"))
        self.__doc__ = getattr(function, "__doc__", None)
        self._methods = methods or {}  # method -> the equivalent function of hloom.numpy, or method of `x.at[...]`

    def __repr__(self) -> str:
        return f"<hloom.numpy.elementwise.ufunc '{self.__name__}'>"

    def __call__(self, *args):
        if len(args) != self.nin:
            raise ArgumentError(
                f"{self.__name__} takes {self.nin} arrays", f"{len(args)} arguments", "pass one argument for each"
            )
        return self._function(*args)

    def _of_two(self, method: str) -> None:
        if (self.nin, self.nout) != (2, 1):
            raise ArgumentError(
                f"{self.__name__}.{method} needs a function of two arrays with one result",
                f"nin={self.nin}, nout={self.nout}",
                "use a function of two arrays",
            )

    def reduce(self, a, axis=0, dtype=None, out=None, keepdims: bool = False, initial=None, where=None):
        """The elements along an axis (None: all, a tuple: each in turn) combined from first to last.

        where excludes elements and needs initial, or the function's identity. Raises ArgumentError, ShapeError.
        """
        self._of_two("reduce")
        if "reduce" in self._methods:
            function = getattr(hnp, self._methods["reduce"])
            return function(a, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)
        x = as_operand(a, self.__name__)
        x = x if dtype is None else convert(x, as_dtype(dtype))
        named = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        axes = sorted({canonical_axis(k, x.ndim, self.__name__) for k in named})
        if where is not None:
            where = broadcast_dims_to(as_operand(where, self.__name__), x.shape)
        start = self.identity if initial is None else initial
        if where is not None and start is None:
            raise ArgumentError(f"{self.__name__}.reduce with where=", "no initial value", "pass initial=")
        dims = x.shape

        front = moveaxis(x, axes, tuple(range(len(axes))))
        rest = front.shape[len(axes) :]
        flat = reshape_to(front, (product(front.shape[: len(axes)]), *rest))
        if where is not None:
            where = reshape_to(moveaxis(where, axes, tuple(range(len(axes)))), flat.shape)
        needed = initial is not None or where is not None or not flat.shape[0]
        result = self._fold(flat, start if needed else None, where)
        if keepdims:
            result = reshape_to(result, tuple(1 if k in axes else d for k, d in enumerate(dims)))
        return result

    def _fold(self, x, start, where):
        """x combined along its first axis by a loop."""
        if start is None:
            if not x.shape[0]:
                raise ShapeError(f"{self.__name__}.reduce over an empty axis", f"{x._shape!r}", "pass initial=")
            start = lax.index_in_dim(x, 0, 0, keepdims=False)
            x = lax.slice_in_dim(x, 1, None)
        else:
            start = full(start, x.dtype, x.shape[1:]) if not hasattr(start, "_shape") else start
            start = broadcast_dims_to(convert(start, x.dtype), x.shape[1:])

        def step(carry, item):
            value, mask = item if where is not None else (item, None)
            combined = convert(as_operand(self._function(carry, value), self.__name__), start.dtype)
            return (combined if mask is None else choose(mask, combined, carry)), None

        return lax.scan(step, start, (x, where) if where is not None else x)[0]

    def accumulate(self, a, axis: int = 0, dtype=None, out=None):
        """The results of combining the first, the first two, ... elements along an axis. Raises ShapeError."""
        self._of_two("accumulate")
        if "accumulate" in self._methods:
            return getattr(hnp, self._methods["accumulate"])(a, axis=axis, dtype=dtype)

        x = as_operand(a, self.__name__)
        x = x if dtype is None else convert(x, as_dtype(dtype))
        axis = canonical_axis(axis, x.ndim, self.__name__)
        if x.shape[axis] < 2:
            return x
        front = moveaxis(x, axis, 0)
        first = lax.index_in_dim(front, 0, 0, keepdims=False)

        def step(carry, item):
            combined = convert(as_operand(self._function(carry, item), self.__name__), first.dtype)
            return combined, combined

        rest = lax.scan(step, first, lax.slice_in_dim(front, 1, None))[1]
        joined = lax.concatenate([reshape_to(first, (1, *first.shape)), rest], 0)
        return moveaxis(joined, 0, axis)

    def outer(self, A, B):
        """The function of each element of A with each of B: sizes A.shape + B.shape."""
        self._of_two("outer")
        a, b = as_operand(A, self.__name__), as_operand(B, self.__name__)
        return self._function(reshape_to(a, a.shape + (1,) * b.ndim), b)

    def at(self, a, indices, b=None, *, inplace: bool = True):
        """a with the function applied at indices, sequentially for repeated indices.

        Arrays are immutable, so inplace=False is required. Raises ArgumentError.
        """
        if inplace:
            raise ArgumentError(
                f"{self.__name__}.at changes its operand", "inplace=True", "pass inplace=False and use the result"
            )
        x = as_operand(a, self.__name__)
        if self.nin == 1:
            return x.at[indices].apply(self._function)
        if "at" in self._methods:
            return getattr(x.at[indices], self._methods["at"])(b)

        places = reshape_to(lax.iota("s32", x.size), x.shape)[indices]
        values = broadcast_dims_to(as_operand(b, self.__name__), places.shape)
        flat = reshape_to(x, (x.size,))

        def step(carry, item):
            place, value = item
            old = lax.dynamic_slice_in_dim(carry, place, 1)
            new = convert(as_operand(self._function(old, value), self.__name__), carry.dtype)
            return lax.dynamic_update_slice_in_dim(carry, new, place, 0), None

        pairs = reshape_to(places, (places.size,)), reshape_to(values, (values.size,))
        return reshape_to(lax.scan(step, flat, pairs)[0], x.shape)

    def reduceat(self, a, indices, axis: int = 0, dtype=None, out=None):
        """For each i the combined elements from indices[i] up to indices[i + 1]; a single one if these do not increase.

        Raises ShapeError.
        """
        self._of_two("reduceat")

        x = as_operand(a, self.__name__)
        x = x if dtype is None else convert(x, as_dtype(dtype))
        axis = canonical_axis(axis, x.ndim, self.__name__)
        front = moveaxis(x, axis, 0)
        extent = front.shape[0]
        starts = convert(as_operand(indices, self.__name__), as_dtype("s32"))
        if starts.ndim != 1:
            raise ShapeError(f"{self.__name__}.reduceat takes a vector of indexes", f"{starts._shape!r}", "flatten it")
        ends = lax.concatenate([lax.slice_in_dim(starts, 1, None), full(extent, starts.dtype, (1,))], 0)
        column = (starts.size,) + (1,) * (front.ndim - 1)

        def step(carry, item):
            element, number = item
            inside = lax.bitwise_and(lax.lt(starts, broadcast_dims_to(number, starts.shape)), number < ends)
            combined = convert(as_operand(self._function(carry, element), self.__name__), carry.dtype)
            return lax.select(broadcast_dims_to(reshape_to(inside, column), carry.shape), combined, carry), None

        first = front[starts]
        numbers = lax.iota("s32", extent)
        return moveaxis(lax.scan(step, first, (front, numbers))[0], 0, axis)


def frompyfunc(func, /, nin: int, nout: int, *, identity=None) -> ufunc:
    """A ufunc of a function of nin scalars with nout results, mapped by `vectorize`. Raises ArgumentError.

    >>> add = hnp.frompyfunc(lambda a, b: a + b, 2, 1, identity=0)
    >>> add.reduce(hnp.array([1, 2, 3])), add.accumulate(hnp.array([1, 2, 3]))
    (Array(6, dtype=int32), Array([1, 3, 6], dtype=int32))
    """
    if not callable(func) or nin < 1 or nout < 1:
        raise ArgumentError(
            "frompyfunc takes a function and how many arguments and results it has",
            f"{func!r}, {nin}, {nout}",
            "check them",
        )
    made = ufunc(hnp.vectorize(func), nin, nout, identity, getattr(func, "__name__", None))
    made.__doc__ = f"{getattr(func, '__name__', func)!s} of {nin} arrays, element by element."
    return made


def equip(function, nin: int, identity, methods: dict[str, str]):
    """The plain element-wise function with the attributes and methods of a ufunc; methods: see `ufunc._methods`."""
    equipped = ufunc(function, nin, 1, identity, function.__name__, methods)
    for name in ("nin", "nout", "nargs", "identity", *_METHODS):
        setattr(function, name, getattr(equipped, name))
    return function
