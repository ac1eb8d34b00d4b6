"""The file of prebuilt code: entries of bytes by key, valid for one version of the code generator.

    get(key) -> bytes | None        None: no such entry, or no file that this code generator made
    is_current() -> bool            whether there is a file that this code generator made
    write(entries, path=None)       replaces the file

The first line says in JSON which `interface.code_version()` the file was made by, and where each entry lies; then come
the entries, compressed one by one. A file of another version is ignored as a whole: what is needed is then compiled,
and kept in the disk cache as all compiled code is.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

from hloom.compiler.targets.cpu.interface import code_version
from hloom.compiler.targets.cpu.machine import architecture

__all__ = ["file_name", "get", "is_current", "path", "write"]


def file_name() -> str:
    return f"{sys.platform}_{architecture()}.bin"


def path() -> Path:
    return Path(__file__).with_name(file_name())


@functools.cache
def _contents(file: Path) -> tuple[dict[str, list[int]], mmap.mmap | bytes, int] | None:
    """First byte and length of each entry, the file, and where its entries begin; None where the file is absent,
    damaged or of another version."""
    try:
        with open(file, "rb") as opened:
            data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        head = json.loads(data.readline())
        if head["version"] != code_version():
            return None
        return head["entries"], data, data.tell()
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_current() -> bool:
    """Whether there is a file that this code generator made."""
    return _contents(path()) is not None


def get(key: str) -> bytes | None:
    """The entry of a key; None where there is none."""
    contents = _contents(path())
    if contents is None or key not in contents[0]:
        return None
    entries, data, begin = contents
    start, length = entries[key]
    try:
        return zlib.decompress(data[begin + start : begin + start + length])
    except zlib.error:
        return None


def write(entries: Mapping[str, bytes], target: Path | None = None) -> Path:
    """Writes the file, whole or not at all. target: None is where `get` finds it."""
    target = target or path()
    index, parts, at = {}, [], 0
    for key, entry in entries.items():
        data = zlib.compress(entry, 9)
        index[key] = at, len(data)
        parts.append(data)
        at += len(data)
    head = json.dumps({"version": code_version(), "entries": index})
    partial = target.with_suffix(f".{os.getpid()}")
    partial.write_bytes(f"{head}\n".encode() + b"".join(parts))
    partial.replace(target)
    _contents.cache_clear()
    return target
