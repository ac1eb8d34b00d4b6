"""PNG of 8 bits per channel, decoded by zlib and a native function: small ones in half of Pillow's time, and without
the global lock of Python. Others, and what is wrong with any, are Pillow's matter.

Source: ISO/IEC 15948 (Portable Network Graphics).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np

from hloom.data import native

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MODES = {0: ("L", 1), 2: ("RGB", 3), 4: ("LA", 2), 6: ("RGBA", 4)}  # by colour type: Pillow's mode, channels
_LIMIT = 89_478_485  # pixels from which on Pillow warns of decompression bombs


def decode_png(data: bytes, size: Sequence[int] | None = None, mode: str | None = None) -> np.ndarray | None:
    """The pixels, uint8[height, width, channels] or [height, width] for mode "L", as Pillow reads them; None for a file
    that Pillow has to read: palettes, other depths, interlaced or animated ones, another size or mode, damaged ones."""
    chunks = _chunks(data)
    if not chunks or chunks[0][0] != b"IHDR" or len(chunks[0][1]) != 13:
        return None
    width, height, depth, colour, method, filters, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    own, channels = _MODES.get(colour, ("", 0))
    if depth != 8 or not own or method or filters or interlaced or not 0 < width * height < _LIMIT:
        return None
    if mode not in (None, own) or (size is not None and tuple(size) != (height, width)):
        return None
    pixels, stride = b"".join([body for name, body in chunks if name == b"IDAT"]), width * channels
    try:
        inflate = zlib.decompressobj()
        rows = inflate.decompress(pixels, height * (stride + 1))  # and no more
    except zlib.error:
        return None
    if len(rows) != height * (stride + 1):
        return None
    out = np.empty((height, width) if channels == 1 else (height, width, channels), np.uint8)
    source = np.frombuffer(rows, np.uint8)
    done = native.function("hloom_png_rows")(source.ctypes.data, out.ctypes.data, height, stride, channels)
    return out if done == height else None


def _chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """The chunks (name, body) whose checksums fit; none where the file is damaged, or is an animation."""
    if data[:8] != _SIGNATURE:
        return []
    found: list[tuple[bytes, bytes]] = []
    at, end = 8, len(data)
    while at + 12 <= end:
        length = int.from_bytes(data[at : at + 4], "big")
        behind = at + 8 + length
        if behind + 4 > end:
            return []
        name = data[at + 4 : at + 8]
        if name == b"IEND":
            return found
        if name == b"acTL" or zlib.crc32(data[at + 4 : behind]) != int.from_bytes(data[behind : behind + 4], "big"):
            return []
        found.append((name, data[at + 8 : behind]))
        at = behind + 4
    return []


__all__ = ["decode_png"]
