"""Names of files, and files as streams of bytes, also compressed ones."""

from __future__ import annotations

import glob
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hloom.errors import ArgumentError, DataError, MissingFileError, file_error

_PIECE = 1 << 18  # bytes that are read from a compressed file at a time


def file_names(files: str | os.PathLike | Iterable[str | os.PathLike], what: str) -> tuple[str, ...]:
    """The files of a pattern such as `train-*.tfrecord` (sorted), of one name, or of several of both. Raises
    MissingFileError where one matches nothing."""
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    found: list[str] = []
    for each in files:
        if not isinstance(each, (str, os.PathLike)):
            raise ArgumentError(f"the files of {what}", f"{each!r:.60}", "pass names or patterns")
        name = os.path.expanduser(os.fspath(each))
        matching = [name] if os.path.exists(name) else sorted(glob.glob(name, recursive=True))
        if not matching:
            raise MissingFileError(
                f"the files of {what}", f"nothing matches {name!r}",
                "check the path; relative ones start at the working directory",
            )  # fmt: skip
        found += matching
    if not found:
        raise ArgumentError(f"the files of {what}", "no names", "pass at least one")
    for name in found:
        if os.path.isdir(name):
            raise ArgumentError(f"the files of {what}", f"{name!r} is a folder", f"pass a pattern: {Path(name) / '*'}")
    return tuple(found)


class Plain:
    """An uncompressed file. remaining(): bytes that are left, an upper bound for lengths in the file."""

    def __init__(self, name: str):
        self.name = name
        try:
            self._file = open(name, "rb", buffering=0)  # noqa: SIM115 (closed by `close`)
        except OSError as error:
            raise file_error("reading records", error) from None

    def read(self, target: np.ndarray) -> int:
        """Bytes read into target; 0 at the end."""
        try:
            return self._file.readinto(target.data) or 0
        except OSError as error:
            raise file_error(f"reading {self.name}", error) from None

    def seek(self, offset: int) -> None:
        self._file.seek(offset)

    def remaining(self) -> int | None:
        return max(0, os.fstat(self._file.fileno()).st_size - self._file.tell())

    def close(self) -> None:
        self._file.close()


class Compressed(Plain):
    """A file of one or several gzip or zlib streams. Offsets are those of the uncompressed bytes."""

    def __init__(self, name: str):
        super().__init__(name)
        self._start()

    def _start(self) -> None:
        self._file.seek(0)
        self._stream = zlib.decompressobj(47)  # gzip or zlib, by the header
        self._input = b""

    def read(self, target: np.ndarray) -> int:
        while True:
            if not self._input:
                try:
                    self._input = self._file.read(_PIECE) or b""
                except OSError as error:
                    raise file_error(f"reading {self.name}", error) from None
                if not self._input:
                    if not self._stream.eof:
                        raise self._damaged("the compressed stream is truncated")
                    return 0
            try:
                if self._stream.eof:
                    self._stream = zlib.decompressobj(47)
                out = self._stream.decompress(self._input, len(target))
            except zlib.error as error:
                raise self._damaged(str(error)) from None
            self._input = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            if out:
                target[: len(out)] = np.frombuffer(out, np.uint8)
                return len(out)

    def _damaged(self, found: str) -> DataError:
        at = self._file.tell() - len(self._input)
        return DataError(
            f"reading the compressed file {self.name}", f"near byte {at} of the file: {found}",
            "write the file again; pass compression=None if it is not compressed",
        )  # fmt: skip

    def seek(self, offset: int) -> None:
        self._start()
        target = np.empty(min(offset, 1 << 20), np.uint8)
        while offset:
            read = self.read(target[:offset])
            if not read:
                raise self._damaged(f"the data ends {offset} bytes too early")
            offset -= read

    def remaining(self) -> int | None:
        return None


def require_compression(compression: str | None) -> str | None:
    """The name of a compression in lower case; None for none. Raises ArgumentError."""
    if compression is None or compression == "":
        return None
    name = str(compression).lower()
    if name not in ("auto", "gzip", "zlib"):
        raise ArgumentError(
            f"compression={compression!r}", "it is none that hloom knows", 'pass "gzip", "zlib" or None'
        )
    return name
