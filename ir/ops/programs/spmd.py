"""User-specified layouts over the devices of a mesh: constraints and manual computations.

`sharding-constraint` is the identity with a layout that propagation must keep. `manual-computation` runs a computation
on each device, on its parts of the operands, like shard_map and Shardy's manual_computation. Partitioning removes both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hloom.ir.errors import AttributeValueError, ShapeError
from hloom.ir.module import Computation, Module
from hloom.ir.op_table import No, op
from hloom.ir.ops.rules import linear_jvp, require_count, require_kind
from hloom.ir.records import replace
from hloom.ir.spmd.axes import with_groups
from hloom.ir.spmd.checks import check_axes, check_mesh, check_sharding
from hloom.ir.spmd.factors import pointwise
from hloom.ir.spmd.interpret import run_spmd
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import Shape, TupleShape, result_shapes

PARTITIONED = No("the partition of the program replaces it")

# Rules of differentiation and batching of manual computations, which change the called computation: registered here by
# `hloom.compiler.transforms` before its first use.
RULES: dict[str, Callable] = {}


def with_dimension(sharding: Sharding) -> Sharding:
    """The sharding of an array with an additional first dimension, which is not split."""
    priorities = (0, *sharding.priorities) if sharding.priorities else ()
    opened = tuple(d + 1 for d in sharding.open)
    return replace(sharding, dims=((), *sharding.dims), open=opened, priorities=priorities)


def names_mesh(instruction) -> bool:
    """Whether an instruction specifies the devices of its program."""
    return instruction.sharding is not None or instruction.opcode in ("sharding-constraint", "manual-computation")


# --- sharding-constraint ------------------------------------------------------------------------------------------


def _constraint_infer(operands, attributes, shape):
    require_count("sharding-constraint", operands, 1)
    require_kind("sharding-constraint", operands[0], ())
    check_sharding("sharding-constraint", attributes.get("sharding"), operands[0])
    return operands[0]


def _constraint_transpose(build, instruction, g, operands):
    return [g.op("sharding-constraint", **instruction.attributes)]


def _constraint_batch(build, instruction, operands, mapped):
    attributes = {**instruction.attributes, "sharding": with_dimension(instruction["sharding"])}
    return operands[0].op("sharding-constraint", **attributes)


# The sharding of its result and, unless specified otherwise, of its operand.
op(
    "sharding-constraint",
    family="structure",
    text="hloom.sharding_constraint",
    infer=_constraint_infer,
    reference=lambda x, shape, sharding: np.asarray(x),
    code=PARTITIONED,
    jvp=linear_jvp,
    transpose=_constraint_transpose,
    batch=_constraint_batch,
    attributes={"sharding": "frontend_sharding"},
    factors=pointwise,
    flops=0,
)

# --- manual-computation -------------------------------------------------------------------------------------------


def manual_mesh(attributes) -> DeviceMesh:
    """The mesh over whose axes a manual computation is split."""
    return (*attributes["in_shardings"], *attributes["out_shardings"])[0].mesh


def manual_part(sharding: Sharding, manual_axes) -> Sharding:
    """The part of a sharding over the manual axes."""
    dims = tuple(tuple(n for n in axes if n in manual_axes) for axes in sharding.dims)
    return Sharding(sharding.mesh, dims, tuple(n for n in sharding.unreduced if n in manual_axes))


def manual_shape(shape: Shape, sharding: Sharding, manual_axes) -> Shape:
    """The shape of an array's parts along the manual axes. Raises ShapeError if the parts are not equal."""
    part = manual_part(sharding, manual_axes)
    for d, size in enumerate(shape.dims):
        if size % part.count(d):
            raise ShapeError(
                f"manual-computation splits dimension {d} of {shape!r} along {', '.join(part.dims[d])} in "
                f"{part.count(d)} parts",
                f"{size} is not a multiple of {part.count(d)}",
                "pad the array, or leave the dimension whole",
            )
    return shape.with_dims(part.local_dims(shape.dims))


def _global_shape(shape: Shape, sharding: Sharding, manual_axes) -> Shape:
    part = manual_part(sharding, manual_axes)
    return shape.with_dims(size * part.count(d) for d, size in enumerate(shape.dims))


def _check_manual(what: str, sharding: Sharding, mesh: DeviceMesh, shape: Shape, manual_axes) -> None:
    require_kind("manual-computation", shape, ())
    check_sharding(what, sharding, shape)
    if sharding.mesh != mesh:
        raise AttributeValueError(
            f"{what}: all shardings of a manual-computation are over one mesh",
            f"{sharding.mesh.names} of sizes {sharding.mesh.sizes}, and {mesh.names} of sizes {mesh.sizes}",
            "use one mesh",
        )
    for axes in sharding.dims:
        manual = [n in manual_axes for n in axes]
        if manual != sorted(manual, reverse=True):
            raise AttributeValueError(
                f"{what}: manual axes split a dimension before other axes do", f"{axes}", "put manual axes first"
            )


