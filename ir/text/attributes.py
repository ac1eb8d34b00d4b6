"""The syntax of each kind of attribute in HLO text. `Op.attributes` names the kind of each attribute of an op.

A kind defines printing, parsing, and valid Python values. A question mark after the kind ('ints?') marks an optional
attribute; a 'flag' is always optional (default: false). A 'frontend' flag and a 'frontend_word' are optional and
printed among the frontend attributes, which HLO allows on every instruction. A 'hidden' attribute is for transforms
only: it is optional and not printed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom.ir.errors import ArgumentError
from hloom.ir.module import Computation
from hloom.ir.records import record
from hloom.ir.sizes.expressions import Size, SizeExpression, parsed_size
from hloom.ir.spmd import shardy
from hloom.ir.spmd.sharding import Sharding
from hloom.ir.text.lexer import Cursor, escape
from hloom.ir.text.literals import literal_text
from hloom.ir.window import WindowDimension

# Attributes in parentheses, in place of operands.
POSITIONAL = {"parameter": "index", "constant": "value"}
# HLO's names of the branch_computations of a conditional on a pred.
BRANCHES = ("true_computation", "false_computation")


@record(frozen=True)
class Kind:
    """write(value, name of a computation -> its unique name) -> text; read(parser) -> value; holds(value) -> bool."""

    write: Callable[[Any, Callable[[Computation], str]], str]
    read: Callable[[Any], Any]
    holds: Callable[[Any], bool]
    meaning: str


def kind_of(declared: str) -> Kind:
    return KINDS[declared.removesuffix("?")]


def is_required(declared: str) -> bool:
    return declared not in ("flag", "hidden") and not is_frontend(declared) and not declared.endswith("?")


def is_frontend(declared: str) -> bool:
    return declared.startswith("frontend")


# --- integers -----------------------------------------------------------------------------------------------------


def is_integer(value) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _are_integers(value) -> bool:
    return isinstance(value, (tuple, list)) and all(is_integer(v) or isinstance(v, SizeExpression) for v in value)


def _are_rows(width: int | None):
    def holds(value) -> bool:
        return isinstance(value, (tuple, list)) and all(
            _are_integers(row) and width in (None, len(row)) for row in value
        )

    return holds


_INTEGERS = re.compile(r"\{\s*(?:-?[0-9]{1,18}\s*(?:,\s*-?[0-9]{1,18}\s*)*)?\}", re.ASCII)


def read_integers(cursor: Cursor) -> tuple[int, ...]:
    """Reads `{0,1}`."""
    token = cursor.peek()
    if _INTEGERS.fullmatch(token) is None:
        raise cursor.unexpected("a list of integers such as {0,1}")
    cursor.at += 1
    body = token[1:-1]
    return tuple(map(int, body.split(","))) if body.strip() else ()


def _write_integers(value, name) -> str:
    return f"{{{','.join(map(str, value))}}}"


def _read_groups(cursor: Cursor) -> tuple[tuple[int, ...], ...]:
    """`{{0,1},{2,3}}`, `{}` for none, or `[2,4]<=[4,2]T(1,0)`: the rows of a transposed iota."""
    if cursor.peek() == "[":
        return _read_counted_groups(cursor)
    if cursor.peek()[:1] == "{" and cursor.peek()[1:-1].strip() == "" and cursor.peek() != "{":
        cursor.at += 1
        return ()
    cursor.expect("{")
    groups = cursor.separated(lambda: read_integers(cursor))
    cursor.expect("}")
    return tuple(groups)


def _read_counted_groups(cursor: Cursor) -> tuple[tuple[int, ...], ...]:
    at = cursor.at
    rows = cursor.bracketed("[", cursor.integer, "]")
    cursor.expect("<")
    cursor.expect("=")
    dims = cursor.bracketed("[", cursor.integer, "]")
    order = list(range(len(dims)))
    if cursor.accept("T"):
        order = cursor.bracketed("(", cursor.integer, ")")
    count = math.prod(dims)
    if len(rows) != 2 or math.prod(rows) != count or not 0 < count < 1 << 20 or sorted(order) != list(range(len(dims))):
        raise cursor.fail("expected groups such as [2,4]<=[8], as many members as numbers", f"{rows}, {dims}", at=at)
    numbers = np.arange(count).reshape(dims).transpose(order).reshape(rows)
    return tuple(tuple(row) for row in numbers.tolist())


def _write_groups(value, name) -> str:
    return f"{{{','.join(_write_integers(group, name) for group in value)}}}"


# --- slices and padding -------------------------------------------------------------------------------------------

_SLICES = re.compile(r"\{\s*(?:\[[-0-9:\s]*\]\s*(?:,\s*\[[-0-9:\s]*\]\s*)*)?\}", re.ASCII)
_SLICE = re.compile(r"\s*(-?[0-9]{1,18})\s*:\s*(-?[0-9]{1,18})\s*(?::\s*(-?[0-9]{1,18})\s*)?", re.ASCII)


def _write_slices(value, name) -> str:
    strided = any(stride != 1 for _, _, stride in value)
    return "{" + ", ".join(f"[{a}:{b}:{s}]" if strided else f"[{a}:{b}]" for a, b, s in value) + "}"


def _read_slices(cursor: Cursor) -> tuple[tuple[int, int, int], ...]:
    """`{[0:3], [1:4:2]}`: start, limit and stride of each dimension; an omitted stride is 1."""
    token = cursor.peek()
    if _SLICES.fullmatch(token) is None:
        raise cursor.unexpected("slices such as {[0:3], [1:4:2]}")
    result = []
    for body in re.findall(r"\[([^\]]*)\]", token):
        match = _SLICE.fullmatch(body)
        if match is None:
            raise cursor.fail("expected [start:limit] or [start:limit:stride]", f"[{body}]")
        result.append((int(match[1]), int(match[2]), int(match[3] or 1)))
    cursor.at += 1
    return tuple(result)


_PADDING = re.compile(r"(-?[0-9]{1,18})_(-?[0-9]{1,18})(?:_([0-9]{1,18}))?", re.ASCII)


def _write_padding(value, name) -> str:
    if not value:
        return '""'  # XLA cannot parse its own output for rank 0 (`padding=`)
    spread = any(interior for _, _, interior in value)
    return "x".join(f"{low}_{high}_{interior}" if spread else f"{low}_{high}" for low, high, interior in value)


def _read_padding(cursor: Cursor) -> tuple[tuple[int, int, int], ...]:
    """`0_1x2_3_1`: low, high and interior padding of each dimension; an omitted interior is 0."""
    token = cursor.peek()
    if token == '""':
        cursor.at += 1
        return ()
    if token[:1].isdigit() or token[:1] == "-":
        parts = token.split("x")
        matches = [m for part in parts if (m := _PADDING.fullmatch(part))]
        if len(matches) == len(parts):
            cursor.at += 1
            return tuple((int(m[1]), int(m[2]), int(m[3] or 0)) for m in matches)
    raise cursor.unexpected("padding such as 0_1x2_3_1 (low_high_interior of each dimension)")


# --- windows and dimension numbers of convolutions ----------------------------------------------------------------


# HLO's name of each field and its default.
_WINDOW_FIELDS = {"stride": "1", "pad": "0_0", "lhs_dilate": "1", "rhs_dilate": "1", "rhs_reversal": "0"}


def _write_window(value, name) -> str:
    columns = {
        "size": [str(d.size) for d in value],
        "stride": [str(d.stride) for d in value],
        "pad": [f"{d.low}_{d.high}" for d in value],
        "lhs_dilate": [str(d.base_dilation) for d in value],
        "rhs_dilate": [str(d.window_dilation) for d in value],
        "rhs_reversal": [str(int(d.reversed)) for d in value],
    }
    fields = [
        f"{field}={'x'.join(texts)}"
        for field, texts in columns.items()
        if value and (field == "size" or any(t != _WINDOW_FIELDS[field] for t in texts))
    ]
    return f"{{{' '.join(fields)}}}"


def _read_window(cursor: Cursor) -> tuple[WindowDimension, ...]:
    """Reads `{size=3x3 stride=2x2 pad=0_1x0_1 lhs_dilate=.. rhs_dilate=.. rhs_reversal=..}`."""
    start = cursor.at
    if cursor.peek() == "{}":
        cursor.at += 1
        return ()
    cursor.expect("{")
    columns: dict[str, list[str]] = {}
    while not cursor.accept("}"):
        at = cursor.at
        field = cursor.name("a field of the window")
        if (field != "size" and field not in _WINDOW_FIELDS) or field in columns:
            raise cursor.fail(f"'{field}' is not a field of a window, or occurs twice", at=at)
        cursor.expect("=")
        pattern = r"-?[0-9]{1,18}_-?[0-9]{1,18}" if field == "pad" else r"[0-9]{1,18}"
        parts = cursor.peek().split("x")
        if not all(re.fullmatch(pattern, part, re.ASCII) for part in parts):
            raise cursor.unexpected(f"{field} of each dimension")
        columns[field] = parts
        cursor.at += 1
    rank = len(columns.get("size", ()))
    for field, default in _WINDOW_FIELDS.items():
        columns.setdefault(field, [default] * rank)
    if not rank or any(len(c) != rank for c in columns.values()):
        raise cursor.fail("a window has each field once for each dimension, and a size", at=start)
    pads = [pad.split("_") for pad in columns.pop("pad")]
    fields = ("size", "stride", "lhs_dilate", "rhs_dilate", "rhs_reversal")
    rows = zip(*(map(int, columns[field]) for field in fields), strict=True)
    return tuple(
        WindowDimension(size, stride, int(low), int(high), base, dilation, bool(turned))
        for (size, stride, base, dilation, turned), (low, high) in zip(rows, pads, strict=True)
    )


def _read_dim_labels(cursor: Cursor) -> str:
    """`b01f_01io->b01f`, kept as text."""
    start = cursor.at
    first = cursor.take()
    cursor.expect("->")
    text = f"{first}->{cursor.take()}"
    if re.fullmatch(r"[0-9bf?]+_[0-9io?]+->[0-9bf?]+", text, re.ASCII) is None:
        cursor.at = start
        raise cursor.fail("expected the dimensions of a convolution, such as b01f_01io->b01f", f"'{text[:60]}'")
    return text


# --- computations, names and numbers ------------------------------------------------------------------------------


def read_computations(parser) -> tuple[Computation, ...]:
    """Reads `{%true_branch, %false_branch}`."""
    parser.expect("{")
    found = parser.separated(parser.computation_reference)
    parser.expect("}")
    return tuple(found)


def _read_flag(cursor: Cursor) -> bool:
    token = cursor.peek()
    if token not in ("true", "false"):
        raise cursor.unexpected("true or false")
    cursor.at += 1
    return token == "true"


def _read_hidden(cursor):
    raise cursor.fail("this attribute is not written")


def _read_frontend(cursor: Cursor) -> bool:
    at = cursor.at
    value = cursor.string()
    if value not in ("true", "false"):
        raise cursor.fail('expected "true" or "false"', at=at)
    return value == "true"


def _read_frontend_word(cursor: Cursor) -> str:
    at = cursor.at
    value = cursor.string()
    if not _is_word(value):
        raise cursor.fail("expected one word", at=at)
    return value


def _is_flag(value) -> bool:
    return isinstance(value, (bool, np.bool_))


def _read_float(cursor: Cursor) -> float:
    token = cursor.peek()
    try:
        value = float(token) if token.isascii() and "_" not in token else None
    except ValueError:
        value = None
    if value is None:
        raise cursor.unexpected("a number")
    cursor.at += 1
    return value


def _is_word(value) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z_][\w.\-]*", value, re.ASCII) is not None


# --- shardings ----------------------------------------------------------------------------------------------------


def _in_string(read: Callable[[str], Any]) -> Callable[[Cursor], Any]:
    """Parses a string with content parsed by `read`."""

    def read_string(cursor: Cursor):
        at = cursor.at
        try:
            return read(cursor.string())
        except shardy.ShardyProblem as error:
            problem, found, repair = error.args
            raise cursor.fail(problem, found, repair, at=at) from None

    return read_string


def _read_frontend_int(cursor: Cursor) -> int:
    at = cursor.at
    text = cursor.string()
    if re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII) is None:
        raise cursor.fail('expected an integer in a string, such as "3"', at=at)
    return int(text)


def _write_frontend_groups(value, name) -> str:
    return escape(str([list(group) for group in value]))


def _read_frontend_groups(cursor: Cursor) -> tuple[tuple[int, ...], ...]:
    """`"[[0, 1], [2, 3]]"`."""
    at = cursor.at
    try:
        groups = json.loads(cursor.string())
        if all(is_integer(member) for group in groups for member in group):
            return tuple(tuple(group) for group in groups)
    except (ValueError, TypeError):
        pass
    raise cursor.fail('expected groups in a string, such as "[[0, 1], [2, 3]]"', at=at)


def _read_size(cursor: Cursor) -> Size:
    at = cursor.at
    try:
        return parsed_size(cursor.string(), cursor.dims)
    except ArgumentError as error:
        raise cursor.fail(error.asked, error.found, error.repair, at=at) from None


KINDS: dict[str, Kind] = {
    "int": Kind(lambda v, name: str(int(v)), lambda c: c.integer(), is_integer, "an integer"),
    "float": Kind(
        lambda v, name: repr(float(v)),
        _read_float,
        lambda v: isinstance(v, (int, float, np.floating)) and not isinstance(v, bool),
        "a number",
    ),
    "ints": Kind(_write_integers, read_integers, _are_integers, "a tuple of integers"),
    "groups": Kind(_write_groups, _read_groups, _are_rows(None), "tuples of integers"),
    "slices": Kind(_write_slices, _read_slices, _are_rows(3), "(start, limit, stride) for each dimension"),
    "padding": Kind(_write_padding, _read_padding, _are_rows(3), "(low, high, interior) for each dimension"),
    "string": Kind(lambda v, name: escape(v), lambda c: c.string(), lambda v: isinstance(v, str), "a string"),
    "flag": Kind(lambda v, name: "true" if v else "false", _read_flag, _is_flag, "True or False"),
    "hidden": Kind(lambda v, name: "", _read_hidden, lambda v: True, "anything"),
    "frontend": Kind(lambda v, name: '"true"' if v else '"false"', _read_frontend, _is_flag, "True or False"),
    "frontend_word": Kind(lambda v, name: f'"{v}"', _read_frontend_word, _is_word, "one word"),
    "frontend_int": Kind(lambda v, name: f'"{int(v)}"', _read_frontend_int, is_integer, "an integer"),
    "frontend_size": Kind(
        lambda v, name: escape(str(v)), _read_size, lambda v: isinstance(v, (int, SizeExpression)), "a size"
    ),
    "frontend_groups": Kind(_write_frontend_groups, _read_frontend_groups, _are_rows(None), "tuples of integers"),
    # In brackets: XLA prints a frontend attribute that begins with a brace without quotes.
    "frontend_names": Kind(
        lambda v, name: escape(shardy.names_text(v, "[]")),
        _in_string(shardy.parse_names),
        lambda v: isinstance(v, tuple),
        "a tuple of names",
    ),
    "frontend_sharding": Kind(
        lambda v, name: escape(shardy.sharding_text(v)),
        _in_string(shardy.parse_sharding),
        lambda v: isinstance(v, Sharding),
        "a Sharding",
    ),
    "frontend_shardings": Kind(
        lambda v, name: escape(shardy.shardings_text(v)),
        _in_string(shardy.parse_shardings),
        lambda v: isinstance(v, tuple) and all(isinstance(s, Sharding) for s in v),
        "a tuple of Shardings",
    ),
    "enum": Kind(lambda v, name: v, lambda c: c.name("a word"), _is_word, "one word"),
    "computation": Kind(
        lambda v, name: f"%{name(v)}",
        lambda parser: parser.computation_reference(),
        lambda v: isinstance(v, Computation),
        "a computation",
    ),
    "computations": Kind(
        lambda v, name: f"{{{', '.join(f'%{name(c)}' for c in v)}}}",
        read_computations,
        lambda v: isinstance(v, (tuple, list)) and bool(v) and all(isinstance(c, Computation) for c in v),
        "a tuple of computations",
    ),
    "window": Kind(
        _write_window,
        _read_window,
        lambda v: isinstance(v, (tuple, list)) and all(isinstance(d, WindowDimension) for d in v),
        "a WindowDimension for each dimension",
    ),
    "dim_labels": Kind(lambda v, name: v, _read_dim_labels, lambda v: isinstance(v, str), "text like b01f_01io->b01f"),
    "literal": Kind(
        lambda v, name: literal_text(v),
        lambda parser: parser.literal(),
        lambda v: isinstance(v, (np.ndarray, np.generic)),
        "a NumPy array",
    ),
}


def attribute_of_text(declared: str, text: str):
    """The value of an attribute in a string, as in custom calls. Raises ParseError."""
    if declared.removesuffix("?") in ("enum", "string"):
        return text
    cursor = Cursor(text, "<attribute>")
    value = kind_of(declared).read(cursor)
    cursor.expect("")
    return value


def text_of_attribute(declared: str, value) -> str:
    """The inverse of `attribute_of_text`."""
    return value if declared.removesuffix("?") in ("enum", "string") else kind_of(declared).write(value, str)
