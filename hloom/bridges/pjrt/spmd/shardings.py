"""Programs for several devices: the layouts of their arguments and results, from jax's annotations (Shardy's).

hloom's passes partition such a program. Before that its signature is completed here, and reported to jax: an
unspecified layout of a result is determined by Shardy's propagation, as on jax's own devices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax._src.lib import xla_client
from jaxlib import _jax
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import sdy

from hloom.bridges.pjrt.decoding import text_of
from hloom.bridges.pjrt.protobuf import field, fields
from hloom.bridges.pjrt.spmd.gspmd import Annotations
from hloom.bridges.pjrt.spmd.layouts import Layout
from hloom.bridges.pjrt.spmd.partitioners import inferred
from hloom.errors import UnsupportedError
from hloom.ir.records import record
from hloom.ir.stablehlo.types import ELEMENT_NAME
from hloom.ir.types import HLO_NAME, Shape

__all__ = ["Layouts", "partitioned_program", "signature", "state_layouts"]

_MODE = "mhlo.layout_mode"
_PROPAGATION = "builtin.module(sdy-propagation-pipeline)"


@record(frozen=True)
class Layouts:
    """Those of a program's arguments and results. orders: of the arguments, then the results, the dimensions from minor
    to major that the program states: hloom's arrays have one order in memory, jax is told the stated one."""

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    orders: tuple[tuple[int, ...], ...]


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
        shape = tuple(self.sizes.values())
        self.places = [dict.fromkeys(self.sizes, 0)] * devices  # by device
        if (
            math.prod(shape) > 1
        ):  # one device in a program for several, as programs exported for one have: nothing is split
            places = [np.unravel_index(position[device], shape) for device in range(devices)]
            self.places = [dict(zip(self.sizes, map(int, place), strict=True)) for place in places]

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


def state_layouts(
    module: ir.Module, devices: int, free_inputs: Sequence[bool], free_outputs: Sequence[bool]
) -> Layouts:
    """The layouts of a program's arguments and results, which are also written into the module. One without a layout
    gets the result of propagation if jax lets the compiler choose (free_inputs, free_outputs: for all, or for each),
    and is replicated otherwise."""
    older = Annotations.of(module, devices) if devices > 1 else None
    if older is not None:
        older.rewrite_signature(module)
    function = _main(module)
    kind = ir.FunctionType(ir.TypeAttr(function.operation.attributes["function_type"]).value)
    inputs, outputs = _dims(kind.inputs), _dims(kind.results)
    meshes = _meshes(module, devices)
    given = [row.get("sdy.sharding") for row in _stated(function, "arg_attrs", len(inputs))]
    found = [row.get("sdy.sharding") for row in _stated(function, "res_attrs", len(outputs))]
    free = [
        [_is_open(attribute) and may for attribute, may in zip(stated, _for_each(allowed, len(stated)), strict=True)]
        for stated, allowed in ((given, free_inputs), (found, free_outputs))
    ]
    if meshes and any(map(any, free)):
        chosen = _propagated(module, given, inputs, free[0], older)
        given, found = (
            [other if may else own for own, other, may in zip(*each, strict=True)]
            for each in zip((given, found), chosen, free, strict=True)
        )
    sides = ("arg_attrs", len(inputs)), ("res_attrs", len(outputs))
    modes = [row.get(_MODE) for side in sides for row in _stated(function, *side)]
    orders = tuple(_order(mode, len(dims)) for mode, dims in zip(modes, (*inputs, *outputs), strict=True))
    mesh = next((name for name, mesh in meshes.items() if mesh.sizes and len(mesh.ids) == devices), None)
    _state(function, "arg_attrs", given, inputs, mesh, meshes, devices)
    _state(function, "res_attrs", found, outputs, mesh, meshes, devices)
    ins = tuple(_layout(a, d, meshes, devices) for a, d in zip(given, inputs, strict=True))
    outs = tuple(_layout(a, d, meshes, devices) for a, d in zip(found, outputs, strict=True))
    return Layouts(ins, outs, orders)


