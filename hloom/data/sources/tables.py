"""Files that are read from the start: lines of text, CSV and Parquet (through pyarrow)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hloom.data.blocks import Block, Origin, object_column
from hloom.data.nodes import Epochs, Node, State, state_error
from hloom.errors import ArgumentError, DataError, FileError, file_error, import_extra
from hloom.ir.types import as_dtype
from hloom.tree import pytrees as tree

_LINES = 1024  # in a block
_ROWS = 8192


class Stream(Node):
    """The records of several files one after the other. read(index, first) yields the blocks of a file from a record
    on."""

    def __init__(self, names: tuple[str, ...], read: Callable[[int, int], Iterator[Block]]):
        super().__init__()
        self.names, self.read = names, read
        self._go_to(0, 0)

    def _go_to(self, file: int, record: int) -> None:
        self._file, self._record = file, record
        self._blocks: Iterator[Block] | None = None
        self._rest: Block | None = None

    def begin(self, epochs: Epochs) -> None:
        self._go_to(0, 0)

    def next(self, limit: int) -> Block | None:
        while self._rest is None:
            if self._file == len(self.names):
                return None
            if self._blocks is None:
                self._blocks = self.read(self._file, self._record)
            self._rest = next(self._blocks, None)
            if self._rest is None:
                self._go_to(self._file + 1, 0)
        block, rest = self._rest[:limit], self._rest
        self._rest = rest[block.size :] if block.size < rest.size else None
        self._record += block.size
        return block

    def state(self) -> State:
        return {"file": self._file, "record": self._record}

    def restore(self, state: State) -> None:
        file, record = int(state["file"]), int(state["record"])
        if not 0 <= file <= len(self.names):
            raise state_error(f"it reads file {file} of {len(self.names)}")
        self._go_to(file, record)

    def close(self) -> None:
        self._go_to(len(self.names), 0)


def text_lines(names: tuple[str, ...], encoding: str) -> Callable[[int, int], Iterator[Block]]:
    """Lines without their ends."""

    def read(index: int, first: int) -> Iterator[Block]:
        number = 0
        try:
            with open(names[index], encoding=encoding, newline=None) as file:
                lines: list[str] = []
                for line in file:
                    number += 1
                    if number > first:
                        lines.append(line.removesuffix("\n"))
                    if len(lines) == _LINES:
                        yield Block.of_elements(lines, Origin.of(names, index, number - _LINES, _LINES))
                        lines = []
                if lines:
                    yield Block.of_elements(lines, Origin.of(names, index, number - len(lines), len(lines)))
        except UnicodeDecodeError as error:
            raise DataError(
                f"a line of {names[index]} after line {number} as text in {encoding}",
                f"byte {error.object[error.start]:#04x}, which is none", "pass encoding=",
            ) from None  # fmt: skip
        except OSError as error:
            raise file_error(f"reading {names[index]}", error) from None

    return read


class Columns:
    """Record batches of pyarrow as blocks of dicts of columns."""

    def __init__(self, names: tuple[str, ...], columns: Sequence[str] | None, dtypes: Mapping[str, Any] | None):
        self.names, self.columns = names, None if columns is None else list(columns)
        self.dtypes = {name: as_dtype(dtype) for name, dtype in (dtypes or {}).items()}

    def require(self, index: int, there: Sequence[str]) -> list[str]:
        """The columns to read."""
        wanted = list(there) if self.columns is None else self.columns
        for name in [*wanted, *self.dtypes]:
            if name not in there:
                raise DataError(
                    f"the column {name!r} of {self.names[index]}", f"the file has {', '.join(map(repr, there))}",
                    "name one of them",
                )  # fmt: skip
        return wanted

    def block(self, batch: Any, index: int, first: int, wanted: Sequence[str]) -> Block:
        origin = Origin.of(self.names, index, first, batch.num_rows)
        arrays = {name: self._array(batch.column(name), name, origin) for name in wanted}
        leaves, structure = tree.flatten(dict.fromkeys(wanted, 0))
        ordered = tree.unflatten(structure, range(len(leaves)))
        columns: list = [None] * len(leaves)
        for name, position in ordered.items():
            columns[position] = arrays[name]
        return Block.of_columns(structure, columns, origin)

    def _array(self, column: Any, name: str, origin: Origin) -> np.ndarray:
        kind = str(column.type)
        numeric = kind.startswith(("int", "uint", "float", "double", "halffloat", "bool"))
        dtype = self.dtypes.get(name)
        if column.null_count and numeric and not (kind.startswith(("float", "double", "half")) or _holds_nan(dtype)):
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise DataError(
                f"the column {name!r} of {origin.describe(row)} as {kind}", "no value",
                f'read it as float, with NaN for none: dtypes={{{name!r}: "float32"}}',
            )  # fmt: skip
        if numeric:
            array = column.to_numpy(zero_copy_only=False)
            return array if dtype is None else array.astype(dtype)
        if kind.startswith(("timestamp", "date", "time", "duration")):
            return column.to_numpy(zero_copy_only=False)
        array = object_column([np.asarray(v) if isinstance(v, list) else v for v in column.to_pylist()])
        if dtype is None:
            return array
        try:
            return array.astype(dtype)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"the column {name!r} of {origin.describe(0)} and following as {dtype}", f"{kind}: {error}",
                "leave it out of dtypes",
            ) from None  # fmt: skip


def _holds_nan(dtype: np.dtype | None) -> bool:
    return dtype is not None and dtype.kind == "f"


def csv_rows(
    names: tuple[str, ...], columns: Sequence[str] | None, dtypes: Mapping[str, Any] | None, delimiter: str,
    header: bool | Sequence[str],
) -> Callable[[int, int], Iterator[Block]]:  # fmt: skip
    """Rows of CSV files. header: True, False (columns are f0, f1, ...) or the names."""
    csv = import_extra("hl.data.csv", "train", "pyarrow.csv")
    arrow = import_extra("hl.data.csv", "train", "pyarrow")
    if len(delimiter) != 1:
        raise ArgumentError(f"csv(delimiter={delimiter!r})", "it is not one character", "pass one")
    made = Columns(names, columns, dtypes)
    options = csv.ReadOptions(
        autogenerate_column_names=header is False, column_names=None if isinstance(header, bool) else list(header)
    )

    def read(index: int, first: int) -> Iterator[Block]:
        at = 0
        try:
            types = {name: arrow.from_numpy_dtype(dtype) for name, dtype in made.dtypes.items() if dtype.kind in "iufb"}
            reader = csv.open_csv(
                names[index], read_options=options, parse_options=csv.ParseOptions(delimiter=delimiter),
                convert_options=csv.ConvertOptions(column_types=types),
            )  # fmt: skip
            wanted = made.require(index, reader.schema.names)
            with reader:
                for batch in reader:
                    if at + batch.num_rows > first:
                        used = max(0, first - at)
                        yield made.block(batch.slice(used), index, at + used, wanted)
                    at += batch.num_rows
        except (arrow.ArrowInvalid, arrow.ArrowKeyError) as error:
            raise DataError(
                f"a row of {names[index]} after row {at}", str(error).splitlines()[0],
                "correct the file, or say how to read it: delimiter=, header=, dtypes=",
            ) from None  # fmt: skip
        except FileError:
            raise
        except OSError as error:
            raise file_error(f"reading {names[index]}", error) from None

    return read


def parquet_rows(
    names: tuple[str, ...], columns: Sequence[str] | None, dtypes: Mapping[str, Any] | None
) -> Callable[[int, int], Iterator[Block]]:
    """Rows of Parquet files."""
    parquet = import_extra("hl.data.parquet", "train", "pyarrow.parquet")
    arrow = import_extra("hl.data.parquet", "train", "pyarrow")
    made = Columns(names, columns, dtypes)

    def read(index: int, first: int) -> Iterator[Block]:
        try:
            with parquet.ParquetFile(names[index]) as file:
                wanted = made.require(index, file.schema_arrow.names)
                sizes = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
                ends = np.cumsum(sizes)
                group = int(np.searchsorted(ends, first, side="right"))
                at = int(ends[group - 1]) if group else 0
                groups = range(group, len(sizes))
                for batch in file.iter_batches(_ROWS, row_groups=groups, columns=wanted) if len(groups) else ():
                    if at + batch.num_rows > first:
                        used = max(0, first - at)
                        yield made.block(batch.slice(used), index, at + used, wanted)
                    at += batch.num_rows
        except arrow.ArrowInvalid as error:
            raise DataError(
                f"the rows of {names[index]}", str(error).splitlines()[0], "pass Parquet files; write it again"
            ) from None
        except FileError:
            raise
        except OSError as error:  # pyarrow has it for damaged pages, too
            raise DataError(f"the rows of {names[index]}", str(error), "write the file again") from None

    return read
