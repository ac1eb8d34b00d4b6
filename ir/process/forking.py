"""Fork safety of locks and helper threads, for all of hloom.

    lock(), rlock()                               locks that are free in a forked child
    with no_fork():                               a fork by another thread waits until the block ends
    on_fork(before=None, parent=None, child=None) functions to call before a fork, and after it in parent and child

A forked child contains only the thread that forked. A lock held by another thread stays locked, and data that it was
modifying stays inconsistent. Therefore:

- Data guarded by a `lock()` is modified by single assignments, so that it is valid whenever another thread forks.
- Libraries with internal state that are not fork-safe (LLVM, Numba, modules during import) are used under `no_fork()`.
- A helper thread's owner discards it in the child, and starts another one when needed.

`multiprocessing` (method "fork"), pools of workers and data loaders fork in the middle of programs.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable

from hloom.ir.process.living import Living

__all__ = ["lock", "no_fork", "on_fork", "rlock"]

# Seconds that a fork waits for other threads: more than any kernel takes to compile. Beyond this something hangs
# already, and a hanging fork would be worse.
PATIENCE = 60.0

Hook = Callable[[], None]
_hooks: list[tuple[Hook | None, Hook | None, Hook | None]] = []
_locks: Living = Living()
_changed = threading.Condition(threading.Lock())
_inside: dict[int, int] = {}  # thread: its nesting depth of `no_fork` blocks
_forks = 0  # threads that are about to fork


def lock():
    """A `threading.Lock` that is free in a forked child."""
    made = threading.Lock()
    _locks.add(made)
    return made


def rlock():
    """A `threading.RLock` that is free in a forked child."""
    made = threading.RLock()
    _locks.add(made)
    return made


def on_fork(before: Hook | None = None, parent: Hook | None = None, child: Hook | None = None) -> None:
    """Calls functions around each fork: `before` in reverse order of registration, the others in order."""
    _hooks.append((before, parent, child))


class no_fork:
    """While a thread is in this block, forks by other threads wait. Blocks nest.

    Locks under which other threads enter such a block must be acquired before it, as three threads could deadlock
    otherwise.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        me = threading.get_ident()
        with _changed:
            if me not in _inside:
                _changed.wait_for(lambda: not _forks, PATIENCE)
            _inside[me] = _inside.get(me, 0) + 1

    def __exit__(self, *_) -> None:
        me = threading.get_ident()
        with _changed:
            _inside[me] -= 1
            if not _inside[me]:
                del _inside[me]
                _changed.notify_all()


# Locks of the standard library that a module acquires before a fork and releases after it, once it is imported.
_ACQUIRED_BEFORE = {"logging": "_lock", "concurrent.futures.thread": "_global_shutdown_lock"}


def _before_fork() -> None:
    global _forks
    for before, _, _ in reversed(_hooks):
        if before is not None:
            before()
    me, absent = threading.get_ident(), _ACQUIRED_BEFORE.keys() - sys.modules.keys()
    with _changed:
        _forks += 1
        _changed.wait_for(lambda: _inside.keys() <= {me}, PATIENCE)
    for name in absent & sys.modules.keys():
        # Imported while the fork waited: too late for its acquire hook, but its release hook will run.
        with contextlib.suppress(AttributeError):
            getattr(sys.modules[name], _ACQUIRED_BEFORE[name]).acquire()


def _in_parent() -> None:
    global _forks
    with _changed:
        _forks -= 1
        _changed.notify_all()
    for _, parent, _ in _hooks:
        if parent is not None:
            parent()


def _in_child() -> None:
    global _forks, _changed
    _changed, _forks = threading.Condition(threading.Lock()), 0
    for thread in _inside.keys() - {threading.get_ident()}:
        del _inside[thread]
    for each in _locks:
        if not getattr(each, "_is_owned", bool)():  # the forking thread continues with the locks that it holds
            each._at_fork_reinit()  # as the standard library does for its own locks
    for _, _, child in _hooks:
        if child is not None:
            child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
