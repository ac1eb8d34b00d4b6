"""One checkpoint: a folder with a manifest (JSON) and the arrays in safetensors files.

It is written under another name, made durable, and renamed as the last step: a folder of the final name is complete,
whatever ends the program. The manifest names each array's dtype, shape and parts, so that a program with another layout
reads the regions that it needs.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.from_parts import make_array_from_callback
from hloom.arrays.keys import KeyArray, KeyType
from hloom.arrays.sharded import bounds
from hloom.checkpoints import safetensors
from hloom.checkpoints.processes import Meeting, assigned, index
from hloom.checkpoints.trees import (
    built,
    decoded_leaf,
    described,
    encoded_leaf,
    is_array,
    is_keys,
    named_leaves,
    structure_of,
)
from hloom.errors import CheckpointError, MissingFileError, file_error
from hloom.ir.records import field, record
from hloom.ir.types import DTYPES, HLO_NAME, Shape
from hloom.lax.transfer import device_put
from hloom.random import key_data, wrap_key_data
from hloom.tree import pytrees as tree

MANIFEST, FORMAT, VERSION = "manifest.json", "hloom checkpoint", 1
UNFINISHED = ".unfinished-"  # then the name and the id of the process that writes it
MOST_DIFFERENCES = 20


@record
class _Saved:
    """A saved array: the parts that this process holds, each with the indexes of its first element."""

    dtype: str
    shape: tuple[int, ...]
    parts: list[tuple[tuple[int, ...], np.ndarray]]
    keys: str = ""  # the implementation, of random keys

    def offer(self) -> list:
        """The description of it for other processes."""
        parts = [[list(start), list(data.shape)] for start, data in self.parts]
        return [self.dtype, list(self.shape), parts, self.keys]


def _file(process: int) -> str:
    return f"arrays-{process}.safetensors"


def _part(name: str, number: int) -> str:
    return f"{name}#{number}" if number else name


class Snapshot:
    """The current leaves of a tree. Arrays of hloom are immutable, so they are held, not copied; NumPy arrays
    are copied if `copy`, because the program may change them while they are written."""

    def __init__(self, value: Any, *, copy: bool = False):
        """Raises CheckpointError for leaves other than arrays, keys, numbers and texts."""
        leaves = named_leaves(value, "save a checkpoint")
        self.structure = structure_of(value, leaves)
        self.arrays: dict[str, _Saved] = {}
        self.values: dict[str, Any] = {}
        for name, leaf in leaves.items():
            if is_array(leaf):
                self.arrays[name] = _saved(leaf, copy)
            else:
                self.values[name] = encoded_leaf(leaf, name)

    def offers(self) -> dict[str, list]:
        """By array its dtype, shape, the parts that this process holds, and the implementation of keys."""
        return {name: saved.offer() for name, saved in self.arrays.items()}

    def parts(self, written: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
        """The arrays of this process's file. written: by array, the indices of the parts that it writes."""
        return {_part(name, k): self.arrays[name].parts[k][1] for name, numbers in written.items() for k in numbers}

    def manifest(self, offers, writes, step: int | None, metrics: Mapping | None, metadata: Mapping | None) -> dict:
        """offers, writes: of each process, as of `processes.assigned`."""
        arrays: dict[str, Any] = {}
        for name, (dtype, shape, _, keys) in offers[0].items():
            shards = [
                {"file": _file(k), "name": _part(name, number), "start": start, "shape": size}
                for k, (offer, written) in enumerate(zip(offers, writes, strict=True))
                for number, (start, size) in enumerate(offer[name][2])
                if number in written.get(name, ())
            ]
            arrays[name] = {"dtype": dtype, "shape": shape, "shards": shards} | ({"keys": keys} if keys else {})
        return {
            "format": FORMAT,
            "version": VERSION,
            "step": step,
            "saved": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "metrics": {k: float(v) for k, v in (metrics or {}).items()},
            "metadata": dict(metadata or {}),
            "structure": self.structure,
            "values": self.values,
            "arrays": arrays,
        }


def _saved(leaf, copy: bool) -> _Saved:
    if isinstance(leaf, KeyArray):
        words = _saved(key_data(leaf), copy)
        words.keys = leaf._implementation
        return words
    if isinstance(leaf, Array):
        if leaf.is_sharded:
            shards = {tuple(s.start or 0 for s in shard.index): shard.data for shard in leaf.addressable_shards}
            parts = [(start, np.asarray(data, order="C")) for start, data in shards.items()]
        else:
            parts = [((0,) * leaf.ndim, leaf._value())] if leaf.is_fully_addressable else []
        return _Saved(HLO_NAME[leaf.dtype], tuple(leaf.shape), parts)
    array = np.asarray(leaf, order="C")
    if array.dtype not in HLO_NAME:
        raise CheckpointError(
            "a checkpoint of arrays of numbers",
            f"an array of dtype {array.dtype}",
            "convert it, or leave it out of the tree",
        )
    array = array.copy() if copy and array is leaf else array
    return _Saved(HLO_NAME[array.dtype], array.shape, [((0,) * array.ndim, array)])


