"""Kernels that are compiled behind: the call that asked for them runs already, with kernels that stand in for them.

    compile_behind(kernel, install)     install(address) once the kernel is there
    wait()                              until nothing is left to compile

One thread does it, which ends when nothing is left. A program that ends does not wait for more than the kernel that is
being compiled, nor does one that forks.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.config import config

LATER = 0.02  # seconds that the call with the stand-in has for itself

_lock = threading.Lock()
_waiting: deque[tuple[KernelSource, Callable[[int], None]]] = deque()
_thread: threading.Thread | None = None
_forking = False


def compile_behind(kernel: KernelSource, install: Callable[[int], None]) -> None:
    """Compiles the kernel in another thread, which then calls `install` with its address."""
    with _lock:
        _waiting.append((kernel, install))
    _start()


def wait() -> None:
    """Returns when all kernels that were asked for are there."""
    while (thread := _thread) is not None:
        thread.join()


def _start() -> None:
    global _thread
    with _lock:
        if _waiting and _thread is None and not _forking:
            _thread = threading.Thread(target=_work, name="hloom-behind")
            try:
                _thread.start()
            except RuntimeError:  # no more threads, or the interpreter is ending: what stands in goes on
                _thread = None
                _waiting.clear()


def _work() -> None:
    from hloom.backends.cpu.driver import load_kernel_aside

    time.sleep(LATER)
    while (task := _next()) is not None:
        kernel, install = task
        started = time.perf_counter()
        try:
            install(load_kernel_aside(kernel))
        except Exception:  # told as any thread's; what stands in goes on
            threading.excepthook(threading.ExceptHookArgs([*sys.exc_info(), threading.current_thread()]))
            continue
        if config.debug >= 1:
            passed = (time.perf_counter() - started) * 1e3
            print(f"hloom: compiled {kernel.name} behind, {passed:.1f} ms", file=sys.stderr)


def _next() -> tuple[KernelSource, Callable[[int], None]] | None:
    global _thread
    with _lock:
        if _waiting and not _forking and threading.main_thread().is_alive():
            return _waiting.popleft()
        _thread = None
        return None


def _before_fork() -> None:
    global _forking
    with _lock:
        _forking, thread = True, _thread
    if thread is not None and thread is not threading.current_thread():
        thread.join()  # a child would find LLVM's locks taken


def _after_fork() -> None:
    global _forking
    _forking = False
    _start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
