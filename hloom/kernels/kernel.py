"""`hl.kernel`: a decorated function of arrays becomes one op, whose loops are compiled as they are written."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.config import config
from hloom.dispatch.jit import jit
from hloom.dispatch.signature import distinct
from hloom.errors import ArgumentError, UnsupportedError
from hloom.ir.types import Shape
from hloom.kernels.compiled import CompiledFunction, bound_arguments
from hloom.kernels.elementwise import Elements, elements_of
from hloom.kernels.faults import watch
from hloom.kernels.frontend.lowering import Lowered, lowered
from hloom.kernels.instances import Instance, instance
from hloom.kernels.origin import origin_of
from hloom.kernels.programs import Batch
from hloom.numpy import broadcast_shapes, broadcast_to
from hloom.tracing.trace import as_array, bind

__all__ = ["KernelFunction", "kernel"]


def kernel(
    function: Callable | None = None,
    *,
    static_argnames: str | Sequence[str] = (),
    unchecked: bool = False,
    results: Any = None,
):
    """Compiles a function of loops over arrays: `@hl.kernel`, or `@hl.kernel(static_argnames="k")`.

    The function makes its results (`np.empty`, `np.zeros`, `x.copy()`), fills them in loops, and returns them. It is
    ordinary Python and means the same without the decorator, which `kernel.python(...)` calls:

        @hl.kernel
        def saxpy(a, x, y):
            out = np.empty_like(x)
            for i in hl.parallel(x.shape[0]):
                out[i] = a * x[i] + y[i]
            return out

    Loops over `hl.parallel(n)` and `hl.tile(shape)` are divided among the cores; loops over `range` within them run in
    order. There are numbers, elements, slices, element-wise expressions and reductions of arrays, and calls of NumPy's
    functions and of the user's own. Arguments are arrays and numbers, which are not written to. `function` may also be
    one that Numba compiles: `hl.kernel(njit_function)`.

    static_argnames: arguments that are Python values, such as sizes. unchecked: indices that are not proved to be in
    range are not checked; an index out of range is then undefined behaviour. results: shapes and dtypes of what a
    function of `numba.njit` returns, which Numba then compiles: a tree of `hl.ShapeDtypeStruct`, a function of the
    arguments that returns one, or a dictionary {parameter: struct or function} of the arrays that the function fills.

    Raises, at the line of the kernel: UnsupportedError for unsupported Python, ArgumentError for a certain race,
    ShapeError and DTypeError; when it runs, ShapeError for an index out of range.
    """
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    if results is not None and unchecked:
        raise ArgumentError(
            "hl.kernel(results=..., unchecked=True)", "Numba decides which indices it checks",
            "pass numba.njit(boundscheck=...)",
        )  # fmt: skip
    make = (
        functools.partial(KernelFunction, static=names, unchecked=unchecked)
        if results is None
        else functools.partial(CompiledFunction, results=results, static=names)
    )
    return make if function is None else make(function)


class KernelFunction:
    """A function compiled by `hl.kernel`."""

    def __init__(self, function: Callable, static: tuple[str, ...], unchecked: bool):
        if not callable(function):
            raise ArgumentError("hl.kernel takes a function", f"{type(function).__name__}", "decorate a function")
        self.origin = origin_of(function)
        self.function, self.static, self.unchecked = self.origin.python, static, unchecked
        functools.update_wrapper(self, self.origin.written)
        self.signature = inspect.signature(self.origin.written)
        missing = [name for name in static if name not in self.signature.parameters]
        if missing:
            raise ArgumentError(
                f"hl.kernel of '{function.__name__}'", f"static_argnames has '{missing[0]}', which is no parameter",
                f"the parameters are {', '.join(self.signature.parameters)}",
            )  # fmt: skip
        self.name = self.origin.definition[0].name
        self._made: dict[Any, tuple[Lowered, Instance, list[Elements] | None]] = {}
        numbers = tuple([k for k, name in enumerate(self.signature.parameters) if name in static])
        self._compiled = jit(self._bound, static_argnums=numbers, static_argnames=static)

    def __call__(self, *args, **kwargs):
        return self._compiled(*args, **kwargs)

    def python(self, *args, **kwargs):
        """The function as Python runs it, with NumPy arrays: for the debugger."""
        bound = self._arguments(args, kwargs)
        given = {
            name: value if name in self.static else _as_numpy(value) for name, value in bound.items()
        }  # fmt: skip
        return self.function(**given)

    def lower(self, *args, **kwargs):
        """As `hl.jit(kernel).lower(...)`."""
        return self._compiled.lower(*args, **kwargs)

    def source(self, *args, **kwargs) -> str:
        """The kernel's text for arguments."""
        return self.lower(*args, **kwargs).compile().source()

    def _arguments(self, args, kwargs) -> dict[str, Any]:
        return bound_arguments(self.signature, self.name, args, kwargs)

    def _bound(self, *args, **kwargs):
        arguments = self._arguments(args, kwargs)
        arrays, shapes, weak = [], {}, set()
        for name, value in arguments.items():
            if name in self.static or value is None or isinstance(value, str):
                shapes[name] = value
                continue
            array = as_array(value, f"'{name}' of the kernel '{self.name}'")
            arrays.append(array)
            shapes[name] = array._shape
            if getattr(array, "weak", False):
                weak.add(name)
        if self.origin.of_elements:
            dims = broadcast_shapes(*[array.shape for array in arrays])
            arrays = [broadcast_to(array, dims) if array.ndim else array for array in arrays]
            given = dict(zip([name for name in shapes if isinstance(shapes[name], Shape)], arrays, strict=True))
            shapes |= {name: array._shape for name, array in given.items()}
        made, kernel, elements = self.at(shapes, frozenset(weak))
        if elements is not None and not config.disable_jit:  # as ops, which are fused with those around the call
            dims = elements[0].dims
            spread = [a if a.shape == dims else broadcast_to(a, dims) for a in arrays]
            return _tree(made.result, [bind("kernel-map", *spread, kernel=one) for one in elements])
        results = bind("kernel", *arrays, kernel=kernel)
        if made.checks:
            watch(self.name, kernel, made.checks, results[-1])
        return _tree(made.result, results)

    def at(self, arguments: dict[str, Any], weak: frozenset[str]) -> tuple[Lowered, Instance, list[Elements] | None]:
        """The kernel for shapes and values of arguments; the same one for the same arguments."""
        key = (tuple([(name, *distinct(value)) for name, value in arguments.items()]), weak)
        try:
            found = self._made.get(key)
        except TypeError:
            raise ArgumentError(
                f"a call of the kernel '{self.name}'", "a static argument cannot be hashed", "pass tuples and numbers"
            ) from None
        if found is None:
            made = self._lowered(arguments, weak)
            python = functools.partial(self._by_python, arguments, made)
            elements = None if made.checks else elements_of(made.body)
            found = self._made[key] = (made, instance(made.body, made.fault, python=python), elements)
        return found

    def _lowered(self, arguments: dict[str, Any], weak: frozenset[str]) -> Lowered:
        origin = self.origin
        try:
            return lowered(
                *origin.definition, origin.outside(), arguments, self.name, weak, self.unchecked, origin.parallel
            )
        except UnsupportedError as error:
            if not origin.of_njit:
                raise
            repair = f"{error.repair}; or declare results, and Numba compiles it: hl.kernel({self.name}, results=...)"
            raise UnsupportedError(error.asked, error.found, repair, error.source) from None

    def _by_python(self, arguments: dict[str, Any], made: Lowered, arrays: Sequence[np.ndarray], batch: Batch):
        """The results as Python computes them."""
        names = [name for name, value in arguments.items() if isinstance(value, Shape)]
        results = self._calls(arguments, dict(zip(names, arrays, strict=True)), names, batch)
        dtypes = [array.dtype for array in made.body.results()]
        fault = [np.zeros(1, np.int64)] * bool(made.checks)
        return [*[np.asarray(r, d) for r, d in zip(results, dtypes, strict=False)], *fault]

    def _calls(self, arguments: dict[str, Any], given: dict[str, Any], names: list[str], batch: Batch) -> list:
        if not batch:
            values = {**arguments, **given}
            with np.errstate(all="ignore"):
                made = self.function(**{n: v if n in self.static else _element(v) for n, v in values.items()})
            return [np.asarray(leaf) for leaf in _leaves(made)]
        (size, mapped), *inner = batch
        split = {name for name, own in zip(names, mapped, strict=True) if own}
        rows = [
            self._calls(arguments, {n: v[k] if n in split else v for n, v in given.items()}, names, tuple(inner))
            for k in range(size)
        ]
        return [np.stack(parts) for parts in zip(*rows, strict=True)]


def _as_numpy(value):
    return np.asarray(value) if hasattr(value, "shape") and value.shape != () else _element(value)


def _element(value):
    return value[()] if isinstance(value, np.ndarray) and value.shape == () else value


def _leaves(value) -> list:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, (tuple, list)) else [value]


def _tree(numbers, results):
    return tuple([_tree(n, results) for n in numbers]) if isinstance(numbers, tuple) else results[numbers]