def write(
    path: str | os.PathLike,
    snapshot: Snapshot,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a checkpoint, which is on the disk when this returns. In a program of several processes all of them call
    it, and each writes its parts. Raises CheckpointError if one of that name is there, or another process fails,
    FileError, DistributedError."""
    path = Path(path)
    meeting, first = Meeting(path), index() == 0
    unfinished = path.parent / f"{UNFINISHED}{path.name}-{meeting.all(os.getpid())[0]}"

    def create() -> None:
        if path.exists():
            raise CheckpointError(f"save a checkpoint as {path}", "it exists", "choose another name, or delete it")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()

    def finish() -> None:
        manifest = snapshot.manifest(offers, writes, step, metrics, metadata)
        with open(unfinished / MANIFEST, "w", encoding="utf-8") as text:
            json.dump(manifest, text, indent=1)
            text.flush()
            os.fsync(text.fileno())
        _sync(unfinished)
        os.rename(unfinished, path)
        _sync(path.parent)

    def together(work: Callable[[], object] | None) -> None:
        """A step of the work: it is done everywhere, or all processes raise."""
        error: Exception | None = None
        try:
            if work is not None:
                work()
        except Exception as found:
            error = found
            if isinstance(found, OSError) and not isinstance(found, CheckpointError):
                error = file_error(f"save a checkpoint as {path}", found)
        meeting.agree(error)

    try:
        together(create if first else None)
        offers = meeting.all(snapshot.offers())
        writes = assigned(offers)
        own = snapshot.parts(writes[index()])
        together((lambda: safetensors.write(unfinished / _file(index()), own)) if own or first else None)
        together(finish if first else None)
    except BaseException:
        if first:
            shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return path


def divides(sharding, dims: tuple[int, ...]) -> bool:
    """Whether the parts of an array have one size."""
    layout = sharding.layout(len(dims))
    return not any(size % layout.count(d) for d, size in enumerate(dims))


def _sync(folder: Path) -> None:
    """Has the names in a folder on the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


# --- reading ------------------------------------------------------------------------------------------------------


@record
class _Stored:
    """An array in a checkpoint: dtype, shape, implementation of keys, and its parts as (file, name, region)."""

    dtype: np.dtype
    shape: tuple[int, ...]
    keys: str = ""
    parts: list[tuple[str, str, tuple[slice, ...]]] = field(default_factory=list)

    def __repr__(self) -> str:
        dims = self.shape[:-1] if self.keys else self.shape
        return f"{KeyType(self.keys).name}{list(dims)}" if self.keys else repr(Shape(self.dtype, dims))


def _steps(folder: Path) -> list[Path]:
    """The checkpoints that a Manager has in a folder, in order."""
    return sorted(path.parent for path in folder.glob(f"step_*/{MANIFEST}"))


def _other(path: Path) -> tuple[str, str] | None:
    """(what it is, how to read it) for a path that holds something other than an hloom checkpoint."""
    name = os.fspath(path)
    if path.is_file():
        found = "it is a file; a checkpoint of hloom is a folder"
        if path.suffix == ".safetensors":
            return found, f"read its arrays by hl.checkpoints.load_safetensors({name!r})"
        if path.suffix in (".npy", ".npz"):
            return found, f"read it by hnp.load({name!r})"
        if path.name == MANIFEST:
            return found, f"name its folder: hl.checkpoints.restore({os.fspath(path.parent)!r})"
        if path.suffix in (".pt", ".pth", ".bin", ".ckpt"):
            return found, "load a file of torch with torch.load(path, weights_only=True), then hl.from_torch"
        return found, "name the folder that hl.checkpoints.save wrote"
    if (path / MANIFEST).exists() or not path.is_dir():
        return None
    if any((path / known).exists() for known in ("_METADATA", "_CHECKPOINT_METADATA")):
        return "it is a checkpoint of Orbax", f"read it by hl.checkpoints.load_orbax({name!r})"
    if files := sorted(path.glob("*.safetensors")):
        asked = f"hl.checkpoints.load_safetensors({os.fspath(files[0])!r})"
        return f"there is no {MANIFEST}, only files of arrays", f"read their arrays by {asked}"
    return None


class Checkpoint:
    """A checkpoint on the disk. step, metrics, metadata: as saved. names: of all leaves.

    >>> folder = hl.checkpoints.save("run", {"w": hnp.ones(2)}, step=7, metrics={"loss": 0.25})
    >>> checkpoint = hl.checkpoints.Checkpoint("run")
    >>> checkpoint.step, checkpoint.metrics, checkpoint.names
    (7, {'loss': 0.25}, ['w'])
    """

    def __init__(self, path: str | os.PathLike):
        """Raises MissingFileError, and CheckpointError for a folder that is not a checkpoint or is damaged."""
        self.path = Path(path)
        if (other := _other(self.path)) is not None:
            raise CheckpointError(f"restore the checkpoint {self.path}", *other)
        try:
            text = (self.path / MANIFEST).read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise MissingFileError(
                f"restore the checkpoint {self.path}",
                f"there is no {MANIFEST}" + (f"; it holds {held[-1].name}" if (held := _steps(self.path)) else ""),
                f"restore the last one: hl.checkpoints.Manager({str(self.path)!r}).restore(like=...)"
                if held
                else "name the folder of a saved checkpoint",
            ) from error
        except (OSError, UnicodeDecodeError) as error:
            raise file_error(f"restore the checkpoint {self.path}", error) from error
        try:
            manifest = json.loads(text)
            if manifest["format"] != FORMAT:
                raise ValueError(f"format {manifest['format']!r}")
            if manifest["version"] > VERSION:
                raise CheckpointError(
                    f"restore the checkpoint {self.path}, of version {manifest['version']} of the format",
                    f"this hloom reads versions up to {VERSION}", "update hloom, or restore an older checkpoint",
                )  # fmt: skip
            self.step: int | None = manifest["step"]
            self.metrics: dict[str, float] = manifest["metrics"]
            self.metadata: dict[str, Any] = manifest["metadata"]
            self._structure, self._values = manifest["structure"], dict(manifest["values"])
            self._arrays = {name: self._stored(entry) for name, entry in manifest["arrays"].items()}
        except CheckpointError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._damaged(f"{MANIFEST}: {type(error).__name__}: {error}") from error
        self.names = [*self._arrays, *self._values]

    def _damaged(self, found: str) -> CheckpointError:
        return CheckpointError(f"restore the checkpoint {self.path}", found, "restore an earlier checkpoint")

    def _stored(self, entry: dict) -> _Stored:
        shape = tuple(entry["shape"])
        found = _Stored(DTYPES[entry["dtype"]], shape, entry.get("keys", ""))
        covered = 0
        for shard in entry["shards"]:
            start, size = shard["start"], shard["shape"]
            numbers = (*shape, *start, *size)
            inside = all(a + n <= m for a, n, m in zip(start, size, shape, strict=True))
            if not inside or any(type(n) is not int or n < 0 for n in numbers):
                raise ValueError(f"a part of {size} at {start} of an array of {list(shape)}")
            file = shard["file"]
            if not isinstance(file, str) or Path(file).name != file:
                raise ValueError(f"a file outside of the checkpoint: {file!r:.80}")
            region = tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))
            found.parts.append((file, shard["name"], region))
            covered += math.prod(size)
        if covered != math.prod(shape):
            raise ValueError(f"parts of {covered} elements for an array of {list(shape)}")
        return found

    def restore(self, like: Any = None, *, partial: bool = False) -> Any:
        """The saved tree, with arrays on the default device.

        like, partial: as of `hl.checkpoints.restore`. Raises CheckpointError with each path at which the two differ,
        and for damaged files.
        """
        what = f"restore the checkpoint {self.path}"
        with _Files(self) as files:
            if like is None:
                found = {name: self._whole(name, files) for name in self.names}
                return built(self._structure, found, what)
            wanted = named_leaves(like, what)
            self._compare(wanted, partial)
            leaves = [self._like(name, leaf, files) if name in self else leaf for name, leaf in wanted.items()]
        return tree.unflatten(tree.structure(like, is_keys), leaves)

    def __contains__(self, name: str) -> bool:
        return name in self._arrays or name in self._values

    def _compare(self, wanted: Mapping[str, Any], partial: bool) -> None:
        """Raises CheckpointError with all differences."""
        found = []
        for name, leaf in wanted.items():
            if name not in self:
                if not partial:
                    found.append(f"{name}: expected {described(leaf)}, not in the checkpoint")
            elif (there := self._difference(name, leaf)) is not None:
                found.append(f"{name}: expected {described(leaf)}, found {there}")
        if not partial:
            found += [f"{name}: in the checkpoint, not in like" for name in self.names if name not in wanted]
        if found:
            more = [f"and {len(found) - MOST_DIFFERENCES} more"] if len(found) > MOST_DIFFERENCES else []
            raise CheckpointError(
                f"restore the checkpoint {self.path} like a tree of {len(wanted)} leaves",
                "\n    ".join([f"{len(found)} difference{'s' * (len(found) > 1)}", *found[:MOST_DIFFERENCES], *more]),
                "pass like= of the saved structure, or partial=True to restore the matching leaves",
            )

    def _difference(self, name: str, leaf) -> str | None:
        """How the saved leaf differs from one of `like`; None if it fits."""
        stored = self._arrays.get(name)
        if stored is None:
            value = decoded_leaf(self._values[name])
            return None if isinstance(leaf, type(value)) or type(value) is type(leaf) else type(value).__name__
        if isinstance(leaf, KeyArray):
            fits = stored.keys == leaf._implementation and stored.shape[:-1] == tuple(leaf.shape)
            return None if fits else repr(stored)
        shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
        fits = not stored.keys and shape is not None and tuple(shape) == stored.shape and dtype == stored.dtype
        return None if fits else repr(stored)

    def _like(self, name: str, leaf, files: _Files) -> Any:
        if isinstance(leaf, KeyArray):
            return wrap_key_data(self._like(name, key_data(leaf), files), impl=self._arrays[name].keys)
        if isinstance(leaf, Array) and leaf.is_sharded and divides(leaf.sharding, leaf.shape):
            return self._by_parts(name, leaf, files)
        value = self._read(name, files, numpy=isinstance(leaf, (np.ndarray, np.generic)))
        if isinstance(leaf, np.generic):
            return value[()]
        return device_put(value, leaf.sharding) if isinstance(leaf, Array) and leaf.committed else value

    def _by_parts(self, name: str, leaf: Array, files: _Files) -> Array:
        """An array over several devices, of which each process reads its own parts."""
        stored = self._arrays[name]
        dims = stored.shape

        def part(index: tuple[slice, ...]) -> np.ndarray:
            limits = bounds(index, dims)
            result = np.empty([b - a for a, b in limits], stored.dtype)
            for file, saved, region in stored.parts:
                both = [(max(a, r.start), min(b, r.stop)) for (a, b), r in zip(limits, region, strict=True)]
                if all(a < b for a, b in both):
                    source = [slice(a - r.start, b - r.start) for (a, b), r in zip(both, region, strict=True)]
                    target = [slice(a - low, b - low) for (a, b), (low, _) in zip(both, limits, strict=True)]
                    result[tuple(target)] = files.read(file, saved, stored, region, source)
            return result

        return make_array_from_callback(dims, leaf.sharding, part)

    def _whole(self, name: str, files: _Files) -> Any:
        """A leaf as it was saved, on the default device."""
        value = self._read(name, files)
        keys = self._arrays[name].keys if name in self._arrays else ""
        return wrap_key_data(value, impl=keys) if keys else value

    def _read(self, name: str, files: _Files, numpy: bool = False) -> Any:
        if name in self._values:
            return decoded_leaf(self._values[name])
        stored = self._arrays[name]
        if len(stored.parts) == 1:
            result = files.read(*stored.parts[0][:2], stored)
        else:
            result = np.empty(stored.shape, stored.dtype)
            for file, part, region in stored.parts:
                result[region] = files.read(file, part, stored, region)
        return result if numpy else Array(result)


