"""pad: constant values through the pad op, all other modes through slices and concatenation."""

from __future__ import annotations

import numpy as np

from hloom import lax
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import PRED
from hloom.lax.movement import broadcasted_iota
from hloom.lax.operands import NUMBERS, as_operand, broadcast_dims_to, convert, inexact_dtype, static_size, whole_number
from hloom.numpy.elementwise.table import add
from hloom.numpy.mapping import apply_along_axis
from hloom.numpy.reducing import reductions
from hloom.numpy.reducing.quantiles import median

_OPTIONS: dict[str, dict[str, object]] = {
    "constant": {"constant_values": 0},
    "linear_ramp": {"end_values": 0},
    "reflect": {"reflect_type": "even"},
    "symmetric": {"reflect_type": "even"},
    "edge": {},
    "wrap": {},
    "empty": {},
    "maximum": {"stat_length": None},
    "minimum": {"stat_length": None},
    "mean": {"stat_length": None},
    "median": {"stat_length": None},
}


def _pairs(value, rank: int, name: str) -> list[tuple]:
    """(before, after) for each axis from NumPy's forms: n, (n,), (before, after), ((before, after), ...)."""
    if isinstance(value, (list, tuple)):
        rows = [tuple(v) if isinstance(v, (list, tuple, np.ndarray)) else v for v in value]
        if rows and all(isinstance(r, tuple) for r in rows):
            rows = [r * 2 if len(r) == 1 else r for r in rows]
            if all(len(r) == 2 for r in rows) and len(rows) in (1, rank):
                return rows * rank if len(rows) == 1 else rows
        elif len(rows) in (1, 2) and not any(isinstance(r, tuple) for r in rows):
            return [(rows[0], rows[-1])] * rank
        raise ShapeError(
            f"pad takes {name} as a number, (before, after), or a pair for each axis",
            f"{value!r:.80} for rank {rank}",
            "pass ((before, after), ...), one pair for each axis",
        )
    return [(value, value)] * rank


def pad(array, pad_width, mode: str = "constant", **options):
    """array with elements added before and after along each axis.

    pad_width: a number, (before, after), or such a pair for each axis; also {axis: number or pair}. Modes as in NumPy:
    constant (constant_values), edge, wrap, reflect and symmetric (reflect_type 'even' or 'odd'), linear_ramp
    (end_values), maximum, minimum, mean, median (stat_length), empty (zeros). A function mode(vector, (before, after),
    axis, options) returns the padded vector, given each vector along each axis in turn, padded with zeros. Raises
    ShapeError, ArgumentError.

    >>> hnp.pad(hnp.array([1, 2, 3]), (1, 2))
    Array([0, 1, 2, 3, 0, 0], dtype=int32)
    >>> hnp.pad(hnp.array([1, 2, 3]), 2, mode="reflect")
    Array([3, 2, 1, 2, 3, 2, 1], dtype=int32)
    """
    x = as_operand(array, "pad")
    if callable(mode):
        return _by_function(x, pad_width, mode, options)
    allowed = _OPTIONS.get(mode)
    if allowed is None or not set(options) <= set(allowed):
        raise ArgumentError(
            f"pad in mode {mode!r:.40}" + (f" with {', '.join(options)}" if options else ""),
            f"modes {', '.join(_OPTIONS)}" if allowed is None else f"it takes {', '.join(allowed) or 'no options'}",
            "check the name of the mode and its options",
        )
    options = {**allowed, **options}
    if not x.ndim:
        return x
    widths = _widths(pad_width, x.ndim)
    if mode in ("constant", "empty"):
        return _constant(x, widths, options.get("constant_values", 0))
    for axis, (before, after) in enumerate(widths):
        if before or after:
            x = _pad_axis(x, axis, before, after, mode, options)
    return x


def _widths(pad_width, rank: int) -> list[tuple]:
    """(before, after) for each axis."""
    if isinstance(pad_width, np.ndarray):
        pad_width = pad_width.tolist()
    if isinstance(pad_width, dict):
        given = {k % rank: v if isinstance(v, (list, tuple)) else (v, v) for k, v in pad_width.items()}
        pad_width = [tuple(given.get(k, (0, 0))) for k in range(rank)]
    widths = [tuple(static_size(n, "pad", "width") for n in pair) for pair in _pairs(pad_width, rank, "pad_width")]
    if any(n < 0 for pair in widths for n in pair):
        raise ShapeError("pad takes widths that are not negative", f"{widths}", "slice the array to remove elements")
    return widths


def _by_function(x, pad_width, function, options):
    widths = [tuple(static_size(n, "pad", "width") for n in pair) for pair in _pairs(pad_width, x.ndim, "pad_width")]
    x = _constant(x, widths, 0)
    for axis, pair in enumerate(widths):

        def fill(vector, pair=pair, axis=axis):
            return convert(as_operand(function(vector, pair, axis, options), "pad"), vector.dtype)

        x = apply_along_axis(fill, axis, x)
    return x


