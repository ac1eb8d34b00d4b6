"""Rules of masked sparse updates, which move the mask to the updates.

A batched loop keeps the carry of finished batch elements, by a `select` over whole arrays. If the new array is the old
one with some elements written, selecting the written values suffices, and the update can be in place.
"""

from __future__ import annotations

from hloom.ir.ops.indexing.scatter import windows_of
from hloom.ir.patterns import Any, Op, as_op
from hloom.ir.rewrite import Rules, rule
from hloom.ir.types import PRED

p = Any("p")
select = as_op("select")


def _mask(p, rank: int):
    """(a condition, the array dimensions that it corresponds to) for a broadcast mask of that array; None for other
    masks."""
    if p.opcode == "broadcast":
        return p.operands[0], tuple(p["dimensions"])
    return (p, tuple(range(rank))) if len(p.dims) in (0, rank) else None


def _is_update_of(value, array) -> bool:
    while value.opcode in ("scatter", "dynamic-update-slice"):
        value = value.operands[0]
    return value is array


def masked_scatter(b, p, new, old):
    """p ? scatter(x, i, u) : old = scatter(p ? x : old, p ? i : outside, u), if p is along batching dimensions."""
    if len(new.operands) != 3 or not _is_update_of(new, old):
        return None
    array, indices, updates = new.operands
    condition, dimensions = _mask(p, len(new.dims))
    if not condition.dims:
        dimensions = ()
    w = windows_of(new)
    if not w.mapped or any(d not in w.operand_batching for d in dimensions):
        return None
    places = [w.indices_batching[w.operand_batching.index(d)] for d in dimensions]
    order = sorted(range(len(places)), key=places.__getitem__)
    condition = b.transpose(condition, order) if order != list(range(len(order))) else condition
    mask = b.broadcast(condition, indices.dims, sorted(places))
    dtype = indices.shape.dtype
    outside = b.splat(-1 if dtype.kind == "i" else 2 ** (8 * dtype.itemsize) - 1, indices.shape)
    kept = array if array is old else b.emit("select", p, array, old)
    attributes = {name: value for name, value in new.attributes.items() if name != "indices_are_sorted"}
    return b.emit("scatter", kept, b.emit("select", mask, indices, outside), updates, shape=new.shape, **attributes)


def masked_slice_update(b, p, new, old):
    """p ? update(x, u, i) : old = update(p ? x : old, p ? u : old[i], i), if p is along full dimensions."""
    array, update, *starts = new.operands
    if not _is_update_of(new, old) or update.shape is new.shape:
        return None
    condition, dimensions = _mask(p, len(new.dims))
    if not condition.dims:
        dimensions = ()
    if any(update.dims[d] != new.dims[d] for d in dimensions):
        return None
    mask = b.broadcast(condition, update.dims, dimensions)
    before = b.emit("dynamic-slice", old, *starts, shape=update.shape, dynamic_slice_sizes=update.dims)
    kept = array if array is old else b.emit("select", p, array, old)
    return b.emit("dynamic-update-slice", kept, b.emit("select", mask, update, before), *starts, shape=new.shape)


def _when(p, new) -> bool:
    return p.shape.dtype == PRED and _mask(p, len(new.dims)) is not None


def _either_way(opcode: str, function, name: str, identity: str):
    new = Op(opcode, name="new")
    return [
        rule(select(p, new, Any("old")), function, when=_when, name=name, identity=identity),
        rule(
            select(p, Any("old"), new),
            lambda b, p, new, old: function(b, b.emit("not", p), new, old) if _is_update_of(new, old) else None,
            when=_when,
            name=f"{name}-otherwise",
            identity=f"not p ? x : y, then: {identity}",
        ),
    ]


MASKED_UPDATES = Rules(
    _either_way("scatter", masked_scatter, "select-of-scatter", "p ? scatter(x, i, u) : x = scatter(x, p ? i : -1, u)")
    + _either_way(
        "dynamic-update-slice",
        masked_slice_update,
        "select-of-slice-update",
        "p ? update(x, u, i) : x = update(x, p ? u : x[i], i)",
    )
)
