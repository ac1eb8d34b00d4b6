"""The preload: while a program prepares its inputs, a thread imports what its first call of a jitted function needs:
the modules of the compiler and the runtime's driver.

The thread ends after that. A program that exits earlier waits for it; a program that forks waits before it forks.
"""

from __future__ import annotations

import contextlib
import os
import threading

_thread: threading.Thread | None = None


def start() -> None:
    """Called once, at the end of hloom's import."""
    global _thread
    _thread = threading.Thread(target=_prepare, name="hloom-preload")
    with contextlib.suppress(RuntimeError):  # no more threads, or the interpreter exits: the first call imports them
        _thread.start()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_finish)  # a child would find the locks of half-imported modules taken


def _prepare() -> None:
    # Imports are in this function, as the thread is there to make them. Any error is raised again by the first call.
    with contextlib.suppress(Exception):
        # These imports are what this thread is for.
        from hloom.backends.cpu import driver
        from hloom.backends.cpu.kind import CpuKind
        from hloom.compiler.targets.cpu.interface import fingerprint
        from hloom.compiler.targets.cpu.target import host_target
        from hloom.platforms.kinds import load_backend

        load_backend(CpuKind.backend_name)
        host_target()
        driver.driver()
        fingerprint()


def _finish() -> None:
    if _thread is not None and _thread.is_alive() and _thread is not threading.current_thread():
        _thread.join()
