"""reduce-window and select-and-scatter: combiners over the positions of a sliding window."""

from __future__ import annotations

import functools
import math

import numpy as np

from hloom.ir.build import Builder, Value, combiner_opcode, scalar_computation
from hloom.ir.errors import AttributeValueError, BatchingError, DifferentiationError, DTypeError, ShapeError
from hloom.ir.interpret import evaluate
from hloom.ir.module import Computation
from hloom.ir.op_table import OPS, No, op
from hloom.ir.ops.factoring import window_factors
from hloom.ir.ops.rules import UFUNCS, arrays_and_initial_values, combined_precisely, require_combiner, require_kind
from hloom.ir.types import DTYPES, NARROW_FLOATS, PRED, Shape, TupleShape, wide_dtype
from hloom.ir.window import WindowDimension, check_window, dilated, padded, window_of, window_output

# --- reduce-window ------------------------------------------------------------------------------------------------


def _reduce_window_infer(operands, attributes, shape):
    arrays, initial = arrays_and_initial_values("reduce-window", operands)
    window = attributes.get("window", ())
    check_window("reduce-window", window, arrays[0].rank)
    if any(d.reversed for d in window):
        raise AttributeValueError("reduce-window takes windows that are not reversed", f"{window}", "reverse the array")
    require_combiner("reduce-window", "to_apply", attributes.get("to_apply"), initial)
    dims = window_output("reduce-window", arrays[0].dims, window)
    shapes = [a.with_dims(dims) for a in arrays]
    return shapes[0] if len(shapes) == 1 else TupleShape(shapes)


def _wide(dtype: np.dtype, opcode: str) -> np.dtype:
    """The dtype in which the reference combines: `wide_dtype` for sums and products."""
    if opcode in ("add", "multiply"):
        return wide_dtype(dtype)
    return DTYPES["f32"] if dtype in NARROW_FLOATS else dtype


def _reduce_window_reference(*operands, shape, to_apply, window=()):
    count = len(operands) // 2
    arrays, initial = operands[:count], operands[count:]
    dims = (shape if count == 1 else shape.elements[0]).dims
    opcode = combiner_opcode(to_apply)
    if count == 1 and opcode in UFUNCS and arrays[0].dtype != PRED:
        dtype = _wide(arrays[0].dtype, opcode)
        combined = functools.partial(_combined_windows, arrays[0], initial[0], window, dims, opcode)
        with np.errstate(all="ignore"):
            found = combined_precisely(combined, arrays[0], opcode, dtype)
            return found.astype(shape.dtype, copy=False).reshape(dims)
    spread = [padded(a, s, window) for a, s in zip(arrays, initial, strict=True)]
    inside = inside_of(arrays[0].shape, window)
    state = [np.broadcast_to(s, dims) for s in initial]
    # Any combiner: applied to whole arrays, element by element of the windows. Padding is ignored.
    for tap in np.ndindex(tuple(d.size for d in window)) if math.prod(dims) else ():
        slices = _tap_slices(tap, window, dims)
        result = evaluate(to_apply, [*state, *(s[slices] for s in spread)], lifted=dims)
        result = result if count > 1 else (result,)
        state = [np.where(inside[slices], new, old) for new, old in zip(result, state, strict=True)]
    return tuple(state) if count > 1 else state[0]


def _combined_windows(x, initial, window, dims, opcode: str, dtype: np.dtype) -> np.ndarray:
    """The windows of an array reduced by a ufunc in a dtype."""
    function, initial = UFUNCS[opcode], np.asarray(initial).astype(dtype)
    running = _running_axis(x.shape, window)
    if running is not None:
        axis, back = running
        found = function.accumulate(np.flip(x, axis) if back else x, axis, dtype)
        if opcode != "multiply" or initial != 1:  # a no-op, except that the sum of -0 and 0 is 0
            function(initial, found, out=found)
        return np.flip(found, axis) if back else found
    x = padded(x.astype(dtype), OPS[opcode].neutral(dtype), window)
    for k, d in enumerate(window):
        x = _combined_along(function, x, k, d, dims[k])
    return function(initial, x)


def _running_axis(dims, window) -> tuple[int, bool] | None:
    """(the axis, whether from its end) of a window that extends from an end of the array to each position."""
    wide = [k for k, d in enumerate(window) if not d.is_plain()]
    if len(wide) != 1 or 0 in dims:
        return None
    back = window[wide[0]].running(dims[wide[0]])
    return None if back is None else (wide[0], back)


