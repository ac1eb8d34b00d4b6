"""Atomic file writes, and cleanup after killed writers.

    with whole_file(path) as partial: ...        write to `partial`; it becomes `path` when the block ends without error
    write_whole(path, data, mode=0o644)
    Partial(path)                                the same for writers that remain open: `commit()` or `discard()`
    with temporary_folder(prefix) as folder: ... a folder that is removed at the block's end

A partial file is `.NAME.RANDOM.part`, next to the file. Its writer holds a lock on it (flock), which the system
releases when the process ends for any reason. The next writer of the same name, on any host or after a restart, can
therefore detect and remove abandoned partial files. Temporary folders are handled likewise.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing is removed there
    fcntl = None  # type: ignore[assignment]

__all__ = ["Partial", "is_unicode", "temporary_folder", "whole_file", "write_whole"]

_SUFFIX = ".part"
_LONGEST = 200  # bytes of a name that are used: file systems allow 255
_TRIES = 16
_YOUNG = 60.0  # seconds: a younger folder may not have its lock yet


class Partial:
    """A file that is being written, at `path`, and becomes `target` by `commit()`. Raises OSError.

    mode: its permissions, before the umask.
    """

    def __init__(self, target: str | os.PathLike, mode: int = 0o666):
        self.target = Path(target)
        _remove_abandoned(self.target)
        for _ in range(_TRIES):
            self.path = self.target.with_name(f"{_prefix(self.target)}{secrets.token_hex(6)}{_SUFFIX}")
            self._lock = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
            if _locked(self._lock) and _is_at(self._lock, self.path):
                return
            os.close(self._lock)  # another process considered it abandoned in the meantime
        raise OSError(f"{self.path} is removed by another process")

    def commit(self) -> None:
        """Renames the file to its target, replacing any existing one."""
        try:
            os.replace(self.path, self.target)
        finally:
            self.discard()

    def discard(self) -> None:
        """Removes the file, unless it has been committed."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            self.path.unlink(missing_ok=True)
            os.close(lock)


@contextlib.contextmanager
def whole_file(target: str | os.PathLike, mode: int = 0o666) -> Iterator[Path]:
    """A path to write to, which is renamed to the target on success. Raises OSError."""
    partial = Partial(target, mode)
    try:
        yield partial.path
        partial.commit()
    finally:
        partial.discard()


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded: Python strings may contain lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def write_whole(target: str | os.PathLike, data: bytes, mode: int = 0o666) -> None:
    """Writes a file atomically. Raises OSError."""
    with whole_file(target, mode) as partial:
        partial.write_bytes(data)


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A folder for this process only, removed at the end; folders of the prefix left by this user's killed processes
    are removed first. Raises OSError."""
    _remove_abandoned_folders(Path(tempfile.gettempdir()), prefix)
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        lock = os.open(folder, os.O_RDONLY) if fcntl is not None else -1
        try:
            if lock >= 0:
                _locked(lock)
            yield Path(folder)
        finally:
            if lock >= 0:
                os.close(lock)


def _remove_abandoned_folders(parent: Path, prefix: str) -> None:
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        for name in [name for name in os.listdir(parent) if name.startswith(prefix)]:
            with contextlib.suppress(OSError):
                folder = os.open(parent / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
                try:
                    status = os.fstat(folder)
                    old = time.time() - status.st_mtime > _YOUNG
                    if status.st_uid == os.geteuid() and old and _locked(folder):
                        shutil.rmtree(parent / name, ignore_errors=True)
                finally:
                    os.close(folder)


def _remove_abandoned(target: Path) -> None:
    """Removes partial files of this name whose writers have ended."""
    if fcntl is None:
        return
    prefix = _prefix(target)
    with contextlib.suppress(OSError):
        found = [name for name in os.listdir(target.parent) if name.startswith(prefix) and name.endswith(_SUFFIX)]
        for name in found:
            with contextlib.suppress(OSError):
                _remove_unlocked(target.parent / name)


def _remove_unlocked(path: Path) -> None:
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        if _locked(file) and _is_at(file, path):
            os.unlink(path)
    finally:
        os.close(file)


def _locked(file: int) -> bool:
    """Whether this process now holds the lock. True on a file system without locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except OSError:
        return False


def _prefix(target: Path) -> str:
    name = os.fsencode(target.name)
    return "." + os.fsdecode(name[:_LONGEST]) + "."
