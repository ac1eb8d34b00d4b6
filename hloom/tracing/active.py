"""The traces and named axes that are active in a thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hloom.tracing.trace import Trace


class _Traces(threading.local):
    """The traces that run in this thread, the innermost last."""

    def __init__(self):
        self.active: list[Trace | None] = []  # None: operations in between run eagerly
        self.axes: tuple[tuple[object, int], ...] = ()  # (name, size) of the named axes, the innermost last


TRACES = _Traces()
