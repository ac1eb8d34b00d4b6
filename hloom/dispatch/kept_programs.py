"""The traced and compiled programs of all functions, bounded by `hl.config.program_memory`.

A function that keeps being called with new shapes gets a program for each. When the programs of a process exceed the
bound, the least recently used ones are evicted, and recompiled when they are called again.

Calls on the fast path do not record that a program is used. So use is detected as in the clock algorithm: the oldest
program first loses its fast path rather than its slot, and is evicted only if it is not called before it is the oldest
again.
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict, deque
from typing import Any, Protocol

import numpy as np

from hloom.config import config
from hloom.ir.module import Computation
from hloom.ir.process import forking, memory

FEWEST = 64  # programs that are kept whatever their size: a program and its neighbours should not replace each other
LEFT = 0.875  # of the bound, once programs have gone: they go in groups
# Measured bytes: per program, and per traced instruction (with everything compiled from it).
_PROGRAM_BYTES, _INSTRUCTION_BYTES = 10_000, 2_000


class Owner(Protocol):
    """A function that has programs."""

    def slow_down(self, kept: KeptProgram) -> None:
        """Removes a program's fast path, so that its next call is recorded."""

    def forget(self, kept: KeptProgram) -> None:
        """Lets a program go."""


class KeptProgram:
    """One version of a function. used: whether it was called since it was last the oldest one. fast_key: under which
    the function finds it the quickest way; None if it does not."""

    __slots__ = ("fast_key", "function", "key", "nbytes", "used")

    def __init__(self, function: weakref.ref[Owner], key: Any):
        self.function, self.key = function, key
        self.nbytes, self.used = 0, True
        self.fast_key: tuple | None = None


class _KeptPrograms:
    """All of them, the oldest first."""

    def __init__(self) -> None:
        self._lock = forking.rlock()
        self._order: OrderedDict[int, KeptProgram] = OrderedDict()
        self._nbytes = 0
        self._ended: deque[list[KeptProgram]] = deque()

    def add(self, kept: KeptProgram, nbytes: int) -> None:
        """A program that is new, or has become larger: traced first, compiled then."""
        with self._lock:
            self._remove_ended()
            self._order[id(kept)] = kept
            self._nbytes += nbytes
            kept.nbytes += nbytes
            bound = config.program_memory
            if bound and self._nbytes > bound and len(self._order) > FEWEST:
                self._shrink(LEFT * bound)

    def end(self, programs: list[KeptProgram]) -> None:
        """Programs whose function is gone. Destructors call it, at any time: it waits for nothing."""
        self._ended.append(programs)

    def remove(self, programs: list[KeptProgram]) -> None:
        """Programs that their function has forgotten."""
        with self._lock:
            for kept in programs:
                if self._order.pop(id(kept), None) is not None:
                    self._nbytes -= kept.nbytes

    @property
    def statistics(self) -> tuple[int, int]:
        """The number of programs, and the estimate of their bytes."""
        with self._lock:
            self._remove_ended()
            return len(self._order), self._nbytes

    def _remove_ended(self) -> None:
        while self._ended:
            self.remove(self._ended.popleft())

    def _shrink(self, goal: float) -> None:
        gone = 0
        while self._nbytes > goal and len(self._order) > FEWEST:
            number, kept = self._order.popitem(last=False)
            function = kept.function()
            if function is not None and kept.used:
                kept.used = False
                function.slow_down(kept)
                self._order[number] = kept
                continue
            self._nbytes -= kept.nbytes
            gone += 1
            if function is not None:
                function.forget(kept)
        if config.debug >= 1:
            print(f"hloom: {gone} programs that were not used lately are freed (hl.config.program_memory)",
                  file=sys.stderr)  # fmt: skip
        memory.release()


kept_programs = _KeptPrograms()


def traced_bytes(computation: Computation) -> int:
    """An estimate of the memory of a traced computation and its compiled form, without the arrays of calls."""
    total, seen, waiting = _PROGRAM_BYTES, {id(computation)}, [computation]
    while waiting:
        for instruction in waiting.pop().instructions:
            total += _INSTRUCTION_BYTES
            for value in instruction.attributes.values():
                if isinstance(value, np.ndarray):
                    total += value.nbytes
            for called in instruction.called():
                if id(called) not in seen:
                    seen.add(id(called))
                    waiting.append(called)
    return total
