"""Functions that Numba compiles as ops: the C function of a call for its dtypes, the checks of its results.

A call of a program passes addresses and sizes as words to a C function that Numba compiles around the user's. There is
one for the dtypes and ranks of a call: sizes are words.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.errors import NumbaError
from numba.extending import intrinsic

from hloom.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from hloom.ir.ops.programs.structure import NativeFunction
from hloom.ir.records import record
from hloom.ir.source import Source
from hloom.ir.types import Shape, TupleShape, result_shapes

__all__ = ["NumbaCall", "call_of", "check_function"]

_numbers = itertools.count(1)
_WORDS = types.CPointer(types.int64)


@intrinsic
def _pointer(typing_context, address):
    """The memory at an address."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(address), generate


@intrinsic
def _read_only(typing_context, array):
    """The array, which a function may not write to."""

    def generate(context, builder, signature, arguments):
        return arguments[0]  # it owns no memory that is counted

    return array.copy(readonly=True)(array), generate


@intrinsic
def _call(typing_context, address, words, low, high):
    """Calls the function (words, low, high) at an address."""

    def generate(context, builder, signature, arguments):
        given = [arguments[1].type, arguments[2].type, arguments[3].type]
        kind = ir.FunctionType(ir.VoidType(), given).as_pointer()
        builder.call(builder.inttoptr(arguments[0], kind), arguments[1:])
        return context.get_dummy_value()

    return types.none(address, words, low, high), generate


@record(frozen=True)
class Argument:
    """What a function is called with. number: of the operand; None for a static value, or a result that it fills.
    result: the number of that."""

    number: int | None = None
    result: int | None = None
    static: Any = None


class NumbaCall(NativeFunction):
    """A function of Numba's at the dtypes and ranks of a call, for a batch of calls.

    called: Numba's function. arguments: of it. compiled: keeps the C function in memory. batches: the same function for
    more batch dimensions, by the operands that have them.
    """

    called: Any
    arguments: tuple[Argument, ...]
    compiled: Any
    batches: dict[tuple[bool, ...], NumbaCall]

    def batched(self, mapped: Sequence[bool]) -> NumbaCall:
        own = tuple([a or b for a, b in zip(self.own, mapped, strict=True)])
        found = self.batches.get(own)
        if found is None:
            found = self.batches[own] = _call_named(self.called, self.arguments, self.compiled, self.depth + 1, own)
        return found

    def evaluate(self, arrays: Sequence[np.ndarray], shape: TupleShape) -> tuple[np.ndarray, ...]:
        sizes = self.sizes(shape)
        made = [np.zeros(s.dims, s.dtype) for s in result_shapes(shape)]
        for place in np.ndindex(*sizes):
            given = [a[place] if own else a for a, own in zip(arrays, self.own, strict=True)]
            self._one(given, [m[(*place, ...)] for m in made])
        return tuple(made)

    def _one(self, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        """Computes one batch element as Numba's own entry does."""
        given = [
            results[a.result] if a.result is not None else a.static if a.number is None
            else _operand(operands[a.number], not self.called._can_compile) for a in self.arguments
        ]  # fmt: skip
        found = _leaves(self.called(*given))
        if any(a.result is not None for a in self.arguments):
            return
        for k, (value, result) in enumerate(zip(found, results, strict=True)):
            if np.shape(value) != result.shape:
                raise ShapeError(
                    f"'{self.called.__name__}' was declared to return {Shape(result.dtype, result.shape)!r}"
                    + (f" as result {k}" if len(found) > 1 else ""),
                    f"it returned {Shape(value.dtype, value.shape)!r}",
                    "declare the shape that it returns: hl.kernel(function, results=...)",
                )
            result[...] = value


def _call_named(called, arguments, compiled, depth: int, own: tuple[bool, ...]) -> NumbaCall:
    made = NumbaCall(f"hloom.numba.{called.__name__}.{next(_numbers)}")
    made.called, made.arguments, made.compiled, made.address = called, arguments, compiled, compiled.address
    made.depth, made.own, made.batches = depth, own, {}
    made.whole, made.method = bool(called.targetoptions.get("parallel")), "sequential"
    made.function = made.evaluate
    return made


def _operand(array: np.ndarray, writable: bool):
    """An operand as the function gets it: an element, or an array that it may not write to."""
    if array.shape == ():
        return array[()]
    if writable:
        return array.copy()
    given = np.ascontiguousarray(array).view()
    given.flags.writeable = False
    return given


def _leaves(value) -> list:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, tuple) else [value]


