"""Pooling: maxima and means of windows in the last 1, 2 or 3 dimensions, and their derivatives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import S64, TO_TORCH, computed_in, convert, operand
from hloom.bridges.torch.table import rule
from hloom.ir.records import record
from hloom.ir.types import FLOATS
from hloom.transforms.gradient import vjp


class Windows:
    """The windows of a pooling over the last dimensions of an array. counts: how many there are by dimension."""

    def __init__(self, dims, size, stride, padding, dilation=1, ceil_mode: bool = False, rank: int = 2):
        self.size, self.padding, self.dilation = (_each(v, rank) for v in (size, padding, dilation))
        self.stride = _each(stride, rank) if stride not in ((), [], None) else self.size
        self.space = tuple(dims[-rank:])
        self.counts = tuple(self._count(k, ceil_mode) for k in range(rank))
        # Padding on the high side: as much as the last window needs, which may be less or more than requested.
        self.high = tuple(
            max((n - 1) * s + d * (k - 1) + 1 - e - p, 0)
            for n, s, d, k, e, p in zip(
                self.counts, self.stride, self.dilation, self.size, self.space, self.padding, strict=True
            )
        )

    def _count(self, k: int, ceil_mode: bool) -> int:
        room = self.space[k] + 2 * self.padding[k] - self.dilation[k] * (self.size[k] - 1) - 1
        count = (-(-room // self.stride[k]) if ceil_mode else room // self.stride[k]) + 1
        # A window that begins in the padding on the high side is none.
        return count - 1 if ceil_mode and (count - 1) * self.stride[k] >= self.space[k] + self.padding[k] else count

    def padded(self, x, value):
        pads = [(low, high, 0) for low, high in zip(self.padding, self.high, strict=True)]
        return lax.pad(x, operand(value, x.dtype), [(0, 0, 0)] * (x.ndim - len(pads)) + pads)

    def offsets(self):
        """The positions within a window, in row-major order."""
        return itertools.product(*map(range, self.size))

    def elements(self, padded, offset):
        """Of each window the element at an offset."""
        lead = padded.ndim - len(offset)
        starts = [o * d for o, d in zip(offset, self.dilation, strict=True)]
        ends = [s + (n - 1) * step + 1 for s, n, step in zip(starts, self.counts, self.stride, strict=True)]
        return lax.slice(padded, (0,) * lead + tuple(starts), (*padded.shape[:lead], *ends), (1,) * lead + self.stride)

    @cached_property
    def places(self) -> list[Place]:
        """The positions of elements in windows."""
        counts = tuple(-(-e // s) for e, s in zip(self.space, self.stride, strict=True))
        found = []
        for offset in self.offsets():
            parts = [
                divmod(o * d - p, s)
                for o, d, p, s in zip(offset, self.dilation, self.padding, self.stride, strict=True)
            ]
            found.append(Place(offset, tuple(a for _, a in parts), tuple(q for q, _ in parts), counts))
        return found

    @cached_property
    def edges(self) -> list[tuple[int, int, int]]:
        """The windows that do not exist but in which elements have positions: how many there are around the others."""
        found = []
        for k, n in enumerate(self.counts):
            low = max(max(place.shift[k] for place in self.places), 0)
            high = max(max(place.counts[k] - place.shift[k] - n for place in self.places), 0)
            found.append((low, high, 0))
        return found

    def edged(self, values, beside=0):
        """Values of each window, with `beside` for windows that do not exist; `of` takes parts of them."""
        if not any(low or high for low, high, _ in self.edges):
            return values
        lead = [(0, 0, 0)] * (values.ndim - len(self.edges))
        # Padded once, so that edges are not checked for each position.
        return lax.optimization_barrier(lax.pad(values, operand(beside, values.dtype), lead + self.edges))

    def of(self, place: Place, edged):
        """For each element of a phase the value of the window in which it has this position."""
        lead = edged.ndim - len(self.edges)
        starts = [low - q for (low, _, _), q in zip(self.edges, place.shift, strict=True)]
        ends = [start + n for start, n in zip(starts, place.counts, strict=True)]
        return lax.slice(edged, (*[0] * lead, *starts), (*edged.shape[:lead], *ends))

    def spread(self, part_at: Callable[[Place], Any]):
        """The reverse: an array of the unpadded space with the sum of part_at(place) over the positions of an element
        in windows.

        Elements a stride apart have the same positions: those of each phase of the stride are summed without the
        elements between them, and then interleaved.
        """
        sums: dict[tuple[int, ...], Any] = {}
        for place in self.places:
            part, phase = part_at(place), place.phase
            sums[phase] = sums[phase] + part if phase in sums else part
        like = next(iter(sums.values()))
        nothing = lax.full(like.shape, 0, like.dtype)
        if len(sums) > 1:
            # Computed before they are laid side by side: with a condition for each phase the loop has no vectors.
            sums = {phase: lax.optimization_barrier(value) for phase, value in sums.items()}
        return self._interleaved(lambda phase: sums.get(phase, nothing), ())

    def _interleaved(self, sum_of, phase: tuple[int, ...]):
        """The sums of all phases that begin with `phase`, laid side by side along the other dimensions."""
        k = len(phase)
        if k == len(self.space):
            return sum_of(phase)
        parts = [self._interleaved(sum_of, (*phase, a)) for a in range(self.stride[k])]
        dims = parts[0].shape
        axis = len(dims) - len(self.space) + k
        found = parts[0]
        if len(parts) > 1:
            apart = (*dims[: axis + 1], 1, *dims[axis + 1 :])
            found = hnp.concatenate([lax.reshape(part, apart) for part in parts], axis=axis + 1)
            found = lax.reshape(found, (*dims[:axis], dims[axis] * len(parts), *dims[axis + 1 :]))
        return lax.slice_in_dim(found, 0, self.space[k], axis=axis)

    def positions(self, offset):
        """Of each window the number of the element at an offset in the unpadded space: s64 of the counts."""
        starts = [o * d - p for o, d, p in zip(offset, self.dilation, self.padding, strict=True)]
        return self._numbers(starts, self.counts)

    def numbers(self, place: Place):
        """The indices of a phase's elements in the unpadded space: s64 of its counts."""
        return self._numbers(place.phase, place.counts)

    def _numbers(self, starts, counts):
        total = None
        for k, (start, n, s) in enumerate(zip(starts, counts, self.stride, strict=True)):
            inner = math.prod(self.space[k + 1 :])
            line = (lax.iota(S64, n) * operand(s, S64) + operand(start, S64)) * operand(inner, S64)
            line = lax.reshape(line, tuple(n if m == k else 1 for m in range(len(counts))))
            total = line if total is None else total + line
        return total


