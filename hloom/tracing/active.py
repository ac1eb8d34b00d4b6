"""The traces and named axes that are active in a thread."""

from __future__ import annotations

import functools
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hloom.errors import TracerError

if TYPE_CHECKING:
    from hloom.tracing.trace import Trace


class _Traces(threading.local):
    """The traces that run in this thread, the innermost last."""

    def __init__(self):
        self.active: list[Trace | None] = []  # None: operations in between run eagerly
        self.axes: tuple[tuple[object, int], ...] = ()  # (name, size) of the named axes, the innermost last
        # Of `hloom.tracing.exact`: whether results of nested functions bring their twins, and whether an enclosing
        # trace starts again with them when one is missing.
        self.twins = False
        self.can_restart = False


TRACES = _Traces()


MOST_NESTED = 1000  # traces within each other
_FRAMES = 60  # of Python's that a nested function takes at most, in traces and in passes
_lock = threading.Lock()


def check_nesting(name: str) -> None:
    """Raises TracerError for a trace too deep within others. Python's limit of recursion grows with their number, as
    each takes many frames; it stays so, since passes walk the nested functions later."""
    depth = len(TRACES.active)
    if depth <= 8:
        return
    if depth > MOST_NESTED:
        raise TracerError(
            f"'{name}' is traced within {MOST_NESTED} other functions",
            "a function that calls or wraps itself again and again",
            "wrap it once, and repeat it with lax.fori_loop or lax.scan",
        )
    wanted = 1000 + _FRAMES * depth
    if sys.getrecursionlimit() < wanted:
        with _lock:
            sys.setrecursionlimit(max(sys.getrecursionlimit(), wanted))


@contextmanager
def named_axis(name, size: int):
    """Within it, collectives find an axis of this name. None: nothing changes."""
    before = TRACES.axes
    if name is not None:
        TRACES.axes = (*before, (name, size))
    try:
        yield
    finally:
        TRACES.axes = before


class NeedsTwins(BaseException):
    """A trace lacks the twin of a nested function's result, and starts again. No error: users do not catch it."""


def restarts(function):
    """The function, called again with twins where it raises NeedsTwins; one that such a function calls does not."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        if TRACES.can_restart:
            return function(*args, **kwargs)
        TRACES.can_restart = True
        try:
            try:
                return function(*args, **kwargs)
            except NeedsTwins:
                pass  # what it holds is free before the next line runs
            TRACES.twins = True
            return function(*args, **kwargs)
        finally:
            TRACES.can_restart = TRACES.twins = False

    return call


def brings_twins() -> bool:
    """Whether what is traced now brings the twins of its results: it is no nested function, or those bring them."""
    return TRACES.twins or not any(TRACES.active)


def require_twins() -> bool:
    """Whether nested functions bring twins. Raises NeedsTwins where the trace can start again with them."""
    if not TRACES.twins and TRACES.can_restart:
        raise NeedsTwins
    return TRACES.twins


def bringing_twins(function):
    """The function, whose nested functions bring twins where it is called eagerly: there is no trace to start again."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        if TRACES.can_restart or TRACES.twins or TRACES.active:
            return function(*args, **kwargs)
        TRACES.twins = True
        try:
            return function(*args, **kwargs)
        finally:
            TRACES.twins = False

    return call


def used_arguments(trace: Trace, parameters) -> tuple[int, ...]:
    """The numbers of the arguments whose random keys are used up. Keys that a trace around it has are used up there."""
    for tracer, parameter in trace.captures.values():
        if parameter in trace.used_keys:
            tracer.trace.used_keys.setdefault(tracer.instruction, trace.used_keys[parameter])
    return tuple(k for k, parameter in enumerate(parameters) if parameter in trace.used_keys)
