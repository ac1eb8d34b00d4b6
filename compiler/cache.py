"""Compiled things on disk, so that the next process starts warm.

    cache = Cache(folder=None, limit=1 << 30)     folder None: default_folder()
    cache.get(key) -> bytes | None
    cache.put(key, data)
    cache.put_first(key, data) -> bytes | None     what is kept: another process may have been first
    default_cache() -> Cache                       the one of this process
    use_folder(folder)                             another place for it

One file for each key. Several processes may read and write at once: a file appears whole (written aside, then renamed)
or not at all. An entry that does not match its checksum is removed, reported once and compiled anew. A folder that
cannot be written costs one warning and nothing else. When the files outgrow `limit` bytes, those used longest ago go:
they are measured once an hour, and by each process that has written a sixteenth of the limit.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import struct
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

_HEADER = struct.Struct("<8sQ32s")  # magic, length of the data, sha256 of the data
_MAGIC = b"hloom\x00\x00\x01"
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_SUFFIX = ".bin"
_MEASURED = ".measured"  # the file whose time is that of the last look at all files
# Seconds between such looks of processes that write little: one at 42,000 files took 0.3 s of a first call.
_INTERVAL = 3600.0


_chosen: str | None = None


class CacheWarning(UserWarning):
    """The disk cache does less than it should; results are right all the same."""


def default_folder() -> Path | None:
    """What `use_folder` named, else HLOOM_CACHE_DIR (empty: None, no disk cache), else the platform's place."""
    chosen = os.environ.get("HLOOM_CACHE_DIR") if _chosen is None else _chosen
    if chosen is not None:
        return Path(chosen).expanduser() if chosen.strip() else None
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "hloom"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "hloom" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hloom"


class Cache:
    """A bounded store of bytes by key, in memory and (with a folder) on disk. Safe for threads and processes.

    folder: None keeps entries in memory only. limit: bytes on disk before pruning.
    hits, misses: how often `get` found something, in memory or on disk, and how often not.
    """

    def __init__(self, folder: str | os.PathLike | None, limit: int = 1 << 30):
        self.folder = Path(folder) if folder is not None else None
        self.limit = limit
        self.hits = 0
        self.misses = 0
        self._memory: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._warned: set[str] = set()
        self._writable = True
        self._unmeasured = 0  # bytes written since the folder was last measured; prunes early in a long process
        self._asked = False  # whether it is time to measure the folder

    def get(self, key: str) -> bytes | None:
        """The data under `key`, or None."""
        with self._lock:
            data = self._memory.get(key)
            if data is None:
                data = self._read(key)
                if data is not None:
                    self._memory[key] = data
            if data is None:
                self.misses += 1
            else:
                self.hits += 1
            return data

    def put(self, key: str, data: bytes) -> None:
        """Keep `data` under `key`."""
        with self._lock:
            self._memory[key] = bytes(data)
            if self.folder is None or not self._writable:
                return
            try:
                self._write(self._path(key), bytes(data))
            except OSError as error:
                self._no_writing(error)
                return
            self._count(data)

    def put_first(self, key: str, data: bytes) -> bytes | None:
        """Keep `data` under `key` on disk unless there is something, and return what is there: all processes get the
        same. None where nothing can be kept on disk."""
        with self._lock:
            if self.folder is None or not self._writable:
                return None
            path = self._path(key)
            try:
                self._write(path, bytes(data), first=True)
                self._count(data)
            except FileExistsError:
                pass
            except OSError as error:
                self._no_writing(error)
                return None
            found = self._read(key)
            if found is not None:
                self._memory[key] = found
            return found

    def clear(self) -> None:
        """Forget everything, on disk too."""
        with self._lock:
            self._memory.clear()
            for path in self._files():
                with contextlib.suppress(OSError):
                    path.unlink()

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"a cache key is 1 to 200 letters, digits, '.', '_' or '-', got {key!r}")
        return self.folder / (key + _SUFFIX)

    def _read(self, key: str) -> bytes | None:
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("read", f"cannot read the compilation cache {self.folder} ({error}); going on without")
            return None
        data = _checked(content)
        if data is None:
            self._warn("corrupt", f"entry {path} of the compilation cache is damaged; it is removed and compiled anew")
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # pruning takes the entries that were used longest ago
        return data

    def _count(self, data: bytes) -> None:
        """Notes that an entry was written; from time to time the folder is measured."""
        self._unmeasured += len(data) + _HEADER.size
        if self._unmeasured > self.limit // 16 or (not self._asked and self._is_due()):
            self._prune()
        self._asked = True

    def _is_due(self) -> bool:
        """Whether no process has measured the folder for long."""
        try:
            return not 0 <= time.time() - (self.folder / _MEASURED).stat().st_mtime < _INTERVAL
        except OSError:
            return True

    def _no_writing(self, error: OSError) -> None:
        self._writable = False
        self._warn("write", f"cannot write to the compilation cache {self.folder} ({error}); going on without")

    def _write(self, path: Path, data: bytes, first: bool = False) -> None:
        """first: raises FileExistsError where there is such a file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix=".writing-", dir=self.folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_HEADER.pack(_MAGIC, len(data), hashlib.sha256(data).digest()))
                file.write(data)
            if first and _linked(aside, path):
                os.unlink(aside)
            else:
                os.replace(aside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise

    def _files(self) -> list[Path]:
        if self.folder is None:
            return []
        try:
            return [path for path in self.folder.iterdir() if path.suffix == _SUFFIX]
        except OSError:
            return []

    def _prune(self) -> None:
        """Remove the entries used longest ago until three quarters of the limit are left."""
        self._unmeasured = 0
        with contextlib.suppress(OSError):
            (self.folder / _MEASURED).touch()
        entries = []
        for path in self._files():
            with contextlib.suppress(OSError):  # another process may prune at the same time
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        if total <= self.limit:
            return
        for _, size, path in sorted(entries, key=lambda entry: entry[0]):
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size
            if total <= self.limit * 3 // 4:
                break

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(message, CacheWarning, stacklevel=4)


def _linked(source: str, path: Path) -> bool:
    """Gives a file a second name, which only the first to ask gets: raises FileExistsError. False: there are no such
    names on this file system, and there is no file yet."""
    try:
        os.link(source, path)
    except FileExistsError:
        raise
    except OSError:
        if path.exists():
            raise FileExistsError(path) from None
        return False
    return True


def _checked(content: bytes) -> bytes | None:
    """The data of a file's content, or None where header, length or checksum are wrong."""
    if len(content) < _HEADER.size:
        return None
    magic, length, digest = _HEADER.unpack_from(content)
    data = content[_HEADER.size :]
    if magic != _MAGIC or length != len(data) or hashlib.sha256(data).digest() != digest:
        return None
    return data


@functools.cache
def default_cache() -> Cache:
    """The cache of this process, in `default_folder()` until `use_folder` names another."""
    return Cache(default_folder())


def use_folder(folder: str | None) -> None:
    """From now on compiled things go to another folder; '': to none; None: to `default_folder()`."""
    global _chosen
    _chosen = folder
    default_cache.cache_clear()
