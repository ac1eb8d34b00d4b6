"""Batching rules shared by several families, and those of the ops that move elements.

A rule is `rule(build, instruction, operands, mapped)`, see `hloom.ir.op_table.Op`. The new dimension is the first.
"""

from __future__ import annotations

import numpy as np

from hloom.ir.build import Value, assignment_computation, combiner_opcode
from hloom.ir.op_table import OPS
from hloom.ir.types import TupleShape, as_dtype


def batched_shape(build, instruction):
    """The result's shape with the new first dimension."""
    return instruction.shape.with_dims((build.size, *instruction.shape.dims))


def full_or_scalar(build, instruction, value, mapped):
    """Adapts an operand that may be a scalar or an array (a select's condition, a clamp's bound)."""
    if not mapped:
        return value if value.dims == () else build.spread(value)
    dims = (build.size, *instruction.dims)
    return value if value.dims == dims else value.broadcast(dims, (0,))


def select_batch(build, instruction, operands, mapped):
    condition = full_or_scalar(build, instruction, operands[0], mapped[0])
    on_true, on_false = build.spread_all(operands[1:], mapped[1:])
    return condition.op("select", on_true, on_false)


def clamp_batch(build, instruction, operands, mapped):
    low, x, high = operands
    low = full_or_scalar(build, instruction, low, mapped[0])
    high = full_or_scalar(build, instruction, high, mapped[2])
    return low.op("clamp", x if mapped[1] else build.spread(x), high)


def shifted(dimensions) -> tuple[int, ...]:
    """Dimensions of the unbatched value as those of the batched one."""
    return tuple([d + 1 for d in dimensions])


def broadcast_batch(build, instruction, operands, mapped):
    return operands[0].broadcast((build.size, *instruction.dims), (0, *shifted(instruction["dimensions"])))


def reshape_batch(build, instruction, operands, mapped):
    return operands[0].reshape((build.size, *instruction.dims))


def transpose_batch(build, instruction, operands, mapped):
    return operands[0].transpose((0, *shifted(instruction["dimensions"])))


def reverse_batch(build, instruction, operands, mapped):
    return operands[0].op("reverse", dimensions=shifted(instruction["dimensions"]))


def slice_batch(build, instruction, operands, mapped):
    return operands[0].op("slice", slice=((0, build.size, 1), *instruction["slice"]))


def pad_batch(build, instruction, operands, mapped):
    operand, value = operands
    if not mapped[0]:
        operand = build.spread(operand)
    padding = ((0, 0, 0), *instruction["padding"])
    if not mapped[1]:
        return operand.op("pad", value, padding=padding)
    # One padding value per batch element: a mask that is padded likewise marks the padding.
    source = instruction.operands[0].shape
    truth = operand.builder.splat(True, source.with_dtype(np.dtype(np.bool_)))
    inside = Value(operand.builder, truth)
    off = Value(operand.builder, operand.builder.constant(np.zeros((), np.bool_)))
    inside = build.spread(inside.op("pad", off, padding=instruction["padding"]))
    zero = operand.scalar(0)
    padded = operand.op("pad", zero, padding=padding)
    return inside.where(padded, value.broadcast(padded.dims, (0,)))


def concatenate_batch(build, instruction, operands, mapped):
    first, *rest = build.spread_all(operands, mapped)
    return first.op("concatenate", *rest, dimensions=shifted(instruction["dimensions"]))


def sequential_batch(build, instruction, operands, mapped):
    """The op once per batch element, for ops that are opaque to hloom."""
    return build.sequential(instruction, operands, mapped)


# --- dynamic slices -----------------------------------------------------------------------------------------------


def _zero_start(build, starts):
    dtype = starts[0].dtype if starts else as_dtype("s32")
    return Value(build.builder, build.builder.constant(np.zeros((), dtype), dtype))


def _start_vectors(build, starts, mapped, limits, with_number: bool):
    """s64 [size, rank]: the start of each batch element's window, clamped as in HLO; `with_number` prepends the
    element's index."""
    s64 = as_dtype("s64")
    columns = [build.iota("s64")] if with_number else []
    for start, is_mapped, limit in zip(starts, mapped, limits, strict=True):
        start = start if is_mapped else build.spread(start)
        if start.dtype == np.uint64:
            start = start.op("minimum", start.like(limit))  # 2^63 and more would be negative
        start = start.convert(s64)
        columns.append(start.like(0).op("clamp", start, limit))
    rows = [c.reshape((build.size, 1)) for c in columns]
    return rows[0].op("concatenate", *rows[1:], dimensions=(1,)) if len(rows) > 1 else rows[0]


