"""Dynamic sizes in the attributes of HLO text: a string of nested lists, `slice="[[1, n, 1], [0, 4, 1]]"`.

HLO has no syntax for them; attributes with only numbers have XLA's syntax.
"""

from __future__ import annotations

import ast
from typing import Any

from hloom.ir.errors import ArgumentError
from hloom.ir.sizes.expressions import SizeExpression, parsed_size
from hloom.ir.text.attributes import Kind, kind_of
from hloom.ir.text.lexer import Cursor, escape
from hloom.ir.window import WindowDimension

__all__ = ["has_sizes", "read", "written"]

_KINDS = ("int", "ints", "slices", "padding", "window")


def has_sizes(value: Any) -> bool:
    """Whether an attribute contains dynamic sizes."""
    if isinstance(value, (tuple, list)):
        return any([has_sizes(one) for one in value])
    return isinstance(value, SizeExpression)


def written(value: Any) -> str:
    """The text of an attribute with sizes."""
    return escape(_nested(value))


def _nested(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_nested, value))}]"
    return str(int(value) if isinstance(value, bool) else value)


def read(declared: str, cursor: Cursor) -> Any:
    """The value of an attribute at the cursor, with sizes in a string or in the syntax of its kind."""
    kind: Kind = kind_of(declared)
    name = declared.removesuffix("?")
    if not cursor.dims or name not in _KINDS or not cursor.peek().startswith('"'):
        return kind.read(cursor)
    at = cursor.at
    text = cursor.string()
    try:
        value = _value(ast.parse(text, mode="eval").body, cursor)
        return tuple([WindowDimension._make((*row[:6], bool(row[6]))) for row in value]) if name == "window" else value
    except (SyntaxError, ValueError, RecursionError, TypeError, IndexError):
        raise cursor.fail(f"expected {kind.meaning}", f"{text!r:.80}", 'write "[[0, n, 1]]"', at=at) from None
    except ArgumentError as error:
        raise cursor.fail(error.asked, error.found, error.repair, at=at) from None


def _value(node: ast.AST, cursor: Cursor) -> Any:
    if isinstance(node, ast.List):
        return tuple([_value(one, cursor) for one in node.elts])
    return parsed_size(ast.unparse(node), cursor.dims)
