"""Converters of CHLO ops: functions that StableHLO lacks, and implicitly broadcasting forms of StableHLO's ops."""

from __future__ import annotations

import math

import numpy as np

from hloom.ir.op_table import OPS
from hloom.ir.stablehlo.reader.ops import broadcast_in_dim
from hloom.ir.stablehlo.reader.registry import Item, converts
from hloom.ir.stablehlo.values import ints, number, word
from hloom.ir.types import COMPLEX, DTYPES


@converts("chlo.square")
def _square(scope, op, items):
    return scope.emit("multiply", items[0], items[0])


@converts("chlo.conj")
def _conj(scope, op, items):
    x = scope.value(items[0])
    return Item(x.op("real").op("complex", -x.op("imag")).instruction) if x.dtype in COMPLEX else items[0]


@converts("chlo.is_inf")
def _is_inf(scope, op, items):
    return Item(scope.value(items[0]).op("abs").compare("EQ", math.inf).instruction)


@converts("chlo.is_pos_inf")
def _is_pos_inf(scope, op, items):
    return Item(scope.value(items[0]).compare("EQ", math.inf).instruction)


@converts("chlo.is_neg_inf")
def _is_neg_inf(scope, op, items):
    return Item(scope.value(items[0]).compare("EQ", -math.inf).instruction)


@converts("chlo.constant_like")
def _constant_like(scope, op, items):
    x = items[0]
    value = number(op.attributes["value"])
    return Item(scope.builder.splat(np.asarray(value).astype(x.dtype), x.shape))


@converts("chlo.mulhi")
def _mulhi(scope, op, items):
    """The upper half of the product of integers, computed in integers of twice their width."""
    a, b = (scope.value(i) for i in items)
    bits = 8 * a.dtype.itemsize
    name = a.dtype.kind.replace("i", "s")
    if bits < 64:
        wide = DTYPES[f"{name}{2 * bits}"]
        shift = "shift-right-arithmetic" if name == "s" else "shift-right-logical"
        return Item((a.convert(wide) * b.convert(wide)).op(shift, bits).convert(a.dtype).instruction)
    # By halves of 32 bits (Hacker's Delight, 8-2).
    low, shift = 0xFFFFFFFF, "shift-right-arithmetic" if name == "s" else "shift-right-logical"
    a0, b0 = a.op("and", low), b.op("and", low)
    a1, b1 = a.op(shift, 32), b.op(shift, 32)
    t = a1 * b0 + (a0 * b0).op("shift-right-logical", 32)
    u = t.op("and", low) + a0 * b1
    return Item((a1 * b1 + t.op(shift, 32) + u.op(shift, 32)).instruction)


@converts("chlo.top_k")
def _top_k(scope, op, items):
    return scope.elements(scope.emit("topk", items[0], k=number(op.attributes["k"]), largest=True))


# --- implicit broadcasting ----------------------------------------------------------------------------------------


def _broadcast_operands(scope, op, items) -> list[Item]:
    """NumPy's broadcasting, or the smaller operand's dimensions mapped by `broadcast_dimensions`."""
    rank = max(len(i.dims) for i in items)
    explicit = ints(op.attributes["broadcast_dimensions"]) if "broadcast_dimensions" in op.attributes else None
    placed = []
    for item in items:
        own = len(item.dims)
        where = explicit if explicit is not None and own < rank else tuple(range(rank - own, rank))
        placed.append((item, where))
    dims = [1] * rank
    for item, where in placed:
        for size, d in zip(item.dims, where, strict=True):
            if size != 1:
                if dims[d] not in (1, size):
                    raise ValueError(f"sizes {dims[d]} and {size} do not broadcast")
                dims[d] = size
    # A size of 0 broadcasts like any other size than 1.
    return [broadcast_in_dim(scope, item, tuple(dims), where) for item, where in placed]


def _broadcasting(opcode: str):
    def convert(scope, op, items):
        return scope.emit(opcode, *_broadcast_operands(scope, op, items))

    return convert


for _opcode, _entry in OPS.items():
    if _entry.arity == 2:
        converts(f"chlo.broadcast_{_opcode.replace('-', '_')}")(_broadcasting(_opcode))


@converts("chlo.broadcast_compare")
def _broadcast_compare(scope, op, items):
    direction = word(op.attributes["comparison_direction"])
    attributes = {}
    if "compare_type" in op.attributes and word(op.attributes["compare_type"]) == "TOTALORDER":
        attributes["type"] = "TOTALORDER"
    return scope.emit("compare", *_broadcast_operands(scope, op, items), direction=direction, **attributes)


@converts("chlo.broadcast_select")
def _broadcast_select(scope, op, items):
    return scope.emit("select", *_broadcast_operands(scope, op, items))
