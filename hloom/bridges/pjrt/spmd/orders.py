"""Programs whose arguments or results use a different device order than the program's mesh: `device_put` from one mesh
to another, for example. The devices' parts are permuted at the boundary of the program.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.compiler.passes.spmd.meshes import annotated, common_axes, programs
from hloom.ir.build import Builder, tuple_elements
from hloom.ir.module import Instruction, Module, map_module
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import Shape, TupleShape

__all__ = ["in_one_order"]


def in_one_order(module: Module) -> Module:
    """The module with all arguments and results laid out over one mesh; the same where they are, or where the axes of
    another mesh are not as large as its own."""
    mesh = _mesh(module)
    if mesh is None:
        return module
    entry = module.entry
    results = list(entry.root.operands) if isinstance(entry.root.shape, TupleShape) else [entry.root]
    given = [p.sharding for p in entry.parameters]
    stated = list(entry.root.sharding) if isinstance(entry.root.sharding, tuple) else [r.sharding for r in results]
    turned = [[_turned(mesh, sharding) for sharding in side] for side in (given, stated)]
    if not any(found is not None for side in turned for found in side):
        return module
    builder = Builder(entry.name)
    inner = map_module(module, lambda instruction: _laid_out(mesh, instruction)).entry
    arguments = []
    for parameter, found in zip(entry.parameters, turned[0], strict=True):
        made = builder.parameter(parameter.shape, parameter.hint, parameter.source)
        made.sharding = parameter.sharding if found is None else found
        arguments.append(made if found is None else _moved(builder, made, found, _pairs(parameter.sharding.mesh, mesh)))
    values = tuple_elements(builder, builder.inline(inner, arguments))
    for k, found in enumerate(turned[1]):
        if found is not None:
            values[k] = _moved(builder, values[k], found, _pairs(mesh, stated[k].mesh))
            stated[k] = found
    if isinstance(entry.root.shape, TupleShape):
        root = builder.tuple(values)
        root.sharding = tuple(stated)
    else:
        root = builder.emit("copy", values[0])
        root.sharding = stated[0]
    return module.with_entry(builder.finish(root))


def _mesh(module: Module) -> DeviceMesh | None:
    """The mesh that the program is laid out over, with axes of prime size."""
    found = [i for computation in programs(module) for i in computation.instructions]
    manual = [i for i in found if i.opcode == "manual-computation"]
    meshes = (sharding.mesh for _, sharding in (*annotated(manual), *annotated(found)))
    return next((mesh.atomic() for mesh in meshes if mesh.size == module.partitions and mesh.names), None)


def _turned(mesh: DeviceMesh, sharding: Sharding | None) -> Sharding | None:
    """The sharding over the mesh that a value has after its parts are permuted; None if no permutation is needed."""
    if sharding is None or sharding.mesh.size != mesh.size or not sharding.axes:
        return None
    own = sharding.atomic()
    names = [n for n in own.mesh.names if own.mesh.axis_size(n) > 1]
    ours = [n for n in mesh.names if mesh.axis_size(n) > 1]
    sizes = [[m.axis_size(n) for n in axes] for m, axes in ((own.mesh, names), (mesh, ours))]
    if common_axes(mesh, own.mesh) is not None or sizes[0] != sizes[1]:
        return None
    as_ours = dict(zip(names, ours, strict=True))

    def renamed(axes: Sequence[str]) -> tuple[str, ...]:
        return tuple(as_ours[axis] for axis in axes if axis in as_ours)

    return Sharding(mesh, tuple(map(renamed, own.dims)), renamed(own.unreduced))


def _laid_out(mesh: DeviceMesh, instruction: Instruction) -> Instruction:
    """An instruction inside the program: there the device order does not matter, only which dimensions are split."""
    own = instruction.sharding
    stated = instruction.attributes.get("sharding")
    of_result = _turned(mesh, own) if isinstance(own, Sharding) else None
    of_attribute = _turned(mesh, stated) if isinstance(stated, Sharding) else None
    if of_result is None and of_attribute is None:
        return instruction
    attributes = {} if of_attribute is None else {"sharding": of_attribute}
    made = instruction.with_operands(instruction.operands, **attributes)
    made.sharding = own if of_result is None else of_result
    return made


def _pairs(source: DeviceMesh, target: DeviceMesh) -> tuple[tuple[int, int], ...]:
    """From the device at each place of one mesh to that of the other."""
    ids = [mesh.device_ids or range(mesh.size) for mesh in (source, target)]
    return tuple(zip(*ids, strict=True))


def _moved(builder: Builder, value: Instruction, sharding: Sharding, pairs: tuple[tuple[int, int], ...]) -> Instruction:
    body = Builder("moved")
    part = body.parameter(Shape(value.dtype, sharding.local_dims(value.dims)))
    sent = body.emit("collective-permute", part, source_target_pairs=pairs, channel_id=1)
    return builder.emit(
        "manual-computation", value, to_apply=body.finish(sent), in_shardings=(sharding,), out_shardings=(sharding,),
        manual_axes=sharding.mesh.names,
    )  # fmt: skip
