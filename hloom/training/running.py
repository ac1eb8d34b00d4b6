"""A run of `fit` as callbacks and the display of progress see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from hloom.checkpoints import Manager
from hloom.training.history import Row


class Loop(ABC):
    """A run of `fit`, as callbacks see it.

    state: after the last step. step, epoch: completed so far. metrics: of the last step and the last evaluation.
    examples: seen by this process. waited: seconds spent waiting for input. evaluates: whether there are evaluations.
    """

    def __init__(self, state: Any, evaluates: bool, manager: Manager | None):
        self.state = state
        self.step = 0
        self.metrics: dict[str, float] = {}
        self.examples = 0
        self.waited = 0.0
        self.skipped = 0
        self.evaluates, self.manager = evaluates, manager
        self._stopped: str | None = None

    @property
    @abstractmethod
    def epoch(self) -> int:
        """Epochs done so far."""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """Of training, those before a resume included."""

    @property
    @abstractmethod
    def history(self) -> list[Row]:
        """The rows of metrics so far."""

    def stop(self, reason: str) -> None:
        """Ends the run after this step."""
        self._stopped = self._stopped or reason

    @abstractmethod
    def say(self, text: str) -> None:
        """Shows a line, if progress is shown."""
