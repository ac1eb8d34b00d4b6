"""Reads and writes at computed indices along a split dimension: gather, scatter, dynamic-slice, dynamic-update-slice.

Each device handles its range: indices are clamped to the whole dimension, then made relative to the start of the range.
Reads of remote elements are zero, so that the results are partial sums; writes out of the range are dropped.
"""

from __future__ import annotations

import numpy as np

from hloom.compiler.passes.spmd.choice import Choice
from hloom.compiler.passes.spmd.compute import SPECIAL, Special, emit_local, local_attributes
from hloom.compiler.passes.spmd.resharding.layouts import S32, Layouts
from hloom.compiler.passes.spmd.scope import Scope
from hloom.ir.build import Value
from hloom.ir.module import Instruction
from hloom.ir.ops.indexing.gather import clamped_indices, gather_windows
from hloom.ir.ops.indexing.scatter import windows_of
from hloom.ir.ops.indexing.windows import Windows
from hloom.ir.spmd.factors import FactorRule
from hloom.ir.types import DTYPES, Shape

S64, U64 = DTYPES["s64"], DTYPES["u64"]


def _masked(instruction: Instruction, rule: FactorRule) -> frozenset[int]:
    return rule.masked


def _split_dimensions(rule: FactorRule, choice: Choice) -> dict[int, tuple[str, ...]]:
    """The dimensions of the first operand that masked factors split, with their axes."""
    return {
        d: choice.axes[factors[0]]
        for d, factors in enumerate(rule.operands[0])
        if factors and factors[0] in rule.masked and choice.axes[factors[0]]
    }


# --- dynamic slices -----------------------------------------------------------------------------------------------


def _starts(scope: Scope, instruction: Instruction, choice: Choice, values, first: int, sizes) -> list[Instruction]:
    """The starts as s32, clamped so that the slice of these sizes is within the whole array."""
    dims = instruction.operands[0].dims
    found = []
    for value, size, part in zip(values[first:], dims, sizes, strict=True):
        found.append(_clamped(scope, value, size - part))
    return found


def _clamped(scope: Scope, value: Instruction, limit: int) -> Instruction:
    """A scalar or an array of indices clamped between 0 and a limit, as s32."""
    emit, splat = scope.builder.emit, scope.builder.splat
    if value.dtype.kind == "u":
        limit = min(limit, int(np.iinfo(value.dtype).max)) if value.dtype.itemsize < 8 else limit
        value = emit("minimum", value, splat(limit, value.shape))
        return emit("convert", value, shape=value.shape.with_dtype(S32))
    if value.dtype.itemsize < 4:
        value = emit("convert", value, shape=value.shape.with_dtype(S32))
    value = emit("clamp", splat(0, Shape(value.dtype)), value, splat(limit, Shape(value.dtype)))
    return value if value.dtype == S32 else emit("convert", value, shape=value.shape.with_dtype(S32))


def _dynamic_slice(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, values):
    sizes = instruction["dynamic_slice_sizes"]
    value, emit = values[0], scope.builder.emit
    starts = _starts(scope, instruction, choice, values, 1, sizes)
    inside = None
    for d, axes in _split_dimensions(rule, choice).items():
        own = emit("subtract", starts[d], scope.numbers.start(axes, choice.operands[0].local(_dims(instruction))[d]))
        value, starts[d], here = _window(scope, value, d, own, sizes[d])
        if here is not None:
            inside = here if inside is None else emit("and", inside, here)
    made = choice.results[0].local(instruction.dims)
    result = emit("dynamic-slice", value, *starts, dynamic_slice_sizes=tuple(made))
    if inside is not None:
        result = emit(
            "select", inside, result, scope.builder.splat(False if result.dtype.kind == "b" else 0, result.shape)
        )
    return [result]


def _dims(instruction: Instruction) -> tuple[int, ...]:
    return instruction.operands[0].dims


def _window(scope: Scope, value: Instruction, d: int, own: Instruction, size: int):
    """For a window of dimension d that begins at `own` in this device's range, and may be partly or entirely out of it:
    (array, start in it, whether it is inside). For a window of one element the last is a pred, otherwise the array is
    zero-padded on both sides and it is None."""
    emit, constant, local = scope.builder.emit, scope.builder.constant, value.dims[d]
    if size == 1:
        low = emit("compare", own, constant(np.int32(0)), direction="GE")
        high = emit("compare", own, scope.builder.splat(local, Shape(S32)), direction="LT")
        return value, own, emit("and", low, high)
    value = bordered(scope, value, d, size, size)
    start = emit("add", own, scope.builder.splat(size, Shape(S32)))
    return value, emit("clamp", constant(np.int32(0)), start, scope.builder.splat(local + size, Shape(S32))), None


def bordered(scope: Scope, value: Instruction, d: int, low: int, high: int) -> Instruction:
    """Zero-padded at both ends of dimension d."""
    zero = scope.builder.constant(np.zeros((), value.dtype))
    padding = tuple((low, high, 0) if k == d else (0, 0, 0) for k in range(len(value.dims)))
    return scope.builder.emit("pad", value, zero, padding=padding)


