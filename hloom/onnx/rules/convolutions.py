"""Convolutions."""

from __future__ import annotations

import itertools
import math

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.ir.sizes.expressions import greatest
from hloom.onnx.rules.integers import DEPTH, Dequantized, along, as_bytes, is_faster
from hloom.onnx.table import op

# What narrow-convolutions takes: fewest features, most elements of a window, most elements of all windows.
FEWEST, WINDOW, MOST = 8, 49, 1 << 26


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


def sum_of_products(x, w, x_zero, w_zero, options: dict):
    """The convolution of x - x_zero with w - w_zero in s32, for zero points of the whole, and of the features of w.

    Where those of w are known to be 0, which is usual, it is of the 8-bit integers themselves, and sums of the weights,
    computed once, correct it: edges are filled with the zero point of x.
    """
    x, x_zero = as_bytes(x, x_zero, signed=False)
    w, w_zero = as_bytes(w, w_zero, signed=True)
    if w_zero is not None:
        x, w = (v.astype(np.int16) if zero is None else v.astype(np.int16) - along(zero.astype(np.int16), 0, v.ndim)
                for v, zero in ((x, x_zero), (w, w_zero)))  # fmt: skip
        return convolution(x, w, **options, preferred=np.int32)
    rank = x.ndim - 2
    kernel = w.shape[2:]
    strides, dilations = options["strides"] or (1,) * rank, options["dilations"] or (1,) * rank
    edges = window_pads(options["auto_pad"], options["pads"], x.shape[2:], kernel, strides, dilations)
    if any(map(any, edges)):
        outside = np.zeros((), np.uint8) if x_zero is None else hnp.reshape(x_zero, ()).astype(np.uint8)
        x = lax.pad(x, outside, [(0, 0, 0), (0, 0, 0), *((*edge, 0) for edge in edges)])
        options = options | {"auto_pad": "VALID", "pads": None}
    if options["group"] == 1 and kernel == (1,) * rank:  # a product, of rows of features
        steps = tuple([slice(None, None, stride) for stride in strides])
        rows = hnp.moveaxis(x[(slice(None), slice(None), *steps)], 1, -1)
        total = hnp.moveaxis(hnp.matmul(rows, w[(..., *[0] * rank)].T, preferred_element_type=np.int32), -1, 1)
    else:
        total = convolution(x, w, **options, preferred=np.int32)
    if x_zero is None:
        return total
    return total - hnp.reshape(x_zero, ()) * per_channel(hnp.sum(w, tuple(range(1, w.ndim)), dtype=np.int32), x.ndim)


def _dequantized(x: Dequantized | None, w: Dequantized | None, group: int, options: dict):
    """The convolution in f32 of what DequantizeLinear made, by one of integers; None where that is not for them: with
    groups, which are not products, or where weights have zero points."""
    if x is None or w is None or group != 1 or not x.has_one_scale or not w.is_along(0) or not is_faster():
        return None
    features, taps = w.whole.shape[0], math.prod(w.whole.shape[2:])
    windows = math.prod(x.whole.shape) * taps // math.prod(options["strides"] or ())
    if taps > 1 and (features < FEWEST or taps > WINDOW or windows > MOST):
        return None
    if math.prod(w.whole.shape[1:]) > DEPTH or as_bytes(w.whole, w.zero, signed=True)[1] is not None:
        return None
    total = sum_of_products(x.whole, w.whole, x.zero, w.zero, options)
    scale = hnp.reshape(x.scale, ()) * w.scale
    return total.astype(np.float32) * (scale if scale.ndim == 0 else per_channel(scale, x.whole.ndim))


@op("Conv")
def conv(node, x, w, b=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None,
         strides=None):  # fmt: skip
    options = {"auto_pad": auto_pad, "dilations": dilations, "group": group, "pads": pads, "strides": strides}
    y = _dequantized(node.origin(0, x), node.origin(1, w), group, options)
    if y is None:
        y = convolution(x, w, **options)
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
