"""Batches, also of padded elements, and batches of elements of about the same length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hloom.data.blocks import Block, Origin, joined, padded, stacked
from hloom.data.nodes import Epochs, Node, State, applied, state_error
from hloom.data.shuffle import Anchors
from hloom.errors import DataError
from hloom.tree import pytrees as tree


def filled(batch: Any, count: int, size: int, mask: str, asked: str) -> Any:
    """A batch of `count` rows with `size` rows, the others zero (an empty text or None for objects), and with a mask
    of the rows that count: an entry of a dict, or the last of a tuple; other trees become the pair (tree, mask)."""

    def fill(leaf):
        leaf = np.asarray(leaf)
        if len(leaf) == size:
            return leaf
        out = np.zeros((size, *leaf.shape[1:]), leaf.dtype)
        if leaf.dtype == object:
            out[count:] = [type(leaf[0])()] * (size - count) if isinstance(leaf[0], (str, bytes)) else None
        out[:count] = leaf
        return out

    batch, valid = tree.map(fill, batch), np.arange(size) < count
    if isinstance(batch, dict):
        if mask in batch:
            raise DataError(
                f'{asked}: last="pad" adds the entry {mask!r}', f"the elements have {', '.join(map(repr, batch))}",
                "choose another name: batch(..., mask=NAME)",
            )  # fmt: skip
        return {**batch, mask: valid}
    if type(batch) is tuple:
        return (*batch, valid)
    return batch, valid


def _with_origin(batch: Any, origin: Origin | None) -> Block:
    return Block.of_elements([batch], Origin(origin.names, origin.where[:1]) if origin is not None else None)


class Batch(Node):
    """`size` elements as one. last: "keep", "drop" or "pad"; pad: as in `blocks.padded`, None for none."""

    single = True

    def __init__(self, source: Node, size: int, last: str, mask: str, pad: Any, pad_value: Any):
        super().__init__(source)
        self.size, self.last, self.mask, self.pad, self.pad_value = size, last, mask, pad, pad_value

    def next(self, limit: int) -> Block | None:
        parts, missing = [], self.size
        while missing:
            block = self.inputs[0].next(missing)
            if block is None:
                break
            parts.append(block)
            missing -= block.size
        if not parts or (missing and self.last == "drop"):
            return None
        block, asked = joined(parts), f"batch({self.size})"
        if self.pad is None:
            batch = stacked(block, asked)
        else:
            batch = padded(block, asked, self.pad, self.pad_value)
        if self.last == "pad":
            batch = filled(batch, block.size, self.size, self.mask, asked)
        return _with_origin(batch, block.origin)


class Bucket(Node):
    """Batches of elements whose lengths fall between the same two boundaries, padded to the upper one."""

    single = True

    def __init__(
        self, source: Node, length: Callable | str, boundaries: Sequence[int], sizes: Sequence[int], last: str,
        mask: str, pad: Sequence[str] | None, pad_value: Any,
    ):  # fmt: skip
        super().__init__(source)
        self.length, self.boundaries, self.sizes = length, list(boundaries), list(sizes)
        self.last, self.mask, self.pad, self.pad_value = last, mask, pad, pad_value
        self._input = Anchors(source, max(4 * sum(sizes), 1024))
        self._forget()

    def _forget(self) -> None:
        # For each bucket its elements and their indices.
        self._held: list[list[tuple[int, Block]]] = [[] for _ in self.boundaries]
        self._flushed = -1  # buckets that were emptied after the end of the input, -1 before

    def begin(self, epochs: Epochs) -> None:
        super().begin(epochs)
        self._input.begin()
        self._forget()

    def _lengths(self, block: Block) -> list[int]:
        if isinstance(self.length, str):
            name = self.length
            lengths = []
            for element in block.elements():
                if not isinstance(element, Mapping) or name not in element:
                    there = ", ".join(map(repr, element)) if isinstance(element, Mapping) else type(element).__name__
                    raise DataError(
                        f"bucket(length={name!r})", f"an element with {there}",
                        "name an entry of the elements, or pass a function",
                    )  # fmt: skip
                lengths.append(len(element[name]))
            return lengths
        return [int(n) for n in applied(self.length, block, "bucket")]

    def _oldest(self) -> int | None:
        return min((number for bucket in self._held for number, _ in bucket), default=None)

    def next(self, limit: int) -> Block | None:
        while self._flushed < 0:
            first = self._input.pulled
            oldest = self._oldest() if self._input.due() else None
            block = self._input.next(1, oldest)  # one, as a batch may be complete after each
            if block is None:
                self._flushed = 0
                break
            (length,) = self._lengths(block)
            index = int(np.searchsorted(self.boundaries, length))
            if index == len(self.boundaries):
                raise DataError(
                    f"bucket(boundaries={self.boundaries})", f"{block.describe(0, first)} has length {length}",
                    "add a larger boundary, or leave such elements out with filter()",
                )  # fmt: skip
            bucket = self._held[index]
            bucket.append((first, block))
            if len(bucket) == self.sizes[index]:
                self._held[index] = []
                return self._batch(bucket, index)
        while self._flushed < len(self.boundaries):
            index, self._flushed = self._flushed, self._flushed + 1
            bucket, self._held[index] = self._held[index], []
            if bucket and self.last != "drop":
                return self._batch(bucket, index)
        return None

    def _batch(self, bucket: list[tuple[int, Block]], index: int) -> Block:
        block, boundary = joined([block for _, block in bucket]), self.boundaries[index]
        names = self.pad or ([self.length] if isinstance(self.length, str) else None)
        to = boundary if names is None else dict.fromkeys(names, boundary)
        batch = padded(block, "bucket()", to, self.pad_value)
        if self.last == "pad":
            batch = filled(batch, block.size, self.sizes[index], self.mask, "bucket()")
        return _with_origin(batch, block.origin)

    def state(self) -> State:
        held = np.full((len(self.sizes), max(self.sizes)), -1, np.int64)
        for row, bucket in zip(held, self._held, strict=True):
            row[: len(bucket)] = [number for number, _ in bucket]
        return {"held": held, "flushed": self._flushed, **self._input.state(self._oldest())}

    def restore(self, state: State) -> None:
        self._forget()
        held = np.array(state["held"], np.int64)
        if held.shape != (len(self.sizes), max(self.sizes)):
            raise state_error(f"its buckets have the shape {held.shape}")
        wanted = held[held >= 0]
        block = self._input.restore(state, wanted)
        self._flushed = int(state["flushed"])
        at = 0
        for index, row in enumerate(held):
            for number in row[row >= 0]:
                assert block is not None
                self._held[index].append((int(number), block[at : at + 1]))
                at += 1
