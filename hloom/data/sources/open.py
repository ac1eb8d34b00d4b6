"""The functions that make datasets of sources."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hloom.data.dataset import Dataset
from hloom.data.features import ExampleParser, Feature
from hloom.data.nodes import Access, Ordered
from hloom.data.sources.files import file_names, require_compression
from hloom.data.sources.memory import ArrayAccess, Generator, SequenceAccess
from hloom.data.sources.tfrecord import TFRecords
from hloom.errors import ArgumentError


def from_access(access: Access) -> Dataset:
    """The elements of an access in order."""
    return Dataset(lambda: Ordered(access), access.size, lambda: access)


def arrays(tree: Any) -> Dataset:
    """The rows of an array, or of the arrays of a tree: `arrays({"x": x, "y": y})`, `arrays((x, y))`. Nothing is
    copied; memory-mapped arrays stay on the disk. Raises ShapeError, ArgumentError."""
    return from_access(ArrayAccess(tree))


def sequence(elements: Sequence) -> Dataset:
    """The elements of a list, or of any object with `__len__` and `__getitem__`."""
    if not hasattr(elements, "__len__") or not hasattr(elements, "__getitem__"):
        raise ArgumentError(
            "a dataset of a sequence", f"{type(elements).__name__} has no __len__ or no __getitem__",
            "pass a list, or use hl.data.generator",
        )  # fmt: skip
    return from_access(SequenceAccess(elements))


def generator(function: Callable[[], Iterable]) -> Dataset:
    """What the iterator yields that a function returns; each epoch calls the function again. A restored iterator
    calls it and drops what had been seen."""
    if not callable(function):
        raise ArgumentError(
            "a dataset of a generator", f"a {type(function).__name__}", "pass the function, not what it returned"
        )
    return Dataset(lambda: Generator(function))


def tfrecord(
    files: str | os.PathLike | Iterable[str | os.PathLike], features: Mapping[str, Feature] | None = None, *,
    compression: str | None = "auto", interleave: int = 1, run: int = 64, shuffle_files: int | None = None,
    verify: bool = True, on_corrupt: str = "raise",
) -> Dataset:  # fmt: skip
    """The records of TFRecord files: dicts of the features of a `tf.train.Example`, or bytes without `features`.

    files: a name, a pattern or several. features: such as `{"image": hl.data.Bytes((28, 28), "uint8"), "label":
    hl.data.Int64()}`; others are left out. compression: "gzip", "zlib", None, or "auto", by the first bytes of each
    file. interleave: files that are read at a time, `run` records from each in turn. shuffle_files: a seed, for another
    order of the files in each epoch. verify: whether checksums are checked. on_corrupt: "raise", or "skip", which
    counts corrupt records (`DataIterator.corrupt`). Raises MissingFileError, and while reading DataError with file,
    record and offset.
    """
    names = file_names(files, "hl.data.tfrecord")
    kind = require_compression(compression)
    if features is not None:
        ExampleParser(features)  # for its errors
    if on_corrupt not in ("raise", "skip"):
        raise ArgumentError(
            f"tfrecord(on_corrupt={on_corrupt!r})", "it is neither raise nor skip", "choose one of them"
        )
    for name, value in (("interleave", interleave), ("run", run)):
        if not isinstance(value, int) or value < 1:
            raise ArgumentError(f"tfrecord({name}={value!r})", "it is no positive integer", "pass 1 or more")
    return Dataset(
        lambda: TFRecords(names, features, kind, interleave, run, shuffle_files, verify, on_corrupt == "skip")
    )
