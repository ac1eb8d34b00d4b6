"""Fourier transforms, distances between rows, and bags of embeddings."""

from __future__ import annotations

import math

import hloom.numpy as hnp
from hloom.bridges.torch.dtypes import convert, operand
from hloom.bridges.torch.table import rule
from hloom.ir.types import real_dtype


def _scaled(x, count: int, normalization: int):
    """normalization: 0, as it is; 1, over the root of the number of elements; 2, over their number."""
    factor = {0: 1.0, 1: 1 / math.sqrt(count), 2: 1 / count}[normalization]
    return x if factor == 1.0 else x * convert(operand(factor, real_dtype(x.dtype)), x.dtype)


@rule("_fft_r2c.default")
def fft_r2c(x, dim, normalization, onesided):
    count = math.prod(x.shape[d] for d in dim)
    return _scaled((hnp.fft.rfftn if onesided else hnp.fft.fftn)(x, axes=tuple(dim)), count, normalization)


@rule("_fft_c2r.default")
def fft_c2r(x, dim, normalization, last_dim_size):
    sizes = [x.shape[d] for d in dim[:-1]] + [last_dim_size]
    found = hnp.fft.irfftn(x, s=tuple(sizes), axes=tuple(dim), norm="forward")
    return _scaled(found, math.prod(sizes), normalization)


@rule("_fft_c2c.default")
def fft_c2c(x, dim, normalization, forward):
    count = math.prod(x.shape[d] for d in dim)
    function = hnp.fft.fftn if forward else hnp.fft.ifftn
    return _scaled(function(x, axes=tuple(dim), norm="backward" if forward else "forward"), count, normalization)
