"""Products of block-scaled 4-bit and 8-bit numbers: `scaled_matmul`, `scaled_dot_general`.

Formats: mxfp8 is the OCP Microscaling Formats specification 1.0 (blocks of 32 f8e4m3fn, a power of two each); nvfp4 has
blocks of 16 f4e2m1fn with a scale f8e4m3fn each and one f32 scale for the array. On hardware without such products,
such as CPUs, operands are rounded to these formats and multiplied in f32.
"""

from __future__ import annotations

import math
from typing import Any

import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.records import record
from hloom.ir.types import as_dtype
from hloom.lax.linear.ragged import scaled
from hloom.lax.operands import as_operand
from hloom.transforms.custom_derivatives import custom_vjp


@record(frozen=True)
class BlockScaleConfig:
    """The rounding of an operand: the format's name, the block size, the dtypes of elements and scales.

    global_scale: one f32 for the whole array (nvfp4), or None.
    """

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any = None


_FORMATS = {"mxfp8": (32, "f8e4m3fn", "f8e8m0fnu"), "nvfp4": (16, "f4e2m1fn", "f8e4m3fn")}
_LARGEST = {"f8e4m3fn": 448.0, "f4e2m1fn": 6.0}


def get_scaled_dot_general_config(mode: str, global_scale=None) -> BlockScaleConfig:
    """The configuration of a format, 'mxfp8' or 'nvfp4', for an operand of `scaled_dot_general`. Raises ArgumentError.

    global_scale: for nvfp4 only; 1 by default.
    """
    if mode not in _FORMATS:
        raise ArgumentError("a format of scaled numbers", f"{mode!r}", f"one of {', '.join(_FORMATS)}")
    if mode == "nvfp4" and global_scale is None:
        global_scale = hnp.ones((1,), "f32")
    if mode == "mxfp8" and global_scale is not None:
        raise ArgumentError("mxfp8 has a scale for each block only", "global_scale", "leave it out, or take nvfp4")
    block, data, scale = _FORMATS[mode]
    return BlockScaleConfig(mode, block, as_dtype(data), as_dtype(scale), global_scale)


def scaled_matmul(lhs, rhs, lhs_scales, rhs_scales, preferred_element_type="f32"):
    """The products of rows of lhs (B, M, K) with rows of rhs (B, N, K), both with block scales: (B, M, N).

    lhs_scales (B, M, K / block), rhs_scales (B, N, K / block); products and sums in f32. Raises ShapeError.
    """
    left, right = as_operand(lhs, "scaled_matmul"), as_operand(rhs, "scaled_matmul")
    if left.ndim != 3 or right.ndim != 3 or left.shape[0] != right.shape[0] or left.shape[2] != right.shape[2]:
        raise ShapeError(
            "scaled_matmul takes operands (B, M, K) and (B, N, K)",
            f"{left._shape!r} and {right._shape!r}",
            "transpose or reshape them",
        )
    f32 = as_dtype("f32")
    left = scaled(left, lhs_scales, "scaled_matmul", f32)
    right = scaled(right, rhs_scales, "scaled_matmul", f32)
    return lax.dot_general(left, right, (((2,), (2,)), ((0,), (0,)))).astype(as_dtype(preferred_element_type))


def _rounded(x, config: BlockScaleConfig):
    """(elements, scales) of x (B, M, K) in a format, in blocks along K, which is zero-padded."""
    rows, depth = x.shape[:2], x.shape[2]
    count = -(-depth // config.block_size)
    x = hnp.pad(x.astype("f32"), ((0, 0), (0, 0), (0, count * config.block_size - depth)))
    blocks = hnp.reshape(x, (*rows, count, config.block_size))
    largest = _LARGEST["f8e4m3fn" if config.mode == "mxfp8" else "f4e2m1fn"]
    share = hnp.max(hnp.abs(blocks), axis=-1) / largest
    if config.mode == "mxfp8":
        # The smallest power of two with which the block's largest element fits.
        power = hnp.clip(hnp.ceil(hnp.log2(hnp.where(share == 0, 1.0, share))), -127, 127)
        scales = hnp.exp2(power)
        divisor = scales
    else:
        scales = hnp.clip(share / config.global_scale, 2.0**-9, 448.0).astype(config.scale_type).astype("f32")
        divisor = scales * config.global_scale
    numbers = hnp.clip(blocks / divisor[..., None], -largest, largest)
    numbers = hnp.reshape(numbers, (*rows, count * config.block_size))
    return numbers.astype(config.data_type), scales.astype(config.scale_type)


def _product(left, right, configs, dtype):
    """(B, M, K) times (B, N, K), both rounded first."""
    (a, a_scales), (b, b_scales) = _rounded(left, configs[0]), _rounded(right, configs[1])
    found = scaled_matmul(a, b, a_scales, b_scales)
    for config in configs:
        if config.global_scale is not None:
            found = found * config.global_scale
    return found.astype(dtype)


def scaled_dot_general(
    lhs, rhs, dimension_numbers, preferred_element_type="f32", configs=None, implementation: str | None = None
):
    """`lax.dot_general` of operands rounded to a format of scaled blocks along the contracted dimensions.

    configs: three of `get_scaled_dot_general_config`, for lhs, rhs and the result's cotangent, whose products in the
    derivative are rounded too; None: no rounding. Result dimensions: batch, the remaining ones of lhs, of rhs. Raises
    ArgumentError, ShapeError.
    """
    dtype = as_dtype(preferred_element_type)
    if configs is None:
        return lax.dot_general(lhs, rhs, dimension_numbers, preferred_element_type=dtype)
    if len(configs) != 3:
        raise ArgumentError(
            "scaled_dot_general takes three configurations", f"{len(configs)}", "pass those of lhs, rhs and gradient"
        )
    left, right = as_operand(lhs, "scaled_dot_general"), as_operand(rhs, "scaled_dot_general")
    (lc, rc), (lb, rb) = dimension_numbers
    left, batch, rows = _as_rows(left, tuple(lc), tuple(lb))
    right, _, columns = _as_rows(right, tuple(rc), tuple(rb))
    of_left, of_right, of_result = configs

    @custom_vjp
    def product(a, b):
        return _product(a, b, (of_left, of_right), dtype)

    def forward(a, b):
        return product(a, b), (a, b)

    def backward(kept, g):
        a, b = kept
        turned = lambda x: hnp.swapaxes(x, 1, 2)  # noqa: E731
        return (
            _product(g, turned(b), (of_result, of_right), a.dtype),
            _product(turned(g), turned(a), (of_result, of_left), b.dtype),
        )

    product.defvjp(forward, backward)
    return hnp.reshape(product(left, right), (*batch, *rows, *columns))


def _as_rows(x, contracted, batch):
    """(x as (B, M, K), the sizes merged into B, those merged into M)."""
    free = tuple(k for k in range(x.ndim) if k not in contracted and k not in batch)
    x = hnp.transpose(x, (*batch, *free, *contracted))
    dims = x.shape
    first, last = dims[: len(batch)], dims[len(batch) : len(batch) + len(free)]
    return hnp.reshape(x, (math.prod(first), math.prod(last), -1)), first, last
