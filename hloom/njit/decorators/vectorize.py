"""`hl.vectorize`: a function of numbers as a function of arrays, as a ufunc of NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.errors import ArgumentError, UnsupportedError
from hloom.kernels.frontend.functions import Elementwise
from hloom.njit.arguments.signatures import Signature, loop_for, split
from hloom.njit.control import Runtime
from hloom.njit.decorators.universal import Universal, require_options
from hloom.njit.elements import each_element
from hloom.njit.library.own import np_where
from hloom.njit.njit import NumpyFunction
from hloom.njit.values import Value
from hloom.tracing.trace import Tracer

__all__ = ["Vectorized", "vectorize"]


def vectorize(signatures: Any = None, **options: Any):
    """A function of numbers, called with arrays that are broadcast: `@hl.vectorize`, or with signatures.

    >>> @hl.vectorize
    ... def clipped(x, high):
    ...     if x > high:
    ...         return high
    ...     return x
    >>> clipped(np.array([[1.0, 5.0], [2.0, 7.0]]), 3.0)
    array([[1., 3.],
           [2., 3.]])

    Arguments of shapes that broadcast give a result of their common shape; numbers give a number. The function may have
    branches, loops, several returns, and calls of other functions. Calls take `out=` and `where=`; there are `outer`
    and, of functions of two numbers, `reduce(x, axis=0)` and `accumulate(x, axis=0)`. In `hl.njit` it may be called in
    loops and of whole arrays, and it is fused with its neighbours.

    signatures: types as text (`["float64(float64, float64)"]`) or Numba's. A call takes the first to which its dtypes
    convert without loss, as a ufunc does, and has the dtype that it declares. Without them the result has NumPy's
    dtype, and a number of Python is float64 or int64. The options are Numba's; the work is
    divided among the cores in any case.

    Raises DTypeError where no signature fits, ShapeError where shapes do not broadcast, and UnsupportedError at the
    line that cannot be compiled.
    """
    function, declared = split(signatures)
    require_options("vectorize", options)
    identity = options.get("identity")
    return Vectorized(function, (), identity) if function is not None else lambda f: Vectorized(f, declared, identity)


class Vectorized(Universal, Elementwise):
    """A function of numbers that `hl.vectorize` compiles. nin, nout: how many arguments and results."""

    of = ("out", "where")
    nout = 1

    def __init__(self, function: Callable, signatures: tuple[Signature, ...], identity: Any = None):
        super().__init__(function)
        self.signatures, self.identity = signatures, identity
        self.nin = len(self.of_user.parameters)
        self._methods: dict[str, NumpyFunction] = {}
        for one in signatures:
            if len(one.args) != self.nin or one.result is None or any(t.ndim for t in (*one.args, one.result)):
                raise ArgumentError(f"a signature of {self.name}", f"{one}, of a function of {self.nin} numbers",
                                    f"write float64({', '.join(['float64'] * self.nin)})")  # fmt: skip

    @property
    def types(self) -> list[str]:
        """The declared loops, as NumPy writes them: `dd->d`."""
        return [f"{''.join(t.dtype.char for t in s.args)}->{s.result.dtype.char}" for s in self.signatures if s.result]

    def loop(self, dtypes: Sequence[np.dtype]) -> tuple[Sequence[np.dtype], np.dtype | None]:
        if not self.signatures:
            return dtypes, None
        found = loop_for(self.signatures, dtypes, self.name)
        assert found.result is not None
        return [t.dtype for t in found.args], found.result.dtype

    def in_program(self, runtime: Runtime, *args: Any, out: Any = None, where: Any = None) -> Any:
        if len(args) == self.nin + 1 and out is None:
            *args, out = args  # type: ignore[assignment]
        if len(args) != self.nin:
            raise ArgumentError(f"a call of {self.name}", f"{len(args)} arguments",
                                f"pass {self.nin}, of {self.name}{self.of_user}")  # fmt: skip
        out = out[0] if isinstance(out, tuple) else out
        if out is None and where is not None and where is not True:
            raise UnsupportedError(f"{self.name} with where=", "without out= its values are undefined", "pass out=")
        found = each_element(self, args, runtime.trace.watch)
        if out is None:
            return found
        runtime.target(out)[...] = found if where is None or where is True else np_where(where, found, out)
        return out

    # --- methods of a ufunc

    def reduce(self, x: Any, axis: int = 0) -> Any:
        """`f(f(x[0], x[1]), x[2])` along an axis."""
        return self._along("reduce", x, axis)

    def accumulate(self, x: Any, axis: int = 0) -> Any:
        """The partial results of `reduce`."""
        return self._along("accumulate", x, axis)

    def outer(self, x: Any, y: Any) -> Any:
        """The function of each element of x and each of y."""
        self._require_arrays("outer", x, y)
        return self(np.reshape(x, (*np.shape(x), *[1] * np.ndim(y))), y)

    def _along(self, name: str, x: Any, axis: int) -> Any:
        self._require_arrays(name, x)
        if self.nin != 2 or not isinstance(axis, (int, np.integer)):
            found = f"the function has {self.nin} arguments" if self.nin != 2 else f"axis={axis!r}"
            raise ArgumentError(f"{self.name}.{name}", found, "it is for functions of two numbers, along one axis")
        x = np.moveaxis(np.asarray(x), axis, 0)
        if not len(x):
            if name == "accumulate" or self.identity is None:
                raise ArgumentError(f"{self.name}.{name} of no elements", "it has no identity", "pass identity=")
            return np.full(x.shape[1:], self.identity, self(*np.ones((2, 1), x.dtype)).dtype)[()]
        if name not in self._methods:
            self._methods[name] = NumpyFunction(_reduction(self) if name == "reduce" else _accumulation(self))
        found = self._methods[name](x)
        return found if name == "reduce" else np.moveaxis(found, 0, axis)

    def _require_arrays(self, name: str, *values: Any) -> None:
        if any(isinstance(v, (Value, Tracer)) for v in values):
            raise UnsupportedError(f"{self.name}.{name} in a compiled program", "it is for arrays of NumPy",
                                   "write it as a loop")  # fmt: skip


def _reduction(f: Callable) -> Callable:
    def reduce(x):
        found = f(x[0], x[0])
        if x.ndim == 1:
            found = x[0]
            for k in range(1, x.shape[0]):
                found = f(found, x[k])
        else:
            found[...] = x[0]
            for k in range(1, x.shape[0]):
                found[...] = f(found, x[k])
        return found

    return reduce


def _accumulation(f: Callable) -> Callable:
    def accumulate(x):
        found = np.empty(x.shape, f(x[:1], x[:1]).dtype)
        found[0] = x[0]
        for k in range(1, x.shape[0]):
            found[k] = f(found[k - 1], x[k])
        return found

    return accumulate
