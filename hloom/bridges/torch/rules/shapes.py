"""Views, joins, parts and paddings: ops that rearrange elements."""

from __future__ import annotations

import math

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import convert, operand, result_type
from hloom.bridges.torch.table import rule


@rule("view.default", "_unsafe_view.default", "reshape.default", "_reshape_copy.default",
      result=True)  # fmt: skip
def view(x, size, *, result):
    return lax.reshape(x, result.dims)


@rule("view.dtype", result=True)
def view_dtype(x, dtype, *, result):
    old, new = x.dtype, result.dtype
    if old.itemsize == new.itemsize:
        return lax.bitcast_convert_type(x, new)
    if old.itemsize < new.itemsize:
        ratio = new.itemsize // old.itemsize
        return lax.bitcast_convert_type(lax.reshape(x, (*x.shape[:-1], x.shape[-1] // ratio, ratio)), new)
    return lax.reshape(lax.bitcast_convert_type(x, new), result.dims)


@rule("permute.default")
def permute(x, dims):
    return lax.transpose(x, tuple(d % x.ndim for d in dims))


@rule("t.default")
def t(x):
    return hnp.transpose(x)


@rule("transpose.int")
def transpose(x, first, second):
    return hnp.swapaxes(x, first, second) if x.ndim else x


@rule("expand.default", result=True)
def expand(x, size, implicit=False, *, result):
    return hnp.broadcast_to(x, result.dims)


@rule("unsqueeze.default", "squeeze.dim", "squeeze.dims", "squeeze.default", "prims::squeeze.default", result=True)
def reshaped(x, dims=None, *, result):
    return lax.reshape(x, result.dims)


@rule("cat.default", result=True)
def cat(parts, dim=0, *, result):
    dtype = result_type(*parts)
    parts = [convert(p, dtype) for p in parts if p.shape != (0,) or result.dims == (0,)]
    return hnp.concatenate(parts, axis=dim) if len(parts) > 1 else parts[0]


@rule("stack.default")
def stack(parts, dim=0):
    dtype = result_type(*parts)
    return hnp.stack([convert(p, dtype) for p in parts], axis=dim)


@rule("repeat.default", result=True)
def repeat(x, repeats, *, result):
    return hnp.tile(x, tuple(repeats))


@rule("flip.default")
def flip(x, dims):
    return lax.rev(x, tuple(sorted({d % x.ndim for d in dims}))) if x.ndim and dims else x


@rule("roll.default")
def roll(x, shifts, dims=()):
    return hnp.roll(x, tuple(shifts) if dims else shifts[0], tuple(dims) if dims else None)


# --- parts ---


@rule("select.int")
def select(x, dim, index):
    dim %= x.ndim
    return lax.index_in_dim(x, index % x.shape[dim], dim, keepdims=False)


def _bounds(size: int, start, end) -> tuple[int, int]:
    """The bounds of a slice between 0 and size, as PyTorch moves them there."""
    start = 0 if start is None else start + size if start < 0 else start
    end = size if end is None else end + size if end < 0 else end
    start = min(max(start, 0), size)
    return start, min(max(end, start), size)


@rule("slice.Tensor")
def slice_(x, dim=0, start=None, end=None, step=1):
    dim %= x.ndim
    start, end = _bounds(x.shape[dim], start, end)
    return lax.slice_in_dim(x, start, end, step, dim)


@rule("slice_scatter.default")
def slice_scatter(x, source, dim=0, start=None, end=None, step=1):
    dim %= x.ndim
    start, end = _bounds(x.shape[dim], start, end)
    source = hnp.broadcast_to(
        convert(source, x.dtype), (*x.shape[:dim], len(range(start, end, step)), *x.shape[dim + 1 :])
    )
    if (start, end, step) == (0, x.shape[dim], 1):
        return source
    index = (*(slice(None) for _ in range(dim)), slice(start, end, step))
    return x.at[index].set(source)


@rule("select_scatter.default")
def select_scatter(x, source, dim, index):
    dim %= x.ndim
    index %= x.shape[dim]
    return slice_scatter(x, hnp.expand_dims(source, dim), dim, index, index + 1)


@rule("split_with_sizes.default")
def split_with_sizes(x, sizes, dim=0):
    return tuple(hnp.split(x, list(np.cumsum(sizes)[:-1]), axis=dim))


@rule("split.Tensor")
def split(x, size, dim=0):
    extent = x.shape[dim]
    return tuple(hnp.split(x, list(range(size, extent, size)), axis=dim)) if extent else (x,)


@rule("unbind.int")
def unbind(x, dim=0):
    return tuple(select(x, dim, k) for k in range(x.shape[dim]))


@rule("diagonal.default", result=True)
def diagonal(x, offset=0, dim1=0, dim2=1, *, result):
    if not math.prod(result.dims):
        return lax.full(result.dims, 0, result.dtype)
    return hnp.diagonal(x, offset, dim1, dim2)


@rule("diagonal_scatter.default")
def diagonal_scatter(x, source, offset=0, dim1=0, dim2=1):
    """x with other elements on a diagonal; the diagonal is the last dimension of source."""
    dim1, dim2 = dim1 % x.ndim, dim2 % x.ndim
    if not source.size:
        return x
    moved = hnp.moveaxis(x, (dim1, dim2), (-2, -1))
    numbers = lax.iota(np.dtype(np.int32), source.shape[-1])
    rows, columns = (numbers + np.int32(max(shift, 0)) for shift in (-offset, offset))
    found = moved.at[..., rows, columns].set(convert(source, x.dtype))
    return hnp.moveaxis(found, (-2, -1), (dim1, dim2))


@rule("diagonal_backward.default", result=True)
def diagonal_backward(grad, input_sizes, offset, dim1, dim2, *, result):
    return diagonal_scatter(lax.full(result.dims, 0, grad.dtype), grad, offset, dim1, dim2)


@rule("constant_pad_nd.default")
def constant_pad_nd(x, pad, value=0):
    """pad: (low, high) of the last dimension first; negative ones cut."""
    pairs = [(pad[k], pad[k + 1], 0) for k in range(0, len(pad), 2)][::-1]
    return lax.pad(x, operand(value, x.dtype), [(0, 0, 0)] * (x.ndim - len(pairs)) + pairs)


@rule("tril.default")
def tril(x, diagonal=0):
    return hnp.tril(x, diagonal)


@rule("triu.default")
def triu(x, diagonal=0):
    return hnp.triu(x, diagonal)
