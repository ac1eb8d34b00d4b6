"""Marks of parts of a program, under the names of `jax.profiler`. A mark only runs its code: `profile` needs none."""

from __future__ import annotations

import contextlib

from hloom.tracing.signatures import wraps


class TraceAnnotation(contextlib.ContextDecorator, contextlib.AbstractContextManager):
    """`with TraceAnnotation("load"):` marks a part of a program."""

    def __init__(self, name: str, **kwargs):
        self.name, self.values = name, kwargs

    def __exit__(self, *exception) -> None:
        return None


class StepTraceAnnotation(TraceAnnotation):
    """`with StepTraceAnnotation("train", step_num=k):` marks a step of training."""


def annotate_function(func, name: str | None = None, **kwargs):
    """The function, its calls marked.

    >>> f = hl.profiler.annotate_function(lambda x: x + 1, name="increment")
    >>> f(hnp.array([1, 2]))
    Array([2, 3], dtype=int32)
    """

    @wraps(func)
    def call(*args, **named):
        with TraceAnnotation(name or str(getattr(func, "__name__", "function")), **kwargs):
            return func(*args, **named)

    return call


__all__ = ["StepTraceAnnotation", "TraceAnnotation", "annotate_function"]
__dir__ = __all__.copy
