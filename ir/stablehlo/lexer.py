"""Tokens of MLIR text, with errors from `hloom.ir.text.lexer` that show line, column and caret.

A token is a plain string. Whole shaped types (`tensor<2x?xf32>`) and whole constants (`dense<...>`, `array<i64: 1>`)
are one token each: a module has few distinct types, so they are parsed once and looked up, and a large constant is not
split into a million tokens. Positions are recomputed only when an error is raised.
"""

from __future__ import annotations

import re

from hloom.ir.spmd.mlir_strings import unescape
from hloom.ir.text.lexer import Cursor

_SKIPPED = r"(?:\s+|//[^\n]*)*+"
# Angle brackets in types nest three deep: tensor<4x!quant.uniform<i8<-127:127>:f32, 0.5>>.
_INNER = r"[^<>\"]*+(?:<[^<>\"]*+(?:<[^<>\"]*+(?:<[^<>\"]*+>[^<>\"]*+)*+>[^<>\"]*+)*+>[^<>\"]*+)*+"
_TOKENS = (
    r'"(?:[^"\\\n]|\\.)*+"',
    r'dense<(?:"[^"\n]*+"|[^<>"]*+)>',
    r"(?:array|dense_resource)<[^<>]*+>",
    rf"(?:tensor|vector|memref|complex)<{_INNER}>",
    rf"![A-Za-z_](?:[\w$.]*+)(?:<{_INNER}>)?",
    r"%[\w$.\-]++(?:#[0-9]++)?",
    r"\{-#",
    r"#-\}",
    r"[@^#][\w$.\-]++",
    r'@"(?:[^"\\\n]|\\.)*+"',
    r"[A-Za-z_](?:[\w$.])*+",
    r"-?0x[0-9A-Fa-f]++",
    r"-?[0-9]++(?:\.[0-9]*+(?:[eE][-+]?[0-9]++)?)?",
    r"->",
    r"::",
    r".",
    r"\Z",  # an empty token ends the list
)
_TOKEN = re.compile(f"{_SKIPPED}({'|'.join(_TOKENS)})", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)
_VALUE = re.compile(r"%[\w$.\-]+(?:#[0-9]+)?", re.ASCII)
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">", "{-#": "#-}"}


def is_identifier(token: str) -> bool:
    return _NAME.fullmatch(token) is not None


def is_value(token: str) -> bool:
    return token[:1] == "%" and _VALUE.fullmatch(token) is not None


class MlirCursor(Cursor):
    """The tokens of an MLIR text and a position among them."""

    token = _TOKEN

    @staticmethod
    def unescape(body: str) -> str:
        return unescape(body)

    def identifier(self, what: str = "a name") -> str:
        token = self.tokens[self.at]
        if not is_identifier(token):
            raise self.unexpected(what)
        self.at += 1
        return token

    def value(self) -> str:
        """A use of a value, `%0` or `%0#1`."""
        token = self.tokens[self.at]
        if not is_value(token):
            raise self.unexpected("a value such as %0")
        self.at += 1
        return token

    def symbol(self) -> str:
        """The name after an at sign, without it (and without quotes)."""
        token = self.tokens[self.at]
        if token == "@":
            # `@"name with spaces"` is lexed as two tokens if the quote follows directly.
            self.at += 1
            return self.string()
        if token[:1] != "@":
            raise self.unexpected("a symbol such as @main")
        self.at += 1
        if token[1:2] == '"':
            return unescape(token[2:-1])
        return token[1:]

    def raw(self) -> str:
        """Everything in a pair of brackets, or one token; with single spaces between words."""
        start = self.at
        stack: list[str] = []
        while True:
            token = self.take()
            if not token or (not stack and token in (",", "}", ")", "]", ">")):
                self.at = max(start, self.at - bool(token))
                raise self.unexpected("a value")
            if token in _CLOSING:
                stack.append(_CLOSING[token])
            elif stack and token == stack[-1]:
                stack.pop()
            elif token in (")", "]", "}", "#-}"):
                self.at -= 1
                raise self.unexpected(f"'{stack[-1]}'")
            if not stack:
                return joined(self.tokens[start : self.at])


def joined(tokens) -> str:
    """The tokens with a space after commas and between words."""
    text = ""
    for token in tokens:
        if text and (text[-1] == "," or text[-1] == "=" or token == "=" or (_wordy(text[-1]) and _wordy(token[:1]))):
            text += " "
        text += token
    return text


def _wordy(character: str) -> bool:
    return character.isalnum() or character in '_"%@#'
