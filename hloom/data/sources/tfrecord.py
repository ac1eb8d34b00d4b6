"""TFRecord files: read in blocks, checked, several interleaved; and written.

Framing, checksums and the parsing of examples are native (`runtime.records_source`): a block of records becomes columns
in one call each.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hloom.data import native
from hloom.data.blocks import Block, Origin
from hloom.data.examples import encode_example
from hloom.data.features import ExampleParser, Feature
from hloom.data.nodes import Epochs, Node, State, generator, state_error
from hloom.data.sources.files import Compressed, Plain, require_compression
from hloom.errors import ArgumentError, DataError, file_error
from hloom.ir.process.files import Partial
from hloom.runtime import records_source as source

_BUFFER = 1 << 20  # bytes, as fit the second-level cache
_RECORDS = 4096  # per block
_LONGEST = 1 << 31  # bytes of a record in a compressed file, whose size is not known before

_SKIP_HINT = 'on_corrupt="skip" leaves corrupt records out and counts them'


class RecordFile:
    """The records of one file in blocks, from an offset on."""

    def __init__(self, names: tuple[str, ...], index: int, compression: str | None, verify: bool, skip: bool, parser):
        self.names, self.index, self.name = names, index, names[index]
        self.verify, self.skip, self.parser = verify, skip, parser
        compressed = _is_compressed(self.name) if compression == "auto" else compression is not None
        self._file = Compressed(self.name) if compressed else Plain(self.name)
        self._frames = native.Frames(_RECORDS)
        self._buffer = np.zeros(_BUFFER + native.PADDING, np.uint8)
        self._first = 0  # offset of the buffer's start in the file
        self._size = self._at = 0
        self._ended = False
        self.record = self.corrupt = 0

    @property
    def offset(self) -> int:
        """Of the next block."""
        return self._first + self._at

    def seek(self, offset: int, record: int) -> None:
        if offset:
            self._file.seek(offset)
        self._first, self._size, self._at, self._ended, self.record = offset, 0, 0, False, record

    def close(self) -> None:
        self._file.close()

    def next(self) -> Block | None:
        """The next block of records; None at the end. Raises DataError, FileError."""
        while True:
            frames = self._frames
            status = frames.scan(self._buffer, self._size, self._at, self.verify)
            if frames.count:
                origin = Origin.of(self.names, self.index, self.record, frames.count)
                places = frames.places[: frames.count]
                if self.parser is None:
                    block = self._raw(places, origin)
                else:
                    block = self.parser.columns(self._buffer, places, origin)
                self.record += frames.count
                self._at = frames.at
                return block
            if status == source.NEEDS_MORE:
                if not self._more():
                    return None
            else:
                self._pass_over(status)

    def _raw(self, places: np.ndarray, origin: Origin) -> Block:
        data = self._buffer
        return Block.of_elements([data[at : at + size].tobytes() for at, size in places.tolist()], origin)

    def _length(self) -> int:
        return int.from_bytes(self._buffer[self._at : self._at + 8].tobytes(), "little")

    def _more(self) -> bool:
        """Reads on. False at the end of the file."""
        have = self._size - self._at
        wanted = 16 + self._length() if have >= 12 else 12
        left = self._file.remaining()
        if self._ended or (left is not None and wanted > have + left and have + left > 0):
            if have == 0 and self._ended:
                return False
            self._truncated(have if left is None else have + left, wanted)
            return False
        if wanted > _LONGEST:
            self._corrupt(f"a length of {wanted - 16} bytes")
            return False
        self._fill(wanted)
        return True

    def _fill(self, wanted: int) -> None:
        buffer, have = self._buffer, self._size - self._at
        if len(buffer) - native.PADDING < wanted:  # never more than twice the bytes already received
            size = min(wanted, max(2 * have, 2 * _BUFFER)) if self._file.remaining() is None else wanted
            buffer = np.zeros(max(size, len(buffer)) + native.PADDING, np.uint8)
        buffer[:have] = self._buffer[self._at : self._size]
        self._buffer, self._first, self._at, self._size = buffer, self.offset, 0, have
        read = self._file.read(buffer[have : len(buffer) - native.PADDING])
        self._size += read
        self._ended = not read

    def _truncated(self, have: int, wanted: int) -> None:
        whole = f"has {have} of {wanted} bytes" if wanted > 12 else f"has {have} bytes of its header"
        self._corrupt(f"the file is truncated: the record {whole}")
        self._at, self._size, self._ended = 0, 0, True

    def _corrupt(self, found: str) -> None:
        """Counts a corrupt record, or raises."""
        if not self.skip:
            raise DataError(
                f"record {self.record} of {self.name}", f"at offset {self.offset}: {found}",
                f"write the file again; {_SKIP_HINT}",
            )  # fmt: skip
        self.corrupt += 1
        self.record += 1

    def _pass_over(self, status: int) -> None:
        if status == source.BAD_DATA:
            length = self._length()
            self._corrupt("the checksum of the data does not match")
            self._at += 16 + length
            return
        first = "" if self.offset else "; it may be no TFRecord file, or a compressed one"
        self._corrupt(f"the checksum of the length does not match{first}")
        self._at += 1
        while True:  # to where a length matches its checksum
            left = self._file.remaining()
            longest = _LONGEST if left is None else self._size - self._at + left
            self._at = native.resynchronize(self._buffer, self._size, self._at, longest)
            if self._at + 12 <= self._size or self._ended:
                break
            self._fill(12)
        if self._at + 12 > self._size:
            self._at = self._size


def _is_compressed(name: str) -> bool:
    """Whether a file is compressed. Where it begins with a length that matches its checksum it is not."""
    file = Plain(name)
    head = np.zeros(12, np.uint8)
    size = file.read(head)
    file.close()
    data = head[:size].tobytes()
    if size == 12 and native.masked_crc32c(data[:8]) == int.from_bytes(data[8:], "little"):
        return False
    return data[:2] == b"\x1f\x8b" or (
        len(data) > 1 and data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0
    )


class TFRecords(Node):
    """The records of several files, `interleave` at a time, `run` from each in turn."""

    def __init__(
        self, names: tuple[str, ...], features: Mapping[str, Feature] | None, compression: str | None, interleave: int,
        run: int, files_seed: int | None, verify: bool, skip: bool,
    ):  # fmt: skip
        super().__init__()
        self.names, self.features, self.compression = names, features, compression
        self.files_seed, self.verify, self.skip = files_seed, verify, skip
        self.slots = max(1, min(interleave, len(names)))
        self.run = run if self.slots > 1 else 1 << 62
        self._files: list[RecordFile | None] = []
        self._start()

    def _start(self) -> None:
        for file in self._files:
            if file is not None:
                file.close()
        slots = self.slots
        self._files = [None] * slots
        self._blocks: list[Block | None] = [None] * slots
        # Of each slot its file (-1: none yet, -2: no more), and where its current block begins and how much was used.
        self._place = np.full((slots, 4), -1, np.int64)
        self._corrupt = 0
        self._counted = [0] * slots
        self._next_file, self._slot, self._left = 0, 0, self.run
        self._order = np.arange(len(self.names))

    def begin(self, epochs: Epochs) -> None:
        self._start()
        if self.files_seed is not None:
            self._order = generator(self.files_seed, *epochs).permutation(len(self.names))

    def _open(self, slot: int, index: int, offset: int = 0, record: int = 0) -> RecordFile:
        parser = ExampleParser(self.features) if self.features is not None else None
        file = RecordFile(self.names, index, self.compression, self.verify, self.skip, parser)
        file.seek(offset, record)
        self._files[slot], self._counted[slot] = file, 0
        return file

    def _load(self, slot: int) -> Block | None:
        """The current block of a slot, or the next one if it is exhausted; None if no file is left for the slot."""
        place = self._place[slot]
        block = self._blocks[slot]
        while block is None or place[3] >= block.size:
            file = self._files[slot]
            if file is None:
                if place[0] == -2 or self._next_file == len(self.names):
                    place[0] = -2
                    return None
                place[0] = self._order[self._next_file]
                self._next_file += 1
                file = self._open(slot, int(place[0]))
            begin = file.offset, file.record
            block = self._blocks[slot] = file.next()
            self._corrupt += file.corrupt - self._counted[slot]
            self._counted[slot] = file.corrupt
            if block is None:
                file.close()
                self._files[slot] = None
                place[:] = -1
            else:
                place[1:] = *begin, 0
        return block

    def next(self, limit: int) -> Block | None:
        for _ in range(self.slots + 1):
            slot = self._slot
            block = self._load(slot) if self._left else None
            if block is not None:
                start = int(self._place[slot][3])
                stop = min(block.size, start + limit, start + self._left)
                self._place[slot][3] = stop
                self._left -= stop - start
                return block[start:stop]
            self._slot, self._left = (slot + 1) % self.slots, self.run
        return None

    def corrupt(self) -> int:
        return self._corrupt

    def state(self) -> State:
        return {
            "place": self._place.copy(), "next_file": self._next_file, "slot": self._slot, "left": self._left,
            "corrupt": self._corrupt,
        }  # fmt: skip

    def restore(self, state: State) -> None:
        place = np.array(state["place"], np.int64)
        if place.shape != self._place.shape or place[:, 0].max() >= len(self.names):
            raise state_error(f"it reads {len(place)} files at a time, of more than {place[:, 0].max()}")
        order = self._order
        self._start()
        self._order, self._place = order, place
        self._next_file, self._slot, self._left = (int(state[k]) for k in ("next_file", "slot", "left"))
        for slot, (index, offset, record, used) in enumerate(place.tolist()):
            if index < 0:
                continue
            file = self._open(slot, index, offset, record)
            while used > 0:  # blocks may have other sizes now
                begin = file.offset, file.record
                block = file.next()
                if block is None:
                    raise state_error(f"{self.names[index]} has fewer records than were read from it")
                if used <= block.size:
                    place[slot] = index, *begin, used
                    self._blocks[slot] = block
                used -= block.size
            self._counted[slot] = file.corrupt
        self._corrupt = int(state["corrupt"])

    def close(self) -> None:
        for file in self._files:
            if file is not None:
                file.close()
        self._files = [None] * self.slots


class TFRecordWriter:
    """Writes a TFRecord file, which appears under its name when it is complete.

        with hl.data.TFRecordWriter("train.tfrecord", compression="gzip") as writer:
            writer.write({"image": image.tobytes(), "label": 3})

    compression: "gzip", "zlib" or None. The block's end closes the file; where the block raises, there is none. Raises
    FileError.

    >>> with hl.data.TFRecordWriter("x.tfrecord") as file:
    ...     file.write(b"a record")
    >>> list(hl.data.tfrecord("x.tfrecord"))
    [b'a record']
    """

    def __init__(
        self, path: str | os.PathLike, compression: str | None = None, features: Mapping[str, Feature] | None = None
    ):
        name = require_compression(compression)
        if name == "auto":
            raise ArgumentError("a TFRecordWriter", 'compression="auto"', 'pass "gzip", "zlib" or None')
        self.path, self.features, self.count = Path(path), features, 0
        self._deflate = None if name is None else zlib.compressobj(wbits=31 if name == "gzip" else 15)
        try:
            self._part = Partial(self.path)
            self._file = open(self._part.path, "wb", buffering=1 << 20)  # noqa: SIM115 (closed by `close`)
        except OSError as error:
            raise file_error(f"writing {self.path}", error) from None

    def write(self, record: bytes | bytearray | memoryview | Mapping[str, Any]) -> None:
        """Appends a record: bytes, or the features of a `tf.train.Example` (`encode_example`)."""
        if isinstance(record, Mapping):
            record = encode_example(record, self.features)
        data = bytes(record)
        length = len(data).to_bytes(8, "little")
        self._write(length + native.masked_crc32c(length).to_bytes(4, "little"))
        self._write(data)
        self._write(native.masked_crc32c(data).to_bytes(4, "little"))
        self.count += 1

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data if self._deflate is None else self._deflate.compress(data))
        except OSError as error:
            self.discard()
            raise file_error(f"writing {self.path}", error) from None

    def close(self) -> None:
        """Completes the file."""
        if self._file.closed:
            return
        try:
            if self._deflate is not None:
                self._file.write(self._deflate.flush())
            self._file.close()
            self._part.commit()
        except OSError as error:
            self.discard()
            raise file_error(f"writing {self.path}", error) from None

    def discard(self) -> None:
        """Ends without a file."""
        with contextlib.suppress(OSError):  # the disk is full: discard the buffered data as well
            self._file.close()
        self._part.discard()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


def write_tfrecord(
    path: str | os.PathLike, examples: Mapping[str, Any] | Iterable, features: Mapping[str, Feature] | None = None,
    *, compression: str | None = None,
) -> int:  # fmt: skip
    """Writes a TFRecord file; how many records it has.

    examples: a dict of arrays, whose rows are examples, or an iterable (a dataset, too) of dicts or bytes. features: as
    for reading; with them, arrays of `Bytes` features are written as their memory. Raises DataError, FileError.

    >>> examples = [{"x": np.arange(2, dtype=np.int64)}, {"x": np.arange(2, dtype=np.int64) + 5}]
    >>> hl.data.write_tfrecord("x.tfrecord", examples)
    2
    """
    with TFRecordWriter(path, compression, features) as writer:
        rows: Iterable = examples
        if isinstance(examples, Mapping):
            names = list(examples)
            rows = (dict(zip(names, row, strict=True)) for row in zip(*examples.values(), strict=True))
        for example in rows:
            writer.write(example)
    return writer.count