@record(frozen=True)
class Place:
    """The positions of elements a stride apart in windows: at `offset`, those of a phase of the stride, in the window
    `shift` windows before the element's own index. counts: elements of the phase."""

    offset: tuple[int, ...]
    phase: tuple[int, ...]
    shift: tuple[int, ...]
    counts: tuple[int, ...]

    def moved(self, values):
        """Of each element the value of the window, zero where there is none."""
        lead = values.ndim - len(self.counts)
        places = zip(self.shift, self.counts, values.shape[lead:], strict=True)
        pads = [(q, e - q - n, 0) for q, e, n in places]
        return lax.pad(values, operand(0, values.dtype), [(0, 0, 0)] * lead + pads)


def _each(values, rank: int) -> tuple[int, ...]:
    values = (values,) if isinstance(values, int) else tuple(values)
    return values * rank if len(values) == 1 else values


def _lowest(dtype):
    return -np.inf if dtype in FLOATS else np.iinfo(dtype).min


def _max_pool(x, windows: Windows):
    """(the largest element of each window, its number in the unpadded space); the first of equal ones, NaN wins."""
    padded = windows.padded(x, _lowest(x.dtype))
    best = where = None
    for offset in windows.offsets():
        value = windows.elements(padded, offset)
        position = hnp.broadcast_to(windows.positions(offset), value.shape)
        if best is None:
            best, where = value, position
        else:
            larger = hnp.logical_or(value > best, lax.ne(value, value))
            best, where = hnp.where(larger, value, best), hnp.where(larger, position, where)
    return best, where


@rule("max_pool2d_with_indices.default")
def max_pool2d(x, size, stride=(), padding=0, dilation=1, ceil_mode=False):
    return _max_pool(x, Windows(x.shape, size, stride, padding, dilation, ceil_mode))


