"""The native functions of `runtime.records_source`, called from Python: checksums, frames, examples.

Calls release the GIL. The functions are loaded from the prebuilt code or the disk cache, else they are compiled once.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np

from hloom.backends.cpu.driver import load_functions
from hloom.compiler.targets.cpu.machine import native_machine
from hloom.ir.process import forking
from hloom.runtime import records_source as source

POLYNOMIAL = 0x82F63B78  # of CRC-32C, its bits reversed
PADDING = 8  # bytes that must be readable after the data

_lock = forking.rlock()


@functools.cache
def _loaded() -> dict[str, Callable[..., int]]:
    with _lock:
        addresses = load_functions(source.FUNCTIONS)
    counts = {function.name: len(function.params) for function in source.FUNCTIONS}
    word = ctypes.c_int64
    return {
        name: ctypes.CFUNCTYPE(word, *[word] * counts[name])(address)
        for name, address in addresses.items()
        if name in counts
    }


def function(name: str) -> Callable[..., int]:
    """A native function by its name, such as `hloom_frames`."""
    return _loaded()[name]


@functools.cache
def crc_table() -> np.ndarray:
    """The table of `hloom_crc32c`: 8 * 256 words, the second index a byte, the first how many bytes follow it."""
    table = np.zeros((8, 256), np.int64)
    value = np.arange(256)
    for _ in range(8):
        value = np.where(value & 1, value >> 1 ^ POLYNOMIAL, value >> 1)
    table[0] = value
    for k in range(1, 8):
        table[k] = table[0][table[k - 1] & 255] ^ (table[k - 1] >> 8)
    return table


@functools.cache
def has_crc_instruction() -> bool:
    machine = native_machine()
    return machine.arch == "x86_64" and machine.has("sse4.2")


def _address(data: bytes | bytearray | memoryview | np.ndarray) -> tuple[int, int, np.ndarray]:
    """Address and size of bytes, and the object that keeps them alive."""
    array = np.frombuffer(data, np.uint8)
    return array.ctypes.data, array.size, array


def crc32c(data) -> int:
    """The CRC-32C of bytes (Castagnoli, RFC 3720).

    >>> hex(hl.data.crc32c(b"123456789"))
    '0xe3069283'
    """
    address, size, kept = _address(data)
    checksum = function("hloom_crc32c")(crc_table().ctypes.data, address, size, has_crc_instruction())
    del kept
    return checksum


def masked_crc32c(data) -> int:
    """TensorFlow's masked CRC-32C of bytes."""
    address, size, kept = _address(data)
    checksum = function("hloom_masked")(crc_table().ctypes.data, address, size, has_crc_instruction())
    del kept
    return checksum


class Frames:
    """The frames of a block of a TFRecord file.

    scan(data, size, at, verify) -> status: `places` then holds offset and length of `count` records, and `at` is the
    position after them.
    """

    def __init__(self, limit: int):
        self.places = np.zeros((limit, 2), np.int64)
        self._state = np.zeros(source.FRAMES_WORDS, np.int64)
        self._state[source.FRAMES_LIMIT] = limit
        self._state[source.FRAMES_OUT] = self.places.ctypes.data
        self._state[source.FRAMES_TABLE] = crc_table().ctypes.data
        self._state[source.FRAMES_HARDWARE] = has_crc_instruction()
        self._scan = function("hloom_frames")
        self.count = self.at = 0

    def scan(self, data: np.ndarray, size: int, at: int, verify: bool = True) -> int:
        """Finds records in data[at:size], which has `PADDING` bytes more. One of the statuses of `records_source`."""
        state = self._state
        state[source.FRAMES_DATA] = data.ctypes.data
        state[source.FRAMES_SIZE] = size
        state[source.FRAMES_AT] = at
        state[source.FRAMES_VERIFY] = verify
        self.count = self._scan(state.ctypes.data)
        self.at = int(state[source.FRAMES_AT])
        return int(state[source.FRAMES_STATUS])


def resynchronize(data: np.ndarray, size: int, at: int, longest: int) -> int:
    """The next position of data[:size] that begins a frame of at most `longest` bytes, or size - 11."""
    return function("hloom_resynchronize")(
        data.ctypes.data, size, at, crc_table().ctypes.data, has_crc_instruction(), longest
    )
