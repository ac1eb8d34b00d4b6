"""Words, texts and errors in memory that native code reads."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from hloom.errors import ArgumentError, HloomError, ShapeError, UnsupportedError
from hloom.runtime.buffer import address as address_of
from hloom.runtime.pjrt.blocks import CONSTANTS, ERROR
from hloom.runtime.pjrt.functions import argument_words
from hloom.runtime.pjrt.interface import CODES, HEADER_WORDS

__all__ = [
    "Arguments",
    "Block",
    "Text",
    "address_of",
    "array_of",
    "bytes_at",
    "error_block",
    "malloc_bytes",
    "words_at",
]

_process = ctypes.CDLL(None)
_malloc = _process.malloc
_malloc.restype, _malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]


def words_at(where: int, count: int):
    """The 8-byte words at an address, which can be read and written."""
    return _words(count).from_address(where)


@functools.lru_cache(maxsize=256)
def _words(count: int):
    """The type of this many words. Types refer to themselves, so each new one is left to the garbage collector."""
    return ctypes.c_int64 * count


def bytes_at(where: int, size: int) -> bytes:
    return ctypes.string_at(where, size) if size else b""


def malloc_bytes(data: bytes) -> int:
    """The address of a copy of the bytes that native code frees."""
    where = _malloc(max(len(data), 1))
    if not where:
        raise MemoryError(f"{len(data)} bytes")
    ctypes.memmove(where, data, len(data))
    return where


class Arguments:
    """The arguments of a function of the C interface, by name."""

    def __init__(self, name: str, where: int):
        self._positions = argument_words(name)
        self._words = words_at(where, HEADER_WORDS + max(self._positions.values(), default=0) + 1)

    def __getitem__(self, name: str) -> int:
        return self._words[self._positions[f"A_{name.upper()}"]]

    def __setitem__(self, name: str, value: int) -> None:
        self._words[self._positions[f"A_{name.upper()}"]] = value

    def halves(self, position: int) -> tuple[int, int]:
        """The two 4-byte fields in an argument, by its position."""
        value = self._words[HEADER_WORDS + position]
        return value & 0xFFFFFFFF, value >> 32

    def text(self, name: str) -> bytes:
        """The bytes of an argument that is accompanied by its size."""
        return bytes_at(self[name], self[f"{name}_size"])


class Text:
    """Bytes at a fixed address."""

    def __init__(self, text: str | bytes):
        self.data = text.encode() if isinstance(text, str) else text
        self._buffer = ctypes.create_string_buffer(self.data, len(self.data) + 1)
        self.address, self.size = ctypes.addressof(self._buffer), len(self.data)


def array_of(values: Sequence[int], dtype=np.int64) -> np.ndarray:
    """An array of at least one element, so that it has an address."""
    return np.array([*values] or [0], dtype)


class Block:
    """Named words, and the objects that they refer to. address: of the first."""

    def __init__(self, prefix: str, count: int | None = None):
        self._prefix = prefix
        self.memory = np.zeros(CONSTANTS[f"{prefix}_WORDS"] if count is None else count, np.int64)
        self.address = address_of(self.memory)
        self._kept: list[object] = []

    def __getitem__(self, name: str) -> int:
        return int(self.memory[CONSTANTS[f"{self._prefix}_{name.upper()}"]])

    def __setitem__(self, name: str, value: int | Text | np.ndarray) -> None:
        """A Text enters its size too, an array its address; the block keeps both."""
        position = CONSTANTS[f"{self._prefix}_{name.upper()}"]
        if isinstance(value, Text):
            self._kept.append(value)
            self.memory[position : position + 2] = value.address, value.size
        elif isinstance(value, np.ndarray):
            self._kept.append(value)
            self.memory[position] = address_of(value)
        else:
            self.memory[position] = value

    def update(self, values: Mapping[str, int | Text | np.ndarray]) -> None:
        for name, value in values.items():
            self[name] = value


def error_block(error: BaseException) -> int:
    """A new PJRT_Error with the message of an exception."""
    code = "internal"
    if isinstance(error, MemoryError):
        code = "resource exhausted"
    elif isinstance(error, UnsupportedError):
        code = "unimplemented"
    elif isinstance(error, KeyboardInterrupt):
        code = "cancelled"
    elif isinstance(error, ArgumentError | ShapeError):
        code = "invalid argument"
    text = str(error) if isinstance(error, HloomError) else f"{type(error).__name__}: {error}"
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
    data = f"hloom: {text}{notes}".encode()
    head = np.array([CODES[code], len(data)], np.int64)
    assert len(head) == ERROR["ERROR_TEXT"]
    return malloc_bytes(head.tobytes() + data)
