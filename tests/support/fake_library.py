"""A library of NVIDIA's without a GPU: functions behind the C calling convention, handles, and failures on request.

What a function gets goes through the conversions of ctypes, by the types that the library's header has. `inject(n,
status)` makes the n-th call from now on fail. What the library forbids is noted in `violations`; `leaks()` lists what
was made and not destroyed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field


class Refused(Exception):
    """A call fails with a status. why: what was wrong, where that is a mistake of the caller's."""

    def __init__(self, status: int, why: str = ""):
        self.status, self.why = status, why


@dataclass
class Thing:
    kind: str
    facts: dict = field(default_factory=dict)


class FakeLibrary:
    """driver: the fake driver whose memory it works in. enqueued: what it notes of work that it was given."""

    INVALID_VALUE = INTERNAL_ERROR = 7

    def __init__(self, driver):
        self.driver = driver
        self.things: dict[int, Thing] = {}
        self.calls: list[str] = []
        self.enqueued: list[dict] = []
        self.violations: list[str] = []
        self.failures: dict[int, int] = {}
        self._next = 0x5000

    def inject(self, number: int, status: int) -> None:
        self.failures[len(self.calls) + number] = status

    def leaks(self) -> list[str]:
        return [f"{thing.kind} {handle:#x}" for handle, thing in self.things.items()]

    def define(self, name: str, types: tuple, function: Callable, status: bool = True) -> None:
        """Makes a Python function a C function: types of its result and of its parameters. status: whether it returns
        one; then it raises Refused where it fails."""
        setattr(self, name, ctypes.CFUNCTYPE(*types)(self._entry(name, function) if status else function))

    def _entry(self, name: str, function: Callable):
        def entry(*arguments):
            self.calls.append(name)
            status = self.failures.get(len(self.calls) - 1)
            if status is not None:
                return status
            try:
                function(*arguments)
            except Refused as refused:
                if refused.why:
                    self.violations.append(f"{name}: {refused.why}")
                return refused.status
            except BaseException as error:  # nothing may leave a function that C calls
                self.violations.append(f"{name}: {error!r}")
                return self.INTERNAL_ERROR
            return 0

        return entry

    def make(self, out, kind: str, **facts) -> None:
        self._next += 16
        self.things[self._next] = Thing(kind, facts)
        out[0] = self._next

    def facts(self, handle: int, kind: str) -> dict:
        found = self.things.get(handle)
        if found is None or found.kind != kind:
            raise Refused(self.INVALID_VALUE, f"{handle} is no {kind}")
        return found.facts

    def destroy(self, handle: int, kind: str) -> None:
        self.facts(handle, kind)
        del self.things[handle]
