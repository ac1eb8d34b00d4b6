"""Pooling: maxima, means and norms of windows."""

from __future__ import annotations

from itertools import product

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.ir.sizes.expressions import greatest
from hloom.onnx.rules.convolutions import window_pads
from hloom.onnx.sizes import count_of, integers
from hloom.onnx.table import op


class _Windows:
    """The windows of a pooling op over x (N, C, *spatial)."""

    def __init__(self, x, kernel, strides, dilations, pads, auto_pad: str, ceil_mode: int = 0):
        rank = len(kernel)
        self.kernel, self.strides = tuple(kernel), tuple(strides or (1,) * rank)
        self.dilations = tuple(dilations or (1,) * rank)
        self.pads = window_pads(auto_pad, pads, x.shape[2:], self.kernel, self.strides, self.dilations)
        self.given = list(self.pads)
        if ceil_mode and auto_pad in ("", "NOTSET"):
            for k, (before, after) in enumerate(self.pads):
                span = x.shape[2 + k] + before + after - (self.kernel[k] - 1) * self.dilations[k] - 1
                count = -(-span // self.strides[k]) + 1
                if (count - 1) * self.strides[k] >= x.shape[2 + k] + before:
                    count -= 1  # a window that starts in the trailing padding is left out
                needed = (count - 1) * self.strides[k] - span
                self.pads[k] = before, after + greatest(0, needed)

    def reduce(self, x, start, combine):
        one = (1, 1)
        return lax.reduce_window(
            x, np.asarray(start, x.dtype), combine, one + self.kernel, one + self.strides,
            [(0, 0), (0, 0), *self.pads], window_dilation=one + self.dilations,
        )  # fmt: skip


def _lowest(dtype):
    return hnp.iinfo(dtype).min if np.dtype(dtype).kind in "iu" else -np.inf


@op("MaxPool")
def max_pool(node, x, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, dilations=None, pads=None, storage_order=0,
             strides=None):  # fmt: skip
    windows = _Windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    y = windows.reduce(x, _lowest(x.dtype), lax.max)
    return (y, _argmax(x, windows, y.shape, storage_order)) if node.wants(1) else y


def _argmax(x, windows: _Windows, shape, storage_order: int):
    """The position of each window's first maximum in x as one flat array."""
    spatial = x.shape[2:]
    padded = lax.pad(hnp.asarray(x), np.asarray(_lowest(x.dtype), x.dtype),
                     [(0, 0, 0)] * 2 + [(a, b, 0) for a, b in windows.pads])  # fmt: skip
    places = np.arange(int(np.prod(spatial)), dtype=np.int64)
    places = places.reshape(spatial[::-1]).T if storage_order else places.reshape(spatial)
    places = np.pad(places, windows.pads)
    values, at = [], []
    for tap in product(*map(range, windows.kernel)):
        cut = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, windows.dilations, shape[2:], windows.strides, strict=True)
        )
        values.append(padded[(slice(None), slice(None), *cut)])
        at.append(np.broadcast_to(places[cut], shape))
    best = hnp.argmax(hnp.stack(values), axis=0)
    flat = hnp.take_along_axis(hnp.asarray(np.stack(at)), best[None], axis=0)[0]
    planes = np.arange(x.shape[0] * x.shape[1], dtype=np.int64).reshape(*x.shape[:2], *[1] * len(spatial))
    return flat + planes * int(np.prod(spatial))


@op("AveragePool")
def average_pool(x, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, dilations=None, pads=None,
                 strides=None):  # fmt: skip
    windows = _Windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    total = windows.reduce(x, 0, lax.add)
    counted = hnp.ones((1, 1, *x.shape[2:]), np.float32)
    if count_include_pad:
        counted = hnp.pad(counted, [(0, 0), (0, 0), *windows.given], constant_values=1)
        extra = [(0, b - g) for (_, b), (_, g) in zip(windows.pads, windows.given, strict=True)]
        windows.pads = extra
    counts = windows.reduce(hnp.asarray(counted), 0, lax.add)
    return total / counts.astype(x.dtype)


@op("LpPool")
def lp_pool(x, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, dilations=None, p=2, pads=None, strides=None):
    windows = _Windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return windows.reduce(hnp.abs(x) ** p, 0, lax.add) ** (1.0 / p)


@op("GlobalAveragePool")
def global_average_pool(x):
    return hnp.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@op("GlobalMaxPool")
def global_max_pool(x):
    return hnp.max(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@op("GlobalLpPool")
def global_lp_pool(x, *, p=2):
    return hnp.sum(hnp.abs(x) ** p, axis=tuple(range(2, x.ndim)), keepdims=True) ** (1.0 / p)


@op("MaxUnpool", static=(2,))
def max_unpool(x, indices, shape=None, *, kernel_shape, pads=None, strides=None):
    rank = len(kernel_shape)
    strides, pads = strides or (1,) * rank, pads or (0,) * 2 * rank
    sizes = [
        (n - 1) * s + k - pads[d] - pads[d + rank]
        for d, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel_shape, strict=True))
    ]
    inner = (*x.shape[:2], *sizes)
    full = inner if shape is None else integers(shape)
    if full != inner:  # the indices count within the smaller result
        at = hnp.unravel_index(hnp.reshape(indices, -1), inner)
        flat = hnp.ravel_multi_index(at, full, mode="clip")
    else:
        flat = hnp.reshape(indices, -1)
    return hnp.reshape(hnp.zeros(count_of(full), x.dtype).at[flat].set(hnp.reshape(x, -1)), full)


@op("MaxRoiPool")
def max_roi_pool(x, rois, *, pooled_shape, spatial_scale=1.0):
    """The maximum of x in each cell of each region (regions, 5): batch, x0, y0, x1, y1."""
    height, width = x.shape[2:]
    scaled = hnp.round(rois[:, 1:] * spatial_scale).astype(np.int64)
    image = hnp.asarray(x)[rois[:, 0].astype(np.int64)]
    masks = []
    for axis, (cells, size) in enumerate(zip(pooled_shape, (height, width), strict=True)):
        start, end = scaled[:, 1 - axis], scaled[:, 3 - axis]
        cell = hnp.maximum(end - start + 1, 1).astype(np.float32) / cells
        k = hnp.arange(cells)
        low = hnp.clip(hnp.floor(k * cell[:, None]).astype(np.int64) + start[:, None], 0, size)
        high = hnp.clip(hnp.ceil((k + 1) * cell[:, None]).astype(np.int64) + start[:, None], 0, size)
        at = hnp.arange(size)
        masks.append((at >= low[..., None]) & (at < high[..., None]))
    rows, columns = masks
    low = np.asarray(-np.inf, x.dtype)
    first = hnp.max(hnp.where(rows[:, None, :, :, None], image[:, :, None], low), axis=3)
    result = hnp.max(hnp.where(columns[:, None, None], first[:, :, :, None], low), axis=4)
    return hnp.where(hnp.isinf(result), 0, result).astype(x.dtype)
