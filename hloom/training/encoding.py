"""Small trees as JSON: the states of iterators and callbacks, in the manifest of a checkpoint."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from hloom.errors import CheckpointError
from hloom.ir.types import DTYPES, HLO_NAME


def encoded(value: Any) -> Any:
    """Dicts, lists, tuples, numbers, texts, bytes and arrays as JSON. Raises CheckpointError for other objects."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, dict):
        return {"dict": [[encoded(k), encoded(v)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return {"tuple" if isinstance(value, tuple) else "list": [encoded(v) for v in value]}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if hasattr(value, "__array__"):
        array = np.asarray(value, order="C")
        if array.dtype in HLO_NAME:
            data = base64.b64encode(array.tobytes()).decode()
            return {"array": data, "dtype": HLO_NAME[array.dtype], "shape": list(array.shape)}
    raise CheckpointError(
        "save the state of an iterator or a callback: numbers, texts, bytes, arrays, and dicts and lists of them",
        f"{type(value).__name__}: {value!r:.60}",
        "return plain values from state()",
    )


def decoded(value: Any) -> Any:
    """The inverse of `encoded`. Raises CheckpointError for JSON that it did not write."""
    if not isinstance(value, dict):
        return value
    try:
        if "dict" in value:
            return {decoded(k): decoded(v) for k, v in value["dict"]}
        if "list" in value:
            return [decoded(v) for v in value["list"]]
        if "tuple" in value:
            return tuple(decoded(v) for v in value["tuple"])
        if "bytes" in value:
            return base64.b64decode(value["bytes"], validate=True)
        data = base64.b64decode(value["array"], validate=True)
        return np.frombuffer(data, DTYPES[value["dtype"]]).reshape(value["shape"]).copy()
    except (KeyError, ValueError, TypeError) as error:
        raise CheckpointError(
            "restore the state of an iterator or a callback", f"{type(error).__name__}: {error}", "restore another one"
        ) from error


__all__ = ["decoded", "encoded"]
