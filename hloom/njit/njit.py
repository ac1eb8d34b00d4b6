"""`hl.njit`: a function of NumPy arrays, compiled as it is written."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom.contexts import enable_x64
from hloom.dispatch.jit import jit
from hloom.dispatch.signature import distinct
from hloom.errors import ArgumentError, DTypeError
from hloom.ir.records import record
from hloom.njit.control import Runtime, Trace
from hloom.njit.rewriting import Program, program_of
from hloom.njit.values import Array, Number, Unbound, Undecided, Value, as_value
from hloom.tree import pytrees as tree

__all__ = ["NumpyFunction", "njit"]

_NUMBERS = (bool, int, float, complex)


def njit(function: Callable | None = None):
    """Compiles a function of NumPy arrays as it is written: `@hl.njit`.

    >>> @hl.njit
    ... def smooth(x, steps):
    ...     for t in range(steps):
    ...         for i in range(1, len(x) - 1):
    ...             x[i] = (x[i - 1] + x[i] + x[i + 1]) / 3
    >>> x = np.array([0.0, 3.0, 0.0, 3.0])
    >>> smooth(x, 1)
    >>> x
    array([0.        , 1.        , 1.33333333, 3.        ])

    Arrays are NumPy's, with its dtypes, views and rules; what the function changes in place is changed for the caller.
    Loops and branches are compiled from the source. Results are arrays and numbers of NumPy.

    Raises, at the line of the function: UnsupportedError for what cannot be compiled, and ShapeError for an index
    out of range.
    """
    return NumpyFunction(function) if function is not None else njit


@record(frozen=True)
class Spec:
    """What of a call's arguments its program is compiled for. tree: of the arguments. known: values of Python, by the
    number of their leaf. python: numbers of leaves that are numbers of Python. same: leaves that are one array."""

    tree: Any
    known: tuple[tuple[int, Any, Any], ...]
    python: tuple[tuple[int, type], ...]
    same: tuple[tuple[int, int], ...]


class NumpyFunction:
    """What `hl.njit` makes of a function."""

    def __init__(self, function: Callable):
        functools.update_wrapper(self, function)
        self.written = function
        self.name: str = getattr(function, "__name__", "function")
        self.signature = inspect.signature(function)
        self._known_integers = False  # whether integers of Python decide shapes
        self._trace = Trace()

        def run(spec: Spec, *arrays):
            return self._traced(spec, arrays)

        run.__name__ = run.__qualname__ = self.name
        self._compiled = jit(run, static_argnums=0)

    @functools.cached_property
    def program(self) -> Program:
        return program_of(self.written)

    def __get__(self, owner, kind=None):
        return self if owner is None else functools.partial(self, owner)

    def __call__(self, *args, **kwargs):
        leaves, made = self._run(args, kwargs)
        if made["written"]:
            _write_back(leaves, made["written"], self.name)
        return tree.map(_as_numpy, made["result"])

    def pure(self, *args, **kwargs):
        """(the result, the last values of the arguments that it changes, by number of their leaf). Changes nothing."""
        _, made = self._run(args, kwargs)
        return made["result"], made["written"]

    def lower(self, *args, **kwargs):
        """As `hl.jit(f).lower(...)`."""
        with enable_x64():
            _, spec, arrays = self._arguments(args, kwargs)
            return self._compiled.lower(spec, *arrays)

    def _run(self, args, kwargs):
        with enable_x64():
            while True:
                leaves, spec, arrays = self._arguments(args, kwargs)
                try:
                    return leaves, self._compiled(spec, *arrays)
                except Undecided as error:
                    if self._known_integers and self._trace.refused:
                        raise self._trace.refused[0] from None
                    if self._known_integers:
                        raise ArgumentError(
                            f"{error.what} that is known while '{self.name}' is compiled",
                            "it is computed from the arrays' elements", "compute it from shapes and integers",
                        ) from None  # fmt: skip
                    self._known_integers = True

    def _arguments(self, args, kwargs) -> tuple[list, Spec, list]:
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"a call of {self.name}", str(error), f"call {self.name}{self.signature}") from None
        bound.apply_defaults()
        leaves, structure = tree.flatten(dict(bound.arguments))
        known, python, arrays = [], [], []
        for k, leaf in enumerate(leaves):
            kind = type(leaf)
            if kind in _NUMBERS and not (self._known_integers and kind in (int, bool)):
                python.append((k, kind))
                arrays.append(leaf)
            elif isinstance(leaf, (np.ndarray, np.generic)) or hasattr(leaf, "aval") or hasattr(leaf, "_shape"):
                if isinstance(leaf, np.ndarray) and leaf.dtype.kind not in "biufc":
                    raise DTypeError(f"an argument of {self.name}", f"an array of {leaf.dtype}", "pass numbers")
                arrays.append(leaf)
            else:
                known.append((k, leaf, distinct(leaf)))
        return leaves, Spec(structure, tuple(known), tuple(python), _same(leaves)), arrays

    def _traced(self, spec: Spec, arrays) -> dict[str, Any]:
        fixed = {k: value for k, value, _ in spec.known}
        python, same = dict(spec.python), dict(spec.same)
        rest = iter(arrays)
        values: list[Any] = []
        for k in range(len(fixed) + len(arrays)):
            if k in fixed:
                values.append(fixed[k])
                continue
            array = next(rest)
            if k in same:
                values.append(values[same[k]])
            elif k in python:
                values.append(Number(array, python[k]))
            else:
                values.append(Array.of(array) if array.shape else Number(array))
        before = {k: v.ref.read() for k, v in enumerate(values) if isinstance(v, Array) and k not in same}
        arguments = tree.unflatten(spec.tree, values)
        self._trace = Trace()
        function = Runtime(self.program, self._trace).function()
        if any(
            p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in self.signature.parameters.values()
        ):
            bound = inspect.BoundArguments(self.signature, arguments)
            result = function(*bound.args, **bound.kwargs)
        else:
            result = function(**arguments)
        written = {str(k): values[k].ref.read() for k, v in before.items() if values[k].ref.read() is not v}
        return {"result": tree.map(_result, result), "written": written}


def _same(leaves: list) -> tuple[tuple[int, int], ...]:
    """Pairs of leaves that are the same array of NumPy. Raises ArgumentError for arrays that share some memory."""
    arrays = [(k, leaf) for k, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray)]
    found = []
    for n, (k, leaf) in enumerate(arrays):
        for first, other in arrays[:n]:
            if leaf is other:
                found.append((k, first))
                break
            if np.may_share_memory(leaf, other) and np.shares_memory(leaf, other):
                raise ArgumentError(
                    "arguments of a compiled NumPy program", "two of them share memory, and are not the same array",
                    "pass the whole array, and index it inside",
                )  # fmt: skip
    return tuple(found)


def _result(value: Any) -> Any:
    if isinstance(value, Unbound):
        value._fail()
    return as_value(value).traced if isinstance(value, (Value, np.ndarray)) else value


def _as_numpy(value: Any) -> Any:
    if not hasattr(value, "shape"):
        return value
    found = np.array(value)
    return found if found.ndim else found[()]


def _write_back(leaves: list, written: dict[str, Any], name: str) -> None:
    for key, value in written.items():
        target = leaves[int(key)]
        if not isinstance(target, np.ndarray):
            raise ArgumentError(
                f"'{name}' changes an argument in place", f"it is {type(target).__name__}, which cannot be changed",
                f"pass an array of NumPy, or call {name}.pure(...), which returns the new values",
            )  # fmt: skip
        np.copyto(target, np.asarray(value))
