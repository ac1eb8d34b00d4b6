"""Functions of trees as functions of flat arguments, under the names of `jax.api_util`."""

from __future__ import annotations

from hloom.ir.records import record
from hloom.jax.extend.linear_util import transformation_with_aux
from hloom.tracing.signatures import argument_hints, function_name
from hloom.tree import pytrees as tree
from hloom.tree import specification


@record(frozen=True)
class DebugInfo:
    """What messages call a traced function and its arguments."""

    traced_for: str
    func_src_info: str
    arg_names: tuple


def debug_info(traced_for: str, fun, args, kwargs, **names) -> DebugInfo:
    """How messages call a function and its arguments."""
    name = function_name(fun)
    try:
        hints = tuple(argument_hints(fun, args, kwargs))
    except (TypeError, ValueError):
        hints = ()
    return DebugInfo(traced_for, name, hints)


@transformation_with_aux
def flatten_fun(in_tree, *flat):
    """A function of (args, kwargs) of a structure as one of their leaves: (WrappedFun, the result's structure)."""
    args, kwargs = tree.unflatten(specification(in_tree), flat)
    result = yield args, kwargs
    yield tree.flatten(result)


@transformation_with_aux
def flatten_fun_nokwargs(in_tree, *flat):
    """As `flatten_fun`, of a structure of the positional arguments alone."""
    result = yield tree.unflatten(specification(in_tree), flat), {}
    yield tree.flatten(result)


__all__ = ["DebugInfo", "debug_info", "flatten_fun", "flatten_fun_nokwargs"]
__dir__ = __all__.copy
