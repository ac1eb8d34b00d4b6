"""Arrays that Orbax saved, read through tensorstore (`pip install 'hloom[train]'`), without Orbax or jax.

Orbax writes a folder of arrays in Zarr's format (version 2 or 3), each in a separate folder or all in one OCDBT
database, with a file `_METADATA` that names the leaves.

Source: orbax.readthedocs.io, "Checkpoint format guide".
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.errors import CheckpointError, MissingFileError, file_error
from hloom.ir.process.lazy import LazyModule
from hloom.ir.types import HLO_NAME

_tensorstore = LazyModule("tensorstore")  # 0.1 s to import
METADATA, OCDBT = "_METADATA", "manifest.ocdbt"
_ARRAYS = {"/.zarray": "zarr", "/zarr.json": "zarr3"}  # the file beside an array's data -> tensorstore's driver
_SEQUENCE = 1  # Orbax's type of a key that is an index in a list


def load_orbax(path: str | os.PathLike) -> dict[str, Any]:
    """The tree of a checkpoint that Orbax saved: dicts, lists, and hloom's arrays.

    path: the folder of a step or of an item in it (such as `default` or `params`). Raises MissingFileError if there is
    no such checkpoint, CheckpointError for damaged ones and if tensorstore is not installed.
    """
    if importlib.util.find_spec("tensorstore") is None:
        raise CheckpointError(
            f"read the Orbax checkpoint {os.fspath(path)}", "tensorstore is not installed", "pip install 'hloom[train]'"
        )
    folder = _folder_of_arrays(Path(path))
    store, names = _stored(folder)
    found = {}
    for name, driver in names.items():
        try:
            found[name] = _read(store(name), driver, f"{name} of {folder}")
        except CheckpointError:
            raise
        except Exception as error:  # tensorstore raises ValueError, and others of Python's
            raise CheckpointError(
                f"read {name!r} of the Orbax checkpoint {folder}", f"{error}"[:300], "restore another checkpoint"
            ) from error
    return _tree(folder, found)


def _folder_of_arrays(path: Path) -> Path:
    """The folder itself, or the only item of a step. Raises MissingFileError."""
    asked = f"read the Orbax checkpoint {path}"
    try:
        candidates = [path, *sorted(p for p in path.iterdir() if p.is_dir())]
    except OSError as error:
        raise file_error(asked, error) from error
    found = [p for p in candidates if (p / METADATA).is_file() or (p / OCDBT).is_file()]
    if found:
        found = found[:1] if found[0] == path else found
    elif any(any((p / name[1:]).is_file() for name in _ARRAYS) for p in candidates[1:]):
        found = [path]
    if len(found) != 1:
        items = f"several items: {', '.join(p.name for p in found)}" if found else "no arrays of Orbax"
        raise MissingFileError(asked, items, "name the folder of one item, such as step/default")
    return found[0]


def _stored(folder: Path) -> tuple[Callable[[str], dict[str, Any]], dict[str, str]]:
    """(where the array of a name is, the driver of each name)."""
    if (folder / OCDBT).is_file():
        base = {"driver": "ocdbt", "base": f"file://{folder.absolute()}/"}
        try:
            keys = [key.decode() for key in _tensorstore.KvStore.open(base).result().list().result()]
        except Exception as error:  # of tensorstore's own kinds
            raise CheckpointError(
                f"read the Orbax checkpoint {folder}", f"{error}"[:300], "restore another checkpoint"
            ) from error
        names = {key.removesuffix(end): driver for end, driver in _ARRAYS.items() for key in keys if key.endswith(end)}
        return (lambda name: {**base, "path": f"{name}/"}), names
    found: dict[str, str] = {}
    for end, driver in _ARRAYS.items():
        for file in folder.rglob(end[1:]):
            found[str(file.parent.relative_to(folder))] = driver
    return (lambda name: {"driver": "file", "path": f"{folder.absolute() / name}/"}), found


def _read(store: dict[str, Any], driver: str, what: str) -> Array:
    array = _tensorstore.open({"driver": driver, "kvstore": store}, open=True).result()
    dtype = np.dtype(array.dtype.numpy_dtype)
    if dtype not in HLO_NAME:
        raise CheckpointError(f"read {what}", f"an array of dtype {dtype}", "hloom has arrays of numbers")
    size = math.prod(array.shape) * dtype.itemsize
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size > memory:  # compressed, so that the file's size is no indication
        raise CheckpointError(
            f"read {what}", f"{dtype}{list(array.shape)}: {size} bytes, of {memory} in this machine", "check the file"
        )
    return Array(np.asarray(array.read().result(), order="C"))


def _tree(folder: Path, arrays: dict[str, Array]) -> dict[str, Any]:
    """Nested by the keys that `_METADATA` has, or by the names' points."""
    keys: dict[str, list[tuple[str, bool]]] = {name: [(part, False) for part in name.split(".")] for name in arrays}
    try:
        if (folder / METADATA).is_file():
            leaves = json.loads((folder / METADATA).read_text(encoding="utf-8"))["tree_metadata"]
            for leaf in leaves.values():
                path = [(str(k["key"]), k["key_type"] == _SEQUENCE) for k in leaf["key_metadata"]]
                name = ".".join(key for key, _ in path)
                if name in arrays:
                    keys[name] = path
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"read {folder / METADATA}", f"{type(error).__name__}: {error}", "restore another checkpoint"
        ) from error
    root: dict[str, Any] = {}
    sequences: set[tuple[str, ...]] = set()
    for name, array in arrays.items():
        place = root
        path = keys[name]
        for depth, (key, in_sequence) in enumerate(path):
            if in_sequence:
                sequences.add(tuple(k for k, _ in path[:depth]))
            if depth == len(path) - 1:
                place[key] = array
            else:
                place = place.setdefault(key, {})
    return _with_lists(root, (), sequences)


def _with_lists(value: Any, path: tuple[str, ...], sequences: set[tuple[str, ...]]) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _with_lists(child, (*path, key), sequences) for key, child in value.items()}
    return [inner[k] for k in sorted(inner, key=int)] if path in sequences else inner


__all__ = ["load_orbax"]
