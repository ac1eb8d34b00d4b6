"""Where a user's kernel is read from: a Python function, or one that Numba compiles."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hloom.ir.records import record
from hloom.kernels.frontend.functions import of_numba
from hloom.kernels.frontend.syntax import definition_of, outside_names

__all__ = ["Origin", "origin_of"]


@record(frozen=True)
class Origin:
    """What a kernel is compiled from.

    written: the user's function. python: the same of arrays, as Python runs it. definition: its syntax tree, file, and
    the line before its first one. outside: returns the names around it. parallel: whether `numba.prange` divides a
    loop among the cores. of_elements: whether arguments are broadcast against each other. of_njit: whether it is one of
    `numba.njit`.
    """

    written: Callable
    python: Callable
    definition: tuple[ast.FunctionDef, str, int]
    outside: Callable[[], Mapping[str, Any]]
    parallel: bool = True
    of_elements: bool = False
    of_njit: bool = False


def origin_of(function: Callable) -> Origin:
    """The source of a function. Raises UnsupportedError where there is none."""
    python, of_elements = of_numba(function)
    definition = definition_of(python)
    if of_elements:
        return _of_elements(function, python, definition)
    parallel = python is function or bool(function.targetoptions.get("parallel"))  # type: ignore[attr-defined]
    return Origin(python, python, definition, lambda: outside_names(python), parallel, of_njit=python is not function)


def _of_elements(function: Callable, python: Callable, definition: tuple[ast.FunctionDef, str, int]) -> Origin:
    """A function of arrays for one of elements, which `numba.vectorize` compiled."""
    called, file, above = definition
    names = list(inspect.signature(python).parameters)
    (whole,) = ast.parse(f"def {called.name}({', '.join(names)}):\n    return elements({', '.join(names)})").body
    assert isinstance(whole, ast.FunctionDef)
    ast.increment_lineno(whole, called.lineno - 1)
    elements = np.vectorize(python)

    def of_arrays(**values):
        return elements(*[values[name] for name in names])

    of_arrays.__name__ = called.name
    return Origin(python, of_arrays, (whole, file, above), lambda: {"elements": function}, of_elements=True)
