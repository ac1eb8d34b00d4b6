"""ArrayRecord files and image files: elements by their index."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hloom.data import native
from hloom.data.blocks import Block, Origin
from hloom.data.features import ExampleParser, Feature
from hloom.data.nodes import Access
from hloom.data.png import decode_png
from hloom.data.sources.files import file_names
from hloom.errors import DataError, MissingFileError, file_error, import_extra

_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


class ArrayRecordAccess(Access):
    """The records of one ArrayRecord file."""

    def __init__(self, names: tuple[str, ...], index: int, features: Mapping[str, Feature] | None):
        module = import_extra("hl.data.array_record", "train", "array_record.python.array_record_module")
        self.names, self.index, self.name = names, index, names[index]
        self.parser = ExampleParser(features) if features is not None else None
        try:
            self._reader = module.ArrayRecordReader(self.name)
            self.size = self._reader.num_records()
            if not self._reader.ok():
                self._reader.read([0])  # raises what is wrong
        except (RuntimeError, ValueError, OSError) as error:
            raise DataError(
                f"the records of {self.name}", str(error).splitlines()[0], "pass a file of ArrayRecordWriter"
            ) from None

    def take(self, indices: np.ndarray) -> Block:
        try:
            records = self._reader.read(indices.tolist())
        except (RuntimeError, ValueError, IndexError) as error:
            raise DataError(
                f"record {int(indices[0])} and others of {self.name}",
                str(error).splitlines()[0],
                "write the file again",
            ) from None
        origin = Origin(self.names, np.asarray(indices, np.int64) | (self.index << 40))
        if self.parser is None:
            return Block.of_elements(records, origin)
        sizes = np.array([len(record) for record in records], np.int64)
        data = np.frombuffer(b"".join(records) + bytes(native.PADDING), np.uint8)
        return self.parser.columns(data, np.stack([np.cumsum(sizes) - sizes, sizes], axis=1), origin)

    def close(self) -> None:
        """The reader stays open: other iterators of the dataset may use it."""


def decode_image(data: bytes, size: Sequence[int] | None = None, mode: str | None = None) -> np.ndarray:
    """The pixels of an encoded image (PNG, JPEG and other formats that Pillow reads), uint8[height, width, channels],
    or without the last axis for mode "L".

    size: (height, width) to resize to. mode: Pillow's, such as "RGB" or "L"; None is the file's own, palettes as RGB.
    Raises DataError.
    """
    if data[:4] == b"\x89PNG" and (pixels := decode_png(data, size, mode)) is not None:
        return pixels
    images = import_extra("decoding images", "train", "PIL.Image")
    try:
        with images.open(io.BytesIO(data)) as image:
            wanted = mode or ("RGB" if image.mode == "P" else image.mode)
            if size is not None:
                height, width = size
                image.draft(wanted if wanted in ("L", "RGB") else None, (width, height))  # JPEG decodes smaller ones
            if image.mode != wanted:
                image = image.convert(wanted)
            if size is not None and image.size != (width, height):
                image = image.resize((width, height))
            return np.asarray(image)
    except images.UnidentifiedImageError:
        found = f"{len(data)} bytes that are not an image"
    except (OSError, SyntaxError, ValueError, EOFError, images.DecompressionBombError) as error:
        found = str(error) or type(error).__name__
    raise DataError("decoding an image", found, "replace the image, or leave its record out with filter()")


def read_image(name: str, size: Sequence[int] | None, mode: str | None) -> np.ndarray:
    """`decode_image` of a file."""
    try:
        with open(name, "rb") as file:
            data = file.read()
    except OSError as error:
        raise file_error(f"reading {name}", error) from None
    return decode_image(data, size, mode)


class ImageAccess(Access):
    """The names of image files, with the labels from their folders."""

    def __init__(self, files: str | os.PathLike | Iterable):
        self.classes: tuple[str, ...] = ()
        if isinstance(files, (str, os.PathLike)) and os.path.isdir(files):
            root = Path(files)
            self.classes = tuple(sorted(entry.name for entry in root.iterdir() if entry.is_dir()))
            where = [root / name for name in self.classes] or [root]
            found = [
                (str(path), label)
                for label, folder in enumerate(where)
                for path in sorted(folder.rglob("*"))
                if path.suffix.lower() in _IMAGES
            ]
            if not found:
                raise MissingFileError(
                    f"the images in {root}", f"no file that ends in {', '.join(_IMAGES)}",
                    "pass a folder of images, or of one folder per class",
                )  # fmt: skip
            self.names, self.labels = tuple(name for name, _ in found), [label for _, label in found]
        else:
            self.names = file_names(files, "hl.data.images")
            self.labels = []
        self.size = len(self.names)

    def take(self, indices: np.ndarray) -> Block:
        elements: list[dict[str, Any]] = []
        for index in indices.tolist():
            name = self.names[index]
            elements.append({"image": name, "label": np.int64(self.labels[index])} if self.classes else {"image": name})
        return Block.of_elements(elements, Origin(self.names, np.asarray(indices, np.int64) << 40))
