"""gather: windows of an array at computed positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hloom.ir.build import Placed, Value, scalar_computation
from hloom.ir.errors import AttributeValueError, DTypeError, ShapeError
from hloom.ir.module import Computation
from hloom.ir.op_table import No, op
from hloom.ir.ops.indexing.windows import Windows, computed_places, window_sizes
from hloom.ir.ops.rules import require_count, require_kind
from hloom.ir.sizes.expressions import greatest, least
from hloom.ir.spmd.factors import FactorRule, RuleBuilder
from hloom.ir.types import INTEGERS, PRED, Shape

# --- checks -------------------------------------------------------------------------------------------------------


def check_windows(name: str, w: Windows, names: tuple[str, ...], indices: Shape) -> None:
    """Raises DTypeError, ShapeError or AttributeValueError for inconsistent dimension numbers.

    names: the op's names of offset, collapsed, mapped, operand_batching, indices_batching.
    """
    rank, index_rank = len(w.operand), len(w.indices)
    if indices.dtype not in INTEGERS:
        raise DTypeError(f"{name} takes integer indexes", repr(indices), "convert them with astype('s32')")
    if not 0 <= w.vector <= index_rank:
        raise AttributeValueError(
            f"{name} takes index_vector_dim between 0 and the rank {index_rank} of the indexes",
            f"index_vector_dim={w.vector} of {indices!r}",
            "the last dimension is usual",
        )
    components = 1 if w.vector == index_rank else w.indices[w.vector]
    if len(w.mapped) != components:
        raise AttributeValueError(
            f"{name} takes in {names[2]} an operand dimension for each component of an index",
            f"{names[2]}={w.mapped}, {components} components in {indices!r}",
            "name as many dimensions as a start index has components",
        )
    for label, values, bound in (
        (names[0], w.offset, w.rank),
        (names[1], w.collapsed, rank),
        (names[2], w.mapped, rank),
        (names[3], w.operand_batching, rank),
        (names[4], w.indices_batching, index_rank),
    ):
        if len(set(values)) != len(values) or any(not 0 <= v < bound for v in values):
            raise AttributeValueError(
                f"{name} takes distinct dimensions between 0 and {bound - 1} in {label}", f"{values}", "check them"
            )
        if label != names[2] and label != names[4] and list(values) != sorted(values):
            raise AttributeValueError(f"{name} takes {label} in increasing order", f"{values}", "sort them")
    collapsed, mapped, batching = set(w.collapsed), set(w.mapped), set(w.operand_batching)
    if collapsed & batching or mapped & batching:
        raise AttributeValueError(
            f"{name}: {names[3]} are neither in {names[1]} nor in {names[2]}",
            f"{w.operand_batching}, {w.collapsed}, {w.mapped}",
            "name each dimension once",
        )
    if w.vector in w.indices_batching or len(w.operand_batching) != len(w.indices_batching):
        raise AttributeValueError(
            f"{name} takes as many {names[3]} as {names[4]}, the index vector's not among them",
            f"{w.operand_batching} and {w.indices_batching}, index_vector_dim={w.vector}",
            "pair each batching dimension of the operand with one of the indexes",
        )
    for a, b in zip(w.operand_batching, w.indices_batching, strict=True):
        if w.operand[a] != w.indices[b]:
            raise ShapeError(
                f"{name} takes batching dimensions of equal sizes",
                f"operand dimension {a} has {w.operand[a]}, indexes' dimension {b} has {w.indices[b]}",
                "make them equal",
            )
    if len(w.offset) != rank - len(collapsed) - len(batching):
        raise AttributeValueError(
            f"{name} takes in {names[0]} a position for each operand dimension that is neither collapsed nor batching",
            f"{names[0]}={w.offset}, {names[1]}={w.collapsed}, {names[3]}={w.operand_batching}, rank {rank}",
            f"name {rank - len(collapsed) - len(batching)}",
        )


# --- gather -------------------------------------------------------------------------------------------------------

GATHER_NAMES = (
    "offset_dims",
    "collapsed_slice_dims",
    "start_index_map",
    "operand_batching_dims",
    "start_indices_batching_dims",
)


def gather_windows(operand_dims, indices_dims, attributes) -> Windows:
    """The `Windows` for a gather's attributes."""
    offset, collapsed, mapped, batching, indices_batching = (tuple(attributes.get(n, ())) for n in GATHER_NAMES)
    sizes = tuple(attributes.get("slice_sizes", ()))
    vector = attributes.get("index_vector_dim", len(indices_dims))
    operand, indices = tuple(operand_dims), tuple(indices_dims)
    return Windows(operand, indices, offset, collapsed, mapped, batching, indices_batching, vector, sizes)


