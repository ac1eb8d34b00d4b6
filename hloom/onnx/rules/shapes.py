"""Shapes: reshaping, joining, cutting, padding, and arrays that are made from shapes."""

from __future__ import annotations

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ShapeError, UndecidedSizeError
from hloom.ir.sizes.expressions import LARGEST, Size, SizeExpression
from hloom.onnx.reader import dtype_of
from hloom.onnx.sizes import count_of, integers, sizes_or_numbers
from hloom.onnx.table import op


def _is_text(x) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind in "OSU"


def library(*values):
    """NumPy for strings, which are always known; hloom.numpy for numbers."""
    return np if any(map(_is_text, values)) else hnp


def reshaped(x, shape: tuple[Size, ...], allow_zero: int = 0):
    """x in another shape; 0 keeps a size, -1 is inferred from the rest."""
    if not allow_zero:
        shape = tuple(x.shape[k] if size == 0 and k < x.ndim else size for k, size in enumerate(shape))
    if allow_zero and 0 in shape and -1 in shape:
        raise ShapeError("Reshape with allowzero", f"the shape {list(shape)} with 0 and -1", "give all sizes")
    return library(x).reshape(x, shape)


@op("Reshape")
def reshape1(x, *, shape, consumed_inputs=()):
    return reshaped(x, tuple(shape))


@op("Reshape", since=5, static=(1,))
def reshape(x, shape, *, allowzero=0):
    return reshaped(x, integers(shape), allowzero)


@op("Flatten")
def flatten(x, *, axis=1):
    axis = axis + x.ndim if axis < 0 else axis
    return hnp.reshape(x, (count_of(x.shape[:axis]), count_of(x.shape[axis:])))


@op("Transpose")
def transpose(x, *, perm=None):
    return library(x).transpose(x, perm)


@op("Squeeze")
def squeeze1(x, *, axes=None):
    return library(x).squeeze(x, None if axes is None else tuple(axes))


@op("Squeeze", since=13, static=(1,))
def squeeze(x, axes=None):
    return library(x).squeeze(x, None if axes is None else integers(axes))


@op("Unsqueeze")
def unsqueeze1(x, *, axes):
    return library(x).expand_dims(x, tuple(axes))


@op("Unsqueeze", since=13, static=(1,))
def unsqueeze(x, axes):
    return library(x).expand_dims(x, integers(axes))


@op("Shape")
def shape(x, *, start=0, end=None):
    return sizes_or_numbers(x.shape[start:end], np.int64)


@op("Size")
def size(x):
    return sizes_or_numbers(count_of(x.shape), np.int64)


@op("Concat")
def concat(*parts, axis=1):
    return library(*parts).concatenate(parts, axis)


@op("Split")
def split1(node, x, sizes=None, *, axis=0, split=None):
    return _split(x, axis, split or (None if sizes is None else integers(sizes)), len(node.outputs))


@op("Split", since=13, static=(1,))
def split13(node, x, sizes=None, *, axis=0, num_outputs=None):
    count = num_outputs or len(node.outputs)
    return _split(x, axis, None if sizes is None else integers(sizes), count)


