"""`tf.train.Example` and `tf.train.SequenceExample` in Python: one example to bytes and back.

Source: TensorFlow, core/example/example.proto and feature.proto; the encoding of Protocol Buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hloom.errors import DataError
from hloom.ir.process.files import is_unicode
from hloom.runtime import records_source as source


def numbers_dtype(kind: int) -> np.dtype:
    """The dtype that the values of a list are read as."""
    return np.dtype(np.float32 if kind == source.FLOAT else np.int64)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def encode_example(features: Mapping[str, Any], specs: Mapping[str, Any] | None = None) -> bytes:
    """A `tf.train.Example` with features by name. Integers and booleans become an int64_list, floats a float_list,
    texts and bytes (also lists of them) a bytes_list. An array is a list of its elements; `array.tobytes()` stores its
    memory as one byte string. specs: the features to be read later, such as `{"image": hl.data.Bytes((28, 28),
    "uint8")}`; a value is then converted to its feature, and a FeatureList among them makes a
    `tf.train.SequenceExample`. Raises DataError for other values.

    >>> record = hl.data.encode_example({"label": np.int64([7]), "name": "cat"})
    >>> hl.data.decode_example(record)["label"]
    array([7])
    """
    if specs is not None and specs.keys() != features.keys():
        raise DataError(
            f"a tf.train.Example with {', '.join(specs)}", f"features {', '.join(map(str, features)) or 'of no name'}",
            "pass all of them and no others",
        )  # fmt: skip
    if specs is not None and (lists := [name for name, spec in specs.items() if spec.kind == source.STEPS]):
        context = {name: _as_specified(name, v, specs[name]) for name, v in features.items() if name not in lists}
        steps = {name: [_as_specified(name, v, specs[name].feature) for v in features[name]] for name in lists}
        return encode_sequence_example(context, steps)
    return _field(1, _encoded_features(features, specs))


def _encoded_features(features: Mapping[str, Any], specs: Mapping[str, Any] | None = None) -> bytes:
    entries = []
    for name, value in features.items():
        if specs is not None:
            value = _as_specified(name, value, specs[name])
        entries.append(_entry(name, _encoded_value(name, value)))
    return b"".join(entries)


def _entry(name: str, value: bytes) -> bytes:
    if not is_unicode(name):
        raise DataError("the name of a feature", f"{name!r:.60}", "pass a text in Unicode")
    return _field(1, _field(1, name.encode()) + _field(2, value))


def encode_sequence_example(context: Mapping[str, Any], lists: Mapping[str, Any]) -> bytes:
    """A `tf.train.SequenceExample`. context: features by name, as of `encode_example`. lists: by name the steps of a
    feature list, each a value as of a feature; the steps of an array are its rows. Raises DataError for other
    values."""
    entries = []
    for name, steps in lists.items():
        if isinstance(steps, (str, bytes)) or not hasattr(steps, "__iter__"):
            raise DataError(
                f"a tf.train.SequenceExample with the feature list {name!r}", f"{type(steps).__name__}: {steps!r:.60}",
                "pass a list with a value for each step; features of the whole example go into the context",
            )  # fmt: skip
        entries.append(_entry(name, b"".join(_field(1, _encoded_value(name, step)) for step in steps)))
    return _field(1, _encoded_features(context)) + _field(2, b"".join(entries))


def _as_specified(name: str, value: Any, spec: Any) -> Any:
    """A value as its feature has it: checked, and bytes where arrays are written as memory."""
    if spec.dtype is None:
        return value
    array = np.asarray(value)
    if spec.shape is not None and array.shape != spec.shape:
        raise DataError(
            f"a tf.train.Example with the feature {name!r} as {spec!r}", f"an array of shape {array.shape}",
            "pass that shape",
        )  # fmt: skip
    if spec.kind != source.BYTES:
        if not array.size or (spec.kind == source.FLOAT and array.dtype.kind in "iu"):
            array = array.astype(numbers_dtype(spec.kind))
        if (array.dtype.kind in "iub") != (spec.kind == source.INT64):
            raise DataError(
                f"a tf.train.Example with the feature {name!r} as {spec!r}", f"numbers of {array.dtype}",
                "convert them, or write another feature",
            )  # fmt: skip
        return array
    if array.dtype != spec.dtype:
        raise DataError(
            f"a tf.train.Example with the feature {name!r} as {spec!r}", f"an array of {array.dtype}",
            f"convert it: array.astype({spec.dtype.name!r})",
        )  # fmt: skip
    return array.tobytes()


def _encoded_value(name: str, value: Any) -> bytes:
    if isinstance(value, (str, bytes, bytearray)):
        value = [value]
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, (str, bytes, bytearray)) for v in value):
        strings = [v.encode() if isinstance(v, str) else bytes(v) for v in value]
        return _field(source.BYTES, b"".join(_field(1, v) for v in strings))
    array = np.asarray(value)
    if array.dtype.kind in "iub":
        return _field(source.INT64, _field(1, b"".join(_varint(v) for v in array.reshape(-1).tolist())))
    if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
        return _field(source.FLOAT, _field(1, array.astype("<f4").tobytes()))
    raise DataError(
        f"a tf.train.Example with the feature {name!r}", f"{type(value).__name__} of dtype {array.dtype}",
        "pass integers, floats, texts or bytes; array.tobytes() for the memory of an array",
    )  # fmt: skip


def decode_example(record: bytes) -> dict[str, Any]:
    """All features of a `tf.train.Example` by name: a list of bytes, an int64 array or a float32 array each. Raises
    DataError for a malformed one.

    >>> record = hl.data.encode_example({"x": np.float32([1.5, 2.5])})
    >>> hl.data.decode_example(record)
    {'x': array([1.5, 2.5], dtype=float32)}
    """
    features = _maps(record, "Example")[0]
    try:
        return {name: _decoded_value(data) for name, data in features.items()}
    except _MALFORMED as error:
        raise _malformed("Example", error) from None


def decode_sequence_example(record: bytes) -> tuple[dict[str, Any], dict[str, list]]:
    """The context of a `tf.train.SequenceExample`, as of `decode_example`, and by name its feature lists, with a list
    of bytes, an int64 array or a float32 array for each step. Raises DataError for a malformed one."""
    context, lists = _maps(record, "SequenceExample")
    try:
        return (
            {name: _decoded_value(data) for name, data in context.items()},
            {name: [_decoded_value(s) for k, s in _fields(data) if k == 1] for name, data in lists.items()},
        )
    except _MALFORMED as error:
        raise _malformed("SequenceExample", error) from None


_MALFORMED = (ValueError, IndexError, TypeError, AttributeError)


def _malformed(message: str, error: Exception) -> DataError:
    return DataError(f"a tf.train.{message}", f"it is malformed: {error}", "pass the bytes of an example")


def _maps(record: bytes, message: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The values of the two maps of a message, undecoded: features and feature lists. Raises DataError."""
    maps: tuple[dict[str, bytes], dict[str, bytes]] = ({}, {})
    try:
        for number, group in _fields(record):
            for inner, entry in _fields(group) if number in (1, 2) else ():
                parts = dict(_fields(entry)) if inner == 1 else {}
                if 1 in parts:
                    maps[number - 1][parts[1].decode()] = parts.get(2, b"")
    except _MALFORMED as error:
        raise _malformed(message, error) from None
    return maps


