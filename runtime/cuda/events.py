"""Events: points on streams that the host and other streams wait for."""

from __future__ import annotations


class Handles(list):
    """Handles of idle events. closed: the device was closed, which waits for all of its events and destroys them."""

    closed = False


class Event:
    """A point on a stream. Its handle is reused when nothing refers to it any more.

    calls: how many calls of programs have ended when the event has completed.
    """

    __slots__ = ("_idle", "calls", "handle")

    def __init__(self, handle, idle: Handles):
        self.handle, self._idle, self.calls = handle, idle, 0

    @property
    def is_over(self) -> bool:
        """Whether it completed because its device was closed; the handle is destroyed then."""
        return self._idle.closed

    def __del__(self):
        self._idle.append(self.handle)
