"""How quickly threads hand Python's global lock to each other."""

from __future__ import annotations

import sys

from hloom.ir.process import forking


class _FastSwitching:
    """Lets a thread that is often out of Python have the GIL back quickly, as long as a block runs.

    LLVM makes twenty calls for each kernel. With Python's usual 5 ms a thread waits that long after each of them while
    another one computes, and nothing overlaps. Imports do not profit.
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
        """In a forked child, where no block runs."""
        if self.users:
            self.users = 0
            sys.setswitchinterval(self.usual)


fast_switching = _FastSwitching()
forking.on_fork(child=fast_switching.forget)
