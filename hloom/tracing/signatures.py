"""Names and arguments of users' functions, as used in messages and instructions, and arguments by position; also for
computations of a text that become functions."""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from keyword import iskeyword
from typing import Any

from hloom.errors import ArgumentError, HloomError
from hloom.ir.module import Computation
from hloom.ir.source import is_internal
from hloom.ir.types import TupleShape
from hloom.tree import pytrees as tree


def function_name(function) -> str:
    """The name of a function in messages."""
    return getattr(function, "__name__", None) or type(function).__name__


def wraps(function):
    """As `functools.wraps`, also for callables whose `__name__` is not a string, such as None.

    Attributes of the function that the wrapper's class has under the same name are not copied: an instance of a class
    may have some called `lower` or `_program`, which would hide the wrapper's methods.
    """
    named = isinstance(getattr(function, "__name__", ""), str)
    assigned = [n for n in functools.WRAPPER_ASSIGNMENTS if named or n not in ("__name__", "__qualname__")]
    if not isinstance(getattr(function, "__annotations__", {}), dict):  # an instance whose class has a field so named
        assigned.remove("__annotations__")

    def decorate(wrapper):
        attributes = getattr(function, "__dict__", {})
        vars(wrapper).update({n: v for n, v in attributes.items() if not hasattr(type(wrapper), n)})
        return functools.update_wrapper(wrapper, function, assigned, ())

    return decorate


def with_positions(args, positions, values) -> list:
    """The arguments with these values at these positions."""
    args = list(args)
    for position, value in zip(positions, values, strict=True):
        args[position] = value
    return args


def argument_hints(function, args, kwargs, argnums=None) -> list[str]:
    """A readable name for each leaf of the arguments, from the signature and the path in its tree.

    argnums: the positions of `args` in the signature, by default from 0 on.
    """
    names = parameter_names(function)
    hints = []
    for k, arg in zip(range(len(args)) if argnums is None else argnums, args, strict=True):
        base = names[k] if k < len(names) else f"arg{k}"
        hints += [_hint(base, path) for path in tree.paths(arg)]
    for key in sorted(kwargs):
        hints += [_hint(key, path) for path in tree.paths(kwargs[key])]
    return hints


def argument_names(function, structure, static=()) -> list[str]:
    """The name of each leaf of a tree (args, kwargs) in the caller's program: "x", "params['w'][0]".

    static: the positions of arguments that are not in the tree.
    """
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    found = []
    for path in structure.accessors():
        argument = path[1].entry
        if path[0].entry == 0:
            at = next(itertools.islice((k for k in itertools.count() if k not in static), argument, None))
            argument = names[at] if at < len(names) else f"{rest}[{at - len(names)}]"
        found.append(path[2:].codify(argument))
    return found


def parameter_names(function) -> list[str]:
    """The names of positional parameters, then that of `*args`; [] for callables without a signature."""
    if type(function) is types.FunctionType and not function.__dict__:  # ten times as fast as `inspect`
        code = function.__code__
        names = list(code.co_varnames[: code.co_argcount])
        if code.co_flags & inspect.CO_VARARGS:
            names.append(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        return names
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


# Python's messages for arguments that a function does not take, after the function's name.
_WRONG_CALL = re.compile(
    r"\S+\(\) (missing \d+ required|takes |got an unexpected keyword|got multiple values|got some positional-only)"
)


def identifiers(names: Iterable[str]) -> list[str]:
    """Converts arbitrary names to unique Python identifiers, for instructions and messages."""
    made: dict[str, None] = {}
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        plain = plain if plain.isidentifier() and not iskeyword(plain) else f"_{plain}"
        while plain in made:
            plain += "_"
        made[plain] = None
    return [*made]


def raise_wrong_call(error: TypeError, function, name: str, args, kwargs) -> None:
    """Raises ArgumentError if a user's function refused the arguments that hloom called it with."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not is_internal(last.tb_frame.f_code.co_filename) or not _WRONG_CALL.search(str(error)):
        return
    asked = f"'{name}' was called with the arguments of this call"
    if not is_internal(getattr(getattr(function, "__code__", None), "co_filename", __file__)):
        given = [f"{len(args)} by position", *(f"{key}=" for key in kwargs)]
        asked = f"'{name}' was called with {' and '.join(given)}; it takes ({', '.join(parameter_names(function))})"
    raise ArgumentError(
        asked, str(error), "pass the arguments that it takes; `functools.partial` binds others"
    ) from error


def call_of_user(function, name: str, *args):
    """function(*args). Raises ArgumentError if a user's function does not take these arguments."""
    try:
        return function(*args)
    except TypeError as error:
        if not isinstance(error, HloomError):
            raise_wrong_call(error, function, name, args, {})
        raise


def _hint(base: str, path) -> str:
    if not path and base.isidentifier():
        return base.strip("_")
    return re.sub(r"\W+", "_", "_".join([base, *map(str, path)])).strip("_")


# --- functions of computations --------------------------------------------------------------------------------------


def results_of(shape: Any) -> Callable[[Sequence], Any]:
    """Converts the arrays of a computation with a root of this shape to its result: one array, or tuples."""
    if not isinstance(shape, TupleShape):
        return lambda results: results[0]
    return lambda results: _nested(shape, iter(results))


def _nested(shape: Any, results: Iterator) -> Any:
    if isinstance(shape, TupleShape):
        return tuple(_nested(element, results) for element in shape.elements)
    return next(results)


def names_of(computation: Computation) -> list[str] | None:
    """The names of a program's arguments; None if they are not Python identifiers."""
    names = [p.hint for p in computation.parameters]
    legal = all(name.isidentifier() and not iskeyword(name) for name in names)
    return names if legal and len(set(names)) == len(names) else None


def named(function: Callable, name: str, computation: Computation) -> Callable:
    """The function with a name, and the names of arguments that a computation has."""
    function.__name__ = function.__qualname__ = name
    if (names := names_of(computation)) is not None:
        with_names(function, names)
    return function


def with_names(function: Callable, names: Sequence[str]) -> None:
    parameters = [inspect.Parameter(one, inspect.Parameter.POSITIONAL_ONLY) for one in names]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
