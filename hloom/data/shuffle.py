"""Shuffling: of everything, or through a window.

A window of n elements corresponds to `min_after_dequeue` + 1 elsewhere: each element is drawn uniformly from n. The
choice depends on the seed, the epoch and the element's index, and not on how many are requested at a time.

The state of a window is small: the indices of the elements in it, and a state of the input from before the oldest of
them. A restored iterator rereads the input from there.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from hloom.data.blocks import Block, Origin, joined
from hloom.data.nodes import Epochs, Node, State, generator, state_error

_CHUNK = 1024  # elements that are drawn at a time, as far as the input has them
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def draws(key: int, first: int, count: int) -> np.ndarray:
    """Random numbers first, first + 1, ... of a stream, uint64. Source: SplitMix64 (Steele, Lea, Flood 2014)."""
    z = np.uint64(key) + np.arange(first + 1, first + count + 1, dtype=np.uint64) * _GOLDEN
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def below(numbers: np.ndarray, bound: int) -> np.ndarray:
    """Random uint64 as integers from 0 to bound - 1."""
    return ((numbers >> np.uint64(11)).astype(np.float64) * (bound * 2.0**-53)).astype(np.int64)


def stream_key(seed: int, epochs: Epochs) -> int:
    return int(np.random.SeedSequence([seed, *epochs]).generate_state(1, np.uint64)[0])


class Pool:
    """Elements that are exchanged for others at random: a shuffling window without its input.

    pool = Pool(block)
    drawn = pool.exchange(slots, new)      the elements in some slots, which the new ones then take, one by one
    """

    def __init__(self, block: Block):
        # Arrays from a source may be views of the user's array.
        self.block = block.take(np.arange(block.size))

    @property
    def size(self) -> int:
        return self.block.size

    def exchange(self, slots: np.ndarray, new: Block) -> Block:
        """As if element after element was drawn from slots[k] and replaced by new[k], also where slots repeat."""
        pool = self.block
        order = np.argsort(slots, kind="stable")
        repeated = np.flatnonzero(slots[order[1:]] == slots[order[:-1]])
        later, earlier = order[repeated + 1], order[repeated]  # a repeated slot yields what its last draw put in
        if not pool.fits(new):
            pool = self.block = Block.of_elements(pool.elements(), pool.origin)
        origin = self._exchange_origins(pool, slots, new, later, earlier)
        if pool.leaves is None:
            held, drawn = pool.elements(), []
            for slot, element in zip(slots.tolist(), new.elements(), strict=True):
                drawn.append(held[slot])
                held[slot] = element
            return Block.of_elements(drawn, origin)
        leaves = []
        for column, incoming in zip(pool.leaves, new.leaves or [], strict=True):
            leaves.append(_exchanged(column, slots, incoming, later, earlier))
        return Block.of_columns(pool.structure, leaves, origin)

    def _exchange_origins(self, pool: Block, slots, new: Block, later, earlier) -> Origin | None:
        if pool.origin is None or new.origin is None:
            pool.origin = None
            return None
        if pool.origin.names != new.origin.names:
            both = joined([Block.of_elements(range(b.size), b.origin) for b in (pool, new)]).origin
            assert both is not None
            pool.origin = Origin(both.names, both.where[: pool.size].copy())
            new.origin = Origin(both.names, both.where[pool.size :])
        return Origin(pool.origin.names, _exchanged(pool.origin.where, slots, new.origin.where, later, earlier))


def _exchanged(column: np.ndarray, slots, incoming: np.ndarray, later, earlier) -> np.ndarray:
    drawn = column.take(slots, axis=0)
    if len(later):
        drawn[later] = incoming[earlier]
    column[slots] = incoming  # of repeated slots the last one wins
    return drawn


class Anchors:
    """An input whose states are recorded periodically, so that its latest elements can be read again.

    spacing: elements between two states.
    """

    def __init__(self, node: Node, spacing: int):
        self.node, self.spacing, self.pulled = node, spacing, 0
        self._states: deque[tuple[int, State]] = deque()

    def begin(self) -> None:
        self.pulled = 0
        self._states.clear()

    def next(self, limit: int, oldest: int | None = None) -> Block | None:
        """The input's next elements. oldest: the first element that may have to be read again."""
        if not self._states or self.pulled - self._states[-1][0] >= self.spacing:
            self._states.append((self.pulled, self.node.state()))
            while oldest is not None and len(self._states) > 1 and self._states[1][0] <= oldest:
                self._states.popleft()
        block = self.node.next(limit)
        if block is not None:
            self.pulled += block.size
        return block

    def due(self) -> bool:
        """Whether `next` records a state, and `oldest` would be useful."""
        return bool(self._states) and self.pulled - self._states[-1][0] >= self.spacing

    def state(self, oldest: int | None) -> State:
        """A state to read again from element `oldest` on. None: nothing has to be read again."""
        at, noted = self.pulled, None
        for position, state in self._states:
            if oldest is not None and position <= oldest:
                at, noted = position, state
        return {"pulled": self.pulled, "from": at, "input": self.node.state() if noted is None else noted}

    def restore(self, state: State, wanted: np.ndarray) -> Block | None:
        """Moves to the position of the state. Returns the elements with the wanted indices, in order; None for none."""
        at, pulled = int(state["from"]), int(state["pulled"])
        if not 0 <= at <= pulled or (len(wanted) and not (at <= wanted.min() and wanted.max() < pulled)):
            raise state_error("its counters are inconsistent")
        self.node.restore(state["input"])
        self._states.clear()
        self._states.append((at, state["input"]))
        parts, numbers = [], []
        while at < pulled:
            block = self.node.next(min(pulled - at, 4096))
            if block is None:
                raise state_error(f"the input ends after {at} elements, and {pulled} had been read")
            here = wanted[(wanted >= at) & (wanted < at + block.size)]
            if len(here):
                parts.append(block.take(here - at))
                numbers.append(here)
            at += block.size
        self.pulled = pulled
        if not parts:
            return None
        order = np.argsort(np.concatenate(numbers), kind="stable")
        return joined(parts).take(order[np.argsort(np.argsort(wanted, kind="stable"), kind="stable")])


