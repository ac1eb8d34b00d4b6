"""Quantized types: conversions, and products and convolutions of integers."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import hloom.numpy as hnp
from hloom.onnx.reader import dtype_of
from hloom.onnx.rules.convolutions import sum_of_products
from hloom.onnx.rules.integers import Dequantized, product
from hloom.onnx.rules.math import WIDER, cast
from hloom.onnx.rules.recurrent import lstm_of
from hloom.onnx.table import MICROSOFT, op


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
def dequantize(node, x, scale, zero=None, *, axis=1, block_size=0, output_dtype=0):
    kind = np.dtype(scale.dtype) if not output_dtype else dtype_of(output_dtype)
    given = scale
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
    y = (difference.astype(np.float32) * scale.astype(np.float32)).astype(kind)
    if x.dtype in (np.int8, np.uint8) and given.ndim < 2 and not block_size and kind == given.dtype == np.float32:
        node.note(Dequantized(y, x, given, zero, axis % x.ndim if x.ndim else 0))
    return y


@op("DynamicQuantizeLinear")
def dynamic_quantize(x):
    low, high = hnp.minimum(hnp.min(x), 0), hnp.maximum(hnp.max(x), 0)
    scale = ((high - low) / 255).astype(np.float32)
    scale = hnp.where(scale == 0, np.float32(1), scale)
    zero = hnp.clip(hnp.round(-low / scale), 0, 255)
    y = hnp.clip(hnp.round(x / scale) + zero, 0, 255)
    return y.astype(np.uint8), scale, zero.astype(np.uint8)


@op("MatMulInteger")
def matmul_integer(a, b, a_zero=None, b_zero=None):
    return product(a, b, a_zero, b_zero)


@op("ConvInteger")
def conv_integer(x, w, x_zero=None, w_zero=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None,
                 pads=None, strides=None):  # fmt: skip
    options = {"auto_pad": auto_pad, "dilations": dilations, "group": group, "pads": pads, "strides": strides}
    return sum_of_products(x, w, x_zero, w_zero, options)


def _requantized(total, scale, zero):
    kind = np.dtype(zero.dtype)
    if kind.kind not in "iu":
        return cast(total.astype(np.float32) * scale + zero.astype(np.float32), kind)
    limits = ml_dtypes.iinfo(kind)
    y = hnp.round(total.astype(np.float32) * scale) + zero.astype(np.float32)
    return hnp.clip(y, limits.min, limits.max).astype(kind)


@op("QLinearMatMul")
def qlinear_matmul(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero):
    total = product(a, b, a_zero, b_zero)
    scales = [s.astype(np.float32) for s in (a_scale, b_scale, y_scale)]
    return _requantized(total, scales[0] * scales[1] / scales[2], y_zero)


@op("QLinearConv")
def qlinear_conv(x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b=None, *, auto_pad="NOTSET",
                 dilations=None, group=1, kernel_shape=None, pads=None, strides=None):  # fmt: skip
    options = {"auto_pad": auto_pad, "dilations": dilations, "group": group, "pads": pads, "strides": strides}
    total = sum_of_products(x, w, x_zero, w_zero, options)
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