def inside_of(dims, window) -> np.ndarray:
    """A mask of the operand's elements in a padded array."""
    return padded(np.ones(dims, np.bool_), np.bool_(False), window)


def _tap_slices(tap, window, places) -> tuple[slice, ...]:
    """The elements of a padded array at index `tap` of the window, for all window positions."""
    slices = []
    for t, d, n in zip(tap, window, places, strict=True):
        start = t * d.window_dilation
        slices.append(slice(start, start + max(n - 1, 0) * d.stride + min(n, 1), d.stride))
    return tuple(slices)


def _combined_along(function, x: np.ndarray, axis: int, d: WindowDimension, places: int) -> np.ndarray:
    """Windows along one axis of a padded array reduced by doubling, in log2(size) steps."""
    if d.size == 1 and d.stride == 1:
        return x
    if places == 0:
        return x[(*[slice(None)] * axis, slice(0, 0))]

    def part(array, start):
        """The `places` elements from `start` on, a stride apart."""
        stop = start + (places - 1) * d.stride + 1
        return array[(*[slice(None)] * axis, slice(start, stop, d.stride))]

    pieces: list[np.ndarray] = []  # widths that are powers of two, the set bits of the size
    done, width, power = 0, 1, x
    while True:
        if d.size & width:
            pieces.append(part(power, done * d.window_dilation))
            done += width
        if done == d.size:
            return functools.reduce(function, pieces)
        # power[i]: the combination of 2 * width elements starting at i, a window dilation apart.
        shift = width * d.window_dilation
        length = power.shape[axis] - shift
        low = power[(*[slice(None)] * axis, slice(0, length))]
        high = power[(*[slice(None)] * axis, slice(shift, shift + length))]
        power, width = function(low, high), width * 2


# --- selecting combiners ------------------------------------------------------------------------------------------


@functools.cache
def selecting_combiner(direction: str, key: np.dtype, value: np.dtype) -> Computation:
    """(k1, v1, k2, v2) -> the pair whose key is ahead: the first if `k1 direction k2` holds."""
    builder = Builder(f"select_{direction.lower()}")
    k1, v1 = builder.parameter(Shape(key), "k1"), builder.parameter(Shape(value), "v1")
    k2, v2 = builder.parameter(Shape(key), "k2"), builder.parameter(Shape(value), "v2")
    first = builder.emit("compare", k1, k2, direction=direction)
    pair = [builder.emit("select", first, a, b) for a, b in ((k1, k2), (v1, v2))]
    return builder.finish(builder.tuple(pair))


def selected_direction(combiner) -> str | None:
    """The direction of a `selecting_combiner`, by its structure; None for other combiners."""
    root, parameters = combiner.root, combiner.parameters
    if len(parameters) != 4 or root.opcode != "tuple" or len(root.operands) != 2:
        return None
    k1, v1, k2, v2 = parameters
    keys, values = root.operands
    first = keys.operands[0] if keys.opcode == "select" else None
    if first is None or first.opcode != "compare" or first.operands != (k1, k2):
        return None
    if keys.operands[1:] != (k1, k2) or values.opcode != "select" or values.operands != (first, v1, v2):
        return None
    return first["direction"] if first["direction"] in ("GE", "GT", "LE", "LT") else None


def select_direction(select) -> str | None:
    """The direction of select-and-scatter's `select` if it compares its two arguments in order."""
    root = select.root
    if root.opcode != "compare" or root.operands != tuple(select.parameters):
        return None
    return root["direction"] if root["direction"] in ("GE", "GT", "LE", "LT") else None


def _last_key(direction: str, dtype):
    """The key that every other one is ahead of: the smallest if larger ones are selected."""
    opcode = "maximum" if direction in ("GE", "GT") else "minimum"
    return OPS[opcode].neutral(dtype)


def _selected(keys, values, direction: str, window):
    """The element of `values` at the selected key, for each window position."""
    builder = keys.builder
    starts = [builder.constant(_last_key(direction, keys.dtype)), builder.constant(np.zeros((), values.dtype))]
    pair = builder.emit(
        "reduce-window", keys.instruction, values.instruction, *starts,
        window=tuple(window), to_apply=selecting_combiner(direction, keys.dtype, values.dtype),
    )  # fmt: skip
    return Value(builder, pair).op("get-tuple-element", index=1)


