"""Feature columns: how named features of a table (numbers, texts, categories) become the inputs of a model.

    age = numeric_column("age")
    job = categorical_column_with_vocabulary_list("job", ("clerk", "nurse", "pilot"))
    buckets = bucketized_column(age, (25, 40, 60))
    wide = [buckets, job, crossed_column((buckets, job), 1000)]
    deep = [age, embedding_column(job, 8)]

    batch = encode([*wide, *deep], {"age": ages, "job": jobs})      # with NumPy: texts become numbers
    logits = LinearFeatures(wide, 1)(batch) + network(DenseFeatures(deep, key=key)(batch))

`encode` runs on the host and returns arrays by the columns' names; the layers are modules, for compiled functions.
A categorical feature has one value per example, (n,), or several, (n, m), where "" and negative numbers are none.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom import random
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.records import record
from hloom.nn import Module, static

_PRIME = np.uint64(1099511628211)  # of the FNV hash


@record(frozen=True)
class NumericColumn:
    """Numbers as they are, or through a function. shape: of one example's value."""

    name: str
    shape: tuple[int, ...] = ()
    normalizer: Callable[[np.ndarray], np.ndarray] | None = None

    @property
    def width(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def values(self, features: Mapping[str, Any]) -> np.ndarray:
        """f32[n, width]. Raises ShapeError."""
        given = np.asarray(_feature(features, self.name))
        if given.shape[1:] != self.shape and not (self.shape == () and given.shape[1:] == (1,)):
            raise ShapeError(
                f"the feature {self.name!r} has values of shape {self.shape}",
                f"an array of shape {given.shape}",
                "pass (examples, ...), or declare the shape: numeric_column(name, shape=...)",
            )
        given = _as_numbers(given, self.name)
        given = given if self.normalizer is None else np.asarray(self.normalizer(given))
        return np.ascontiguousarray(given.reshape(len(given), -1), dtype=np.float32)


@record(frozen=True)
class CategoricalColumn:
    """Categories as integers from 0 to count - 1; -1 is none. find: features -> integers (n,) or (n, m)."""

    name: str
    count: int
    find: Callable[[Mapping[str, Any]], np.ndarray]

    def ids(self, features: Mapping[str, Any]) -> np.ndarray:
        """s32[n, m]."""
        found = self.find(features)
        return np.ascontiguousarray(found.reshape(len(found), -1), dtype=np.int32)


@record(frozen=True)
class DenseColumn:
    """Categories as vectors: an embedding of size `dimension`, or 0 for counts per category."""

    categories: CategoricalColumn
    dimension: int

    @property
    def name(self) -> str:
        return self.categories.name

    @property
    def width(self) -> int:
        return self.dimension or self.categories.count


Column = NumericColumn | CategoricalColumn | DenseColumn


# --- columns --------------------------------------------------------------------------------------------------------


def numeric_column(name: str, shape: Sequence[int] | int = (), normalizer=None) -> NumericColumn:
    """A numeric feature. normalizer: a function of NumPy arrays, such as lambda x: (x - 40) / 10."""
    return NumericColumn(name, (shape,) if isinstance(shape, int) else tuple(shape), normalizer)


def bucketized_column(source: NumericColumn, boundaries: Sequence[float]) -> CategoricalColumn:
    """Numbers as the number of the interval that they are in: below the first boundary 0, from the last one on
    len(boundaries). NaN is none. Raises ArgumentError for boundaries that do not increase."""
    edges = np.asarray(boundaries, np.float64)
    if edges.ndim != 1 or not len(edges) or not (np.diff(edges) > 0).all():
        raise ArgumentError("bucketized_column takes boundaries that increase", f"{boundaries!r:.80}", "sort them")
    find = functools.partial(_bucket, source, edges.astype(np.float32))  # in float32, as the values are
    return CategoricalColumn(f"{source.name}_bucketized", len(edges) + 1, find)


def _bucket(source: NumericColumn, edges: np.ndarray, features) -> np.ndarray:
    values = source.values(features)
    return np.where(np.isnan(values), -1, np.searchsorted(edges, values, side="right"))


def categorical_column_with_identity(name: str, num_buckets: int) -> CategoricalColumn:
    """Integers from 0 to num_buckets - 1 as they are; negative ones are none. Larger ones raise ArgumentError."""
    _positive("num_buckets", num_buckets)
    return CategoricalColumn(name, num_buckets, functools.partial(_identity, name, num_buckets))


def _identity(name: str, num_buckets: int, features) -> np.ndarray:
    values = np.asarray(_feature(features, name))
    if values.dtype.kind not in "iub" or (values.size and values.max() >= num_buckets):
        found = f"{values.dtype}" if values.dtype.kind not in "iub" else f"{values.max()}"
        raise ArgumentError(
            f"the feature {name!r} has integers below {num_buckets}", found, "use a hash bucket or a vocabulary"
        )
    return np.maximum(values.astype(np.int64), -1)


def categorical_column_with_vocabulary_list(
    name: str, vocabulary: Sequence[Any], num_oov_buckets: int = 0
) -> CategoricalColumn:
    """Texts or integers as their index in a list. Others are none, or hashed into num_oov_buckets after the list.
    Raises ArgumentError for a duplicate word."""
    words = [_word(w) for w in vocabulary]
    places = {w: k for k, w in enumerate(words)}
    if not words or len(places) < len(words):
        raise ArgumentError(
            "a vocabulary of different words", f"{len(words)}, {len(places)} different", "remove doubles"
        )
    find = functools.partial(_in_vocabulary, name, places, num_oov_buckets)
    return CategoricalColumn(name, len(places) + num_oov_buckets, find)


def _in_vocabulary(name: str, places: dict[str, int], num_oov_buckets: int, features) -> np.ndarray:
    def place(word: str) -> int:
        if word in places:
            return places[word]
        return len(places) + _hash(word) % num_oov_buckets if num_oov_buckets else -1

    return _by_word(_feature(features, name), place)


def categorical_column_with_hash_bucket(name: str, hash_bucket_size: int) -> CategoricalColumn:
    """Texts or integers by a hash, the same in every process: for many or unknown categories, some of which meet."""
    _positive("hash_bucket_size", hash_bucket_size)
    return CategoricalColumn(name, hash_bucket_size, functools.partial(_in_buckets, name, hash_bucket_size))


def _in_buckets(name: str, hash_bucket_size: int, features) -> np.ndarray:
    return _by_word(_feature(features, name), lambda word: _hash(word) % hash_bucket_size)


def crossed_column(
    columns: Sequence[CategoricalColumn | str], hash_bucket_size: int, name: str | None = None
) -> CategoricalColumn:
    """Combinations of categories, by a hash: of categorical columns, or of the words of features.

    An example with several values has each combination of them; where one is none, there is none. Raises ArgumentError.
    """
    _positive("hash_bucket_size", hash_bucket_size)
    if len(columns) < 2:
        raise ArgumentError("crossed_column crosses at least two columns", f"{len(columns)}", "name another")
    names = [c if isinstance(c, str) else c.name for c in columns]
    find = functools.partial(_crossed, tuple(columns), hash_bucket_size)
    return CategoricalColumn(name or "_X_".join(names), hash_bucket_size, find)


def _hashes(column: CategoricalColumn | str, features) -> tuple[np.ndarray, np.ndarray]:
    """(hashes u64[n, m], whether there is a value)."""
    if isinstance(column, str):
        values = _by_word(_feature(features, column), lambda word: np.uint64(_hash(word)), np.uint64)
        there = _by_word(_feature(features, column), lambda word: 1) >= 0
    else:
        found = column.ids(features)
        values, there = found.astype(np.uint64), found >= 0
    return values.reshape(len(values), -1), there.reshape(len(there), -1)


def _crossed(columns: tuple, hash_bucket_size: int, features) -> np.ndarray:
    total, there = _hashes(columns[0], features)
    for column in columns[1:]:
        values, here = _hashes(column, features)
        with np.errstate(over="ignore"):
            total = (total[:, :, None] * _PRIME) ^ (values[:, None, :] + np.uint64(0x9E3779B97F4A7C15))
            total = total * _PRIME
        total ^= total >> np.uint64(29)
        there = (there[:, :, None] & here[:, None, :]).reshape(len(total), -1)
        total = total.reshape(len(total), -1)
    return np.where(there, (total % np.uint64(hash_bucket_size)).astype(np.int64), -1)


def embedding_column(categories: CategoricalColumn, dimension: int) -> DenseColumn:
    """Categories as learned vectors of size `dimension`; the mean for several values."""
    _positive("dimension", dimension)
    return DenseColumn(_categorical(categories, "embedding_column"), dimension)


def indicator_column(categories: CategoricalColumn) -> DenseColumn:
    """Categories as one number each: how often it occurs in the example."""
    return DenseColumn(_categorical(categories, "indicator_column"), 0)


def _categorical(column, name: str) -> CategoricalColumn:
    if not isinstance(column, CategoricalColumn):
        raise ArgumentError(f"{name} takes a categorical column", type(column).__name__, "bucketize numbers first")
    return column


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise ArgumentError(f"a column takes {name} of at least 1", f"{name}={value}", "pass a larger number")


def _feature(features: Mapping[str, Any], name: str) -> Any:
    try:
        return features[name]
    except (KeyError, IndexError, ValueError) as error:
        known = ", ".join(map(repr, getattr(features, "columns", features)))
        raise ArgumentError(f"the feature {name!r}", f"the features are {known}", "name one of them") from error


def _as_numbers(values: np.ndarray, name: str) -> np.ndarray:
    try:
        return values.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"the feature {name!r} as numbers", f"{values.dtype}: {error}", "use a categorical column for texts"
        ) from error


