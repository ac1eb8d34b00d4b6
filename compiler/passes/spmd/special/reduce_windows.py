"""reduce-window along a split dimension: with the neighbours' elements, or for a running sum with their totals."""

from __future__ import annotations

import math

import numpy as np

from hloom.compiler.passes.spmd.choice import Choice
from hloom.compiler.passes.spmd.compute import SPECIAL, Special
from hloom.compiler.passes.spmd.resharding.costs import cost
from hloom.compiler.passes.spmd.resharding.layouts import Axes, Layouts
from hloom.compiler.passes.spmd.scope import Scope
from hloom.compiler.passes.spmd.special.windows import (
    all_windows,
    bring,
    fits_windows,
    local_windows,
    priced,
    same_place,
    split_dimensions,
    window_needs,
)
from hloom.ir.build import combiner_opcode
from hloom.ir.module import Instruction
from hloom.ir.ops import OPS
from hloom.ir.spmd.factors import FactorRule
from hloom.ir.types import Shape
from hloom.ir.window import window_of


def _arrays(instruction: Instruction) -> int:
    return len(instruction.operands) // 2


_needs = window_needs(window_of, arrays=_arrays)
_fits_windows = fits_windows(window_of)
_neighbours = priced(_needs)


def _combiner(instruction: Instruction) -> str | None:
    """The combiner if it is a single op with a neutral element."""
    opcode = combiner_opcode(instruction["to_apply"]) if _arrays(instruction) == 1 else None
    return opcode if opcode is not None and OPS[opcode].identity is not None else None


def _running(instruction: Instruction, rule: FactorRule, choice: Choice) -> tuple[int, Axes, bool] | None:
    """(dimension, axes, whether from its end) of a running sum along a split dimension."""
    split = list(split_dimensions(rule, choice))
    moving = [d for d, w in enumerate(window_of(instruction)) if not w.is_plain()]
    if len(split) != 1 or len(moving) != 1 or _combiner(instruction) is None:
        return None
    d, axes = split[0]
    back = window_of(instruction)[d].running(instruction.operands[0].dims[d])
    return None if back is None else (d, axes, back)


def _price(layouts: Layouts, instruction: Instruction, rule: FactorRule, choice: Choice) -> float:
    running = _running(instruction, rule, choice)
    if running is None:
        return _neighbours(layouts, instruction, rule, choice)
    d, axes, _ = running
    operand = instruction.operands[0]
    local = choice.operands[0].local(operand.dims)
    cross = math.prod(n for e, n in enumerate(local) if e != d) * operand.dtype.itemsize
    return cost("all-gather", layouts.count(axes), cross)


def _fits(layouts: Layouts, instruction: Instruction, rule: FactorRule, choice: Choice) -> bool:
    """Elements out of bounds are ignored, which needs a neutral element unless no window reaches there."""
    if not _fits_windows(layouts, instruction, rule, choice):
        return False
    known = _combiner(instruction) is not None
    return known or not any(fetch.leaves() for _, _, _, fetch in _needs(layouts, instruction, rule, choice))


def _emit(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, values):
    running = _running(instruction, rule, choice)
    if running is not None:
        return [_prefix(scope, instruction, values, *running)]
    values, count = list(values), _arrays(instruction)
    opcode = _combiner(instruction)
    fills = {} if opcode is None else {0: scope.builder.constant(OPS[opcode].neutral(values[0].dtype))}
    bring(scope, _needs(scope.layouts, instruction, rule, choice), values, fills)
    own = local_windows(scope, instruction, rule, choice, window_of, same_place)
    made = scope.builder.emit("reduce-window", *values, window=tuple(own), to_apply=instruction["to_apply"])
    return scope.elements(made, count) if count > 1 else [made]


def _prefix(scope: Scope, instruction: Instruction, values, d: int, axes: Axes, back: bool) -> Instruction:
    """A running sum: over each device's part, offset by the totals of the previous devices."""
    emit, mover, to_apply = scope.builder.emit, scope.mover, instruction["to_apply"]
    opcode = _combiner(instruction)
    assert opcode is not None
    value, initial = values
    neutral = OPS[opcode].neutral(value.dtype)
    n, size, part = scope.layouts.count(axes), instruction.dims[d], value.dims[d]
    if part * n != size:
        value = mover.masked(value, d, axes, size, neutral)
    windows = list(window_of(instruction))
    windows[d] = windows[d]._replace(size=part, low=0 if back else part - 1, high=part - 1 if back else 0)
    start = scope.builder.constant(neutral)
    own = emit("reduce-window", value, start, window=tuple(windows), to_apply=to_apply)
    last = 0 if back else part - 1
    totals = mover.gathered(mover.cut(own, d, last, last + 1), d, axes)
    place = emit("iota", shape=Shape(np.int32, totals.dims), iota_dimension=d)
    here = mover.spread(scope.numbers.along(axes), totals.dims)
    before = emit("compare", place, here, direction="GT" if back else "LT")
    totals = emit("select", before, totals, scope.builder.splat(neutral, totals.shape))
    prefix = emit("reduce", totals, initial, dimensions=(d,), to_apply=to_apply)
    kept = tuple(k for k in range(len(own.dims)) if k != d)
    return emit(opcode, emit("broadcast", prefix, shape=own.shape, dimensions=kept), own)


SPECIAL["reduce-window"] = Special(all_windows, _emit, _fits, _price)