# --- derivatives of reduce-window ---------------------------------------------------------------------------------


def _reduce_window_jvp(build, instruction, primals, tangents):
    """Linear for add; for extrema the tangent of the first element that attains it; in general by doubling."""
    combiner = instruction["to_apply"]
    if len(primals) == 2:
        opcode = combiner_opcode(combiner)
        if opcode == "add":
            array, initial = (p.like(0) if t is None else t for p, t in zip(primals, tangents, strict=True))
            return array.op("reduce-window", initial, **instruction.attributes)
        if opcode in ("maximum", "minimum"):
            start = primals[1].instruction
            direction = "GE" if opcode == "maximum" else "LE"
            neutral = OPS[opcode].neutral(primals[0].dtype)
            if start.opcode == "constant" and start["value"] == neutral:
                if tangents[0] is None:
                    return None
                return _selected(primals[0], tangents[0], direction, window_of(instruction))
    elif len(primals) == 4 and tangents[2] is tangents[3] is None:
        selected = selected_direction(combiner)
        if selected is not None and _starts_last(primals[2], selected):
            window = window_of(instruction)
            return [t if t is None else _selected(primals[0], t, selected, window) for t in tangents[:2]]
    return build.reduce_window_jvp(instruction, primals)


def _starts_last(start, direction: str) -> bool:
    value = start.instruction
    return value.opcode == "constant" and bool(value["value"] == _last_key(direction, value.dtype))


def _reduce_window_transpose(build, instruction, cotangent, operands):
    window = window_of(instruction)
    if len(operands) == 4:
        return _selection_transpose(instruction, cotangent, operands, window)
    if combiner_opcode(instruction["to_apply"]) != "add":
        raise AssertionError("only sums and selections over windows are made as tangents")
    array = instruction.operands[0]
    results: list[Value | None] = [None, None]
    if operands[0] is None:
        back = tuple(
            d.transposed(size, n)._replace(reversed=False)
            for d, size, n in zip(window, array.dims, cotangent.dims, strict=True)
        )
        zero = cotangent.builder.constant(np.zeros((), cotangent.dtype))
        made = cotangent.builder.emit(
            "reduce-window", cotangent.instruction, zero, window=back, to_apply=instruction["to_apply"]
        )
        results[0] = Value(cotangent.builder, made)
    if operands[1] is None:
        results[1] = cotangent.sum(range(len(cotangent.dims)))
    return results


def _selection_transpose(instruction, cotangent, operands, window):
    """The cotangent goes to the selected element: select-and-scatter."""
    direction = selected_direction(instruction["to_apply"])
    if direction is None or operands[0] is None or operands[2] is None:
        raise AssertionError("only selections by a known key are made as tangents")
    g = cotangent[1]
    results = [None] * 4
    keys = operands[0]
    if g is None:
        return results
    if operands[1] is None:
        results[1] = _scattered(keys, g, direction, window, scalar_computation("add", g.dtype))
    if operands[3] is None:
        raise AssertionError("the initial tangent of a selection is a constant")
    return results


def _scattered(keys, g, direction: str, window, add):
    """Cotangents added at the selected keys; dilated windows through a padded array."""
    builder = g.builder
    if keys.dtype != g.dtype or any(d.base_dilation != 1 or d.window_dilation != 1 for d in window):
        return _scattered_by_taps(keys, g, direction, window)
    zero = builder.constant(np.zeros((), g.dtype))
    made = builder.emit(
        "select-and-scatter", keys.instruction, g.instruction, zero,
        window=tuple(window), select=comparison(direction, keys.dtype), scatter=add,
    )  # fmt: skip
    return Value(builder, made)


@functools.cache
def comparison(direction: str, dtype) -> Computation:
    """The computation (a, b) -> a direction b on scalars, the same object each time."""
    builder = Builder(direction.lower())
    left, right = builder.parameter(Shape(dtype), "a"), builder.parameter(Shape(dtype), "b")
    return builder.finish(builder.emit("compare", left, right, direction=direction))


