"""`hl.kernel(function, results=...)`: a function that Numba compiles is one op, called without Python."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from hloom.dispatch.jit import jit
from hloom.dispatch.signature import distinct
from hloom.errors import ArgumentError
from hloom.ir.process.lazy import LazyModule
from hloom.ir.types import Shape, TupleShape
from hloom.tracing.callback import shape_of
from hloom.tracing.trace import as_array, bind, current_trace
from hloom.tree import pytrees as tree

__all__ = ["CompiledFunction", "bound_arguments"]

_numba = LazyModule("hloom.kernels.numba_functions")  # imports Numba, which takes a second


def bound_arguments(signature: inspect.Signature, name: str, args, kwargs) -> dict[str, Any]:
    """The arguments of a call by name. Raises ArgumentError for what the function does not take."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentError(f"a call of the kernel '{name}'", str(error), f"call {name}{signature}") from None
    bound.apply_defaults()
    return dict(bound.arguments)


class CompiledFunction:
    """A function that Numba compiles, with declared results.

    results: a tree of shapes and dtypes, or a function of the arguments that returns one. A dictionary names the
    parameters that the function fills; otherwise it returns the results.
    """

    def __init__(self, function: Any, results: Any, static: tuple[str, ...]):
        _numba.check_function(function)
        self.function, self.results, self.static = function, results, static
        self.filled = tuple(results) if isinstance(results, dict) else ()
        self.name = function.__name__
        functools.update_wrapper(self, function.py_func)
        whole = inspect.signature(function.py_func)
        self.parameters = tuple(whole.parameters)
        for name in (*static, *self.filled):
            if name not in self.parameters:
                raise ArgumentError(
                    f"hl.kernel of '{self.name}'", f"'{name}', which is no parameter",
                    f"the parameters are {', '.join(self.parameters)}",
                )  # fmt: skip
        self.signature = whole.replace(parameters=[p for n, p in whole.parameters.items() if n not in self.filled])
        self._made: dict[Any, Any] = {}
        numbers = tuple([k for k, name in enumerate(self.signature.parameters) if name in static])
        self._compiled = jit(self._bound, static_argnums=numbers, static_argnames=static)

    def __call__(self, *args, **kwargs):
        if current_trace() is not None:  # with the line of this call
            return self._bound(*args, **kwargs)
        return self._compiled(*args, **kwargs)

    def lower(self, *args, **kwargs):
        """As `hl.jit(kernel).lower(...)`."""
        return self._compiled.lower(*args, **kwargs)

    def _bound(self, *args, **kwargs):
        given = bound_arguments(self.signature, self.name, args, kwargs)
        leaves, structure = tree.flatten(self._declared(given))
        if not leaves:
            raise ArgumentError(
                f"the results of '{self.name}'", "none", "declare one: results=hl.ShapeDtypeStruct(...)"
            )
        shapes = tuple([shape_of(leaf, f"hl.kernel(results=...) of '{self.name}'") for leaf in leaves])
        numbers = tree.unflatten(structure, range(len(leaves)))
        arrays: list[Any] = []
        arguments: list[Any] = []
        for name in self.parameters:
            if name in self.filled:
                arguments.append(_numba.Argument(result=numbers[name]))
            elif name in self.static or given[name] is None or isinstance(given[name], str):
                arguments.append(_numba.Argument(static=given[name]))
            else:
                arguments.append(_numba.Argument(number=len(arrays)))
                arrays.append(as_array(given[name], f"'{name}' of the kernel '{self.name}'"))
        target = self._target(tuple(arguments), tuple([array._shape for array in arrays]), shapes, numbers)
        made = bind("custom-call", *arrays, shape=TupleShape(shapes), custom_call_target=target)
        return tree.unflatten(structure, made)

    def _declared(self, given: dict[str, Any]) -> Any:
        """The results for the arguments of a call."""
        if self.filled:
            return {name: _of_call(one, given) for name, one in self.results.items()}
        found = _of_call(self.results, given)
        if isinstance(found, dict):
            raise ArgumentError(
                f"the results of '{self.name}'", "a function that returns a dictionary",
                "declare a dictionary of functions, one for each parameter that is filled",
            )  # fmt: skip
        return found

    def _target(self, arguments, operands: tuple[Shape, ...], results: tuple[Shape, ...], numbers):
        """The op of a call: the same for equal calls, so that equal programs are compiled once."""
        key = (tuple([(a.number, a.result, distinct(a.static)) for a in arguments]), operands, results)
        try:
            found = self._made.get(key)
        except TypeError:
            raise ArgumentError(
                f"a call of the kernel '{self.name}'", "a static argument cannot be hashed", "pass tuples and numbers"
            ) from None
        if found is None:
            found = self._made[key] = _numba.call_of(self.function, arguments, operands, results, numbers)
        return found


def _of_call(declared: Any, given: dict[str, Any]) -> Any:
    """Shapes and dtypes, which may depend on the arguments of a call."""
    return declared(**given) if callable(declared) and not hasattr(declared, "shape") else declared
