"""The disk cache of compiled code, for warm starts of later processes.

    cache = Cache(folder=None, limit=1 << 30)     folder None: default_folder()
    cache.get(key) -> bytes | None
    cache.load(key, decode) -> decode(data), or None
    cache.put(key, data)
    cache.put_first(key, data) -> bytes | None the stored data: another process may have been first
    cache.forget() frees memory: entries are read from disk again
    default_cache() -> Cache                       the one of this process
    use_folder(folder) moves it to another folder

One file per key. Several processes may read and write at the same time: files are written atomically (to a temporary
name, then renamed). The checksum of an entry covers its key and its data, so a damaged or misplaced entry is never
used: it is removed, reported once and recompiled. An unwritable folder only causes one warning. When the files exceed
`limit` bytes, the least recently used are removed; the folder is measured once per hour, and by each process that has
written a sixteenth of the limit.

Entries are machine code that this process executes. Therefore the folder and each entry must belong to the effective
user (or to the superuser) and must not be writable by others; a folder is created with mode 0700, a file with 0600.
Anything else is ignored, with one warning.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import stat
import struct
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hloom.ir.process import forking
from hloom.ir.source import current_source, warn_while_compiling

_HEADER = struct.Struct("<8sQ32s")  # magic, length of the data, sha256 of key and data
_MAGIC = b"hloom\x00\x00\x02"
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_SUFFIX = ".bin"
_MEASURED = ".measured"  # the file whose mtime is the time of the last scan
_WRITING = ".writing"  # the folder of files being written
_ABANDONED = 60.0  # seconds after which a file in it was left by a killed process
# Seconds between such scans by processes that write little: a scan of a large folder delays a first call.
_INTERVAL = 3600.0


T = TypeVar("T")

_chosen: str | None = None


class CacheWarning(UserWarning):
    """The disk cache is degraded; results are correct."""


def default_folder() -> Path | None:
    """The folder set by `use_folder`, else HLOOM_CACHE_DIR (empty: None, no disk cache), else the platform's
    default."""
    chosen = os.environ.get("HLOOM_CACHE_DIR") if _chosen is None else _chosen
    if chosen is not None:
        return Path(chosen).expanduser().absolute() if chosen.strip() else None
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "hloom"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "hloom" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hloom"


class Cache:
    """A bounded store of bytes by key, in memory and (with a folder) on disk. Safe for threads and processes.

    folder: None keeps entries in memory only. limit: bytes on disk before pruning. memory_limit: bytes in memory,
    beyond which the least recently used entries are evicted. hits, misses: numbers of successful and failed calls of
    `get`, in memory or on disk.
    """

    def __init__(self, folder: str | os.PathLike | None, limit: int = 1 << 30, memory_limit: int = 16 << 20):
        self.folder = Path(folder) if folder is not None else None
        self.limit, self.memory_limit = limit, memory_limit
        self.hits = 0
        self.misses = 0
        self._memory: OrderedDict[str, bytes] = OrderedDict()
        self._memory_bytes = 0
        self._lock = forking.lock()
        self._warned: set[str] = set()
        self._writable = True
        self._unmeasured = 0  # bytes written since the folder was last measured; prunes early in a long process
        self._asked = False  # whether it is time to measure the folder
        self._trusted: bool | None = None  # None: not checked yet

    def get(self, key: str) -> bytes | None:
        """The data under `key`, or None."""
        with self._lock:
            data = self._memory.get(key)
            if data is not None:
                self._memory.move_to_end(key)
            else:
                data = self._read(key)
                if data is not None:
                    self._remember(key, data)
            if data is None:
                self.misses += 1
            else:
                self.hits += 1
            return data

    def load(self, key: str, decode: Callable[[bytes], T]) -> T | None:
        """`decode(data)` of the data under `key`, or None. An entry for which `decode` raises is considered damaged and
        removed."""
        data = self.get(key)
        if data is None:
            return None
        try:
            return decode(data)
        except Exception as error:
            self.discard(key, f"is damaged ({type(error).__name__}: {error})")
            return None

    def put(self, key: str, data: bytes) -> None:
        """Keep `data` under `key`."""
        with self._lock:
            self._remember(key, bytes(data))
            if self.folder is None or not self._writable or not self._is_trusted():
                return
            try:
                self._write(key, bytes(data))
            except OSError as error:
                self._no_writing(error)
                return
            self._count(data)

    def put_first(self, key: str, data: bytes) -> bytes | None:
        """Store `data` under `key` on disk unless there is an entry, and return the stored data, which is the same for
        all processes. None if the disk cache cannot be used."""
        with self._lock:
            if self.folder is None or not self._writable or not self._is_trusted():
                return None
            try:
                self._write(key, bytes(data), first=True)
                self._count(data)
            except FileExistsError:
                pass
            except OSError as error:
                self._no_writing(error)
                return None
            found = self._read(key)
            if found is not None:
                self._remember(key, found)
            return found

    def discard(self, key: str, reason: str) -> None:
        """Remove an unusable entry, with one warning: the data of `key` must be recreated."""
        with self._lock:
            self._memory_bytes -= len(self._memory.pop(key, b""))
            if self.folder is not None:
                self._remove_damaged(self._path(key), reason)

    def forget(self) -> None:
        """Free the memory; entries on disk remain. Without a folder nothing is freed, as there is no other copy."""
        with self._lock:
            if self.folder is not None and self._writable and self._is_trusted():
                self._empty()

    def _empty(self) -> None:
        self._memory.clear()
        self._memory_bytes = 0

    def _remember(self, key: str, data: bytes) -> None:
        """Stores an entry in memory, evicting the least recently used ones beyond the limit."""
        self._memory_bytes += len(data) - len(self._memory.pop(key, b""))
        self._memory[key] = data
        while self._memory_bytes > self.memory_limit and len(self._memory) > 1:
            self._memory_bytes -= len(self._memory.popitem(last=False)[1])

    def clear(self) -> None:
        """Forget everything, on disk too."""
        with self._lock:
            self._empty()
            if self._is_trusted():
                for path in self._files():
                    with contextlib.suppress(OSError):
                        path.unlink()
                self._remove_abandoned(0.0)

    @property
    def _disk(self) -> Path:
        assert self.folder is not None  # validated by its users
        return self.folder

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"a cache key is 1 to 200 letters, digits, '.', '_' or '-', got {key!r}")
        return self._disk / (key + _SUFFIX)

    def _read(self, key: str) -> bytes | None:
        if self.folder is None or not self._is_trusted():
            return None
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                fault = _others_may_write(os.fstat(file.fileno()))
                content = b"" if fault else file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("read", f"cannot read the compilation cache {self.folder} ({error}); going on without")
            return None
        if fault:
            self._warn(
                "foreign",
                f"entry {path} of the compilation cache {fault}: it is machine code, so it is not used; remove it",
            )
            return None
        if content[:5] == _MAGIC[:5] and content[: len(_MAGIC)] != _MAGIC:
            return None  # from a version of hloom with another format
        data = _checked(key, content)
        if data is None:
            self._remove_damaged(path, "is damaged or belongs to another key")
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # pruning removes the least recently used entries
        return data

    def _remove_damaged(self, path: Path, reason: str) -> None:
        self._warn("corrupt", f"entry {path} of the compilation cache {reason}; it is removed and compiled anew")
        with contextlib.suppress(OSError):
            path.unlink()

    def _is_trusted(self) -> bool:
        """Whether no other user can put code into the folder. A folder that does not exist yet is trusted. Checked on
        the process's first use of the folder."""
        if self._trusted is None:
            try:
                fault = _others_may_write(os.stat(self._disk))
            except OSError:
                return True
            if fault:
                self._warn(
                    "foreign folder",
                    f"the compilation cache {self.folder} {fault}: others could replace the machine code in it, so it "
                    f"is not used; run `chown {_user()} {self.folder} && chmod go-w {self.folder}`, or name another "
                    "folder with HLOOM_CACHE_DIR",
                )
            self._trusted = not fault
        return self._trusted

    def _count(self, data: bytes) -> None:
        """Records a written entry; occasionally measures the folder."""
        self._unmeasured += len(data) + _HEADER.size
        if not self._asked:
            self._remove_abandoned(_ABANDONED)
        if self._unmeasured > self.limit // 16 or (not self._asked and self._is_due()):
            self._prune()
        self._asked = True

    def _is_due(self) -> bool:
        """Whether no process has measured the folder recently."""
        try:
            return not 0 <= time.time() - (self._disk / _MEASURED).stat().st_mtime < _INTERVAL
        except OSError:
            return True

    def _no_writing(self, error: OSError) -> None:
        self._writable = False
        self._warn("write", f"cannot write to the compilation cache {self.folder} ({error}); going on without")

    def _write(self, key: str, data: bytes, first: bool = False) -> None:
        """first: raises FileExistsError if the file exists."""
        path, writing = self._path(key), self._disk / _WRITING
        self._disk.mkdir(mode=0o700, parents=True, exist_ok=True)
        writing.mkdir(mode=0o700, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=writing)  # mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_HEADER.pack(_MAGIC, len(data), _digest(key, data)))
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

    def _remove_abandoned(self, age: float) -> None:
        """Remove unfinished files older than `age` seconds, left by killed processes."""
        with contextlib.suppress(OSError):
            for path in (self._disk / _WRITING).iterdir():
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime >= age:
                        path.unlink()

    def _prune(self) -> None:
        """Remove the least recently used entries until three quarters of the limit remain."""
        self._unmeasured = 0
        with contextlib.suppress(OSError):
            (self._disk / _MEASURED).touch()
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
            warn_while_compiling(message, CacheWarning, current_source())


