"""Rules for arrays with sizes computed by the program: `bounded` of the ops that move, reduce and multiply elements.

A rule is `rule(build, instruction, operands)`, see `hloom.ir.op_table.Op`. The operands are stored with the shapes of
the bounds, and elements beyond a size are arbitrary: they are masked where elements are combined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from hloom.ir.build import Builder, Value, combiner_opcode
from hloom.ir.errors import UnsupportedError
from hloom.ir.op_table import OPS
from hloom.ir.sizes.counted import REPAIR
from hloom.ir.sizes.expressions import Size, SizeExpression, highest
from hloom.ir.types import DTYPES, PRED, Shape

__all__ = [
    "broadcast_bounded", "concatenate_bounded", "dot_bounded", "iota_bounded", "is_open", "is_same_size",
    "nested_bounded", "pad_bounded", "reduce_bounded", "refused", "reshape_bounded", "reverse_bounded",
    "slice_bounded", "sort_bounded", "transpose_bounded",
]  # fmt: skip


def refused(instruction, why: str) -> UnsupportedError:
    """The error for an instruction that does not support such arrays."""
    shapes = ", ".join([repr(o.shape) for o in instruction.operands]) or repr(instruction.shape)
    asked = f"'{instruction.opcode}' of {shapes}, of a size that the program computes"
    return UnsupportedError(asked, why, REPAIR, instruction.source)


def is_open(size: Size) -> TypeGuard[SizeExpression]:
    """Whether a size is not a plain number."""
    return isinstance(size, SizeExpression)


def broadcast_bounded(build, instruction, operands):
    return operands[0].broadcast(build.stored(instruction.shape).dims, instruction["dimensions"])


def reshape_bounded(build, instruction, operands):
    """Row-major order keeps the valid elements at the front if the computed size is the first of the merged or split
    ones: f32[n,3] to f32[3*n]."""
    before, after = ([d for d in shape.dims if is_open(d) or d != 1] for shape in _both(instruction))
    while before and after and is_same_size(before[0], after[0]):
        del before[0], after[0]
    while before and after and is_same_size(before[-1], after[-1]):
        del before[-1], after[-1]
    stored = build.stored(instruction.shape)
    if any(map(is_open, [*before[1:], *after[1:]])) or stored.size != operands[0].shape.size:
        raise refused(instruction, f"as {instruction.shape!r} its elements do not stay one after the other")
    return operands[0].reshape(stored.dims)


def _both(instruction):
    return instruction.operands[0].shape, instruction.shape


def is_same_size(left: Size, right: Size) -> bool:
    """Whether two sizes are the same expression, and thus have the same bound."""
    if is_open(left) and is_open(right):
        return left.terms == right.terms
    return not is_open(left) and not is_open(right) and left == right


def transpose_bounded(build, instruction, operands):
    return operands[0].transpose(instruction["dimensions"])


def _window(build, value, starts: Sequence[Size], lengths: Sequence[int]):
    """Stored elements from starts that may be computed sizes; elements beyond the end are arbitrary."""
    if not any(map(is_open, starts)):
        starts, ends = list(starts), [start + n for start, n in zip(starts, lengths, strict=True)]
        missing = [(0, max(end - size, 0), 0) for end, size in zip(ends, value.dims, strict=True)]
        value = value.op("pad", value.scalar(0), padding=tuple(missing)) if any(m for _, m, _ in missing) else value
        return value.op("slice", slice=tuple([(s, e, 1) for s, e in zip(starts, ends, strict=True)]))
    longer = value.op("pad", value.scalar(0), padding=tuple([(0, n, 0) for n in lengths]))  # no start is clamped
    return longer.op("dynamic-slice", *map(build.size, starts), dynamic_slice_sizes=tuple(lengths))


def reverse_bounded(build, instruction, operands):
    """The valid elements are then the last stored ones."""
    reversed_ = operands[0].op("reverse", dimensions=instruction["dimensions"])
    sizes = zip(instruction.dims, reversed_.dims, strict=True)
    turned = instruction["dimensions"]
    starts = [stored - size if d in turned and is_open(size) else 0 for d, (size, stored) in enumerate(sizes)]
    return _window(build, reversed_, starts, reversed_.dims)


def slice_bounded(build, instruction, operands):
    dims = build.stored(instruction.shape).dims
    starts, _, strides = zip(*instruction["slice"], strict=True)
    lengths = [max((count - 1) * stride + 1, 0) for count, stride in zip(dims, strides, strict=True)]
    found = _window(build, operands[0], starts, lengths)
    return found.op("slice", slice=tuple([(0, n, stride) for n, stride in zip(lengths, strides, strict=True)]))


def pad_bounded(build, instruction, operands):
    operand, value = operands
    padding = []
    for (low, high, interior), size in zip(instruction["padding"], instruction.operands[0].dims, strict=True):
        if is_open(low) or (is_open(size) and (interior or low < 0)):
            raise refused(instruction, "the positions of its elements are computed")
        padding.append((low, int(highest(high)) if is_open(high) else high, interior))
    stored = build.stored(instruction.shape)
    padding = [
        (low, high + wanted - (size + low + high + max(size - 1, 0) * interior), interior)
        for (low, high, interior), size, wanted in zip(padding, operand.dims, stored.dims, strict=True)
    ]
    padded = operand.op("pad", value, padding=tuple(padding))
    for d, ((low, _, _), size) in enumerate(zip(padding, instruction.operands[0].dims, strict=True)):
        if is_open(size):
            padded = build.before(stored, d, size + low).where(padded, value.broadcast(stored.dims, ()))
    return padded


def concatenate_bounded(build, instruction, operands):
    """Each operand overwrites the elements beyond the sizes of the previous ones."""
    (d,) = instruction["dimensions"]
    sizes = [o.dims[d] for o in instruction.operands]
    if not any(map(is_open, sizes[:-1])):
        return operands[0].op("concatenate", *operands[1:], dimensions=(d,))
    dims = list(operands[0].dims)
    dims[d] = sum([o.dims[d] for o in operands])
    joined, start = operands[0].filled(0, operands[0].shape.with_dims(dims)), 0
    for value, size in zip(operands, sizes, strict=True):
        joined = joined.op(
            "dynamic-update-slice", value, *[build.size(start if k == d else 0) for k in range(len(dims))]
        )
        start = start + size
    return _window(build, joined, [0] * len(dims), build.stored(instruction.shape).dims)


def sort_bounded(build, instruction, operands):
    """A leading key sorts the elements beyond a size last."""
    (d,), shape, comparator = instruction["dimensions"], instruction.operands[0].shape, instruction["to_apply"]
    first, *rest = operands
    if not is_open(shape.dims[d]):
        return first.op("sort", *rest, **instruction.attributes).results()
    inner = Builder(comparator.name)
    own = [Value(inner, inner.parameter(Shape(PRED), side)) for side in ("inside_a", "inside_b")]
    given = [inner.parameter(p.shape, p.hint) for p in comparator.parameters]
    less = Value(inner, inner.inline(comparator, given))
    a, b = [side.convert(DTYPES["s32"]) for side in own]
    root = a.compare("GT", b).op("or", a.compare("EQ", b).op("and", less))
    inside = build.before(first.shape, d, shape.dims[d])
    attributes = {**instruction.attributes, "to_apply": inner.finish(root.instruction)}
    results = inside.op("sort", first, *rest, **attributes).results()[1:]
    return results if rest else results[0]


def iota_bounded(build, instruction, operands):
    return build.numbers(build.stored(instruction.shape), instruction["iota_dimension"])


def reduce_bounded(build, instruction, operands):
    """The neutral element fills the elements beyond the sizes."""
    array = instruction.operands[0].shape
    reduced = [d for d in instruction["dimensions"] if is_open(array.dims[d])]
    combiner = combiner_opcode(instruction["to_apply"])
    first, *rest = operands
    if reduced:
        if len(operands) != 2 or combiner is None or OPS[combiner].identity is None:
            raise refused(instruction, "its combiner has no neutral element that is known")
        first = build.masked(first, array.dims, reduced, OPS[combiner].neutral(array.dtype))
    return first.op("reduce", *rest, **instruction.attributes).results()


def dot_bounded(build, instruction, operands):
    """Both operands are set to 0 beyond the sizes that are summed over, as elements there may be infinite."""
    masked = []
    for operand, value, side in zip(instruction.operands, operands, ("lhs", "rhs"), strict=True):
        summed = [d for d in instruction.attributes.get(f"{side}_contracting_dims", ()) if is_open(operand.dims[d])]
        masked.append(build.masked(value, operand.dims, summed, np.zeros((), operand.dtype)))
    return masked[0].op("dot", masked[1], shape=build.stored(instruction.shape), **instruction.attributes)


def nested_bounded(build, instruction, operands):
    """Called computations have separate sizes; values of computed sizes cannot cross the call."""
    return build.with_called(instruction, operands)
