"""Loads object files of x86-64 Linux into memory without LLVM, for processes whose kernels are all in the disk cache.

Importing llvmlite and making its linker takes 50 ms; this takes 0.1 ms per object. It supports the few relocations that
LLVM emits for kernels (position-independent code of the small model); `load` raises `Unknown` for anything else, and
`native` then falls back to LLVM's linker.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import struct
import sys
from collections.abc import Sequence

from hloom.runtime import code_memory

_SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, alignment, entry size
_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
_RELOCATION = struct.Struct("<QQq")  # offset, symbol and type, addend
_SYMBOLS, _RELOCATIONS, _ZEROS = 2, 4, 8  # types of sections
_WRITE, _ALLOCATED, _THREAD_LOCAL = 1, 2, 0x400  # flags of sections
_R64, _PC32, _PLT32, _GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX = 1, 2, 4, 9, 41, 42


class Unknown(Exception):
    """The object has something that only LLVM's linker handles."""


def usable() -> bool:
    return sys.platform == "linux" and platform.machine() == "x86_64" and sys.byteorder == "little"


@functools.cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _outside(name: str) -> int:
    """The address of a function of the C library."""
    for library in (_process(), _mathematics()):
        function = getattr(library, name, None)
        found = ctypes.cast(function, ctypes.c_void_p).value if function else None
        if found is not None:
            return found
    raise Unknown(f"the symbol {name}")


@functools.cache
def _mathematics() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libm.so.6")
    except OSError:
        return _process()


def load(objects: Sequence[tuple[bytes, Sequence[str]]]) -> tuple[list[dict[str, int]], list[code_memory.Piece]]:
    """The addresses of each object's symbols, and the memory of each, which is to be kept while they are used. Raises
    Unknown."""
    images = [_Image(data) for data, _ in objects]
    try:
        pieces = code_memory.place([image.place() for image in images])
        for image, piece in zip(images, pieces, strict=True):
            with piece.memory as memory:
                image.fill(memory, piece.address)
        code_memory.seal(pieces)
    except code_memory.NotExecutableError as error:
        raise Unknown(f"memory that may be executed: {error}") from None
    found = [
        image.addresses(symbols, piece.address)
        for image, piece, (_, symbols) in zip(images, pieces, objects, strict=True)
    ]
    return found, pieces


class _Image:
    """One object file: its allocated sections, and the relocations in them."""

    def __init__(self, data: bytes):
        self.data = data
        if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", data, 16) != (1, 62):
            raise Unknown("the format of the object")
        (table,) = struct.unpack_from("<Q", data, 40)
        entry, count, _ = struct.unpack_from("<HHH", data, 58)
        if entry != _SECTION.size:
            raise Unknown("the section table")
        self.sections = [_SECTION.unpack_from(data, table + k * entry) for k in range(count)]
        self.kept = {k: s for k, s in enumerate(self.sections) if s[2] & _ALLOCATED and s[5] and not self._unwinding(s)}
        if any(s[2] & (_WRITE | _THREAD_LOCAL) for s in self.kept.values()):
            raise Unknown("variables")
        tables = [s for s in self.sections if s[1] == _SYMBOLS]
        self.symbols: list[tuple[str, int, int]] = []  # name, section, value
        for section in tables:
            names = self.sections[section[6]]
            text = data[names[4] : names[4] + names[5]]
            for at in range(section[4], section[4] + section[5], _SYMBOL.size):
                name, _, _, where, value, _ = _SYMBOL.unpack_from(data, at)
                self.symbols.append((text[name : text.index(b"\0", name)].decode(), where, value))
        self.patches = []  # section, offset in it, type, symbol, addend
        for section in self.sections:
            if section[1] == _RELOCATIONS and section[7] in self.kept:
                for at in range(section[4], section[4] + section[5], _RELOCATION.size):
                    offset, what, addend = _RELOCATION.unpack_from(data, at)
                    self.patches.append((section[7], offset, what & 0xFFFFFFFF, what >> 32, addend))
        self.outside = sorted({s for _, _, kind, s, _ in self.patches if self._through_table(kind, s)})

    @staticmethod
    def _unwinding(section) -> bool:
        return section[1] == 0x70000001 or section[1] == 7  # .eh_frame, notes: nothing of ours throws

    def _through_table(self, kind: int, symbol: int) -> bool:
        return kind in (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX) or self.symbols[symbol][1] == 0

    def place(self) -> int:
        """Assigns each section its offset; returns the total size."""
        self.places: dict[int, int] = {}
        # An entry of the table is the address, and a jump to it for calls.
        at = 16 * len(self.outside)
        for k, section in self.kept.items():
            alignment = max(section[8], 1)
            if alignment > code_memory.PAGE:
                raise Unknown("an alignment")
            at = -(-at // alignment) * alignment
            self.places[k] = at
            at += section[5]
        return at

    def _address(self, symbol: int, start: int) -> int:
        name, section, value = self.symbols[symbol]
        if section == 0:
            return _outside(name)
        if section not in self.places:
            raise Unknown(f"the symbol {name}")
        return start + self.places[section] + value

    def fill(self, memory: memoryview, start: int) -> None:
        entries = {}
        for k, symbol in enumerate(self.outside):
            at = 16 * k
            entries[symbol] = start + at
            # The address, then `jmp *-14(%rip)`, which reads it.
            memory[at : at + 14] = struct.pack("<Q", self._address(symbol, start)) + b"\xff\x25\xf2\xff\xff\xff"
        for k, section in self.kept.items():
            if section[1] != _ZEROS:
                memory[self.places[k] : self.places[k] + section[5]] = self.data[section[4] : section[4] + section[5]]
        for section, offset, kind, symbol, addend in self.patches:
            at = self.places[section] + offset
            if kind == _R64:
                struct.pack_into("<Q", memory, at, (self._address(symbol, start) + addend) % (1 << 64))
                continue
            if kind in (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX):
                target = entries[symbol]
            elif kind == _PLT32 and symbol in entries:
                target = entries[symbol] + 8
            elif kind in (_PC32, _PLT32) and symbol not in entries:
                target = self._address(symbol, start)
            else:
                raise Unknown(f"a relocation of type {kind}")
            struct.pack_into("<i", memory, at, target + addend - (start + at))

    def addresses(self, symbols: Sequence[str], start: int) -> dict[str, int]:
        known = {name: start + self.places[k] + value for name, k, value in self.symbols if name and k in self.places}
        missing = [symbol for symbol in symbols if symbol not in known]
        if missing:
            raise Unknown(f"the object defines no {missing[0]}")
        return {symbol: known[symbol] for symbol in symbols}
