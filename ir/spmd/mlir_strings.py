"""MLIR's string literals: in StableHLO, and in Shardy's attributes, which HLO text also contains."""

from __future__ import annotations

import re

__all__ = ["escape", "unescape"]

_ESCAPED = re.compile(r"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)
_NAMED = {"n": b"\n", "t": b"\t", '"': b'"', "\\": b"\\"}


def unescape(body: str) -> str:
    """The text of an MLIR string. A backslash and two hexadecimal digits are a byte; bytes that are not UTF-8 become
    Python's surrogate escapes, so that they round-trip."""
    result, end = b"", 0
    for match in _ESCAPED.finditer(body):
        result += body[end : match.start()].encode("utf-8", "surrogatepass")
        code = match[1]
        result += bytes([int(code, 16)]) if len(code) == 2 else _NAMED.get(code, code.encode("utf-8", "surrogatepass"))
        end = match.end()
    result += body[end:].encode("utf-8", "surrogatepass")
    return result.decode("utf-8", "surrogateescape")


def escape(value: str) -> str:
    """A string in double quotes as MLIR prints it: bytes that are not printable ASCII as two hexadecimal digits."""
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'
    pieces = []
    for byte in value.encode("utf-8", "surrogateescape" if _has_raw_bytes(value) else "surrogatepass"):
        character = chr(byte)
        if character == "\\":
            pieces.append("\\\\")
        elif " " <= character <= "~" and character != '"':
            pieces.append(character)
        else:
            pieces.append(f"\\{byte:02X}")
    return f'"{"".join(pieces)}"'


def _has_raw_bytes(value: str) -> bool:
    return any("\udc80" <= c <= "\udcff" for c in value)
