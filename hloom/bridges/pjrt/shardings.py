"""Programs for several devices: how their arguments and results are laid out, as jax's annotations (Shardy's) say.

The devices of a client share the host's memory, so that such a program runs once, on whole arrays, with all threads:
native code joins the parts of arguments and hands out the parts of results, without a copy where they lie in one
another's order (`hloom.runtime.pjrt.spread`). A layout that nobody stated is what Shardy's propagation finds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax._src.lib import xla_client
from jaxlib import _jax
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import sdy

from hloom.bridges.pjrt.protobuf import field, fields
from hloom.errors import UnsupportedError
from hloom.ir.records import record

__all__ = ["MANUAL", "Layout", "Layouts", "annotate_manual", "layouts"]

MANUAL = "hloom.manual"  # the attribute by which `annotate_manual` says what a manual computation splits
_PROPAGATION = "builtin.module(sdy-propagation-pipeline)"


@record(frozen=True)
class Layout:
    """Which part of an array each device has.

    parts: into how many each dimension is split. at: for each device the number of its part of each dimension. sums: 0,
    or the number of partial sums that devices hold: parts and at then begin with a dimension of that size, along which
    the array is the sum.
    """

    parts: tuple[int, ...]
    at: tuple[tuple[int, ...], ...]
    sums: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether every device has all of the array."""
        return math.prod(self.parts) == 1

    def local(self, dims: Sequence[int]) -> tuple[int, ...]:
        """The dims of a part of an array of these dims."""
        return tuple(d // p for d, p in zip(dims, self.parts[bool(self.sums) :], strict=True))

    def proto(self) -> Any:
        """As an OpSharding."""
        made = xla_client.OpSharding()
        if self.is_whole:
            made.type = xla_client.OpSharding.Type.REPLICATED
            return made
        lead = int(self.sums > 0)
        order = sorted(range(len(self.at)), key=lambda device: (self.at[device][lead:], self.at[device], device))
        copies = len(order) // math.prod(self.parts)
        rest = [(self.sums, xla_client.OpSharding.Type.UNREDUCED), (copies, xla_client.OpSharding.Type.REPLICATED)]
        rest = [(count, kind) for count, kind in rest if count > 1]
        made.type = xla_client.OpSharding.Type.OTHER
        made.tile_assignment_dimensions = [*self.parts[lead:], *(count for count, _ in rest)]
        made.tile_assignment_devices = order
        made.last_tile_dims = [kind for _, kind in rest]
        return made


@record(frozen=True)
class Layouts:
    """Those of a program's arguments and results; and, for jax, a program of the same signature that states them
    (HloModuleProtoWithConfig)."""

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    signature: bytes


class _Mesh:
    """Named axes over devices."""

    def __init__(self, attribute: ir.Attribute, devices: int):
        found = sdy.MeshAttr(attribute)
        axes = [sdy.MeshAxisAttr(axis) for axis in found.axes]
        self.sizes = {axis.name: axis.size for axis in axes}
        ids = list(found.device_ids) or list(range(math.prod(self.sizes.values())))
        self.ids = ids if self.sizes and len(ids) == devices else list(range(devices))
        self.devices = devices
        position = {device: k for k, device in enumerate(self.ids)}
        shape = tuple(self.sizes.values()) if self.sizes else (devices,)
        places = [np.unravel_index(position[device], shape) for device in range(devices)]
        self.places = [dict(zip(self.sizes, map(int, place), strict=False)) for place in places]  # by device

    def part(self, device: int, axes: Sequence[tuple[str, int, int]]) -> int:
        """The number of a device's part where axes (name, product of the parts of the axis before it, size) split."""
        number = 0
        for name, before, size in axes:
            number = number * size + self.places[device][name] // (self.sizes[name] // (before * size)) % size
        return number


def _name(op: Any) -> str:
    """The symbol that an operation of a module defines."""
    return op.operation.attributes["sym_name"].value


def _meshes(module: ir.Module, devices: int) -> dict[str, _Mesh]:
    found = {}
    for op in module.body.operations:
        if op.operation.name == "sdy.mesh":
            attributes = op.operation.attributes
            found[_name(op)] = _Mesh(attributes["mesh"], devices)
    return found


def _axes(sharding: Any, mesh: _Mesh) -> list[list[tuple[str, int, int]]]:
    """For each dimension the axes that split it: (name, product of the parts of the axis before it, size)."""
    dimensions = map(sdy.DimensionShardingAttr, sharding.dimension_shardings)
    return [[_axis(axis, mesh) for axis in dimension.axes] for dimension in dimensions]


def _axis(attribute: Any, mesh: _Mesh) -> tuple[str, int, int]:
    axis = sdy.AxisRefAttr(attribute)
    part = sdy.SubAxisInfoAttr(axis.sub_axis_info) if axis.sub_axis_info else None
    return (axis.name, part.pre_size, part.size) if part else (axis.name, 1, mesh.sizes[axis.name])


def _mesh_of(sharding: Any, meshes: dict[str, _Mesh], devices: int) -> _Mesh:
    named = sharding.mesh_or_ref
    if isinstance(named, ir.FlatSymbolRefAttr):
        return meshes[named.value]
    return _Mesh(named, devices)


def _layout(attribute: Any, dims: Sequence[int], meshes: dict[str, _Mesh], devices: int) -> Layout:
    """The layout of an array by its attribute `sdy.sharding`, or None for one that every device has all of. A
    dimension that its axes do not divide is whole."""
    if attribute is None:
        return Layout((1,) * len(dims), ((0,) * len(dims),) * devices)
    sharding = sdy.TensorShardingAttr(attribute)
    mesh = _mesh_of(sharding, meshes, devices)
    axes = [
        row if size % math.prod(axis[2] for axis in row) == 0 else []
        for row, size in zip(_axes(sharding, mesh), dims, strict=True)
    ]
    partial = [_axis(axis, mesh) for axis in sharding.unreduced_axes]
    if partial:
        axes.insert(0, partial)
    parts = tuple(math.prod(axis[2] for axis in row) for row in axes)
    at = tuple(tuple(mesh.part(device, row) for row in axes) for device in range(devices))
    return Layout(parts, at, parts[0] if partial else 0)


def _main(module: ir.Module) -> Any:
    for op in module.body.operations:
        if op.operation.name == "func.func" and _name(op) == "main":
            return op
    raise UnsupportedError("a program of jax", "no function main", "lower it by jax", "")


def _stated(function: Any, name: str, count: int) -> list[dict[str, Any]]:
    """The attributes of each argument (`arg_attrs`) or result (`res_attrs`) of a function."""
    attributes = function.operation.attributes
    if name not in attributes:
        return [{} for _ in range(count)]
    rows: list[Any] = [ir.DictAttr(row) for row in ir.ArrayAttr(attributes[name])]
    return [{pair.name: pair.attr for pair in row} for row in rows]


def _dims(types: Sequence[Any]) -> list[tuple[int, ...]]:
    """The dims of arrays; none of tokens."""
    return [tuple(t.shape) if isinstance(t, ir.RankedTensorType) else () for t in types]


def layouts(module: ir.Module, devices: int, may_choose: Sequence[bool]) -> Layouts:
    """The layouts of a program's arguments and results. An argument without one is whole on every device; a result
    without one gets what propagation finds, where jax lets the compiler choose (may_choose: for all, or for each)."""
    function = _main(module)
    kind = ir.FunctionType(ir.TypeAttr(function.operation.attributes["function_type"]).value)
    inputs, outputs = _dims(kind.inputs), _dims(kind.results)
    meshes = _meshes(module, devices)
    given = [row.get("sdy.sharding") for row in _stated(function, "arg_attrs", len(inputs))]
    found = [row.get("sdy.sharding") for row in _stated(function, "res_attrs", len(outputs))]
    allowed = [*may_choose] * len(outputs) if len(may_choose) == 1 else [*may_choose]
    allowed += [False] * (len(outputs) - len(allowed))
    if meshes and any(may and attribute is None for may, attribute in zip(allowed, found, strict=True)):
        chosen = _propagated(module, given, inputs)
        found = [own or (other if may else None) for own, other, may in zip(found, chosen, allowed, strict=True)]
    ins = tuple(_layout(a, d, meshes, devices) for a, d in zip(given, inputs, strict=True))
    outs = tuple(_layout(a, d, meshes, devices) for a, d in zip(found, outputs, strict=True))
    return Layouts(ins, outs, _signature(kind, ins, outs, devices))


def _propagated(module: ir.Module, given: Sequence[Any], inputs: Sequence[tuple[int, ...]]) -> list[Any]:
    """The shardings of the results after Shardy's propagation, in which arguments without one are replicated."""
    copy = ir.Module.parse(str(module.operation.get_asm(enable_debug_info=False)))
    function = _main(copy)
    name = next(_name(op) for op in copy.body.operations if op.operation.name == "sdy.mesh")
    rows = []
    for row, own, dims in zip(_stated(function, "arg_attrs", len(inputs)), given, inputs, strict=True):
        closed = ir.Attribute.parse(f"#sdy.sharding<@{name}, [{', '.join('{}' for _ in dims)}]>")
        rows.append(ir.DictAttr.get(row if own is not None else {**row, "sdy.sharding": closed}))
    function.operation.attributes["arg_attrs"] = ir.ArrayAttr.get(rows)
    passmanager.PassManager.parse(_PROPAGATION).run(copy.operation)
    count = len(ir.FunctionType(ir.TypeAttr(function.operation.attributes["function_type"]).value).results)
    return [row.get("sdy.sharding") for row in _stated(_main(copy), "res_attrs", count)]


# Fields of HloModuleProto, and of HloModuleProtoWithConfig with its HloModuleConfigProto.
_PROGRAM_SHAPE, _OUTPUT_SHARDING, _INPUT_SHARDING = 4, 12, 14
_MODULE, _CONFIG, _LAYOUT, _REPLICAS, _PARTITIONS = 1, 2, 1, 4, 5


def _signature(kind: Any, inputs: Sequence[Layout], outputs: Sequence[Layout], devices: int) -> bytes:
    """A program that takes and returns the same arrays, in these layouts."""
    arguments = [f"%arg{k}: {t}" for k, t in enumerate(kind.inputs)]
    names = [f"%r{k}" for k in range(len(outputs))]
    lines = [
        f'{name} = "stablehlo.custom_call"() {{call_target_name = "hloom"}} : () -> {t}'
        for name, t in zip(names, kind.results, strict=True)
    ]
    last = f"return {', '.join(names)} : {', '.join(map(str, kind.results))}" if names else "return"
    head = f"func.func public @main({', '.join(arguments)}) -> ({', '.join(map(str, kind.results))})"
    text = f"module @main {{ {head} {{ {' '.join([*lines, last])} }} }}".replace("!stablehlo.token", "tensor<0xi1>")
    made = _jax.mlir.mlir_module_to_xla_computation(text, use_tuple_args=False, return_tuple=False)
    module = made.as_serialized_hlo_module_proto()
    shape = next(value for number, value in fields(module) if number == _PROGRAM_SHAPE and isinstance(value, bytes))
    results = xla_client.OpSharding()
    if len(outputs) == 1:
        results = outputs[0].proto()
    else:
        results.type = xla_client.OpSharding.Type.TUPLE
        results.tuple_shardings = [layout.proto() for layout in outputs]
    module += field(_OUTPUT_SHARDING, results.SerializeToString())
    module += b"".join(field(_INPUT_SHARDING, layout.proto().SerializeToString()) for layout in inputs)
    config = field(_LAYOUT, shape) + field(_REPLICAS, 1) + field(_PARTITIONS, devices)
    return field(_MODULE, module) + field(_CONFIG, config)


def annotate_manual(module: ir.Module, devices: int) -> None:
    """States what each manual computation (shard_map) splits, as JSON in an attribute: participants (their number),
    ids (the device of each one), where (the participant that each device is), axes (the sizes of the axes along which
    they count) and, for each operand and result, for each dimension the numbers of the axes that split it."""
    meshes = _meshes(module, devices)

    def visit(op: Any) -> Any:
        operation = op.operation if hasattr(op, "operation") else op
        if operation.name == "sdy.manual_computation":
            operation.attributes[MANUAL] = ir.StringAttr.get(json.dumps(_plan(operation, meshes, devices)))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)


