"""Background compilation: the call that needs a kernel runs already, with a fallback kernel.

    compile_async(kernel, install)     calls install(kernel) once the kernel is compiled
    wait()                             returns when nothing is left to compile

One thread compiles and ends when nothing is left. A program that exits waits at most for the kernel that is being
compiled.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from hloom.backends.cpu.driver import Kernel, load_kernel_unlocked
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu.machine import host_name
from hloom.config import config
from hloom.ir.process import forking

DELAY = 0.02  # seconds for which the call with the fallback has the processor for itself

_lock = forking.lock()
_waiting: deque[tuple[KernelSource, str, Callable[[Kernel], None]]] = deque()
_thread: threading.Thread | None = None


def compile_async(kernel: KernelSource, install: Callable[[Kernel], None]) -> None:
    """Compiles a kernel for the processor of now in another thread, which then calls `install` with it."""
    with _lock:
        _waiting.append((kernel, host_name(), install))
    _start()


def wait() -> None:
    """Returns when all kernels are compiled."""
    while (thread := _thread) is not None:
        thread.join()


def _start() -> None:
    global _thread
    with _lock:
        if _waiting and _thread is None:
            _thread = threading.Thread(target=_work, name="hloom-background-compilation")
            try:
                _thread.start()
            except RuntimeError:  # no more threads, or the interpreter is ending: the fallbacks stay
                _thread = None
                _waiting.clear()


def _work() -> None:
    time.sleep(DELAY)
    while (task := _next()) is not None:
        kernel, cpu, install = task
        started = time.perf_counter()
        try:
            install(load_kernel_unlocked(kernel, cpu))
        except Exception:  # reported as any thread's; the fallback stays
            threading.excepthook(threading.ExceptHookArgs([*sys.exc_info(), threading.current_thread()]))
            continue
        if config.debug >= 1:
            passed = (time.perf_counter() - started) * 1e3
            print(f"hloom: compiled {kernel.name} in the background, {passed:.1f} ms", file=sys.stderr)


def _next() -> tuple[KernelSource, str, Callable[[Kernel], None]] | None:
    global _thread
    with _lock:
        if _waiting and threading.main_thread().is_alive():
            return _waiting.popleft()
        _thread = None
        return None


def _forget() -> None:
    """In a forked child, which lacks the thread: the kernel it was compiling keeps its fallback, the rest is
    compiled."""
    global _thread
    _thread = None
    _start()


forking.on_fork(child=_forget)
