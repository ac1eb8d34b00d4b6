"""Processor time of calls, for tests that compare how cost grows."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np


def least_seconds(function: Callable, *arguments, calls: int = 7) -> float:
    """Processor seconds of the fastest of some calls, after one that compiles."""
    np.asarray(function(*arguments))
    found = []
    for _ in range(calls):
        start = time.process_time()
        np.asarray(function(*arguments))
        found.append(time.process_time() - start)
    return min(found)