def _decoded_value(data: bytes) -> Any:
    value: Any = []
    for kind, payload in _fields(data):
        numbers: list = []
        for number, item in _fields(payload):
            if number != 1:
                continue
            if kind == source.INT64:
                at = 0
                while not isinstance(item, int) and at < len(item):
                    found, at = _read_varint(item, at)
                    numbers.append(found)
                numbers += [item] if isinstance(item, int) else []
            elif kind == source.FLOAT:
                numbers += np.frombuffer(item, "<f4").tolist()
            else:
                numbers.append(item)
        signed = [n - (1 << 64) if n >> 63 else n for n in numbers] if kind == source.INT64 else numbers
        value = signed if kind == source.BYTES else np.array(signed, numbers_dtype(kind))
    return value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value & ((1 << 64) - 1), at
        if shift > 63:
            raise ValueError("a number that does not end")


def _fields(data: bytes):
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        wire = tag & 7
        if wire == source.VARINT:
            value, at = _read_varint(data, at)
            yield tag >> 3, value
            continue
        size = {source.WORD64: 8, source.WORD32: 4}.get(wire, -1)
        if wire == source.LENGTH:
            size, at = _read_varint(data, at)
        if size < 0 or at + size > len(data):
            raise ValueError("a field that does not end")
        yield tag >> 3, data[at : at + size]
        at += size
