"""`hl.guvectorize`: a function of small arrays as one of stacks of them, as a generalized ufunc of NumPy."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom import numpy as hnp
from hloom.errors import ArgumentError, ShapeError, UnsupportedError
from hloom.kernels.frontend.syntax import definition_of
from hloom.njit.arguments.signatures import Signature, loop_for, signatures_of
from hloom.njit.control import Runtime
from hloom.njit.decorators.universal import Universal, require_options
from hloom.njit.rewriting import Loop, Program, program_of
from hloom.njit.values import Array, Number, as_value, converted, dtype_of

__all__ = ["GeneralizedFunction", "guvectorize"]

_REPAIR = 'write hl.guvectorize(["void(float64[:], float64[:])"], "(n)->(n)")'


def guvectorize(*given: Any, **options: Any):
    """A function of small arrays, called with stacks of them: `@hl.guvectorize(signatures, "(n),()->(n)")`.

    >>> @hl.guvectorize(["void(float64[:], float64, float64[:])"], "(n),()->(n)")
    ... def shifted(x, by, out):
    ...     for i in range(x.shape[0]):
    ...         out[i] = x[i] + by
    >>> shifted(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 20.0]))
    array([[11., 12.],
           [23., 24.]])

    The layout names the last dimensions of each argument and result; those before them broadcast against each other,
    and the function is called for each of their elements. Results are the function's last arguments, which it writes
    into; one of no dimensions is an array of one element. Calls may pass arrays for them.

    signatures: types of arguments and results, `void(...)`; the first is taken to which the dtypes of the arguments
    convert without loss. Without signatures (`hl.guvectorize("(n)->(n)")`), calls pass the results, as in Numba.

    Raises ArgumentError for a layout that does not match, ShapeError for sizes that differ, DTypeError where no
    signature fits, UnsupportedError at the line that cannot be compiled and where the function writes into an argument.
    """
    require_options("guvectorize", options)
    if not 1 <= len(given) <= 2 or not isinstance(given[-1], str):
        raise ArgumentError("hl.guvectorize takes signatures and a layout", f"{len(given)} arguments", _REPAIR)
    inputs, outputs = _layout(given[-1])
    signatures = signatures_of(given[0]) if len(given) == 2 else ()
    return lambda function: GeneralizedFunction(function, signatures, inputs, outputs, given[-1])


def _layout(text: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """The names of the last dimensions of arguments and results: `(n),()->(n)`."""
    sides = text.replace(" ", "").split("->")
    found = []
    for side in sides:
        parts = side[1:-1].split("),(") if side.startswith("(") and side.endswith(")") else [";"]
        found.append([tuple(part.split(",")) if part else () for part in parts])
    names = [name for side in found for part in side for name in part]
    if len(found) != 2 or not all(name.isidentifier() for name in names):
        raise ArgumentError("a layout of hl.guvectorize", repr(text), 'write "(n),()->(n)"')
    return found[0], found[1]


class GeneralizedFunction(Universal):
    """A function of arrays that `hl.guvectorize` compiles. nin, nout: how many arguments and results."""

    of = ("out",)

    def __init__(self, function: Callable, signatures: tuple[Signature, ...], inputs, outputs, layout: str):
        super().__init__(function)
        self.signatures, self.inputs, self.outputs, self.layout = signatures, inputs, outputs, layout
        self.nin, self.nout = len(inputs), len(outputs)
        count = len(self.of_user.parameters)
        if count != self.nin + self.nout:
            raise ArgumentError(f"the layout {layout} of {self.name}", f"the function has {count} arguments",
                                "name the dimensions of each argument and result")  # fmt: skip
        for one in signatures:
            if len(one.args) != count:
                raise ArgumentError(f"a signature of {self.name}{self.of_user}", str(one), "declare each argument")

    def in_program(self, runtime: Runtime, *args: Any, out: Any = None) -> Any:
        outs = list(args[self.nin :])
        if out is not None:
            outs += out if isinstance(out, tuple) else [out]
        if len(args) < self.nin or len(outs) not in (0, self.nout):
            raise ArgumentError(f"a call of {self.name}", f"{len(args)} arguments",
                                f"pass {self.nin}, and {self.nout} for results")  # fmt: skip
        if not outs and not self.signatures:
            raise ArgumentError(f"a call of {self.name}", "no arrays for results, and no signature that declares them",
                                f"pass them after the arguments, or declare types: {_REPAIR}")  # fmt: skip
        given = [as_value(a) for a in args[: self.nin]]
        dtypes = [dtype_of(v) for v in given]
        types = loop_for(self.signatures, dtypes, self.name).args if self.signatures else None
        arrays = [converted(v, types[k].dtype if types else dtypes[k]) for k, v in enumerate(given)]
        sizes, dims = self._sizes(arrays, outs)
        names: dict[str, Any] = {}
        calls = [self._argument(k, array, types, dims, names) for k, array in enumerate(arrays)]
        for k, core in enumerate(self.outputs):
            own = [sizes[name] for name in core]
            dtype = dtype_of(outs[k]) if outs else types[self.nin + k].dtype if types else None
            first = outs[k].traced if outs else hnp.zeros((*dims, *own), dtype)
            names[f"y{k}"] = Array.of(first.reshape(math.prod(dims), *(own or [1])).astype(dtype))
            calls.append(_element(f"y{k}", True))
        self._run(runtime, math.prod(dims), names, calls)
        results = [self._result(runtime, k, names, sizes, dims, outs) for k in range(self.nout)]
        return results[0] if len(results) == 1 else tuple(results)

    def _argument(self, k: int, array: Any, types: Any, dims: tuple[int, ...], names: dict[str, Any]) -> ast.expr:
        """What the user's function is called with, for an argument."""
        at = array.ndim - len(self.inputs[k])
        is_array = bool(self.inputs[k]) or (types is not None and types[k].ndim > 0)
        own = array.shape[at:] or ((1,) if is_array else ())
        if at:
            array = hnp.broadcast_to(array, (*dims, *array.shape[at:])).reshape(math.prod(dims), *own)
        else:
            array = array.reshape(own)
        names[f"x{k}"] = Array.of(array) if array.shape else Number(array)
        return _element(f"x{k}", at > 0)

    def _result(self, runtime: Runtime, k: int, names, sizes, dims: tuple[int, ...], outs: list[Any]) -> Any:
        whole = names[f"y{k}"].traced.reshape(*dims, *[sizes[name] for name in self.outputs[k]])
        result = Array.of(whole) if whole.shape else Number(whole)
        if not outs:
            return result
        runtime.target(outs[k])[...] = result
        return outs[k]

    def _sizes(self, arrays: Sequence[Any], outs: Sequence[Any]) -> tuple[dict[str, int], tuple[int, ...]]:
        """(the sizes of the named dimensions, the dimensions before them)."""
        sizes: dict[str, int] = {}
        before = []
        parts = zip([*arrays, *outs], [*self.inputs, *(self.outputs if outs else [])], strict=True)
        for k, (array, core) in enumerate(parts):
            if len(array.shape) < len(core):
                raise ShapeError(f"argument {k} of {self.name}{self.layout}", f"an array of {list(array.shape)}",
                                 f"pass one of at least {len(core)} dimensions")  # fmt: skip
            at = len(array.shape) - len(core)
            before.append(tuple(array.shape[:at]))
            for name, size in zip(core, array.shape[at:], strict=True):
                if sizes.setdefault(name, size) != size:
                    raise ShapeError(f"dimension {name} of {self.name}{self.layout}",
                                     f"{sizes[name]} and {size}", "pass arrays whose sizes agree")  # fmt: skip
        missing = [name for core in self.outputs for name in core if name not in sizes]
        if missing:
            raise ArgumentError(f"dimension {missing[0]} of {self.name}{self.layout}", "no argument has it",
                                "pass an array for the result")  # fmt: skip
        try:
            dims = np.broadcast_shapes(*before[: self.nin])
        except ValueError:
            dims = None
        if dims is None or any(shape != dims for shape in before[self.nin :]):
            raise ShapeError(f"the stacks of {self.name}{self.layout}", ", ".join(str(list(b)) for b in before),
                             "pass arrays whose first dimensions broadcast, to results of their shape")  # fmt: skip
        return sizes, dims

    def _run(self, runtime: Runtime, count: int, names: dict[str, Any], calls: list[ast.expr]) -> None:
        """Calls the user's function for each element of the stack."""
        definition, file, above = definition_of(self.written)
        called = ast.Call(ast.Name("of_user", ast.Load()), calls, [])
        times = ast.Call(ast.Name("range", ast.Load()), [ast.Constant(count)], [])
        node = ast.For(ast.Name("at", ast.Store()), times, [ast.Expr(called)], [])
        node = ast.fix_missing_locations(ast.copy_location(node, definition))
        ast.increment_lineno(node, above)
        loop = Loop(node, file, self.name, frozenset(), frozenset())
        writes = {name: value.ref.writes for name, value in names.items() if isinstance(value, Array)}

        def body(k: Any, *_: Any) -> dict[str, Any]:
            values = [names[_name(c)] if isinstance(c, ast.Name) else names[_name(c)][k] for c in calls]
            Runtime(program_of(self.written), runtime.trace).function()(*values)
            return {}

        inner = Runtime(Program(lambda _: body, (loop,), self.written), runtime.trace, runtime.stack)
        inner.for_loop(0, range(count), {**names, "of_user": self.written}, body)
        for name, before in writes.items():
            if name.startswith("x") and names[name].ref.writes != before:
                raise UnsupportedError(
                    f"'{list(self.of_user.parameters)[int(name[1:])]}' of {self.name}{self.layout}",
                    "the function writes into an argument that is no result",
                    "write into a copy, or name it as a result",
                )  # fmt: skip


def _element(name: str, batched: bool) -> ast.expr:
    whole = ast.Name(name, ast.Load())
    return ast.Subscript(whole, ast.Name("at", ast.Load()), ast.Load()) if batched else whole


def _name(call: ast.expr) -> str:
    node = call.value if isinstance(call, ast.Subscript) else call
    assert isinstance(node, ast.Name)
    return node.id
