"""Convolutions of 1, 2 and 3 dimensions, plain and transposed, and their derivatives."""

from __future__ import annotations

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import F32, convert
from hloom.bridges.torch.table import rule
from hloom.ir.types import NARROW_FLOATS
from hloom.transforms.gradient import vjp


def _each(values, rank: int) -> tuple[int, ...]:
    """One number for each spatial dimension; a single one counts for all."""
    return tuple(values) * rank if len(values) == 1 else tuple(values)


class _Convolution:
    """The arguments of a convolution but its operands. x: (batch, features, space...)."""

    def __init__(self, rank: int, stride, padding, dilation, transposed: bool, output_padding, groups: int):
        self.rank, self.transposed, self.groups = rank, transposed, groups
        self.stride, self.padding, self.dilation, self.beyond = (
            [int(n) for n in _each(v, rank)] for v in (stride, padding, dilation, output_padding)
        )
        space = "HWDXYZ"[:rank]
        self.numbers = ("NC" + space, "OI" + space, "NC" + space)

    def __call__(self, x, w):
        for size in (*w.shape, x.shape[1]):
            int(size)  # open kernel and feature sizes are fixed: the algorithm depends on them
        if self.transposed:
            return self._transposed(x, w)
        pads = [(p, p) for p in self.padding]
        return lax.conv_general_dilated(
            x, w, self.stride, pads, rhs_dilation=self.dilation, dimension_numbers=self.numbers,
            feature_group_count=self.groups,
        )  # fmt: skip

    def _transposed(self, x, w):
        """w: (input features, output features of a group, space...), turned around and exchanged, over a spread x."""
        sizes, groups = w.shape[2:], self.groups
        w = lax.rev(w, tuple(range(2, w.ndim)))
        w = lax.reshape(w, (groups, w.shape[0] // groups, *w.shape[1:]))
        w = hnp.swapaxes(w, 1, 2)
        w = lax.reshape(w, (w.shape[0] * w.shape[1], *w.shape[2:]))
        reach = [d * (k - 1) for d, k in zip(self.dilation, sizes, strict=True)]
        pads = [(r - p, r - p + o) for r, p, o in zip(reach, self.padding, self.beyond, strict=True)]
        return lax.conv_general_dilated(
            x, w, (1,) * self.rank, pads, lhs_dilation=self.stride, rhs_dilation=self.dilation,
            dimension_numbers=self.numbers, feature_group_count=groups,
        )  # fmt: skip


@rule("convolution.default", result=True)
def convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups, *, result):
    rank = w.ndim - 2
    single = x.ndim == rank + 1
    if single:
        x = hnp.expand_dims(x, 0)
    dtype = x.dtype
    if dtype in NARROW_FLOATS:
        x, w = convert(x, F32), convert(w, F32)
    found = _Convolution(rank, stride, padding, dilation, transposed, output_padding, groups)(x, w)
    if bias is not None:
        found = found + lax.reshape(convert(bias, found.dtype), (1, bias.shape[0], *[1] * rank))
    return convert(lax.reshape(found, result.dims) if single else found, dtype)


@rule("convolution_backward.default")
def convolution_backward(
    grad, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask
):
    rank, dtype = w.ndim - 2, x.dtype
    if dtype in NARROW_FLOATS:
        grad, x, w = (convert(v, F32) for v in (grad, x, w))
    convolve = _Convolution(rank, stride, padding, dilation, transposed, output_padding, groups)
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        (of_input,) = vjp(lambda x: convolve(x, w), x)[1](grad)
    if output_mask[1]:
        (of_weight,) = vjp(lambda w: convolve(x, w), w)[1](grad)
    if output_mask[2]:
        of_bias = hnp.sum(grad, axis=(0, *range(2, grad.ndim)))
    return tuple(None if v is None else convert(v, dtype) for v in (of_input, of_weight, of_bias))