def _dynamic_update_slice(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, values):
    emit = scope.builder.emit
    value, update, sizes = values[0], values[1], instruction.operands[1].dims
    local = value.dims
    starts = _starts(scope, instruction, choice, values, 2, sizes)
    inside, wide = None, []
    for d, axes in _split_dimensions(rule, choice).items():
        own = emit("subtract", starts[d], scope.numbers.start(axes, local[d]))
        value, starts[d], here = _window(scope, value, d, own, sizes[d])
        if here is None:
            wide.append((d, sizes[d]))
        else:
            inside = here if inside is None else emit("and", inside, here)
    if inside is not None:
        old = emit("dynamic-slice", value, *starts, dynamic_slice_sizes=update.dims)
        update = emit("select", inside, update, old)
    result = emit("dynamic-update-slice", value, update, *starts)
    for d, size in wide:
        result = scope.mover.cut(result, d, size, size + local[d])
    return [result]


# --- gather and scatter -------------------------------------------------------------------------------------------


def _along_vector(scope: Scope, w: Windows, numbers: list[Instruction], indices: Instruction) -> Instruction:
    """An array of the shape of the indices with a scalar for each component."""
    emit = scope.builder.emit
    if w.vector == len(indices.dims):
        return scope.mover.spread(numbers[0], indices.dims)
    parts = [scope.mover.reshaped(n, (1,)) for n in numbers]
    line = emit("concatenate", *parts, dimensions=(0,)) if len(parts) > 1 else parts[0]
    return emit("broadcast", line, shape=line.shape.with_dims(indices.dims), dimensions=(w.vector,))


def _component(scope: Scope, w: Windows, indices: Instruction, k: int) -> Instruction:
    """Component k of the indices, without their vector dimension."""
    if w.vector == len(indices.dims):
        return indices
    cut = scope.mover.cut(indices, w.vector, k, k + 1)
    return scope.mover.reshaped(cut, (*indices.dims[: w.vector], *indices.dims[w.vector + 1 :]))


def _gather(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, values):
    emit, constant = scope.builder.emit, scope.builder.constant
    value, indices = values
    w = _gather_windows(instruction)
    split = _split_dimensions(rule, choice)
    indices = clamped_indices(Value(scope.builder, indices), w).convert(S32).instruction
    zero = constant(np.int32(0))
    starts = [scope.numbers.start(split[d], value.dims[d]) if d in split else zero for d in w.mapped]
    own = emit("subtract", indices, _along_vector(scope, w, starts, indices))
    inside = None
    for k, d in enumerate(w.mapped):
        if d in split:
            part = _component(scope, w, own, k)
            low = emit("compare", part, scope.builder.splat(0, part.shape), direction="GE")
            high = emit("compare", part, scope.builder.splat(value.dims[d], part.shape), direction="LT")
            here = emit("and", low, high)
            inside = here if inside is None else emit("and", inside, here)
    local = choice.results[0].local(instruction.dims)
    attributes = local_attributes(scope, instruction, rule, choice, values, [instruction.shape.with_dims(local)])
    result = emit("gather", value, own, **attributes)
    assert inside is not None
    mask = emit("broadcast", inside, shape=inside.shape.with_dims(result.dims), dimensions=w.places)
    return [emit("select", mask, result, scope.builder.splat(False if result.dtype.kind == "b" else 0, result.shape))]


def _scatter(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, values):
    """Updates out of bounds are dropped, as are those out of a device's range."""
    emit = scope.builder.emit
    count = len(values) // 2
    w, indices, split = windows_of(instruction), values[count], _split_dimensions(rule, choice)
    largest = max(w.operand, default=0)
    if indices.dtype.kind == "u" and indices.dtype.itemsize >= 4:
        indices = emit("minimum", indices, scope.builder.splat(largest, indices.shape))
        indices = emit("convert", indices, shape=indices.shape.with_dtype(S64 if indices.dtype == U64 else S32))
    elif indices.dtype.itemsize < 4:
        indices = emit("convert", indices, shape=indices.shape.with_dtype(S32))
    zero = scope.builder.constant(np.int32(0))
    starts = [scope.numbers.start(split[d], values[0].dims[d]) if d in split else zero for d in w.mapped]
    if indices.dtype != S32:
        starts = [emit("convert", s, shape=Shape(indices.dtype)) for s in starts]
    own = emit("subtract", indices, _along_vector(scope, w, starts, indices))
    return emit_local(scope, instruction, rule, choice, [*values[:count], own, *values[count + 1 :]])


def _single(windows):
    """Whether the windows have one element along split dimensions: only then they are certain to be on one device."""

    def fits(layouts: Layouts, instruction: Instruction, rule: FactorRule, choice: Choice) -> bool:
        sizes = windows(instruction).sizes
        return all(sizes[d] == 1 for d in _split_dimensions(rule, choice))

    return fits


def _gather_windows(instruction: Instruction) -> Windows:
    operand, indices = instruction.operands
    return gather_windows(operand.dims, indices.dims, instruction.attributes)


SPECIAL["dynamic-slice"] = Special(_masked, _dynamic_slice)
SPECIAL["dynamic-update-slice"] = Special(_masked, _dynamic_update_slice)
SPECIAL["gather"] = Special(_masked, _gather, _single(_gather_windows))
SPECIAL["scatter"] = Special(_masked, _scatter, _single(windows_of))
