"""Processes that end with the process that started them, however that ends."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """The kernel sends this process a signal when the thread that started it ends (Linux: prctl(2)). A process whose
    parent may have ended before the call looks at `os.getppid()` after it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number))
