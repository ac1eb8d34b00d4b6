"""Manual computations (jax's shard_map and pmap) in programs for several devices: their participants are batch
elements of one program, as those of hloom's own shard_map.

Each operand is cut into the parts of the participants, the body is batched over them, in which collectives become
ordinary ops, and the results are put together again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from hloom.bridges.pjrt.shardings import MANUAL, Layouts
from hloom.compiler.transforms.batch import batch
from hloom.errors import UnsupportedError
from hloom.ir.build import Builder, Value, scalar_computation, tuple_elements
from hloom.ir.module import Computation, Instruction, Module, map_module
from hloom.ir.stablehlo.reader.registry import Item, converts
from hloom.ir.stablehlo.sharding import manual_computation
from hloom.ir.types import DTYPES, Shape, TupleShape

__all__ = ["install", "with_partial_sums"]

_PARTICIPANTS = "participants"  # the name of the batch dimension


def _manual(scope, op, items):
    if MANUAL not in op.attributes:  # no program of jax's
        return manual_computation(scope, op, items)
    plan = json.loads(op.attributes[MANUAL])
    parts = [_cut(scope.value(i), split, plan["axes"]) for i, split in zip(items, plan["operands"], strict=True)]
    shapes = [Shape(p.dtype, p.dims[1:]) for p in parts]
    body = _named(scope.region(op.regions[0], shapes), plan)
    count = len(op.result_types)
    made, _ = batch(body, [True] * len(parts), plan["participants"], [True] * count, _PARTICIPANTS)
    root = scope.builder.inline(made, [p.instruction for p in parts])
    values = [Value(scope.builder, e) for e in tuple_elements(scope.builder, root)]
    joined = [_joined(value, split, plan["axes"]) for value, split in zip(values, plan["results"], strict=True)]
    return [Item(value.instruction) for value in joined]


def _cut(value: Value, split: Sequence[Sequence[int]], axes: Sequence[int]) -> Value:
    """A whole array as [participant, part ...]; split: the axes that split each dimension, major to minor, and those
    along which it becomes partial sums: the first participant gets all."""
    *split, partial = split
    dims: list[int] = []
    where: dict[int, int] = {}
    rest = []
    for size, row in zip(value.dims, split, strict=True):
        for axis in row:
            where[axis] = len(dims)
            dims.append(axes[axis])
            size //= axes[axis]
        rest.append(len(dims))
        dims.append(size)
    local = [dims[k] for k in rest]
    order = [*(where[axis] for axis in sorted(where)), *rest]
    cut = value.reshape(dims).transpose(order)
    used = sorted(where)
    wide = cut.broadcast((*axes, *local), (*used, *range(len(axes), len(axes) + len(local))))
    for axis in partial:
        shape = Shape(DTYPES["s32"], wide.dims)
        number = Value(wide.builder, wide.builder.emit("iota", shape=shape, iota_dimension=axis))
        wide = number.compare("EQ", 0).where(wide, wide.like(0))
    return wide.reshape((int(np.prod(axes, dtype=np.int64)), *local))


def _joined(value: Value, split: Sequence[Sequence[int]], axes: Sequence[int]) -> Value:
    """The whole array of [participant, part ...]: along axes that split nothing the first participant's, or the sum."""
    *split, partial = split
    local = value.dims[1:]
    used = sorted(axis for row in split for axis in row)
    opened = value.reshape((*axes, *local))
    for axis in partial:
        opened = _sum(opened, axis).reshape((*opened.dims[:axis], 1, *opened.dims[axis + 1 :]))
    axes = opened.dims[: len(axes)]
    bounds = [(0, size if axis in used else 1, 1) for axis, size in enumerate(axes)]
    bounds += [(0, size, 1) for size in local]
    kept = opened.op("slice", slice=tuple(bounds)).reshape((*(axes[axis] for axis in used), *local))
    order: list[int] = []
    dims = []
    for k, (size, row) in enumerate(zip(local, split, strict=True)):
        order += [*(used.index(axis) for axis in row), len(used) + k]
        dims.append(size * int(np.prod([axes[axis] for axis in row], dtype=np.int64)))
    return kept.transpose(order).reshape(dims)


def _sum(value: Value, dimension: int) -> Value:
    zero = value.builder.constant(np.zeros((), value.dtype))
    add = scalar_computation("add", value.dtype)
    made = value.builder.emit("reduce", value.instruction, zero, dimensions=(dimension,), to_apply=add)
    return Value(value.builder, made)


def with_partial_sums(module: Module, layouts: Layouts) -> Module:
    """The module with partial sums along a first dimension of arguments and results that devices hold so."""
    if not any(layout.sums for layout in (*layouts.inputs, *layouts.outputs)):
        return module
    entry = module.entry
    builder = Builder(entry.name)
    arguments = []
    for parameter, layout in zip(entry.parameters, layouts.inputs, strict=True):
        shape = parameter.shape.with_dims((layout.sums, *parameter.dims)) if layout.sums else parameter.shape
        own = Value(builder, builder.parameter(shape, parameter.hint, parameter.source))
        arguments.append((_sum(own, 0) if layout.sums else own).instruction)
    results = tuple_elements(builder, builder.inline(entry, arguments))
    for k, layout in enumerate(layouts.outputs):
        if layout.sums:
            dims = results[k].dims
            one = Value(builder, results[k]).reshape((1, *dims))
            zeros = one.filled(0, one.shape.with_dims((layout.sums - 1, *dims)))
            results[k] = one.op("concatenate", zeros, dimensions=(0,)).instruction
    root = builder.tuple(results) if isinstance(entry.root.shape, TupleShape) else results[0]
    return module.with_entry(builder.finish(root))


def _named(body: Computation, plan: dict) -> Computation:
    """The body with collectives among participants, instead of devices."""

    def change(instruction: Instruction) -> Instruction:
        attributes = dict(instruction.attributes)
        if instruction.opcode in ("partition-id", "replica-id"):
            own = {"axis_name": (_PARTICIPANTS,), "axis_size": plan["participants"]}
            numbered = plan["ids"] == list(range(plan["participants"]))
            return _with(instruction, own if numbered else own | {"axis_ids": tuple(plan["ids"])})
        pairs = attributes.get("source_target_pairs")
        if pairs is not None:
            found = sorted({(plan["where"][a], plan["where"][b]) for a, b in pairs})
            attributes["source_target_pairs"] = tuple(found)
            return _with(instruction, {**attributes, "axis_name": (_PARTICIPANTS,), "axis_size": plan["participants"]})
        groups = attributes.pop("replica_groups", None)
        if groups is None:
            return instruction
        unique = dict.fromkeys(tuple(plan["where"][device] for device in group) for group in groups)
        if sorted(p for group in unique for p in group) != list(range(plan["participants"])):
            raise UnsupportedError(
                f"{instruction.opcode} among {groups}", "groups that mix manual axes with others",
                "name the axes of one shard_map", instruction.source,
            )  # fmt: skip
        attributes |= {"axis_name": (_PARTICIPANTS,), "axis_size": len(next(iter(unique)))}
        if list(unique) != [tuple(range(plan["participants"]))]:
            attributes["axis_groups"] = tuple(unique)
        return _with(instruction, attributes)

    return map_module(Module("manual", body), change).entry


def _with(instruction: Instruction, attributes: dict) -> Instruction:
    return Instruction(
        instruction.opcode, instruction.operands, instruction.shape, attributes, instruction.hint,
        instruction.source, instruction.made_by,
    )  # fmt: skip


def install() -> None:
    """Enters the reader of manual computations."""
    converts("sdy.manual_computation")(_manual)
