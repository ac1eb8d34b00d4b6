"""Arrays in .npy and .npz files, mapped into memory instead of read."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from hloom.data.blocks import Block, joined
from hloom.data.nodes import Access
from hloom.data.sources.files import file_names
from hloom.data.sources.memory import ArrayAccess
from hloom.errors import ArgumentError, DataError, file_error
from hloom.tree import pytrees as tree

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Concatenated(Access):
    """The elements of one access after those of the one before."""

    def __init__(self, parts: list[Access]):
        self.parts = parts
        self.ends = np.cumsum([part.size for part in parts])
        self.size = int(self.ends[-1])

    def take(self, indices: np.ndarray) -> Block:
        which = np.searchsorted(self.ends, indices, side="right")
        blocks, order = [], np.argsort(which, kind="stable")
        for part in np.unique(which).tolist():
            first = self.ends[part] - self.parts[part].size
            blocks.append(self.parts[part].take(indices[which == part] - first))
        block = joined(blocks)
        return block if len(blocks) == 1 else block.take(np.argsort(order, kind="stable"))

    def close(self) -> None:
        for part in self.parts:
            part.close()


def numpy_access(files: Any) -> Access:
    """Rows of the arrays of .npy or .npz files: of one, of the files of a pattern one after the other, or of a tree of
    .npy files, whose rows belong together."""
    if isinstance(files, (Mapping, tuple)):
        leaves, structure = tree.flatten(files)
        return ArrayAccess(tree.unflatten(structure, [_whole(leaf) for leaf in leaves]), "the files")
    names = file_names(files, "hl.data.npy")
    parts: list[Access] = [ArrayAccess(_mapped(name), name) for name in names]
    return parts[0] if len(parts) == 1 else Concatenated(parts)


def _whole(name: Any) -> np.ndarray:
    (found,) = names if len(names := file_names(name, "hl.data.npy")) == 1 else (None,)
    array = None if found is None else _mapped(found)
    if not isinstance(array, np.ndarray):
        raise ArgumentError("hl.data.npy of a tree of files", f"{name!r} is not one .npy file", "name one file each")
    return array


def _mapped(name: str) -> Any:
    """The array of a .npy file, or a dict of those of a .npz file."""
    try:
        if zipfile.is_zipfile(name):
            return _mapped_members(name)
        return np.load(name, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise file_error(f"reading {name}", error) from None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        # NumPy's text for any other file recommends to unpickle it.
        found = "it is not a file of arrays, or has Python objects" if "pickle" in str(error) else str(error)
        raise DataError(f"the arrays of {name}", found, "pass a file of numpy.save or numpy.savez") from None


def _mapped_members(name: str) -> dict[str, np.ndarray]:
    """Members that are stored as they are are mapped, compressed ones read."""
    arrays: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(name) as archive:
        for member in archive.infolist():
            key = member.filename.removesuffix(".npy")
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                header = _HEADERS.get(version)
                shape, fortran, dtype = header(file) if header else ((), False, np.dtype(np.uint8))
                if dtype.hasobject:
                    raise ValueError(f"{key} holds Python objects, which are not read")
                begins = file.tell()
                if member.compress_type != zipfile.ZIP_STORED or header is None:
                    file.seek(0)
                    arrays[key] = np.lib.format.read_array(file, allow_pickle=False)
                    continue
            with open(name, "rb") as raw:  # the member's bytes begin after its local header
                raw.seek(member.header_offset + 26)
                lengths = np.frombuffer(raw.read(4), "<u2")
            offset = member.header_offset + 30 + int(lengths.sum()) + begins
            order: Any = "F" if fortran else "C"
            arrays[key] = np.memmap(name, dtype=dtype, mode="r", offset=offset, shape=shape, order=order)
    return arrays
