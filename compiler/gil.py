"""The GIL switch interval."""

from __future__ import annotations

import sys

from hloom.ir.process import forking


class _FastSwitching:
    """Lets threads that often release the GIL reacquire it quickly within a block.

    LLVM makes twenty calls per kernel. With Python's default of 5 ms a thread waits that long after each of them while
    another one computes, and nothing overlaps. Imports do not benefit.
    """

    def __init__(self):
        self.lock = forking.lock()
        self.users = 0
        self.usual = 0.0

    def __enter__(self):
        with self.lock:
            if self.users == 0:
                self.usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self.usual, 1e-4))
            self.users += 1

    def __exit__(self, *exception):
        with self.lock:
            self.users -= 1
            if self.users == 0:
                sys.setswitchinterval(self.usual)

    def forget(self) -> None:
        """In a forked child, which is in no block."""
        if self.users:
            self.users = 0
            sys.setswitchinterval(self.usual)


fast_switching = _FastSwitching()
forking.on_fork(child=fast_switching.forget)
