"""Callbacks of `fit`, called at each step, evaluation and checkpoint."""

from __future__ import annotations

import contextlib
import difflib
import math
import os
from typing import Any, Literal

from hloom import summary
from hloom.errors import ArgumentError
from hloom.training.running import Loop


class Callback:
    """The base class: methods that `fit` calls with the loop, whose `step`, `epoch`, `state` and `metrics` they read.

    They may call `loop.stop(reason)`, and set `loop.state`. `state` and `restore` keep their values in the checkpoints.
    """

    def on_start(self, loop: Loop) -> None:
        """Before the first step, after a checkpoint was restored."""

    def on_step(self, loop: Loop) -> None:
        """After each step. `loop.metrics` are those of the step, as Python numbers."""

    def on_evaluation(self, loop: Loop) -> None:
        """After each evaluation. `loop.metrics` also has its metrics, named `eval_...`."""

    def on_epoch(self, loop: Loop) -> None:
        """After each epoch and its evaluation. `loop.epoch` is the number of epochs so far."""

    def on_checkpoint(self, loop: Loop) -> None:
        """After a checkpoint was handed to the thread that writes it."""

    def on_end(self, loop: Loop) -> None:
        """At the end, also after an error."""

    def state(self) -> dict[str, Any]:
        """The state to save in checkpoints: plain values."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the result of `state`."""


class EarlyStopping(Callback):
    """Stops when a metric has not improved for this many evaluations.

    metric: a name such as "eval_loss". order: "min" or "max". patience: evaluations without an improvement of more
    than min_delta.

    >>> stop = hl.training.EarlyStopping("eval_loss", patience=2)
    >>> stop.metric, stop.patience
    ('eval_loss', 2)
    """

    def __init__(
        self, metric: str = "eval_loss", order: Literal["min", "max"] = "min", *, patience: int = 3, min_delta=0.0
    ):
        if order not in ("min", "max") or patience < 1 or min_delta < 0:
            raise ArgumentError(
                "EarlyStopping takes an order, a patience of at least 1 and a min_delta of at least 0",
                f"order={order!r}, patience={patience}, min_delta={min_delta}",
                'write EarlyStopping("eval_loss", "min", patience=3)',
            )
        self.metric, self.order, self.patience, self.min_delta = metric, order, patience, float(min_delta)
        self.best, self.waited = math.inf, 0  # best: of the metric with the sign of a minimum

    def on_start(self, loop: Loop) -> None:
        if not loop.evaluates:
            raise ArgumentError(
                f"EarlyStopping watches {self.metric!r}",
                "fit has no evaluate=, so there are no evaluations",
                "pass evaluate=, a function of the state that returns the metric",
            )

    def on_evaluation(self, loop: Loop) -> None:
        if self.metric not in loop.metrics:
            raise ArgumentError(
                f"EarlyStopping watches {self.metric!r}",
                f"the metrics are {', '.join(sorted(loop.metrics))}",
                f"did you mean {difflib.get_close_matches(self.metric, [*loop.metrics], 1, 0.0)[0]!r}?",
            )
        value = loop.metrics[self.metric] * (1 if self.order == "min" else -1)
        if value < self.best - self.min_delta:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        if self.waited >= self.patience:
            loop.stop(f"{self.metric} did not improve in {self.patience} evaluations")

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited}

    def restore(self, state: dict[str, Any]) -> None:
        self.best, self.waited = state["best"], state["waited"]


class Summaries(Callback):
    """Writes the metrics to files that TensorBoard shows, and makes the writer current, for `hl.summary` in the step.

    writer: a folder or an `hl.summary.Writer`. every: steps between values. histograms: steps between histograms of the
    state's arrays, or None. In a resumed run, values written after the checkpoint are dropped.
    """

    def __init__(self, writer: str | os.PathLike | summary.Writer, *, every: int = 10, histograms: int | None = None):
        self._given, self.every, self.histograms = writer, every, histograms
        self._owns = not isinstance(writer, summary.Writer)
        self._open = contextlib.ExitStack()

    def on_start(self, loop: Loop) -> None:
        given = self._given
        purge = loop.step + 1 if loop.step else None
        self.writer = given if isinstance(given, summary.Writer) else summary.Writer(given, purge_step=purge)
        if self._owns:
            self._open.enter_context(self.writer)
        self._open.enter_context(self.writer.as_default())

    def on_step(self, loop: Loop) -> None:
        if loop.step % self.every == 0:
            self.writer.scalars({n: v for n, v in loop.metrics.items() if not n.startswith("eval_")}, loop.step)
        if self.histograms is not None and loop.step % self.histograms == 0:
            self.writer.histograms("state", loop.state, loop.step)

    def on_evaluation(self, loop: Loop) -> None:
        self.writer.scalars({n: v for n, v in loop.metrics.items() if n.startswith("eval_")}, loop.step)

    def on_end(self, loop: Loop) -> None:
        self._open.close()


class _Function(Callback):
    """A function of the loop, called after each step."""

    def __init__(self, function):
        self._function = function

    def on_step(self, loop: Loop) -> None:
        self._function(loop)


def callback_of(value) -> Callback:
    """A callback, or a function of the loop as one. Raises ArgumentError for others."""
    if isinstance(value, Callback):
        return value
    if isinstance(value, type) or not callable(value):
        raise ArgumentError(
            "callbacks of fit are Callback objects or functions of the loop",
            f"{value!r:.60}",
            "create the object: EarlyStopping(), not EarlyStopping",
        )
    return _Function(value)


__all__ = ["Callback", "EarlyStopping", "Summaries", "callback_of"]
