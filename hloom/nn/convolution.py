"""Convolution layers. Channels are the last dimension, the batch the first, and the kernel is
(window..., input channels / groups, output channels)."""

from __future__ import annotations

import operator
from typing import Any

from hloom import lax
from hloom.errors import ArgumentError, ShapeError
from hloom.lax.operands import as_operand
from hloom.nn import initializers
from hloom.nn.module import Module, static

_SPATIAL = "DHW"  # up to three window dimensions, named as in JAX's strings


def _numbers(rank: int) -> tuple[str, str, str]:
    spatial = _SPATIAL[3 - rank :]
    return (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")


def _each(value, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


class Conv(Module):
    """Convolution of (batch, ..., channels) with 1 to 3 window dimensions, as many as `window` has.

    padding: 'SAME', 'VALID' or a pair (before, after) for each window dimension. dilation: of the window.
    groups: the number of independent groups of channels; as many as channels is a depthwise convolution.

    >>> layer = hl.nn.Conv(3, 16, (3, 3), key=hl.random.key(0), strides=2)
    >>> layer(hnp.ones((8, 28, 28, 3))).shape
    (8, 14, 14, 16)
    """

    kernel: Any
    bias: Any
    strides: tuple = static()
    padding: Any = static()
    dilation: tuple = static()
    groups: int = static()

    def __init__(
        self,
        inputs: int,
        outputs: int,
        window,
        *,
        key,
        strides=1,
        padding="SAME",
        dilation=1,
        groups: int = 1,
        use_bias: bool = True,
        kernel_init=initializers.lecun_normal(),  # noqa: B008  (a pure function)
        bias_init=initializers.zeros,
        dtype="f32",
    ):
        window = (window,) if isinstance(window, int) else tuple(window)
        if inputs % groups or outputs % groups or not 1 <= len(window) <= 3:
            raise ShapeError(
                "Conv takes 1 to 3 window dimensions and channels that the groups divide",
                f"window {window}, {inputs} to {outputs} channels in {groups} groups",
                "change the number of groups",
            )
        self.kernel = kernel_init(key, (*window, inputs // groups, outputs), dtype)
        self.bias = bias_init(key, (outputs,), dtype) if use_bias else None
        self.strides = _each(strides, len(window))
        self.dilation = _each(dilation, len(window))
        self.padding = checked_padding(padding, len(window), "Conv")
        self.groups = groups

    def __call__(self, x):
        rank = self.kernel.ndim - 2
        x = _checked(x, self.kernel, self.groups, "Conv")
        y = lax.conv_general_dilated(
            x,
            self.kernel,
            self.strides,
            self.padding,
            rhs_dilation=self.dilation,
            dimension_numbers=_numbers(rank),
            feature_group_count=self.groups,
        )
        return y if self.bias is None else y + self.bias


class ConvTranspose(Module):
    """Transposed convolution: (batch, ..., channels) grows by the strides.

    >>> layer = hl.nn.ConvTranspose(16, 3, (2, 2), key=hl.random.key(0), strides=2)
    >>> layer(hnp.ones((8, 14, 14, 16))).shape
    (8, 28, 28, 3)
    """

    kernel: Any
    bias: Any
    strides: tuple = static()
    padding: Any = static()

    def __init__(
        self,
        inputs: int,
        outputs: int,
        window,
        *,
        key,
        strides=1,
        padding="SAME",
        use_bias: bool = True,
        kernel_init=initializers.lecun_normal(),  # noqa: B008  (a pure function)
        dtype="f32",
    ):
        window = (window,) if isinstance(window, int) else tuple(window)
        self.kernel = kernel_init(key, (*window, inputs, outputs), dtype)
        self.bias = initializers.zeros(key, (outputs,), dtype) if use_bias else None
        self.strides = _each(strides, len(window))
        self.padding = checked_padding(padding, len(window), "ConvTranspose")

    def __call__(self, x):
        rank = self.kernel.ndim - 2
        x = _checked(x, self.kernel, 1, "ConvTranspose")
        y = lax.conv_transpose(x, self.kernel, self.strides, self.padding, dimension_numbers=_numbers(rank))
        return y if self.bias is None else y + self.bias


def _checked(x, kernel, groups: int, layer: str):
    x = as_operand(x, layer)
    rank, channels = kernel.ndim - 2, kernel.shape[-2] * groups
    if x.ndim != rank + 2 or x.shape[-1] != channels:
        raise ShapeError(
            f"{layer} takes (batch, {rank} window dimension{'s' * (rank > 1)}, {channels} channels)",
            f"{x._shape!r}",
            _repair(x, kernel, rank, channels, layer),
        )
    return x


def checked_padding(padding, rank: int, layer: str):
    """'SAME', 'VALID', or a pair for each window dimension. Raises ArgumentError."""
    if isinstance(padding, str):
        return padding
    try:
        pairs = tuple([tuple([operator.index(n) for n in pair]) for pair in padding])
    except TypeError:
        pairs = ()
    if len(pairs) != rank or any(len(pair) != 2 for pair in pairs):
        each = padding if isinstance(padding, int) else 1
        raise ArgumentError(
            f"{layer} takes padding='SAME', 'VALID' or a pair (before, after) for each of {rank} window dimensions",
            f"padding={padding!r:.60}",
            f"write padding=[{', '.join([f'({each}, {each})'] * rank)}]",
        )
    return pairs


def _repair(x, kernel, rank: int, channels: int, layer: str) -> str:
    """The repair for an input of the wrong shape."""
    if x.ndim > rank + 2 and channels in (x.shape[1], x.shape[-1]) and x.ndim <= 5:
        window = f"({', '.join([str(kernel.shape[0])] * (x.ndim - 2))})"
        made = f"{layer}({channels}, {kernel.shape[-1]}, {window})"
        return f"create the layer with {x.ndim - 2} window dimensions: {made}"
    if x.ndim == rank + 1 and x.shape[-1] == channels:
        return "add the batch dimension with x[None]"
    if x.ndim == rank + 2 and x.shape[1] == channels:
        return "move the channels to the end: hnp.moveaxis(x, 1, -1)"
    if x.ndim == rank + 2:
        return f"create the layer for {x.shape[-1]} channels: {layer}({x.shape[-1]}, ...)"
    if x.ndim == rank + 1 and channels == 1:
        return "add the dimension of the channel with x[..., None]"
    return f"reshape the input to {rank + 2} dimensions, the channels last"
