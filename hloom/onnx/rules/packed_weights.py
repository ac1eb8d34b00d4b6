"""Products with weights of few bits, several in a byte: `MatMulNBits` of ONNX Runtime's tools."""

from __future__ import annotations

import math

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ShapeError, UnsupportedError
from hloom.onnx.table import MICROSOFT, op

FEW = 8  # rows of activations, up to which the weights are unpacked for each of them


def _parts(packed, bits: int) -> list:
    """The weights in the lowest bits of each byte, those in the next, and so on, in f32."""
    mask = np.uint8((1 << bits) - 1)
    return [((packed >> np.uint8(low)) & mask).astype(np.int32).astype(np.float32) for low in range(0, 8, bits)]


def _zeros(points, bits: int, rows: int, blocks: int):
    """Zero points (rows, blocks) in f32: floats, or integers packed as the weights are, each row from a new byte on."""
    if points is None:
        return np.float32(1 << (bits - 1))
    if np.dtype(points.dtype) != np.uint8:
        return hnp.reshape(points, (rows, blocks)).astype(np.float32)
    packed = hnp.reshape(points, (rows, -(-blocks * bits // 8)))
    return hnp.reshape(hnp.stack(_parts(packed, bits), -1), (rows, -1))[:, :blocks]


@op("MatMulNBits", domain=MICROSOFT)
def matmul_bits(x, weights, scales, points=None, group=None, bias=None, *, K, N, bits=4, block_size, accuracy_level=0):
    """x (..., K) by the transposed weights (N, K), of which `block_size` along K share a scale and a zero point.

    Computed in f32, whatever accuracy_level allows. The bytes are stored with a column for each row of weights, once
    for all calls. For few rows of x each sum is of the integers, times the scale of its block.
    """
    what = f"MatMulNBits of {N} x {K} weights"
    if bits not in (2, 4, 8):
        raise UnsupportedError(what, f"bits={bits}", "quantize to 2, 4 or 8 bits")
    if group is not None:
        raise UnsupportedError(what, "an order of the groups (g_idx)", "quantize without it (act_order=False)")
    blocks, in_byte = -(-K // block_size), 8 // bits
    if tuple(weights.shape) != (N, blocks, block_size // in_byte):
        raise ShapeError(what, f"weights of the shape {list(weights.shape)}",
                         f"pass {[N, blocks, block_size // in_byte]}")  # fmt: skip
    zero = _zeros(points, bits, N, blocks)
    # Without the barrier the kernels of each call would read them against their order.
    packed, scale, zero = lax.optimization_barrier(
        (hnp.transpose(weights, (1, 2, 0)), hnp.reshape(scales, (N, blocks)).astype(np.float32).T, zero.T)
    )
    lead = x.shape[:-1]
    wide = x.astype(np.float32)
    if blocks * block_size > K:
        wide = hnp.pad(wide, [(0, 0)] * len(lead) + [(0, blocks * block_size - K)])
    parts = hnp.reshape(wide, (*lead, blocks, block_size // in_byte, in_byte))
    if math.prod(lead) <= FEW:
        products = sum(q * parts[..., k, None] for k, q in enumerate(_parts(packed, bits)))
        sums = hnp.sum(products, -2) - zero * hnp.sum(parts, (-1, -2))[..., None]
        y = hnp.sum(sums * scale, -2)
    else:
        zero = zero if zero.ndim == 0 else zero[:, None]
        rows = [hnp.reshape((q - zero) * scale[:, None], (-1, N)) for q in _parts(packed, bits)]
        y = sum(hnp.matmul(hnp.reshape(parts[..., k], (*lead, -1)), w) for k, w in enumerate(rows))
    y = y if bias is None else y + bias.astype(np.float32)
    return y.astype(x.dtype)