def _split(x, axis: int, sizes, count: int):
    total = x.shape[axis]
    if sizes is None:
        part = -(-total // count)
        sizes = [max(0, min(part, total - k * part)) for k in range(count)]
    if sum(sizes) != total:
        raise ShapeError(f"Split of an axis of size {total}", f"the sizes {list(sizes)}", "sizes that add up to it")
    return tuple(library(x).split(x, np.cumsum(sizes)[:-1].tolist(), axis))


@op("Slice")
def slice1(x, *, starts, ends, axes=None):
    return sliced(x, starts, ends, axes)


@op("Slice", since=10, static=(1, 2, 3, 4))
def slice10(x, starts, ends, axes=None, steps=None):
    return sliced(x, *(None if v is None else integers(v) for v in (starts, ends, axes, steps)))


def sliced(x, starts, ends, axes=None, steps=None):
    """x[start:end:step] along some axes, with NumPy's meaning of negative positions."""
    cuts = [slice(None)] * x.ndim
    open_ends = any([isinstance(size, SizeExpression) for size in (*starts, *ends)])
    if open_ends:
        x = hnp.asarray(x)  # NumPy splits at indices
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = axes[k] if axes else k
        step = steps[k] if steps else 1
        length = x.shape[axis]
        if step > 0 and isinstance(end, int) and end >= LARGEST:
            end = None
        if step < 0 and end < -length:
            end = None
        if open_ends and step == 1 and _is_inside(start, end, length):
            x = lax.slice_in_dim(x, start, end, axis=axis)  # of that size, and not of the lesser of it and another
        else:
            cuts[axis] = slice(start, end, step)
    return x[tuple(cuts)]


def _is_inside(start: Size, end: Size | None, length: Size) -> bool:
    """Whether positions need no cut to the length of the axis."""
    try:
        return end is not None and bool(0 <= start) and bool(start <= end) and bool(end <= length)
    except UndecidedSizeError:
        return False


def padded(x, pads: tuple[Size, ...], mode: str, value, axes=None):
    """x with pads before and after each axis (all the begins, then all the ends); negative ones cut."""
    axes = [a % x.ndim for a in axes] if axes is not None else list(range(x.ndim))
    widths: list[tuple[Size, Size]] = [(0, 0)] * x.ndim
    for k, axis in enumerate(axes):
        widths[axis] = pads[k], pads[k + len(axes)]
    if mode == "constant":
        value = np.zeros((), x.dtype) if value is None else value
        if np.dtype(x.dtype).kind == "b":
            return lax.pad(x.astype(np.int8), hnp.reshape(value, ()).astype(np.int8),
                           [(a, b, 0) for a, b in widths]).astype(bool)  # fmt: skip
        return lax.pad(hnp.asarray(x), hnp.reshape(hnp.asarray(value, x.dtype), ()), [(a, b, 0) for a, b in widths])
    if min(min(w) for w in widths) < 0:
        cut = tuple(slice(max(0, -a), x.shape[k] - max(0, -b)) for k, (a, b) in enumerate(widths))
        x, widths = x[cut], [(max(0, a), max(0, b)) for a, b in widths]
    return hnp.pad(x, widths, mode=mode)


@op("Pad")
def pad1(x, *, pads=None, paddings=None, mode="constant", value=0.0):
    return padded(x, tuple(pads or paddings), mode, np.asarray(value, x.dtype))


@op("Pad", since=11, static=(1, 3))
def pad11(x, pads, value=None, axes=None, *, mode="constant"):
    return padded(x, integers(pads), mode, value, None if axes is None else integers(axes))


@op("Tile")
def tile1(x, tiles, axis):
    return hnp.concatenate([x] * int(tiles), int(axis))


@op("Tile", since=6, static=(1,))
def tile(x, repeats):
    return library(x).tile(x, integers(repeats))


@op("Expand", static=(1,))
def expand(x, shape):
    shape = hnp.broadcast_shapes(x.shape, integers(shape))
    return library(x).broadcast_to(x, shape)


@op("ConstantOfShape", static=(0,))
def constant_of_shape(shape, *, value=None):
    value = np.zeros(1, np.float32) if value is None else value
    return hnp.full(integers(shape), value.reshape(()), value.dtype)


@op("Constant")
def constant(*, value=None, sparse_value=None, value_float=None, value_floats=None, value_int=None, value_ints=None,
             value_string=None, value_strings=None):  # fmt: skip
    for given, dtype in ((value_float, np.float32), (value_floats, np.float32), (value_int, np.int64),
                         (value_ints, np.int64), (value_string, object), (value_strings, object)):  # fmt: skip
        if given is not None:
            return np.asarray(given, dtype)
    return value if value is not None else sparse_value


@op("Range", static=(0, 1, 2))
def arange(start, limit, delta, *, stash_type=1):
    first, last, step = (v.reshape(()) for v in (start, limit, delta))
    wide = np.float64 if start.dtype.kind not in "iu" else np.int64
    count = max(0, int(np.ceil((last.astype(wide) - first.astype(wide)) / step.astype(wide))))
    if count > 1 << 33:
        raise ShapeError("Range", f"{count} elements", "a smaller range")
    return (first.astype(wide) + np.arange(count) * step.astype(wide)).astype(start.dtype)


@op("EyeLike")
def eye_like(x, *, dtype=None, k=0):
    kind = np.dtype(x.dtype) if dtype is None else dtype_of(dtype)
    return hnp.eye(*x.shape, k=k, dtype=kind)


@op("Trilu", static=(1,))
def triangle(x, k=None, *, upper=1):
    k = 0 if k is None else int(k.reshape(-1)[0])
    return (hnp.triu if upper else hnp.tril)(x, k)


@op("DepthToSpace")
def depth_to_space(x, *, blocksize, mode="DCR"):
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        x = hnp.transpose(hnp.reshape(x, (n, b, b, c // b**2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        x = hnp.transpose(hnp.reshape(x, (n, c // b**2, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return hnp.reshape(x, (n, c // b**2, h * b, w * b))


@op("SpaceToDepth")
def space_to_depth(x, *, blocksize, mode="DCR"):
    n, c, h, w = x.shape
    b = blocksize
    parts = hnp.reshape(x, (n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return hnp.reshape(hnp.transpose(parts, order), (n, c * b * b, h // b, w // b))
