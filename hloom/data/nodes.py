"""Iterations in progress: a tree of nodes, one for each step of a dataset.

A node delivers its elements in blocks, in an order that depends on seeds and epochs only. Its position is available at
any time as a tree of dicts, integers and arrays whose structure and shapes depend on the dataset only, so that the
state of a fresh iterator is the `like` of a saved one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hloom.data.blocks import Block
from hloom.errors import DataError, HloomError, WorkerError
from hloom.ir.source import Source, is_not_the_users

State = dict[str, Any]
Epochs = tuple[int, ...]


class Node:
    """One step. single: whether elements are batches, of which one is a block."""

    single = False

    def __init__(self, *inputs: Node):
        self.inputs = inputs

    def begin(self, epochs: Epochs) -> None:
        """Goes to the start of an epoch; called before anything else. epochs: how often each `repeat` around has begun
        anew, the outermost first."""
        for node in self.inputs:
            node.begin(epochs)

    def next(self, limit: int) -> Block | None:
        """The next elements, at least one and at most `limit`; None at the end, and from then on."""
        raise AssertionError(type(self).__name__)

    def state(self) -> State:
        """Where it is: after `begin` and `restore(state)` the same elements follow."""
        return {"input": self.inputs[0].state()} if self.inputs else {}

    def restore(self, state: State) -> None:
        """Moves to the position of `state`. `begin` was called with the same epochs."""
        self.inputs[0].restore(state["input"])

    def corrupt(self) -> int:
        """Corrupt records that were skipped so far."""
        return sum(node.corrupt() for node in self.inputs)

    def close(self) -> None:
        """Ends threads and processes, closes files. Nothing else is called afterwards, or `begin`."""
        for node in self.inputs:
            node.close()


def generator(seed: int, *counters: int) -> np.random.Generator:
    """Random numbers that depend on a seed and counters only."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *counters])))


class Repeat(Node):
    """The input again and again, shuffled differently each time. count: None without end."""

    def __init__(self, source: Node, count: int | None):
        super().__init__(source)
        self.count, self.single = count, source.single
        self._epochs: Epochs = ()
        self._epoch, self._seen = 0, False

    def begin(self, epochs: Epochs) -> None:
        self._epochs, self._epoch, self._seen = epochs, 0, False
        super().begin((*epochs, 0))

    def next(self, limit: int) -> Block | None:
        while self.count is None or self._epoch < self.count:
            block = self.inputs[0].next(limit)
            if block is not None:
                self._seen = True
                return block
            if not self._seen:
                return None  # an empty input, which no repetition makes longer
            self._seen = False
            self._epoch += 1
            if self.count is None or self._epoch < self.count:
                self.inputs[0].begin((*self._epochs, self._epoch))
        return None

    def state(self) -> State:
        return {"epoch": self._epoch, "seen": int(self._seen), "input": self.inputs[0].state()}

    def restore(self, state: State) -> None:
        self._epoch, self._seen = int(state["epoch"]), bool(state["seen"])
        last = self._epoch if self.count is None else min(self._epoch, self.count - 1)
        self.inputs[0].begin((*self._epochs, last))
        self.inputs[0].restore(state["input"])


class Part(Node):
    """Elements start, start + step, ... before stop."""

    def __init__(self, source: Node, start: int, stop: int | None, step: int):
        super().__init__(source)
        self.start, self.stop, self.step, self.single = start, stop, step, source.single
        self._at = 0  # elements of the input that were passed

    def begin(self, epochs: Epochs) -> None:
        super().begin(epochs)
        self._at = 0

    def next(self, limit: int) -> Block | None:
        while self.stop is None or self._at < self.stop:
            wanted = limit * self.step if self.stop is None else min(limit * self.step, self.stop - self._at)
            if self._at < self.start:
                wanted = self.start - self._at
            block = self.inputs[0].next(wanted)
            if block is None:
                return None
            first, self._at = self._at, self._at + block.size
            begin = self.start - first if first < self.start else (self.start - first) % self.step
            if begin < block.size:
                return block[begin:] if self.step == 1 else block.take(np.arange(begin, block.size, self.step))
        return None

    def state(self) -> State:
        return {"at": self._at, **super().state()}

    def restore(self, state: State) -> None:
        self._at = int(state["at"])
        super().restore(state)


