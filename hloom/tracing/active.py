"""The traces and named axes that are active in a thread, and the assumptions about sizes in them."""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from hloom.errors import ArgumentError, ShapeError, TracerError
from hloom.ir.module import Assumption, Computation, Instruction
from hloom.ir.sizes import expressions as sizes
from hloom.ir.sizes.expressions import Comparison, Dim, dims_of
from hloom.ir.source import current_source


class RunningTrace(Protocol):
    """The interface of a running trace (`hloom.tracing.trace`).

    kind: the transformation that messages name. assumptions: about sizes, by text; None if it keeps none. captures:
    (the tracer of a surrounding trace, the parameter that represents it here). used_keys: consumed random keys, and
    their consumers.
    """

    name: str
    kind: str
    assumptions: dict[str, Assumption] | None
    captures: dict[int, tuple[Any, Instruction]]
    used_keys: dict


class _Traces(threading.local):
    """The traces that run in this thread, the innermost last."""

    def __init__(self):
        self.active: list[RunningTrace | None] = []  # None: operations in between run eagerly
        self.axes: tuple[tuple[object, int], ...] = ()  # (name, size) of the named axes, the innermost last
        # Of `hloom.tracing.exact`: whether results of nested functions bring their twins, and whether an enclosing
        # trace starts again with them when one is missing.
        self.twins = False
        self.can_restart = False
        # Counter for the names of computed sizes; None if the traced code may not compute any.
        self.counts: Iterator[int] | None = None


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
def computed_sizes():
    """Within it, a function that is traced for itself may compute sizes (`hloom.dispatch.counted_sizes`)."""
    before = TRACES.counts
    if not TRACES.active or TRACES.active[-1] is None:
        TRACES.counts = itertools.count()
    try:
        yield
    finally:
        TRACES.counts = before


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
                pass  # its memory is freed before the next line runs
            TRACES.twins = True
            return function(*args, **kwargs)
        finally:
            TRACES.can_restart = TRACES.twins = False

    return call


def brings_twins() -> bool:
    """Whether the current trace includes the twins of its results: it is not nested, or nested functions include
    theirs."""
    return TRACES.twins or not any(TRACES.active)


def require_twins() -> bool:
    """Whether nested functions include twins. Raises NeedsTwins if the trace can restart with them."""
    if not TRACES.twins and TRACES.can_restart:
        raise NeedsTwins
    return TRACES.twins


def bringing_twins(function):
    """The function, whose nested functions include twins if it is called eagerly, without a trace to restart."""

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


def used_arguments(trace: RunningTrace, parameters) -> tuple[int, ...]:
    """The indices of the arguments whose random keys are consumed. Keys of a surrounding trace are consumed there."""
    for tracer, parameter in trace.captures.values():
        if parameter in trace.used_keys:
            tracer.trace.used_keys.setdefault(tracer.instruction, trace.used_keys[parameter])
    return tuple(k for k, parameter in enumerate(parameters) if parameter in trace.used_keys)


# --- hl.assume ---


def assume(comparison: Comparison | bool) -> None:
    """Declares that a comparison of sizes holds, from here on in the traced function: `hl.assume(n % 2 == 0)`.

    Decisions that it settles are then not errors, and each call checks it: a ShapeError for sizes that violate it. For
    fixed sizes it is checked immediately. Raises ShapeError if it holds for no sizes, ArgumentError for anything but a
    comparison of sizes, and outside a traced function.

    >>> @hl.jit(dims={"x": ("n",)})
    ... def halves(x):
    ...     hl.assume(x.shape[0] % 2 == 0)
    ...     return x.reshape(2, -1)
    >>> halves(hnp.arange(6)).shape
    (2, 3)
    """
    if isinstance(comparison, np.bool_):
        comparison = bool(comparison)
    if comparison is False:
        raise ShapeError(
            "hl.assume(...)", "it does not hold for these sizes, or for none within their bounds",
            "pass arrays of other sizes, or correct the bounds of the Dim",
        )  # fmt: skip
    if comparison is not True and not isinstance(comparison, Comparison):
        raise ArgumentError(
            "hl.assume(...)", f"{type(comparison).__name__} {comparison!r:.60} is not a comparison of sizes",
            "compare sizes, which are known when a program is called: hl.assume(x.shape[0] % 2 == 0)",
        )  # fmt: skip
    if isinstance(comparison, Comparison):
        if not any(TRACES.active):
            (name, dim), *_ = _dims(comparison).items()
            raise ArgumentError(
                f"hl.assume({comparison!r})", "no function is traced here, so no call would check it",
                f"state it in the function, or in {name} itself: {dim.declaration()[:-1]}, multiple_of=8)",
            )  # fmt: skip
        adopt(Assumption(comparison, current_source()))


def adopt(*assumptions: Assumption) -> None:
    """Records assumptions in all active traces, and relies on them from here on. Raises ArgumentError
    within the program of a session."""
    for one in assumptions:
        for trace in TRACES.active:
            if trace is not None and trace.assumptions is None:
                raise ArgumentError(
                    f"hl.assume({one}) within {trace.kind} '{trace.name}'", "programs of sessions keep no assumptions",
                    "state it for the placeholder's size: hl.Dim('n', multiple_of=8)", one.source,
                )  # fmt: skip
        for trace in TRACES.active:
            if trace is not None and trace.assumptions is not None:
                trace.assumptions.setdefault(str(one), one)
        sizes.assume(one.comparison)


def assumptions_of(trace: RunningTrace, computation: Computation) -> tuple[Assumption, ...]:
    """Those of a trace that has ended. Raises ArgumentError if no call tells the size of a dimension in one."""
    found = tuple((trace.assumptions or {}).values())
    if found and not any(TRACES.active):
        told = {name for p in computation.parameters for size in p.shape.dims for name in dims_of(size)}
        for one in found:
            for name in _dims(one.comparison):
                if name not in told:
                    raise ArgumentError(
                        f"hl.assume({one}) in '{trace.name}'", f"no argument has the dimension {name}",
                        "compare sizes of arguments: x.shape[0]", one.source,
                    )  # fmt: skip
    return found


def _dims(comparison: Comparison) -> dict[str, Dim]:
    return {**dims_of(comparison.left), **dims_of(comparison.right)}
