"""Pure data movement: broadcast, reshape, slice, pad, concatenate and related ops."""

from __future__ import annotations

import functools
import math

import numpy as np

from hloom.ir.build import Placed, Value
from hloom.ir.errors import AttributeValueError, DTypeError, ShapeError
from hloom.ir.op_table import No, op
from hloom.ir.ops import batching, bounding, factoring
from hloom.ir.ops.rules import linear_jvp, require_count, require_kind, require_shape, zero_jvp
from hloom.ir.sizes.expressions import greatest
from hloom.ir.spmd.factors import pointwise
from hloom.ir.types import DTYPES, INTEGERS, Shape

INDEX = No("moves elements: the kernel writer composes its index map")
_movement = functools.partial(op, family="index", code=INDEX, jvp=linear_jvp, flops=0, dialects="hlo")


def _permutation(name, dimensions, rank):
    if sorted(dimensions) != list(range(rank)):
        raise AttributeValueError(
            f"{name} takes a permutation of the {rank} dimensions", f"{tuple(dimensions)}", "name each dimension once"
        )


def _distinct(name, dimensions, rank):
    if len(set(dimensions)) != len(dimensions) or any(not 0 <= d < rank for d in dimensions):
        raise AttributeValueError(
            f"{name} takes distinct dimensions between 0 and {rank - 1}",
            f"{tuple(dimensions)}",
            f"the operand has rank {rank}",
        )


# --- broadcast, reshape, transpose, reverse -----------------------------------------------------------------------


def _broadcast_infer(operands, attributes, shape):
    require_count("broadcast", operands, 1)
    require_kind("broadcast", operands[0], ())
    require_shape("broadcast", shape)
    operand, dimensions = operands[0], attributes.get("dimensions", ())
    if len(dimensions) != operand.rank or list(dimensions) != sorted(set(dimensions)):
        raise AttributeValueError(
            "broadcast takes an increasing result dimension for each operand dimension",
            f"dimensions={tuple(dimensions)} for {operand!r}",
            "transpose first if the order changes",
        )
    for size, target in zip(operand.dims, dimensions, strict=True):
        if not 0 <= target < shape.rank or shape.dims[target] != size:
            raise ShapeError(
                "broadcast keeps the sizes of the operand's dimensions",
                f"{operand!r} to {shape!r} with dimensions={tuple(dimensions)}",
                "reshape dimensions of size 1 away before broadcasting",
            )
    if shape.dtype != operand.dtype:
        raise DTypeError("broadcast keeps the dtype", f"{operand!r} to {shape!r}", "convert separately")
    return shape


def _broadcast_reference(x, shape, dimensions):
    expanded = [1] * shape.rank
    for k, d in enumerate(dimensions):
        expanded[d] = x.shape[k]
    return np.broadcast_to(x.reshape(expanded), shape.dims)


_movement(
    "broadcast",
    infer=_broadcast_infer,
    reference=_broadcast_reference,
    transpose=lambda build, instruction, g, operands: [
        g.sum([d for d in range(len(g.dims)) if d not in instruction["dimensions"]])
    ],
    attributes={"dimensions": "ints"},
    shaped=True,
    batch=batching.broadcast_batch,
    factors=factoring.broadcast_factors,
    bounded=bounding.broadcast_bounded,
)


def _reshape_infer(operands, attributes, shape):
    require_count("reshape", operands, 1)
    require_kind("reshape", operands[0], ())
    require_shape("reshape", shape)
    if math.prod(shape.dims) != operands[0].size or shape.dtype != operands[0].dtype:
        raise ShapeError(
            "reshape keeps the number of elements and the dtype",
            f"{operands[0]!r} ({operands[0].size} elements) to {shape!r} ({shape.size})",
            "pass sizes whose product is the operand's size",
        )
    return shape