def _scattered_by_taps(keys, g, direction: str, window):
    """The same for windows that select-and-scatter does not support (dilated ones): each element of the window receives
    the cotangents of the window positions at which it is selected."""
    builder = keys.builder
    places = g.dims
    spread = keys.op("pad", keys.scalar(_last_key(direction, keys.dtype)), padding=pad_of(window))
    taps = list(np.ndindex(tuple(d.size for d in window)))
    best: Value | None = None
    number: Value | None = None
    for k, tap in enumerate(taps):
        bounds = tuple((s.start, s.stop, s.step) for s in _tap_slices(tap, window, places))
        value = spread.op("slice", slice=bounds)
        index = Value(builder, builder.splat(k, Shape(DTYPES["s32"], places)))
        if best is None or number is None:
            best, number = value, index
        else:
            keep = best.compare(direction, value)
            best, number = keep.where(best, value), keep.where(number, index)
    assert number is not None  # a window has an element
    total = None
    for k, tap in enumerate(taps):
        mine = number.compare("EQ", k).where(g, g.like(0))
        padding = []
        for s, n, size in zip(_tap_slices(tap, window, places), places, spread.dims, strict=True):
            padding.append((s.start, size - s.start - dilated(n, s.step), s.step - 1))
        part = mine.op("pad", g.scalar(0), padding=tuple(padding))
        total = part if total is None else total + part
    inverse = tuple((-d.low, -d.high, 0) for d in window)
    assert total is not None
    total = total.op("pad", g.scalar(0), padding=inverse)
    bounds = tuple((0, size, d.base_dilation) for size, d in zip(total.dims, window, strict=True))
    return total.op("slice", slice=bounds)


def pad_of(window) -> tuple[tuple[int, int, int], ...]:
    return tuple((d.low, d.high, d.base_dilation - 1) for d in window)


def _reduce_window_batch(build, instruction, operands, mapped):
    half = len(operands) // 2
    if any(mapped[half:]):
        return build.reduce_window_by_tree(instruction, operands, mapped)
    arrays = build.spread_all(operands[:half], mapped[:half])
    attributes = instruction.attributes | {"window": (WindowDimension(1), *window_of(instruction))}
    return arrays[0].op("reduce-window", *arrays[1:], *operands[half:], **attributes).results()


op(
    "reduce-window",
    family="window",
    infer=_reduce_window_infer,
    reference=_reduce_window_reference,
    code=No("its combiner is inlined by the kernel writer"),
    jvp=_reduce_window_jvp,
    transpose=_reduce_window_transpose,
    batch=_reduce_window_batch,
    factors=window_factors,
    attributes={"window": "window?", "to_apply": "computation"},
    dialects="hlo",
)

# --- select-and-scatter -------------------------------------------------------------------------------------------


def _select_and_scatter_infer(operands, attributes, shape):
    if len(operands) != 3:
        raise ShapeError(
            "select-and-scatter takes an operand, a source and an initial value",
            f"{len(operands)} operands",
            "pass all of them",
        )
    for given in operands:
        require_kind("select-and-scatter", given, ())
    operand, source, initial = operands
    window = attributes.get("window", ())
    check_window("select-and-scatter", window, operand.rank, dilates=False)
    dims = window_output("select-and-scatter", operand.dims, window)
    if source.dims != dims:
        raise ShapeError(
            "select-and-scatter takes a source with an element for each window position",
            f"source {source!r}, the window has {dims} places on {operand!r}",
            "give the source the shape of a reduce-window with this window",
        )
    if source.dtype != operand.dtype or initial != Shape(operand.dtype):
        raise DTypeError(
            "select-and-scatter takes a source and a scalar initial value of the operand's dtype",
            f"operand {operand!r}, source {source!r}, initial value {initial!r}",
            "convert them with astype",
        )
    scalar = Shape(operand.dtype)
    select = attributes.get("select")
    if select is None or [p.shape for p in select.parameters] != [scalar] * 2 or select.shape is not Shape(PRED):
        raise DTypeError(
            "select-and-scatter takes a computation select of two elements to pred",
            "none" if select is None else f"{[p.shape for p in select.parameters]} to {select.shape!r}",
            "pass a comparison",
        )
    require_combiner("select-and-scatter", "scatter", attributes.get("scatter"), [scalar])
    return operand


