"""Rules of comparisons, selects and bits."""

from __future__ import annotations

import math

from hloom.compiler.passes.rules.arithmetic import is_constant, is_unsigned
from hloom.ir.patterns import Any, Op, Splat, as_op, is_splat_of, splat_value
from hloom.ir.rewrite import Rules, is_discrete, is_float, is_integer, rule
from hloom.ir.types import PRED

x, y, z, p = Any("x"), Any("y"), Any("z"), Any("p")
c = Splat("c")
compare, select, negation = as_op("compare"), as_op("select"), as_op("not")

SWAPPED = {"EQ": "EQ", "NE": "NE", "LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}
INVERTED = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}


def is_pred(instruction) -> bool:
    return instruction.shape.dtype == PRED


def full(b, condition, shape):
    """A condition, which may be a scalar for a whole array, broadcast to the shape."""
    return b.broadcast(condition, shape.dims, ()) if condition.dims != shape.dims else condition


comparisons = Rules(
    [
        rule(
            compare(c, x),
            lambda b, root, x, c: b.emit(
                "compare", x, c, **{**root.attributes, "direction": SWAPPED[root["direction"]]}
            ),
            when=lambda x: not is_constant(x),
            name="compare-constant-to-the-right",
            identity="c < x = x > c",
        ),
        rule(
            compare(x, x),
            lambda b, root: b.splat(root["direction"] in ("EQ", "LE", "GE"), root.shape),
            when=lambda root, x: is_discrete(x) or (is_float(x) and root["direction"] in ("LT", "GT")),
            name="compare-self",
            identity="x = x, x <= x are true, x < x is false; floats: NaN is not equal to itself",
        ),
        rule(
            compare(x, 0),
            lambda b, root: b.splat(root["direction"] == "GE", root.shape),
            when=lambda root, x: is_unsigned(x) and root["direction"] in ("LT", "GE"),
            name="unsigned-is-not-negative",
            identity="x < 0 is false, x >= 0 is true, unsigned",
        ),
        rule(
            compare(p, c),
            lambda b, root, p, c: p if bool(splat_value(c)) == (root["direction"] == "EQ") else b.emit("not", p),
            when=lambda root, p: is_pred(p) and root["direction"] in ("EQ", "NE"),
            name="compare-pred",
            identity="p = true is p, p = false is not p",
        ),
        rule(
            compare(Op("convert", p), 0),
            lambda b, root, p: p if root["direction"] == "NE" else b.emit("not", p),
            when=lambda root, p: is_pred(p) and root["direction"] in ("EQ", "NE"),
            name="compare-converted-pred",
            identity="convert(p) != 0 is p, convert(p) = 0 is not p",
        ),
        rule(
            negation(compare(x, y, name="inner")),
            lambda b, x, y, inner: b.emit(
                "compare", x, y, **{**inner.attributes, "direction": INVERTED[inner["direction"]]}
            ),
            when=lambda x, inner: is_discrete(x) or inner["direction"] in ("EQ", "NE"),
            name="not-compare",
            identity="not (x < y) = x >= y; floats: only = and !=, for NaN",
        ),
    ]
)

choices = Rules(
    [
        rule(
            select(c, x, y),
            lambda c, x, y: x if bool(splat_value(c)) else y,
            name="select-constant",
            identity="true ? x : y = x",
        ),
        rule(select(p, x, x), x, name="select-same", identity="p ? x : x = x"),
        rule(select(negation(p), x, y), select(p, y, x), name="select-not", identity="not p ? x : y = p ? y : x"),
        rule(
            select(p, True, False),
            lambda b, root, p: full(b, p, root.shape),
            when=lambda root: is_pred(root),
            name="select-true-false",
            identity="p ? true : false = p",
        ),
        rule(
            select(p, False, True),
            lambda b, root, p: b.emit("not", full(b, p, root.shape)),
            when=lambda root: is_pred(root),
            name="select-false-true",
            identity="p ? false : true = not p",
        ),
        rule(
            select(p, select(p, x, y), z),
            select(p, x, z),
            name="select-of-select-true",
            identity="p ? (p ? x : y) : z = p ? x : z",
        ),
        rule(
            select(p, x, select(p, y, z)),
            select(p, x, z),
            name="select-of-select-false",
            identity="p ? x : (p ? y : z) = p ? x : z",
        ),
        rule(
            Op("clamp", Splat("low"), x, Splat("high")),
            x,
            when=lambda x, low, high: is_float(x) and is_splat_of(low, -math.inf) and is_splat_of(high, math.inf),
            name="clamp-to-everything",
            identity="clamp(-inf, x, inf) = x",
        ),
        rule(
            Op("clamp", Any("low"), Op("clamp", Any("low"), x, Any("high"), name="inner"), Any("high")),
            lambda inner: inner,
            name="clamp-of-clamp",
            identity="clamp(l, clamp(l, x, h), h) = clamp(l, x, h)",
        ),
    ]
)

bits = Rules(
    [
        rule(
            Op("and", x, negation(x)),
            lambda b, root: b.splat(0, root.shape),
            name="and-not-self",
            identity="x & ~x = 0",
        ),
        rule(
            Op("or", x, negation(x)),
            lambda b, root: b.splat(True if is_pred(root) else -1, root.shape),
            name="or-not-self",
            identity="x | ~x = all ones",
        ),
        rule(
            Op("and | or", x, Op("and | or", x, y, name="inner")),
            x,
            when=lambda root, inner: inner.opcode != root.opcode,
            name="absorption",
            identity="x & (x | y) = x | (x & y) = x",
        ),
        rule(
            Op("and | or", x, Op("and | or", x, y, name="inner")),
            lambda inner: inner,
            when=lambda root, inner: inner.opcode == root.opcode,
            name="repeated-bit-operand",
            identity="x & (x & y) = x & y",
        ),
        rule(
            Op("sign", Op("sign", x, name="inner")),
            lambda inner: inner,
            when=lambda x: is_integer(x) or is_float(x),
            name="sign-of-sign",
            identity="sign(sign(x)) = sign(x)",
        ),
    ]
)

LOGIC = comparisons + choices + bits
