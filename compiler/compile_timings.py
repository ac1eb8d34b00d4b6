"""Compile-time statistics.

    with collecting() as stages:            for compilations of this thread
        with stage("source"): ...           adds seconds under that name, from any file
    stages.seconds                          {"source": 0.002}
    stages.counts                           {"kernels compiled": 1}

A worker thread enters the statistics that it is given: `with collecting(stages)`.
"""

from __future__ import annotations

import contextlib
import threading
import time


class Stages:
    """Seconds and counts by name. Thread-safe."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, name: str, seconds: float) -> None:
        with self._lock:
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def count(self, name: str, more: int = 1) -> None:
        with self._lock:
            self.counts[name] = self.counts.get(name, 0) + more


_local = threading.local()


def current() -> Stages | None:
    """The statistics of this thread, or None."""
    return getattr(_local, "stages", None)


@contextlib.contextmanager
def collecting(stages: Stages | None = None):
    """Within the block, this thread adds to `stages` (by default, a new object)."""
    before = current()
    _local.stages = stages = Stages() if stages is None else stages
    try:
        yield stages
    finally:
        _local.stages = before


@contextlib.contextmanager
def stage(name: str):
    """Times a block, or, as a decorator, a function."""
    started = time.perf_counter()
    try:
        yield
    finally:
        stages = current()
        if stages is not None:
            stages.add(name, time.perf_counter() - started)


def count(name: str, more: int = 1) -> None:
    stages = current()
    if stages is not None:
        stages.count(name, more)
