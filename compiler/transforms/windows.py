"""Expansion of reduce-window to ordinary ops: its derivative for any combiner, and batches of initial values."""

from __future__ import annotations

import numpy as np

from hloom.compiler.transforms.inline import inline_calls
from hloom.compiler.transforms.reduction import lift
from hloom.ir.build import Value
from hloom.ir.ops.reductions.window import inside_of, pad_of
from hloom.ir.types import TupleShape
from hloom.ir.window import WindowDimension, window_of, window_output


def reduce_window_jvp(pushforward, instruction, primals):
    """The tangent of a reduce-window with any combiner, a list for several operands."""
    builder = pushforward.builder
    mark = len(builder.instructions)
    results = reduce_window_tree(builder, instruction, [p.instruction for p in primals])
    for made in builder.instructions[mark:]:
        pushforward.push(made)
    found = [pushforward.tangents.get(r) for r in results]
    return found if isinstance(instruction.shape, TupleShape) else found[0]


def reduce_window_by_tree(batching, instruction, operands, mapped):
    """A reduce-window for all batch elements whose initial values differ."""
    values = batching.spread_all(operands, mapped)
    made = reduce_window_tree(batching.builder, instruction, [v.instruction for v in values])
    results = [Value(batching.builder, m) for m in made]
    return results if isinstance(instruction.shape, TupleShape) else results[0]


def reduce_window_tree(builder, instruction, operands, places=None):
    """Emits a reduce-window as ordinary ops, the combiner applied to whole arrays, by doubling along each dimension.

    operands: replacements of the instruction's operands; initial values may have the arrays' leading dimensions (one
    per batch element). Returns one instruction for each operand.
    """
    half = len(operands) // 2
    arrays = [Value(builder, a) for a in operands[:half]]
    initial = [Value(builder, s) for s in operands[half:]]
    window = window_of(instruction)
    rank = len(window)
    extra = len(arrays[0].dims) - rank
    places = window_output("reduce-window", arrays[0].dims[extra:], window)
    combiner = inline_calls(instruction["to_apply"])
    outer = (WindowDimension(1),) * extra
    state = [_padded_value(a, s, (*outer, *window), extra) for a, s in zip(arrays, initial, strict=True)]
    combining = _Combining(builder, combiner, instruction, extra)
    inside = inside_of(arrays[0].dims[extra:], window)
    for k, d in enumerate(window):
        state, inside = combining.along(state, inside, k, d, places[k])
    dims = state[0].dims
    starts = [s.broadcast(dims, range(len(s.dims))) for s in initial]
    found, _ = combining.joined(starts, np.ones(inside.shape, bool), state, inside)
    return [v.instruction for v in found]


def _padded_value(array, start, window, extra: int):
    """A padded array. The padding does not affect the result, but must be a valid accumulator for the combiner's
    derivative."""
    if all(d.low == d.high == 0 and d.base_dilation == 1 for d in window):
        return array
    if not start.dims:
        return array.op("pad", start, padding=pad_of(window))
    spread = array.op(
        "pad", Value(array.builder, array.builder.constant(np.zeros((), array.dtype))), padding=pad_of(window)
    )
    inside = inside_of(array.dims[extra:], window[extra:])
    mask = type(array)(array.builder, array.builder.constant(inside))
    mask = mask.broadcast(spread.dims, range(extra, len(spread.dims)))
    return mask.where(spread, start.broadcast(spread.dims, range(len(start.dims))))


class _Combining:
    """Applies a combiner to whole arrays, whose first `extra` dimensions are a batch.

    A NumPy mask of the non-padding elements accompanies the arrays.
    """

    def __init__(self, builder, combiner, instruction, extra: int):
        self.builder, self.combiner, self.instruction, self.extra = builder, combiner, instruction, extra

    def joined(self, left, left_inside, right, right_inside):
        """left combined with right; if one of them is padding, the other."""
        dims = left[0].dims
        results = lift(self.builder, self.combiner, [*left, *right], dims, self.instruction)
        if not right_inside.all():
            results = self._where(right_inside, results, left)
        if not left_inside.all():
            results = self._where(left_inside, results, right)
        return results, left_inside | right_inside

    def _where(self, mask, on_true, on_false):
        value = type(on_true[0])(self.builder, self.builder.constant(mask))
        dims = on_true[0].dims
        value = value.broadcast(dims, range(self.extra, len(dims)))
        return [value.where(a, b) for a, b in zip(on_true, on_false, strict=True)]

    def cut(self, state, inside, axis: int, start: int, stop: int, stride: int):
        def piece(value):
            bounds = [(0, extent, 1) for extent in value.dims]
            extent = value.dims[self.extra + axis]
            bounds[self.extra + axis] = (min(start, extent), min(stop, extent), stride)
            return value.op("slice", slice=tuple(bounds))

        return [piece(v) for v in state], inside[(*[slice(None)] * axis, slice(start, stop, stride))]

    def along(self, state, inside, axis: int, d: WindowDimension, places: int):
        """`_combined_along` on Values: (the combined windows along one axis, their mask)."""
        if d.size == 1 and d.stride == 1:
            return state, inside
        if not places:
            return self.cut(state, inside, axis, 0, 0, 1)
        total, done, width, power = None, 0, 1, (state, inside)
        while True:
            if d.size & width:
                start = done * d.window_dilation
                piece = self.cut(*power, axis, start, start + (places - 1) * d.stride + 1, d.stride)
                total = piece if total is None else self.joined(*total, *piece)
                done += width
            if done == d.size:
                return total
            shift = width * d.window_dilation
            length = power[1].shape[axis] - shift
            low = self.cut(*power, axis, 0, length, 1)
            high = self.cut(*power, axis, shift, shift + length, 1)
            power, width = self.joined(*low, *high), width * 2
