"""Protocol buffers of integers and byte strings, as far as jax programs use them in addition to MLIR."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["field", "fields", "numbers"]

_BYTES = 2  # the wire type of byte strings, and of messages


def numbers(data: bytes) -> list[int]:
    """Numbers in groups of 7 bits, the low ones first."""
    found, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(value)
            value = shift = 0
    return found


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field of a message."""
    at = 0

    def number() -> int:
        nonlocal at
        end = next(k for k in range(at, len(data)) if data[k] < 0x80) + 1
        (value,) = numbers(data[at:end])
        at = end
        return value

    while at < len(data):
        key = number()
        value = number()
        if key & 7 == _BYTES:
            yield key >> 3, data[at : at + value]
            at += value
        else:
            yield key >> 3, value


def field(number: int, data: bytes | int) -> bytes:
    """A field of bytes, or of a number."""
    if isinstance(data, int):
        return _number(number << 3) + _number(data)
    return _number(number << 3 | _BYTES) + _number(len(data)) + data


def _number(value: int) -> bytes:
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
