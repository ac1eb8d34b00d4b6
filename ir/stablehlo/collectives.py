"""Collectives, in both directions: all_reduce, all_gather, reduce_scatter, all_to_all, collective_permute,
collective_broadcast.

A program for one device that needs more participants converts, and raises when it runs.
"""

from __future__ import annotations

from hloom.ir.build import scalar_computation
from hloom.ir.errors import UnsupportedError
from hloom.ir.stablehlo.assembly.attributes import Dense, Dialect, Number, Unit
from hloom.ir.stablehlo.reader.registry import Item, converts
from hloom.ir.stablehlo.types import Tensor
from hloom.ir.stablehlo.values import dense_integers, fields, flag, number
from hloom.ir.stablehlo.writer.module import emits, integer
from hloom.ir.types import Shape


def _rows(value) -> tuple[tuple[int, ...], ...]:
    """Groups, without the -1 padding of shorter ones."""
    array = dense_integers(value)
    return tuple(
        tuple(int(v) for v in row if v >= 0) for row in array.reshape(-1, array.shape[-1] if array.ndim else 1)
    )


def _common(op) -> dict:
    a = op.attributes
    found: dict[str, object] = {}
    if "replica_groups" in a:
        groups = _rows(a["replica_groups"])
        if any(groups):
            found["replica_groups"] = groups
    if "channel_handle" in a or "channel_id" in a:
        handle = a.get("channel_handle")
        found["channel_id"] = number(fields(handle)["handle"]) if handle is not None else number(a["channel_id"])
    everywhere = a.get("use_global_device_ids", False)
    if isinstance(everywhere, Unit) or flag(everywhere):
        found["use_global_device_ids"] = True
    return found


@converts("stablehlo.all_reduce")
def _all_reduce(scope, op, items):
    body = scope.region(op.regions[0], [Shape(items[0].dtype)] * 2)
    return [scope.emit("all-reduce", i, to_apply=body, **_common(op)) for i in items]


@converts("stablehlo.cross-replica-sum")
def _cross_replica_sum(scope, op, items):
    return scope.emit("all-reduce", *items, to_apply=scalar_computation("add", items[0].dtype), **_common(op))


@converts("stablehlo.all_gather")
def _all_gather(scope, op, items):
    d = number(op.attributes["all_gather_dim"])
    shapes = [scope.result_shape(op, k) for k in range(len(items))]
    return [
        scope.emit("all-gather", i, shape=shape, dimensions=(d,), **_common(op))
        for i, shape in zip(items, shapes, strict=True)
    ]


@converts("stablehlo.reduce_scatter")
def _reduce_scatter(scope, op, items):
    d = number(op.attributes["scatter_dimension"])
    body = scope.region(op.regions[0], [Shape(items[0].dtype)] * 2)
    shape = scope.result_shape(op)
    return scope.emit("reduce-scatter", *items, shape=shape, dimensions=(d,), to_apply=body, **_common(op))


@converts("stablehlo.all_to_all")
def _all_to_all(scope, op, items):
    a = op.attributes
    split, concat = number(a["split_dimension"]), number(a["concat_dimension"])
    common = _common(op)
    count = number(a["split_count"])
    found = []
    for item in items:
        value = scope.value(scope.emit("all-to-all", item, dimensions=(split,), **common))
        if split != concat and count != 1:
            # The received parts move from one dimension to the other.
            dims = value.dims
            opened = value.reshape((*dims[:split], count, dims[split] // count, *dims[split + 1 :]))
            order = [k for k in range(len(dims) + 1) if k != split]
            order.insert(concat, split)
            result = [d // count if k == split else d * count if k == concat else d for k, d in enumerate(dims)]
            value = opened.transpose(order).reshape(result)
        found.append(Item(value.instruction))
    return found


@converts("stablehlo.collective_permute")
def _collective_permute(scope, op, items):
    common = {k: v for k, v in _common(op).items() if k != "replica_groups"}
    pairs = _rows(op.attributes["source_target_pairs"])
    return scope.emit("collective-permute", *items, source_target_pairs=pairs, **common)


@converts("stablehlo.collective_broadcast")
def _collective_broadcast(scope, op, items):
    return scope.emit("collective-broadcast", *items, **_common(op))


@converts("stablehlo.partition_id", "stablehlo.replica_id")
def _participant(scope, op, items):
    return scope.emit(op.name.split(".")[1].replace("_", "-"))


# --- from the IR --------------------------------------------------------------------------------------------------


def _groups(rows) -> Dense:
    rows = [tuple(r) for r in rows] or [(0,)]
    width = max(map(len, rows))
    filled = [(*r, *(-1,) * (width - len(r))) for r in rows]
    body = ", ".join(f"[{', '.join(map(str, r))}]" for r in filled)
    return Dense(f"[{body}]", Tensor((len(rows), width), "i64"))


def _attributes(instruction, grouped: bool = True) -> dict:
    a = instruction.attributes
    found: dict[str, object] = {}
    if grouped:
        found["replica_groups"] = _groups(a.get("replica_groups") or ())
    if a.get("channel_id") is not None:
        handle = {"handle": Number(str(a["channel_id"])), "type": Number("1")}
        found["channel_handle"] = Dialect("stablehlo.channel_handle", handle)
    if a.get("use_global_device_ids"):
        found["use_global_device_ids"] = Unit()
    return found


@emits("all-reduce")
def _write_all_reduce(body, instruction, operands):
    region = body.region(instruction["to_apply"])
    return body.simple("stablehlo.all_reduce", instruction, operands, [region], **_attributes(instruction))


@emits("all-gather")
def _write_all_gather(body, instruction, operands):
    attributes = {"all_gather_dim": integer(instruction["dimensions"][0]), **_attributes(instruction)}
    return body.simple("stablehlo.all_gather", instruction, operands, **attributes)


@emits("reduce-scatter")
def _write_reduce_scatter(body, instruction, operands):
    region = body.region(instruction["to_apply"])
    attributes = {"scatter_dimension": integer(instruction["dimensions"][0]), **_attributes(instruction)}
    return body.simple("stablehlo.reduce_scatter", instruction, operands, [region], **attributes)


@emits("all-to-all")
def _write_all_to_all(body, instruction, operands):
    groups = instruction.attributes.get("replica_groups") or ((0,),)
    if "dimensions" not in instruction.attributes:
        raise UnsupportedError(
            "all-to-all of a tuple cannot be written as StableHLO", f"{instruction!r}", "give it one array"
        )
    (d,) = instruction["dimensions"]
    attributes = {
        "split_dimension": integer(d), "concat_dimension": integer(d), "split_count": integer(len(groups[0])),
        **_attributes(instruction),
    }  # fmt: skip
    return body.simple("stablehlo.all_to_all", instruction, operands, **attributes)


@emits("collective-permute")
def _write_collective_permute(body, instruction, operands):
    attributes = {"source_target_pairs": _groups(instruction["source_target_pairs"]), **_attributes(instruction, False)}
    return body.simple("stablehlo.collective_permute", instruction, operands, **attributes)


@emits("collective-broadcast")
def _write_collective_broadcast(body, instruction, operands):
    return body.simple("stablehlo.collective_broadcast", instruction, operands, **_attributes(instruction))


@emits("partition-id", "replica-id")
def _write_participant(body, instruction, operands):
    return body.simple(f"stablehlo.{instruction.opcode.replace('-', '_')}", instruction, operands)
