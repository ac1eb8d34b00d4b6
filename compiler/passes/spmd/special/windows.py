"""Ops that read neighbours along a split dimension: slice, pad, concatenate, reverse, windows, convolutions.

Each specifies the elements of an operand that a device needs for its part of the result (`halo.Fetch`); with these the
op is local, without padding. A running sum needs only the neighbours' totals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from hloom.compiler.passes.spmd.choice import Choice
from hloom.compiler.passes.spmd.compute import SPECIAL, Special, local_attributes
from hloom.compiler.passes.spmd.resharding.layouts import Axes, Layouts
from hloom.compiler.passes.spmd.scope import Scope
from hloom.compiler.passes.spmd.special.halo import Exchange, Fetch, fetched
from hloom.ir.module import Instruction
from hloom.ir.ops.linalg.convolution import parse_labels
from hloom.ir.spmd.factors import FactorRule, result_shapes
from hloom.ir.window import WindowDimension, window_of

Need = tuple[int, int, Axes, Fetch]  # (operand, dimension, axes, needed elements)


def all_windows(instruction: Instruction, rule: FactorRule) -> frozenset[int]:
    return rule.windows


def split_dimensions(rule: FactorRule, choice: Choice) -> Iterator[tuple[int, Axes]]:
    """(dimension of the first operand, axes) of the factors in `windows` that are split."""
    for d, factors in enumerate(rule.operands[0]):
        if factors and factors[0] in rule.windows and choice.axes[factors[0]]:
            yield d, choice.axes[factors[0]]


def priced(needs: Callable[..., list[Need]]) -> Callable[..., float]:
    """The cost of a choice: of fetching remote elements."""

    def price(layouts: Layouts, instruction: Instruction, rule: FactorRule, choice: Choice) -> float:
        total = 0.0
        for k, d, _, fetch in needs(layouts, instruction, rule, choice):
            operand = instruction.operands[k]
            local = choice.operands[k].local(operand.dims)
            cross = math.prod(n for e, n in enumerate(local) if e != d) * operand.dtype.itemsize
            total += fetch.price(cross)
        return total

    return price


def bring(scope: Scope, needs: list[Need], values: list, fills: dict[int, Instruction]) -> None:
    """Replaces operands by the elements that devices need. fills: values out of an operand's bounds."""
    for k, d, axes, fetch in needs:
        values[k] = fetched(scope, values[k], d, axes, fetch, fills.get(k))


# --- slice, reverse, concatenate ----------------------------------------------------------------------------------


