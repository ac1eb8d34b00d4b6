"""Arguments of the wrong Python type, reported as errors of hloom.

Functions check shapes, dtypes and domains where they use them. Errors that Python itself raises before that (a string
where an integer is expected, a number instead of a tuple) would point inside hloom; here they become an error with the
user's line and the function's signature.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from hloom.arrays.array import Array
from hloom.errors import ArgumentError, AttributeValueError, HloomError, file_error
from hloom.ir.base_error import out_of_memory
from hloom.ir.source import is_internal

_REFUSALS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, MemoryError, OSError)
# How NumPy's ValueErrors begin for arrays that no address space holds.
_TOO_LARGE = ("array is too big", "Maximum allowed")
_LIBRARIES = ("numpy", "scipy", "ml_dtypes", "optree", "opt_einsum")


def explains_arguments(function):
    """The function, with Python's errors (TypeError, ValueError, ...) as ArgumentError or AttributeValueError.

    Errors of the user's own functions and calls with too many or too few arguments keep their type.
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
    """Whether the error was raised outside of hloom, or by the call itself."""
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
    if isinstance(error, MemoryError):
        return out_of_memory(f"{name}{_signature(function)}", f"{name}({', '.join(given)}): {error}")
    if str(error).startswith(_TOO_LARGE):
        return out_of_memory(f"{name}{_signature(function)}", f"{name}({', '.join(given)}): more than 2^63 bytes")
    if isinstance(error, OSError):
        return file_error(f"{name}({', '.join(given)})", error)
    kind = AttributeValueError if isinstance(error, (ValueError, LookupError)) else ArgumentError
    return kind(
        f"{name}{_signature(function)}",
        f"{name}({', '.join(given)}): {error}",
        f"see help({name})",
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


def explained_functions(package: str, but: set[str]) -> Callable[[str, Any], Any]:
    """What wraps a public function of the package by its name; hloom itself calls the functions as they are.

    but: modules of the package, relative to it, whose functions check all that they accept, or are called too often to
    be wrapped.
    """
    left_out = {f"{package}.{module}" for module in but}
    wrapped: dict[Callable, Callable] = {}

    def explained(name: str, value: Any) -> Any:
        module = value.__module__ if inspect.isfunction(value) else ""
        if not module.startswith(package + ".") or module in left_out:
            return value
        if value not in wrapped:
            call = wrapped[value] = explains_arguments(value)
            call.__module__, call.__qualname__ = package, name  # where pickle finds it
        return wrapped[value]

    return explained
