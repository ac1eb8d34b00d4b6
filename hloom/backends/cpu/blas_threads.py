"""Threads of BLAS libraries while a program calls them: one for most matrices, `hl.config.num_threads` for large ones.

    with limited(work, threads): ...     work: multiplications, roughly

NumPy's and SciPy's wheels bring an OpenBLAS each, with as many threads as there are cores. They busy-wait in
competition with the driver's threads, so a decomposition of a few milliseconds can take ten times as long. The thread
count is process-wide: it is set while a program is inside the library, and restored when none is.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from hloom.ir.process import forking

THREADED = 1 << 30  # multiplications from which several threads gain more than they cost


class _Limit:
    """The settings while programs are inside a library."""

    def __init__(self) -> None:
        self._lock = forking.lock()
        self._inside = 0
        self._before: list[tuple[Any, int]] = []  # libraries and their threads when the first program came
        self._known: tuple[int, list] = 0, []
        forking.on_fork(child=self._restore)

    def _libraries(self) -> list:
        """The BLAS libraries of this process. They are looked for again when modules with another may be there."""
        count = sum(name in sys.modules for name in ("numpy", "scipy.linalg", "scipy.linalg.lapack"))
        if self._known[0] != count:
            # 10 ms that only programs with linear algebra need.
            from threadpoolctl import ThreadpoolController

            self._known = count, ThreadpoolController().select(user_api="blas").lib_controllers
        return self._known[1]

    def enter(self, threads: int) -> None:
        with self._lock:
            libraries = self._libraries()
            known = [library for library, _ in self._before]
            self._before += [(library, library.get_num_threads()) for library in libraries if library not in known]
            self._inside += 1
            for library in libraries:
                _set(library, threads)

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._restore()

    def _restore(self) -> None:
        """Also in a forked child, where no other thread is inside."""
        self._inside = 0
        before, self._before = self._before, []
        for library, threads in before:
            _set(library, threads)


def _set(library: Any, threads: int) -> None:
    """threadpoolctl from 3.7 on lets one thread set the number for OpenBLAS, and ignores the others. Here
    the lock and the count of who is inside keep threads apart."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(threads)


_limit = _Limit()


@contextlib.contextmanager
def limited(work: float, threads: int) -> Iterator[None]:
    """BLAS has one thread in this block, or `threads` where `work` is enough for them."""
    _limit.enter(threads if work >= THREADED else 1)
    try:
        yield
    finally:
        _limit.leave()