def check_function(function: Any) -> None:
    """Raises ArgumentError for what is no function compiled by `numba.njit`."""
    if not isinstance(function, numba.core.dispatcher.Dispatcher) or function.targetoptions.get("forceobj"):
        raise ArgumentError(
            "hl.kernel(function, results=...) calls a function that Numba compiles",
            f"{function!r:.80}",
            "decorate it with numba.njit",
        )


# --- the C function -------------------------------------------------------------------------------------------------


class _Compiled:
    """The C functions of one function of Numba's, by the dtypes and ranks of its arguments and results."""

    def __init__(self) -> None:
        self.made: dict[Any, Any] = {}


_compiled: weakref.WeakKeyDictionary[Any, _Compiled] = weakref.WeakKeyDictionary()


def call_of(
    function: Any, arguments: tuple[Argument, ...], operands: tuple[Shape, ...], results: tuple[Shape, ...], tree: Any
) -> NumbaCall:
    """The op of one call. tree: of the results as numbers in nested tuples, where the function returns them.

    Raises UnsupportedError for what Numba does not compile, DTypeError, ShapeError and ArgumentError for results that
    are not what was declared.
    """
    filled = any(a.result is not None for a in arguments)
    found = [_type_of(s, a.number is None) for s, a in _shapes(arguments, operands, results)]
    kind = _return_type(function, found)
    returned = None if filled else _returned(function, kind, results, tree)
    key = (arguments, tuple([(s.dtype, len(s.dims)) for s in (*operands, *results)]))
    known = _compiled.setdefault(function, _Compiled()).made
    compiled = known.get(key)
    if compiled is None:
        compiled = known[key] = _wrapped(function, arguments, operands, results, returned)
    return _call_named(function, arguments, compiled, 0, (False,) * len(operands))


def _shapes(arguments, operands, results) -> list[tuple[Any, Argument]]:
    return [
        (operands[a.number] if a.number is not None else results[a.result] if a.result is not None else a.static, a)
        for a in arguments
    ]


def _type_of(shape: Shape | Any, mutable: bool) -> types.Type:
    """Numba's type of an operand or a result of this shape, or of a static value."""
    if not isinstance(shape, Shape):
        return numba.typeof(shape)
    try:
        element = numba.from_dtype(shape.dtype)
    except (NumbaError, NotImplementedError):
        raise DTypeError(
            "a function that Numba compiles", f"{shape!r}, whose dtype Numba does not have",
            "convert it before the call, x.astype(hnp.float32)",
        ) from None  # fmt: skip
    return types.Array(element, len(shape.dims), "C", readonly=not mutable) if shape.dims or mutable else element


def _returned(function, kind: types.Type, results: Sequence[Shape], tree: Any) -> list[str]:
    """For each result the expression of it, from what the function returned."""
    found: list[tuple[str, types.Type]] = []
    shape = _tree(kind, "found", found)
    if shape != tree:
        raise ArgumentError(
            f"'{function.__name__}' was declared to return {len(results)} result{'s' * (len(results) != 1)}",
            f"it returns {kind}",
            "declare what it returns: results=hl.ShapeDtypeStruct(shape, dtype), or a tuple of these",
        )
    for (_, one), declared in zip(found, results, strict=True):
        rank = one.ndim if isinstance(one, types.Array) else 0
        element = one.dtype if isinstance(one, types.Array) else one
        if not isinstance(element, (types.Number, types.Boolean)):
            raise UnsupportedError(
                f"'{function.__name__}' as an op", f"it returns {kind}", "return arrays and numbers, or tuples of them"
            )
        dtype = numba.np.numpy_support.as_dtype(element)
        if rank != len(declared.dims):
            raise ShapeError(
                f"'{function.__name__}' was declared to return {declared!r}", f"it returns {one}",
                "declare the shape that it returns",
            )  # fmt: skip
        if dtype.kind != declared.dtype.kind and {dtype.kind, declared.dtype.kind} != {"i", "u"}:
            raise DTypeError(
                f"'{function.__name__}' was declared to return {declared!r}", f"it returns {one}",
                "declare the dtype that it returns; other widths of its kind are converted",
            )  # fmt: skip
    return [expression for expression, _ in found]