class Filter(Node):
    """The elements for which a function returns True."""

    def __init__(self, source: Node, function: Callable):
        super().__init__(source)
        self.function, self.single = function, source.single

    def next(self, limit: int) -> Block | None:
        while (block := self.inputs[0].next(limit)) is not None:
            kept = np.flatnonzero(self._answers(block))
            if len(kept) == block.size:
                return block
            if len(kept):
                return block.take(kept)
        return None

    def _answers(self, block: Block) -> list[bool]:
        answers = []
        for position, answer in enumerate(applied(self.function, block, "filter")):
            try:
                answers.append(bool(answer))
            except ValueError as error:  # an array with several elements
                raise function_error(self.function, "filter", block.describe(position), error) from error
        return answers


class Map(Node):
    """A function of each element. seed: with it, the function gets a random generator as well."""

    def __init__(self, source: Node, function: Callable, seed: int | None):
        super().__init__(source)
        self.function, self.seed, self.single = function, seed, source.single
        self._epochs: Epochs = ()
        self._at = 0

    def begin(self, epochs: Epochs) -> None:
        super().begin(epochs)
        self._epochs, self._at = epochs, 0

    def next(self, limit: int) -> Block | None:
        block = self.inputs[0].next(limit)
        if block is None:
            return None
        first, self._at = self._at, self._at + block.size
        return Block.of_elements(applied(self.function, block, "map", self.seed, self._epochs, first), block.origin)

    def state(self) -> State:
        return {"at": self._at, **super().state()}

    def restore(self, state: State) -> None:
        self._at = int(state["at"])
        super().restore(state)


def applied(
    function: Callable, block: Block, step: str, seed: int | None = None, epochs: Epochs = (), first: int = 0
) -> list:
    """The results of the function for each element of a block. Raises WorkerError, which names the element."""
    results = []
    for position, element in enumerate(block.elements()):
        try:
            if seed is None:
                results.append(function(element))
            else:
                results.append(function(element, generator(seed, *epochs, first + position)))
        except Exception as error:  # whatever the user's function raises
            raise function_error(function, step, block.describe(position, first), error) from error
    return results


def function_error(function: Callable, step: str, record: str, error: Exception) -> HloomError:
    """The error for a function of the user's that raised."""
    asked = f"{step}({getattr(function, '__name__', type(function).__name__)}) of {record}"
    text = str(error).splitlines()[0] if str(error) else ""
    return WorkerError(
        asked, f"{type(error).__name__}: {text}".rstrip(": "),
        "correct the function, or leave such elements out with filter()", user_line(error),
    )  # fmt: skip


def user_line(error: BaseException) -> Source | str:
    """The innermost line of the user's in a traceback; '' if there is none."""
    found: Source | str = ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_not_the_users(code.co_filename):
            found = Source(code.co_filename, trace.tb_lineno, code.co_name)
        trace = trace.tb_next
    return found


class Access:
    """Elements by their index. size: how many there are; take(indices) -> Block."""

    size = 0

    def take(self, indices: np.ndarray) -> Block:
        """The elements at some indices, in their order."""
        raise AssertionError(type(self).__name__)

    def part(self, start: int, stop: int) -> Block:
        """Elements start to stop - 1."""
        return self.take(np.arange(start, stop))

    def close(self) -> None:
        """Closes files."""


class Strided(Access):
    """Elements index, index + count, ... of another access."""

    def __init__(self, access: Access, index: int, count: int):
        self.access, self.index, self.count = access, index, count
        self.size = len(range(index, access.size, count))

    def take(self, indices: np.ndarray) -> Block:
        return self.access.take(indices * self.count + self.index)

    def close(self) -> None:
        self.access.close()


class Ordered(Node):
    """Elements by index, in order or in an order that a seed and the epoch decide."""

    def __init__(self, access: Access, seed: int | None = None):
        super().__init__()
        self.access, self.seed = access, seed
        self._at, self._order = 0, np.zeros(0, np.int64)
        self._epochs: Epochs = ()

    def begin(self, epochs: Epochs) -> None:
        self._at = 0
        if self.seed is not None and (epochs != self._epochs or not len(self._order)):
            self._order = generator(self.seed, *epochs).permutation(self.access.size)
        self._epochs = epochs

    def next(self, limit: int) -> Block | None:
        start, stop = self._at, min(self.access.size, self._at + limit)
        if start >= stop:
            return None
        block = self.access.part(start, stop) if self.seed is None else self.access.take(self._order[start:stop])
        self._at = stop
        return block

    def state(self) -> State:
        return {"at": self._at}

    def restore(self, state: State) -> None:
        at = int(state["at"])
        if not 0 <= at <= self.access.size:
            raise state_error(f"it is at element {at}, and the dataset has {self.access.size}")
        self._at = at

    def close(self) -> None:
        self.access.close()


def state_error(found: str) -> DataError:
    """The error for a state that does not belong to the dataset."""
    return DataError("the state of an iterator", found, "restore the state of an iterator of the same dataset")