def _linked(source: str, path: Path) -> bool:
    """Hard-links a file, which succeeds only for the first caller: otherwise raises FileExistsError. False if the file
    system has no hard links, and there is no file yet."""
    try:
        os.link(source, path)
    except FileExistsError:
        raise
    except OSError:
        if path.exists():
            raise FileExistsError(path) from None
        return False
    return True


def _digest(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + data).digest()


def _checked(key: str, content: bytes) -> bytes | None:
    """The data of a file's content, or None if header, length or checksum do not match an entry of `key`."""
    if len(content) < _HEADER.size:
        return None
    magic, length, digest = _HEADER.unpack_from(content)
    data = content[_HEADER.size :]
    if magic != _MAGIC or length != len(data) or _digest(key, data) != digest:
        return None
    return data


def _others_may_write(status: os.stat_result) -> str:
    """The reason why another user can change a file or folder, or ''. Always '' on systems without POSIX owners."""
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to user {status.st_uid}, not to {_user()}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"may be written by other users (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""


def _user() -> str:
    return str(os.geteuid())


@functools.cache
def default_cache() -> Cache:
    """The cache of this process, in `default_folder()` until `use_folder` names another."""
    return Cache(default_folder())


def use_folder(folder: str | None) -> None:
    """Sets the folder of the disk cache; '': none; None: `default_folder()`."""
    global _chosen
    _chosen = folder
    default_cache.cache_clear()