def selected_places(operand: np.ndarray, window, select, places) -> np.ndarray:
    """The flat index of the selected element of the operand, for each window position; -1 if none is within bounds."""
    spread = padded(operand, np.zeros((), operand.dtype)[()], window)
    numbers = padded(np.arange(operand.size).reshape(operand.shape), np.int64(-1), window)
    first, *others = (_tap_slices(tap, window, places) for tap in np.ndindex(tuple(d.size for d in window)))
    best, chosen = spread[first], numbers[first]
    for slices in others:
        value, number = spread[slices], numbers[slices]
        keep = np.asarray(evaluate(select, [best, value], lifted=places), dtype=bool)
        take = (number >= 0) & ((chosen < 0) | ~keep)
        best, chosen = np.where(take, value, best), np.where(take, number, chosen)
    return chosen


def _select_and_scatter_reference(operand, source, initial, shape, select, scatter, window=()):
    if not operand.size or not source.size:
        return np.full(shape.dims, initial, shape.dtype)
    chosen = selected_places(operand, window, select, source.shape).reshape(-1)
    values = source.reshape(-1)[chosen >= 0]
    chosen = chosen[chosen >= 0]
    opcode = combiner_opcode(scatter)
    if opcode in UFUNCS and shape.dtype != PRED:
        dtype = _wide(shape.dtype, opcode)
        result = np.full(operand.size, initial, dtype)
        with np.errstate(all="ignore"):
            UFUNCS[opcode].at(result, chosen, values.astype(dtype))
            return result.astype(shape.dtype).reshape(shape.dims)
    # Any other combiner: each round combines the first remaining source for each element.
    result = np.full(operand.size, initial, shape.dtype)
    while chosen.size:
        targets, first = np.unique(chosen, return_index=True)
        result[targets] = evaluate(scatter, [result[targets], values[first]], lifted=targets.shape)
        rest = np.ones(chosen.size, bool)
        rest[first] = False
        chosen, values = chosen[rest], values[rest]
    return result.reshape(shape.dims)


def _requires_sum(instruction) -> str:
    """The direction of a select-and-scatter that adds. Raises DifferentiationError for others."""
    direction = select_direction(instruction["select"])
    if direction is None or combiner_opcode(instruction["scatter"]) != "add":
        raise DifferentiationError(
            "the derivative of 'select-and-scatter' was asked for",
            f"it selects by '{instruction['select'].name}' and scatters by '{instruction['scatter'].name}'",
            "it has one where it selects by a comparison and scatters by add",
            source=instruction.source,
        )
    return direction


def _select_and_scatter_jvp(build, instruction, primals, tangents):
    if tangents[1] is None and tangents[2] is None:
        return None  # the selected element does not change
    _requires_sum(instruction)
    source, initial = (p.like(0) if t is None else t for p, t in zip(primals[1:], tangents[1:], strict=True))
    return primals[0].op("select-and-scatter", source, initial, **instruction.attributes)


def _select_and_scatter_transpose(build, instruction, g, operands):
    direction = _requires_sum(instruction)
    return [
        None,
        _selected(operands[0], g, direction, window_of(instruction)) if operands[1] is None else None,
        g.sum(range(len(g.dims))) if operands[2] is None else None,
    ]


def _select_and_scatter_batch(build, instruction, operands, mapped):
    operand, source = build.spread_all(operands[:2], mapped[:2])
    initial = operands[2]
    attributes = instruction.attributes | {"window": (WindowDimension(1), *window_of(instruction))}
    if not mapped[2]:
        return operand.op("select-and-scatter", source, initial, **attributes)
    opcode = combiner_opcode(instruction["scatter"])
    if opcode is None or OPS[opcode].identity is None:
        raise BatchingError(
            "vmap of 'select-and-scatter' was asked for",
            f"its initial value differs, and '{instruction['scatter'].name}' is not a combiner with a neutral element",
            "scatter by add, multiply, maximum or minimum",
            source=instruction.source,
        )
    neutral = operand.scalar(OPS[opcode].neutral(operand.dtype))
    made = operand.op("select-and-scatter", source, neutral, **attributes)
    return initial.broadcast(made.dims, (0,)).op(opcode, made)


op(
    "select-and-scatter",
    family="window",
    infer=_select_and_scatter_infer,
    reference=_select_and_scatter_reference,
    code=No("a nest with a loop over the windows of each element"),
    jvp=_select_and_scatter_jvp,
    transpose=_select_and_scatter_transpose,
    batch=_select_and_scatter_batch,
    factors=window_factors,
    attributes={"window": "window?", "select": "computation", "scatter": "computation"},
    dialects="hlo",
)
