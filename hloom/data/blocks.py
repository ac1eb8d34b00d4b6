"""Elements in blocks, which is how they go from step to step: as columns where they can be, else as a list.

A column is an array with one row for each element, of dtype object where elements are texts, bytes or arrays of
different shapes. Shuffling and batching columns are gathers and slices; nothing is done per element.

    Block.of_columns(structure, leaves, origin)    Block.of_elements(elements, origin)
    block.elements(), block[a:b], block.take(indices), joined(blocks)
    stacked(block, asked) -> tree                  the elements as one batch
    padded(block, asked, to, value) -> tree        the same for arrays of different sizes

Usable alone: `Block.of_elements([...])` and `stacked` make batches of any elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.errors import DataError
from hloom.tree import pytrees as tree

_FILE_SHIFT = 40  # an origin is a file's index and a record's number in one word
_RECORD = (1 << _FILE_SHIFT) - 1


class Origin:
    """The origin of elements, for errors. names: of files or sources; where: one word for each element."""

    __slots__ = ("names", "where")

    def __init__(self, names: tuple[str, ...], where: np.ndarray):
        self.names, self.where = names, where

    @staticmethod
    def of(names: tuple[str, ...], index: int, first: int, count: int) -> Origin:
        """Records first, first + 1, ... of names[index]."""
        return Origin(names, np.arange(first, first + count, dtype=np.int64) | (index << _FILE_SHIFT))

    def describe(self, position: int) -> str:
        word = int(self.where[position])
        return f"record {word & _RECORD} of {self.names[word >> _FILE_SHIFT]}"


def _joined_origins(origins: Sequence[Origin | None]) -> Origin | None:
    if any(origin is None for origin in origins):
        return None
    names: tuple[str, ...] = origins[0].names  # type: ignore[union-attr]
    parts = []
    for origin in origins:
        assert origin is not None
        where = origin.where
        if origin.names is not names:
            if origin.names != names[: len(origin.names)]:
                where = where + (len(names) << _FILE_SHIFT)
                names = names + origin.names
        parts.append(where)
    return Origin(names, np.concatenate(parts))


class Block:
    """Some consecutive elements. size: how many."""

    __slots__ = ("_elements", "leaves", "origin", "size", "structure")

    def __init__(self, structure, leaves: list[np.ndarray] | None, elements: list | None, size: int, origin):
        self.structure, self.leaves, self._elements = structure, leaves, elements
        self.size, self.origin = size, origin

    @staticmethod
    def of_columns(structure, leaves: Sequence[np.ndarray], origin: Origin | None = None) -> Block:
        """structure: of one element; leaves: its columns."""
        return Block(structure, list(leaves), None, len(leaves[0]), origin)

    @staticmethod
    def of_elements(elements: Sequence, origin: Origin | None = None) -> Block:
        """A block of separate elements, as a source without columns yields them."""
        elements = list(elements)
        return Block(None, None, elements, len(elements), origin)

    def elements(self) -> list:
        """The elements as trees: rows of the columns are views."""
        if self._elements is not None:
            return self._elements
        assert self.leaves is not None
        return [tree.unflatten(self.structure, row) for row in zip(*self.leaves, strict=True)]

    def __getitem__(self, part: slice) -> Block:
        start, stop, _ = part.indices(self.size)
        if start == 0 and stop == self.size:
            return self
        return self._with(lambda column: column[start:stop], lambda elements: elements[start:stop], stop - start)

    def take(self, indices: np.ndarray) -> Block:
        """The elements at indices, copied."""
        return self._with(
            lambda column: column.take(indices, axis=0), lambda each: [each[k] for k in indices], len(indices)
        )

    def _with(self, columns, elements, size: int) -> Block:
        origin = Origin(self.origin.names, columns(self.origin.where)) if self.origin is not None else None
        if self.leaves is not None:
            return Block(self.structure, [columns(leaf) for leaf in self.leaves], None, size, origin)
        return Block(None, None, elements(self._elements), size, origin)

    def fits(self, other: Block) -> bool:
        """Whether both are columns of the same dtypes and shapes."""
        return (
            self.leaves is not None
            and other.leaves is not None
            and self.structure == other.structure
            and all(a.dtype == b.dtype and a.shape[1:] == b.shape[1:] for a, b in zip(self.leaves, other.leaves))  # noqa: B905
        )

    def describe(self, position: int, first: int | None = None) -> str:
        """The origin of an element. first: the index of the block's first element among all."""
        if self.origin is not None:
            return self.origin.describe(position)
        return f"element {position if first is None else first + position}"


def joined(blocks: Sequence[Block]) -> Block:
    """One block of the elements of all."""
    if len(blocks) == 1:
        return blocks[0]
    origin = _joined_origins([block.origin for block in blocks])
    first = blocks[0]
    if all(first.fits(block) for block in blocks):
        columns = zip(*[block.leaves for block in blocks], strict=True)
        return Block.of_columns(first.structure, [np.concatenate(parts) for parts in columns], origin)
    return Block.of_elements([element for block in blocks for element in block.elements()], origin)


def _as_host(value):
    return np.asarray(value) if isinstance(value, Array) else value


def object_column(values: Sequence) -> np.ndarray:
    """A column of arbitrary objects."""
    column = np.empty(len(values), object)
    for position, value in enumerate(values):
        column[position] = value
    return column


