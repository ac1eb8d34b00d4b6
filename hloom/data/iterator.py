"""The iterator over a dataset, whose state can be saved."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from hloom.data.nodes import Node, State, state_error
from hloom.errors import DataError
from hloom.tree import pytrees as tree

_ELEMENTS = 64  # single elements that are made at a time


class DataIterator:
    """Goes over the elements of a dataset once.

        batches = iter(dataset)
        for batch in batches: ...
        checkpoints.save(step, {"params": params, "data": batches.state()})

    state(): a tree of dicts, integers and arrays, whose structure and shapes are those of any iterator of the dataset;
    after `restore(state)` the elements follow that followed when it was taken. Threads and processes end with the
    iterator: when nothing refers to it, at `close()`, or at the end of a `with` block. One thread uses it at a time.

    >>> batches = iter(hl.data.arrays(np.arange(6)).batch(2))
    >>> next(batches)
    array([0, 1])
    """

    def __init__(self, node: Node, epochs: tuple[int, ...]):
        self._node, self._epochs = node, epochs
        self._finalizer = weakref.finalize(self, _close, self._node)
        self._node.begin(epochs)
        self._limit = 1 if self._node.single else _ELEMENTS
        self._block: list = []
        self._at = 0
        self._before: State | None = None

    def __iter__(self) -> DataIterator:
        return self

    def __next__(self) -> Any:
        if self._at < len(self._block):
            element = self._block[self._at]
            self._at += 1
            return element
        if not self._finalizer.alive:
            raise DataError("the next element of a dataset", "its iterator is closed", "make another: iter(dataset)")
        before = self._node.state() if self._limit > 1 else None
        block = self._node.next(self._limit)
        if block is None:
            self._block, self._at, self._before = [], 0, None
            raise StopIteration
        self._block, self._at, self._before = block.elements(), 1, before
        return self._block[0]

    @property
    def corrupt(self) -> int:
        """Corrupt records that were left out so far (`on_corrupt="skip"`)."""
        return self._node.corrupt()

    def state(self) -> dict[str, Any]:
        """Where the iterator is."""
        if self._at < len(self._block) and self._before is not None:
            return {"node": self._before, "used": self._at}
        return {"node": self._node.state(), "used": 0}

    def restore(self, state: dict[str, Any]) -> DataIterator:
        """Moves to the position of a state; returns the iterator. Raises DataError for a state of another dataset."""
        self._block, self._at, self._before = [], 0, None
        self._node.begin(self._epochs)
        fresh = {"node": self._node.state(), "used": 0}
        if tree.structure(state) != tree.structure(fresh):
            raise state_error("it has other steps or sources than the dataset")
        for (path, given), mine in zip(tree.leaves_with_path(state), tree.leaves(fresh), strict=True):
            if np.shape(given) != np.shape(mine):
                name = tree.keystr(path, simple=True, separator="/")
                raise state_error(f"{name} has the shape {np.shape(given)}, the dataset's {np.shape(mine)}")
        self._node.restore(state["node"])
        used = int(state["used"])
        for _ in range(used):
            next(self)
        return self

    def close(self) -> None:
        """Ends its threads and processes and closes files. `next` raises DataError afterwards."""
        self._block, self._at = [], 0
        self._finalizer()

    def __enter__(self) -> DataIterator:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def _close(node: Node) -> None:
    node.close()
