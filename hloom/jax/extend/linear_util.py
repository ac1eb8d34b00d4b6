"""Functions with transformations around them, under the names of `jax.extend.linear_util`.

A transformation is a generator: it yields the arguments (args, kwargs) for the function inside, is sent that function's
result, and yields the result.
"""

from __future__ import annotations

import functools

from hloom.errors import ArgumentError
from hloom.tracing.signatures import function_name


class WrappedFun:
    """A function to be called with `call_wrapped`."""

    def __init__(self, f, debug_info=None):
        self.f, self.debug_info = f, debug_info

    @property
    def __name__(self) -> str:
        return function_name(self.f)

    def call_wrapped(self, *args, **kwargs):
        return self.f(*args, **kwargs)


class Store:
    """What a transformation leaves besides the result. Read by calling it, after the function has run."""

    def __init__(self):
        self._values: list = []

    def __call__(self):
        if not self._values:
            raise ArgumentError("what a call leaves was read", "the function has not been called", "call it first")
        return self._values[-1]


def wrap_init(f, params=None, *, debug_info=None) -> WrappedFun:
    """The function without transformations; params: keyword arguments for each call."""
    return WrappedFun(functools.partial(f, **params) if params else f, debug_info)


def transformation(gen):
    """The transformation of a generator: transformation(gen)(wrapped, *arguments) -> WrappedFun."""

    @functools.wraps(gen)
    def transform(wrapped: WrappedFun, *gen_args):
        @functools.wraps(wrapped.f)
        def call(*args, **kwargs):
            steps = gen(*gen_args, *args, **kwargs)
            given, named = next(steps)
            return steps.send(wrapped.call_wrapped(*given, **named))

        return WrappedFun(call, wrapped.debug_info)

    return transform


def transformation_with_aux(gen):
    """As `transformation`, of a generator whose last yield is (result, something): returns (WrappedFun, Store)."""

    @functools.wraps(gen)
    def transform(wrapped: WrappedFun, *gen_args):
        store = Store()
        plain = transformation(gen)(wrapped, *gen_args)

        @functools.wraps(wrapped.f)
        def call(*args, **kwargs):
            result, left = plain.call_wrapped(*args, **kwargs)
            store._values.append(left)
            return result

        return WrappedFun(call, wrapped.debug_info), store

    return transform


__all__ = ["Store", "WrappedFun", "transformation", "transformation_with_aux", "wrap_init"]
__dir__ = __all__.copy