class _Files:
    """The files of a checkpoint, opened when they are needed."""

    def __init__(self, checkpoint: Checkpoint):
        self._checkpoint = checkpoint
        self._open: dict[str, safetensors.File] = {}

    def read(
        self,
        file: str,
        name: str,
        stored: _Stored,
        region: tuple[slice, ...] | None = None,
        within: Sequence[slice] | None = None,
    ) -> np.ndarray:
        """A part of an array, given by its `region`; or only the subregion `within` the part."""
        if file not in self._open:
            self._open[file] = safetensors.File(self._checkpoint.path / file)
        opened = self._open[file]
        shape = stored.shape if region is None else tuple(r.stop - r.start for r in region)
        entry = opened.entries.get(name)
        if entry is None or entry.bytes != math.prod(shape) * stored.dtype.itemsize:
            found = "no such array" if entry is None else f"{entry.bytes} bytes"
            raise self._checkpoint._damaged(f"{name!r} of {Shape(stored.dtype, shape)!r} in {file}: {found}")
        if within is not None and len(entry.shape) - (entry.dtype != stored.dtype) == len(shape):
            return opened.read(name, within, dtype=stored.dtype)
        whole = opened.read(name, dtype=stored.dtype).reshape(shape)
        return whole if within is None else whole[tuple(within)]

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *exception) -> None:
        for file in self._open.values():
            file.close()


__all__ = ["Checkpoint", "Snapshot", "write"]