def gather_attributes(w: Windows, indices_are_sorted: bool = False) -> dict:
    """The attributes of a gather of these windows."""
    result: dict[str, Any] = dict(
        zip(GATHER_NAMES, (w.offset, w.collapsed, w.mapped, w.operand_batching, w.indices_batching), strict=True)
    )
    result |= {"index_vector_dim": w.vector, "slice_sizes": w.sizes}
    if indices_are_sorted:
        result["indices_are_sorted"] = True
    return result


def _gather_infer(operands, attributes, shape):
    require_count("gather", operands, 2)
    operand, indices = operands
    require_kind("gather", operand, ())
    require_kind("gather", indices, ())
    w = gather_windows(operand.dims, indices.dims, attributes)
    if len(w.sizes) != operand.rank or any(not 0 <= n <= d for n, d in zip(w.sizes, operand.dims, strict=True)):
        raise AttributeValueError(
            "gather takes a slice size between 0 and the size of each dimension of its operand",
            f"slice_sizes={w.sizes} of {operand!r}",
            "make the sizes fit",
        )
    check_windows("gather", w, GATHER_NAMES, indices)
    if any(w.sizes[d] != 1 for d in (*w.collapsed, *w.operand_batching) if not (w.sizes[d] == 0 == w.operand[d])):
        raise AttributeValueError(
            "gather takes slice size 1 in collapsed and batching dimensions",
            f"slice_sizes={w.sizes}, collapsed {w.collapsed}, batching {w.operand_batching}",
            "set these sizes to 1",
        )
    return operand.with_dims(w.dims())


def _gather_reference(operand, indices, shape, **attributes):
    w = gather_windows(operand.shape, indices.shape, attributes)
    if not shape.size:
        return np.empty(shape.dims, shape.dtype)
    starts = [np.clip(s, 0, limit) for s, limit in zip(w.starts(indices), w.limits(), strict=True)]
    lead = operand.ndim - w.trailing()
    rows = operand.reshape((math.prod(operand.shape[:lead]), *operand.shape[lead:]))
    found = np.take(rows, w.positions(starts), axis=0)
    return np.transpose(found, np.argsort(w.order()))


def _gather_jvp(build, instruction, primals, tangents):
    return tangents[0] and tangents[0].op("gather", primals[1], **instruction.attributes)


def _gather_transpose(build, instruction, g, operands):
    operand, indices = instruction.operands
    w = gather_windows(operand.dims, indices.dims, instruction.attributes)
    zeros = g.filled(0, operand.shape)
    attributes = scatter_attributes(w, scalar_computation("add", g.dtype), instruction.attributes)
    drops = instruction.attributes.get("drops_outside", False)
    indices = operands[1] if drops else clamped_indices(operands[1], w)

    def add_to(array):
        return array.op("scatter", indices, g, **attributes)

    return [Placed(add_to(zeros), add_to), None]


def clamped_indices(indices, w: Windows):
    """The indices with each start clamped, as in gather but not in scatter."""
    low, high = limit_arrays(indices.dtype, w)
    builder = indices.builder
    bounds = []
    for values in (low, high):
        if w.vector == len(w.indices):
            bounds.append(Value(builder, builder.splat(values[0], indices.shape)))
        else:
            line = Value(builder, builder.constant(values, indices.dtype))
            bounds.append(line.broadcast(indices.dims, (w.vector,)))
    return bounds[0].op("clamp", indices, bounds[1])


def limit_arrays(dtype, w: Windows) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest start of each component, in the indices' dtype."""
    largest = int(np.iinfo(dtype).max) if dtype.kind in "iu" else 7
    limits = [greatest(least(limit, largest), 0) for limit in w.limits()]
    return np.zeros(len(limits), dtype), np.asarray(limits, np.int64).astype(dtype)


def inside_mask(indices, w: Windows):
    """pred with the shape of the windows' array: whether the window is entirely within the operand."""
    _, high = limit_arrays(indices.dtype, w)
    builder = indices.builder
    dims = tuple(w.indices[d] for d in w.index_dimensions)
    inside = None
    for k, limit in enumerate(high):
        one = indices
        if w.vector != len(w.indices):
            bounds = tuple((k, k + 1, 1) if d == w.vector else (0, n, 1) for d, n in enumerate(w.indices))
            one = (indices.op("slice", slice=bounds) if len(high) > 1 else indices).reshape(dims)
        for bound, direction in ((0, "GE"), (limit, "LE")):
            condition = one.compare(direction, Value(builder, builder.splat(bound, one.shape)))
            inside = condition if inside is None else inside.op("and", condition)
    if inside is None:
        inside = Value(builder, builder.splat(True, Shape(PRED, dims)))
    return Value(
        builder,
        builder.emit("broadcast", inside.instruction, shape=Shape(PRED, w.dims()), dimensions=w.places),
    )


