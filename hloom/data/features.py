"""The expected features of a `tf.train.Example`, and reading and writing them.

    features = {"image": hl.data.Bytes((28, 28), "uint8"), "label": hl.data.Int64()}

Fixed shapes are read straight into columns; a shape of None is a list of any length. Where a feature is a FeatureList,
the records are `tf.train.SequenceExample`s.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hloom.data import native
from hloom.data.blocks import Block, Origin, object_column
from hloom.data.examples import decode_sequence_example, numbers_dtype
from hloom.errors import ArgumentError, DataError
from hloom.ir.types import as_dtype
from hloom.runtime import records_source as source
from hloom.tree import pytrees as tree

_KINDS = {source.BYTES: "bytes_list", source.FLOAT: "float_list", source.INT64: "int64_list"}
_CLASSES = {source.BYTES: "Bytes", source.FLOAT: "Float", source.INT64: "Int64"}


class Feature:
    """A feature of an example. shape: of its values, None for a one-dimensional array of any length; dtype: of the
    array; default: the value for examples without the feature (None: that is an error).

    >>> hl.data.Int64().dtype, hl.data.Float((3,)).shape
    (dtype('int64'), (3,))
    """

    kind = 0

    def __init__(self, shape: Sequence[int] | int | None, dtype: Any, default: Any):
        if isinstance(shape, (int, np.integer)):
            shape = (int(shape),)
        self.shape = None if shape is None else tuple(shape)
        self.dtype = None if dtype is None else as_dtype(dtype)
        self.default = default

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape}, {self.dtype})"


class Bytes(Feature):
    """Bytes. With a dtype, the memory of an array of that shape and dtype (little-endian), as `ndarray.tobytes()`
    writes it; without, an object of class `bytes`. shape None with a dtype: a one-dimensional array of any length."""

    kind = source.BYTES

    def __init__(self, shape: Sequence[int] | int | None = None, dtype: Any = None, *, default: Any = None):
        super().__init__(shape, dtype, default)
        if self.dtype is None and self.shape is not None:
            raise ArgumentError(f"Bytes({self.shape})", "no dtype", 'pass one: Bytes((28, 28), "uint8")')


class Text(Bytes):
    """Text in UTF-8."""

    def __init__(self, *, default: str | None = None):
        super().__init__(default=default)


class Int64(Feature):
    """Integers, read as int64 (or another dtype, where they fit in it)."""

    kind = source.INT64

    def __init__(self, shape: Sequence[int] | int | None = (), dtype: Any = "int64", *, default: Any = None):
        super().__init__(shape, dtype, default)


class Float(Feature):
    """Floats, read as float32 (or another dtype)."""

    kind = source.FLOAT

    def __init__(self, shape: Sequence[int] | int | None = (), dtype: Any = "float32", *, default: Any = None):
        super().__init__(shape, dtype, default)


class FeatureList(Feature):
    """A list of the feature lists of a `tf.train.SequenceExample`: one array of shape `(steps, *feature.shape)` for
    each example, where the number of steps varies; of texts and bytes, an array of objects. optional: whether an
    example may have no such list, which then has no steps."""

    kind = source.STEPS

    def __init__(self, feature: Feature, *, optional: bool = False):
        """Raises ArgumentError if the steps have no fixed shape."""
        if not isinstance(feature, Feature) or isinstance(feature, FeatureList):
            raise ArgumentError(
                "the feature of each step", f"{feature!r:.60}", "pass hl.data.Bytes, Text, Int64 or Float"
            )
        if feature.shape is None and feature.dtype is not None:
            raise ArgumentError(
                f"FeatureList({feature!r})", "steps of different sizes, which fit in no array",
                "give each step a shape, such as Int64() or Float((3,))",
            )  # fmt: skip
        if feature.default is not None:
            raise ArgumentError(
                f"FeatureList({feature!r})", "a default for a step", "pass FeatureList(..., optional=True)"
            )
        super().__init__(None, None, () if optional else None)
        self.feature = feature

    def __repr__(self) -> str:
        return f"FeatureList({self.feature!r})"


class ExampleParser:
    """Reads blocks of examples, or of sequence examples, into columns."""

    def __init__(self, features: Mapping[str, Feature]):
        if not isinstance(features, Mapping) or not features:
            raise ArgumentError("features of examples", f"{features!r:.60}", 'pass a dict: {"label": hl.data.Int64()}')
        for name, feature in features.items():
            if not isinstance(feature, Feature):
                raise ArgumentError(
                    f"the feature {name!r}", f"{feature!r:.60}", "pass hl.data.Bytes, Text, Int64 or Float"
                )
        # The features of the lists come last, as they are read from a different field of the record.
        lists = [name for name, feature in features.items() if isinstance(feature, FeatureList)]
        self.names = [name for name in features if name not in lists] + lists
        self.features = [features[name] for name in self.names]
        self._steps = {
            len(features) - len(lists) + k: _StepParser(name, features[name]) for k, name in enumerate(lists)
        }
        self.structure = tree.structure(dict.fromkeys(features, 0))
        marked = tree.unflatten(self.structure, list(range(len(features))))  # trees have the order of sorted keys
        self._order = [0] * len(features)
        for index, name in enumerate(self.names):
            self._order[marked[name]] = index
        self._encoded = [np.frombuffer(name.encode() + b"\0", np.uint8) for name in self.names]
        self._table = np.zeros((len(features), source.FEATURE_WORDS), np.int64)
        for row, encoded, feature in zip(self._table, self._encoded, self.features, strict=True):
            row[source.FEATURE_NAME], row[source.FEATURE_LENGTH] = encoded.ctypes.data, len(encoded) - 1
            row[source.FEATURE_KIND] = feature.kind
            row[source.FEATURE_OPTIONAL] = feature.default is not None
        self._report = np.zeros(source.REPORT_WORDS, np.int64)

    @property
    def _message(self) -> str:
        return "SequenceExample" if self._steps else "Example"

    def columns(self, data: np.ndarray, places: np.ndarray, origin: Origin) -> Block:
        """The examples at `places` (offset, length) of data, one row each. Raises DataError."""
        count = len(places)
        outs = [self._column(index, feature, count) for index, feature in enumerate(self.features)]
        places = np.ascontiguousarray(places)
        plain = len(self.features) - len(self._steps)
        for group, first, last in ((source.FIRST, 0, plain), (source.SECOND, plain, len(self.features))):
            if first == last:
                continue
            done = native.function("hloom_examples")(
                data.ctypes.data, places.ctypes.data, 0, count, 0, self._table[first:].ctypes.data, last - first, group,
                self._report.ctypes.data,
            )  # fmt: skip
            if done < count:
                raise self._error(data, places, done, origin, first)
        columns = [self._finished(index, out, data, origin) for index, out in enumerate(outs)]
        return Block.of_columns(self.structure, [columns[index] for index in self._order], origin)

    def steps(self, data: np.ndarray, steps: np.ndarray, counts: np.ndarray, origin: Origin) -> np.ndarray:
        """The only feature of each step of feature lists, one row each. steps: their locations (address, bytes);
        counts: how many of them each record has. Raises DataError."""
        of_record = np.repeat(np.arange(len(counts)), counts)
        out = self._column(0, self.features[0], len(steps))
        done = native.function("hloom_steps")(
            self._table.ctypes.data, steps.ctypes.data, len(steps), self._report.ctypes.data
        )
        number = np.arange(len(steps)) - np.repeat(np.cumsum(counts) - counts, counts)
        where = _Steps(origin, of_record, number)
        if done < len(steps):
            if int(self._report[source.REPORT_CODE]) == source.MISSING:
                raise DataError(
                    f"the feature {self.names[0]!r} of {where.describe(done)} as {self.features[0]!r}", "it is empty",
                    "write a value in each step",
                )  # fmt: skip
            raise self._error(data, steps, done, where, 0)
        return self._finished(0, out, data, where)

    def _column(self, index: int, feature: Feature, count: int) -> np.ndarray:
        """Memory for a column, and its description for the native function."""
        row = self._table[index]
        if feature.shape is None:
            out = np.zeros((count, 2), np.int64)  # address and length of each payload
            row[source.FEATURE_COUNT] = -1
        else:
            dtype = feature.dtype if feature.kind == source.BYTES else numbers_dtype(feature.kind)
            assert dtype is not None
            make = np.empty if feature.default is None else np.zeros
            out = make((count, *feature.shape), dtype)
            if feature.default is not None:
                out[...] = feature.default
            numbers = int(np.prod(feature.shape, dtype=np.int64))
            row[source.FEATURE_COUNT] = numbers * dtype.itemsize if feature.kind == source.BYTES else numbers
        row[source.FEATURE_OUT] = out.ctypes.data
        row[source.FEATURE_STRIDE] = out.strides[0] if count and out.size else 0
        return out

    def _finished(self, index: int, out: np.ndarray, data: np.ndarray, origin: Origin) -> np.ndarray:
        feature = self.features[index]
        if index in self._steps:
            return self._steps[index].lists(out, data, origin)
        if feature.shape is None:
            return self._lists(index, out, data, origin)
        if feature.kind == source.BYTES or out.dtype == feature.dtype:
            return out
        assert feature.dtype is not None
        cast = out.astype(feature.dtype)
        if feature.kind == source.INT64 and feature.dtype.kind in "iu" and not np.array_equal(cast, out):
            wrong = int(np.flatnonzero((cast != out).reshape(len(out), -1).any(axis=1))[0])
            raise DataError(
                f"the feature {self.names[index]!r} of {origin.describe(wrong)} as {feature.dtype}",
                f"{out[wrong]}", "read it as int64",
            )  # fmt: skip
        return cast

    def _lists(self, index: int, places: np.ndarray, data: np.ndarray, origin: Origin) -> np.ndarray:
        feature, count = self.features[index], len(places)
        counts = np.zeros(count, np.int64)
        width = {source.BYTES: 16, source.FLOAT: 4, source.INT64: 8}[feature.kind]
        read = native.function("hloom_lists")
        arguments = feature.kind, places.ctypes.data, count, counts.ctypes.data
        done = read(*arguments, 0, width, self._report.ctypes.data)
        if done < count:
            raise self._wrong(origin.describe(done), f"a malformed feature {self.names[index]!r}")
        total = int(counts.sum())
        flat = (
            np.empty((total, 2), np.int64)
            if feature.kind == source.BYTES
            else np.empty(total, numbers_dtype(feature.kind))
        )
        read(*arguments, flat.ctypes.data if total else self._report.ctypes.data, width, self._report.ctypes.data)
        absent = places[:, 0] == 0
        ends = np.cumsum(counts).tolist()
        if feature.kind != source.BYTES:
            flat = flat.astype(feature.dtype, copy=False)
            rows = [flat[end - size : end] for end, size in zip(ends, counts.tolist(), strict=True)]
            return object_column(
                [
                    np.asarray(feature.default, feature.dtype).reshape(-1) if gone else row
                    for gone, row in zip(absent, rows, strict=True)
                ]
            )
        base, values = data.ctypes.data, []
        for row, (end, size, gone) in enumerate(zip(ends, counts.tolist(), absent.tolist(), strict=True)):
            if gone:
                values.append(feature.default)
                continue
            if size != 1:
                raise self._wrong(
                    f"the feature {self.names[index]!r} of {origin.describe(row)}, one string of bytes",
                    f"{size} of them",
                )
            address, length = flat[end - 1].tolist()
            values.append(self._bytes(data[address - base : address - base + length].tobytes(), index, origin, row))
        return object_column(values)

    def _bytes(self, value: bytes, index: int, origin: Origin, row: int) -> Any:
        feature = self.features[index]
        if isinstance(feature, Text):
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                raise self._wrong(
                    f"the feature {self.names[index]!r} of {origin.describe(row)} as text", str(error)
                ) from None
        if feature.dtype is None:
            return value
        if len(value) % feature.dtype.itemsize:
            raise self._wrong(
                f"the feature {self.names[index]!r} of {origin.describe(row)} as {feature.dtype}", f"{len(value)} bytes"
            )
        return np.frombuffer(value, feature.dtype)

    def _wrong(self, asked: str, found: str) -> DataError:
        return DataError(asked, found, "name features as the files have them")

    def _error(self, data: np.ndarray, places: np.ndarray, position: int, origin: Origin, first: int) -> DataError:
        """What is wrong with the example at a position. first: the number of the first feature that was looked for."""
        index, code, found = (int(self._report[k]) for k in range(3))
        index += first if index >= 0 else 0
        record = origin.describe(position)
        if index < 0 or code == source.MALFORMED:
            part = f"the feature {self.names[index]!r} of it is" if index >= 0 else "it is"
            return DataError(
                f"a tf.train.{self._message} in {record}", f"{part} malformed",
                "read the file without features= where its records are something else",
            )  # fmt: skip
        name, feature = self.names[index], self.features[index]
        asked = f"the feature {name!r} of {record} as {feature!r}"
        if code == source.MISSING:
            offset, length = places[position].tolist()
            context, lists = decode_sequence_example(data[offset : offset + length].tobytes())
            there, other = (lists, context) if index in self._steps else (context, lists)
            near = difflib.get_close_matches(name, there, 1)
            hint = (
                f"it is called {near[0]!r}"
                if near
                else "it is a feature list: read it as hl.data.FeatureList(...)"
                if name in other and index not in self._steps
                else "it is in the context: read it without FeatureList"
                if name in other
                else "features of other names are left out; default=... allows it to be absent"
            )
            listed = ", ".join(sorted(there)) or "no features"
            what = "feature lists of the example are" if index in self._steps else "example has"
            return DataError(asked, f"the {what} {listed:.200}", hint)
        if code == source.WRONG_KIND:
            return DataError(asked, f"it is of {_KINDS.get(found, found)}", f"read it as hl.data.{_CLASSES[found]}")
        unit = "bytes" if feature.kind == source.BYTES else "numbers"
        if found < 0:
            return DataError(asked, f"it has {-1 - found} strings of bytes", "the feature must have one")
        wanted = int(self._table[index][source.FEATURE_COUNT])
        longer = f", or read lists of any length: hl.data.{_CLASSES[feature.kind]}(None)"
        return DataError(
            asked, f"it has {found} {unit}, and the shape needs {wanted}",
            "correct the shape or dtype" + ("" if isinstance(origin, _Steps) else longer),
        )  # fmt: skip


class _Steps(Origin):
    """Steps of records."""

    __slots__ = ("_number", "_records")

    def __init__(self, records: Origin, where: np.ndarray, number: np.ndarray):
        super().__init__((), where)
        self._records, self._number = records, number

    def describe(self, position: int) -> str:
        return f"step {int(self._number[position])} of {self._records.describe(int(self.where[position]))}"


class _StepParser:
    """Reads the steps of a FeatureList: the steps of all records are the rows of one column."""

    def __init__(self, name: str, spec: Feature):
        assert isinstance(spec, FeatureList)
        self._name, self._parser = name, ExampleParser({name: spec.feature})

    def lists(self, places: np.ndarray, data: np.ndarray, origin: Origin) -> np.ndarray:
        """A column of arrays. places: of each record's FeatureList (address and bytes, 0: absent). Raises DataError."""
        counts = np.zeros(len(places), np.int64)
        report = np.zeros(source.REPORT_WORDS, np.int64)
        read = native.function("hloom_lists")
        arguments = source.BYTES, places.ctypes.data, len(places), counts.ctypes.data
        done = read(*arguments, 0, 16, report.ctypes.data)
        if done < len(places):
            raise DataError(
                f"the feature list {self._name!r} of {origin.describe(done)}", "it is malformed",
                "read the file without features= where its records are something else",
            )  # fmt: skip
        steps = np.zeros((int(counts.sum()), 2), np.int64)
        read(*arguments, steps.ctypes.data if len(steps) else report.ctypes.data, 16, report.ctypes.data)
        column = self._parser.steps(data, steps, counts, origin)
        ends = np.cumsum(counts).tolist()
        return object_column([column[end - size : end] for end, size in zip(ends, counts.tolist(), strict=True)])