class WindowShuffle(Node):
    """Each element drawn from `window` elements, and the rest in random order at the end."""

    def __init__(self, source: Node, window: int, seed: int):
        super().__init__(source)
        self.window, self.seed, self.single = window, seed, source.single
        self._input = Anchors(source, max(window // 2, 1024))
        self._key = 0
        self._epochs: Epochs = ()
        self._forget()

    def _forget(self) -> None:
        self._pool: Pool | None = None
        self._held = np.full(self.window, -1, np.int64)  # the number of the element in each slot
        self._drawn = 0
        self._chunk: Block | None = None  # elements that were drawn, and not yet handed out from `_used` on
        self._used, self._first = 0, 0  # `_first`: the number of the element that took the place of the chunk's first
        self._slots = self._replaced = np.zeros(0, np.int64)  # the origin of the chunk, and the indices in it
        self._left = -1  # elements that were left when the input ended, -1 before
        self._order = np.zeros(0, np.int64)

    def begin(self, epochs: Epochs) -> None:
        super().begin(epochs)
        self._epochs, self._key = epochs, stream_key(self.seed, epochs)
        self._input.begin()
        self._forget()

    def next(self, limit: int) -> Block | None:
        if self._pool is None and self._left < 0:
            self._fill()
        if self._left < 0 and (self._chunk is not None or self._draw(limit)):
            assert self._chunk is not None
            block = self._chunk[self._used : self._used + limit]
            self._used += block.size
            if self._used == self._chunk.size:
                self._chunk = None
            self._drawn += block.size
            return block
        at = self._drawn - (self._input.pulled - self._left)
        stop = min(self._left, at + limit)
        if at >= stop or self._pool is None:
            return None
        self._drawn += stop - at
        return self._pool.block.take(self._order[at:stop])

    def _draw(self, limit: int) -> bool:
        """Draws a chunk of elements; False at the end of the input."""
        assert self._pool is not None
        oldest = int(self._held.min()) if self._input.due() else None
        self._first = self._input.pulled
        block = self._input.next(limit if self.single else max(limit, _CHUNK), oldest)
        if block is None:
            self._end(self.window)
            return False
        slots = self._slots = below(draws(self._key, self._drawn, block.size), self.window)
        self._replaced = self._held[slots]
        self._held[slots] = np.arange(self._first, self._first + block.size)
        self._chunk, self._used = self._pool.exchange(slots, block), 0
        return True

    def _fill(self) -> None:
        parts: list[Block] = []
        while self._input.pulled < self.window:
            block = self._input.next(min(self.window - self._input.pulled, 4096), 0)
            if block is None:
                break
            parts.append(block)
        size = self._input.pulled
        self._held[:size] = np.arange(size)
        self._pool = Pool(joined(parts)) if parts else None
        if size < self.window:
            self._end(size)

    def _end(self, left: int) -> None:
        self._left = left
        self._order = generator(self.seed, *self._epochs, 1).permutation(left)

    def state(self) -> State:
        held, pulled = self._held.copy(), self._input.pulled
        if self._chunk is not None:  # as if only the elements handed out had been drawn
            held[self._slots] = self._replaced
            held[self._slots[: self._used]] = np.arange(self._first, self._first + self._used)
            pulled = self._first + self._used
        there = held[held >= 0]
        noted = self._input.state(int(there.min()) if len(there) else None)
        return {"drawn": self._drawn, "left": self._left, "held": held, **noted, "pulled": pulled}

    def restore(self, state: State) -> None:
        self._forget()
        held = np.array(state["held"], np.int64)
        if held.shape != self._held.shape:
            raise state_error(f"its window has {len(held)} elements, the dataset's {self.window}")
        self._held, self._drawn = held, int(state["drawn"])
        left = int(state["left"])
        block = self._input.restore(state, held[held >= 0])
        self._pool = Pool(block) if block is not None else None
        if left >= 0:
            self._end(left)


class FullShuffle(Node):
    """All elements of an epoch in random order; they are held in memory."""

    def __init__(self, source: Node, seed: int):
        super().__init__(source)
        self.seed, self.single = seed, source.single
        self._epochs: Epochs = ()
        self._block: Block | None = None
        self._at, self._order = 0, np.zeros(0, np.int64)

    def begin(self, epochs: Epochs) -> None:
        super().begin(epochs)
        self._epochs, self._at, self._block = epochs, 0, None
        self._order = np.zeros(0, np.int64)

    def next(self, limit: int) -> Block | None:
        if self._block is None:
            parts: list[Block] = []
            while (part := self.inputs[0].next(4096)) is not None:
                parts.append(part)
            if not parts:
                return None
            self._block = joined(parts)
            self._order = generator(self.seed, *self._epochs).permutation(self._block.size)
        start, stop = self._at, min(self._block.size, self._at + limit)
        if start >= stop:
            return None
        self._at = stop
        return self._block.take(self._order[start:stop])

    def state(self) -> State:
        return {"at": self._at}

    def restore(self, state: State) -> None:
        self._at = int(state["at"])
