"""Arrays, sequences and generators of this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.data.blocks import Block, Origin
from hloom.data.nodes import Access, Epochs, Node, State, state_error, user_line
from hloom.errors import ArgumentError, DataError, HloomError, ShapeError, WorkerError
from hloom.tree import pytrees as tree


class ArrayAccess(Access):
    """Rows of the arrays of a tree."""

    def __init__(self, arrays: Any, name: str = "the arrays"):
        leaves, self.structure = tree.flatten(arrays)
        if not leaves:
            raise ArgumentError("a dataset of arrays", "a tree without arrays", "pass arrays")
        self.columns = []
        for leaf in leaves:
            array = np.asarray(leaf) if isinstance(leaf, Array) else np.asanyarray(leaf)
            if not array.ndim:
                raise ShapeError(
                    "a dataset of the rows of arrays", f"a number: {leaf!r:.60}", "pass arrays with a leading axis"
                )
            view = array.view()
            view.flags.writeable = False  # a batch may be a view of the user's array
            self.columns.append(view)
        sizes = [len(column) for column in self.columns]
        if len(set(sizes)) > 1:
            paths = [tree.keystr(path, simple=True, separator="/") for path, _ in tree.leaves_with_path(arrays)]
            found = ", ".join(f"{path}: {size}" for path, size in zip(paths, sizes, strict=True))
            raise ShapeError(
                "a dataset of the rows of arrays", f"different numbers of rows: {found}", "pass equal ones"
            )
        self.size, self.names = sizes[0], (name,)

    def take(self, indices: np.ndarray) -> Block:
        origin = Origin(self.names, np.asarray(indices, np.int64))
        return Block.of_columns(self.structure, [column.take(indices, axis=0) for column in self.columns], origin)

    def part(self, start: int, stop: int) -> Block:
        origin = Origin.of(self.names, 0, start, stop - start)
        return Block.of_columns(self.structure, [column[start:stop] for column in self.columns], origin)


class SequenceAccess(Access):
    """The elements of a sequence, such as a list or an object with `__len__` and `__getitem__`."""

    def __init__(self, sequence: Sequence):
        self.sequence, self.size = sequence, len(sequence)
        self.names = (f"the {type(sequence).__name__}",)

    def take(self, indices: np.ndarray) -> Block:
        origin, elements = Origin(self.names, np.asarray(indices, np.int64)), []
        for index in indices.tolist():
            try:
                elements.append(self.sequence[index])
            except HloomError:
                raise
            except Exception as error:
                raise WorkerError(
                    f"element {index} of {self.names[0]}", f"{type(error).__name__}: {error}",
                    "correct its __getitem__", user_line(error),
                ) from error  # fmt: skip
        return Block.of_elements(elements, origin)


class Generator(Node):
    """The elements of a function's iterator; the function is called again for each epoch."""

    def __init__(self, function: Callable[[], Iterable]):
        super().__init__()
        self.function = function
        self.names = (getattr(function, "__name__", type(function).__name__) + "()",)
        self._iterator: Iterator | None = None
        self._at = 0

    def begin(self, epochs: Epochs) -> None:
        self.close()
        self._at = 0

    def next(self, limit: int) -> Block | None:
        if self._iterator is None:
            found = self.function()
            if not isinstance(found, Iterable):
                raise DataError(
                    f"the elements of {self.names[0]}", f"it returned {type(found).__name__}",
                    "pass a function that returns an iterator, such as a generator function",
                )  # fmt: skip
            self._iterator = iter(found)
        try:
            element = next(self._iterator)
        except StopIteration:
            return None
        except HloomError:
            raise
        except Exception as error:
            raise WorkerError(
                f"element {self._at} of {self.names[0]}", f"{type(error).__name__}: {error}", "correct the generator",
                user_line(error),
            ) from error  # fmt: skip
        self._at += 1
        return Block.of_elements([element], Origin.of(self.names, 0, self._at - 1, 1))

    def state(self) -> State:
        return {"at": self._at}

    def restore(self, state: State) -> None:
        self.begin(())
        for _ in range(int(state["at"])):
            if self.next(1) is None:
                raise state_error(f"{self.names[0]} yields {self._at} elements, and {state['at']} had been read")

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)
        self._iterator = None
        if close is not None:
            with contextlib.suppress(ValueError):  # another thread is inside of it
                close()
