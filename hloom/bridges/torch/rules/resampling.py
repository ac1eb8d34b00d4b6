"""Images at other sizes and positions: interpolation, grids, paddings by reflection and replication, folds."""

from __future__ import annotations

import math

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import TO_TORCH, computed_in, convert, operand
from hloom.bridges.torch.rules.pooling import Windows
from hloom.bridges.torch.table import rule
from hloom.errors import UnsupportedError
from hloom.ir.types import FLOATS
from hloom.transforms.gradient import vjp


def _computed(x):
    return convert(x, computed_in(TO_TORCH[x.dtype]))


def _taken(x, places: np.ndarray, axis: int):
    """The elements of x at known positions along an axis."""
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


# --- interpolation by matrices: cubic, and smaller sizes without aliases ---


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel (1981)."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _ratio(extent: int, count: int, align_corners: bool, factor) -> float:
    """Input elements for each output element."""
    if align_corners:
        return (extent - 1) / (count - 1) if count > 1 else 0.0
    return 1.0 / factor if factor is not None and factor > 0 else extent / count


def _of_cubic(extent: int, count: int, ratio: float, align_corners: bool) -> np.ndarray:
    """The weights (count, extent) of cubic interpolation; beyond the border the outermost element is repeated."""
    at = np.arange(count) * ratio if align_corners else (np.arange(count) + 0.5) * ratio - 0.5
    low, weights = np.floor(at), np.zeros((count, extent))
    for tap in range(-1, 3):
        place = np.clip(low + tap, 0, extent - 1).astype(int)
        np.add.at(weights, (np.arange(count), place), _cubic(at - low - tap, -0.75))
    return weights


def _of_means(extent: int, count: int, ratio: float, kernel, reach: float) -> np.ndarray:
    """The weights (count, extent) of a kernel that is as wide as the distance of output elements. reach: of the kernel,
    where these are as dense as the input's."""
    width = max(ratio, 1.0)
    center = ratio * (np.arange(count) + 0.5)
    first = np.maximum((center - reach * width + 0.5).astype(int), 0)
    last = np.minimum((center + reach * width + 0.5).astype(int), extent)
    places = np.arange(extent)
    inside = (places >= first[:, None]) & (places < last[:, None])
    weights = np.where(inside, kernel((places - center[:, None] + 0.5) / width), 0)
    return weights / np.sum(weights, axis=1, keepdims=True)


_MATRICES = {
    "upsample_bicubic2d": lambda n, m, ratio, corners: _of_cubic(n, m, ratio, corners),
    "_upsample_bilinear2d_aa": lambda n, m, ratio, corners: _of_means(n, m, ratio, _triangle, 1.0),
    "_upsample_bicubic2d_aa": lambda n, m, ratio, corners: _of_means(
        n, m, ratio, lambda x: _cubic(x, -0.5), 2.0),
}  # fmt: skip


def _by_matrices(name: str, weights_of):
    """The rules of an interpolation that is a product with a matrix in each dimension, and of its derivative."""

    def matrices(sizes, counts, align_corners: bool, factors, dtype):
        return [
            hnp.asarray(weights_of(n, m, _ratio(n, m, align_corners, f), align_corners).astype(dtype))
            for n, m, f in zip(sizes, counts, factors, strict=True)
        ]

    def checked(x):
        if x.dtype not in FLOATS:
            raise UnsupportedError(f"{name} of integers", f"{x.dtype}", "convert it to floats", "")
        return _computed(x)

    @rule(f"{name}.vec")
    def vec(x, output_size, align_corners, factors):
        counts, factors = _sizes(x, output_size, factors, 2)
        return plain(x, counts, align_corners, *factors)

    @rule(f"{name}.default")
    def plain(x, output_size, align_corners, scales_h=None, scales_w=None):
        x = checked(x)
        rows, columns = matrices(x.shape[2:], output_size, align_corners, (scales_h, scales_w), x.dtype)
        return hnp.matmul(hnp.matmul(rows, x), hnp.transpose(columns))

    @rule(f"{name}_backward.default")
    def backward(grad, output_size, input_size, align_corners, scales_h=None, scales_w=None):
        grad = checked(grad)
        rows, columns = matrices(input_size[2:], output_size, align_corners, (scales_h, scales_w), grad.dtype)
        return hnp.matmul(hnp.matmul(hnp.transpose(rows), grad), columns)


for _name, _weights_of in _MATRICES.items():
    _by_matrices(_name, _weights_of)


# --- folds ---


@rule("col2im.default")
def col2im(x, output_size, kernel_size, dilation, padding, stride):
    """The sums of overlapping blocks: x (batch, channels * taps, blocks) or without batch."""
    single = x.ndim == 2
    x = hnp.expand_dims(x, 0) if single else x
    windows = Windows(output_size, kernel_size, stride, padding, dilation)
    taps = math.prod(windows.size)
    parts = lax.reshape(x, (x.shape[0], x.shape[1] // taps, taps, *windows.counts))
    numbers = {offset: k for k, offset in enumerate(windows.offsets())}
    total = windows.spread(lambda place: place.moved(lax.index_in_dim(parts, numbers[place.offset], 2, keepdims=False)))
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
