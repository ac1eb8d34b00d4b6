"""Gathers, scatters, one-hot vectors, and selection of elements by their values."""

from __future__ import annotations

from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom.ir.sizes.expressions import Size, SizeExpression
from hloom.onnx.rules.shapes import library
from hloom.onnx.sizes import integers
from hloom.onnx.table import NeedsValue, op


def _wrapped(indices, size: Size):
    """Negative indices count from the end."""
    count = hnp.full((), size, indices.dtype) if isinstance(size, SizeExpression) else np.asarray(size, indices.dtype)
    return hnp.where(indices < 0, indices + count, indices)


@op("Gather")
def gather(x, indices, *, axis=0):
    if library(x) is np:
        if not isinstance(indices, np.ndarray):
            raise NeedsValue("it selects strings")
        return np.take(x, indices, axis)
    return hnp.take(x, _wrapped(indices, x.shape[axis]), axis=axis)


def _places(indices, axis: int, shape) -> tuple:
    """The index of each element of `indices` into an array: its own position, but along one axis."""
    grid: list[Any] = [
        hnp.arange(size, dtype=np.int64).reshape([-1 if k == d else 1 for k in range(indices.ndim)])
        for d, size in enumerate(indices.shape)
    ]
    grid[axis] = _wrapped(indices, shape[axis])
    return tuple(grid)


@op("GatherElements")
def gather_elements(x, indices, *, axis=0):
    return hnp.asarray(x).at[_places(indices, axis % x.ndim, x.shape)].get(mode="fill")


@op("GatherND")
def gather_nd(x, indices, *, batch_dims=0):
    depth = indices.shape[-1]
    places = [_wrapped(indices[..., k], x.shape[batch_dims + k]) for k in range(depth)]
    grid = [
        hnp.arange(size, dtype=np.int64).reshape([-1 if k == d else 1 for k in range(indices.ndim - 1)])
        for d, size in enumerate(x.shape[:batch_dims])
    ]
    return hnp.asarray(x).at[(*grid, *places)].get(mode="fill")


def _updated(x, places: tuple, updates, reduction: str):
    at = hnp.asarray(x).at[places]
    return {"none": at.set, "add": at.add, "mul": at.multiply, "max": at.max, "min": at.min}[reduction](updates)


@op("Scatter ScatterElements")
def scatter_elements(x, indices, updates, *, axis=0, reduction="none"):
    return _updated(x, _places(indices, axis % x.ndim, x.shape), updates, reduction)


@op("ScatterND")
def scatter_nd(x, indices, updates, *, reduction="none"):
    places = tuple(_wrapped(indices[..., k], x.shape[k]) for k in range(indices.shape[-1]))
    return _updated(x, places, updates, reduction)


@op("TensorScatter")
def tensor_scatter(x, update, write_indices=None, *, axis=-2, mode="linear"):
    """Writes a block along an axis, at a start for each element of the batch (the update of a key-value cache)."""
    axis = axis % x.ndim
    count, size = update.shape[axis], x.shape[axis]
    starts = np.zeros(x.shape[0], np.int64) if write_indices is None else write_indices
    along = hnp.reshape(starts, (-1, 1)) + hnp.arange(count, dtype=np.int64)
    if mode == "circular":
        along = hnp.remainder(along, size)
    shape = [1] * x.ndim
    shape[0], shape[axis] = x.shape[0], count
    grid: list[Any] = [
        hnp.arange(s, dtype=np.int64).reshape([-1 if k == d else 1 for k in range(x.ndim)])
        for d, s in enumerate(update.shape)
    ]
    grid[axis] = hnp.reshape(along, shape)
    return hnp.asarray(x).at[tuple(grid)].set(update)


@op("OneHot", static=(1,))
def one_hot(indices, depth, values, *, axis=-1):
    depth = int(depth.reshape(-1)[0])
    rank = indices.ndim + 1
    places = _wrapped(indices, depth)
    hot = hnp.expand_dims(places, axis % rank) == hnp.arange(depth).astype(indices.dtype).reshape(
        [-1 if k == axis % rank else 1 for k in range(rank)]
    )
    return hnp.where(hot, values[1], values[0])


@op("ReverseSequence")
def reverse_sequence(x, lengths, *, batch_axis=1, time_axis=0):
    size = x.shape[time_axis]
    at = [-1 if k == time_axis else 1 for k in range(x.ndim)]
    time = hnp.arange(size, dtype=np.int64).reshape(at)
    length = hnp.reshape(lengths, [-1 if k == batch_axis else 1 for k in range(x.ndim)])
    source = hnp.where(time < length, length - 1 - time, time)
    return hnp.take_along_axis(hnp.asarray(x), hnp.broadcast_to(source, [
        s if k in (time_axis, batch_axis) else 1 for k, s in enumerate(x.shape)]), axis=time_axis)  # fmt: skip


# --- results whose shapes depend on values: with NumPy ---------------------------------------------------------------


@op("NonZero", host=True)
def non_zero(x):
    return np.array(np.nonzero(np.atleast_1d(x)), np.int64)


@op("Compress", host=True)
def compress(x, condition, *, axis=None):
    return np.compress(condition, x, axis)


@op("Unique", host=True)
def unique(x, *, axis=None, sorted=1):
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        back = np.argsort(order)
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], back[inverse]
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


@op("NonMaxSuppression", host=True)
def non_max_suppression(boxes, scores, most=None, overlap=None, least=None, *, center_point_box=0):
    """Boxes of high scores that overlap no better one of their class; rows of (batch, class, box)."""
    count = 0 if most is None else integers(most)[0]
    limit = 0.0 if overlap is None else float(overlap.reshape(-1)[0])
    minimum = -np.inf if least is None else float(least.reshape(-1)[0])
    if center_point_box:
        x, y, w, h = (boxes[..., k] for k in range(4))
        low, high = np.stack([y - h / 2, x - w / 2], -1), np.stack([y + h / 2, x + w / 2], -1)
    else:
        low, high = np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])
    area = np.prod(high - low, -1)
    found = []
    for n, of_class in np.ndindex(*scores.shape[:2]):
        kept: list[int] = []
        s = scores[n, of_class]
        for k in np.argsort(-s, kind="stable"):
            if len(kept) >= count or (s[k] <= minimum and least is not None):
                break
            both = np.maximum(0, np.minimum(high[n, k], high[n, kept]) - np.maximum(low[n, k], low[n, kept])).prod(-1)
            if not kept or np.all(both <= limit * (area[n, k] + area[n, kept] - both)):
                kept.append(int(k))
        found += [(n, of_class, k) for k in kept]
    return np.array(found, np.int64).reshape(-1, 3)
