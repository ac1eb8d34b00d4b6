"""`hl.kernel`: a decorated function of arrays becomes one op, whose loops are compiled as they are written."""

from __future__ import annotations

import functools
import inspect
import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.config import config
from hloom.dispatch.jit import jit
from hloom.errors import ArgumentError, DifferentiationError
from hloom.ir.ops.programs.kernel import UserKernel
from hloom.ir.types import Shape
from hloom.kernels.faults import watch
from hloom.kernels.frontend.lowering import Batch, Lowered, lowered
from hloom.kernels.frontend.syntax import definition_of, outside_names
from hloom.tracing.trace import as_array, bind, resumed

__all__ = ["KernelFunction", "kernel"]

_numbers = itertools.count(1)


def kernel(function: Callable | None = None, *, static_argnames: str | Sequence[str] = (), unchecked: bool = False):
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
    functions and of the user's own. Arguments are arrays and numbers, which are not written to.

    static_argnames: arguments that are Python values, such as sizes. unchecked: indices that are not proved to be in
    range are not checked; an index out of range is then undefined behaviour.

    Raises, at the line of the kernel: UnsupportedError for what kernels do not have, ArgumentError for a race that is
    certain, ShapeError and DTypeError; when it runs, ShapeError for an index out of range.
    """
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    if function is None:
        return lambda f: KernelFunction(f, names, unchecked)
    return KernelFunction(function, names, unchecked)


class KernelFunction:
    """What `hl.kernel` makes of a function."""

    def __init__(self, function: Callable, static: tuple[str, ...], unchecked: bool):
        if not callable(function):
            raise ArgumentError("hl.kernel takes a function", f"{type(function).__name__}", "decorate a function")
        functools.update_wrapper(self, function)
        self.function, self.static, self.unchecked = function, static, unchecked
        self.signature = inspect.signature(function)
        missing = [name for name in static if name not in self.signature.parameters]
        if missing:
            raise ArgumentError(
                f"hl.kernel of '{function.__name__}'", f"static_argnames has '{missing[0]}', which is no parameter",
                f"the parameters are {', '.join(self.signature.parameters)}",
            )  # fmt: skip
        definition, _, above = definition_of(function)
        self.name = definition.name
        self.line = above + definition.lineno
        self._made: weakref.WeakValueDictionary[Any, _Kernel] = weakref.WeakValueDictionary()
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
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(
                f"a call of the kernel '{self.name}'", str(error), f"call {self.name}{self.signature}"
            ) from None
        bound.apply_defaults()
        return dict(bound.arguments)

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
        made = self.at(shapes, frozenset(weak))
        results = bind("kernel", *arrays, kernel=made)
        if made.lowered.checks:
            watch(made, results[-1])
        return _tree(made.lowered.result, results)

    def at(self, arguments: dict[str, Any], weak: frozenset[str], batch: Batch = ()) -> _Kernel:
        """The kernel for shapes and values of arguments; the same one for the same arguments."""
        key = (tuple(arguments.items()), weak, batch)
        try:
            found = self._made.get(key)
        except TypeError:
            raise ArgumentError(
                f"a call of the kernel '{self.name}'", "a static argument cannot be hashed", "pass tuples and numbers"
            ) from None
        if found is None:
            found = _Kernel(f"{self.name}.{next(_numbers)}")
            found.owner, found.arguments, found.weak, found.batch = self, arguments, weak, batch
            definition, file, above = definition_of(self.function)
            found.lowered = lowered(
                definition, file, above, outside_names(self.function), arguments, self.name, weak, batch, self.unchecked
            )
            found.shape, found.program = found.lowered.shape, found.lowered.program
            self._made[key] = found
        return found


class _Kernel(UserKernel):
    owner: KernelFunction
    arguments: dict[str, Any]
    weak: frozenset[str]
    batch: Batch
    lowered: Lowered

    def evaluate(self, arrays):
        if not config.disable_jit:  # loops in Python take thousands of times as long
            with resumed(None):
                return tuple([np.asarray(result) for result in self._run(*arrays)])
        return self.by_python(arrays)

    @functools.cached_property
    def _run(self):
        return jit(lambda *arrays: bind("kernel", *arrays, kernel=self))

    def by_python(self, arrays) -> tuple[np.ndarray, ...]:
        """The results as Python computes them."""
        names = [n for n, v in self.arguments.items() if isinstance(v, Shape)]
        results = self._calls(dict(zip(names, arrays, strict=True)), names, self.batch)
        fault = [np.zeros(1, np.int64)] * bool(self.lowered.checks)
        return (*[np.asarray(r, s.dtype).reshape(s.dims) for r, s in zip(results, self.results(), strict=True)], *fault)

    def _calls(self, given: dict[str, Any], names: list[str], batch: Batch) -> list[np.ndarray]:
        """The results of all calls of a batch, by Python."""
        if not batch:
            values = {**self.arguments, **given}
            static = self.owner.static
            with np.errstate(all="ignore"):
                made = self.owner.function(**{n: v if n in static else _element(v) for n, v in values.items()})
            return [np.asarray(leaf) for leaf in _leaves(made)]
        (size, mapped), *inner = batch
        split = {name for name, own in zip(names, mapped, strict=True) if own}
        rows = [
            self._calls({n: v[k] if n in split else v for n, v in given.items()}, names, tuple(inner))
            for k in range(size)
        ]
        shapes = self.results()
        return [np.stack(parts) for parts in zip(*rows, strict=True)] or [np.zeros(s.dims, s.dtype) for s in shapes]

    def results(self) -> list[Shape]:
        """The shapes of what the function returns."""
        own = self.shape.elements[:-1] if self.lowered.checks else self.shape.elements
        return [shape for shape in own if isinstance(shape, Shape)]

    def batched(self, size, mapped):
        return self.owner.at(self.arguments, self.weak, ((size, tuple(mapped)), *self.batch))

    def jvp(self, build, instruction, primals, tangents):
        raise DifferentiationError(
            f"the derivative of the kernel '{self.owner.name}'", "it has none",
            "give it one with hl.custom_vjp or hl.custom_jvp", instruction.source,
        )  # fmt: skip


def _as_numpy(value):
    return np.asarray(value) if hasattr(value, "shape") and value.shape != () else _element(value)


def _element(value):
    return value[()] if isinstance(value, np.ndarray) and value.shape == () else value


def _leaves(value) -> list:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, (tuple, list)) else [value]


def _tree(numbers, results):
    return tuple([_tree(n, results) for n in numbers]) if isinstance(numbers, tuple) else results[numbers]
