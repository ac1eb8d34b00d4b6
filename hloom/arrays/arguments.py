"""Arguments of the wrong Python type, reported as errors of hloom.

Functions check shapes, dtypes and domains where they use them. Errors that Python itself raises before that (a string
where an integer is expected, a number instead of a tuple) would point inside hloom; here they become an error with the
user's line and the function's signature.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.base import ArrayMethods
from hloom.errors import ArgumentError, AttributeValueError, HloomError, file_error
from hloom.ir.base_error import out_of_memory
from hloom.ir.source import is_internal

_REFUSALS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, MemoryError, OSError)
# How NumPy's ValueErrors begin for arrays that no address space holds.
_TOO_LARGE = ("array is too big", "Maximum allowed")
_LIBRARIES = ("numpy", "scipy", "ml_dtypes", "optree", "opt_einsum")


def explains_arguments(function):
    """The function, with Python's errors (TypeError, ValueError, ...) as ArgumentError or AttributeValueError.

    Errors of the user's own functions keep their type.
    """

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except HloomError as error:
            if is_split_sequence(function, args):
                raise _split_sequence(function, args) from error
            if _is_axis_an_array(function, args):
                raise _array_for_axis(function.__name__, args) from error
            raise
        except _REFUSALS as error:
            if isinstance(error, TypeError) and not takes(function, args, kwargs):
                parameters = inspect.signature(function).parameters
                raise wrong_call(function.__name__, parameters, args, kwargs, str(error)) from None
            if _is_the_users(error.__traceback__):
                raise
            if is_split_sequence(function, args):
                raise _split_sequence(function, args) from error
            raise refused_arguments(function.__name__, inspect.signature(function), args, kwargs, error) from error

    return call


def takes(function, args: Sequence, kwargs: Mapping) -> bool:
    """Whether a function has parameters for these arguments."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def is_split_sequence(function, args: Sequence) -> bool:
    """Whether arrays that a function takes as one sequence were passed one by one: concatenate(a, b)."""
    first = next(iter(inspect.signature(function).parameters), "")
    return first in _SEQUENCES and len(args) > 1 and all(is_array(a) and a.ndim > 0 for a in args[:2])


def _split_sequence(function, args: Sequence) -> ArgumentError:
    name = function.__name__
    return ArgumentError(
        f"{name} takes the arrays as one sequence",
        f"{name}({_given(args, {})}): arrays one by one",
        f"write {name}([a, b])",
    )


def _is_axis_an_array(function, args: Sequence) -> bool:
    """Whether an array was passed where a function takes an axis: max(a, b)."""
    names = list(inspect.signature(function).parameters)
    return names[1:2] == ["axis"] and len(args) > 1 and is_array(args[1]) and args[1].ndim > 0


def _array_for_axis(name: str, args: Sequence) -> ArgumentError:
    two = {"max": "maximum", "amax": "maximum", "min": "minimum", "amin": "minimum", "sum": "add", "prod": "multiply"}
    repair = f"{two[name]}(a, b) takes two arrays" if name in two else "pass an integer, or a tuple of them"
    return ArgumentError(f"{name} takes an axis as its second argument", f"{name}({_given(args, {})})", repair)


def wrong_call(
    name: str, parameters: Mapping[str, inspect.Parameter], args: Sequence, kwargs: Mapping, found: str
) -> ArgumentError:
    """The error for a call with arguments that a function, or a class, does not take, or without a required one.

    parameters: those that it takes. found: Python's message.
    """
    names = [str(p.replace(annotation=p.empty)).partition("=")[0] for p in parameters.values()]
    positional = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    unknown = [key for key in kwargs if key not in parameters]
    if unknown:
        near = nearest_argument(unknown[0], [n for n in parameters if n not in kwargs])
        repair = f"did you mean {near}?" if near else f"leave {unknown[0]}= out"
    elif len(args) > len(positional):
        repair = _fewer(name, positional, parameters, args)
    elif "key" in parameters and "key" not in kwargs:
        repair = "pass key=hl.random.key(0), for each layer another one: first, second = hl.random.split(key)"
    else:
        repair = "pass the missing arguments"
    return ArgumentError(f"{name} takes ({', '.join(names)})", f"{name}({_given(args, kwargs)}): {found}", repair)


def _fewer(name: str, positional: list[str], parameters: Mapping[str, inspect.Parameter], args: Sequence) -> str:
    """The repair of a call with too many arguments by position."""
    if positional and positional[0] in _SEQUENCES and all(map(is_array, args[:2])):
        return f"pass the arrays as one sequence: {name}([a, b])"
    for place, parameter in enumerate(positional):
        if parameter in _TUPLES and all(isinstance(a, int) for a in args[place:]):
            return f"pass {parameter} as one tuple: {parameter}=({', '.join(map(str, args[place:]))})"
    others = [p.name for p in parameters.values() if p.kind == p.KEYWORD_ONLY]
    by_name = f"the others by name: {', '.join(f'{n}=' for n in others)}" if others else "and leave the others out"
    return f"pass {len(positional)} by position, {by_name}"


