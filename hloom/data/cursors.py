"""Reading ahead of what is handed out, without a state of the input for each element.

The state of the input is recorded periodically. A step's position is the latest recorded state and the number of
elements after it, which a restored iterator reads again and drops.
"""

from __future__ import annotations

from hloom.data.blocks import Block
from hloom.data.nodes import Node, State

_BATCHES, _ELEMENTS = 32, 8192  # between two recorded states


class Noted:
    """An input, and after each block a mark: the latest recorded state and the number of elements since."""

    def __init__(self, node: Node):
        self.node, self.spacing = node, _BATCHES if node.single else _ELEMENTS
        self.note(node.state(), 0)

    def note(self, state: State, skip: int) -> None:
        self.mark = (state, skip)

    def next(self, limit: int) -> tuple[Block | None, tuple[State, int]]:
        """The next block, and the mark of its first element."""
        if self.mark[1] >= self.spacing:
            self.mark = (self.node.state(), 0)
        mark = self.mark
        block = self.node.next(limit)
        if block is not None:
            self.mark = (mark[0], mark[1] + block.size)
        return block, mark


def skipped(node: Node, count: int) -> None:
    """Reads elements and drops them."""
    while count:
        block = node.next(min(count, 4096))
        if block is None:
            return
        count -= block.size


class Cursor:
    """An input of which some elements may be given back."""

    def __init__(self, node: Node):
        self.node = node
        self.begin()

    def begin(self) -> None:
        """After the input's `begin`."""
        self._noted: Noted | None = None
        self._rest: list[Block] = []

    def take(self, count: int) -> list[Block]:
        """The next `count` elements, fewer at the end."""
        if self._noted is None:
            self._noted = Noted(self.node)
        parts = []
        while count:
            block = self._rest.pop(0) if self._rest else self._noted.next(count)[0]
            if block is None:
                break
            if block.size > count:
                self._rest.insert(0, block[count:])
                block = block[:count]
            parts.append(block)
            count -= block.size
        return parts

    def give_back(self, block: Block) -> None:
        """The last elements that were taken come again."""
        self._rest.insert(0, block)

    def state(self) -> State:
        if self._noted is None:
            return {"input": self.node.state(), "skip": 0}
        state, skip = self._noted.mark
        return {"input": state, "skip": skip - sum(block.size for block in self._rest)}

    def restore(self, state: State) -> None:
        self.begin()
        skip = int(state["skip"])
        self.node.restore(state["input"])
        skipped(self.node, skip)
        self._noted = Noted(self.node)
        self._noted.note(state["input"], skip)
