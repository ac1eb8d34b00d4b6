"""The preload: while a program prepares its inputs, a thread imports what its first call of a jitted function needs:
the modules of the compiler and the runtime's driver.

The thread ends after that. A program that exits or forks earlier waits for it.
"""

from __future__ import annotations

import contextlib
import threading

from hloom.ir.process import forking

_thread = threading.Thread(target=lambda: _prepare(), name="hloom-preload")  # it is defined below


def start() -> None:
    """Called once, at the end of hloom's import."""
    # RuntimeError: no more threads, or the interpreter is shutting down. The first call imports the modules then.
    with contextlib.suppress(RuntimeError):
        _thread.start()


def finish() -> None:
    """Waits for the end of the preload: before another thread imports many of the same modules, in another order.
    Python would find that each waits for what the other imports."""
    if _thread.is_alive() and threading.current_thread() is not _thread:
        _thread.join()


def _prepare() -> None:
    # Imports are in this function, as the thread is there to make them. Any error is raised again by the first call.
    with contextlib.suppress(Exception):
        with forking.no_fork():  # a child would find the locks of half-imported modules taken
            # This thread exists for these imports.
            from hloom.backends.cpu import driver
            from hloom.backends.cpu.kind import CpuKind
            from hloom.compiler.targets.cpu.interface import fingerprint
            from hloom.compiler.targets.cpu.target import host_target
            from hloom.platforms.kinds import load_backend

            load_backend(CpuKind.backend_name)
            host_target()
            fingerprint()
        driver.driver()