@rule("max_pool3d_with_indices.default")
def max_pool3d(x, size, stride=(), padding=0, dilation=1, ceil_mode=False):
    return _max_pool(x, Windows(x.shape, size, stride, padding, dilation, ceil_mode, 3))


def _max_pool_backward(grad, x, windows: Windows, indices):
    """Each window's derivative goes to the element that it was the largest of."""
    dtype = grad.dtype
    grad = convert(grad, computed_in(TO_TORCH[dtype]))

    indices, grad = windows.edged(indices, -1), windows.edged(grad)  # no element has the number -1

    def part_at(place):
        part = windows.of(place, grad)
        chosen = hnp.equal(windows.of(place, indices), hnp.broadcast_to(windows.numbers(place), part.shape))
        return hnp.where(chosen, part, operand(0, part.dtype))

    return convert(windows.spread(part_at), dtype)


@rule("max_pool2d_with_indices_backward.default")
def max_pool2d_backward(grad, x, size, stride, padding, dilation, ceil_mode, indices):
    return _max_pool_backward(grad, x, Windows(x.shape, size, stride, padding, dilation, ceil_mode), indices)


@rule("max_pool3d_with_indices_backward.default")
def max_pool3d_backward(grad, x, size, stride, padding, dilation, ceil_mode, indices):
    return _max_pool_backward(grad, x, Windows(x.shape, size, stride, padding, dilation, ceil_mode, 3), indices)


# --- means ---


def _sum_windows(x, windows: Windows):
    padded, total = windows.padded(x, 0), None
    for offset in windows.offsets():
        value = windows.elements(padded, offset)
        total = value if total is None else total + value
    return total


def _divisors(windows: Windows, count_include_pad: bool, divisor) -> np.ndarray | None:
    """How many elements each window has, as an array of the counts; None if all have one number, the divisor."""
    if divisor is not None:
        return None
    lines = []
    for k, n in enumerate(windows.counts):
        starts = np.arange(n) * windows.stride[k] - windows.padding[k]
        ends = np.minimum(starts + windows.size[k], windows.space[k] + windows.padding[k])
        if not count_include_pad:
            starts, ends = np.maximum(starts, 0), np.minimum(ends, windows.space[k])
        lines.append(ends - starts)
    found = lines[0]
    for line in lines[1:]:
        found = found[..., None] * line
    return found


def _mean_factor(windows: Windows, count_include_pad, divisor, dtype):
    counts = _divisors(windows, count_include_pad, divisor)
    if counts is None:
        return operand(float(divisor), dtype)
    if (counts == counts.flat[0]).all():
        return operand(float(counts.flat[0]), dtype)
    return hnp.asarray(counts.astype(dtype))


