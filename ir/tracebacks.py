"""Tracebacks of uncaught errors without hloom's internal frames between the user's line and the error."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from types import TracebackType

from hloom.ir.base_error import HloomError
from hloom.ir.source import is_internal

NOTE = "({} frames of hloom's own are left out; HLOOM_FULL_TRACEBACKS=1 shows them)"


def _frames(trace: TracebackType | None) -> list[TracebackType]:
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames


def shortened(error: BaseException) -> int:
    """Removes hloom's frames from the traceback of an error and its causes; returns their number.

    A foreign error raised in hloom's code keeps its frames, as does an error without user frames.
    """
    removed = 0
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        found = waiting.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        waiting += [found.__cause__, found.__context__]
        frames = _frames(found.__traceback__)
        kept = [frame for frame in frames if not is_internal(frame.tb_frame.f_code.co_filename)]
        if not kept or not (isinstance(found, HloomError) or kept[-1] is frames[-1]):
            continue
        removed += len(frames) - len(kept)
        following: TracebackType | None = None
        for frame in reversed(kept):
            following = TracebackType(following, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
        found.__traceback__ = following
    return removed


def install(full: Callable[[], bool]) -> None:
    """Shortens the tracebacks that Python and IPython print for uncaught errors, unless `full()`. Caught errors are
    unchanged."""
    previous = sys.excepthook

    def hook(kind, error, trace):
        if error is not None and not full():
            removed = shortened(error)
            if removed:
                error.add_note(NOTE.format(removed))
            trace = error.__traceback__
        previous(kind, error, trace)

    sys.excepthook = hook
    shell = getattr(builtins, "get_ipython", lambda: None)()
    if shell is not None:

        def show(shell, kind, error, trace, tb_offset=None):
            if not full():
                shortened(error)
            shell.showtraceback((kind, error, error.__traceback__), tb_offset=tb_offset)

        shell.set_custom_exc((HloomError,), show)


__all__ = ["install", "shortened"]
