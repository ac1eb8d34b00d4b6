"""Rules for arrays whose sizes a program computes: `bounded` of the ops that move, reduce and multiply elements.

A rule is `rule(build, instruction, operands)`, see `hloom.ir.op_table.Op`. The operands are stored with the shapes of
the bounds, and what lies beyond a size is arbitrary: it is masked where elements meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from hloom.ir.build import combiner_opcode
from hloom.ir.errors import UnsupportedError
from hloom.ir.op_table import OPS
from hloom.ir.sizes.counted import REPAIR
from hloom.ir.sizes.expressions import Size, SizeExpression, highest
from hloom.ir.sizes.terms import Extremum, value_of

if TYPE_CHECKING:
    from hloom.ir.ops.indexing.gather import Windows

__all__ = [
    "broadcast_bounded", "computed_places", "concatenate_bounded", "dot_bounded", "iota_bounded", "is_open",
    "nested_bounded", "pad_bounded", "reduce_bounded", "refused", "reshape_bounded", "reverse_bounded",
    "slice_bounded", "transpose_bounded", "window_sizes",
]  # fmt: skip


def refused(instruction, why: str) -> UnsupportedError:
    """The error for an instruction that is not computed of such arrays."""
    shapes = ", ".join([repr(o.shape) for o in instruction.operands]) or repr(instruction.shape)
    asked = f"'{instruction.opcode}' of {shapes}, of a size that the program computes"
    return UnsupportedError(asked, why, REPAIR, instruction.source)


def is_open(size: Size) -> TypeGuard[SizeExpression]:
    """Whether a size is no number."""
    return isinstance(size, SizeExpression)


def broadcast_bounded(build, instruction, operands):
    return operands[0].broadcast(build.stored(instruction.shape).dims, instruction["dimensions"])


def reshape_bounded(build, instruction, operands):
    """Row-major order keeps the elements in front where a computed size is the first of those that are joined or
    split: f32[n,3] to f32[3*n]."""
    before, after = ([d for d in shape.dims if is_open(d) or d != 1] for shape in _both(instruction))
    while before and after and _same(before[0], after[0]):
        del before[0], after[0]
    while before and after and _same(before[-1], after[-1]):
        del before[-1], after[-1]
    stored = build.stored(instruction.shape)
    if any(map(is_open, [*before[1:], *after[1:]])) or stored.size != operands[0].shape.size:
        raise refused(instruction, f"as {instruction.shape!r} its elements do not stay one after the other")
    return operands[0].reshape(stored.dims)


def _both(instruction):
    return instruction.operands[0].shape, instruction.shape


def _same(left: Size, right: Size) -> bool:
    """Whether two sizes are written in one way, so that they have one bound."""
    if is_open(left) and is_open(right):
        return left.terms == right.terms
    return not is_open(left) and not is_open(right) and left == right


def transpose_bounded(build, instruction, operands):
    return operands[0].transpose(instruction["dimensions"])


def reverse_bounded(build, instruction, operands):
    if any(is_open(instruction.dims[d]) for d in instruction["dimensions"]):
        raise refused(instruction, "the last element is at a place that is computed")
    return operands[0].op("reverse", dimensions=instruction["dimensions"])


def slice_bounded(build, instruction, operands):
    """A start is a number; one that is cut at the size of the axis is that number where the result has elements."""
    bounds = []
    dims = build.stored(instruction.shape).dims
    extents = instruction.operands[0].dims
    for (start, _, stride), extent, size, count in zip(
        instruction["slice"], extents, operands[0].dims, dims, strict=True
    ):
        first = start
        if is_open(start):
            first = _cut(start, extent)
            if first is None:
                raise refused(instruction, f"the start {start} is a size that is computed")
        first = min(first, size)
        last = min(first + (count - 1) * stride + 1 if count else first, size)
        bounds.append((first, last, stride))
    found = operands[0].op("slice", slice=tuple(bounds))
    missing = [(0, count - there, 0) for count, there in zip(dims, found.dims, strict=True)]  # bounds may be too large
    return found.op("pad", found.scalar(0), padding=tuple(missing)) if found.dims != dims else found


def _cut(start: SizeExpression, extent: Size) -> int | None:
    """k of a start min(k, extent): it is k unless nothing follows. None for other sizes."""
    ((monomial, factor), *rest) = start.terms
    if rest or factor != 1 or len(monomial) != 1 or not isinstance(monomial[0], Extremum) or not is_open(extent):
        return None
    others = [terms for terms in monomial[0].operands if terms != extent.terms]
    number = value_of(others[0]) if len(others) == 1 and monomial[0].kind == "min" else None
    return None if len(monomial[0].operands) != 2 else number


def pad_bounded(build, instruction, operands):
    operand, value = operands
    padding = []
    for (low, high, interior), size in zip(instruction["padding"], instruction.operands[0].dims, strict=True):
        if is_open(low) or (is_open(size) and (interior or low < 0)):
            raise refused(instruction, "the places of its elements are computed")
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
    (d,) = instruction["dimensions"]
    if any(is_open(o.dims[d]) for o in instruction.operands[:-1]):
        raise refused(instruction, "what follows an array of a computed size is at a place that is computed")
    return operands[0].op("concatenate", *operands[1:], dimensions=(d,))


def iota_bounded(build, instruction, operands):
    return build.numbers(build.stored(instruction.shape), instruction["iota_dimension"])


def reduce_bounded(build, instruction, operands):
    """The neutral element stands beyond the sizes."""
    array = instruction.operands[0].shape
    reduced = [d for d in instruction["dimensions"] if is_open(array.dims[d])]
    combiner = combiner_opcode(instruction["to_apply"])
    if reduced and (len(operands) != 2 or combiner is None or OPS[combiner].identity is None):
        raise refused(instruction, "its combiner has no neutral element that is known")
    first, *rest = operands
    if reduced:
        first = build.masked(first, array.dims, reduced, OPS[combiner].neutral(array.dtype))
    return first.op("reduce", *rest, **instruction.attributes).results()


def dot_bounded(build, instruction, operands):
    """Both operands are 0 beyond the sizes that are summed over: what stands there may be infinite."""
    masked = []
    for operand, value, side in zip(instruction.operands, operands, ("lhs", "rhs"), strict=True):
        summed = [d for d in instruction.attributes.get(f"{side}_contracting_dims", ()) if is_open(operand.dims[d])]
        masked.append(build.masked(value, operand.dims, summed, np.zeros((), operand.dtype)))
    return masked[0].op("dot", masked[1], shape=build.stored(instruction.shape), **instruction.attributes)


# --- windows of gather and scatter --------------------------------------------------------------------------------


def computed_places(w: Windows) -> list[int]:
    """The dimensions of the indexes that are of a computed size. That of the components is not."""
    return [d for d in w.index_dimensions if is_open(w.indices[d])]


def window_sizes(instruction, w: Windows, stored: Sequence[int]) -> tuple[int, ...]:
    """The sizes of windows as they are stored: of a whole axis, or a number that is known."""
    sizes = []
    for d, size in enumerate(w.sizes):
        if is_open(size) and not _same(size, w.operand[d]):
            raise refused(instruction, f"windows of {size} elements in an axis of {w.operand[d]}")
        if is_open(w.operand[d]) and d in w.mapped:
            raise refused(instruction, f"places in an axis of {w.operand[d]} elements, which may be none")
        sizes.append(stored[d] if is_open(size) else size)
    return tuple(sizes)


def nested_bounded(build, instruction, operands):
    """The computations that it calls have sizes of their own; values of computed sizes do not go in or out."""
    return build.with_called(instruction, operands)