def _part(size: int, count: int) -> int:
    return -(-size // count)


def _slice_needs(layouts: Layouts, instruction: Instruction, rule: FactorRule, choice: Choice) -> list[Need]:
    found = []
    for d, axes in split_dimensions(rule, choice):
        n, size = layouts.count(axes), instruction.operands[0].dims[d]
        start, _, stride = instruction["slice"][d]
        part = _part(instruction.dims[d], n)
        found.append((0, d, axes, Fetch(size, _part(size, n), n, stride * part, start, (part - 1) * stride + 1)))
    return found


def _slice(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, values):
    values = list(values)
    needs = _slice_needs(scope.layouts, instruction, rule, choice)
    bring(scope, needs, values, {})
    split = {d for _, d, _, _ in needs}
    bounds = []
    for d, (start, limit, stride) in enumerate(instruction["slice"]):
        own = values[0].dims[d]
        whole = (start, limit, stride) == (0, instruction.operands[0].dims[d], 1)
        bounds.append((0, own, stride) if d in split else (0, own, 1) if whole else (start, limit, stride))
    return [scope.builder.emit("slice", values[0], slice=tuple(bounds))]


def _reverse_needs(layouts: Layouts, instruction: Instruction, rule: FactorRule, choice: Choice) -> list[Need]:
    found = []
    for d, axes in split_dimensions(rule, choice):
        n, size = layouts.count(axes), instruction.dims[d]
        part = _part(size, n)
        found.append((0, d, axes, Fetch(size, part, n, -part, size - part, part)))
    return found


def _reverse(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, values):
    values = list(values)
    bring(scope, _reverse_needs(scope.layouts, instruction, rule, choice), values, {})
    return [scope.builder.emit("reverse", values[0], dimensions=instruction["dimensions"])]


def _sliced(operand: Instruction, d: int) -> tuple[Instruction, int, int] | None:
    """(array, start, limit) of a contiguous slice along dimension d only: a roll is a concatenation of two."""
    if operand.opcode != "slice":
        return None
    array = operand.operands[0]
    for k, ((start, limit, stride), size) in enumerate(zip(operand["slice"], array.dims, strict=True)):
        if stride != 1 or (k != d and (start, limit) != (0, size)):
            return None
    return array, operand["slice"][d][0], operand["slice"][d][1]


def _concatenate_needs(layouts: Layouts, instruction: Instruction, rule: FactorRule, choice: Choice) -> list[Need]:
    """For an operand that is a slice, the needed elements of the sliced array."""
    found = []
    for d, axes in split_dimensions(rule, choice):
        n, offset = layouts.count(axes), 0
        part = _part(instruction.dims[d], n)
        for k, operand in enumerate(instruction.operands):
            size = operand.dims[d]
            array, start, limit = _sliced(operand, d) or (operand, 0, size)
            if size:
                own = _part(array.dims[d], n)
                found.append((k, d, axes, Fetch(array.dims[d], own, n, part, start - offset, part, start, limit)))
            offset += size
    return found


def _concatenate(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, values):
    """Each operand at its position, with a select of the one that an element belongs to."""
    emit, values = scope.builder.emit, list(values)
    needs = _concatenate_needs(scope.layouts, instruction, rule, choice)
    exchange = Exchange(scope)
    for k, d, _, fetch in needs:
        sliced = _sliced(instruction.operands[k], d)
        if sliced is not None:
            values[k] = scope.read(scope.values[sliced[0]], choice.operands[k])
        exchange.expect(values[k], d, fetch)
    used = [fetched(scope, values[k], d, axes, fetch, None, exchange) for k, d, axes, fetch in needs]
    _, d, axes, first = needs[0]
    place = emit("iota", shape=used[0].shape.with_dtype("s32"), iota_dimension=d)
    place = emit("add", place, scope.mover.spread(scope.numbers.start(axes, first.step), place.dims))
    ends, end = [], 0
    for k, *_ in needs:
        end += instruction.operands[k].dims[d]
        ends.append(end)
    result = used[-1]
    for value, end in zip(reversed(used[:-1]), reversed(ends[:-1]), strict=True):
        before = emit("compare", place, scope.builder.splat(end, place.shape), direction="LT")
        result = emit("select", before, value, result)
    return [result]


# --- windows ------------------------------------------------------------------------------------------------------


def window_fetch(window: WindowDimension, size: int, outputs: int, n: int) -> tuple[Fetch, WindowDimension] | None:
    """The elements of a dimension that a device needs for its part of the window positions, and the local window; None
    if the holes of a dilated operand are not at the same positions on all devices."""
    places, dilation = _part(outputs, n), window.base_dilation
    step = places * window.stride
    if step % dilation:
        return None
    first = -(window.low // dilation)  # the first element at or after position -low of the dilated operand
    low = first * dilation + window.low
    needed = (places - 1) * window.stride + window.reach
    width = max(1, (needed - low - 1) // dilation + 1)
    high = needed - low - ((width - 1) * dilation + 1)
    fetch = Fetch(size, _part(size, n), n, step // dilation, first, width)
    return fetch, window._replace(low=low, high=high)


def _pad_windows(instruction: Instruction) -> list[WindowDimension]:
    return [WindowDimension(1, 1, low, high, interior + 1) for low, high, interior in instruction["padding"]]


def window_needs(windows: Callable, places: Callable = lambda instruction, d: d, arrays: Callable = lambda i: 1):
    """The needs of an op with windows over its first operands. windows(instruction): one for each dimension of the
    operand; places(instruction, d): the dimension of the result."""

    def needs(layouts: Layouts, instruction: Instruction, rule: FactorRule, choice: Choice) -> list[Need]:
        found = []
        result = result_shapes(instruction.shape)[0].dims
        for d, axes in split_dimensions(rule, choice):
            made = window_fetch(
                windows(instruction)[d], instruction.operands[0].dims[d], result[places(instruction, d)],
                layouts.count(axes),
            )  # fmt: skip
            if made is not None:
                found += [(k, d, axes, made[0]) for k in range(arrays(instruction))]
        return found

    return needs


def local_windows(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, windows, places) -> list:
    """The windows on the devices' extended parts."""
    own = list(windows(instruction))
    result = result_shapes(instruction.shape)[0].dims
    for d, axes in split_dimensions(rule, choice):
        size, n = instruction.operands[0].dims[d], scope.layouts.count(axes)
        made = window_fetch(own[d], size, result[places(instruction, d)], n)
        assert made is not None
        own[d] = made[1]
    return own


def same_place(instruction: Instruction, d: int) -> int:
    return d


_pad_needs = window_needs(_pad_windows)


def _pad(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, values):
    values = list(values)
    bring(scope, _pad_needs(scope.layouts, instruction, rule, choice), values, {0: values[1]})
    own = local_windows(scope, instruction, rule, choice, _pad_windows, same_place)
    padding = tuple((w.low, w.high, w.base_dilation - 1) for w in own)
    return [scope.builder.emit("pad", *values, padding=padding)]


def fits_windows(windows: Callable, places: Callable = same_place):
    def fits(layouts: Layouts, instruction: Instruction, rule: FactorRule, choice: Choice) -> bool:
        result = result_shapes(instruction.shape)[0].dims
        for d, axes in split_dimensions(rule, choice):
            size = instruction.operands[0].dims[d]
            if size == 0 or result[places(instruction, d)] == 0:
                return False
            if window_fetch(windows(instruction)[d], size, result[places(instruction, d)], layouts.count(axes)) is None:
                return False
        return True

    return fits


def _not_empty(layouts: Layouts, instruction: Instruction, rule: FactorRule, choice: Choice) -> bool:
    return all(instruction.dims[d] for d, _ in split_dimensions(rule, choice))


def _no_empty(layouts: Layouts, instruction: Instruction, rule: FactorRule, choice: Choice) -> bool:
    return all(instruction.dims[d] and instruction.operands[0].dims[d] for d, _ in split_dimensions(rule, choice))


# --- convolution --------------------------------------------------------------------------------------------------


def _convolution_windows(instruction: Instruction) -> dict[int, WindowDimension]:
    lhs, _, _ = parse_labels(instruction["dim_labels"])
    return dict(zip(lhs.spatial, window_of(instruction), strict=True))


def _convolution_place(instruction: Instruction, d: int) -> int:
    lhs, _, out = parse_labels(instruction["dim_labels"])
    return out.spatial[lhs.spatial.index(d)]


def _convolution_needs(layouts: Layouts, instruction: Instruction, rule: FactorRule, choice: Choice) -> list[Need]:
    return [(0, d, axes, fetch) for d, axes, fetch, _ in _convolved(layouts, instruction, rule, choice) or ()]


def _convolved(layouts: Layouts, instruction: Instruction, rule: FactorRule, choice: Choice):
    """(dimension of the operand, axes, needed elements, the local window) of each split spatial dimension; None if
    impossible."""
    lhs, rhs, _ = parse_labels(instruction["dim_labels"])
    left, right = (o.dims for o in instruction.operands)
    windows, found = _convolution_windows(instruction), []
    for d, axes in split_dimensions(rule, choice):
        window, n = windows[d], layouts.count(axes)
        outputs = instruction.dims[_convolution_place(instruction, d)]
        if not left[d] or not outputs:
            return None
        made: tuple[Fetch, WindowDimension] | None
        if rule.operands[0][d][0] in rule.reduction:
            # The kernel is split: each device sums up the products with its part.
            if window.base_dilation != 1 or window.reversed:
                return None
            part = _part(right[rhs.spatial[lhs.spatial.index(d)]], n)
            own = window._replace(size=part, low=0, high=0)
            width = (outputs - 1) * window.stride + own.reach
            made = Fetch(left[d], _part(left[d], n), n, part * window.window_dilation, -window.low, width), own
        else:
            made = window_fetch(window, left[d], outputs, n)
        if made is None:
            return None
        found.append((d, axes, *made))
    return found


def _convolution(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, values):
    values = list(values)
    found = _convolved(scope.layouts, instruction, rule, choice)
    zero = scope.builder.splat(0, values[0].shape.with_dims(()))
    bring(scope, [(0, d, axes, fetch) for d, axes, fetch, _ in found], values, {0: zero})
    windows = {**_convolution_windows(instruction), **{d: window for d, _, _, window in found}}
    lhs, _, _ = parse_labels(instruction["dim_labels"])
    local = instruction.shape.with_dims(choice.results[0].local(instruction.dims))
    attributes = local_attributes(scope, instruction, rule, choice, values, [local])
    attributes["window"] = tuple(windows[d] for d in lhs.spatial)
    return [scope.builder.emit("convolution", *values, shape=local, **attributes)]


def _fits_convolution(layouts: Layouts, instruction: Instruction, rule: FactorRule, choice: Choice) -> bool:
    return _convolved(layouts, instruction, rule, choice) is not None


# --- select-and-scatter -------------------------------------------------------------------------------------------


def _fits_selection(layouts: Layouts, instruction: Instruction, rule: FactorRule, choice: Choice) -> bool:
    """Windows that are each on one device."""
    windows = window_of(instruction)
    for d, axes in split_dimensions(rule, choice):
        w, n = windows[d], layouts.count(axes)
        size, source = instruction.operands[0].dims[d], instruction.operands[1].dims[d]
        aligned = w.low == w.high == 0 and w.size <= w.stride and source % n == 0 and size == source * w.stride
        if not aligned:
            return False
    return True


def _selection(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, values):
    return [scope.builder.emit("select-and-scatter", *values, **instruction.attributes)]


SPECIAL["slice"] = Special(all_windows, _slice, _no_empty, priced(_slice_needs))
SPECIAL["reverse"] = Special(all_windows, _reverse, _no_empty, priced(_reverse_needs))
SPECIAL["concatenate"] = Special(all_windows, _concatenate, _not_empty, priced(_concatenate_needs))
SPECIAL["pad"] = Special(all_windows, _pad, fits_windows(_pad_windows), priced(_pad_needs))
SPECIAL["convolution"] = Special(all_windows, _convolution, _fits_convolution, priced(_convolution_needs))
SPECIAL["select-and-scatter"] = Special(all_windows, _selection, _fits_selection)
