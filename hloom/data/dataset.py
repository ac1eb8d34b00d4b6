"""Datasets: a source and steps, which iterators carry out."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hloom.data.ahead import ParallelMap, Prefetch
from hloom.data.batches import Batch, Bucket
from hloom.data.iterator import DataIterator
from hloom.data.mixing import Mix
from hloom.data.nodes import Access, Filter, Map, Node, Ordered, Part, Repeat, Strided
from hloom.data.shuffle import FullShuffle, WindowShuffle
from hloom.errors import ArgumentError
from hloom.platforms.device import Device, process_count, process_index

_LAST = ("keep", "drop", "pad")


class Dataset:
    """Elements, one after another: trees of arrays, numbers and texts.

    A dataset is an immutable description; each step returns a new one. `iter(dataset)` reads it from the start, and its
    order depends only on the seeds and the epoch, not on the number of threads and processes.

    >>> data = hl.data.arrays(np.arange(10)).filter(lambda x: x % 2 == 0).map(lambda x: 10 * x)
    >>> [batch.tolist() for batch in data.batch(2)]
    [[0, 20], [40, 60], [80]]
    """

    def __init__(self, make: Callable[[], Node], size: int | None = None, access: Callable[[], Access] | None = None):
        self._make, self._size, self._access = make, size, access
        self._function: Callable[[Dataset], Dataset] | None = None  # the map that this dataset is, if it is one
        self._input: Dataset | None = None
        self._epochs: tuple[int, ...] = ()

    def _open(self) -> Node:
        return self._make()

    def __iter__(self) -> DataIterator:
        return DataIterator(self._open(), self._epochs)

    def __len__(self) -> int:
        """The number of elements. Raises ArgumentError if it is unknown: of files and generators, after
        `filter`."""
        if self._size is None:
            raise ArgumentError(  # a TypeError, which list(dataset) takes for a length that is unknown
                "the length of a dataset", "it is not known before it is read", "count: sum(1 for _ in dataset)"
            )
        return self._size

    def __bool__(self) -> bool:
        return True

    def at_epoch(self, epoch: int) -> Dataset:
        """The dataset as it is in an epoch: shuffled data has a different order in each, and epoch 0 is the dataset
        itself. Loops over a dataset without `repeat` use it."""
        epoch = _count(epoch, "at_epoch(epoch)", 0)
        made = Dataset(self._make, self._size)
        made._epochs = (epoch,) if epoch else ()
        return made

    def map(
        self, function: Callable, *, threads: int = 0, processes: int = 0, seed: int | None = None
    ) -> Dataset:  # fmt: skip
        """A function of each element (of each batch after `batch`), in their order.

        threads: for functions that release the GIL, as NumPy and Pillow do on large arrays. processes: for others; the
        function's arguments and results are copied between them. seed: the function gets a `numpy.random.Generator` of
        the element's own as its second argument.
        """
        _require_function(function, "map")
        threads, processes = _count(threads, "map(threads=...)", 0), _count(processes, "map(processes=...)", 0)
        if threads and processes:
            raise ArgumentError("map()", f"threads={threads} and processes={processes}", "choose one of the two")

        def mapped(source: Dataset) -> Dataset:
            def make() -> Node:
                if threads or processes:
                    return ParallelMap(source._open(), function, seed, threads or processes, bool(processes))
                return Map(source._open(), function, seed)

            return Dataset(make, source._size)

        made = mapped(self)
        if seed is None:  # elements may then be chosen before the function sees them
            made._function, made._input = mapped, self
        return made

    def filter(self, predicate: Callable) -> Dataset:
        """The elements for which a function is true."""
        _require_function(predicate, "filter")
        return Dataset(lambda: Filter(self._open(), predicate))

    def shuffle(self, window: int | None = None, *, seed: int = 0) -> Dataset:
        """The elements in a shuffled order, different in each epoch of `repeat`.

        window: each element is drawn at random from that many; `min_after_dequeue` + 1 of other systems. None shuffles
        everything, by indices where the source has them (arrays, sequences, ArrayRecord, images), else in memory.
        """
        seed = _count(seed, "shuffle(seed=...)", 0)
        if window is not None:
            window = _count(window, "shuffle(window)", 1)
            return Dataset(lambda: WindowShuffle(self._open(), window, seed), self._size)
        if self._function is not None and self._input is not None:
            return self._function(self._input.shuffle(seed=seed))
        if self._access is not None:
            access = self._access
            return Dataset(lambda: Ordered(access(), seed), self._size)
        return Dataset(lambda: FullShuffle(self._open(), seed), self._size)

    def repeat(self, count: int | None = None) -> Dataset:
        """All elements again and again, `count` times or without end."""
        if count is not None:
            count = _count(count, "repeat(count)", 0)
        size = None if count is None or self._size is None else count * self._size
        return Dataset(lambda: Repeat(self._open(), count), size)

    def batch(
        self, size: int, *, last: str = "keep", mask: str = "mask", pad: bool | int | Mapping[str, Any] | None = None,
        pad_value: Any = 0,
    ) -> Dataset:  # fmt: skip
        """`size` elements as one, with a leading axis.

        last: the treatment of a smaller last batch: "keep", "drop", or "pad", which fills it with zeros, so that
        nothing is compiled for another shape, and adds to every batch a mask of the valid rows: the entry `mask` of a
        dict, the last of a tuple, or else the pair (batch, mask).
        pad: pads arrays of different sizes with pad_value: True to the largest of the batch, a number to that size of
        the first axis, a dict of these by the path of a leaf.
        """
        size = _count(size, "batch(size)", 1)
        if last not in _LAST:
            raise ArgumentError(f"batch(last={last!r})", "it is none of keep, drop, pad", "choose one of them")
        whole = None if self._size is None else self._size // size if last == "drop" else -(-self._size // size)
        return Dataset(lambda: Batch(self._open(), size, last, mask, pad, pad_value), whole)

    def bucket(
        self, length: str | Callable, boundaries: Sequence[int], batch_size: int | Sequence[int], *,
        last: str = "keep", mask: str = "mask", pad: Sequence[str] | None = None, pad_value: Any = 0,
    ) -> Dataset:  # fmt: skip
        """Batches of elements of about the same length, padded to the next of the boundaries: as many shapes as there
        are boundaries.

        length: the entry whose length counts, or a function of an element. batch_size: of all, or of each boundary.
        pad: the entries that are padded (default: the one that counts, else all arrays). last, mask: as in `batch`.
        """
        boundaries = [_count(b, "bucket(boundaries)", 0) for b in boundaries]
        if not boundaries or boundaries != sorted(set(boundaries)):
            raise ArgumentError("bucket(boundaries)", f"{boundaries}", "pass increasing lengths")
        if last not in _LAST:
            raise ArgumentError(f"bucket(last={last!r})", "it is none of keep, drop, pad", "choose one of them")
        if not isinstance(length, str):
            _require_function(length, "bucket(length)")
        given = [batch_size] * len(boundaries) if isinstance(batch_size, int) else list(batch_size)
        sizes = [_count(size, "bucket(batch_size)", 1) for size in given]
        if len(sizes) != len(boundaries):
            raise ArgumentError(
                "bucket(batch_size)", f"{len(sizes)} sizes, {len(boundaries)} boundaries", "pass one for each"
            )
        return Dataset(lambda: Bucket(self._open(), length, boundaries, sizes, last, mask, pad, pad_value))

    def shard(self, index: int | None = None, count: int | None = None) -> Dataset:
        """Elements index, index + count, ...: the part of one of `count` processes; by default this one's of those that
        `hl.distributed.initialize` has met."""
        if (index is None) != (count is None):
            raise ArgumentError("shard(index, count)", "one of the two", "pass both, or none")
        if index is None or count is None:
            index, count = process_index(), process_count()
        index, count = _count(index, "shard(index)", 0), _count(count, "shard(count)", 1)
        if index >= count:
            raise ArgumentError(
                f"shard({index}, {count})", "an index that is not below the count", "indices begin at 0"
            )
        if self._function is not None and self._input is not None:
            return self._function(self._input.shard(index, count))
        size = None if self._size is None else len(range(index, self._size, count))
        if self._access is None:
            return Dataset(lambda: Part(self._open(), index, None, count), size)
        access = self._access
        strided = lambda: Strided(access(), index, count)  # noqa: E731
        return Dataset(lambda: Ordered(strided()), size, strided)

    def take(self, count: int) -> Dataset:
        """The first `count` elements."""
        count = _count(count, "take(count)", 0)
        size = None if self._size is None else min(count, self._size)
        return Dataset(lambda: Part(self._open(), 0, count, 1), size)

    def skip(self, count: int) -> Dataset:
        """All elements but the first `count`."""
        count = _count(count, "skip(count)", 0)
        size = None if self._size is None else max(0, self._size - count)
        return Dataset(lambda: Part(self._open(), count, None, 1), size)

    def prefetch(self, size: int = 2, *, device: Any = None) -> Dataset:
        """The next `size` elements are made by a thread while the program computes.

        device: where their arrays are put: a name such as "cpu:0", a Device, or a sharding, such as a NamedSharding by
        which each device of a mesh gets a part of each batch.
        """
        if isinstance(size, (Device, str)) or hasattr(size, "mesh"):
            raise ArgumentError(
                f"prefetch({size!r})",
                "a device in place of the number of elements",
                f"write prefetch(device={size!r})",
            )
        size = _count(size, "prefetch(size)", 1)
        return Dataset(lambda: Prefetch(self._open(), size, device), self._size)


def mix(
    datasets: Sequence[Dataset], weights: Sequence[float] | None = None, *, seed: int = 0, stop: str = "first"
) -> Dataset:
    """Elements of several datasets, each from one that is chosen at random.

    weights: of each dataset (default: all the same). stop: "first", when a dataset ends that an element was to come
    from, or "all", when all have ended.

    >>> zeros, ones = hl.data.sequence([0] * 100), hl.data.sequence([1] * 100)
    >>> elements = list(hl.data.mix([zeros, ones], [0.5, 0.5]).take(50))
    >>> set(elements)
    {0, 1}
    """
    datasets = list(datasets)
    if not datasets or not all(isinstance(each, Dataset) for each in datasets):
        raise ArgumentError("mix(datasets)", f"{datasets!r:.80}", "pass datasets")
    weights = [1.0] * len(datasets) if weights is None else [float(w) for w in weights]
    if len(weights) != len(datasets) or min(weights) < 0 or not sum(weights) > 0:
        raise ArgumentError(
            "mix(weights)", f"{weights} for {len(datasets)} datasets", "pass a positive number for each"
        )
    if stop not in ("first", "all"):
        raise ArgumentError(f"mix(stop={stop!r})", "it is neither first nor all", "choose one of them")
    total = None
    if stop == "all" and all(each._size is not None for each in datasets):
        total = sum(each._size or 0 for each in datasets)
    return Dataset(lambda: Mix([each._open() for each in datasets], weights, seed, stop), total)


def _count(value: Any, what: str, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(what, f"{value!r:.60}", "pass an integer") from None
    if number < least:
        raise ArgumentError(what, f"{number}", f"pass at least {least}")
    return number


def _require_function(function: Any, what: str) -> None:
    if not callable(function):
        raise ArgumentError(what, f"{function!r:.60} of class {type(function).__name__}", "pass a function")
