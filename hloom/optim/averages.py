"""The exponential moving average of parameters, which often performs better than the last parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

import hloom.numpy as hnp
from hloom import tree
from hloom.optim.base import zeros_like


class ExponentialMovingAverage(NamedTuple):
    """A moving average of a tree of parameters; itself a tree, for use with `jit` and checkpoints.

        average = optim.ExponentialMovingAverage.of(parameters, decay=0.999)
        average = average.update(parameters)      # after each step
        accuracy(average.value(), images)         # in evaluation

    `of` starts without observations and corrects the bias; `at` starts at the parameters. decay: the weight of the old
    average at each step. count: observations. missing: the total weight not yet observed.

    >>> average = hl.optim.ExponentialMovingAverage.of({"w": hnp.array([1.0])}, 0.9)
    >>> average = average.update({"w": hnp.array([2.0])})
    >>> average.value()["w"].round(3)
    Array([2.], dtype=float32)
    """

    total: Any
    decay: Any
    count: Any
    missing: Any

    @classmethod
    def of(cls, parameters, decay=0.999) -> ExponentialMovingAverage:
        """An average without observations, with the parameters' structure."""
        return cls(zeros_like(parameters), hnp.asarray(decay, "f32"), hnp.zeros((), "s32"), hnp.ones((), "f32"))

    @classmethod
    def at(cls, parameters, decay=0.999) -> ExponentialMovingAverage:
        """An average that starts at the parameters, as TensorFlow's does."""
        # Added to zeros for separate buffers, so that both can be donated.
        total = tree.map(lambda p: hnp.zeros_like(p) + p, parameters)
        return cls(total, hnp.asarray(decay, "f32"), hnp.zeros((), "s32"), hnp.zeros((), "f32"))

    def update(self, parameters, num_updates=None) -> ExponentialMovingAverage:
        """The average with one more observation. Raises TreeError when the structures differ.

        num_updates: the number of steps n so far. The decay is then at most (1 + n) / (10 + n), so that the average
        follows the first steps more closely.
        """
        decay = self.decay
        if num_updates is not None:
            n = hnp.asarray(num_updates).astype("f32")
            decay = hnp.minimum(decay, (1 + n) / (10 + n))
        total = tree.map(
            lambda a, p: a * decay.astype(a.dtype) + p * (1 - decay).astype(a.dtype), self.total, parameters
        )
        return ExponentialMovingAverage(total, self.decay, self.count + 1, self.missing * decay)

    def value(self):
        """The averaged parameters; zeros if there are no observations."""
        share = hnp.maximum(1 - self.missing, hnp.finfo("f32").tiny)
        return tree.map(lambda a: a / share.astype(a.dtype), self.total)