def _order(mode: Any, rank: int) -> tuple[int, ...]:
    """The dimensions from minor to major of a layout mode (`{0,1}`), which may leave the order to the compiler."""
    found = re.fullmatch(r"\{([0-9, ]*)\}.*", ir.StringAttr(mode).value) if mode is not None else None
    return tuple(int(d) for d in found[1].split(",") if d.strip()) if found else tuple(reversed(range(rank)))


def _for_each(allowed: Sequence[bool], count: int) -> list[bool]:
    given = [*allowed] * count if len(allowed) == 1 else [*allowed]
    return (given + [False] * count)[:count]


def _is_open(attribute: Any) -> bool:
    """Whether an array without this layout, or with it, may be split further."""
    if attribute is None:
        return True
    return any(
        not d.is_closed for d in map(sdy.DimensionShardingAttr, sdy.TensorShardingAttr(attribute).dimension_shardings)
    )


def _state(
    function: Any, name: str, found: Sequence[Any], shapes: Sequence[tuple[int, ...]], mesh: str | None,
    meshes: dict[str, _Mesh], devices: int,
) -> None:  # fmt: skip
    """Writes the layouts of arguments or results into a function, closed: axes do not split what they do not divide."""
    if mesh is None:
        return
    rows = []
    for row, attribute, dims in zip(_stated(function, name, len(shapes)), found, shapes, strict=True):
        axes: list[list[Any]] = [[] for _ in dims]
        named: Any = ir.FlatSymbolRefAttr.get(mesh)
        unreduced: Any = []
        if attribute is not None:
            sharding = sdy.TensorShardingAttr(attribute)
            if _mesh_of(sharding, meshes, devices).sizes:
                named, unreduced = sharding.mesh_or_ref, list(sharding.unreduced_axes)
                own = [list(d.axes) for d in map(sdy.DimensionShardingAttr, sharding.dimension_shardings)]
                parts = _layout(attribute, dims, meshes, devices).parts[bool(unreduced) :]
                axes = [row if part > 1 else [] for row, part in zip(own, parts, strict=True)]
        stated = [sdy.DimensionShardingAttr.get(row, is_closed=True) for row in axes]
        closed = sdy.TensorShardingAttr.get(named, stated, unreduced_axes=unreduced)
        rows.append(ir.DictAttr.get({**row, "sdy.sharding": closed}))
    function.operation.attributes[name] = ir.ArrayAttr.get(rows)


def _propagated(
    module: ir.Module, given: Sequence[Any], inputs: Sequence[tuple[int, ...]], free: Sequence[bool],
    older: Annotations | None,
) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """The shardings of arguments and results after Shardy's propagation, in which arguments without one are replicated
    unless they are free. After hloom's where functions that only the older partitioner asks take part."""
    copy = ir.Module.parse(str(module.operation.get_asm(enable_debug_info=False)))
    function = _main(copy)
    name = next(_name(op) for op in copy.body.operations if op.operation.name == "sdy.mesh")
    rows = []
    for row, own, dims, may in zip(_stated(function, "arg_attrs", len(inputs)), given, inputs, free, strict=True):
        closed = ir.Attribute.parse(f"#sdy.sharding<@{name}, [{', '.join('{}' for _ in dims)}]>")
        rows.append(ir.DictAttr.get(row if own is not None or may else {**row, "sdy.sharding": closed}))
    function.operation.attributes["arg_attrs"] = ir.ArrayAttr.get(rows)
    if older is not None:
        ours = inferred(text_of(copy), older.devices)
        if ours is not None:
            return older.stated(ours[0]), older.stated(ours[1])
        older.rewrite(copy)
    passmanager.PassManager.parse(_PROPAGATION).run(copy.operation)
    count = len(ir.FunctionType(ir.TypeAttr(function.operation.attributes["function_type"]).value).results)
    made = _main(copy)
    sides = ("arg_attrs", len(inputs)), ("res_attrs", count)
    given, found = ([row.get("sdy.sharding") for row in _stated(made, *side)] for side in sides)
    return given, found


