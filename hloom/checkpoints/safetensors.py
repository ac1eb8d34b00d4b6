"""Files of named arrays in the safetensors format: read by slices, written without copies.

A file is 8 bytes with the size of a JSON header, the header, and the bytes of the arrays one after the other. Nothing
in it is executed, and every size is checked against the file's before memory is allocated.

Source: huggingface.co/docs/safetensors, "Format".
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hloom.errors import CheckpointError, FileError, file_error
from hloom.ir.records import record
from hloom.ir.types import DTYPES, HLO_NAME
from hloom.runtime.buffer import default_pool

# The format's names; other element types are written as bytes (U8 or wider), with their name in the metadata.
NAMES = {
    "pred": "BOOL", "s8": "I8", "s16": "I16", "s32": "I32", "s64": "I64", "u8": "U8", "u16": "U16", "u32": "U32",
    "u64": "U64", "f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64", "f8e4m3fn": "F8_E4M3", "f8e5m2": "F8_E5M2",
    "c64": "C64",
}  # fmt: skip
_DTYPES = {name: DTYPES[hlo] for hlo, name in NAMES.items()}
METADATA = "__metadata__"
LARGEST_HEADER = 100 << 20  # bytes; the format's own limit
ALIGNMENT = 64
BLOCK = 64 << 20  # bytes that are written in one call


@record(frozen=True)
class Entry:
    """An array in a file: dtype, shape, and where its bytes begin."""

    dtype: Any
    shape: tuple[int, ...]
    offset: int

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def write(path: str | os.PathLike, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> int:
    """Writes C-contiguous arrays and returns the bytes of the file, which are on the disk then.

    Raises FileError if the system refuses, such as a full disk.
    """
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    offset = 0
    for name, array in arrays.items():
        stored = NAMES.get(HLO_NAME[array.dtype])
        shape = list(array.shape) if stored else [*array.shape, array.dtype.itemsize]
        header[name] = {"dtype": stored or "U8", "shape": shape, "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    try:
        with open(path, "wb", buffering=0) as file:
            _write(file, memoryview(struct.pack("<Q", len(text)) + text))
            for array in arrays.values():
                if array.nbytes:
                    _write(file, _bytes(array))
            os.fsync(file.fileno())
    except OSError as error:
        raise file_error(f"write the arrays of {os.fspath(path)}", error) from error
    return 8 + len(text) + offset


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _write(file, data: memoryview) -> None:
    """All of the data, in blocks, in which other threads run."""
    done = 0
    while done < len(data):
        done += file.write(data[done : done + BLOCK])


def require_standard(arrays: Mapping[str, np.ndarray]) -> None:
    """Raises CheckpointError for arrays of element types that the format has no name for."""
    for name, array in arrays.items():
        if HLO_NAME[array.dtype] not in NAMES:
            raise CheckpointError(
                f"write {name!r} to a safetensors file",
                f"the format has no {HLO_NAME[array.dtype]}",
                f"convert it to one of {', '.join(NAMES)}, or use hl.checkpoints.save",
            )


_FROM_TORCH = "load it with torch.load(path, weights_only=True), and pass its tensors to hl.from_torch"
# Signatures of files of other formats, the suffix if decisive, the format's name, and how to read it.
_OTHERS = (
    (b"PK", ".npz", "a zip archive, as numpy.savez writes", "load it with hnp.load(path)"),
    (b"PK", "", "a zip archive, as torch.save writes", _FROM_TORCH),
    (b"\x80", "", "a pickle, as older versions of torch.save write", _FROM_TORCH),
    (b"\x93NUMPY", "", "an array, as numpy.save writes", "load it with hnp.load(path)"),
    (b"\x89HDF", "", "an HDF5 file, as Keras writes", "read it with h5py, and pass its arrays to hnp.asarray"),
    (b"GGUF", "", "a GGUF file, as llama.cpp writes", "take the model's safetensors files instead"),
    (b"{", "", "JSON, perhaps the index of a model in several files", "load the files that it names"),
)


class File:
    """An open file. entries: its arrays by name. metadata: texts by name."""

    def __init__(self, path: str | os.PathLike):
        """Raises FileError, and CheckpointError for a file that is not in the format."""
        self.path = Path(path)
        if self.path.is_dir():
            repair = f"hl.checkpoints.restore({os.fspath(path)!r}) restores the checkpoint in a folder"
            files = sorted(p.name for p in self.path.glob("*.safetensors"))
            if files and not (self.path / "manifest.json").exists():
                repair = f"name a file in it: {', '.join(files[:3])}"
            raise FileError(f"read the arrays of {self.path}", "it is a folder", repair)
        try:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115  (closed by `close`)
            size = os.fstat(self._file.fileno()).st_size
            start = self._file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
            if length > min(size - 8, LARGEST_HEADER):
                raise self._other(start, length) or self._damaged(f"a header of {length} bytes in a file of {size}")
            header = self._file.read(length)
        except OSError as error:
            raise file_error(f"read the arrays of {self.path}", error) from error
        self._first = 8 + length
        self.metadata: dict[str, str] = {}
        self.entries = self._read_header(header, size)

    def _damaged(self, found: str) -> CheckpointError:
        repair = "restore another checkpoint, or copy it again"
        if self.path.suffix not in (".safetensors", ""):
            repair = "name a file that safetensors wrote, such as model.safetensors"
        return CheckpointError(f"arrays in the safetensors format in {self.path}", found, repair)

    def _other(self, start: bytes, length: int) -> CheckpointError | None:
        """The error of a file that begins as those of another format do."""
        for magic, suffix, what, repair in _OTHERS:
            if start.startswith(magic) and length > LARGEST_HEADER and suffix in ("", self.path.suffix):
                return CheckpointError(f"arrays in the safetensors format in {self.path}", what, repair)
        return None

    def _read_header(self, text: bytes, size: int) -> dict[str, Entry]:
        try:
            header = json.loads(text)
            self.metadata = {str(k): str(v) for k, v in header.pop(METADATA, {}).items()}
            found = {}
            for name, value in header.items():
                dtype, shape = _DTYPES[value["dtype"]], tuple(value["shape"])
                begin, end = value["data_offsets"]
                if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
                    raise ValueError(f"sizes of {name!r} that are not natural numbers")
                entry = found[name] = Entry(dtype, shape, self._first + begin)
                if end - begin != entry.bytes or self._first + end > size:
                    raise ValueError(f"{name!r} has {entry.bytes} bytes from {begin} to {end} of {size - self._first}")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._damaged(f"{type(error).__name__}: {error}") from error
        return found

    def read(self, name: str, region: Sequence[slice] | None = None, dtype: np.dtype | None = None) -> np.ndarray:
        """An array, or the part of it in a region (slices with begin and end), in new memory.

        dtype: for data stored as bytes. Raises KeyError for an unknown name, CheckpointError for a file that ends
        before the array does.
        """
        entry = self.entries[name]
        stored = entry.dtype
        shape = entry.shape
        if dtype is not None and dtype != stored:
            shape, stored = shape[:-1], dtype
        region = [slice(0, n) for n in shape] if region is None else list(region)
        whole = all(r.start == 0 and r.stop == n for r, n in list(zip(region, shape, strict=True))[1:])
        part = tuple(r.stop - r.start for r in region)
        if whole:  # one piece of the file
            row = math.prod(shape[1:]) * stored.itemsize
            result = default_pool().shelf(part, stored).take()
            self._fill(result, entry.offset + (region[0].start * row if region else 0), name)
            return result
        mapped = np.memmap(self._file, np.uint8, "r", entry.offset, (math.prod(shape) * stored.itemsize,))
        return np.ascontiguousarray(mapped.view(stored).reshape(shape)[tuple(region)])

    def _fill(self, array: np.ndarray, offset: int, name: str) -> None:
        if not array.nbytes:
            return
        view, done = _bytes(array), 0
        while done < len(view):
            count = os.preadv(self._file.fileno(), [view[done : done + BLOCK]], offset + done)
            if not count:
                raise self._damaged(f"it ends within {name!r}")
            done += count

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> File:
        return self

    def __exit__(self, *exception) -> None:
        self.close()


__all__ = ["Entry", "File", "require_standard", "write"]
