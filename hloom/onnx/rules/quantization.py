"""Quantized types: conversions, and products and convolutions of integers."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.onnx.reader import dtype_of
from hloom.onnx.rules.math import WIDER, cast
from hloom.onnx.rules.neural import convolution, per_channel, window_pads
from hloom.onnx.rules.recurrent import lstm_of
from hloom.onnx.table import MICROSOFT, is_known, op


def _spread(v, x, axis: int, block: int):
    """Scales or zero points with the shape of x: of the whole, of each index along an axis, or of blocks of them."""
    if v is None or v.ndim == 0 or (v.ndim == 1 and v.shape[0] == 1 and block == 0 and x.ndim != 1):
        return v if v is None or v.ndim == 0 else hnp.reshape(v, ())
    if block:
        axis = axis % x.ndim
        wide = hnp.repeat(_wide(v), block, axis=axis)
        return wide[(slice(None),) * axis + (slice(0, x.shape[axis]),)]
    if v.ndim == x.ndim and v.ndim > 1:
        return v
    axis = axis % x.ndim
    return hnp.reshape(v, [-1 if k == axis else 1 for k in range(x.ndim)])


def _wide(v):
    """v in a type with arithmetic."""
    name = np.dtype(v.dtype).name
    return v.astype(WIDER[name]) if name in WIDER else v.astype(np.float32) if name.startswith("float4") else v


@op("QuantizeLinear")
def quantize(x, scale, zero=None, *, axis=1, block_size=0, output_dtype=0, precision=0, saturate=1):
    kind = np.dtype(np.uint8) if not output_dtype else dtype_of(output_dtype)
    if zero is not None:
        kind = np.dtype(zero.dtype)
    scale = _spread(scale, x, axis, block_size)
    wide = np.dtype(dtype_of(precision)) if precision else None
    if np.dtype(x.dtype).kind in "iu":
        x = x.astype(np.float32)
    scaled = (x / scale.astype(x.dtype)) if wide is None else (x.astype(wide) / scale.astype(wide))
    if kind.kind == "f" or kind.name.startswith("float"):
        if zero is not None:
            scaled = scaled + _spread(zero, x, axis, block_size).astype(np.float32).astype(scaled.dtype)
        return cast(scaled, kind, bool(saturate))
    whole = hnp.round(scaled.astype(np.float32))
    if zero is not None:
        whole = whole + _wide(_spread(zero, x, axis, block_size)).astype(np.float32)
    limits = ml_dtypes.iinfo(kind)
    return hnp.clip(whole, limits.min, limits.max).astype(WIDER.get(kind.name, kind)).astype(kind)


@op("DequantizeLinear")
def dequantize(x, scale, zero=None, *, axis=1, block_size=0, output_dtype=0):
    kind = np.dtype(scale.dtype) if not output_dtype else dtype_of(output_dtype)
    scale = _spread(scale, x, axis, block_size)
    name = np.dtype(x.dtype).name
    wide = _wide(x)
    if name.startswith("float"):
        difference = wide.astype(np.float32)
        if zero is not None:
            difference = difference - _spread(zero, x, axis, block_size).astype(np.float32)
    else:
        difference = wide.astype(np.int32)
        if zero is not None:
            difference = difference - _wide(_spread(zero, x, axis, block_size)).astype(np.int32)
    return (difference.astype(np.float32) * scale.astype(np.float32)).astype(kind)


@op("DynamicQuantizeLinear")
def dynamic_quantize(x):
    low, high = hnp.minimum(hnp.min(x), 0), hnp.maximum(hnp.max(x), 0)
    scale = ((high - low) / 255).astype(np.float32)
    scale = hnp.where(scale == 0, np.float32(1), scale)
    zero = hnp.clip(hnp.round(-low / scale), 0, 255)
    y = hnp.clip(hnp.round(x / scale) + zero, 0, 255)
    return y.astype(np.uint8), scale, zero.astype(np.uint8)


_FLIP = 128  # the difference of an 8-bit pattern's values with and without a sign


def _bytes(x, zero, signed: bool):
    """(x, its zero point in s32 or None where that is 0) as 8-bit integers with or without a sign: the other kind moves
    both by 128. Differences do not change."""
    wanted = np.dtype(np.int8 if signed else np.uint8)
    moves = x.dtype != wanted
    if moves:
        x = lax.bitcast_convert_type(x ^ np.array(-_FLIP if x.dtype == np.int8 else _FLIP, x.dtype), wanted)
    if zero is None:
        zero = np.zeros((), np.int32)
    wide = zero.astype(np.int32) + np.int32((-_FLIP if signed else _FLIP) * moves)
    return x, None if is_known(wide) and not wide.any() else wide


def _along(zero, axis: int, rank: int):
    """A zero point of the whole, or one of each index along an axis, to broadcast over an array of that rank."""
    if zero.ndim > 1:  # of each row or column of each matrix
        return zero
    if zero.ndim == 0 or zero.shape[0] == 1:
        return hnp.reshape(zero, ())
    return hnp.reshape(zero, [-1 if k == axis % rank else 1 for k in range(rank)])


def _product(a, b, a_zero, b_zero):
    """(a - a_zero) @ (b - b_zero), for zero points of the whole, of the rows of a, and of the columns of b: in s32 of
    8-bit integers, in f32 of 8-bit floats.

    The product is of these integers themselves, u8 by s8, of which processors multiply the most at a time. Sums of the
    columns of b, which are computed once if b is a weight, and of the rows of a correct it, exactly, as s32 wraps.
    """
    if a.ndim == 1:
        made = _product(a[None], b, a_zero, b_zero)
        return made[..., 0, :] if b.ndim > 1 else made[0]
    if b.ndim == 1:
        return _product(a, b[:, None], a_zero, b_zero)[..., 0]
    if np.dtype(a.dtype).kind not in "iu" or np.dtype(b.dtype).kind not in "iu":
        sides = ((a, a_zero, -2), (b, b_zero, -1))
        return hnp.matmul(*[x.astype(np.float32) - _along(z.astype(np.float32), k, x.ndim) for x, z, k in sides])
    a, a_zero = _bytes(a, a_zero, signed=False)
    b, b_zero = _bytes(b, b_zero, signed=True)
    total = hnp.matmul(a, b, preferred_element_type=np.int32)
    if a_zero is not None:
        a_zero = _along(a_zero, -2, a.ndim)
        total = total - a_zero * hnp.sum(b, -2, dtype=np.int32, keepdims=True)
    if b_zero is not None:
        differences = a.astype(np.int32) if a_zero is None else a.astype(np.int32) - a_zero
        total = total - hnp.sum(differences, -1, keepdims=True) * _along(b_zero, -1, b.ndim)
    return total


@op("MatMulInteger")
def matmul_integer(a, b, a_zero=None, b_zero=None):
    return _product(a, b, a_zero, b_zero)


def _whole_sum(x, w, x_zero, w_zero, options: dict):
    """The convolution of x - x_zero with w - w_zero in s32, for zero points of the whole, and of the features of w.

    Where those of w are known to be 0, which is usual, it is of the 8-bit integers themselves, and sums of the weights,
    computed once, correct it: edges are filled with the zero point of x.
    """
    x, x_zero = _bytes(x, x_zero, signed=False)
    w, w_zero = _bytes(w, w_zero, signed=True)
    if w_zero is not None:
        x, w = (v.astype(np.int16) if zero is None else v.astype(np.int16) - _along(zero.astype(np.int16), 0, v.ndim)
                for v, zero in ((x, x_zero), (w, w_zero)))  # fmt: skip
        return convolution(x, w, **options, preferred=np.int32)
    rank = x.ndim - 2
    kernel = w.shape[2:]
    strides, dilations = options["strides"] or (1,) * rank, options["dilations"] or (1,) * rank
    edges = window_pads(options["auto_pad"], options["pads"], x.shape[2:], kernel, strides, dilations)
    if x_zero is not None and any(map(any, edges)):
        x = lax.pad(x, hnp.reshape(x_zero, ()).astype(x.dtype), [(0, 0, 0), (0, 0, 0), *((*edge, 0) for edge in edges)])
        options = options | {"auto_pad": "VALID", "pads": None}
    total = convolution(x, w, **options, preferred=np.int32)
    if x_zero is None:
        return total
    return total - hnp.reshape(x_zero, ()) * per_channel(hnp.sum(w, tuple(range(1, w.ndim)), dtype=np.int32), x.ndim)


@op("ConvInteger")
def conv_integer(x, w, x_zero=None, w_zero=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None,
                 pads=None, strides=None):  # fmt: skip
    options = {"auto_pad": auto_pad, "dilations": dilations, "group": group, "pads": pads, "strides": strides}
    return _whole_sum(x, w, x_zero, w_zero, options)


def _requantized(total, scale, zero):
    kind = np.dtype(zero.dtype)
    if kind.kind not in "iu":
        return cast(total.astype(np.float32) * scale + zero.astype(np.float32), kind)
    limits = ml_dtypes.iinfo(kind)
    y = hnp.round(total.astype(np.float32) * scale) + zero.astype(np.float32)
    return hnp.clip(y, limits.min, limits.max).astype(kind)


@op("QLinearMatMul")
def qlinear_matmul(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero):
    total = _product(a, b, a_zero, b_zero)
    scales = [s.astype(np.float32) for s in (a_scale, b_scale, y_scale)]
    return _requantized(total, scales[0] * scales[1] / scales[2], y_zero)


@op("QLinearConv")
def qlinear_conv(x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b=None, *, auto_pad="NOTSET",
                 dilations=None, group=1, kernel_shape=None, pads=None, strides=None):  # fmt: skip
    options = {"auto_pad": auto_pad, "dilations": dilations, "group": group, "pads": pads, "strides": strides}
    total = _whole_sum(x, w, x_zero, w_zero, options)
    at = (1, -1, *[1] * (x.ndim - 2))
    if b is not None:
        total = total + hnp.reshape(b, at)
    if w_scale.ndim and w_scale.shape[0] > 1:
        w_scale = hnp.reshape(w_scale, at)
    return _requantized(total, x_scale * w_scale / y_scale, y_zero)


# --- com.microsoft: ops written by ONNX Runtime's quantization tools -------------------------------------------------


def _dequantized(w, scale, zero, directions: int):
    """Weights (directions, inputs, gates), quantized by direction or by gate, in f32."""
    spread = [hnp.reshape(v, (directions, 1, -1)).astype(np.float32) for v in (zero, scale)]
    return (w.astype(np.float32) - spread[0]) * spread[1]


def _rounded(x):
    """x rounded to the 256 steps between its least and its greatest element, 0 among them, as DynamicQuantizeLinear."""
    low, high = hnp.minimum(hnp.min(x), 0), hnp.maximum(hnp.max(x), 0)
    scale = (high - low) / np.float32(255)
    scale = hnp.where(scale == 0, np.float32(1), scale)
    zero = hnp.clip(hnp.round(-low / scale), 0, 255)
    return (hnp.clip(hnp.round(x / scale) + zero, 0, 255) - zero) * scale


@op("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(x, w, r, b=None, lengths=None, initial=None, memory=None, peepholes=None, w_scale=None,
                          w_zero=None, r_scale=None, r_zero=None, *, activation_alpha=None, activation_beta=None,
                          activations=None, clip=None, direction="forward", hidden_size=None,
                          input_forget=0):  # fmt: skip
    """An LSTM whose weights (directions, inputs, 4 * hidden) are 8-bit integers. Their multiplicands are rounded to 8
    bits before each product. The products are computed in f32: they differ from integer products in the last digits."""
    directions = w.shape[0]
    inputs = hnp.swapaxes(_dequantized(w, w_scale, w_zero, directions), 1, 2)
    hidden = hnp.swapaxes(_dequantized(r, r_scale, r_zero, directions), 1, 2)
    return lstm_of(x, inputs, hidden, b, lengths, initial, memory, peepholes, activation_alpha=activation_alpha,
                   activation_beta=activation_beta, activations=activations, clip=clip, direction=direction,
                   input_forget=input_forget, layout=0, rounded=_rounded)  # fmt: skip
