"""Views by strides of the memory that a tensor has, and changes of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import convert
from hloom.bridges.torch.memory import inverse
from hloom.bridges.torch.table import Memory, rule
from hloom.errors import UnsupportedError
from hloom.ir.sizes.expressions import Size


def _nested(dims: Sequence[Size], strides: Sequence[Size]) -> list[int] | None:
    """The dimensions with more than one element, the widest stride first, if each fits within a step of the one before;
    None if elements overlap."""
    wide = sorted((k for k, n in enumerate(dims) if n > 1), key=lambda k: -strides[k])
    for k, after in enumerate(wide):
        room = strides[wide[k - 1]] if k else None
        if strides[after] <= 0 or (room is not None and dims[after] * strides[after] > room):
            return None
    return wide


def _checked(count: Size, dims: Sequence[Size], strides: Sequence[Size], start: Size) -> None:
    last = start + sum((n - 1) * s for n, s in zip(dims, strides, strict=True))
    if start < 0 or last >= count:
        raise UnsupportedError(
            f"elements {start} to {last} of a tensor's memory", f"the tensor that holds it has {count}",
            "take the view of the tensor that holds them", "",
        )  # fmt: skip


def _steps(flat, start: Size, dims: Sequence[Size], strides: Sequence[Size]) -> tuple:
    """The slices, one dimension after another, that cut nested dimensions out of memory: (tensors before each cut,
    the elements)."""
    before = []
    found = lax.slice_in_dim(flat, start, flat.shape[0])
    for n, step in zip(dims, strides, strict=True):
        length, axis = n * step, found.ndim - 1
        before.append(found)
        extent = found.shape[-1]
        if extent < length:
            found = lax.pad(found, lax.full((), 0, found.dtype), [(0, 0, 0)] * axis + [(0, length - extent, 0)])
        elif extent > length:
            found = lax.slice_in_dim(found, 0, length, axis=axis)
        found = lax.reshape(found, (*found.shape[:-1], n, step))
    return before, found


def _places(dims: Sequence[Size], strides: Sequence[Size], start: Size):
    places = np.full((), int(start), np.int64)
    for extent, step in zip(dims, strides, strict=True):
        places = places[..., None] + np.arange(int(extent)) * int(step)
    return hnp.asarray(places.reshape(-1))


@rule("as_strided.default", memory=True, result=True)
def as_strided(memory: Memory, size, stride, storage_offset=None, *, result):
    flat, dims, start = memory.elements, result.dims, memory.place(storage_offset)
    if not result.size:
        return lax.full(dims, 0, result.dtype)
    _checked(flat.shape[0], dims, stride, start)
    # Dimensions of stride 0 repeat the elements of the others.
    read = [n if s else 1 for n, s in zip(dims, stride, strict=True)]
    nested = _nested(read, stride)
    if nested is None:
        return hnp.broadcast_to(lax.reshape(hnp.take(flat, _places(read, stride, start), axis=0), tuple(read)), dims)
    _, found = _steps(flat, start, [read[k] for k in nested], [stride[k] for k in nested])
    found = lax.index_in_dim(found, 0, found.ndim - 1, keepdims=False)
    found = lax.transpose(found, tuple(nested.index(k) for k in sorted(nested)))
    return hnp.broadcast_to(lax.reshape(found, tuple(read)), dims)


@rule("as_strided_scatter.default", "prims::as_strided_scatter.default", memory=True, result=True)
def as_strided_scatter(memory: Memory, source, size, stride, storage_offset=None, *, result):
    """The tensor that fills the memory with other elements where a view by strides has them."""
    if memory.order is None:
        raise UnsupportedError(
            "a change of a view by strides", "of a tensor that has gaps or is a view", "call .clone() before", ""
        )
    flat, start = memory.elements, memory.place(storage_offset)
    source = hnp.broadcast_to(convert(source, flat.dtype), tuple(size))
    if source.size:
        _checked(flat.shape[0], size, stride, start)
        flat = _changed(flat, source, start, size, stride)
    order = memory.order
    lying = lax.reshape(flat, tuple(memory.dims[k] for k in order))
    return lax.transpose(lying, inverse(order))


def _changed(flat, source, start: Size, size: Sequence[Size], stride: Sequence[Size]):
    nested = _nested(size, stride)
    if nested is None:
        return flat.at[_places(size, stride, start)].set(lax.reshape(source, (source.size,)))
    dims, strides = [size[k] for k in nested], [stride[k] for k in nested]
    before, found = _steps(flat, start, dims, strides)
    rest = [k for k in range(source.ndim) if k not in nested]
    part = lax.reshape(lax.transpose(source, (*nested, *rest)), tuple(dims))
    found = found.at[..., 0].set(part)
    for cut in reversed(before):
        found = lax.reshape(found, (*found.shape[:-2], found.shape[-2] * found.shape[-1]))
        extent = cut.shape[-1]
        if extent < found.shape[-1]:
            found = lax.slice_in_dim(found, 0, extent, axis=found.ndim - 1)
        elif extent > found.shape[-1]:
            found = cut.at[..., : found.shape[-1]].set(found)
    return flat.at[start:].set(found)


@rule("prims::copy_strided.default")
def copy_strided(x, stride):
    return x