# Fields of ProgramShapeProto, ShapeProto and LayoutProto.
_PARAMETER, _RESULT, _ELEMENT, _ORDER, _MINOR_TO_MAJOR = 1, 2, 4, 5, 1


def _ordered(shape: bytes, orders: Sequence[tuple[int, ...]]) -> bytes:
    """A ProgramShapeProto in which arrays have these orders: of parameters, then of results."""
    left = iter(orders)

    def array(data: bytes, order: tuple[int, ...]) -> bytes:
        if not order:  # also of the empty array in place of a token
            return data
        kept = b"".join(field(number, value) for number, value in fields(data) if number != _ORDER)
        return kept + field(_ORDER, field(_MINOR_TO_MAJOR, bytes(order)))

    def result(data: bytes) -> bytes:
        elements = [number for number, _ in fields(data) if number == _ELEMENT]
        if not elements:
            return array(data, next(left, ()))
        return b"".join(
            field(number, array(value, next(left, ())) if number == _ELEMENT and isinstance(value, bytes) else value)
            for number, value in fields(data)
        )

    made = b""
    for number, value in fields(shape):
        if number == _PARAMETER and isinstance(value, bytes):
            value = array(value, next(left, ()))
        elif number == _RESULT and isinstance(value, bytes):
            value = result(value)
        made += field(number, value)
    return made


# Fields of HloModuleProto, and of HloModuleProtoWithConfig with its HloModuleConfigProto.
_PROGRAM_SHAPE, _OUTPUT_SHARDING, _INPUT_SHARDING = 4, 12, 14
_MODULE, _CONFIG, _LAYOUT, _REPLICAS, _PARTITIONS = 1, 2, 1, 4, 5


def partitioned_program(text: str, found: Layouts, devices: int) -> bytes:
    """The program of each device, in StableHLO, as jax reads it (HloModuleProtoWithConfig), with the layouts of its
    arguments and results. Raises ValueError for programs that XLA cannot read."""
    made = _jax.mlir.mlir_module_to_xla_computation(text, use_tuple_args=False, return_tuple=False)
    stated = (_OUTPUT_SHARDING, _INPUT_SHARDING)
    module = b"".join(
        field(number, value) for number, value in fields(made.as_serialized_hlo_module_proto()) if number not in stated
    )
    shape = next(value for number, value in fields(module) if number == _PROGRAM_SHAPE and isinstance(value, bytes))
    results = xla_client.OpSharding()
    if not found.outputs:
        results.type = xla_client.OpSharding.Type.REPLICATED
    elif len(found.outputs) == 1:
        results = found.outputs[0].proto()
    else:
        results.type = xla_client.OpSharding.Type.TUPLE
        results.tuple_shardings = [layout.proto() for layout in found.outputs]
    module += field(_OUTPUT_SHARDING, results.SerializeToString())
    module += b"".join(field(_INPUT_SHARDING, layout.proto().SerializeToString()) for layout in found.inputs)
    config = field(_LAYOUT, _ordered(shape, found.orders)) + field(_REPLICAS, 1) + field(_PARTITIONS, devices)
    return field(_MODULE, module) + field(_CONFIG, config)


def signature(inputs: Sequence[Shape], outputs: Sequence[Shape]) -> str:
    """A program, in StableHLO, that takes and returns such arrays."""

    def tensor(shape: Shape) -> str:
        return f"tensor<{''.join(f'{d}x' for d in shape.dims)}{ELEMENT_NAME[HLO_NAME[shape.dtype]]}>"

    arguments = ", ".join(f"%arg{k}: {tensor(shape)}" for k, shape in enumerate(inputs))
    names, types = ", ".join(f"%r{k}" for k in range(len(outputs))), ", ".join(map(tensor, outputs))
    lines = [
        f'%r{k} = "stablehlo.custom_call"() {{call_target_name = "hloom"}} : () -> {tensor(shape)}'
        for k, shape in enumerate(outputs)
    ]
    last = f"return {names} : {types}" if outputs else "return"
    return f"module @main {{ func.func public @main({arguments}) -> ({types}) {{ {' '.join([*lines, last])} }} }}"
