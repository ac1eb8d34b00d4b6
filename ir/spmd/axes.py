"""Lowers collectives over named mesh axes to collectives among groups of devices.

In the body of a manual computation a collective may carry `axis_name`, the names of manual axes, as under vmap. Its
participants are numbered along those axes. `with_groups` replaces them by `replica_groups` of partition ids, or removes
the collective if the axes have one device.
"""

from __future__ import annotations

import numpy as np

from hloom.ir.build import Builder
from hloom.ir.errors import ParticipantsError
from hloom.ir.module import Computation, Instruction
from hloom.ir.spmd.sharding import DeviceMesh
from hloom.ir.types import DTYPES, Shape, TupleShape

HIDDEN = ("axis_name", "axis_size", "axis_groups", "axis_source")
U32 = DTYPES["u32"]


def mesh_axes(mesh: DeviceMesh, names, what: str = "a collective") -> tuple[str, ...]:
    """The axes of a mesh with these names, or in an atomic mesh their atoms."""
    found: list[str] = []
    for name in names:
        parts = mesh.parts(name)
        if not parts:
            raise ParticipantsError(
                f"{what} over the axis {name!r}",
                f"the mesh has the axes {', '.join(mesh.names) or 'of no name'}",
                "name a manual axis of the shard_map, or an axis of a vmap around the function",
            )
        found += parts
    return tuple(found)


def with_groups(computation: Computation, mesh: DeviceMesh, channel: int = 1) -> Computation:
    """The computation with groups of partition ids for the axis names of its collectives, at any depth."""
    known: dict[int, Computation] = {}

    def visit(one: Computation) -> Computation:
        if id(one) not in known:
            known[id(one)] = _changed(one, mesh, channel, visit)
        return known[id(one)]

    return visit(computation)


def _changed(computation: Computation, mesh: DeviceMesh, channel: int, visit) -> Computation:
    builder = Builder(computation.name)
    builder.parameters = list(computation.parameters)
    mapped: dict[Instruction, Instruction] = {}
    for instruction in computation.instructions:
        new = instruction.replaced(mapped, {id(c): visit(c) for c in instruction.called()})
        if new.attributes.get("axis_name"):
            with builder.provenance(instruction, "axes"):
                new = _grouped(builder, new, mesh, channel)
        else:
            builder.add(new)
        if new is not instruction:
            mapped[instruction] = new
    if not mapped:
        return computation
    return builder.finish(mapped.get(computation.root, computation.root))


def _grouped(builder: Builder, instruction: Instruction, mesh: DeviceMesh, channel: int) -> Instruction:
    attributes = instruction.attributes
    axes = mesh_axes(mesh, attributes["axis_name"], instruction.opcode)
    if mesh.axis_size(*axes) == 1:
        return _alone(builder, instruction)
    if instruction.opcode in ("partition-id", "replica-id"):
        return _number(builder, mesh, axes)
    groups = mesh.groups(axes)
    made = {k: v for k, v in attributes.items() if k not in HIDDEN}
    made["channel_id"] = channel
    if instruction.opcode == "collective-permute":
        pairs = attributes["source_target_pairs"]
        made["source_target_pairs"] = tuple((g[s], g[t]) for g in groups for s, t in pairs)
    else:
        if attributes.get("axis_groups"):
            groups = tuple(tuple(g[k] for k in own) for g in groups for own in attributes["axis_groups"])
        if instruction.opcode == "collective-broadcast":
            source = attributes.get("axis_source", 0)
            groups = tuple((g[source], *g[:source], *g[source + 1 :]) for g in groups)
        made |= {"replica_groups": groups, "use_global_device_ids": True}
        if instruction.opcode in ("all-to-all", "collective-broadcast"):
            del made["use_global_device_ids"]  # with a channel these count partitions
    new = Instruction(
        instruction.opcode, instruction.operands, instruction.shape, made, instruction.hint, instruction.source,
        instruction.made_by,
    )  # fmt: skip
    new.sharding = instruction.sharding
    return builder.add(new)


def _alone(builder: Builder, instruction: Instruction) -> Instruction:
    """The result of a collective among one device: its operands, without communication."""
    operands, shape = instruction.operands, instruction.shape
    if instruction.opcode in ("partition-id", "replica-id"):
        return builder.constant(np.uint32(0), U32)
    if instruction.opcode == "collective-permute" and (0, 0) not in instruction["source_target_pairs"]:
        return builder.splat(0, shape)  # zero without a sender
    if isinstance(shape, TupleShape):
        return builder.tuple(list(operands))
    return operands[0] if operands[0].shape == shape else builder.emit("reshape", operands[0], shape=shape)


def _number(builder: Builder, mesh: DeviceMesh, axes: tuple[str, ...]) -> Instruction:
    """The position of a partition along axes, the last axis fastest."""
    own = builder.emit("partition-id")
    numbers = [0] * mesh.size
    for partition in range(mesh.size):
        at = mesh.coordinates(partition)
        for name in axes:
            numbers[partition] = numbers[partition] * mesh.axis_size(name) + at[name]
    size, stride = mesh.axis_size(*axes), next((k for k, n in enumerate(numbers) if n == 1), mesh.size)
    if numbers == [k // stride % size for k in range(mesh.size)]:
        for opcode, number in (("divide", stride), ("remainder", size)):
            own = builder.emit(opcode, own, builder.constant(np.uint32(number), U32))
        return own
    table = builder.constant(np.array(numbers, np.uint32), U32)
    found = builder.emit("dynamic-slice", table, own, dynamic_slice_sizes=(1,))
    return builder.emit("reshape", found, shape=Shape(U32))
