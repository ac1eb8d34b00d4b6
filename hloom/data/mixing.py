"""Elements of several datasets at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.data.blocks import Block, joined
from hloom.data.cursors import Cursor
from hloom.data.nodes import Epochs, Node, State
from hloom.data.shuffle import draws, stream_key


class Mix(Node):
    """Which input element n comes from depends on the seed, the epoch and n, and on which inputs have ended."""

    def __init__(self, inputs: Sequence[Node], weights: Sequence[float], seed: int, stop: str):
        super().__init__(*inputs)
        self.weights, self.seed, self.stop = np.array(weights, np.float64), seed, stop
        self.single = all(node.single for node in inputs)
        self._cursors = [Cursor(node) for node in inputs]
        self._key, self._at, self._ended = 0, 0, np.zeros(len(inputs), np.int64)

    def begin(self, epochs: Epochs) -> None:
        super().begin(epochs)
        for cursor in self._cursors:
            cursor.begin()
        self._key, self._at, self._ended = stream_key(self.seed, epochs), 0, np.zeros(len(self.inputs), np.int64)

    def next(self, limit: int) -> Block | None:
        while True:
            weights = np.where(self._ended, 0.0, self.weights)
            if not weights.any() or (self.stop == "first" and self._ended.any()):
                return None
            edges = np.cumsum(weights) / weights.sum()
            numbers = draws(self._key, self._at, limit) / 2.0**64
            choices = np.minimum(np.searchsorted(edges, numbers, side="right"), np.flatnonzero(weights)[-1])
            block = self._chosen(choices)
            if block is not None:
                self._at += block.size
                return block

    def _chosen(self, choices: np.ndarray) -> Block | None:
        """The elements from the chosen inputs, up to the first missing one. None if that is the very first: that input
        has ended."""
        parts: dict[int, Block] = {}
        fits = len(choices)
        for source, count in enumerate(np.bincount(choices).tolist()):
            taken = self._cursors[source].take(count) if count else []
            if taken:
                parts[source] = joined(taken)
            have = parts[source].size if taken else 0
            if have < count:
                fits = min(fits, int(np.flatnonzero(choices == source)[have]))
        used = np.bincount(choices[:fits], minlength=len(self.inputs))
        for source, part in parts.items():
            if part.size > used[source]:
                self._cursors[source].give_back(part[int(used[source]) :])
        if not fits:
            self._ended[choices[0]] = 1
            return None
        kept = [part[: int(used[source])] for source, part in parts.items() if used[source]]
        order = np.argsort(choices[:fits], kind="stable")  # position by position, source after source
        return joined(kept).take(np.argsort(order, kind="stable"))

    def state(self) -> State:
        inputs = [cursor.state() for cursor in self._cursors]
        return {"at": self._at, "ended": self._ended.copy(), "inputs": inputs}

    def restore(self, state: State) -> None:
        self._at, self._ended = int(state["at"]), np.array(state["ended"], np.int64)
        for cursor, each in zip(self._cursors, state["inputs"], strict=True):
            cursor.restore(each)
