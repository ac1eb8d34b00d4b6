"""Kernels of a NumPy program outside of its loops: functions of elements, called with arrays, and places of masks."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from hloom import numpy as hnp
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import Shape
from hloom.kernels.elementwise import elements_of
from hloom.kernels.frontend.functions import Elementwise
from hloom.kernels.frontend.lowering import lowered
from hloom.kernels.frontend.syntax import definition_of
from hloom.kernels.instances import instance
from hloom.kernels.kernel import kernel
from hloom.njit.lowering import NumpyLowering
from hloom.njit.values import Array, Number, Value, as_value, converted, dtype_of
from hloom.tracing.trace import bind

__all__ = ["OfElements", "each_element", "true_elements"]


class OfElements(Elementwise):
    """A Python function as one of elements."""

    def __init__(self, written: Callable):
        self.written = written


class _InOrder(NumpyLowering):
    """The elements are divided among the cores, and the loops of each run in order."""

    def _independent(self, node: ast.For) -> None:
        return None


def each_element(function: Elementwise, values: Sequence[Any], watch: Callable) -> Value:
    """The function of each element of arrays that are broadcast. Numbers of Python are those of NumPy."""
    name = function.written.__name__
    dtypes, result = function.loop([dtype_of(as_value(v)) for v in values])
    arrays = [converted(v, dtype) for v, dtype in zip(values, dtypes, strict=True)]
    try:
        dims = np.broadcast_shapes(*[a.shape for a in arrays])
    except ValueError:
        _mismatch(name, arrays)
    arrays = [hnp.broadcast_to(a, dims) if a.shape else a for a in arrays]
    shapes = {f"x{k}": Shape(a.dtype, a.shape) for k, a in enumerate(arrays)}
    written, file, above = definition_of(function.written)
    call = ast.Call(ast.Name("elements", ast.Load()), [ast.Name(n, ast.Load()) for n in shapes], [])
    parameters = ast.arguments([], [ast.arg(n) for n in shapes], None, [], [], None, [])
    definition = ast.FunctionDef(name, parameters, [ast.copy_location(ast.Return(call), written)], [], None, None)
    ast.fix_missing_locations(ast.copy_location(definition, written))
    made = lowered(
        definition, file, above, {"elements": function}, shapes, name, prange=False,
        lowering=functools.partial(_InOrder, serial=set(), sizes={}),
    )  # fmt: skip
    if not isinstance(made.result, int):
        raise ArgumentError(f"a call of {name} for each element", "it returns no number", "return one number")
    elements = None if made.checks else elements_of(made.body)
    if elements is not None:
        spread = [a if a.shape == dims else hnp.broadcast_to(a, dims) for a in arrays]
        found = bind("kernel-map", *spread, kernel=elements[made.result])
    else:
        kernel = instance(made.body, made.fault)
        results = bind("kernel", *arrays, kernel=kernel)
        found = results[made.result]
        if made.checks:
            watch(name, kernel, made.checks, results[-1])
    if result is not None:
        found = found.astype(result)
    return Array.of(found) if dims else Number(found)


def _mismatch(name: str, arrays: Sequence[Any]) -> NoReturn:
    raise ShapeError(f"a call of {name} with arrays of {', '.join(str(list(a.shape)) for a in arrays)}",
                     "they do not broadcast", "pass arrays of one shape, or of sizes 1") from None  # fmt: skip


# Each element is stored, and the next one in its place where it was false: a branch would be mispredicted half of the
# time. Places are never beyond the element that is looked at, and parts of the mask could not be written side by side.
@kernel(unchecked=True)
def true_elements(mask: Any) -> Any:
    """(the places of the true elements, and zeros; their number) of a mask of rank 1: s64[n], s32[1]."""
    n = mask.shape[0]
    places = np.empty(n, np.int64)
    count = np.empty(1, np.int32)
    k = 0
    for i in range(n):
        places[k] = i
        if mask[i]:
            k += 1
    for i in range(k, n):
        places[i] = 0
    count[0] = k
    return places, count
