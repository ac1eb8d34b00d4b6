"""The exponential moving average of parameters, which often does better than the last parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

import hloom.numpy as hnp
from hloom import tree
from hloom.optim.base import zeros_like


class ExponentialMovingAverage(NamedTuple):
    """A moving average of a tree of parameters; a tree itself, so that it goes through `jit`.

        average = optim.ExponentialMovingAverage.of(parameters, decay=0.999)
        average = average.update(parameters)      # after each step
        accuracy(average.value(), images)         # in evaluation

    decay: share of the old average that stays at each step. The value is corrected for the start at zero.
    """

    total: Any
    decay: Any
    count: Any

    @classmethod
    def of(cls, parameters, decay=0.999) -> ExponentialMovingAverage:
        """An average without observations, of the parameters' structure."""
        return cls(zeros_like(parameters), hnp.asarray(decay, "f32"), hnp.zeros((), "s32"))

    def update(self, parameters) -> ExponentialMovingAverage:
        """The average with one more observation. Raises TreeError when the structures differ."""
        decay = self.decay
        total = tree.map(
            lambda a, p: a * decay.astype(a.dtype) + p * (1 - decay).astype(a.dtype), self.total, parameters
        )
        return ExponentialMovingAverage(total, decay, self.count + 1)

    def value(self):
        """The averaged parameters; zeros before the first observation."""
        share = hnp.maximum(1 - self.decay**self.count, hnp.finfo("f32").tiny)
        return tree.map(lambda a: a / share.astype(a.dtype), self.total)