_movement(
    "reshape",
    infer=_reshape_infer,
    reference=lambda x, shape: x.reshape(shape.dims),
    transpose=lambda build, instruction, g, operands: [g.reshape(instruction.operands[0].dims)],
    shaped=True,
    batch=batching.reshape_batch,
    factors=factoring.reshape_factors,
    bounded=bounding.reshape_bounded,
    dialects="hlo stablehlo",
)


def _transpose_infer(operands, attributes, shape):
    require_count("transpose", operands, 1)
    require_kind("transpose", operands[0], ())
    dimensions = attributes.get("dimensions", ())
    _permutation("transpose", dimensions, operands[0].rank)
    return operands[0].with_dims(operands[0].dims[d] for d in dimensions)


def inverse_permutation(permutation) -> tuple[int, ...]:
    return tuple(int(k) for k in np.argsort(permutation))


_movement(
    "transpose",
    infer=_transpose_infer,
    reference=lambda x, shape, dimensions: np.transpose(x, dimensions),
    transpose=lambda build, instruction, g, operands: [g.transpose(inverse_permutation(instruction["dimensions"]))],
    attributes={"dimensions": "ints"},
    batch=batching.transpose_batch,
    factors=factoring.transpose_factors,
    bounded=bounding.transpose_bounded,
)


def _reverse_infer(operands, attributes, shape):
    require_count("reverse", operands, 1)
    require_kind("reverse", operands[0], ())
    _distinct("reverse", attributes.get("dimensions", ()), operands[0].rank)
    return operands[0]


_movement(
    "reverse",
    infer=_reverse_infer,
    reference=lambda x, shape, dimensions: np.flip(x, dimensions) if dimensions else x,
    transpose=lambda build, instruction, g, operands: [g.op("reverse", **instruction.attributes)],
    attributes={"dimensions": "ints"},
    batch=batching.reverse_batch,
    factors=factoring.reverse_factors,
    bounded=bounding.reverse_bounded,
)

# --- slice, pad, concatenate --------------------------------------------------------------------------------------