def _is_array(value) -> bool:
    return isinstance(value, (np.ndarray, np.generic))


def _columns(block: Block, asked: str) -> tuple[Any, list[list]]:
    """The structure of the elements, and for each leaf its values."""
    elements = block.elements()
    flat, structure = tree.flatten(elements[0])
    rows = [flat]
    for position, element in enumerate(elements[1:], 1):
        leaves, other = tree.flatten(element)
        if other != structure:
            raise DataError(
                asked,
                f"{block.describe(0)} is {_shown(elements[0])}, {block.describe(position)} is {_shown(element)}",
                "return elements of the same structure",
            )
        rows.append(leaves)
    return structure, [[_as_host(value) for value in values] for values in zip(*rows, strict=True)]


def _shown(element) -> str:
    def leaf(value):
        return f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else type(value).__name__

    return str(tree.map(leaf, element)).replace("'", "")


def _leaf_name(structure, index: int) -> str:
    marked = tree.unflatten(structure, list(range(structure.num_leaves)))
    path = next((p for p, leaf in tree.leaves_with_path(marked) if leaf == index), ())
    return tree.keystr(path, simple=True, separator="/") or "the element"


def as_columns(block: Block, asked: str) -> Block:
    """The block as columns. Raises DataError if the elements differ in structure, shape or dtype."""
    if block.leaves is not None:
        return block
    structure, values = _columns(block, asked)
    if not values:  # elements without leaves
        return block
    columns = [_column(each, block, structure, index, asked) for index, each in enumerate(values)]
    return Block.of_columns(structure, columns, block.origin)


def _column(values: list, block: Block, structure, index: int, asked: str) -> np.ndarray:
    first = values[0]
    if any(isinstance(value, (bool, int, float, complex)) for value in values) and all(
        isinstance(value, (bool, int, float, complex, np.generic)) for value in values
    ):
        return np.asarray(values)
    if _is_array(first) and first.dtype != object:
        for position, value in enumerate(values):
            if not _is_array(value) or value.shape != first.shape or value.dtype != first.dtype:
                raise DataError(
                    f"{asked}: {_leaf_name(structure, index)}",
                    f"{_shown(first)} in {block.describe(0)}, {_shown(value)} in {block.describe(position)}",
                    "batch(pad=...) pads arrays of different sizes, bucket() sorts them by length; "
                    "or make them equal in map()",
                )
        return np.stack(values)
    return object_column(values)


def stacked(block: Block, asked: str = "a batch") -> Any:
    """The elements as one tree of arrays with a leading axis. Raises DataError if they do not fit."""
    columns = as_columns(block, asked)
    if columns.leaves is None:
        return columns.elements()[0]
    leaves = []
    for index, leaf in enumerate(columns.leaves):
        if leaf.dtype == object and all(_is_array(value) for value in leaf):
            leaf = _column(list(leaf), block, columns.structure, index, asked)
        leaves.append(leaf)
    return tree.unflatten(columns.structure, leaves)


def padded(block: Block, asked: str = "a padded batch", to: Any = True, value: Any = 0) -> Any:
    """The elements as one tree, arrays filled up at the ends of their axes.

    to: True, the largest size of each axis in the batch; a number, the size of the first axis; a dict of such by the
    path of a leaf, such as `tokens` (leaves that it does not name are not padded). Raises DataError for an array that
    is larger, or of another rank.
    """
    structure, values = _columns(block, asked)
    names = [_leaf_name(structure, index) for index in range(len(values))]
    if isinstance(to, Mapping) and (unknown := [name for name in to if name not in names]):
        raise DataError(
            f"{asked}: pad={to}", f"no leaf {unknown[0]!r}; there are {', '.join(names)}", "name one of them"
        )
    leaves = []
    for index, (name, each) in enumerate(zip(names, values, strict=True)):
        size = to.get(name) if isinstance(to, Mapping) else to
        if size is None or size is False or not _is_array(each[0]) or each[0].ndim == 0:
            leaves.append(_column(each, block, structure, index, asked))
        else:
            leaves.append(_padded_column(each, size, value, f"{asked}: {name}", block))
    return tree.unflatten(structure, leaves)


def _padded_column(values: list[np.ndarray], size: Any, fill: Any, asked: str, block: Block) -> np.ndarray:
    first = values[0]
    for position, value in enumerate(values):
        if not _is_array(value) or value.ndim != first.ndim or value.dtype != first.dtype:
            raise DataError(
                asked,
                f"{_shown(first)} in {block.describe(0)}, {_shown(value)} in {block.describe(position)}",
                "return arrays of one rank and dtype",
            )
    shape = list(np.max([value.shape for value in values], axis=0))
    if size is not True:
        if shape[0] > size:
            position = next(k for k, value in enumerate(values) if len(value) > size)
            raise DataError(
                f"{asked} padded to {size}", f"{len(values[position])} in {block.describe(position)}",
                "pad to a larger size, or shorten the elements in map()",
            )  # fmt: skip
        shape[0] = size
    if first.dtype == object and not fill:  # texts or bytes
        fill = next((type(text)() for value in values for text in value.flat), "")
    column = np.full((len(values), *shape), fill, first.dtype)
    for row, value in enumerate(values):
        part: tuple[int | slice, ...] = (row, *(slice(size) for size in value.shape))
        column[part] = value
    return column