def _constant(x, widths, values):
    pairs = _pairs(values, x.ndim, "constant_values")
    first = pairs[0][0]
    if type(first) in NUMBERS and all(v == first for pair in pairs for v in pair):
        return lax.pad(x, _value(first, x), [(*pair, 0) for pair in widths])
    for axis, (pair, sides) in enumerate(zip(widths, pairs, strict=True)):
        for side in (0, 1):
            if pair[side]:
                width = (pair[0], 0, 0) if side == 0 else (0, pair[1], 0)
                x = lax.pad(x, _value(sides[side], x), [width if k == axis else (0, 0, 0) for k in range(x.ndim)])
    return x


def _value(value, x):
    if type(value) in NUMBERS:
        return bool(value) if x.dtype == PRED else int(value) if x.dtype.kind in "iu" else value
    return convert(as_operand(value, "pad"), x.dtype)


def _take(x, axis: int, start: int, stop: int):
    return lax.slice_in_dim(x, start, stop, axis=axis)


def _stretched(x, axis: int, count: int):
    return broadcast_dims_to(x, (*x.shape[:axis], count, *x.shape[axis + 1 :]))


def _pad_axis(x, axis: int, before: int, after: int, mode: str, options):
    extent = x.shape[axis]
    if not extent:
        raise ShapeError(f"pad in mode '{mode}' of an empty axis", f"{x._shape!r}, axis {axis}", "use mode='constant'")
    if mode in ("reflect", "symmetric", "wrap"):
        return _repeated(x, axis, before, after, mode, options.get("reflect_type"))
    first, last = _take(x, axis, 0, 1), _take(x, axis, extent - 1, extent)
    if mode == "edge":
        sides = [_stretched(e, axis, n) for e, n in ((first, before), (last, after))]
    elif mode == "linear_ramp":
        ends = _pairs(options["end_values"], x.ndim, "end_values")[axis]
        sides = [
            _ramp(e, axis, n, end, rev)
            for e, n, end, rev in ((first, before, ends[0], False), (last, after, ends[1], True))
        ]
    else:
        given = _pairs(options["stat_length"], x.ndim, "stat_length")[axis]
        lengths = [extent if n is None else min(whole_number(n, "pad", "stat_length"), extent) for n in given]
        edges = _take(x, axis, 0, lengths[0]), _take(x, axis, extent - lengths[1], extent)
        sides = [_stretched(_statistic(e, axis, mode), axis, n) for e, n in zip(edges, (before, after), strict=True)]
    return lax.concatenate([s for s in (sides[0], x, sides[1]) if s.shape[axis]], axis)


def _statistic(x, axis, mode):
    if mode in ("maximum", "minimum"):
        return (reductions.max if mode == "maximum" else reductions.min)(x, axis, keepdims=True)
    result = reductions.mean(x, axis, keepdims=True) if mode == "mean" else median(x, axis, keepdims=True)
    return convert(lax.round(result, 1) if x.dtype.kind in "iu" else result, x.dtype)


def _ramp(edge, axis, count, end, reverse):
    """From `end` toward the edge, which is not included (reversed: away from it)."""
    dtype = inexact_dtype(edge.dtype)
    dims = (*edge.shape[:axis], count, *edge.shape[axis + 1 :])
    if not count:
        return _stretched(edge, axis, 0)
    position = broadcasted_iota(dtype, dims, axis)
    share = lax.div(position, float(count))
    if reverse:
        share = lax.div(lax.sub(float(count - 1), position), float(count))
    wide = _stretched(convert(edge, dtype), axis, count)
    start = broadcast_dims_to(convert(as_operand(end, "pad"), dtype), dims)
    result = add(start, lax.mul(lax.sub(wide, start), share))
    return convert(lax.floor(result) if edge.dtype.kind in "iu" else result, edge.dtype)


def _repeated(x, axis, before, after, mode, reflect_type):
    """Mirrored or repeated parts, in as many rounds as the widths need."""
    if mode == "wrap":
        return _wrapped(x, axis, before, after)
    skip = 1 if mode == "reflect" else 0
    if x.shape[axis] == 1 and skip:
        parts = [_stretched(x, axis, n) for n in (before, 1, after) if n]
        return lax.concatenate(parts, axis)
    period = x.shape[axis] - skip
    while before or after:
        extent = x.shape[axis]
        # Whole periods, so that the new edges are mirror axes again.
        longest = (extent - skip) // period * period
        low, high = min(before, longest), min(after, longest)
        parts = [x]
        if low:
            mirrored = lax.rev(_take(x, axis, skip, skip + low), (axis,))
            parts.insert(0, _odd(x, axis, 0, mirrored) if reflect_type == "odd" else mirrored)
        if high:
            mirrored = lax.rev(_take(x, axis, extent - skip - high, extent - skip), (axis,))
            parts.append(_odd(x, axis, extent - 1, mirrored) if reflect_type == "odd" else mirrored)
        x = lax.concatenate(parts, axis)
        before, after = before - low, after - high
    return x


def _odd(x, axis, position, mirrored):
    edge = broadcast_dims_to(_take(x, axis, position, position + 1), mirrored.shape)
    return lax.sub(lax.add(edge, edge), mirrored)


def _wrapped(x, axis, before, after):
    extent = x.shape[axis]
    parts = [_take(x, axis, extent - before % extent, extent)] if before % extent else []
    parts += [x] * (before // extent + 1 + after // extent)
    if after % extent:
        parts.append(_take(x, axis, 0, after % extent))
    return lax.concatenate(parts, axis)
