"""Sources of batches for a loop: any iterable, a function of the epoch, or a stateful iterator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from hloom.data.dataset import Dataset
from hloom.errors import ArgumentError
from hloom.training.encoding import decoded, encoded
from hloom.tree import pytrees as tree


class Input:
    """The batches of a run, epoch by epoch, from a position that can be saved.

    data: an iterable, which is read once for each epoch; a function of the epoch's number (from 0 on) that returns
    one; a dataset of `hl.data`, shuffled differently in each epoch; or an iterator, which is one epoch. An iterator
    with `state()` and `restore(state)`, like those of `hl.data`, resumes where it was saved; others are read again,
    skipping the batches already seen.
    """

    def __init__(self, data: Any):
        if not callable(data) and not hasattr(data, "__iter__"):
            raise ArgumentError(
                "fit takes batches: an iterable, or a function of the epoch that returns one",
                f"{type(data).__name__}: {data!r:.60}",
                "pass a list of batches, a generator function or a dataset of hl.data",
            )
        self._data = data
        self.epoch, self.batch = 0, 0  # the current epoch, and its batches so far
        self.once = not callable(data) and iter(data) is data
        self._iterator: Iterator | None = None
        self._first: Any = None  # the state of a fresh iterator of this epoch

    def _begin(self) -> Iterator:
        if isinstance(self._data, Dataset):
            return iter(self._data.at_epoch(self.epoch))
        source = self._data(self.epoch) if callable(self._data) else self._data
        return iter(source)

    def next(self) -> Any:
        """The next batch. Raises StopIteration at the end of the epoch."""
        if self._iterator is None:
            self._iterator = self._begin()
        batch = next(self._iterator)
        self.batch += 1
        return batch

    def next_epoch(self) -> None:
        """To the beginning of the next epoch."""
        if not self.batch:
            raise ArgumentError(
                "fit reads batches until it has done its steps",
                f"epoch {self.epoch} has none",
                "pass data that can be read again (a list, a function of the epoch, a dataset), or fewer epochs",
            )
        self.epoch, self.batch, self._iterator = self.epoch + 1, 0, None

    # --- checkpoints ---

    def state(self) -> dict[str, Any]:
        """The position as JSON."""
        found: dict[str, Any] = {"epoch": self.epoch, "batch": self.batch}
        if self._iterator is not None and _has_state(self._iterator):
            found["iterator"] = encoded(self._iterator.state())  # type: ignore[attr-defined]  # `_has_state`
        return found

    def restore(self, state: dict[str, Any]) -> int:
        """Moves to a position; returns the number of batches that were read again and skipped. Raises ArgumentError if
        the data end before it."""
        self.epoch, self.batch = state["epoch"], state["batch"]
        if not self.batch:
            if self.once and self.epoch:
                self._iterator = iter(())
            return 0
        self._iterator = self._begin()
        if "iterator" in state and _has_state(self._iterator):
            self._iterator.restore(decoded(state["iterator"]))  # type: ignore[attr-defined]  # `_has_state`
            return 0
        skipped = sum(1 for _ in itertools.islice(self._iterator, self.batch))
        if skipped < self.batch:
            raise ArgumentError(
                f"resume at batch {self.batch} of epoch {self.epoch}",
                f"the data end after {skipped}",
                "pass the data of the interrupted run, or another folder for checkpoints",
            )
        return skipped


def _has_state(iterator) -> bool:
    return callable(getattr(iterator, "state", None)) and callable(getattr(iterator, "restore", None))


def examples_in(batch: Any) -> int:
    """The number of examples of a batch: the first dimension of its first array; 1 where there is none."""
    for leaf in tree.leaves(batch):
        shape = getattr(leaf, "shape", None)
        if shape:
            return int(shape[0])
    return 1


__all__ = ["Input", "examples_in"]
