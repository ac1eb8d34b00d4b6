"""Tokens of HLO text, and errors with positions.

A token is a plain string. Whole array shapes (`f32[2,3]{1,0}`), whole integer lists (`{0,1}`) and whole constants
(`constant({ { 1, 2 } })`) are one token each: a module has few distinct shapes, so they are parsed once and looked up,
and a large constant is not split into a million tokens. Positions are recomputed only when an error is raised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from hloom.ir.errors import ParseError
from hloom.ir.sizes.expressions import Dim
from hloom.ir.source import Source

T = TypeVar("T")
_SKIPPED = r"(?:\s+|/\*[\s\S]*?\*/|//[^\n]*)*+"
_TOKENS = (
    r'"(?:[^"\\\n]|\\.)*+"',
    r'constant\([^()"]*+(?:\([^()"]*+\)[^()"]*+)*+\)',
    r"[a-z][a-z0-9]*\[[^\]\n]*\](?:\{[^{}\n]*\})?",
    r"\{[0-9,\s-]*\}",
    r"\{\[[0-9:,\s\[\]-]*\]\}",
    r"%?[A-Za-z_](?:[\w.]|-(?!>))*+",
    r"%[0-9](?:[\w.]|-(?!>))*+",
    r"-?[0-9](?:[\w.+]|-(?!>))*+",
    r"->",
    r".",
    r"\Z",  # an empty token ends the list
)
_TOKEN = re.compile(f"{_SKIPPED}({'|'.join(_TOKENS)})", re.ASCII)
_NAME = re.compile(r"%?[A-Za-z_][\w.\-]*|%[0-9][\w.\-]*", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_LINE_SHOWN = 120  # number of characters of a long line shown around the caret


def is_name(token: str) -> bool:
    return _NAME.fullmatch(token) is not None


def error_at(text: str, offset: int, file: str, problem: str, found: str = "", repair: str = "") -> ParseError:
    """A ParseError with line and column (both 1-based) that shows the line with a caret under the column."""
    offset = min(offset, len(text))
    line = text.count("\n", 0, offset) + 1
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    shown = text[start : len(text) if end < 0 else end]
    column = offset - start + 1
    lead, cut = "", max(0, column - 1 - _LINE_SHOWN // 2) if len(shown) > _LINE_SHOWN else 0
    if cut:
        lead = "..."
    tail = "..." if len(shown) > cut + _LINE_SHOWN else ""
    piece = lead + shown[cut : cut + _LINE_SHOWN] + tail
    # Tabs before the caret are preserved to align it with its character at any tab width.
    before = lead + shown[cut : column - 1]
    under = "".join("\t" if c == "\t" else " " for c in before) + "^"
    error = ParseError(
        f"line {line}, column {column}: {problem}\n    {piece}\n    {under}", found, repair, Source(file, line, "")
    )
    error.line, error.column = line, column
    return error


class Cursor:
    """The tokens of a text and a position among them. token, unescape: of the language. dims: named dimensions that
    sizes may use."""

    token = _TOKEN

    def __init__(self, text: str, file: str, dims: Mapping[str, Dim] | None = None):
        self.dims = dims or {}
        self.text = text
        self.file = file
        self.tokens = self.token.findall(text)
        self.tokens.append("")
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at]

    def take(self) -> str:
        """Returns the current token and advances. At the end it stays at the empty token."""
        token = self.tokens[self.at]
        if token:
            self.at += 1
        return token

    def expect(self, wanted: str) -> None:
        if self.tokens[self.at] != wanted:
            raise self.unexpected(f"'{wanted}'")
        self.at += 1

    def accept(self, wanted: str) -> bool:
        if self.tokens[self.at] == wanted:
            self.at += 1
            return True
        return False

    def separated(self, read: Callable[[], T]) -> list[T]:
        """A comma-separated list with at least one item, each parsed by `read`."""
        found = [read()]
        while self.accept(","):
            found.append(read())
        return found

    def bracketed(self, opening: str, read: Callable[[], T], closing: str) -> list[T]:
        """A comma-separated list in brackets, possibly empty, each item parsed by `read`."""
        self.expect(opening)
        if self.accept(closing):
            return []
        found = self.separated(read)
        self.expect(closing)
        return found

    def name(self, what: str) -> str:
        """A name, without its percent sign."""
        token = self.tokens[self.at]
        if not is_name(token):
            raise self.unexpected(what)
        self.at += 1
        return token[1:] if token[0] == "%" else token

    def integer(self, what: str = "an integer") -> int:
        token = self.tokens[self.at]
        if _INTEGER.fullmatch(token) is None:
            raise self.unexpected(what)
        self.at += 1
        return int(token)

    def string(self) -> str:
        token = self.tokens[self.at]
        if len(token) < 2 or token[0] != '"':
            raise self.unexpected("a string in double quotes")
        self.at += 1
        return self.unescape(token[1:-1]) if "\\" in token else token[1:-1]

    @staticmethod
    def unescape(body: str) -> str:
        return unescape(body)

    def skip_value(self) -> str:
        """Skips one value (a token, or everything in a pair of brackets); returns its text without spaces."""
        start, depth = self.at, 0
        while True:
            token = self.take()
            if not token or (depth == 0 and token in (",", "}", ")", "]")):
                self.at = max(start, self.at - bool(token))
                raise self.unexpected("a value")
            if token in ("{", "(", "["):
                depth += 1
            elif token in ("}", ")", "]"):
                depth -= 1
            if depth == 0:
                return "".join(self.tokens[start : self.at])

    def offset(self, index: int | None = None) -> int:
        """The offset of a token (by default the current one) in the text."""
        index = self.at if index is None else index
        for k, match in enumerate(self.token.finditer(self.text)):
            if k == index:
                return match.start(1)
        return len(self.text)

    def fail(self, problem: str, found: str = "", repair: str = "", at: int | None = None, within: int = 0):
        """A ParseError at a token (by default the current one), `within` characters from its start."""
        return error_at(self.text, self.offset(at) + within, self.file, problem, found, repair)

    def unexpected(self, wanted: str, at: int | None = None):
        token = self.tokens[self.at if at is None else at]
        seen = "the end of the text" if not token else f"'{token}'" if len(token) < 60 else f"'{token[:57]}...'"
        return self.fail(f"expected {wanted}", f"{seen}", at=at)


# --- strings ------------------------------------------------------------------------------------------------------

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "\\": "\\"}
_ESCAPED = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_TO_ESCAPE = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def unescape(body: str) -> str:
    """The text of a C string literal. Octal and hexadecimal escapes are bytes of UTF-8."""

    def byte(match: re.Match) -> bytes:
        code = match[1]
        if code[0] == "x" and len(code) > 1:
            return bytes([int(code[1:], 16)])
        if code[0] in "01234567":
            return bytes([int(code, 8) & 255])
        return _ESCAPES.get(code, code).encode("utf-8", "replace")

    result, end = b"", 0
    for match in _ESCAPED.finditer(body):
        result += body[end : match.start()].encode("utf-8", "replace") + byte(match)
        end = match.end()
    return (result + body[end:].encode("utf-8", "replace")).decode("utf-8", "replace")


def escape(value: str) -> str:
    """A C string literal in double quotes as printed by XLA: everything except printable ASCII is escaped."""
    pieces = []
    for character in value.encode("utf-8", "replace").decode():  # lone surrogates become question marks
        if character in _TO_ESCAPE:
            pieces.append(_TO_ESCAPE[character])
        elif " " <= character <= "~":
            pieces.append(character)
        else:
            pieces.extend(f"\\{byte:03o}" for byte in character.encode())
    return f'"{"".join(pieces)}"'