# Parameters that are sequences of arrays, and of integers.
_SEQUENCES = frozenset({"arrays", "tup", "operands", "array_list", "arys", "keys"})
_TUPLES = frozenset({"shape", "newshape", "reps", "axis", "axes", "new_sizes", "sizes"})


def is_array(value) -> bool:
    return isinstance(value, (ArrayMethods, np.ndarray))


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


def refused_arguments(name: str, signature: inspect.Signature, args, kwargs, error: Exception) -> HloomError:
    """The error for a function that cannot use its arguments, from the exception that Python raised in it."""
    given = f"{name}({_given(args, kwargs)})"
    asked = f"{name}{_written(signature)}"
    if isinstance(error, MemoryError):
        return out_of_memory(asked, f"{given}: {error}")
    if str(error).startswith(_TOO_LARGE):
        return out_of_memory(asked, f"{given}: more than 2^63 bytes")
    if isinstance(error, OSError):
        return file_error(given, error)
    kind = AttributeValueError if isinstance(error, (ValueError, LookupError)) else ArgumentError
    return kind(asked, f"{given}: {error}", f"see help({name})")


def _given(args, kwargs) -> str:
    return ", ".join([_described(a) for a in args] + [f"{k}={_described(v)}" for k, v in kwargs.items()])


def _written(signature: inspect.Signature) -> str:
    parts = [str(p.replace(annotation=inspect.Parameter.empty)) for p in signature.parameters.values()]
    return f"({', '.join(parts)})"


def _described(value) -> str:
    if isinstance(value, Array) or hasattr(value, "_shape"):
        return repr(value._shape)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{getattr(value.dtype, 'name', value.dtype)}{list(value.shape)}"
    return f"{' '.join(repr(value).split()):.60}"


def explained_functions(package: str, but: set[str]) -> Callable[[str, Any], Any]:
    """The wrapper of a public function of the package, by its name; hloom itself calls the unwrapped functions.

    but: modules of the package, relative to it, whose functions check all their arguments, or are called too often to
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


# Names of arguments in torch, Keras, NumPy, Optax and JAX -> hloom's, the first that the function has.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "dim": ("axis", "axes", "shape"),
    "dims": ("axis", "axes", "shape"),
    "axis": ("axes", "dimension", "dimensions"),
    "axes": ("axis", "dimensions"),
    "keepdim": ("keepdims",),
    "keep_dims": ("keepdims",),
    "size": ("shape",),
    "low": ("minval",),
    "high": ("maxval",),
    "steps": ("num",),
    "inputs": ("a", "x"),
    "input": ("a", "x", "array"),
    "tensors": ("arrays", "operands"),
    "out_dtype": ("dtype",),
    "in_dims": ("in_axes",),
    "out_dims": ("out_axes",),
    "argnum": ("argnums",),
    "lr": ("learning_rate",),
    "alpha": ("learning_rate", "decay"),
    "betas": ("b1, b2",),
    "beta": ("momentum", "decay", "b1"),
    "beta1": ("b1",),
    "beta2": ("b2",),
    "beta_1": ("b1",),
    "beta_2": ("b2",),
    "epsilon": ("eps",),
    "eps": ("epsilon",),
    "rho": ("decay", "rho"),
    "wd": ("weight_decay",),
    "max_grad_norm": ("max_norm",),
    "clip_value": ("max_delta",),
    "kernel_size": ("window",),
    "stride": ("strides",),
    "in_channels": ("inputs",),
    "out_channels": ("outputs",),
    "in_features": ("inputs",),
    "out_features": ("outputs",),
    "input_size": ("inputs",),
    "hidden_size": ("features", "outputs"),
    "num_features": ("features",),
    "normalized_shape": ("features",),
    "features": ("outputs", "features"),
    "units": ("outputs",),
    "filters": ("outputs",),
    "bias": ("use_bias",),
    "p": ("rate",),
    "num_embeddings": ("count",),
    "embedding_dim": ("features", "outputs"),
    "rngs": ("key",),
    "rng": ("key",),
    "seed": ("key",),
}


def nearest_argument(name: str, known: Iterable[str]) -> str:
    """Suggests names of a function for one that it does not have; '' if none is similar."""
    known = list(known)
    for meant in ARGUMENTS.get(name, ()):
        if set(meant.split(", ")) <= set(known):
            return meant
    contained = [other for other in known if name in other.split("_")]
    return (contained or difflib.get_close_matches(name, known, 1, 0.6) or [""])[0]
