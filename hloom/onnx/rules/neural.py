"""Convolutions, dropout, losses' parts, random arrays."""

from __future__ import annotations

import itertools
import zlib

import numpy as np

import hloom.numpy as hnp
from hloom import lax, random
from hloom.errors import UnsupportedError
from hloom.ir.sizes.expressions import greatest
from hloom.onnx.reader import dtype_of
from hloom.onnx.table import op


def window_pads(auto_pad: str, pads, sizes, kernel, strides, dilations) -> list[tuple[int, int]]:
    """(before, after) of each spatial axis."""
    rank = len(kernel)
    if auto_pad in ("", "NOTSET"):
        pads = pads or [0] * 2 * rank
        return list(zip(pads[:rank], pads[rank:], strict=True))
    if auto_pad == "VALID":
        return [(0, 0)] * rank
    found = []
    for size, extent, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = greatest(0, (-(-size // stride) - 1) * stride + (extent - 1) * dilation + 1 - size)
        less, more = total // 2, total - total // 2
        found.append((less, more) if auto_pad == "SAME_UPPER" else (more, less))
    return found


def _numbers(rank: int) -> tuple[str, str, str]:
    spatial = "".join(chr(ord("0") + k) for k in range(rank))
    return f"NC{spatial}", f"OI{spatial}", f"NC{spatial}"


def convolution(x, w, *, auto_pad, dilations, group, pads, strides, preferred=None):
    """The convolution of x (N, C, *spatial) with w (M, C / group, *kernel)."""
    rank = x.ndim - 2
    kernel = w.shape[2:]
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    padding = window_pads(auto_pad, pads, x.shape[2:], kernel, strides, dilations)
    return lax.conv_general_dilated(
        x, w, strides, padding, rhs_dilation=dilations, dimension_numbers=_numbers(rank), feature_group_count=group,
        preferred_element_type=preferred,
    )  # fmt: skip


def per_channel(b, rank: int):
    """A vector over channels, to broadcast over (N, C, *spatial)."""
    return hnp.reshape(b, (1, -1, *[1] * (rank - 2)))


@op("Conv")
def conv(x, w, b=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
    y = convolution(x, w, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides)
    return y if b is None else y + per_channel(b, x.ndim)


@op("ConvTranspose")
def conv_transpose(x, w, b=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None,
                   output_padding=None, output_shape=None, pads=None, strides=None):  # fmt: skip
    rank = x.ndim - 2
    kernel = w.shape[2:]
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    extra = output_padding or (0,) * rank
    ends = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    whole = [s * (n - 1) + e + o for s, n, e, o in zip(strides, x.shape[2:], ends, extra, strict=True)]
    if output_shape or auto_pad.startswith("SAME"):
        wanted = output_shape[-rank:] if output_shape else [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
        cuts = []
        for full, size in zip(whole, wanted, strict=True):
            total = full - size
            less, more = total // 2, total - total // 2
            cuts.append((less, more) if auto_pad == "SAME_UPPER" else (more, less))
    else:
        cuts = window_pads("NOTSET", None if auto_pad == "VALID" else pads, None, kernel, None, None)
    # (C, M / group, *kernel) to (M, C / group, *kernel), turned around
    turned = hnp.flip(w, tuple(range(2, rank + 2)))
    parts = hnp.reshape(turned, (group, w.shape[0] // group, *w.shape[1:]))
    turned = hnp.reshape(hnp.swapaxes(parts, 1, 2), (group * w.shape[1], w.shape[0] // group, *kernel))
    padding = [(e - 1 - a, e - 1 - b + o) for e, (a, b), o in zip(ends, cuts, extra, strict=True)]
    y = lax.conv_general_dilated(
        x, turned, (1,) * rank, padding, lhs_dilation=strides, rhs_dilation=dilations,
        dimension_numbers=_numbers(rank), feature_group_count=group,
    )  # fmt: skip
    return y if b is None else y + per_channel(b, x.ndim)


@op("DeformConv")
def deformable(x, w, offset, b=None, mask=None, *, dilations=None, group=1, kernel_shape=None, offset_group=1,
               pads=None, strides=None):  # fmt: skip
    """Convolution (2-d) whose samples are moved by offsets and read by bilinear interpolation (Dai et al., 2017)."""
    n, c, height, width = x.shape
    kh, kw = w.shape[2:]
    strides, dilations, pads = strides or (1, 1), dilations or (1, 1), pads or (0,) * 4
    oh, ow = offset.shape[2:]
    offset = hnp.reshape(offset, (n, offset_group, kh, kw, 2, oh, ow))
    rows = hnp.arange(oh) * strides[0] - pads[0]
    columns = hnp.arange(ow) * strides[1] - pads[1]
    taps_y, taps_x = hnp.arange(kh) * dilations[0], hnp.arange(kw) * dilations[1]
    y = offset[..., 0, :, :] + (taps_y[:, None, None, None] + rows[:, None]).astype(x.dtype)
    z = offset[..., 1, :, :] + (taps_x[:, None, None] + columns).astype(x.dtype)
    image = hnp.reshape(x, (n, offset_group, c // offset_group, height * width))
    low_y, low_x = hnp.floor(y), hnp.floor(z)
    total = 0
    for dy, dx in itertools.product((0, 1), (0, 1)):
        at_y, at_x = low_y + dy, low_x + dx
        weight = (1 - hnp.abs(y - at_y)) * (1 - hnp.abs(z - at_x))
        inside = (at_y >= 0) & (at_y < height) & (at_x >= 0) & (at_x < width)
        flat = hnp.clip(at_y, 0, height - 1).astype(np.int64) * width + hnp.clip(at_x, 0, width - 1).astype(np.int64)
        flat = hnp.reshape(flat, (n, offset_group, 1, -1))
        values = hnp.take_along_axis(image, flat, axis=3)
        values = hnp.reshape(values, (n, offset_group, c // offset_group, kh, kw, oh, ow))
        total = total + values * hnp.where(inside, weight, 0)[:, :, None]
    if mask is not None:
        total = total * hnp.reshape(mask, (n, offset_group, 1, kh, kw, oh, ow))
    samples = hnp.reshape(total, (n, group, c // group, kh, kw, oh, ow))
    kernel = hnp.reshape(w, (group, w.shape[0] // group, c // group, kh, kw))
    result = hnp.reshape(hnp.einsum("ngcijyx,gmcij->ngmyx", samples, kernel), (n, w.shape[0], oh, ow))
    return result if b is None else result + per_channel(b, 4)


# --- random arrays ---------------------------------------------------------------------------------------------------


def key_of(node, seed: float | None):
    """The key of a node: from its seed, or without one from its name, so that a model always draws the same numbers."""
    text = f"{seed}" if seed is not None else f"{node.node.name} {node.node.outputs}"
    return random.key(zlib.crc32(text.encode()))


@op("Dropout")
def dropout1(x, *, ratio=0.5, is_test=None, consumed_inputs=()):
    if is_test == 0:
        raise UnsupportedError("Dropout of opset 6 or older with is_test=0", "training", "export it for inference")
    return x, hnp.ones(x.shape, x.dtype)


@op("Dropout", since=10)
def dropout10(x, *, ratio=0.5):
    return x, hnp.ones(x.shape, bool)


@op("Dropout", since=12, static=(2,))
def dropout(node, x, ratio=None, training=None, *, seed=None):
    if training is None or not training.reshape(()):
        return x, hnp.ones(x.shape, bool)
    ratio = hnp.asarray(0.5 if ratio is None else ratio).astype(np.float32)
    kept = random.uniform(key_of(node, seed), x.shape) >= ratio
    return hnp.where(kept, x / (1 - ratio).astype(x.dtype), hnp.zeros((), x.dtype)), kept


@op("RandomNormal")
def random_normal(node, *, dtype=1, mean=0.0, scale=1.0, seed=None, shape):
    return (random.normal(key_of(node, seed), tuple(shape)) * scale + mean).astype(dtype_of(dtype))


@op("RandomUniform")
def random_uniform(node, *, dtype=1, high=1.0, low=0.0, seed=None, shape):
    return random.uniform(key_of(node, seed), tuple(shape), minval=low, maxval=high).astype(dtype_of(dtype))


@op("RandomNormalLike")
def random_normal_like(node, x, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return (random.normal(key_of(node, seed), x.shape) * scale + mean).astype(kind)


@op("RandomUniformLike")
def random_uniform_like(node, x, *, dtype=None, high=1.0, low=0.0, seed=None):
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return random.uniform(key_of(node, seed), x.shape, minval=low, maxval=high).astype(kind)


@op("Bernoulli")
def bernoulli(node, x, *, dtype=None, seed=None):
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return (random.uniform(key_of(node, seed), x.shape) < x.astype(np.float32)).astype(kind)


@op("Multinomial")
def multinomial(node, x, *, dtype=6, sample_size=1, seed=None):
    """x: unnormalized log probabilities (batch, classes); result (batch, sample_size)."""
    drawn = random.categorical(key_of(node, seed), x[:, None, :], axis=-1, shape=(x.shape[0], sample_size))
    return drawn.astype(dtype_of(dtype))
