"""MLIR attributes: representation, parsing and printing.

Booleans, strings, arrays and dictionaries are Python's bool, str, tuple and dict; types represent themselves. Others
have separate classes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hloom.ir.spmd.mlir_strings import escape
from hloom.ir.stablehlo.lexer import MlirCursor, is_identifier, joined
from hloom.ir.stablehlo.types import Tensor, is_type, parse_type

_NUMBER = re.compile(r"-?(?:0x[0-9A-Fa-f]+|[0-9]+(?:\.[0-9]*(?:[eE][-+]?[0-9]+)?)?)", re.ASCII)
_MOST_NESTED = 60


@dataclass(frozen=True)
class Unit:
    """A unit attribute."""


@dataclass(frozen=True)
class Number:
    """An integer or float with its type: `1 : i64`. `type` is '' if omitted (then i64 or f64)."""

    text: str
    type: str = ""

    @property
    def value(self) -> int | float:
        return int(self.text, 0) if re.fullmatch(r"-?(0x[0-9A-Fa-f]+|[0-9]+)", self.text) else float(self.text)


@dataclass(frozen=True)
class Symbol:
    """`@name`, or `@outer::@inner`."""

    name: str
    nested: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dense:
    """`dense<...> : tensor<...>`: a constant as the text of its elements (decoded on demand)."""

    body: str
    type: Tensor


@dataclass(frozen=True)
class Array:
    """Reads `array<i64: 1, 2>`."""

    element: str
    values: tuple

    @property
    def text(self) -> str:
        return f"array<{self.element}: {', '.join(map(_plain, self.values))}>" if self.values else self.empty

    @property
    def empty(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class Dialect:
    """`#stablehlo.gather<offset_dims = [0]>` (fields), or `#stablehlo<precision HIGH>` and others (body)."""

    name: str
    fields: dict | None = field(default=None, hash=False)
    body: str = ""


def _plain(value) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


class AttributeReader(MlirCursor):
    """Parses attributes and types; resolves the aliases defined in the text."""

    def __init__(self, text: str, file: str):
        super().__init__(text, file)
        self.type_aliases: dict = {}
        self.attribute_aliases: dict = {}

    def type(self):
        return parse_type(self, self.type_aliases)

    def attribute(self, depth: int = 0):
        """An attribute at the cursor."""
        token = self.tokens[self.at]
        if depth > _MOST_NESTED:
            raise self.fail(f"attributes are nested deeper than {_MOST_NESTED}")
        if token[:1] == '"':
            return self._typed_string()
        if token in ("true", "false"):
            self.at += 1
            return token == "true"
        if token == "unit":
            self.at += 1
            return Unit()
        if token == "[":
            return self.array(depth)
        if token == "{":
            return self.dictionary(depth)
        if token[:6] == "dense<":
            return self.dense()
        if token[:6] == "array<":
            return self.integer_array()
        if token[:1] == "@":
            return self._symbols()
        if token[:1] == "#":
            return self.dialect(depth)
        if _NUMBER.fullmatch(token) is not None:
            return self.number()
        if token[:15] == "dense_resource<":
            self.at += 1
            self.expect(":")
            return Dense(token, self.type())
        if token == "-" and self.tokens[self.at + 1] in ("inf", "nan"):
            self.at += 1
            return Number("-" + self.take(), self._of())
        if token in ("loc", "affine_map", "affine_set", "distinct", "strided", "sparse", "opaque"):
            return Dialect("", None, self.take() + (self.raw() if self.peek() in ("(", "<", "[") else ""))
        if token in ("inf", "nan"):
            return Number(self.take(), self._of())
        if is_type(token):
            return self.type()
        raise self.unexpected("an attribute")

    def _typed_string(self):
        value = self.string()
        if self.tokens[self.at] == ":" and is_type(self.tokens[self.at + 1]):
            self.at += 1
            self.type()
        return value

    def _symbols(self) -> Symbol:
        name, nested = self.symbol(), []
        while self.accept("::"):
            nested.append(self.symbol())
        return Symbol(name, tuple(nested))

    def _of(self) -> str:
        """The type after a number, or ''."""
        if self.tokens[self.at] == ":":
            self.at += 1
            return str(self.type())
        return ""

    def number(self) -> Number:
        token = self.tokens[self.at]
        if _NUMBER.fullmatch(token) is None:
            raise self.unexpected("a number")
        self.at += 1
        return Number(token, self._of())

    def array(self, depth: int = 0) -> tuple:
        """Reads `[a, b]`."""
        return tuple(self.bracketed("[", lambda: self.attribute(depth + 1), "]"))

    def dictionary(self, depth: int = 0) -> dict:
        """Reads `{a = 1 : i64, b, "c d" = "text"}`."""
        self.expect("{")
        found: dict = {}
        if self.accept("}"):
            return found
        while True:
            at = self.at
            key = self.string() if self.peek()[:1] == '"' else self.identifier("the name of an attribute")
            if key in found:
                raise self.fail(f"'{key}' is given twice", at=at)
            found[key] = self.attribute(depth + 1) if self.accept("=") else Unit()
            if not self.accept(","):
                self.expect("}")
                return found

    def dense(self) -> Dense:
        """Reads `dense<...> : tensor<...>`."""
        token = self.tokens[self.at]
        if token[:6] != "dense<":
            raise self.unexpected("dense<...>")
        self.at += 1
        self.expect(":")
        type_at = self.at
        found = self.type()
        if not isinstance(found, Tensor) or not found.static:
            raise self.fail("a constant has the type of a tensor of fixed sizes", f"{found}", at=type_at)
        return Dense(token[6:-1], found)

    def integer_array(self) -> Array:
        """Reads `array<i64: 1, 2>`."""
        token = self.tokens[self.at]
        match = re.fullmatch(r"array<\s*(\w+)\s*(?::\s*([^<>]*?)\s*)?>", token)
        if match is None:
            raise self.unexpected("array<i64: ...>")
        element, body = match.groups()
        values: list[bool | float] = []
        for part in body.split(",") if body else ():
            part = part.strip()
            try:
                if element == "i1":
                    values.append({"true": True, "false": False}[part])
                elif element[:1] == "f":
                    values.append(float(part))
                else:
                    values.append(int(part))
            except (KeyError, ValueError):
                raise self.fail(f"'{part[:40]}' is not of type {element}", f"'{token[:60]}'") from None
        self.at += 1
        return Array(element, tuple(values))

    def dialect(self, depth: int = 0):
        """Reads `#name`, `#stablehlo.gather<...>`, `#stablehlo<precision HIGH>`."""
        at = self.at
        name = self.take()
        if self.tokens[self.at] != "<":
            if name in self.attribute_aliases:
                return self.attribute_aliases[name]
            if "." not in name:
                raise self.fail(f"there is no attribute alias '{name}' above", at=at)
            return Dialect(name[1:])
        if name == "#stablehlo.conv":
            self.at += 1
            body = self.convolution_dimensions()
            self.expect(">")
            return Dialect("stablehlo.conv", None, body)
        following = self.tokens[self.at + 1 : self.at + 3]
        if following == [">", ""] or (following and following[0] == ">"):
            self.at += 2
            return Dialect(name[1:], {})
        if len(following) == 2 and is_identifier(following[0]) and following[1] == "=":
            self.at += 1
            return Dialect(name[1:], self._fields(depth))
        return Dialect(name[1:], None, self.raw()[1:-1])

    def _fields(self, depth: int) -> dict:
        """Reads `a = [0], b = 1>`."""
        found: dict = {}
        while True:
            at = self.at
            key = self.identifier("a field")
            if key in found:
                raise self.fail(f"'{key}' is given twice", at=at)
            self.expect("=")
            # Enumerations are bare words: algorithm<lhs_precision_type = tf32, ...>, handle<type = 1>.
            token = self.peek()
            if is_identifier(token) and not is_type(token) and token not in ("true", "false", "unit"):
                found[key] = Dialect("", None, self.take())
            else:
                found[key] = self.attribute(depth + 1)
            if not self.accept(","):
                self.expect(">")
                return found

    def integers(self) -> tuple[int, ...]:
        """Reads `[0, 1]`."""
        return tuple(self.bracketed("[", self.integer, "]"))

    def convolution_dimensions(self) -> str:
        """`[b, 0, f]x[0, i, o]->[b, 0, f]`, as text."""
        parts = []
        for k, letters in enumerate(("bf", "io", "bf")):
            if k == 1:
                if self.peek() != "x":
                    raise self.unexpected("'x'")
                self.at += 1
            elif k == 2:
                self.expect("->")
            self.expect("[")
            labels: list[str] = []
            while not self.accept("]"):
                if labels:
                    self.expect(",")
                token = self.peek()
                if not (token.isdigit() or token in tuple(letters) or token == "?"):
                    raise self.unexpected(f"{letters[0]}, {letters[1]} or the number of a spatial dimension")
                labels.append(token)
                self.at += 1
            parts.append(f"[{', '.join(labels)}]")
        return f"{parts[0]}x{parts[1]}->{parts[2]}"


# --- writing ------------------------------------------------------------------------------------------------------


def attribute_text(value) -> str:
    """The text of an attribute."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, Number):
        return f"{value.text} : {value.type}" if value.type else value.text
    if isinstance(value, Dense):
        return f"{dense_text(value.body)} : {value.type}"
    if isinstance(value, Array):
        return value.text
    if isinstance(value, tuple):
        return f"[{', '.join(map(attribute_text, value))}]"
    if isinstance(value, dict):
        return dictionary_text(value)
    if isinstance(value, Symbol):
        return "::".join(symbol_text(name) for name in (value.name, *value.nested))
    if isinstance(value, Unit):
        return "unit"
    if isinstance(value, Dialect):
        return _dialect_text(value)
    return str(value)


def dense_text(body: str) -> str:
    return body if body.startswith("dense_resource<") else f"dense<{body}>"


def symbol_text(name: str) -> str:
    return f"@{name}" if re.fullmatch(r"[A-Za-z_][\w$.]*", name, re.ASCII) else f"@{escape(name)}"


def _key_text(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z_][\w$.]*", key, re.ASCII) else escape(key)


def _entry_text(key: str, value) -> str:
    return _key_text(key) if isinstance(value, Unit) else f"{_key_text(key)} = {attribute_text(value)}"


def dictionary_text(value: dict) -> str:
    return f"{{{', '.join(_entry_text(k, v) for k, v in value.items())}}}"


def _dialect_text(value: Dialect) -> str:
    if not value.name:
        return value.body
    if value.fields is not None:
        return f"#{value.name}<{', '.join(f'{k} = {attribute_text(v)}' for k, v in value.fields.items())}>"
    return f"#{value.name}<{value.body}>" if value.body else f"#{value.name}"


__all__ = [
    "Array",
    "AttributeReader",
    "Dense",
    "Dialect",
    "Number",
    "Symbol",
    "Unit",
    "attribute_text",
    "dense_text",
    "dictionary_text",
    "joined",
    "symbol_text",
]
