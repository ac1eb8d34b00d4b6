"""Images at other sizes and positions: interpolation, grids, paddings by reflection and replication, folds."""

from __future__ import annotations

import itertools
import math

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import S64, TO_TORCH, computed_in, convert, operand
from hloom.bridges.torch.rules.pooling import Windows
from hloom.bridges.torch.table import rule
from hloom.transforms.gradient import vjp


def _computed(x):
    return convert(x, computed_in(TO_TORCH[x.dtype]))


def _taken(x, places: np.ndarray, axis: int):
    """The elements of x at known places along an axis."""
    axis %= x.ndim
    count, extent = len(places), x.shape[axis]
    if extent and count % extent == 0 and (places == np.repeat(np.arange(extent), count // extent)).all():
        spread = hnp.broadcast_to(
            hnp.expand_dims(x, axis + 1), (*x.shape[: axis + 1], count // extent, *x.shape[axis + 1 :])
        )
        return lax.reshape(spread, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
    return hnp.take(x, hnp.asarray(places.astype(np.int32)), axis=axis, mode="clip")


# --- paddings ---


def _reflected(extent: int, low: int, high: int) -> np.ndarray:
    period = max(2 * (extent - 1), 1)
    places = np.abs(np.arange(-low, extent + high)) % period
    return np.where(places < extent, places, period - places)


def _replicated(extent: int, low: int, high: int) -> np.ndarray:
    return np.clip(np.arange(-low, extent + high), 0, extent - 1)


def _padding(name: str, rank: int, places):
    def build(x, padding):
        for k in range(rank):
            axis = x.ndim - 1 - k
            x = _taken(x, places(x.shape[axis], padding[2 * k], padding[2 * k + 1]), axis)
        return x

    rule(f"{name}.default")(build)

    @rule(f"{name}_backward.default")
    def build_backward(grad, x, padding):
        like = lax.full(x.shape, 0, _computed(grad).dtype)
        return vjp(lambda v: build(v, padding), like)[1](_computed(grad))[0]


for _rank in (1, 2, 3):
    _padding(f"reflection_pad{_rank}d", _rank, _reflected)
    _padding(f"replication_pad{_rank}d", _rank, _replicated)


# --- interpolation ---


def _step(extent: int, count: int, factor) -> np.float32:
    """Input elements for each output element, as ATen computes it."""
    return np.float32(1.0 / factor) if factor is not None and factor > 0 else np.float32(extent) / np.float32(count)


def _sizes(x, output_size, factors, rank: int):
    factors = list(factors) if factors is not None else [None] * rank
    if output_size is None:
        output_size = [int(math.floor(x.shape[x.ndim - rank + k] * factors[k])) for k in range(rank)]
    return list(output_size), factors


def _nearest(x, counts, factors):
    for k, (count, factor) in enumerate(zip(counts, factors, strict=True)):
        axis = x.ndim - len(counts) + k
        extent = x.shape[axis]
        places = np.floor(np.arange(count, dtype=np.float32) * _step(extent, count, factor)).astype(np.int64)
        x = _taken(x, np.minimum(places, extent - 1), axis)
    return x


def _linear(x, counts, align_corners: bool, factors):
    for k, (count, factor) in enumerate(zip(counts, factors, strict=True)):
        axis = x.ndim - len(counts) + k
        extent = x.shape[axis]
        numbers = np.arange(count, dtype=np.float32)
        if align_corners:
            at = numbers * np.float32((extent - 1) / (count - 1) if count > 1 else 0)
        else:
            at = np.maximum((numbers + np.float32(0.5)) * _step(extent, count, factor) - np.float32(0.5), 0)
        low = np.minimum(np.floor(at).astype(np.int64), extent - 1)
        share = np.clip(at - low, 0, 1).astype(x.dtype).reshape((count,) + (1,) * (x.ndim - 1 - axis))
        first, second = _taken(x, low, axis), _taken(x, np.minimum(low + 1, extent - 1), axis)
        share = hnp.asarray(share)
        x = first * (operand(1, x.dtype) - share) + second * share
    return x


def _interpolation(rank: int, kind: str, function):
    """The rules of an interpolation over `rank` dimensions: as torch calls it (vec), as ATen has it, backward."""
    corners = kind == "linear"

    @rule(f"upsample_{'bi' if corners else 'nearest'}{'linear' if corners else ''}{rank}d.vec")
    def vec(x, output_size, *options):
        counts, factors = _sizes(x, output_size, options[-1], rank)
        return function(_computed(x), counts, *options[:-1], factors)

    @rule(f"upsample_{'bi' if corners else 'nearest'}{'linear' if corners else ''}{rank}d.default")
    def plain(x, output_size, *options):
        scales = [*options[1:], *[None] * rank] if corners else [*options, *[None] * rank]
        return function(_computed(x), output_size, *(options[:1] if corners else ()), scales[:rank])

    @rule(f"upsample_{'bi' if corners else 'nearest'}{'linear' if corners else ''}{rank}d_backward.default")
    def backward(grad, output_size, input_size, *options):
        like = lax.full(tuple(input_size), 0, _computed(grad).dtype)
        return vjp(lambda v: plain(v, output_size, *options), like)[1](_computed(grad))[0]


_interpolation(2, "linear", _linear)
for _rank in (1, 2, 3):
    _interpolation(_rank, "nearest", _nearest)


# --- grids ---


def _unnormalized(at, extent: int, align_corners: bool):
    one, half = operand(1, at.dtype), operand(0.5, at.dtype)
    if align_corners:
        return (at + one) * half * operand(float(extent - 1), at.dtype)
    return ((at + one) * operand(float(extent), at.dtype) - one) * half


def _inside(at, extent: int, padding_mode: int, align_corners: bool):
    """Positions moved into the image: 1, to the border; 2, by reflection there; 0, as they are."""
    top = operand(float(extent - 1), at.dtype)
    if padding_mode == 0:
        return at
    if padding_mode == 2:
        low, span = (0.0, float(extent - 1)) if align_corners else (-0.5, float(extent))
        if span == 0:
            at = at * operand(0, at.dtype)
        else:
            away = hnp.abs(at - operand(low, at.dtype))
            turns = hnp.floor(away / operand(span, at.dtype))
            rest = hnp.fmod(away, operand(span, at.dtype))
            even = hnp.equal(hnp.fmod(turns, operand(2, at.dtype)), operand(0, at.dtype))
            at = hnp.where(even, rest + operand(low, at.dtype), operand(span + low, at.dtype) - rest)
    return hnp.clip(at, operand(0, at.dtype), top)


def _pixels(x, rows, columns):
    """x (batch, channels, height, width) at whole positions (batch, h, w): zeros outside of the image."""
    height, width = x.shape[2:]
    there = (rows >= 0) & (rows <= height - 1) & (columns >= 0) & (columns <= width - 1)
    row, column = (
        convert(hnp.clip(p, operand(0, p.dtype), operand(float(n - 1), p.dtype)), S64)
        for p, n in ((rows, height), (columns, width))
    )
    flat = lax.reshape(x, (*x.shape[:2], height * width))
    number = lax.reshape(row * operand(width, S64) + column, (x.shape[0], 1, rows.size // x.shape[0]))
    found = hnp.take_along_axis(flat, hnp.broadcast_to(number, (*x.shape[:2], number.shape[2])), axis=2)
    found = lax.reshape(found, (*x.shape[:2], *rows.shape[1:]))
    return hnp.where(hnp.expand_dims(there, 1), found, operand(0, x.dtype))


def _cubic(share):
    """The weights of four pixels (Keys, 1981, a = -0.75)."""
    a = -0.75

    def near(t):
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t):
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return far(share + 1), near(share), near(1 - share), far(2 - share)


def _grid_sample(x, grid, mode: int, padding_mode: int, align_corners: bool):
    columns, rows = (
        _unnormalized(lax.index_in_dim(grid, k, 3, keepdims=False), x.shape[3 - k], align_corners) for k in (0, 1)
    )

    def moved(rows, columns):
        return tuple(_inside(p, n, padding_mode, align_corners) for p, n in ((rows, x.shape[2]), (columns, x.shape[3])))

    if mode == 1:
        return _pixels(x, *(hnp.round(p) for p in moved(rows, columns)))
    if mode == 0:
        rows, columns = moved(rows, columns)
        top, left = hnp.floor(rows), hnp.floor(columns)
        total = None
        for down, right in itertools.product((0, 1), (0, 1)):
            r, c = top + operand(down, top.dtype), left + operand(right, left.dtype)
            weight = (1 - hnp.abs(rows - r)) * (1 - hnp.abs(columns - c))
            part = _pixels(x, r, c) * hnp.expand_dims(weight, 1)
            total = part if total is None else total + part
        return total
    top, left = hnp.floor(rows), hnp.floor(columns)
    across, along = _cubic(rows - top), _cubic(columns - left)
    total = None
    for i, j in itertools.product(range(4), range(4)):
        r, c = moved(top + operand(i - 1, top.dtype), left + operand(j - 1, left.dtype))
        part = _pixels(x, r, c) * hnp.expand_dims(across[i] * along[j], 1)
        total = part if total is None else total + part
    return total


@rule("grid_sampler_2d.default")
def grid_sampler_2d(x, grid, interpolation_mode, padding_mode, align_corners):
    return _grid_sample(_computed(x), _computed(grid), interpolation_mode, padding_mode, align_corners)


# --- folds ---


@rule("col2im.default")
def col2im(x, output_size, kernel_size, dilation, padding, stride):
    """The sums of overlapping blocks: x (batch, channels * taps, blocks) or without batch."""
    single = x.ndim == 2
    x = hnp.expand_dims(x, 0) if single else x
    windows = Windows(output_size, kernel_size, stride, padding, dilation)
    taps = math.prod(windows.size)
    parts = lax.reshape(x, (x.shape[0], x.shape[1] // taps, taps, *windows.counts))
    total = None
    for k, offset in enumerate(windows.offsets()):
        part = windows.spread(lax.index_in_dim(parts, k, 2, keepdims=False), offset)
        total = part if total is None else total + part
    assert total is not None, "a kernel has a tap"
    return lax.index_in_dim(total, 0, 0, keepdims=False) if single else total


@rule("im2col.default")
def im2col(x, kernel_size, dilation, padding, stride):
    """Blocks of an image as columns: (batch, channels * taps, blocks) or without batch."""
    single = x.ndim == 3
    x = hnp.expand_dims(x, 0) if single else x
    windows = Windows(x.shape, kernel_size, stride, padding, dilation)
    padded = windows.padded(x, 0)
    parts = hnp.stack([windows.elements(padded, offset) for offset in windows.offsets()], axis=2)
    found = lax.reshape(parts, (x.shape[0], x.shape[1] * math.prod(windows.size), math.prod(windows.counts)))
    return lax.index_in_dim(found, 0, 0, keepdims=False) if single else found