def _tree(kind: types.Type, expression: str, found: list) -> Any:
    """The numbers of the results in nested tuples; `found` gets their expressions and types."""
    if isinstance(kind, types.BaseTuple):
        parts: Any = kind
        return tuple([_tree(part, f"{expression}[{k}]", found) for k, part in enumerate(parts)])
    found.append((expression, kind))
    return len(found) - 1


def _return_type(function, given: Sequence[types.Type]) -> types.Type:
    """What the function returns for arguments of these types."""
    if not function._can_compile:  # of declared signatures, whose arguments are copies that it may write to
        given = [kind.copy(readonly=False) if isinstance(kind, types.Array) else kind for kind in given]
    context = numba.core.registry.cpu_target.typing_context
    try:
        return numba.typeof(function).get_call_type(context, tuple(given), {}).return_type
    except NumbaError as error:
        raise _refused(function, error) from error


def _refused(function, error: Exception) -> UnsupportedError:
    """The error for a function that Numba does not compile, at the line that it names."""
    where = getattr(error, "loc", None)
    source = None
    if where is not None and where.line is not None:
        source = Source(where.filename, where.line, function.__name__)
    text = " ".join(str(getattr(error, "msg", error)).strip().split("\n\n")[0].split())[:300]  # all of it: the cause
    return UnsupportedError(
        f"'{function.__name__}' as an op", f"Numba does not compile it: {text}",
        "write results to new arrays, never to arguments, and use what numba.njit supports; hl.pure_callback calls "
        "any Python function", source,
    )  # fmt: skip


def _wrapped(function, arguments, operands, results, returned: list[str] | None):
    """The C function (words, low, high) of calls; Numba's object, which keeps it in memory.

    The words are the two of a Python step, the pointers, the address of the Python step, and `NumbaCall.numbers`.
    """
    names: dict[str, Any] = {
        "function": function, "carray": numba.carray, "pointer": _pointer, "read_only": _read_only, "call": _call,
    }  # fmt: skip
    shapes = (*operands, *results)
    python = 2 + len(shapes)
    position, views = python + 1, []
    for k, shape in enumerate(shapes):
        names[f"dtype{k}"] = np.dtype(shape.dtype)
        dims = "".join([f"words[{position + 1 + n}], " for n in range(len(shape.dims))])
        views.append(f"carray(pointer(words[{2 + k}] + k * words[{position}]), ({dims or '1,'}), dtype{k})")
        position += 1 + len(shape.dims)
    lines = [f"result{k} = {view}" for k, view in enumerate(views[len(operands) :])]
    given = []
    for n, argument in enumerate(arguments):
        if argument.result is not None:
            lines.append(f"result{argument.result}[...] = 0")
            given.append(f"result{argument.result}")
        elif argument.number is None:
            names[f"static{n}"] = argument.static
            given.append(f"static{n}")
        elif not operands[argument.number].dims:
            given.append(f"{views[argument.number]}[0]")
        else:
            view = views[argument.number]
            given.append(f"read_only({view})" if function._can_compile else f"{view}.copy()")
    lines.append(f"found = function({', '.join(given)})")
    for k, expression in enumerate(returned or ()):
        if results[k].dims:
            lines += [f"if {expression}.shape != result{k}.shape:", "    return True"]
        lines.append(f"result{k}[...] = {expression}")
    body = "\n    ".join([*lines, "return False"])
    names["element"] = numba.njit(_defined(f"def element(words, k):\n    {body}\n", names)["element"])
    made = _defined(_CALLS.format(count=position, python=python), names)["calls"]
    try:
        return numba.cfunc(types.void(_WORDS, types.int64, types.int64))(made)
    except NumbaError as error:
        raise _refused(function, error) from error


# An element that fails is computed again by the Python step, which raises its error.
_CALLS = """
def calls(pointer_to_words, low, high):
    words = carray(pointer_to_words, ({count},))
    for k in range(low, high):
        failed = True
        try:
            failed = element(words, k)
        except Exception:
            failed = True
        if failed:
            call(words[{python}], pointer_to_words, low, high)
"""


def _defined(text: str, names: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(names)
    exec(text, made)
    return made