def _word(value: Any) -> str:
    """A category as text. Numbers that are whole are the same as integers and as floats."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


@functools.lru_cache(maxsize=1 << 16)
def _hash(word: str) -> int:
    """63 bits of a hash that is the same everywhere."""
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") >> 1


def _by_word(values: Any, place: Callable[[str], Any], dtype: Any = np.int64) -> np.ndarray:
    """place(word) for each element, computed once per word; "", None and negative numbers are -1."""
    array = np.asarray(values)
    if array.dtype == object:
        array = np.array(["" if v is None else _word(v) for v in array.ravel()]).reshape(array.shape)
    words, inverse = np.unique(array, return_inverse=True)
    none = [w < 0 if words.dtype.kind in "if" else len(w) == 0 if words.dtype.kind in "US" else False for w in words]
    minus = dtype(-1) if dtype is np.int64 else dtype(0)
    found = [minus if absent else place(_word(w.item())) for w, absent in zip(words, none, strict=True)]
    return np.array(found, dtype)[inverse].reshape(array.shape)


# --- models ---------------------------------------------------------------------------------------------------------


def encode(columns: Iterable[Column], features: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The features of examples (a dict of arrays, or a data frame) as arrays by the columns' names: f32[n, width] of
    numeric columns, s32[n, m] of categories. Raises ArgumentError for a feature that is missing, ShapeError."""
    found: dict[str, np.ndarray] = {}
    for column in columns:
        if column.name not in found:
            if isinstance(column, NumericColumn):
                found[column.name] = column.values(features)
            else:
                found[column.name] = (column.categories if isinstance(column, DenseColumn) else column).ids(features)
    sizes = {name: len(values) for name, values in found.items()}
    if len(set(sizes.values())) > 1:
        raise ShapeError("features of the same examples", f"{sizes}", "pass arrays of one length")
    return found


