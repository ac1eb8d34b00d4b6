"""Arguments that a function cannot even read, as errors of hloom.

Functions check what they get where they use it: shapes, dtypes, domains. What Python itself refuses on the way there (a
string where integers are expected, a number in the place of a tuple) would be raised somewhere inside of hloom; here it
becomes an error with the user's line, which says what the function takes.
"""

from __future__ import annotations

import functools
import inspect

from hloom.arrays.array import Array
from hloom.errors import ArgumentError, AttributeValueError, HloomError
from hloom.ir.source import is_internal

_REFUSALS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)
_LIBRARIES = ("numpy", "scipy", "ml_dtypes", "optree", "opt_einsum")


def explains_arguments(function):
    """The function, whose refusals by Python (TypeError, ValueError, ...) become ArgumentError or AttributeValueError.

    Errors of functions that the user passes stay what they are, and so do calls with too many or too few arguments.
    """

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except HloomError:
            raise
        except _REFUSALS as error:
            if _is_the_users(error.__traceback__):
                raise
            raise _refusal(function, args, kwargs, error) from error

    return call


def _is_the_users(traceback) -> bool:
    """Whether the error came from code that is not hloom's, or from the call itself."""
    inner = traceback.tb_next
    if inner is None:
        return True
    while inner is not None:
        code = inner.tb_frame.f_code
        library = inner.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        if not is_internal(code.co_filename) and library not in _LIBRARIES:
            return True
        inner = inner.tb_next
    return False


def _refusal(function, args, kwargs, error: Exception) -> HloomError:
    name = function.__name__
    given = [_described(a) for a in args] + [f"{k}={_described(v)}" for k, v in kwargs.items()]
    kind = AttributeValueError if isinstance(error, (ValueError, LookupError)) else ArgumentError
    return kind(
        f"{name}{_signature(function)}",
        f"{name}({', '.join(given)}): {error}",
        f"pass what its documentation says: help({name})",
    )


def _signature(function) -> str:
    parts = []
    for parameter in inspect.signature(function).parameters.values():
        parts.append(str(parameter.replace(annotation=inspect.Parameter.empty)))
    return f"({', '.join(parts)})"


def _described(value) -> str:
    if isinstance(value, Array) or hasattr(value, "_shape"):
        return repr(value._shape)
    return f"{value!r:.60}"


def explain_all(namespace: dict, but: set[str]) -> None:
    """Wraps the functions of a package in its namespace of public names; hloom itself calls them as they are.

    but: modules of the package, relative to it, whose functions check all that they accept, or are called too often to
    be wrapped.
    """
    package = namespace["__name__"] + "."
    left_out = {package + module for module in but}
    made: dict = {}
    for name, function in list(namespace.items()):
        if not inspect.isfunction(function) or name.startswith("_"):
            continue
        if not function.__module__.startswith(package) or function.__module__ in left_out:
            continue
        if function not in made:
            wrapped = made[function] = explains_arguments(function)
            wrapped.__module__, wrapped.__qualname__ = namespace["__name__"], name  # where pickle finds it
        namespace[name] = made[function]