def _plan(operation: Any, meshes: dict[str, _Mesh], devices: int) -> dict[str, Any]:
    attributes = operation.attributes
    ins, outs = (sdy.TensorShardingPerValueAttr(attributes[f"{side}_shardings"]).shardings for side in ("in", "out"))
    axes: Any = sdy.ManualAxesAttr(attributes["manual_axes"])
    manual = set(axes)
    stated = [sdy.TensorShardingAttr(sharding) for sharding in (*ins, *outs)]
    mesh = _mesh_of(stated[0], meshes, devices) if stated else next(iter(meshes.values()))
    names = [name for name in mesh.sizes if name in manual]
    sizes = [mesh.sizes[name] for name in names]
    where = [
        int(np.ravel_multi_index([mesh.places[device][name] for name in names], sizes)) if names else 0
        for device in range(devices)
    ]
    first = {participant: device for device, participant in reversed(list(enumerate(where)))}

    def split(sharding: Any) -> list[list[int]]:
        mesh = _mesh_of(sharding, meshes, devices)
        rows = [*_axes(sharding, mesh), [_axis(axis, mesh) for axis in sharding.unreduced_axes]]
        return [[names.index(axis[0]) for axis in row if axis[0] in manual] for row in rows]

    return {
        "participants": math.prod(sizes), "ids": [first[k] for k in range(math.prod(sizes))], "where": where,
        "axes": sizes, "operands": [split(s) for s in map(sdy.TensorShardingAttr, ins)],
        "results": [split(s) for s in map(sdy.TensorShardingAttr, outs)],
    }  # fmt: skip
