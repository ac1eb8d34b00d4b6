"""Rules of reductions.

HLO does not specify the order in which a reduction combines its elements, nor how often it uses the initial value,
which should be the combiner's neutral element. Regrouping is therefore allowed ('rounding'), and a neutral initial
value may be removed: a sum of only -0 may have either sign.
"""

from __future__ import annotations

import numpy as np

from hloom.compiler.reshapes import reshape_groups
from hloom.ir.build import combiner_opcode
from hloom.ir.ops import OPS
from hloom.ir.patterns import Any, Op, as_op, same_bits, splat_value
from hloom.ir.rewrite import ROUNDING, Rules, is_discrete, rule
from hloom.ir.types import FLOATS

x, start = Any("x"), Any("start")
reduce = as_op("reduce")
IDEMPOTENT = ("maximum", "minimum", "and", "or")


def opcode_of(root) -> str | None:
    return combiner_opcode(root["to_apply"])


def starts_neutral(root) -> bool:
    """Whether the reduction has a known combiner and starts from its neutral element (0 or -0 for sums)."""
    opcode = opcode_of(root)
    value = splat_value(root.operands[1])
    if opcode is None or value is None:
        return False
    identity = OPS[opcode].identity
    return (identity is not None and same_bits(value, identity(root.dtype))) or bool(opcode == "add" and value == 0)


def with_start(b, root, reduced):
    """combiner(start, reduced), without a neutral start."""
    if starts_neutral(root):
        return reduced
    return b.emit(opcode_of(root), reduced, b.broadcast(root.operands[1], reduced.dims, ()))


def kept_dims(root) -> list[int]:
    return [k for k in range(len(root.operands[0].dims)) if k not in root["dimensions"]]


def only_ones(root) -> bool:
    """Whether all reduced dimensions have size 1. If only some do, they are kept, as removing them needs a reshape."""
    dims = root.operands[0].dims
    return opcode_of(root) is not None and all(dims[d] == 1 for d in root["dimensions"])


def reduce_broadcast(b, root, x, inner):
    """Reductions over broadcast dimensions, by counting elements."""
    own = inner["dimensions"]
    counted = [d for d in root["dimensions"] if d not in own]
    opcode = opcode_of(root)
    if not counted or not starts_neutral(root) or not root.operands[0].shape.size:
        return None
    count = 1
    for d in counted:
        count *= inner.dims[d]
    if opcode == "add":
        if root.shape.dtype == np.bool_:
            count = 1
        elif not is_discrete(root):
            with np.errstate(all="ignore"):
                rounded = np.asarray(count).astype(root.shape.dtype)
            if root.shape.dtype not in FLOATS or float(rounded) != count:
                return None
    elif opcode in IDEMPOTENT:
        count = 1
    else:
        return None
    dims = tuple(k for k, d in enumerate(own) if d in root["dimensions"])
    value = b.again(root, x, root.operands[1], dimensions=dims) if dims else x
    kept = kept_dims(root)
    remaining = [kept.index(d) for d in own if d not in root["dimensions"]]
    if count != 1:
        value = b.emit("multiply", value, b.splat(count, value.shape))
    return b.broadcast(value, root.dims, remaining)


def reduce_transpose(b, root, x, inner):
    permutation = inner["dimensions"]
    dims = tuple(sorted(permutation[d] for d in root["dimensions"]))
    reduced = b.again(root, x, root.operands[1], dimensions=dims)
    kept = [k for k in range(len(x.dims)) if k not in dims]
    return b.transpose(reduced, [kept.index(permutation[d]) for d in kept_dims(root)])


def reduce_reshape(b, root, x, inner):
    """If whole groups of a reshape are reduced, the reduction can come first."""
    groups = reshape_groups(x.dims, inner.dims)
    if groups is None:
        return None
    dims: list[int] = []
    reduced = set(root["dimensions"])
    for old, new in groups:
        wide = [d for d in new if inner.dims[d] != 1]
        if wide and all(d in reduced for d in wide):
            dims += old
        elif any(d in reduced for d in wide):
            return None
    if not dims:
        return None
    return b.reshape(b.again(root, x, root.operands[1], dimensions=tuple(dims)), root.dims)


def reduce_reduce(b, root, x, inner):
    kept = [k for k in range(len(x.dims)) if k not in inner["dimensions"]]
    dims = tuple(sorted([*inner["dimensions"], *(kept[d] for d in root["dimensions"])]))
    return b.again(root, x, root.operands[1], dimensions=dims)


REDUCTIONS = Rules(
    [
        rule(
            reduce(x, start),
            lambda b, root: b.broadcast(root.operands[1], root.dims, ()),
            when=lambda x: x.shape.size == 0,
            name="reduce-nothing",
            identity="the reduction of no elements is its start",
        ),
        rule(
            reduce(x, start),
            lambda b, root, x: with_start(b, root, b.reshape(x, root.dims)),
            when=only_ones,
            name="reduce-of-ones",
            identity="a reduction over extents 1 is a reshape",
            numerics=ROUNDING,
        ),
        rule(
            reduce(Op("broadcast", x, name="inner"), start),
            reduce_broadcast,
            name="reduce-of-broadcast",
            identity="x + x + ... (n times) = n x; max(x, x, ...) = x",
            numerics=ROUNDING,
        ),
        rule(
            reduce(Op("transpose", x, name="inner"), start),
            reduce_transpose,
            when=lambda root: opcode_of(root) is not None,
            name="reduce-of-transpose",
            identity="sum(x^p) = sum(x) over the dimensions that p moves",
            numerics=ROUNDING,
        ),
        rule(
            reduce(Op("reshape", x, name="inner"), start),
            reduce_reshape,
            when=lambda root: opcode_of(root) is not None,
            name="reduce-of-reshape",
            identity="sum(reshape(x)) = reshape(sum(x)) where groups of dimensions allow",
            numerics=ROUNDING,
        ),
        rule(
            reduce(reduce(x, Any("first"), name="inner"), start),
            reduce_reduce,
            when=lambda b, root, inner: (
                opcode_of(root) is not None
                and opcode_of(root) == opcode_of(inner)
                and starts_neutral(inner)
                and b.used_once(inner)
            ),
            name="reduce-of-reduce",
            identity="sum(sum(x, i), j) = sum(x, i and j)",
            numerics=ROUNDING,
            counts_uses=True,
        ),
    ]
)
