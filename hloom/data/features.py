"""What a `tf.train.Example` is expected to have, and reading and writing it.

    features = {"image": hl.data.Bytes((28, 28), "uint8"), "label": hl.data.Int64()}

Fixed shapes are read straight into columns; a shape of None is a list of any length.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hloom.data import native
from hloom.data.blocks import Block, Origin, object_column
from hloom.data.examples import decode_example, numbers_dtype
from hloom.errors import ArgumentError, DataError
from hloom.ir.types import as_dtype
from hloom.runtime import records_source as source
from hloom.tree import pytrees as tree

_KINDS = {source.BYTES: "bytes_list", source.FLOAT: "float_list", source.INT64: "int64_list"}
_CLASSES = {source.BYTES: "Bytes", source.FLOAT: "Float", source.INT64: "Int64"}


class Feature:
    """A feature of an example. shape: of its numbers, None for a one-dimensional array of any length; dtype: of the
    array; default: what stands where an example has none (None: that is an error)."""

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


class ExampleParser:
    """Reads blocks of examples into columns."""

    def __init__(self, features: Mapping[str, Feature]):
        if not isinstance(features, Mapping) or not features:
            raise ArgumentError("features of examples", f"{features!r:.60}", 'pass a dict: {"label": hl.data.Int64()}')
        for name, feature in features.items():
            if not isinstance(feature, Feature):
                raise ArgumentError(
                    f"the feature {name!r}", f"{feature!r:.60}", "pass hl.data.Bytes, Text, Int64 or Float"
                )
        self.names, self.features = list(features), list(features.values())
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

    def columns(self, data: np.ndarray, places: np.ndarray, origin: Origin) -> Block:
        """The examples at `places` (offset, length) of data, one row each. Raises DataError."""
        count = len(places)
        outs = [self._column(index, feature, count) for index, feature in enumerate(self.features)]
        places = np.ascontiguousarray(places)
        done = native.function("hloom_examples")(
            data.ctypes.data, places.ctypes.data, 0, count, 0, self._table.ctypes.data, len(self.features),
            self._report.ctypes.data,
        )  # fmt: skip
        if done < count:
            raise self._error(data, places, done, origin)
        columns = [self._finished(index, out, data, origin) for index, out in enumerate(outs)]
        return Block.of_columns(self.structure, [columns[index] for index in self._order], origin)

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

    def _error(self, data: np.ndarray, places: np.ndarray, position: int, origin: Origin) -> DataError:
        """What is wrong with the example at a position."""
        index, code, found = (int(self._report[k]) for k in range(3))
        record = origin.describe(position)
        if index < 0 or code == source.MALFORMED:
            part = f"the feature {self.names[index]!r} of it is" if index >= 0 else "it is"
            return DataError(
                f"a tf.train.Example in {record}", f"{part} malformed",
                "read the file without features= where its records are something else",
            )  # fmt: skip
        name, feature = self.names[index], self.features[index]
        asked = f"the feature {name!r} of {record} as {feature!r}"
        if code == source.MISSING:
            offset, length = places[position].tolist()
            there = decode_example(data[offset : offset + length].tobytes())
            near = difflib.get_close_matches(name, there, 1)
            hint = (
                f"it is called {near[0]!r}"
                if near
                else "features of other names are left out; default=... allows it to be absent"
            )
            listed = ", ".join(sorted(there)) or "no features"
            return DataError(asked, f"the example has {listed:.200}", hint)
        if code == source.WRONG_KIND:
            return DataError(asked, f"it is a {_KINDS.get(found, found)}", f"read it as hl.data.{_CLASSES[found]}")
        unit = "bytes" if feature.kind == source.BYTES else "numbers"
        if found < 0:
            return DataError(asked, f"it has {-1 - found} strings of bytes", "the feature must have one")
        wanted = int(self._table[index][source.FEATURE_COUNT])
        return DataError(
            asked, f"it has {found} {unit}, and the shape needs {wanted}",
            f"correct the shape or dtype, or read lists of any length: hl.data.{_CLASSES[feature.kind]}(None)",
        )  # fmt: skip