def _avg_pool(rank: int):
    def build(x, size, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        windows = Windows(x.shape, size, stride, padding, 1, ceil_mode, rank)
        wide = convert(x, computed_in(TO_TORCH[x.dtype]))
        total = _sum_windows(wide, windows)
        if x.dtype not in FLOATS:
            return lax.div(total, hnp.broadcast_to(_mean_factor(windows, count_include_pad, divisor_override, x.dtype),
                                                   total.shape))  # fmt: skip
        return convert(total / _mean_factor(windows, count_include_pad, divisor_override, wide.dtype), x.dtype)

    return build


def _avg_pool_backward(rank: int):
    def build(grad, x, size, stride, padding, ceil_mode, count_include_pad, divisor_override):
        windows = Windows(x.shape, size, stride, padding, 1, ceil_mode, rank)
        wide = convert(grad, computed_in(TO_TORCH[grad.dtype]))
        share = windows.edged(wide / _mean_factor(windows, count_include_pad, divisor_override, wide.dtype))
        return convert(windows.spread(lambda place: windows.of(place, share)), x.dtype)

    return build


avg_pool2d = rule("avg_pool2d.default")(_avg_pool(2))
avg_pool3d = rule("avg_pool3d.default")(_avg_pool(3))
rule("avg_pool2d_backward.default")(_avg_pool_backward(2))
rule("avg_pool3d_backward.default")(_avg_pool_backward(3))


def _adaptive(x, sizes):
    """Means of `sizes` windows: window i of n over e elements is floor(i e / n) to ceil((i + 1) e / n).
    One dimension after the other, as a product with a matrix of shares, unless the windows tile the dimension."""
    lead = x.ndim - len(sizes)
    for k, n in enumerate(sizes):
        axis, extent = lead + k, x.shape[lead + k]
        if extent % n == 0:
            width = extent // n
            if width > 1:
                split = lax.reshape(x, (*x.shape[:axis], n, width, *x.shape[axis + 1 :]))
                x = hnp.sum(split, axis=axis + 1) / operand(float(width), x.dtype)
            continue
        shares = np.zeros((n, extent))
        for i in range(n):
            start, end = i * extent // n, -(-(i + 1) * extent // n)
            shares[i, start:end] = 1 / (end - start)
        moved = hnp.tensordot(x, hnp.asarray(shares.astype(x.dtype)), axes=((axis,), (1,)))
        x = hnp.moveaxis(moved, -1, axis)
    return x


def _adaptive_rule(name: str):
    @rule(name)
    def build(x, sizes):
        return convert(_adaptive(convert(x, computed_in(TO_TORCH[x.dtype])), sizes), x.dtype)

    @rule(name.replace(".default", "_backward.default"))
    def build_backward(grad, x):
        rank = 3 if "3d" in name else 2
        wide = convert(grad, computed_in(TO_TORCH[x.dtype]))
        like = lax.full(x.shape, 0, wide.dtype)
        return convert(vjp(lambda v: _adaptive(v, grad.shape[-rank:]), like)[1](wide)[0], x.dtype)


_adaptive_rule("_adaptive_avg_pool2d.default")
_adaptive_rule("_adaptive_avg_pool3d.default")

__all__ = ["Windows"]


def _adaptive_places(space, counts) -> np.ndarray:
    """The positions in the flattened space of each window's elements, s64 (windows, most elements of one): the first
    again where a window has fewer."""
    found = np.zeros((1, 1), np.int64)
    for extent, count in zip(space, counts, strict=True):
        starts = np.arange(count) * extent // count
        ends = -(-(np.arange(count) + 1) * extent // count)
        reach = np.arange(max(int((ends - starts).max()), 1))
        places = np.where(starts[:, None] + reach < ends[:, None], starts[:, None] + reach, starts[:, None])
        found = (found[:, None, :, None] * extent + places[None, :, None, :]).reshape(
            found.shape[0] * count, found.shape[1] * len(reach)
        )
    return found


def _adaptive_max_pool(rank: int):
    @rule(f"adaptive_max_pool{rank}d.default", result=True)
    def build(x, counts, *, result):
        """(maxima, their positions in the flattened space)."""
        lead, space = x.shape[: x.ndim - rank], x.shape[x.ndim - rank :]
        if not math.prod(result[0].dims):
            return tuple(lax.full(shape.dims, 0, shape.dtype) for shape in result)
        table = _adaptive_places(space, counts)
        flat = lax.reshape(x, (math.prod(lead), math.prod(space)))
        values = lax.reshape(hnp.take(flat, hnp.asarray(table.reshape(-1)), axis=1), (flat.shape[0], *table.shape))
        chosen = hnp.expand_dims(hnp.argmax(values, axis=2), 2)
        found = hnp.take_along_axis(values, chosen, axis=2)
        tables = hnp.broadcast_to(hnp.asarray(table), values.shape)
        places = hnp.take_along_axis(tables, chosen, axis=2)
        return tuple(lax.reshape(v, result[0].dims) for v in (found, places))

    @rule(f"adaptive_max_pool{rank}d_backward.default")
    def build_backward(grad, x, indices):
        if not grad.size or not x.size:
            return lax.full(x.shape, 0, x.dtype)
        rows = math.prod(x.shape[: x.ndim - rank])
        wide = convert(grad, computed_in(TO_TORCH[grad.dtype]))
        places, values = (lax.reshape(v, (rows, v.size // rows)) for v in (indices, wide))
        number = hnp.expand_dims(lax.iota(S64, rows), 1)
        found = lax.full((rows, x.size // rows), 0, wide.dtype).at[number, places].add(values)
        return lax.reshape(found, x.shape)


_adaptive_max_pool(2)
_adaptive_max_pool(3)