def _gather_batch(build, instruction, operands, mapped):
    operand, indices = operands
    w = gather_windows(instruction.operands[0].dims, instruction.operands[1].dims, instruction.attributes)
    batched = batch_windows(w, build.size, *mapped)
    attributes = gather_attributes(batched, not mapped[1] and instruction.attributes.get("indices_are_sorted", False))
    if instruction.attributes.get("drops_outside"):
        attributes["drops_outside"] = True
    return operand.op("gather", indices, **attributes)


def batch_windows(w: Windows, size: int, operand_mapped: bool, indices_mapped: bool) -> Windows:
    """The windows if the operand, the indices or both have an additional first dimension.

    The windows' array then has it as well.
    """

    def up(values):
        return tuple(v + 1 for v in values)

    operand, indices = w.operand, w.indices
    offset, collapsed, mapped, sizes = up(w.offset), w.collapsed, w.mapped, w.sizes
    batching, indices_batching, vector = w.operand_batching, w.indices_batching, w.vector
    if operand_mapped:
        operand = (size, *operand)
        collapsed, mapped, batching = up(collapsed), up(mapped), up(batching)
        if indices_mapped:
            batching, sizes = (0, *batching), (least(size, 1), *sizes)
        else:
            offset, sizes = (0, *offset), (size, *sizes)
    if indices_mapped:
        indices, vector = (size, *indices), vector + 1
        indices_batching = (0, *up(indices_batching)) if operand_mapped else up(indices_batching)
    return Windows(operand, indices, offset, collapsed, mapped, batching, indices_batching, vector, sizes)


def _gather_factors(instruction) -> FactorRule:
    """Batching dimensions, dimensions of the indices and full dimensions of the windows pass through. Along an indexed
    dimension each device gathers its local elements, and the results are summed."""
    operand, indices = instruction.operands
    w = gather_windows(operand.dims, indices.dims, instruction.attributes)
    rule = RuleBuilder(instruction)
    operand_of = dict(zip(w.indices_batching, w.operand_batching, strict=True))
    for place, d in zip(w.places, w.index_dimensions, strict=True):
        rule.add({0: operand_of[d], 1: d} if d in operand_of else {1: d}, {0: place})
    place_of = dict(zip(w.window_dimensions, w.offset, strict=True))
    for d, size in enumerate(w.operand):
        if d in place_of and w.sizes[d] == size:
            rule.add({0: d}, {0: place_of[d]})
        elif d in w.mapped:
            rule.add({0: d}, {}, "reduction", "masked")
    return rule.finish()


def _gather_bounded(build, instruction, operands):
    """Indices beyond a size are 0."""
    operand, indices = operands
    array, places = (o.dims for o in instruction.operands)
    w = gather_windows(array, places, instruction.attributes)
    attributes = {**instruction.attributes, "slice_sizes": window_sizes(instruction, w, operand.dims)}
    attributes.pop("indices_are_sorted", None)
    indices = build.masked(indices, places, computed_places(w), 0)
    return operand.op("gather", indices, **attributes)


op(
    "gather",
    family="index",
    infer=_gather_infer,
    reference=_gather_reference,
    code=No("moves elements: the kernel writer composes its index map"),
    jvp=_gather_jvp,
    transpose=_gather_transpose,
    batch=_gather_batch,
    factors=_gather_factors,
    bounded=_gather_bounded,
    attributes={
        "offset_dims": "ints",
        "collapsed_slice_dims": "ints",
        "start_index_map": "ints",
        "operand_batching_dims": "ints?",
        "start_indices_batching_dims": "ints?",
        "index_vector_dim": "int",
        "slice_sizes": "ints",
        "indices_are_sorted": "flag",
        "drops_outside": "frontend",  # the transpose ignores windows that the gather has clamped
    },
    flops=0,
    dialects="hlo",
)


SCATTER_NAMES = (
    "update_window_dims",
    "inserted_window_dims",
    "scatter_dims_to_operand_dims",
    "input_batching_dims",
    "scatter_indices_batching_dims",
)


def scatter_attributes(w: Windows, to_apply: Computation, like=None, unique: bool = False) -> dict:
    """The attributes of a scatter of these windows; sorted if `like`, the attributes of a gather or scatter, is."""
    result: dict[str, Any] = dict(
        zip(SCATTER_NAMES, (w.offset, w.collapsed, w.mapped, w.operand_batching, w.indices_batching), strict=True)
    )
    result["index_vector_dim"] = w.vector
    if like and like.get("indices_are_sorted"):
        result["indices_are_sorted"] = True
    if unique:
        result["unique_indices"] = True
    return {**result, "to_apply": to_apply}