def _slice_infer(operands, attributes, shape):
    require_count("slice", operands, 1)
    operand = operands[0]
    require_kind("slice", operand, ())
    slices = attributes.get("slice", ())
    if len(slices) != operand.rank:
        raise AttributeValueError(
            "slice takes (start, limit, stride) for each dimension", f"{len(slices)} for {operand!r}", "name them all"
        )
    dims = []
    for (start, limit, stride), size in zip(slices, operand.dims, strict=True):
        if not (0 <= start <= limit <= size and stride > 0):
            raise AttributeValueError(
                "slice takes 0 <= start <= limit <= size and stride > 0",
                f"[{start}:{limit}:{stride}] of size {size} in {operand!r}",
                "clip the bounds",
            )
        dims.append(-(-(limit - start) // stride))
    return operand.with_dims(dims)


def _slice_transpose(build, instruction, g, operands):
    padding = []
    for (start, _, stride), length, size in zip(
        instruction["slice"], instruction.operands[0].dims, g.dims, strict=True
    ):
        spread = (size - 1) * stride + 1 if size else 0
        padding.append((start, length - start - spread, stride - 1))
    zero = g.builder.constant(np.zeros((), g.dtype))
    padded = Value(g.builder, g.builder.emit("pad", g.instruction, zero, padding=tuple(padding)))
    shape = instruction.operands[0].shape
    if not build.repeated or shape.is_open or math.prod(shape.dims) < 4 * math.prod(g.dims):
        return [padded]
    if any([stride > 1 for _, _, stride in instruction["slice"]]):
        return [padded]
    starts = [g.filled(start, Shape(DTYPES["s64"])) for start, _, _ in instruction["slice"]]

    def add_to(array):
        there = array.op("slice", **instruction.attributes)
        return array.op("dynamic-update-slice", there + g, *starts)

    return [Placed(padded, add_to)]


_movement(
    "slice",
    infer=_slice_infer,
    reference=lambda x, shape, **a: x[tuple(slice(*s) for s in a["slice"])],
    transpose=_slice_transpose,
    attributes={"slice": "slices"},
    batch=batching.slice_batch,
    factors=factoring.slice_factors,
    bounded=bounding.slice_bounded,
)


def _pad_infer(operands, attributes, shape):
    require_count("pad", operands, 2)
    operand, value = operands
    for each in operands:
        require_kind("pad", each, ())
    if value.dims != () or value.dtype != operand.dtype:
        raise ShapeError(
            "pad takes a scalar of the operand's dtype as its padding value",
            f"operand {operand!r}, value {value!r}",
            "convert or reshape the value",
        )
    padding = attributes.get("padding", ())
    if len(padding) != operand.rank:
        raise AttributeValueError(
            "pad takes (low, high, interior) for each dimension", f"{len(padding)} for {operand!r}", "name them all"
        )
    dims = []
    for (low, high, interior), length in zip(padding, operand.dims, strict=True):
        size = low + high + length + greatest(length - 1, 0) * interior
        if interior < 0 or size < 0:
            raise AttributeValueError(
                "pad takes interior >= 0 and removes at most the operand's elements",
                f"({low}, {high}, {interior}) on size {length}",
                "check the padding's signs",
            )
        dims.append(size)
    return operand.with_dims(dims)


def pad_array(x, value, padding) -> np.ndarray:
    """x with `value` around and between its elements: (low, high, interior) for each dimension."""
    spread = [d + max(d - 1, 0) * i for d, (_, _, i) in zip(x.shape, padding, strict=True)]
    full = [max(low, 0) + s + max(high, 0) for s, (low, high, _) in zip(spread, padding, strict=True)]
    result = np.full(full, value, x.dtype)
    inside = tuple(slice(max(low, 0), max(low, 0) + s, i + 1) for s, (low, _, i) in zip(spread, padding, strict=True))
    result[inside] = x
    crop = tuple(slice(max(-low, 0), f - max(-high, 0)) for f, (low, high, _) in zip(full, padding, strict=True))
    return result[crop]


def _pad_jvp(build, instruction, primals, tangents):
    operand, value = (p.like(0) if t is None else t for p, t in zip(primals, tangents, strict=True))
    return operand.op("pad", value, padding=instruction["padding"])


def _pad_transpose(build, instruction, g, operands):
    negative = tuple((-low, -high, 0) for low, high, _ in instruction["padding"])
    zero = g.builder.constant(np.zeros((), g.dtype))
    cropped = g.builder.emit("pad", g.instruction, zero, padding=negative)
    strides = tuple((0, d, i + 1) for d, (_, _, i) in zip(cropped.dims, instruction["padding"], strict=True))
    inner = Value(g.builder, g.builder.emit("slice", cropped, slice=strides))
    everywhere = range(len(g.dims))
    return [
        inner if operands[0] is None else None,
        g.sum(everywhere) - inner.sum(everywhere) if operands[1] is None else None,
    ]


_movement(
    "pad",
    infer=_pad_infer,
    reference=lambda x, value, shape, padding: pad_array(x, value, padding),
    jvp=_pad_jvp,
    transpose=_pad_transpose,
    attributes={"padding": "padding"},
    batch=batching.pad_batch,
    factors=factoring.pad_factors,
    bounded=bounding.pad_bounded,
)


def _concatenate_infer(operands, attributes, shape):
    if not operands:
        raise ShapeError("concatenate takes at least one operand", "none", "pass the arrays")
    first = operands[0]
    for operand in operands:
        require_kind("concatenate", operand, ())
    dimensions = attributes.get("dimensions", ())
    if len(dimensions) != 1 or not 0 <= dimensions[0] < first.rank:
        raise AttributeValueError(
            "concatenate takes one dimension of its operands", f"{dimensions} for {first!r}", "name an existing one"
        )
    (d,) = dimensions
    for other in operands:
        if other.dtype != first.dtype:
            raise DTypeError(
                "concatenate takes operands of one dtype", ", ".join(map(repr, operands)), "convert them first"
            )
        if other.rank != first.rank or any(
            a != b for k, (a, b) in enumerate(zip(other.dims, first.dims, strict=True)) if k != d
        ):
            raise ShapeError(
                f"concatenate takes operands that agree in all dimensions but {d}",
                ", ".join(map(repr, operands)),
                "reshape or slice the odd one",
            )
    total = sum(o.dims[d] for o in operands)
    return first.with_dims((*first.dims[:d], total, *first.dims[d + 1 :]))


def _concatenate_transpose(build, instruction, g, operands):
    (d,) = instruction["dimensions"]
    results, start = [], 0
    for given, operand in zip(operands, instruction.operands, strict=True):
        limit = start + operand.dims[d]
        bounds = tuple((start, limit, 1) if k == d else (0, size, 1) for k, size in enumerate(g.dims))
        results.append(g.op("slice", slice=bounds) if given is None else None)
        start = limit
    return results


_movement(
    "concatenate",
    infer=_concatenate_infer,
    reference=lambda *xs, shape, dimensions: np.concatenate(xs, dimensions[0]),
    transpose=_concatenate_transpose,
    attributes={"dimensions": "ints"},
    batch=batching.concatenate_batch,
    factors=factoring.concatenate_factors,
    bounded=bounding.concatenate_bounded,
)

# --- dynamic slices -----------------------------------------------------------------------------------------------


def _require_starts(name, operand, starts):
    for each in (operand, *starts):
        require_kind(name, each, ())
    if len(starts) != operand.rank or any(s.dims != () or s.dtype not in INTEGERS for s in starts):
        raise ShapeError(
            f"{name} takes a scalar integer start index for each dimension",
            f"operand {operand!r}, starts {', '.join(map(repr, starts)) or 'none'}",
            "pass one scalar integer a dimension",
        )


def clamp_starts(starts, dims, sizes) -> list[int]:
    """HLO: a window that would exceed the operand is clamped."""
    return [min(max(int(s), 0), d - n) for s, d, n in zip(starts, dims, sizes, strict=True)]


def _dynamic_slice_infer(operands, attributes, shape):
    if not operands:
        raise ShapeError("dynamic-slice takes an operand and starts", "none given", "pass the array")
    operand, starts = operands[0], operands[1:]
    _require_starts("dynamic-slice", operand, starts)
    sizes = attributes.get("dynamic_slice_sizes", ())
    if len(sizes) != operand.rank or any(not 0 <= n <= d for n, d in zip(sizes, operand.dims, strict=True)):
        raise AttributeValueError(
            "dynamic-slice takes a size between 0 and the size of each dimension",
            f"sizes {tuple(sizes)} of {operand!r}",
            "make the sizes fit",
        )
    return operand.with_dims(sizes)


def _dynamic_slice_reference(x, *starts, shape, dynamic_slice_sizes):
    begin = clamp_starts(starts, x.shape, dynamic_slice_sizes)
    return x[tuple(slice(b, b + n) for b, n in zip(begin, dynamic_slice_sizes, strict=True))]


def _dynamic_slice_jvp(build, instruction, primals, tangents):
    return tangents[0].op("dynamic-slice", *primals[1:], **instruction.attributes)


def _dynamic_slice_transpose(build, instruction, g, operands):
    starts = operands[1:]

    def add_to(array):
        there = array.op("dynamic-slice", *starts, **instruction.attributes)
        return array.op("dynamic-update-slice", there + g, *starts)

    zeros = g.filled(0, instruction.operands[0].shape)
    return [Placed(zeros.op("dynamic-update-slice", g, *starts), add_to)] + [None] * len(starts)


_movement(
    "dynamic-slice",
    infer=_dynamic_slice_infer,
    reference=_dynamic_slice_reference,
    jvp=_dynamic_slice_jvp,
    transpose=_dynamic_slice_transpose,
    attributes={"dynamic_slice_sizes": "ints"},
    batch=batching.dynamic_slice_batch,
    factors=factoring.dynamic_slice_factors,
)


def _update_infer(operands, attributes, shape):
    if len(operands) < 2:
        raise ShapeError(
            "dynamic-update-slice takes an operand, an update and starts", f"{len(operands)} given", "pass all of them"
        )
    operand, update, starts = operands[0], operands[1], operands[2:]
    require_kind("dynamic-update-slice", update, ())
    _require_starts("dynamic-update-slice", operand, starts)
    if update.dtype != operand.dtype:
        raise DTypeError(
            "dynamic-update-slice takes an update of the operand's dtype", f"{operand!r} and {update!r}", "convert it"
        )
    if update.rank != operand.rank or any(n > d for n, d in zip(update.dims, operand.dims, strict=True)):
        raise ShapeError(
            "dynamic-update-slice takes an update that fits into the operand",
            f"operand {operand!r}, update {update!r}",
            "slice the update",
        )
    return operand


def _update_reference(x, update, *starts, shape):
    result = np.array(x)
    begin = clamp_starts(starts, x.shape, update.shape)
    result[tuple(slice(b, b + n) for b, n in zip(begin, update.shape, strict=True))] = update
    return result


def _update_jvp(build, instruction, primals, tangents):
    operand, update = (p.like(0) if t is None else t for p, t in zip(primals[:2], tangents[:2], strict=True))
    return operand.op("dynamic-update-slice", update, *primals[2:])


def _update_transpose(build, instruction, g, operands):
    starts = operands[2:]
    update_shape = instruction.operands[1].shape
    zero = g.filled(0, update_shape)
    return [
        g.op("dynamic-update-slice", zero, *starts) if operands[0] is None else None,
        g.op("dynamic-slice", *starts, dynamic_slice_sizes=update_shape.dims) if operands[1] is None else None,
    ] + [None] * len(starts)


_movement(
    "dynamic-update-slice",
    infer=_update_infer,
    reference=_update_reference,
    jvp=_update_jvp,
    transpose=_update_transpose,
    batch=batching.dynamic_update_slice_batch,
    factors=factoring.dynamic_update_slice_factors,
    dialects="hlo stablehlo",
)

# --- iota ---------------------------------------------------------------------------------------------------------


def _iota_infer(operands, attributes, shape):
    require_count("iota", operands, 0)
    require_shape("iota", shape)
    require_kind("iota", shape, ("signed", "unsigned", "float", "complex"))
    if not 0 <= attributes.get("iota_dimension", -1) < shape.rank:
        raise AttributeValueError(
            "iota counts along a dimension of its shape",
            f"iota_dimension={attributes.get('iota_dimension')} of {shape!r}",
            "name an existing dimension",
        )
    return shape


def _iota_reference(shape, iota_dimension):
    sizes = [1] * shape.rank
    sizes[iota_dimension] = shape.dims[iota_dimension]
    size, dtype = shape.dims[iota_dimension], shape.dtype
    if dtype.kind in "iu" and dtype.itemsize >= 4 and size <= np.iinfo(dtype).max:
        line = np.arange(size, dtype=dtype)
    else:
        line = np.arange(size).astype(dtype)
    return np.broadcast_to(line.reshape(sizes), shape.dims)


_movement(
    "iota",
    infer=_iota_infer,
    reference=_iota_reference,
    jvp=zero_jvp,
    transpose=No("it has no operands"),
    batch=No("it has no operands, so it is the same for all batch elements"),
    factors=pointwise,
    bounded=bounding.iota_bounded,
    attributes={"iota_dimension": "int"},
    shaped=True,
)
