"""Shapes in HLO text. Layouts are parsed, and matter only for `bitcast`: hloom's arrays are row-major."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from hloom.ir.errors import ArgumentError, UnsupportedError
from hloom.ir.module import AnyShape
from hloom.ir.sizes.expressions import Dim, parsed_sizes
from hloom.ir.source import Source
from hloom.ir.text.lexer import Cursor
from hloom.ir.types import DTYPES, HLO_NAME, Shape, TupleShape

# XLA's names of element types: none of them may be the name of an instruction (XLA appends an underscore too).
PRIMITIVE_TYPES = frozenset(DTYPES) | frozenset("s1 u1 token opaque".split())
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([^\]]*)\](?:\{([^{}]*)\})?", re.ASCII)
_SIZES = re.compile(r"\s*[0-9]{1,18}\s*(?:,\s*[0-9]{1,18}\s*)*", re.ASCII)
_MOST_NESTED = 100  # maximum nesting of tuples, so that no text exhausts the stack


@lru_cache(maxsize=4096)
def shape_text(shape: AnyShape) -> str:
    """`f32[2,3]{1,0}`: with layout, as in results."""
    if isinstance(shape, TupleShape):
        return f"({numbered([shape_text(e) for e in shape.elements])})"
    layout = ",".join(map(str, reversed(range(shape.rank))))
    return f"{shape!r}{{{layout}}}" if shape.dims else f"{HLO_NAME[shape.dtype]}[]"


@lru_cache(maxsize=4096)
def signature_text(shape: AnyShape) -> str:
    """`f32[2,3]`: without layout, as in the signatures of computations."""
    if isinstance(shape, TupleShape):
        return f"({numbered([signature_text(e) for e in shape.elements])})"
    return repr(shape)


def numbered(items: list[str]) -> str:
    """The comma-separated items; every fifth has its index in a comment, as in XLA."""
    if len(items) <= 5:
        return ", ".join(items)
    return ", ".join(f"/*index={k}*/{item}" if k and k % 5 == 0 else item for k, item in enumerate(items))


def array_shape(token: str, dims: Mapping[str, Dim]) -> tuple[Shape, tuple[int, ...]]:
    """The shape of a token such as `f32[2,3]{1,0}`, and its layout from minor to major, row-major by default.

    dims: the dimensions used in sizes, `f32[n,2*n + 1]`.

    The layout affects only the semantics of `bitcast`. Raises ValueError(problem, repair).
    """
    return _open_shape(token, dims) if dims else _known_shape(token)


@lru_cache(maxsize=4096)
def _known_shape(token: str) -> tuple[Shape, tuple[int, ...]]:
    match = _ARRAY.fullmatch(token)
    if match is None:
        raise ValueError("expected a shape", "write for example f32[2,3]")
    dtype, sizes, layout = match.groups()
    if dtype not in DTYPES:
        raise ValueError(f"'{dtype}' is not an element type of hloom", f"it has {', '.join(DTYPES)}")
    if sizes.strip() and _SIZES.fullmatch(sizes) is None:
        problem = "dynamic sizes are not supported" if "<=" in sizes or "?" in sizes else "expected sizes"
        raise ValueError(problem, "write the sizes as integers, for example f32[2,3]")
    dims = tuple(map(int, sizes.split(","))) if sizes.strip() else ()
    return Shape(DTYPES[dtype], dims), _layout(layout or "", dims)


def _open_shape(token: str, dims: Mapping[str, Dim]) -> tuple[Shape, tuple[int, ...]]:
    match = _ARRAY.fullmatch(token)
    if match is None or not match[2].strip() or _SIZES.fullmatch(match[2]):
        return _known_shape(token)
    try:
        sizes: tuple[Any, ...] = parsed_sizes(match[2], dims)
        return Shape(DTYPES[match[1]], sizes), _layout(match[3] or "", sizes)
    except (KeyError, ArgumentError) as error:
        found = error.found if isinstance(error, ArgumentError) else f"'{match[1]}' is not an element type of hloom"
        raise ValueError(found, f"write sizes of {', '.join(dims)}, for example f32[{next(iter(dims))},3]") from None


def _layout(layout: str, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions from fastest to slowest varying, without tiles and memory spaces
    (`:T(8,128)S(1)`)."""
    order = layout.partition(":")[0]
    if not order.strip():
        return tuple(reversed(range(len(dims))))
    found = tuple(map(int, order.split(","))) if _SIZES.fullmatch(order) else None
    if found is None or sorted(found) != list(range(len(dims))):
        raise ValueError(f"the layout '{{{layout}}}' is not a permutation of {len(dims)} dimensions", "leave it out")
    return found


def parse_shape(cursor: Cursor, depth: int = 0) -> AnyShape:
    """An array's or a tuple's shape at the cursor."""
    token = cursor.tokens[cursor.at]
    if token == "(":
        if depth >= _MOST_NESTED:
            raise cursor.fail(f"tuples are nested deeper than {_MOST_NESTED}")
        return TupleShape(cursor.bracketed("(", lambda: parse_shape(cursor, depth + 1), ")"))
    if "[" not in token or (token[0] in '"c{' and _ARRAY.fullmatch(token) is None):
        raise cursor.unexpected("a shape")
    if token.startswith("token["):
        line = cursor.text.count("\n", 0, cursor.offset()) + 1
        raise UnsupportedError(
            "a token, which orders infeed, outfeed, send and recv: hloom's programs have no channels to a host or to "
            "other programs",
            f"'{token}' in {cursor.file}, line {line}",
            "pass the values as arguments and return them as results",
            Source(cursor.file, line, ""),
        )
    try:
        shape, _ = array_shape(token, cursor.dims)
    except ValueError as error:
        problem, repair = error.args
        raise cursor.fail(problem, f"'{token}'", repair) from None
    cursor.at += 1
    return shape