def _checked(columns: Iterable[Column], name: str) -> list[Column]:
    columns = list(columns)
    if not columns or not all(isinstance(c, (NumericColumn, CategoricalColumn, DenseColumn)) for c in columns):
        kinds = ", ".join(type(c).__name__ for c in columns) or "none"
        raise ArgumentError(f"{name} takes feature columns", kinds, "build them with numeric_column(...) and others")
    return columns


class DenseFeatures(Module):
    """Numeric, embedding and indicator columns side by side: from the result of `encode` to (n, width). TensorFlow's
    `input_layer`."""

    tables: dict
    parts: tuple = static()  # (name, number of categories or 0, dimension or 0)

    def __init__(self, columns: Iterable[Column], *, key, dtype="f32"):
        columns = _checked(columns, "DenseFeatures")
        self.tables, parts = {}, []
        for k, column in enumerate(columns):
            if isinstance(column, CategoricalColumn):
                raise ArgumentError(
                    "DenseFeatures takes numbers",
                    f"the categories {column.name!r}",
                    "wrap them: embedding_column(column, 8) or indicator_column(column)",
                )
            if isinstance(column, NumericColumn):
                parts.append((column.name, 0, 0))
            else:
                parts.append((column.name, column.categories.count, column.dimension))
                if column.dimension:
                    size = (column.categories.count, column.dimension)
                    draws = random.normal(random.fold_in(key, k), size, dtype)
                    self.tables[column.name] = draws / column.dimension**0.5
        self.parts = tuple(parts)

    def __call__(self, batch):
        found = []
        for name, count, dimension in self.parts:
            values = hnp.asarray(batch[name])
            if not count:
                found.append(values)
            elif dimension:
                there = hnp.expand_dims(values >= 0, -1)
                rows = hnp.take(self.tables[name], hnp.maximum(values, 0), axis=0, mode="clip")
                total = hnp.sum(hnp.where(there, rows, 0), axis=1)
                found.append(total / hnp.maximum(hnp.sum(there.astype(rows.dtype), axis=1), 1))
            else:
                found.append(hnp.sum((values[:, :, None] == hnp.arange(count)).astype("f32"), axis=1))
        return hnp.concatenate(found, axis=1)


class LinearFeatures(Module):
    """A linear model of columns: from the result of `encode` to (n, outputs). One weight for each number and
    category."""

    weights: dict
    bias: Any

    def __init__(self, columns: Iterable[Column], outputs: int = 1, *, dtype="f32"):
        self.weights = {}
        for column in _checked(columns, "LinearFeatures"):
            column = column.categories if isinstance(column, DenseColumn) else column
            size = column.width if isinstance(column, NumericColumn) else column.count
            self.weights[column.name] = hnp.zeros((size, outputs), dtype)
        self.bias = hnp.zeros(outputs, dtype)

    def __call__(self, batch):
        total = self.bias
        for name, weights in self.weights.items():
            values = hnp.asarray(batch[name])
            if values.dtype.kind == "f":
                total = total + hnp.matmul(values, weights)
            else:
                rows = hnp.take(weights, hnp.maximum(values, 0), axis=0, mode="clip")
                total = total + hnp.sum(hnp.where(hnp.expand_dims(values >= 0, -1), rows, 0), axis=1)
        return total


__all__ = [
    "CategoricalColumn", "DenseColumn", "DenseFeatures", "LinearFeatures", "NumericColumn", "bucketized_column",
    "categorical_column_with_hash_bucket", "categorical_column_with_identity",
    "categorical_column_with_vocabulary_list", "crossed_column", "embedding_column", "encode", "indicator_column",
    "numeric_column",
]  # fmt: skip
__dir__ = __all__.copy
