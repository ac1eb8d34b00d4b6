"""Loss scaling for training in float16, in which small gradients underflow.

    scale = optim.DynamicLossScale.of(2.0**15)
    gradients = hl.grad(lambda p: scale.scaled(loss(p)))(parameters)
    gradients, finite = scale.unscaled(gradients)
    scale = scale.update(finite)          # and take the step only if `finite`

Source: Micikevicius et al., Mixed precision training, 2018.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import hloom.numpy as hnp
from hloom import tree
from hloom.ir.types import INEXACT
from hloom.optim.base import all_finite


class DynamicLossScale(NamedTuple):
    """A factor of the loss, halved after non-finite gradients and doubled after `period` finite steps.

    A tree, for use with `jit` and checkpoints. scale: f32[]. count: finite steps since the last change, s32[].

    >>> scale = hl.optim.DynamicLossScale.of(1024.0)
    >>> float(scale.scale)
    1024.0
    """

    scale: Any
    count: Any
    period: Any

    @classmethod
    def of(cls, scale=2.0**15, period: int = 2000) -> DynamicLossScale:
        """The initial state with this scale. period: the number of steps without overflow after which it is doubled."""
        return cls(hnp.asarray(scale, "f32"), hnp.zeros((), "s32"), hnp.asarray(period, "s32"))

    def scaled(self, loss):
        """The loss in float32, times the scale."""
        return hnp.asarray(loss).astype("f32") * self.scale

    def unscaled(self, gradients):
        """(gradients divided by the scale, in float32 at least; whether all are finite, pred[])."""

        def of(g):
            return (g.astype("f32") if g.dtype.itemsize < 4 else g) / self.scale

        gradients = tree.map(lambda g: of(g) if g.dtype in INEXACT else g, gradients)
        return gradients, all_finite(gradients)

    def update(self, finite) -> DynamicLossScale:
        """The scale after a step. It stays between 1 and 2^24."""
        grown = self.count + 1 >= self.period
        larger = hnp.where(grown, hnp.minimum(self.scale * 2, 2.0**24), self.scale)
        scale = hnp.where(finite, larger, hnp.maximum(self.scale / 2, 1.0))
        count = hnp.where(finite & ~grown, self.count + 1, 0)
        return DynamicLossScale(scale, count.astype("s32"), self.period)
