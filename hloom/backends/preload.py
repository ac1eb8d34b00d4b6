"""What the first call of a jitted function needs, brought into the process by a thread of its own while the program
that imported hloom makes its inputs: the modules of the compiler and the runtime's driver, 60 ms.

The thread ends with that. A program that ends earlier waits for it, and one that forks does before.
"""

from __future__ import annotations

import contextlib
import os
import threading

_thread: threading.Thread | None = None


def start() -> None:
    """Called once, at the end of hloom's import."""
    global _thread
    _thread = threading.Thread(target=_prepare, name="hloom-ahead")
    with contextlib.suppress(RuntimeError):  # no more threads, or the interpreter is ending: the first call does it
        _thread.start()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_finish)  # a child would find the locks of half-imported modules taken


def _prepare() -> None:
    # Whatever is wrong (a setting, a missing package) is raised where it is asked for, by the first call.
    with contextlib.suppress(Exception):
        from hloom.backends.cpu import driver
        from hloom.compiler.targets.cpu.interface import fingerprint
        from hloom.compiler.targets.cpu.target import host_target
        from hloom.platforms.kinds import device_kind

        assert device_kind("cpu").backend
        host_target()
        driver.driver()
        fingerprint()


def _finish() -> None:
    if _thread is not None and _thread.is_alive() and _thread is not threading.current_thread():
        _thread.join()
