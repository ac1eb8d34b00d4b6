"""Names and arguments of users' functions: what messages and instructions call them, and arguments by position."""

from __future__ import annotations

import inspect
import re
import types

from hloom.tree import pytrees as tree


def function_name(function) -> str:
    """What messages call a function."""
    return getattr(function, "__name__", None) or type(function).__name__


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
    names = _parameter_names(function)
    hints = []
    for k, arg in zip(range(len(args)) if argnums is None else argnums, args, strict=True):
        base = names[k] if k < len(names) else f"arg{k}"
        hints += [_hint(base, path) for path in tree.paths(arg)]
    for key in sorted(kwargs):
        hints += [_hint(key, path) for path in tree.paths(kwargs[key])]
    return hints


def _parameter_names(function) -> list[str]:
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


def _hint(base: str, path) -> str:
    if not path and base.isidentifier():
        return base.strip("_")
    return re.sub(r"\W+", "_", "_".join([base, *map(str, path)])).strip("_")
