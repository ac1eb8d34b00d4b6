"""Hyperparameters of optimizers and schedules, checked when the optimizer is constructed.

A string in place of a number would otherwise fail only in the first step, inside of the formula that uses it.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from hloom.arrays.arguments import wrong_call
from hloom.arrays.base import ArrayMethods
from hloom.errors import ArgumentError
from hloom.tree import pytrees as tree

# The types of arguments: a number or an array of numbers; the same or a function of the step count.
Number = Annotated[Any, "a number"]
Rate = Annotated[Any, "a number or a schedule"]
_NUMBERS = (int, float, complex, np.number, np.bool_, ArrayMethods)
# Arguments of optimizers in other libraries that are separate transformations in hloom.
_ELSEWHERE = {
    "weight_decay": "take optim.adamw, or optim.chain(optim.add_decayed_weights(...), the optimizer)",
    "clipnorm": "write optim.chain(optim.clip_by_global_norm(...), the optimizer)",
    "global_clipnorm": "write optim.chain(optim.clip_by_global_norm(...), the optimizer)",
    "clipvalue": "write optim.chain(optim.clip(...), the optimizer)",
    "amsgrad": "take optim.amsgrad",
    "momentum": "take optim.sgd(learning_rate, momentum), or another optimizer: this one has its own moments",
    "params": "pass the parameters to init: state = optimizer.init(parameters)",
    "parameters": "pass the parameters to init: state = optimizer.init(parameters)",
    "maximize": "negate the loss",
    "foreach": "leave it out: all updates are compiled together",
    "fused": "leave it out: all updates are compiled together",
    "capturable": "leave it out: all updates are compiled together",
}


def checked(function: Callable) -> Callable:
    """A constructor of an optimizer, a transformation or a schedule, with checks of its arguments.

    Raises ArgumentError for an unknown argument, and for an invalid Number or Rate.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def make(*args, **kwargs):
        name = function.__name__
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise _wrong_call(name, signature.parameters, args, kwargs, str(error)) from None
        for argument, hint in _checked_arguments(function):
            if argument in given and given[argument] is not signature.parameters[argument].default:
                _check(name, argument, given[argument], hint)
        return function(*args, **kwargs)

    return make


def makes_optimizers(value) -> bool:
    """Whether a public name of `hloom.optim` is a constructor of an optimizer or a schedule."""
    if not inspect.isfunction(value) or not value.__module__.startswith("hloom.optim."):
        return False
    return value.__module__.endswith(".schedules") or value.__annotations__.get("return") == "GradientTransformation"


@functools.cache
def _checked_arguments(function: Callable) -> list[tuple[str, Any]]:
    hints = typing.get_type_hints(function, include_extras=True)
    return [(argument, hint) for argument, hint in hints.items() if hint in (Number, Rate, int)]


def _wrong_call(name: str, parameters, args, kwargs, found: str) -> ArgumentError:
    made = wrong_call(name, parameters, args, kwargs, found)
    unknown = next((key for key in kwargs if key not in parameters), "")
    if unknown in _ELSEWHERE and not made.repair.startswith("did you mean"):
        made.repair = _ELSEWHERE[unknown]
    return made


def _check(name: str, argument: str, value, hint) -> None:
    if isinstance(value, _NUMBERS):
        return
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcV":
        return
    if hint == Rate and callable(value) and not isinstance(value, type):
        return
    asked = f"{name} takes {'an integer' if hint is int else hint.__metadata__[0]} as {argument}"
    found = "None" if value is None else f"{type(value).__name__} {' '.join(repr(value).split()):.60}"
    raise ArgumentError(asked, found, _repair(argument, value, hint))


def _repair(argument: str, value, hint) -> str:
    if isinstance(value, str):
        try:
            number = float(value)
            return f"pass the number: {argument}={int(number) if hint is int else number!r}"
        except ValueError:
            return f"pass a number, such as {argument}={'100' if hint is int else '1e-3'}"
    if isinstance(value, (tuple, list)) and value and all(isinstance(v, (int, float)) for v in value):
        return f"pass numbers one by one, by their names: {argument}={value[0]!r}"
    if hint == Rate and tree.leaves(value) and isinstance(tree.leaves(value)[0], (ArrayMethods, np.ndarray)):
        return "pass the rate first; the parameters go to init: state = optimizer.init(parameters)"
    return f"pass a number, such as {argument}={'100' if hint is int else '1e-3'}"