def _manual_infer(operands, attributes, shape):
    body = attributes.get("to_apply")
    given, found = attributes.get("in_shardings", ()), attributes.get("out_shardings", ())
    manual_axes = attributes.get("manual_axes", ())
    if not isinstance(body, Computation):
        raise AttributeValueError("manual-computation runs a computation", f"{body!r:.80}", "pass to_apply=")
    results = result_shapes(body.shape)
    if len(given) != len(operands) or len(found) != len(results) or not (given or found):
        raise AttributeValueError(
            f"manual-computation takes a sharding for each of {len(operands)} operands and {len(results)} results",
            f"{len(given)} in_shardings, {len(found)} out_shardings",
            "give one for each, and at least one with the mesh",
        )
    mesh = manual_mesh(attributes)
    check_mesh("manual-computation", mesh)
    check_axes("manual_axes of manual-computation", mesh, manual_axes)
    for k, (operand, sharding) in enumerate(zip(operands, given, strict=True)):
        _check_manual(f"operand {k} of manual-computation", sharding, mesh, operand, manual_axes)
    for k, (result, sharding) in enumerate(zip(results, found, strict=True)):
        _check_manual(f"result {k} of manual-computation", sharding, mesh, result, manual_axes)
    parts = [manual_shape(o, s, manual_axes) for o, s in zip(operands, given, strict=True)]
    if [p.shape for p in body.parameters] != parts:
        raise ShapeError(
            f"manual-computation hands '{body.name}' the parts of its operands: {', '.join(map(repr, parts))}",
            f"its parameters are {', '.join(repr(p.shape) for p in body.parameters)}",
            "make the computation for the parts",
        )
    whole = [_global_shape(r, s, manual_axes) for r, s in zip(results, found, strict=True)]
    return TupleShape(whole) if isinstance(body.shape, TupleShape) else whole[0]


def _taken(x: np.ndarray, sharding: Sharding, partition: int) -> np.ndarray:
    """The part of an array held by a partition; for partial sums, the first device along an axis holds everything."""
    part = x[sharding.region(partition, x.shape)]
    at = sharding.mesh.coordinates(partition)
    return np.zeros_like(part) if any(at[n] for n in sharding.unreduced) else part


def _joined(parts: Sequence[np.ndarray], sharding: Sharding, shape: Shape) -> np.ndarray:
    """An array assembled from the parts of all partitions; for axes that neither split it nor leave it unreduced, from
    the first partition along each."""
    whole = np.zeros(shape.dims, shape.dtype)
    known = (*sharding.axes, *sharding.unreduced)
    for partition, part in enumerate(parts):
        at = sharding.mesh.coordinates(partition)
        if not any(position for name, position in at.items() if name not in known):
            region = sharding.region(partition, shape.dims)
            whole[region] = whole[region] + part if sharding.unreduced else part
    return whole


def _manual_reference(*operands, shape, to_apply, in_shardings, out_shardings, manual_axes):
    mesh = (*in_shardings, *out_shardings)[0].mesh
    given = [manual_part(s, manual_axes) for s in in_shardings]
    body = Module("manual", with_groups(to_apply, mesh), partitions=mesh.size)
    taken = [[_taken(np.asarray(x), s, k) for x, s in zip(operands, given, strict=True)] for k in range(mesh.size)]
    results = run_spmd(body, taken)
    if not isinstance(shape, TupleShape):
        return _joined(results, manual_part(out_shardings[0], manual_axes), shape)
    elements = result_shapes(shape)
    columns = list(zip(*results, strict=True)) if elements else []
    return tuple(
        _joined(column, manual_part(s, manual_axes), element)
        for column, s, element in zip(columns, out_shardings, elements, strict=True)
    )


def _transform(part: str):
    return lambda build, instruction, *given: RULES[f"manual_{part}"](build, instruction, *given)


# Operands and results are whole arrays; the computation accepts and returns their parts along the manual axes. Its
# collectives name manual axes (`axis_name`, `axis_size`), or have groups of partition ids. A result that a manual axis
# does not split is equal on all devices along it, or, if the axis is `unreduced`, their sum.
op(
    "manual-computation",
    family="structure",
    text="hloom.manual_computation",
    infer=_manual_infer,
    reference=_manual_reference,
    code=PARTITIONED,
    jvp=_transform("jvp"),
    transpose=_transform("transpose"),
    batch=_transform("batch"),
    attributes={
        "to_apply": "computation",
        "in_shardings": "frontend_shardings",
        "out_shardings": "frontend_shardings",
        "manual_axes": "frontend_names",
    },
    factors=No("its operands and results have the shardings that it says"),
    flops=0,
)
