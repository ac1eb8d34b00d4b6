"""Sliding windows: HLO's description of one dimension, and shared arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hloom.ir.errors import AttributeValueError, ShapeError
from hloom.ir.ops.indexing.movement import pad_array
from hloom.ir.sizes.expressions import greatest


class WindowDimension(NamedTuple):
    """A window along one dimension, as in HLO (reduce-window, convolution).

    low, high: padding. base_dilation dilates the operand, window_dilation the window.
    """

    size: int
    stride: int = 1
    low: int = 0
    high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversed: bool = False

    @property
    def reach(self) -> int:
        """The size of the dilated window: from its first element to its last."""
        return dilated(self.size, self.window_dilation)

    def output(self, size: int) -> int:
        """The number of window positions for an operand of this size."""
        padded = dilated(size, self.base_dilation) + self.low + self.high
        return greatest((padded - self.reach) // self.stride + 1, 0)

    def transposed(self, size: int, count: int) -> WindowDimension:
        """The window that maps `count` positions back to the operand, for the derivative of a sum."""
        low = self.reach - 1 - self.low
        high = dilated(size, self.base_dilation) - 1 + self.reach - dilated(count, self.stride) - low
        return WindowDimension(
            self.size, self.base_dilation, low, high, self.stride, self.window_dilation, not self.reversed
        )

    def running(self, size: int) -> bool | None:
        """Whether the window extends from an end of the operand to each position: False from its first element, True to
        its last one, None for other windows."""
        if self.stride != 1 or self.base_dilation != 1 or self.window_dilation != 1 or self.size < size:
            return None
        return {(self.size - 1, 0): False, (0, self.size - 1): True}.get((self.low, self.high))

    def is_plain(self) -> bool:
        """Whether the window has one element and is trivial in this dimension."""
        return self.size == self.stride == self.base_dilation == 1 and self.low == self.high == 0


def dilated(size: int, dilation: int) -> int:
    """The size with `dilation - 1` gaps between neighbours."""
    return (size - 1) * dilation + 1 if size > 0 else 0


def window_of(instruction) -> tuple[WindowDimension, ...]:
    """The window of an instruction; empty if there are no dimensions (HLO's text then has none)."""
    return instruction.attributes.get("window", ())


def check_window(name: str, window: Sequence[WindowDimension], rank: int, dilates: bool = True) -> None:
    """Raises AttributeValueError unless `window` has `rank` dimensions with sizes, strides and dilations above zero."""
    if len(window) != rank:
        raise AttributeValueError(
            f"{name} takes a window of {rank} dimensions",
            f"{len(window)} given",
            "give each windowed dimension one; those that are not windowed have size 1",
        )
    for k, d in enumerate(window):
        for field in ("size", "stride", "base_dilation", "window_dilation"):
            if getattr(d, field) < 1:
                raise AttributeValueError(
                    f"{name} takes windows with {field} of at least 1",
                    f"{field}={getattr(d, field)} along dimension {k}",
                    f"make the {field} positive",
                )
        if not dilates and (d.base_dilation != 1 or d.window_dilation != 1):
            raise AttributeValueError(
                f"{name} takes windows without dilation", f"{d} along dimension {k}", "dilate the operand with pad"
            )


def window_output(name: str, dims: Sequence[int], window: Sequence[WindowDimension]) -> tuple[int, ...]:
    """The number of window positions in each dimension. Raises ShapeError if negative padding exceeds the size."""
    for k, (size, d) in enumerate(zip(dims, window, strict=True)):
        if dilated(size, d.base_dilation) + d.low + d.high < 0:
            raise ShapeError(
                f"{name} takes padding that leaves a size of at least 0",
                f"padding ({d.low}, {d.high}) on size {size} along dimension {k}",
                "make the negative padding smaller",
            )
    return tuple(d.output(size) for size, d in zip(dims, window, strict=True))


def padded(array: np.ndarray, value, window: Sequence[WindowDimension]) -> np.ndarray:
    """The array dilated by base_dilation and padded (or cropped) with `value`."""
    if all(d.low == d.high == 0 and d.base_dilation == 1 for d in window):
        return array
    return pad_array(array, value, [(d.low, d.high, d.base_dilation - 1) for d in window])


def window_view(array: np.ndarray, window: Sequence[WindowDimension], places: Sequence[int]) -> np.ndarray:
    """A view of a padded array: its dimensions are the window positions, then the elements of the window."""
    steps = [s * d.window_dilation for s, d in zip(array.strides, window, strict=True)]
    strides = [s * d.stride for s, d in zip(array.strides, window, strict=True)]
    sizes = [d.size for d in window]
    if 0 in places:
        return np.empty((*places, *sizes), array.dtype)
    view = np.lib.stride_tricks.as_strided(array, (*places, *sizes), (*strides, *steps), writeable=False)
    turned = [slice(None, None, -1) if d.reversed else slice(None) for d in window]
    return view[(*[slice(None)] * len(places), *turned)]