def dynamic_slice_batch(build, instruction, operands, mapped):
    operand, starts = operands[0], operands[1:]
    sizes = tuple(instruction["dynamic_slice_sizes"])
    if not any(mapped[1:]):
        zero = _zero_start(build, starts)
        return operand.op("dynamic-slice", zero, *starts, dynamic_slice_sizes=(build.size, *sizes))
    rank = len(sizes)
    limits = [d - n for d, n in zip(instruction.operands[0].dims, sizes, strict=True)]
    own = bool(mapped[0])
    vectors = _start_vectors(build, starts, mapped[1:], limits, own)
    return operand.op(
        "gather",
        vectors,
        offset_dims=tuple(range(1, rank + 1)),
        collapsed_slice_dims=(0,) if own else (),
        start_index_map=tuple(range(rank + own)),
        index_vector_dim=1,
        slice_sizes=(min(build.size, 1), *sizes) if own else sizes,
    )


def dynamic_update_slice_batch(build, instruction, operands, mapped):
    operand, update, starts = operands[0], operands[1], operands[2:]
    operand = operand if mapped[0] else build.spread(operand)
    update = update if mapped[1] else build.spread(update)
    if not any(mapped[2:]):
        return operand.op("dynamic-update-slice", update, _zero_start(build, starts), *starts)
    rank = len(starts)
    limits = [d - n for d, n in zip(operand.dims[1:], update.dims[1:], strict=True)]
    vectors = _start_vectors(build, starts, mapped[2:], limits, False)
    return operand.op(
        "scatter",
        vectors,
        update,
        update_window_dims=tuple(range(1, rank + 1)),
        inserted_window_dims=(),
        scatter_dims_to_operand_dims=tuple(range(1, rank + 1)),
        input_batching_dims=(0,),
        scatter_indices_batching_dims=(0,),
        index_vector_dim=1,
        unique_indices=True,
        to_apply=assignment_computation(operand.dtype),
    )


# --- reductions and products --------------------------------------------------------------------------------------


def reduce_batch(build, instruction, operands, mapped):
    count = len(operands) // 2
    dimensions = shifted(instruction["dimensions"])
    if not any(mapped[count:]):
        arrays = build.spread_all(operands[:count], mapped[:count])
        attributes = {"dimensions": dimensions, "to_apply": instruction["to_apply"]}
        return arrays[0].op("reduce", *arrays[1:], *operands[count:], **attributes).results()
    opcode = combiner_opcode(instruction["to_apply"])
    if count == 1 and opcode is not None and OPS[opcode].identity is not None:
        array = operands[0] if mapped[0] else build.spread(operands[0])
        neutral = OPS[opcode].neutral(array.dtype)
        reduced = array.reduce(opcode, neutral, dimensions)
        return operands[1].broadcast(reduced.dims, (0,)).op(opcode, reduced)
    # An initial value for each batch element: a reduce takes scalars, so the combiner is applied in a tree of halves.
    return build.reduction_by_tree(instruction, operands, mapped)


def dot_batch(build, instruction, operands, mapped):
    left, right = operands
    given = instruction.attributes
    attributes = dict(given)
    lb, rb = (tuple(given.get(name, ())) for name in ("lhs_batch_dims", "rhs_batch_dims"))
    lc = tuple(given.get("lhs_contracting_dims", ()))
    dims = instruction.dims
    both = mapped[0] and mapped[1]
    for side, is_mapped in (("lhs", mapped[0]), ("rhs", mapped[1])):
        if is_mapped:
            for name in (f"{side}_batch_dims", f"{side}_contracting_dims"):
                attributes[name] = shifted(given.get(name, ()))
    if both:
        attributes["lhs_batch_dims"] = (0, *shifted(lb))
        attributes["rhs_batch_dims"] = (0, *shifted(rb))
        position = 0
    elif mapped[0]:
        position = len(lb)  # the first of the left operand's free dimensions
    else:
        position = len(lb) + len(instruction.operands[0].dims) - len(lb) - len(lc)
    shape = instruction.shape.with_dims((*dims[:position], build.size, *dims[position:]))
    product = left.op("dot", right, shape=shape, **attributes)
    return product.transpose((position, *(k for k in range(len(dims) + 1) if k != position)))


def barrier_batch(build, instruction, operands, mapped):
    """Mapped and unmapped values are unchanged, behind one barrier."""
    values = operands[0] if isinstance(operands[0], list) else operands
    flags = mapped[0] if isinstance(operands[0], list) else mapped
    held = values[0].op("optimization-barrier", *values[1:])
    if not isinstance(instruction.shape, TupleShape):
        return held
    if len(values) == 1 and not isinstance(held.instruction.shape, TupleShape):
        return [held if flags[0] else build.unmapped(held)]
    results = [held.op("get-tuple-element", index=k) for k in range(len(values))]
    return [r if flag else build.unmapped(r) for r, flag in zip(results, flags, strict=True)]
