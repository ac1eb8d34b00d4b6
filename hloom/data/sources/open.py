"""The functions that make datasets of sources."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hloom.compiler.targets.cpu.machine import available_cores
from hloom.data.dataset import Dataset
from hloom.data.features import ExampleParser, Feature
from hloom.data.nodes import Access, Ordered
from hloom.data.sources.files import file_names, require_compression
from hloom.data.sources.memory import ArrayAccess, Generator, SequenceAccess
from hloom.data.sources.numpy_files import Concatenated, numpy_access
from hloom.data.sources.records import ArrayRecordAccess, ImageAccess, read_image
from hloom.data.sources.tables import Stream, csv_rows, parquet_rows, text_lines
from hloom.data.sources.tfrecord import TFRecords
from hloom.errors import ArgumentError


def from_access(access: Access) -> Dataset:
    """The elements of an access in order."""
    return Dataset(lambda: Ordered(access), access.size, lambda: access)


def arrays(tree: Any) -> Dataset:
    """The rows of an array, or of the arrays of a tree: `arrays({"x": x, "y": y})`, `arrays((x, y))`. Nothing is
    copied; memory-mapped arrays stay on disk. Raises ShapeError, ArgumentError.

    >>> data = hl.data.arrays({"x": np.arange(4), "y": np.arange(4) ** 2})
    >>> [int(element["y"]) for element in data]
    [0, 1, 4, 9]
    """
    return from_access(ArrayAccess(tree))


def sequence(elements: Sequence) -> Dataset:
    """The elements of a list, or of any object with `__len__` and `__getitem__`.

    >>> list(hl.data.sequence(["a", "b"]).repeat(2))
    ['a', 'b', 'a', 'b']
    """
    if not hasattr(elements, "__len__") or not hasattr(elements, "__getitem__"):
        raise ArgumentError(
            "a dataset of a sequence", f"{type(elements).__name__} has no __len__ or no __getitem__",
            "pass a list, or use hl.data.generator",
        )  # fmt: skip
    return from_access(SequenceAccess(elements))


def generator(function: Callable[[], Iterable]) -> Dataset:
    """The elements of the iterator that a function returns; each epoch calls the function again. A restored iterator
    calls it and drops the elements already seen.

    >>> def squares():
    ...     for k in range(3):
    ...         yield k * k
    >>> list(hl.data.generator(squares))
    [0, 1, 4]
    """
    if not callable(function):
        raise ArgumentError(
            "a dataset of a generator", f"a {type(function).__name__}", "pass the function, not its result"
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

    >>> _ = hl.data.write_tfrecord("x.tfrecord", [{"label": np.int64([k])} for k in range(3)])
    >>> data = hl.data.tfrecord("x.tfrecord", {"label": hl.data.Int64()})
    >>> next(iter(data.batch(3)))
    {'label': array([0, 1, 2])}
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
            raise ArgumentError(f"tfrecord({name}={value!r})", "it is not a positive integer", "pass 1 or more")
    return Dataset(
        lambda: TFRecords(names, features, kind, interleave, run, shuffle_files, verify, on_corrupt == "skip")
    )


Files = str | os.PathLike | Iterable[str | os.PathLike]


def array_record(files: Files, features: Mapping[str, Feature] | None = None) -> Dataset:
    """The records of ArrayRecord files, by index: `shuffle` without a window reads them in any order. features: as in
    `tfrecord`. Needs the extra "train". Raises MissingFileError, DataError."""
    names = file_names(files, "hl.data.array_record")
    return from_access(Concatenated([ArrayRecordAccess(names, index, features) for index in range(len(names))]))


def npy(files: Files | Mapping | tuple) -> Dataset:
    """The rows of arrays in .npy and .npz files (dicts of their arrays), mapped into memory: of one file, of several of
    a pattern one after the other, or of a dict or tuple of .npy files. Compressed .npz files are read whole. Files
    with Python objects are refused. Raises MissingFileError, DataError, ShapeError.

    >>> np.save("x.npy", np.arange(3))
    >>> [int(x) for x in hl.data.npy("x.npy")]
    [0, 1, 2]
    """
    return from_access(numpy_access(files))


def text(files: Files, *, encoding: str = "utf-8") -> Dataset:
    """The lines of text files, as texts without their ends. Raises MissingFileError, and DataError for other
    encodings.

    >>> _ = open("lines.txt", "w").write("a line")
    >>> list(hl.data.text("lines.txt"))
    ['a line']
    """
    names = file_names(files, "hl.data.text")
    return Dataset(lambda: Stream(names, text_lines(names, encoding)))


def csv(
    files: Files, *, columns: Sequence[str] | None = None, dtypes: Mapping[str, Any] | None = None,
    delimiter: str = ",", header: bool | Sequence[str] = True,
) -> Dataset:  # fmt: skip
    """The rows of CSV files, as dicts of numbers and texts.

    columns: those to read. dtypes: of columns whose dtype pyarrow should not infer from the start of the file. header:
    whether the first line has the names of columns (False: they are f0, f1, ...), or the names. Needs the extra
    "train". Raises MissingFileError, DataError.
    """
    names = file_names(files, "hl.data.csv")
    read = csv_rows(names, columns, dtypes, delimiter, header)
    return Dataset(lambda: Stream(names, read))


def parquet(files: Files, *, columns: Sequence[str] | None = None, dtypes: Mapping[str, Any] | None = None) -> Dataset:
    """The rows of Parquet files, as dicts of numbers and texts. Arguments as in `csv`. Needs the extra "train". Raises
    MissingFileError, DataError."""
    names = file_names(files, "hl.data.parquet")
    read = parquet_rows(names, columns, dtypes)
    return Dataset(lambda: Stream(names, read))


def images(
    files: Files, *, size: Sequence[int] | None = None, mode: str | None = "RGB", threads: int | None = None,
    processes: int = 0,
) -> Dataset:  # fmt: skip
    """Images as `{"image": uint8[height, width, channels]}`, and with "label" where `files` is a folder of one folder
    per class (numbered in the order of their names).

    size: (height, width) to resize to, without which batches need images of one size. mode: Pillow's, such as "L" for
    gray ones; None keeps the file's. threads: that decode (default: one for each core). processes: that decode instead,
    which pays for small images, as Python takes longer to open one than Pillow to decode it. Needs the extra "train".
    Raises MissingFileError; WorkerError for a damaged file.
    """
    access = ImageAccess(files)

    def decode(element: dict) -> dict:
        return {**element, "image": read_image(element["image"], size, mode)}

    if threads is None:
        threads = 0 if processes else available_cores()
    return from_access(access).map(decode, threads=threads, processes=processes)
